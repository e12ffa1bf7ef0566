//! What calls allocate: nothing, once buffers and futures have been used.

use crate::support::{Question, attach};
use am_async::{CallConfig, CallEndpoint};
use am_conformance::allocations;
use am_core::Rank;
use am_core::loopback::single;

#[test]
fn calls_of_one_message_allocate_nothing() {
    let (mut endpoint, handles) = attach(single(), CallConfig::default());
    let mut some = |count: u64| {
        for number in 0..count {
            endpoint.call(Rank(0), handles.nothing, &()).wait(&mut endpoint).unwrap();
            assert_eq!(
                endpoint.call(Rank(0), handles.half, &(2 * number as i64)).wait(&mut endpoint),
                Ok(number as i64)
            );
            // Its error has no text, its answer no list.
            endpoint.call(Rank(0), handles.half, &-1).wait(&mut endpoint).unwrap_err();
            assert_eq!(
                endpoint.call(Rank(0), handles.echo, &Question::Nothing).wait(&mut endpoint),
                Ok(Question::Nothing)
            );
            // A future, with a timer.
            assert_eq!(endpoint.call(Rank(0), handles.later, &(number, 0)).wait(&mut endpoint), Ok(number + 1));
        }
        let answers: [_; 64] = std::array::from_fn(|_| endpoint.call(Rank(0), handles.add, &1));
        answers.into_iter().for_each(|call| assert!(call.wait(&mut endpoint).is_ok()));
    };
    some(300);
    let before = allocations();
    some(1000);
    assert_eq!(allocations() - before, 0);
}
