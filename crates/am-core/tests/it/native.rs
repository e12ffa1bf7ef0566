//! One-sided operations that the network does by itself: without the target, in any order, and what is told if
//! they fail.

use am_core::loopback::{Loopback, LoopbackConfig, NativeOperations, network};
use am_core::one_sided::{AtomicOp, OneSided, OneSidedError};
use am_core::transport::OperationFault;
use am_core::{Endpoint, Handlers, Rank};
use std::sync::mpsc;
use std::thread;

type Ranks = Endpoint<Loopback, OneSided>;

const ONE: Rank = Rank(1);

fn attach(transport: Loopback) -> Ranks {
    let mut handlers = Handlers::<OneSided>::new();
    let one_sided = OneSided::register(&mut handlers).unwrap();
    Endpoint::attach(transport, handlers, one_sided).unwrap()
}

/// Rank 0 works while rank 1 serves nothing; then rank 1 looks at its segment.
fn beside_a_deaf_target(
    native: NativeOperations,
    work: impl FnOnce(Ranks) -> Option<Ranks>,
    look: impl FnOnce(&Ranks) + Send,
) {
    let config = LoopbackConfig::default().direct(false).native(native);
    let mut ranks = network(2, config).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (attached, ready) = mpsc::channel();
    let (done, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let endpoint = attach(one);
            attached.send(()).unwrap();
            told.recv().unwrap();
            look(&endpoint);
            endpoint.leave();
        });
        let endpoint = attach(zero);
        ready.recv().unwrap();
        let endpoint = work(endpoint);
        done.send(()).unwrap();
        drop(endpoint.map(Endpoint::leave));
    });
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

#[test]
fn a_deaf_target_is_no_hindrance() {
    let bytes = pattern(10_000);
    let work = |mut endpoint: Ranks| {
        let sent = endpoint.statistics().total_sent();
        endpoint.put(ONE, 100, &bytes).unwrap();
        let mut found = vec![0; 10_000];
        endpoint.get(ONE, 100, &mut found).unwrap();
        assert!(found == bytes);
        // Several under way, taken in another order.
        let gets: Vec<_> = (0..40).map(|part| endpoint.get_nb(ONE, 100 + 250 * part, 250).unwrap()).collect();
        for (part, get) in gets.into_iter().enumerate().rev() {
            assert!(endpoint.wait(get).unwrap() == bytes[250 * part..][..250]);
        }
        for part in 0..50 {
            endpoint.put_nbi(ONE, 20_000 + 64 * part, &bytes[64 * part as usize..][..64]).unwrap();
            endpoint.atomic_nbi(ONE, 8, AtomicOp::Add(part)).unwrap();
        }
        let signal = endpoint.put_signal(ONE, 30_000, b"signal", 16).unwrap();
        endpoint.quiet().unwrap();
        endpoint.wait(signal).unwrap();
        endpoint.get_nbi(ONE, 20_000, 3_200, 64).unwrap();
        endpoint.quiet().unwrap();
        assert!(endpoint.segment().view(64, 3_200).unwrap().to_vec() == bytes[..3_200]);
        assert_eq!(endpoint.atomic(ONE, 8, AtomicOp::CompareSwap { expected: 1225, new: 7u64 }).unwrap(), 1225);
        let native = endpoint.statistics().native();
        assert_eq!(endpoint.statistics().total_sent(), sent, "no message was sent");
        assert!(native.messages > 150 && native.bytes > 30_000, "{native:?}");
        Some(endpoint)
    };
    beside_a_deaf_target(NativeOperations::All, work, |endpoint| {
        let at = |offset, len| endpoint.segment().view(offset, len).unwrap().to_vec();
        assert!(at(100, 10_000) == bytes && at(20_000, 3_200) == bytes[..3_200]);
        assert_eq!((at(30_000, 6), at(16, 8)), (b"signal".to_vec(), 1u64.to_le_bytes().to_vec()));
        assert_eq!(at(8, 8), 7u64.to_le_bytes());
    });
}

#[test]
fn a_departure_leaves_nothing_undone() {
    let work = |mut endpoint: Ranks| {
        for part in 0..16 {
            endpoint.put_nbi(ONE, 8 * part, &part.to_le_bytes()).unwrap();
        }
        drop(endpoint);
        None
    };
    beside_a_deaf_target(NativeOperations::All, work, |endpoint| {
        for part in 0..16u64 {
            assert_eq!(endpoint.segment().view(8 * part, 8).unwrap().to_vec(), part.to_le_bytes());
        }
    });
}

#[test]
fn failures_are_told_once() {
    let failed = Err(OneSidedError::Failed { rank: ONE, fault: OperationFault::Failed });
    let work = |mut endpoint: Ranks| {
        // Every third operation fails: one alone.
        assert_eq!(
            [(); 6].map(|()| endpoint.put(ONE, 0, &[1])),
            [Ok(()), Ok(()), failed.clone(), Ok(()), Ok(()), failed.clone()]
        );
        // One of three that nobody has a handle of.
        for _ in 0..3 {
            endpoint.put_nbi(ONE, 0, &[2]).unwrap();
        }
        assert_eq!([endpoint.quiet(), endpoint.quiet()], [failed.clone(), Ok(())]);
        // One of three parts of a get.
        assert_eq!(endpoint.get(ONE, 0, &mut [0; 3000]), failed);
        // One of three of an access region, and none of the next one.
        for outcome in [failed.clone(), Ok(())] {
            endpoint.begin_region().unwrap();
            for _ in 0..if outcome.is_ok() { 2 } else { 3 } {
                endpoint.atomic_nbi(ONE, 64, AtomicOp::<u64>::Inc).unwrap();
            }
            let region = endpoint.end_region().unwrap();
            assert_eq!(endpoint.wait(region).map_err(OneSidedError::from), outcome);
        }
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        Some(endpoint)
    };
    // What failed changed nothing: two of three increments, and two more.
    beside_a_deaf_target(NativeOperations::Failing(3), work, |endpoint| {
        assert_eq!(endpoint.segment().view(64, 8).unwrap().to_vec(), 4u64.to_le_bytes());
    });
}

#[test]
fn what_is_not_coherent_travels_as_messages() {
    for (native, messages) in [(NativeOperations::All, false), (NativeOperations::Incoherent, true)] {
        let config = LoopbackConfig::default().direct(false).native(native);
        let ranks = network(2, config).into_iter().map(|transport| {
            thread::spawn(move || {
                let mut endpoint = attach(transport);
                endpoint.barrier().unwrap();
                let (sent, started) =
                    (endpoint.statistics().total_sent(), endpoint.statistics().native().messages);
                endpoint.atomic(Rank(1 - endpoint.rank().0), 0, AtomicOp::Add(2.5f32)).unwrap();
                let native = endpoint.statistics().native().messages - started;
                assert_eq!(
                    (endpoint.statistics().total_sent() - sent, native),
                    (u64::from(messages), u64::from(!messages))
                );
                endpoint.put(Rank(1 - endpoint.rank().0), 8, &[1]).unwrap();
                assert_eq!(endpoint.statistics().native().messages - started, native + 1);
                endpoint.finish().unwrap();
            })
        });
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    }
}

#[test]
fn messages_can_be_had_instead() {
    let config = LoopbackConfig::default().direct(false).native(NativeOperations::All);
    let mut handlers = Handlers::<OneSided>::new();
    let one_sided = OneSided::register(&mut handlers).unwrap().with_native(false);
    let transport = network(1, config).pop().unwrap();
    let mut endpoint = Endpoint::attach(transport, handlers, one_sided).unwrap();
    endpoint.put_nbi(Rank(0), 0, &[1; 8]).unwrap();
    assert_eq!(endpoint.statistics().native().messages, 0);
    endpoint.finish().unwrap();
}
