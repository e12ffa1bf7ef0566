//! What the loss of a rank costs the others, in virtual time.

use am_async::{CallConfig, CallEndpoint, CallError, Calls, Failure, Methods};
use am_core::{Endpoint, Handlers, Rank, Span};
use std::time::Duration;

/// Calls of rank 0 to rank 1 while rank 2 has calls of it that it does not answer. Rank 2 ends amid them if it is
/// to be lost. The median and the longest of the calls to rank 1.
fn latencies(lose: bool) -> (Duration, Duration) {
    let config = machine_sim::conduit::ConduitConfig::default();
    let report = machine_sim::conduit::run(&machine_sim::crossbar(3), &config, move |transport| {
        let mut methods = Methods::<bool>::new();
        let echo = methods.function("echo", |_, _, bytes: Vec<u8>| Ok::<_, Failure>(bytes)).unwrap();
        let never = methods.asynchronous("never", |_, ()| std::future::pending::<Result<(), Failure>>()).unwrap();
        let over = methods.function("over", |over: &mut bool, _, ()| {
            *over = true;
            Ok::<_, Failure>(())
        });
        let over = over.unwrap();
        let mut handlers = Handlers::new();
        let calls = Calls::register_with(&mut handlers, methods, false, CallConfig::new().metrics(true)).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, calls).unwrap();
        match (endpoint.rank(), lose) {
            (Rank(2), true) => {
                // It ends without a word to anyone.
                let _ = endpoint.wait_until_for(Span::from_micros(300), |_| false);
                return None;
            }
            (Rank(0), _) => {
                let waiting: Vec<_> = (0..100).map(|_| endpoint.call(Rank(2), never, &())).collect();
                for number in 0..1000 {
                    let bytes = vec![number as u8; number % 100];
                    assert_eq!(endpoint.call(Rank(1), echo, &bytes).wait(&mut endpoint), Ok(bytes));
                }
                for call in waiting {
                    if lose {
                        let outcome = call.wait(&mut endpoint);
                        assert!(matches!(outcome, Err(CallError::RankLost { rank: Rank(2), .. })), "{outcome:?}");
                    }
                }
                let others = if lose { 1..2 } else { 1..3 };
                others.for_each(|rank| endpoint.call(Rank(rank), over, &()).wait(&mut endpoint).unwrap());
            }
            _ => endpoint.serve_until(|over| *over).unwrap(),
        }
        let metrics = endpoint.caller().metrics().unwrap();
        endpoint.leave();
        let latency = &metrics.method("echo").unwrap().caller.latency;
        Some((latency.p50, latency.max))
    });
    report.unwrap().results.remove(0).unwrap().unwrap()
}

/// No call between two other ranks takes longer by more than a round trip.
#[test]
fn others_are_delayed_by_a_round_trip_at_most() {
    let ((trip, longest), (_, with_loss)) = (latencies(false), latencies(true));
    assert!(
        with_loss <= longest + trip,
        "{with_loss:?} with a loss, {longest:?} without, {trip:?} of a round trip"
    );
}
