//! An error of a handler is told to its own program and spoils nothing for the others.

use am_core::loopback::{LoopbackConfig, network};
use am_core::{Endpoint, HandlerError, HandlerResult, Handlers, PollError, Rank, Request, WaitError};
use std::thread;

type Rank0 = Endpoint<am_core::loopback::Loopback, ()>;

/// Runs two ranks; rank 1 may send rank 0 requests whose handler fails.
fn two(first: impl FnOnce(Rank0) + Send, second: impl FnOnce(Rank0, Request<()>) + Send) {
    let mut transports = network(2, LoopbackConfig::default()).into_iter();
    let mut attach = || {
        let transport = transports.next().unwrap();
        move || {
            let mut handlers = Handlers::new();
            let boom = handlers.one_way("boom", |(), _, (), _| -> HandlerResult { Err(HandlerError::new("no")) });
            (Endpoint::attach(transport, handlers, ()).unwrap(), boom.unwrap())
        }
    };
    let (one, other) = (attach(), attach());
    thread::scope(|scope| {
        scope.spawn(move || first(one().0));
        scope.spawn(move || {
            let (endpoint, boom) = other();
            second(endpoint, boom);
        });
    });
}

fn told<T>(outcome: Result<T, impl Into<WaitError>>) -> bool {
    matches!(outcome.map_err(Into::into), Err(WaitError::Poll(PollError::Handler(_))))
}

#[test]
fn a_barrier_defers_them() {
    two(
        |mut endpoint| {
            for _ in 0..50 {
                endpoint.barrier().unwrap();
                assert!(told(endpoint.poll()), "the poll after the barrier tells it");
                endpoint.barrier().unwrap();
            }
            assert_eq!(endpoint.statistics().failed, 50);
            endpoint.finish().unwrap();
        },
        |mut endpoint, boom| {
            for _ in 0..50 {
                endpoint.request(Rank(0), boom, ()).unwrap();
                endpoint.barrier().unwrap();
                endpoint.barrier().unwrap();
            }
            endpoint.finish().unwrap();
        },
    );
}

#[test]
fn a_rank_finishes_in_spite_of_them() {
    for _ in 0..50 {
        two(
            |endpoint| assert!(told(endpoint.finish()), "nothing else tells it"),
            |mut endpoint, boom| {
                endpoint.request(Rank(0), boom, ()).unwrap();
                endpoint.finish().expect("the other rank finishes, too");
            },
        );
    }
}
