//! One-sided operations whose targets go, that belong to another endpoint, or that nobody waits for.

use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::one_sided::{AtomicOp, OneSided, OneSidedError};
use am_core::{Endpoint, Handlers, Rank};
use std::sync::mpsc;
use std::thread;

type Ranks = Endpoint<Loopback, OneSided>;

/// Over active messages, since loopback would show the segments.
const CONFIG: LoopbackConfig = LoopbackConfig {
    requests: 64,
    replies: 64,
    medium: 8192,
    long: u64::MAX,
    segment: 4096,
    endpoints: 1,
    direct: false,
};

fn attach(transport: Loopback) -> Ranks {
    let mut handlers = Handlers::<OneSided>::new();
    let one_sided = OneSided::register(&mut handlers).unwrap();
    Endpoint::attach(transport, handlers, one_sided).unwrap()
}

/// Rank 1 goes when it is told, in the way given; rank 0 does the rest.
fn with_a_target_that_goes(go: impl FnOnce(Ranks) + Send, first: impl FnOnce(Ranks, mpsc::Sender<()>)) {
    let mut ranks = network(2, CONFIG).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (sender, told) = mpsc::channel();
    let (attached, ready) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let endpoint = attach(one);
            attached.send(()).unwrap();
            told.recv().unwrap();
            go(endpoint);
        });
        let endpoint = attach(zero);
        // From now on rank 1 serves nothing.
        ready.recv().unwrap();
        first(endpoint, sender);
    });
}

fn poll_until_gone(endpoint: &mut Ranks) {
    while endpoint.status(Rank(1)) == Some(am_core::PeerStatus::Active) {
        // The loss is told by one of these.
        let _ = endpoint.poll();
        thread::yield_now();
    }
    let _ = endpoint.poll();
}

#[test]
fn quiet_tells_of_targets_that_went_before() {
    for leave in [true, false] {
        let go = |endpoint: Ranks| if leave { drop(endpoint.leave()) } else { drop(endpoint) };
        with_a_target_that_goes(go, |mut endpoint, tell| {
            endpoint.put_nbi(Rank(1), 0, &[1; 100]).unwrap();
            // One whose handle is dropped, and one that is waited for.
            drop(endpoint.get_nb(Rank(1), 0, 64).unwrap());
            let get = endpoint.get_nb(Rank(1), 0, 64).unwrap();
            endpoint.acknowledge_loss(Rank(1));
            tell.send(()).unwrap();
            poll_until_gone(&mut endpoint);
            assert!(endpoint.test(&get).unwrap(), "a wait returns at once");
            let gone = OneSidedError::Gone { rank: Rank(1) };
            let unfinished = endpoint.wait(get).unwrap_err();
            assert_eq!(unfinished.error, gone);
            assert!(endpoint.test(&unfinished.operation).unwrap(), "it is over");
            assert_eq!(endpoint.wait(unfinished.operation).unwrap_err().error, gone);
            assert_eq!(endpoint.quiet(), Err(OneSidedError::Gone { rank: Rank(1) }));
            assert_eq!(endpoint.quiet(), Ok(()));
            assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        });
    }
}

#[test]
fn operations_belong_to_their_endpoint() {
    let mut ranks = network(2, CONFIG).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (sender, operations) = mpsc::channel();
    let (back, returned) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut endpoint = attach(one);
            sender.send(endpoint.atomic_nb(Rank(0), 0, AtomicOp::<u64>::Inc).unwrap()).unwrap();
            let operation = returned.recv().unwrap();
            assert_eq!(endpoint.wait(operation).unwrap(), 0, "its own endpoint can wait for it all the same");
            endpoint.finish().unwrap();
        });
        let mut endpoint = attach(zero);
        let foreign = operations.recv().unwrap();
        assert_eq!(endpoint.test(&foreign), Err(OneSidedError::Foreign));
        let unfinished = endpoint.wait(foreign).unwrap_err();
        assert_eq!(unfinished.error, OneSidedError::Foreign);
        back.send(unfinished.operation).unwrap();
        endpoint.finish().unwrap();
    });
}

#[test]
fn a_wait_for_a_signal_times_out() {
    let mut endpoint = attach(network(1, CONFIG).pop().unwrap());
    endpoint.set_timeout(am_core::Span::from_millis(5));
    let waited = endpoint.wait_signal(0, 1);
    assert!(matches!(waited, Err(OneSidedError::Wait(am_core::WaitError::TimedOut(_)))), "{waited:?}");
    endpoint.put_signal(Rank(0), 8, &[1], 0).map(|put| endpoint.wait(put)).unwrap().unwrap();
    assert_eq!(endpoint.wait_signal(0, 1), Ok(1));
    endpoint.finish().unwrap();
}

#[test]
fn a_wait_that_fails_keeps_the_operation() {
    let mut ranks = network(2, CONFIG).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (sender, told) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut endpoint = attach(one);
            endpoint.segment().write(16, &[7; 100]).unwrap();
            endpoint.barrier().unwrap();
            // It serves nothing until the other's first wait has failed.
            told.recv().unwrap_err();
            endpoint.finish().unwrap();
        });
        let mut endpoint = attach(zero);
        endpoint.barrier().unwrap();
        let get = endpoint.get_nb(Rank(1), 16, 100).unwrap();
        endpoint.set_timeout(am_core::Span::from_millis(1));
        let unfinished = endpoint.wait(get).unwrap_err();
        assert!(matches!(unfinished.error, OneSidedError::Wait(_)), "{unfinished}");
        endpoint.set_timeout(None);
        drop(sender);
        assert_eq!(endpoint.wait(unfinished.operation).unwrap(), [7; 100]);
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        endpoint.finish().unwrap();
    });
}
