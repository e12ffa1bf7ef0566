//! Operations on arrays of which a rank in the middle is lost.

use super::distribution::{Distribution, Layout};
use super::{ArrayError, GlobalArray};
use crate::Pgas;
use crate::on_ranks::Ranks;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::one_sided::{AtomicCode, OneSided};
use am_core::{Endpoint, Handlers, PeerStatus, Rank, Span};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const RANKS: u32 = 5;
const VICTIM: Rank = Rank(2);
const ELEMENTS: u64 = 300;

type Call = fn(&GlobalArray<u64>, &mut Ranks, &[u64], &mut [u64]) -> Result<(), ArrayError>;

const CALLS: [(&str, Call); 9] = [
    ("add", |array, endpoint, all, _| array.batch_add(endpoint, all, 1u64)),
    ("update", |array, endpoint, all, out| array.batch_update(endpoint, all, AtomicCode::Max, &*out)),
    ("load", |array, endpoint, all, out| array.batch_load(endpoint, all, out)),
    ("store", |array, endpoint, all, out| array.batch_store(endpoint, all, &*out)),
    ("fetch", |array, endpoint, all, out| array.batch_fetch(endpoint, all, AtomicCode::Add, 1u64, out)),
    ("get", |array, endpoint, all, out| array.batch_fetch(endpoint, all, AtomicCode::Get, 0u64, out)),
    ("compare", |array, endpoint, all, out| array.batch_compare_exchange(endpoint, all, 7u64, 8u64, out)),
    ("read a range", |array, endpoint, _, out| array.get_range(endpoint, 0..ELEMENTS, out)),
    ("write a range", |array, endpoint, _, out| array.put_range(endpoint, 0..ELEMENTS, out)),
];

/// Serves the others until all survivors are here.
fn together(endpoint: &mut Ranks, arrived: &AtomicU32, times: u32) {
    arrived.fetch_add(1, Ordering::SeqCst);
    while arrived.load(Ordering::SeqCst) < times * (RANKS - 1) {
        // The loss is told by one of these.
        let _ = endpoint.poll();
        thread::yield_now();
    }
}

/// Each call fails and names the rank; nothing that it began at others is under way any more.
fn calls_fail(endpoint: &mut Ranks, array: &GlobalArray<u64>, when: &str) {
    let all: Vec<u64> = (0..ELEMENTS).collect();
    for (name, call) in CALLS {
        let mut out = vec![1; ELEMENTS as usize];
        let error = call(array, endpoint, &all, &mut out).expect_err(name);
        assert_eq!(error.lost_rank(), Some(VICTIM), "{name}, {when}: {error}");
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0, "{name}, {when}");
    }
}

#[test]
fn nothing_stays_under_way_after_a_loss() {
    for layout in [Layout::Block, Layout::Cyclic] {
        for medium in [100, 8192] {
            let config = LoopbackConfig::default().direct(false).medium(medium);
            let (ready, lost, arrived) = (Barrier::new(RANKS as usize), Barrier::new(4), AtomicU32::new(0));
            thread::scope(|scope| {
                for transport in network(RANKS, config) {
                    let (ready, lost, arrived) = (&ready, &lost, &arrived);
                    scope.spawn(move || {
                        let mut handlers = Handlers::new();
                        let pgas = Pgas::register(&mut handlers).unwrap();
                        let mut endpoint = Endpoint::attach(transport, handlers, pgas).unwrap();
                        endpoint.set_timeout(Span::from_secs(60));
                        let distribution = Distribution::new([ELEMENTS], [layout], [RANKS]).unwrap();
                        let array = GlobalArray::<u64>::new(&mut endpoint, distribution).unwrap();
                        endpoint.barrier().unwrap();
                        ready.wait();
                        if endpoint.rank() == VICTIM {
                            return;
                        }
                        while endpoint.status(VICTIM) == Some(PeerStatus::Active) {
                            thread::yield_now();
                        }
                        lost.wait();
                        calls_fail(&mut endpoint, &array, "before the loss is acknowledged");
                        together(&mut endpoint, arrived, 1);
                        endpoint.acknowledge_loss(VICTIM);
                        calls_fail(&mut endpoint, &array, "after it");
                        together(&mut endpoint, arrived, 2);
                        let own = |rank: Rank| {
                            let owner = |number: u64| array.pointer([number]).unwrap().rank();
                            (0..ELEMENTS).filter(|number| owner(*number) == rank).collect::<Vec<_>>()
                        };
                        let other = own(Rank((endpoint.rank().0 + 1 + u32::from(endpoint.rank().0 == 1)) % RANKS));
                        array.batch_store(&mut endpoint, &other, &other).unwrap();
                        let mut found = vec![0; other.len()];
                        array.batch_load(&mut endpoint, &other, &mut found).unwrap();
                        assert_eq!(found, other);
                        together(&mut endpoint, arrived, 3);
                    });
                }
            });
        }
    }
}

/// Attaches a rank that has an array with all others, and waits until rank 1 is gone, which is none.
fn without_rank_1(
    transport: Loopback,
    ranks: u32,
    ready: &Barrier,
    lost: &Barrier,
) -> Option<(Endpoint<Loopback, Pgas>, GlobalArray<u64>)> {
    let mut handlers = Handlers::new();
    let pgas = Pgas::register(&mut handlers).unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, pgas).unwrap();
    let distribution = Distribution::new([ELEMENTS], [Layout::Block], [ranks]).unwrap();
    let array = GlobalArray::<u64>::new(&mut endpoint, distribution).unwrap();
    endpoint.barrier().unwrap();
    ready.wait();
    if endpoint.rank() == Rank(1) {
        return None;
    }
    while endpoint.status(Rank(1)) == Some(PeerStatus::Active) {
        thread::yield_now();
    }
    lost.wait();
    Some((endpoint, array))
}

/// A call fails for another rank's loss while its messages wait for room: those before are not left under way.
#[test]
fn nothing_stays_under_way_that_waited_for_room() {
    for serves in [true, false] {
        let config = LoopbackConfig::default().direct(false).medium(100).requests(4);
        let (ready, lost) = (Barrier::new(3), Barrier::new(2));
        thread::scope(|scope| {
            for transport in network(3, config) {
                let (ready, lost) = (&ready, &lost);
                scope.spawn(move || {
                    let Some((mut endpoint, array)) = without_rank_1(transport, 3, ready, lost) else { return };
                    if endpoint.rank() == Rank(2) {
                        // The messages are there before they are served.
                        thread::sleep(Duration::from_millis(20));
                        while serves && endpoint.status(Rank(0)) == Some(PeerStatus::Active) {
                            let _ = endpoint.poll();
                            thread::yield_now();
                        }
                        lost.wait();
                        return;
                    }
                    endpoint.set_timeout(if serves { Span::from_secs(60) } else { Span::from_millis(50) });
                    let theirs: Vec<u64> = (ELEMENTS / 3 * 2..ELEMENTS).collect();
                    let mut out = vec![0; theirs.len()];
                    let ended = [false, true].map(|load| {
                        let called = if load {
                            array.batch_load(&mut endpoint, &theirs, &mut out)
                        } else {
                            array.batch_store(&mut endpoint, &theirs, &theirs)
                        };
                        (called, endpoint.layer::<OneSided>().under_way())
                    });
                    drop(endpoint);
                    lost.wait();
                    for (called, under_way) in ended {
                        assert_eq!(called.unwrap_err().lost_rank(), Some(Rank(1)));
                        // Who does not serve is waited for until the time-out.
                        assert_eq!(under_way == 0, serves);
                    }
                });
            }
        });
    }
}

/// A call that fails does not wait for an operation of the program's own on a rank that the array's call
/// has nothing to do with.
#[test]
fn a_call_that_fails_waits_for_no_operations_of_others() {
    let config = LoopbackConfig::default().direct(false);
    let (ready, lost) = (Barrier::new(4), Barrier::new(3));
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    thread::scope(|scope| {
        for transport in network(4, config) {
            let (ready, lost, done, ended) = (&ready, &lost, done.clone(), &ended);
            scope.spawn(move || {
                let Some((mut endpoint, array)) = without_rank_1(transport, 4, ready, lost) else { return };
                if endpoint.rank() == Rank(3) {
                    // Computes until rank 0's call has ended; a minute stands for never.
                    let late = ended.lock().unwrap().recv_timeout(Duration::from_secs(60));
                    assert!(late.is_ok(), "the call of rank 0 waits for rank 3");
                }
                if endpoint.rank() == Rank(0) {
                    // The program's own, on rank 3, and dropped.
                    drop(endpoint.put_nb(Rank(3), 0, &[1]).unwrap());
                    let theirs: Vec<u64> = (ELEMENTS / 4..ELEMENTS / 2).collect();
                    let called = array.batch_store(&mut endpoint, &theirs, &theirs);
                    assert_eq!(called.unwrap_err().lost_rank(), Some(Rank(1)));
                    done.send(()).unwrap();
                    return;
                }
                while endpoint.status(Rank(0)) == Some(PeerStatus::Active) {
                    let _ = endpoint.poll();
                    thread::yield_now();
                }
            });
        }
    });
}
