//! One-sided operations whose targets go, that belong to another endpoint, or that nobody waits for.

use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::one_sided::{AtomicBatch, AtomicCode, AtomicOp, Dimension, OneSided, OneSidedError, Runs};
use am_core::transport::OperationFault;
use am_core::{Endpoint, Handlers, LossCause, Rank};
use std::sync::{Barrier, mpsc};
use std::thread;

type Ranks = Endpoint<Loopback, OneSided>;

/// Over active messages, since loopback would show the segments.
const CONFIG: LoopbackConfig = LoopbackConfig::new().segment(4096).direct(false);

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
            let cause = (!leave).then_some(LossCause::Left);
            let gone = OneSidedError::Gone { rank: Rank(1), cause };
            let loss = cause.map(|cause| (Rank(1), cause));
            assert_eq!((gone.loss(), gone.lost_rank()), (loss, loss.map(|(rank, _)| rank)));
            let unfinished = endpoint.wait(get).unwrap_err();
            assert_eq!(unfinished.error, gone);
            assert!(endpoint.test(&unfinished.operation).unwrap(), "it is over");
            assert_eq!(endpoint.wait(unfinished.operation).unwrap_err().error, gone);
            assert_eq!(endpoint.quiet(), Err(gone));
            assert_eq!(endpoint.quiet(), Ok(()));
            assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        });
    }
}

#[test]
fn quiet_ends_what_was_let_go() {
    for served in [false, true] {
        let serves = move |mut endpoint: Ranks| {
            while served && endpoint.status(Rank(0)) == Some(am_core::PeerStatus::Active) {
                // The loss of rank 0 is the end.
                let _ = endpoint.poll();
                thread::yield_now();
            }
        };
        with_a_target_that_goes(serves, |mut endpoint, tell| {
            endpoint.acknowledge_loss(Rank(1));
            drop(endpoint.get_nb(Rank(1), 0, 64).unwrap());
            endpoint.begin_region().unwrap();
            endpoint.put_nbi(Rank(1), 0, &[1; 100]).unwrap();
            drop(endpoint.end_region().unwrap());
            tell.send(()).unwrap();
            if served {
                // It waits for the answers, whose handling nobody else waits for.
                endpoint.drain().unwrap();
            } else {
                poll_until_gone(&mut endpoint);
                assert_eq!(endpoint.layer::<OneSided>().under_way(), 2);
            }
            assert_eq!(endpoint.quiet(), Ok(()), "nobody is told how they fared");
            assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        });
    }
}

/// `part` of rank 0 beside rank 1, which leaves once all have attached, and rank 2, which serves nothing until the
/// sender is dropped.
fn beside_a_lost_rank(config: LoopbackConfig, part: impl FnOnce(&mut Ranks, mpsc::Sender<()>)) {
    let mut ranks = network(3, config).into_iter();
    let [zero, one, two] = std::array::from_fn(|_| ranks.next().unwrap());
    let (serve, told_to_serve) = mpsc::channel::<()>();
    let attached = &Barrier::new(3);
    thread::scope(move |scope| {
        // Dropped with this closure if it fails, so that rank 2 ends.
        let serve = serve;
        scope.spawn(move || {
            let endpoint = attach(one);
            attached.wait();
            drop(endpoint);
        });
        scope.spawn(move || {
            let mut endpoint = attach(two);
            attached.wait();
            told_to_serve.recv().unwrap_err();
            while endpoint.status(Rank(0)) == Some(am_core::PeerStatus::Active) {
                // The losses of both are told by one of these.
                let _ = endpoint.poll();
                thread::yield_now();
            }
        });
        let mut endpoint = attach(zero);
        attached.wait();
        part(&mut endpoint, serve);
    });
}

/// Rank 1 is lost while operations on rank 2 are under way.
#[test]
fn operations_settle_after_the_loss_of_others() {
    beside_a_lost_rank(CONFIG, |endpoint, serve| {
        let (first, second) =
            (endpoint.get_nb(Rank(2), 0, 8).unwrap(), endpoint.put_nb(Rank(2), 0, &[7]).unwrap());
        let on_the_lost = endpoint.put_nb(Rank(1), 0, &[7]);
        poll_until_gone(endpoint);
        let unfinished = endpoint.wait(first).unwrap_err();
        assert_eq!(unfinished.error.lost_rank(), Some(Rank(1)));
        endpoint.set_timeout(am_core::Span::from_millis(1));
        let unfinished = endpoint.settle(unfinished.operation).unwrap_err();
        assert!(matches!(unfinished.error, OneSidedError::Wait(am_core::WaitError::TimedOut(_))), "{unfinished}");
        endpoint.set_timeout(None);
        drop(serve);
        assert_eq!(endpoint.settle(unfinished.operation).unwrap().len(), 8);
        endpoint.settle(second).unwrap();
        if let Ok(put) = on_the_lost {
            let gone = OneSidedError::Gone { rank: Rank(1), cause: Some(LossCause::Left) };
            assert_eq!(endpoint.settle(put).map_err(OneSidedError::from), Err(gone));
        }
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        // The loss is no less untold than before.
        assert_eq!(endpoint.wait_until(|_| false).unwrap_err().lost_rank(), Some(Rank(1)));
    });
}

/// Rank 1 is lost while a part of an operation on rank 2 waits for room: the parts before go on, and `quiet` waits
/// for them.
#[test]
fn parts_of_what_could_not_be_sent_are_waited_for() {
    type Start = fn(&mut Ranks) -> Result<(), OneSidedError>;
    let starts: [Start; 7] = [
        |endpoint| endpoint.put_nb(Rank(2), 0, &[7; 1000]).map(drop),
        |endpoint| endpoint.put_nbi(Rank(2), 0, &[7; 1000]),
        |endpoint| endpoint.get_nb(Rank(2), 0, 1000).map(drop),
        |endpoint| endpoint.get(Rank(2), 0, &mut [0; 1000]),
        |endpoint| endpoint.get_nbi(Rank(2), 0, 1000, 0),
        |endpoint| endpoint.put_runs(Rank(2), &Runs::List(&[(0, 1000)]), &[7; 1000]),
        |endpoint| {
            endpoint.begin_region()?;
            let put = endpoint.put_nbi(Rank(2), 0, &[7; 1000]);
            endpoint.end_region().map(drop)?;
            put
        },
    ];
    for (form, start) in starts.into_iter().enumerate() {
        beside_a_lost_rank(CONFIG.requests(4).medium(100).long(100), |endpoint, serve| {
            assert_eq!(start(endpoint).unwrap_err().lost_rank(), Some(Rank(1)), "form {form}");
            endpoint.acknowledge_loss(Rank(1));
            endpoint.set_timeout(am_core::Span::from_millis(1));
            let quiet = endpoint.quiet();
            let timed_out = matches!(&quiet, Err(OneSidedError::Wait(am_core::WaitError::TimedOut(_))));
            assert!(timed_out, "form {form}: {quiet:?}");
            endpoint.set_timeout(None);
            drop(serve);
            assert_eq!(endpoint.quiet(), Ok(()), "form {form}: its error was told");
            assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        });
    }
}

#[test]
fn one_error_tells_of_all_targets() {
    for region in [false, true] {
        let (attached, ready) = mpsc::channel();
        thread::scope(|scope| {
            let mut ranks = network(3, CONFIG).into_iter();
            let zero = ranks.next().unwrap();
            let go: Vec<_> = ranks
                .map(|transport| {
                    let ((go, told), attached) = (mpsc::channel::<()>(), attached.clone());
                    scope.spawn(move || {
                        let endpoint = attach(transport);
                        attached.send(()).unwrap();
                        // It serves nothing before it goes.
                        told.recv().unwrap_err();
                        endpoint.leave();
                    });
                    go
                })
                .collect();
            let mut endpoint = attach(zero);
            (0..2).for_each(|_| ready.recv().unwrap());
            if region {
                endpoint.begin_region().unwrap();
            }
            for to in [1, 2, 1, 0] {
                endpoint.put_nbi(Rank(to), 0, &[1; 4]).unwrap();
            }
            let operation = region.then(|| endpoint.end_region().unwrap());
            drop(go);
            for rank in [1, 2] {
                while endpoint.status(Rank(rank)) == Some(am_core::PeerStatus::Active) {
                    endpoint.poll().unwrap();
                    thread::yield_now();
                }
            }
            let failed = match operation {
                Some(operation) => endpoint.wait(operation).map_err(OneSidedError::from),
                None => endpoint.quiet(),
            };
            let Err(OneSidedError::Several(failures)) = failed else { panic!("{failed:?}") };
            let mut all: Vec<_> = failures.all().iter().map(|one| (one.rank, one.fault, one.operations)).collect();
            all.sort_by_key(|(rank, ..)| *rank);
            assert_eq!(all, [(Rank(1), OperationFault::Gone, 2), (Rank(2), OperationFault::Gone, 1)]);
            assert_eq!(failures.operations(), 3);
            assert!(failures.to_string().starts_with("3 operations failed: "), "{failures}");
            assert_eq!((endpoint.quiet(), endpoint.layer::<OneSided>().under_way()), (Ok(()), 0));
            endpoint.leave();
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
    let (left, out) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut endpoint = attach(one);
            endpoint.segment().write(16, &[7; 100]).unwrap();
            endpoint.barrier().unwrap();
            left.send(()).unwrap();
            // It serves nothing until the other's first wait has failed.
            told.recv().unwrap_err();
            endpoint.finish().unwrap();
        });
        let mut endpoint = attach(zero);
        endpoint.barrier().unwrap();
        // The other may still serve within the barrier.
        out.recv().unwrap();
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

#[test]
fn regions_are_waited_for_apart() {
    let mut ranks = network(2, CONFIG).into_iter();
    let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
    let (sender, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut endpoint = attach(one);
            endpoint.barrier().unwrap();
            told.recv().unwrap();
            endpoint.finish().unwrap();
        });
        let mut endpoint = attach(zero);
        endpoint.barrier().unwrap();
        assert!(matches!(endpoint.end_region(), Err(OneSidedError::NoRegion)));
        // From now on rank 1 serves nothing until it is told, so nothing is done.
        endpoint.begin_region().unwrap();
        assert_eq!(endpoint.begin_region(), Err(OneSidedError::RegionOpen));
        endpoint.put_nbi(Rank(1), 0, &[1; 8]).unwrap();
        endpoint.atomic_nbi(Rank(1), 8, AtomicOp::Add(2u64)).unwrap();
        endpoint.quiet().unwrap();
        let first = endpoint.end_region().unwrap();
        endpoint.begin_region().unwrap();
        endpoint.put_nbi(Rank(1), 16, &[3; 8]).unwrap();
        let second = endpoint.end_region().unwrap();
        endpoint.begin_region().unwrap();
        let empty = endpoint.end_region().unwrap();
        assert!(endpoint.test(&empty).unwrap());
        endpoint.wait(empty).unwrap();
        assert!(!endpoint.test(&first).unwrap() && !endpoint.test(&second).unwrap());
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 3);
        drop(second);
        sender.send(()).unwrap();
        endpoint.wait(first).unwrap();
        let mut found = [0; 24];
        endpoint.get(Rank(1), 0, &mut found).unwrap();
        assert_eq!((found[0], found[8], found[16]), (1, 2, 3));
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        endpoint.finish().unwrap();
    });
}

#[test]
fn a_region_tells_of_targets_that_went() {
    for quiet_first in [false, true] {
        with_a_target_that_goes(
            |endpoint| drop(endpoint.leave()),
            |mut endpoint, tell| {
                endpoint.begin_region().unwrap();
                endpoint.put_nbi(Rank(0), 8, &[1; 4]).unwrap();
                endpoint.put_nbi(Rank(1), 0, &[1; 100]).unwrap();
                let region = endpoint.end_region().unwrap();
                endpoint.put_nbi(Rank(1), 200, &[1; 4]).unwrap();
                tell.send(()).unwrap();
                poll_until_gone(&mut endpoint);
                let gone = Err(OneSidedError::Gone { rank: Rank(1), cause: None });
                if quiet_first {
                    // It ends the region's operation, too, and leaves it to the region to tell.
                    assert_eq!(endpoint.quiet(), gone);
                }
                assert!(endpoint.test(&region).unwrap());
                assert_eq!(endpoint.wait(region).map_err(OneSidedError::from), gone);
                if !quiet_first {
                    assert_eq!(endpoint.quiet(), gone);
                }
                assert_eq!(endpoint.quiet(), Ok(()));
            },
        );
    }
}

/// Rank 0 works while rank 1 serves: over messages with buffers of several sizes, and over memory.
fn with_a_target_that_serves(work: impl Fn(&mut Ranks)) {
    for (medium, direct) in [(48, false), (100, false), (8192, false), (8192, true)] {
        let mut ranks = network(2, CONFIG.medium(medium).direct(direct)).into_iter();
        let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
        thread::scope(|scope| {
            scope.spawn(move || attach(one).finish().unwrap());
            let mut endpoint = attach(zero);
            work(&mut endpoint);
            assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
            endpoint.finish().unwrap();
        });
    }
}

#[test]
fn runs_are_put_and_got() {
    with_a_target_that_serves(|endpoint| {
        let mut model = vec![0u8; 4096];
        let list = [(3, 5), (100, 0), (64, 8), (1000, 1500), (9, 1), (4000, 96)];
        let indices = [7, 3, 90, 14, 0];
        let plane = [Dimension { count: 9, stride: 200 }, Dimension { count: 4, stride: -16 }];
        let many: Vec<u32> = (0..400).map(|index| index * 7 % 512).collect();
        let all = [
            Runs::List(&list),
            Runs::Indexed { base: 2000, unit: 8, len: 7, indices: &indices },
            Runs::Strided { base: 101, len: 11, dimensions: &plane },
            Runs::Indexed { base: 0, unit: 8, len: 8, indices: &many },
            Runs::Strided { base: 4096, len: 0, dimensions: &plane[..1] },
        ];
        for (round, runs) in all.iter().take(4).enumerate() {
            let bytes: Vec<u8> = (0..runs.bytes()).map(|at| (at * 7 + round as u64) as u8).collect();
            let mut rest = &bytes[..];
            for (offset, len) in runs.iter() {
                let (run, others) = rest.split_at(len as usize);
                model[offset as usize..][..run.len()].copy_from_slice(run);
                rest = others;
            }
            match round % 3 {
                0 => endpoint.put_runs(Rank(1), runs, &bytes).unwrap(),
                1 => endpoint.put_runs_nb(Rank(1), runs, &bytes).map(|put| endpoint.wait(put)).unwrap().unwrap(),
                _ => endpoint.put_runs_nbi(Rank(1), runs, &bytes).and_then(|()| endpoint.quiet()).unwrap(),
            }
            let mut found = vec![0; bytes.len()];
            endpoint.get_runs(Rank(1), runs, &mut found).unwrap();
            assert_eq!(found, bytes, "{runs:?}");
            let get = endpoint.get_runs_nb(Rank(1), runs).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), bytes);
            let get = endpoint.get_runs_nb(Rank(1), runs).unwrap().of::<u16>();
            let pairs: Vec<u16> =
                bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            assert_eq!(endpoint.wait(get).unwrap(), pairs);
        }
        let mut found = vec![0; 4096];
        endpoint.get(Rank(1), 0, &mut found).unwrap();
        assert_eq!(found, model);
        // Nothing is written where something is wrong.
        let needed = all[1].bytes();
        let lengths = Err(OneSidedError::Lengths { given: 1, needed });
        assert_eq!(endpoint.put_runs(Rank(1), &all[1], &[1]), lengths);
        assert_eq!(endpoint.get_runs(Rank(1), &all[1], &mut [1]), lengths);
        let outside = Runs::List(&[(0, 8), (4090, 8)]);
        assert!(matches!(endpoint.put_runs(Rank(1), &outside, &[9; 16]), Err(OneSidedError::Segment { .. })));
        assert!(matches!(endpoint.get_runs_nb(Rank(1), &all[4]), Err(OneSidedError::Segment { .. })));
        assert!(matches!(endpoint.get_runs_nb(Rank(2), &all[1]), Err(OneSidedError::NoSuchRank { .. })));
        endpoint.get(Rank(1), 0, &mut found).unwrap();
        assert_eq!(found, model);
    });
}

#[test]
fn batches_of_atomics() {
    with_a_target_that_serves(|endpoint| {
        let indices: Vec<u32> = (0..300).map(|index| index * index % 101).collect();
        let mut model = vec![0u64; 101];
        let add = AtomicBatch { code: AtomicCode::Add, operands: &[3u64], expected: &[] };
        endpoint.updates_nbi(Rank(1), 64, &indices, &add).unwrap();
        endpoint.quiet().unwrap();
        indices.iter().for_each(|index| model[*index as usize] += 3);
        let each: Vec<u64> = (0..300).collect();
        let add = AtomicBatch { operands: &each, ..add };
        let update = endpoint.updates_nb(Rank(1), 64, &indices, &add).unwrap();
        endpoint.wait(update).unwrap();
        indices.iter().zip(&each).for_each(|(index, value)| model[*index as usize] += value);
        let everything: Vec<u32> = (0..101).collect();
        let get = AtomicBatch::<u64> { code: AtomicCode::Get, operands: &[], expected: &[] };
        let bytes = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(endpoint.atomics(Rank(1), 64, &everything, &get).unwrap(), bytes(&model));
        // Every second value is what is expected.
        let expected: Vec<u64> = model.iter().zip(0..).map(|(value, index)| value + index % 2).collect();
        let swap = AtomicBatch { code: AtomicCode::CompareSwap, operands: &[7], expected: &expected };
        let swapped = endpoint.atomics_nb(Rank(1), 64, &everything, &swap).unwrap();
        assert_eq!(endpoint.wait(swapped).unwrap(), bytes(&model));
        model.iter_mut().step_by(2).for_each(|value| *value = 7);
        assert_eq!(endpoint.atomics(Rank(1), 64, &everything, &get).unwrap(), bytes(&model));
        let halves = AtomicBatch { code: AtomicCode::Max, operands: &[1.5f32, 0.5], expected: &[] };
        assert_eq!(endpoint.atomics(Rank(1), 1000, &[0, 2], &halves).unwrap(), [0; 8]);
        // What is refused changes nothing.
        let refused = endpoint.atomics(Rank(1), 64, &[0, 504], &AtomicBatch { operands: &[1], ..add });
        assert!(matches!(refused, Err(OneSidedError::Segment { .. })), "{refused:?}");
        let refused = endpoint.updates_nbi(Rank(1), 4, &[0], &AtomicBatch { operands: &[1], ..add });
        assert!(matches!(refused, Err(OneSidedError::Segment { .. })), "{refused:?}");
        let refused = endpoint.atomics(Rank(1), 64, &[0, 1], &AtomicBatch { operands: &[1, 2, 3], ..add });
        assert_eq!(refused, Err(OneSidedError::Lengths { given: 3, needed: 2 }));
        let refused = endpoint.atomics(Rank(1), 64, &[0], &AtomicBatch { code: AtomicCode::Xor, ..halves });
        assert!(refused.is_err());
        assert_eq!(endpoint.atomics(Rank(1), 64, &everything, &get).unwrap(), bytes(&model));
    });
}

/// A handler panics while a call waits for room: the operation that was being sent is over.
#[test]
fn a_panic_ends_what_was_being_sent() {
    type Start = fn(&mut Ranks);
    let runs: Start = |endpoint| drop(endpoint.put_runs_nbi(Rank(1), &Runs::List(&[(0, 1), (8, 1)]), &[1; 2]));
    let batch: Start = |endpoint| {
        let add = AtomicBatch { code: AtomicCode::Add, operands: &[1u64], expected: &[] };
        drop(endpoint.updates_nbi(Rank(1), 0, &[0, 1], &add));
    };
    let starts: [(&str, Start); 8] = [
        ("put_nbi", |endpoint| drop(endpoint.put_nbi(Rank(1), 0, &[1; 8]))),
        ("put_nb", |endpoint| drop(endpoint.put_nb(Rank(1), 0, &[1; 8]))),
        ("put_signal", |endpoint| drop(endpoint.put_signal(Rank(1), 0, &[1; 8], 64))),
        ("get_nb", |endpoint| drop(endpoint.get_nb(Rank(1), 0, 8))),
        ("get_nbi", |endpoint| drop(endpoint.get_nbi(Rank(1), 0, 8, 64))),
        ("atomic_nbi", |endpoint| drop(endpoint.atomic_nbi(Rank(1), 0, AtomicOp::Add(1u64)))),
        ("put_runs_nbi", runs),
        ("updates_nbi", batch),
    ];
    for (name, start) in starts {
        let mut ranks = network(2, CONFIG.requests(1).replies(1)).into_iter();
        let join = |transport| {
            let mut handlers = Handlers::<OneSided>::new();
            let alarm = handlers.one_way("alarm", |_, _, (), _| panic!("as it should")).unwrap();
            let one_sided = OneSided::register(&mut handlers).unwrap();
            (Endpoint::attach(transport, handlers, one_sided).unwrap(), alarm)
        };
        let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
        let (sender, told) = mpsc::channel::<()>();
        let (sounded, ready) = mpsc::channel();
        let (attached, there) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut endpoint, alarm) = join(one);
                // The alarm would sound while the other attaches.
                there.recv().unwrap();
                endpoint.request(Rank(0), alarm, ()).unwrap();
                sounded.send(()).unwrap();
                // It serves nothing, so that the other waits for room.
                told.recv().unwrap_err();
                endpoint.finish().unwrap();
            });
            let (mut endpoint, _) = join(zero);
            attached.send(()).unwrap();
            ready.recv().unwrap();
            let panics = |endpoint: &mut Ranks| {
                let call = std::panic::AssertUnwindSafe(|| start(endpoint));
                std::panic::catch_unwind(call).is_err()
            };
            assert!((0..10).any(|_| panics(&mut endpoint)), "{name}");
            drop(sender);
            endpoint.set_timeout(am_core::Span::from_secs(5));
            assert_eq!(endpoint.quiet(), Ok(()), "{name}");
            let over = endpoint.wait_until(|layer| layer.under_way() == 0);
            assert_eq!(over, Ok(()), "{name}");
            endpoint.finish().unwrap();
        });
    }
}

/// A target of a region is gone; what the region started on others is the next `quiet`'s.
#[test]
fn quiet_waits_for_the_rest_of_a_region() {
    let mut ranks = network(3, CONFIG).into_iter();
    let (zero, one, two) = (ranks.next().unwrap(), ranks.next().unwrap(), ranks.next().unwrap());
    let (go, told_to_go) = mpsc::channel::<()>();
    let (serve, told_to_serve) = mpsc::channel::<()>();
    let (attached, ready) = mpsc::channel();
    thread::scope(|scope| {
        let also = attached.clone();
        scope.spawn(move || {
            let endpoint = attach(one);
            also.send(()).unwrap();
            told_to_go.recv().unwrap_err();
            endpoint.leave();
        });
        scope.spawn(move || {
            let mut endpoint = attach(two);
            attached.send(()).unwrap();
            told_to_serve.recv().unwrap_err();
            endpoint.acknowledge_loss(Rank(1));
            while endpoint.status(Rank(0)) == Some(am_core::PeerStatus::Active) {
                // The loss of rank 0 is the end.
                let _ = endpoint.poll();
                thread::yield_now();
            }
        });
        let mut endpoint = attach(zero);
        (0..2).for_each(|_| ready.recv().unwrap());
        // From now on nobody serves anything until it is told.
        endpoint.acknowledge_loss(Rank(1));
        endpoint.begin_region().unwrap();
        endpoint.put_nbi(Rank(2), 0, &[1; 4]).unwrap();
        endpoint.put_nbi(Rank(1), 0, &[1; 4]).unwrap();
        endpoint.put_nbi(Rank(2), 4, &[2; 4]).unwrap();
        let region = endpoint.end_region().unwrap();
        drop(go);
        poll_until_gone(&mut endpoint);
        let waited = endpoint.wait(region).map_err(OneSidedError::from);
        assert_eq!(waited, Err(OneSidedError::Gone { rank: Rank(1), cause: None }));
        endpoint.set_timeout(am_core::Span::from_millis(1));
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 2);
        let quiet = endpoint.quiet();
        assert!(matches!(quiet, Err(OneSidedError::Wait(_))), "it waits for the rest: {quiet:?}");
        endpoint.set_timeout(None);
        drop(serve);
        assert_eq!(endpoint.quiet(), Ok(()));
        assert_eq!(endpoint.layer::<OneSided>().under_way(), 0);
        endpoint.leave();
    });
}

#[test]
fn runs_without_bytes_can_be_any_number() {
    with_a_target_that_serves(|endpoint| {
        let endless = [Dimension { count: u64::MAX, stride: 0 }; 2];
        let runs = Runs::Strided { base: 8, len: 0, dimensions: &endless };
        endpoint.put_runs(Rank(1), &runs, &[]).unwrap();
        endpoint.get_runs(Rank(1), &runs, &mut []).unwrap();
        let get = endpoint.get_runs_nb(Rank(1), &runs).unwrap();
        assert_eq!(endpoint.wait(get).unwrap(), []);
        let outside = Runs::Strided { base: 5000, len: 0, dimensions: &endless };
        assert!(matches!(endpoint.get_runs(Rank(1), &outside, &mut []), Err(OneSidedError::Segment { .. })));
    });
}

/// Who has done an operation and leaves at once has answered it; and who waits for a signal gets it although the
/// loss of its sender comes with it, and then the loss.
#[test]
fn what_was_done_before_a_loss_is_done() {
    for round in 0..1000 {
        let mut ranks = network(2, CONFIG).into_iter();
        let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut endpoint = attach(one);
                endpoint.wait_signal(8, 1).unwrap();
                if round % 2 == 0 {
                    endpoint.leave();
                } else {
                    let lost = endpoint.wait_until(|_| false).unwrap_err();
                    assert_eq!(lost.loss(), Some((Rank(0), LossCause::Left)));
                }
            });
            let mut endpoint = attach(zero);
            let put = endpoint.put_signal(Rank(1), 0, &[1; 8], 8).unwrap();
            endpoint.wait(put).unwrap_or_else(|unfinished| panic!("round {round}: {}", unfinished.error));
        });
    }
}

/// After a panic of a handler served amid a get, `quiet` leaves nothing under way.
#[test]
fn quiet_waits_for_what_was_sent_before_a_panic() {
    let mut ranks = network(2, CONFIG.requests(4).medium(100).long(100)).into_iter();
    let [zero, one] = std::array::from_fn(|_| ranks.next().unwrap());
    let (serve, told) = mpsc::channel::<()>();
    let attached = &Barrier::new(2);
    let with_boom = |transport: Loopback| {
        let mut handlers = Handlers::<OneSided>::new();
        let one_sided = OneSided::register(&mut handlers).unwrap();
        let boom = handlers
            .request("boom", |_: &mut OneSided, _, (): (), _| -> am_core::HandlerResult { panic!("boom") })
            .unwrap();
        (Endpoint::attach(transport, handlers, one_sided).unwrap(), boom)
    };
    thread::scope(move |scope| {
        let serve = serve;
        scope.spawn(move || {
            let (mut endpoint, boom) = with_boom(one);
            endpoint.segment().write(0, &[7; 1000]).unwrap();
            endpoint.request(Rank(0), boom, ()).unwrap();
            attached.wait();
            told.recv().unwrap_err();
            while endpoint.status(Rank(0)) == Some(am_core::PeerStatus::Active) {
                let _ = endpoint.poll();
                thread::yield_now();
            }
        });
        let (mut endpoint, _) = with_boom(zero);
        attached.wait();
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| endpoint.get_nbi(Rank(1), 0, 1000, 2000)));
        assert!(panicked.is_err(), "{panicked:?}");
        endpoint.set_timeout(am_core::Span::from_millis(100));
        let quiet = endpoint.quiet();
        endpoint.set_timeout(None);
        endpoint.segment().write(2000, &[0; 1000]).unwrap();
        drop(serve);
        let until = std::time::Instant::now();
        let mut found = [0; 1000];
        while until.elapsed().as_millis() < 300 && found == [0; 1000] {
            let _ = endpoint.poll();
            endpoint.segment().read(2000, &mut found).unwrap();
            thread::yield_now();
        }
        assert!(quiet.is_err() || found == [0; 1000], "quiet returned, and then the get wrote");
    });
}
