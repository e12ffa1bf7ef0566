//! Calls that an endpoint's future makes: they leave in the order in which they were made, also when it panics.

use crate::support::{TestEndpoint, World, attach, simple};
use am_async::{CallConfig, CallEndpoint, CallError, Calls, Context, Failure, Method, Methods};
use am_core::loopback::{Loopback, LoopbackConfig, network, single};
use am_core::{Endpoint, Handlers, Rank, Span};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Note = Method<(u32, Vec<u8>), ()>;

/// A rank whose method keeps the numbers that it was called with, in their order.
fn noting(transport: Loopback) -> (Endpoint<Loopback, Calls<Vec<u32>>>, Note) {
    let mut methods = Methods::<Vec<u32>>::new();
    let note = methods.function("note", |noted: &mut Vec<u32>, _, (number, _): (u32, Vec<u8>)| {
        noted.push(number);
        Ok::<(), Failure>(())
    });
    let mut handlers = Handlers::new();
    let calls = Calls::register(&mut handlers, methods, Vec::new()).unwrap();
    (Endpoint::attach(transport, handlers, calls).unwrap(), note.unwrap())
}

/// Also those that have a deadline, or find no room in the network.
#[test]
fn they_arrive_in_order() {
    const CALLS: u32 = 100;
    let mut ranks = network(2, LoopbackConfig::default().requests(3).medium(64)).into_iter();
    let (first, second) = (ranks.next().unwrap(), ranks.next().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut callee, _) = noting(second);
            callee.serve_until(|noted| noted.len() == CALLS as usize).unwrap();
            let noted = callee.state().world().clone();
            callee.finish().unwrap();
            assert!(noted.iter().copied().eq(0..CALLS), "{noted:?}");
        });
        let (mut caller, note) = noting(first);
        let all = caller.run(|context| async move {
            let patient = context.timeout(Span::from_secs(1000));
            let calls: Vec<_> = (0..CALLS)
                .map(|number| match number % 7 {
                    2 => context.call(Rank(1), note, &(number, vec![1; 10])),
                    4 => patient.call(Rank(1), note, &(number, Vec::new())),
                    _ => context.call(Rank(1), note, &(number, Vec::new())),
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        });
        all.unwrap();
        caller.finish().unwrap();
    });
}

#[test]
fn one_that_is_dropped_at_once_is_not_sent() {
    let (mut endpoint, note) = noting(single());
    let kept = endpoint.run(|context: Context<Vec<u32>>| async move {
        drop(context.call(Rank(0), note, &(1, Vec::new())));
        let kept = context.call(Rank(0), note, &(2, Vec::new()));
        drop(context.call(Rank(0), note, &(3, Vec::new())));
        Some(kept)
    });
    // It was made in the future's last poll.
    kept.unwrap().unwrap().wait(&mut endpoint).unwrap();
    endpoint.drain().unwrap();
    assert_eq!(endpoint.state().world(), &[2]);
    assert_eq!((endpoint.caller().held(), endpoint.caller().under_way()), (0, 0));
}

/// What the future had made before it panicked is sent by whoever serves the endpoint next.
#[test]
fn those_of_a_future_that_panics_are_sent() {
    let (mut endpoint, note) = noting(single());
    let mut made = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        endpoint.run(|context: Context<Vec<u32>>| {
            let made = &mut made;
            async move {
                *made = Some(context.call(Rank(0), note, &(5, vec![1; 20])));
                panic!("on purpose");
            }
        })
    }));
    assert!(panicked.is_err());
    made.unwrap().wait(&mut endpoint).unwrap();
    assert_eq!(endpoint.state().world(), &[5]);
}

/// A call has one answer: who waits for it once more does not wait for ever.
#[test]
#[should_panic(expected = "waited for after it had yielded its answer")]
fn answers_are_handed_out_once() {
    let (mut endpoint, note) = noting(single());
    let mut call = endpoint.call(Rank(0), note, &(1, Vec::new()));
    endpoint
        .run(|_| async {
            (&mut call).await.unwrap();
        })
        .unwrap();
    let _ = call.wait(&mut endpoint);
}

/// A future that runs another endpoint leaves each its own calls.
#[test]
fn each_endpoint_sends_its_own() {
    let (mut inner, note) = noting(single());
    simple(2, |endpoint: &mut TestEndpoint, handles| {
        let sum = endpoint.run(|context: Context<World>| async move {
            let before = context.call(Rank(1), handles.add, &1);
            inner
                .run(|context| async move { context.call(Rank(0), note, &(7, Vec::new())).await })
                .unwrap()
                .unwrap();
            let after = context.call(Rank(1), handles.add, &2);
            let sums = (before.await, after.await);
            assert_eq!(inner.state().world(), &[7]);
            sums
        });
        assert_eq!(sum.unwrap(), (Ok(1), Ok(3)));
    });
}

/// More than may be under way: the others wait.
#[test]
fn those_beyond_a_limit_wait() {
    let (mut endpoint, handles) = attach(single(), CallConfig::new().calls(3));
    let most = endpoint.run(|context| async move {
        let calls: Vec<_> = (0..20).map(|_| context.call(Rank(0), handles.later, &(1, 5))).collect();
        let mut most = 0;
        for call in calls {
            assert_eq!(call.await, Ok::<_, CallError<Failure>>(2));
            most = most.max(context.under_way());
        }
        most
    });
    assert!((1..=3).contains(&most.unwrap()));
    assert_eq!(endpoint.caller().held(), 0);
}
