//! One request to many ranks, and a bounded number of futures under way.

use crate::support::{simple, until_dropped};
use am_async::{CallEndpoint, CallError, join};
use am_core::{Rank, Span};
use std::cell::Cell;

#[test]
fn one_request_goes_to_all() {
    simple(3, |endpoint, handles| {
        let all = || (0..4).map(Rank);
        let gone = Err(CallError::NoSuchRank { to: Rank(3).into(), ranks: 3 });
        let answers = endpoint.caller().call_each(all(), handles.add, &7).wait(endpoint);
        assert_eq!(answers, [Ok(7), Ok(7), Ok(7), gone.clone()]);
        let answers = endpoint.run(|context| async move {
            // The first answers last.
            let slow = context.call(Rank(0), handles.later, &(1, 2000));
            let each = context.call_each(all(), handles.later, &(2, 10)).await;
            assert_eq!(slow.await, Ok(2));
            each
        });
        let late = Err(CallError::NoSuchRank { to: Rank(3).into(), ranks: 3 });
        assert_eq!(answers.unwrap(), [Ok(3), Ok(3), Ok(3), late]);
        drop(endpoint.caller().call_each(all(), handles.never, &()));
        (0..3).for_each(|rank| until_dropped(endpoint, handles, Rank(rank)));
        assert_eq!(endpoint.caller().held(), 0);
    });
}

#[test]
fn no_more_are_under_way_than_may_be() {
    simple(2, |endpoint, handles| {
        for limit in [1, 3, 1000] {
            let (under_way, most) = (&Cell::new(0u32), &Cell::new(0));
            let sums = endpoint.run(|context| async move {
                let context = &context;
                let calls = (0..50u64).map(|number| async move {
                    under_way.set(under_way.get() + 1);
                    most.set(most.get().max(under_way.get()));
                    context.sleep(Span::from_micros(50 - number)).await;
                    let sum = context.call(Rank(1), handles.later, &(number, number % 3)).await;
                    under_way.set(under_way.get() - 1);
                    sum
                });
                join(limit, calls).await
            });
            assert_eq!(sums.unwrap(), (1..=50).map(Ok).collect::<Vec<_>>());
            assert_eq!(most.get() as usize, limit.min(50));
        }
        assert_eq!(endpoint.run(|_| join(0, std::iter::empty::<std::future::Ready<u8>>())).unwrap(), [0; 0]);
    });
}
