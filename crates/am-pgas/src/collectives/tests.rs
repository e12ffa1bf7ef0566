//! Ranks as threads over the loopback transport: what the layer's state holds, which programs do not see.

use super::{CollectiveError, Collectives, Operation, Sum, Tuning};
use crate::Team;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, LossCause, Rank, Span};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

pub(crate) type Ranks = Endpoint<Loopback, Collectives>;

/// Over messages alone, or through shared memory.
pub(crate) fn tuned(check: bool, direct: bool) -> Tuning {
    Tuning { check, direct: if direct { 64 } else { 0 }, ..Tuning::default() }
}

/// Runs `part` on every rank.
pub(super) fn run<R: Send>(ranks: u32, direct: bool, part: impl Fn(&mut Ranks, &Team) -> R + Sync) -> Vec<R> {
    let transports = network(ranks, LoopbackConfig::default().direct(direct));
    let play = |transport| {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register(&mut handlers).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, collectives).unwrap();
        let world = Team::world(&mut endpoint).unwrap();
        let outcome = part(&mut endpoint, &world);
        world.barrier(&mut endpoint).unwrap();
        endpoint.finish().unwrap();
        outcome
    };
    thread::scope(|scope| {
        let threads: Vec<_> = transports.into_iter().map(|transport| scope.spawn(|| play(transport))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// One rank begins thousands of broadcasts that the others have not come to: what waits at them stays within the
/// window.
#[test]
fn what_waits_is_bounded_however_far_a_rank_is_ahead() {
    const AHEAD: u32 = 20_000;
    let waited = run(3, false, |endpoint, world| {
        let other = world.duplicate(endpoint).unwrap();
        let mut handles = Vec::new();
        if world.me() == 0 {
            for value in 0..AHEAD {
                handles.push(world.broadcast_nb(endpoint, 0, vec![value; 2]).unwrap());
            }
        }
        // What the other team does takes several polls, and comes through.
        for _ in 0..10 {
            other.allreduce_one(endpoint, 1u32, Sum).unwrap();
        }
        let _ = endpoint.wait_until_for(Span::from_millis(5), |_| false);
        let waited = endpoint.layer::<Collectives>().waiting();
        for value in 0..if world.me() == 0 { 0 } else { AHEAD } {
            let mut found = [0; 2];
            world.broadcast(endpoint, 0, &mut found).unwrap();
            assert_eq!(found, [value; 2]);
        }
        for (handle, value) in handles.into_iter().zip(0..) {
            assert_eq!(handle.wait(endpoint).unwrap(), [value; 2]);
        }
        waited
    });
    let window = Tuning::default().window as usize;
    for (messages, bytes) in &waited[1..] {
        // Rank 2 has rank 0 or rank 1 as its parent; nobody else sends.
        assert!(*messages <= window && *bytes == 8 * messages, "{messages} messages of {bytes} bytes");
    }
    assert_eq!(waited[1].0, window, "rank 0 sends as much as it may");
}

/// A handle that is dropped lets its operation go on, as the others need it.
#[test]
fn dropped_operations_go_on() {
    let sums = run(3, false, |endpoint, world| {
        let handle = world.allreduce_nb(endpoint, vec![1u64; 2000], Sum).unwrap();
        if world.me() == 1 {
            drop(handle);
            world.barrier(endpoint).unwrap();
            return None;
        }
        let sum = handle.wait(endpoint).unwrap();
        world.barrier(endpoint).unwrap();
        Some(sum)
    });
    assert_eq!(sums, [Some(vec![3; 2000]), None, Some(vec![3; 2000])]);
}

/// Teams whose last clone is gone leave nothing behind.
#[test]
fn teams_go_with_their_last_clone() {
    let left = run(2, true, |endpoint, world| {
        for _ in 0..50 {
            let copy = world.duplicate(endpoint).unwrap();
            assert_eq!(copy.allreduce_one(endpoint, 1u8, Sum).unwrap(), 2);
        }
        endpoint.layer::<Collectives>().engine().teams()
    });
    assert!(left.iter().all(|teams| *teams <= 3), "{left:?} teams are left");
}

/// The same sum of floating-point numbers has the same bits in every run and on every rank, and with
/// [`super::Ordered`] whatever the count.
#[test]
fn sums_have_the_same_bits() {
    let sum = |count: usize| {
        run(7, true, |endpoint, world| {
            let mut elements: Vec<f64> = (0..count).map(|_| 1.0 / f64::from(world.me() + 3)).collect();
            elements[0] *= 1e17;
            world.allreduce(endpoint, &mut elements, super::Ordered(Sum)).unwrap();
            elements.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        })
    };
    let (short, long) = (sum(2), sum(5000));
    assert!(short.iter().all(|bits| *bits == short[0]) && long.iter().all(|bits| *bits == long[0]));
    assert_eq!(short[0][1], long[0][4999]);
    assert_eq!(sum(2), short);
}

/// A time-out that ends a test that hangs.
pub(crate) const LONG: Span = Span::from_secs(30);

/// Runs `part` on every rank, whose teams may fail; nobody goes before all are through. `None` leaves the job.
fn play<R: Send>(ranks: u32, check: bool, part: impl Fn(&mut Ranks) -> Option<R> + Sync) -> Vec<Option<R>> {
    play_over(ranks, Tuning { check, ..Tuning::default() }, part)
}

/// [`play`] with a tuning.
pub(crate) fn play_over<R: Send>(
    ranks: u32,
    tuning: Tuning,
    part: impl Fn(&mut Ranks) -> Option<R> + Sync,
) -> Vec<Option<R>> {
    let through = AtomicU32::new(0);
    let play = |transport| {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register_tuned(&mut handlers, tuning.clone()).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, collectives).unwrap();
        endpoint.set_timeout(Some(LONG));
        let outcome = catch_unwind(AssertUnwindSafe(|| part(&mut endpoint)));
        through.fetch_add(1, Ordering::Relaxed);
        let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        while outcome.is_some() && through.load(Ordering::Relaxed) < ranks {
            let _ = endpoint.poll();
            thread::yield_now();
        }
        endpoint.leave();
        outcome
    };
    let transports = network(ranks, LoopbackConfig::default());
    thread::scope(|scope| {
        let threads: Vec<_> = transports.into_iter().map(|transport| scope.spawn(|| play(transport))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// An operator panics where the endpoint itself calls it and where a poll does: the team fails everywhere, and
/// others go on.
#[test]
fn panicking_operators_fail_teams() {
    for (count, early, direct) in [(1, true, false), (1, false, false), (1, false, true), (3000, false, true)] {
        let found = play_over(2, tuned(false, direct), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let other = world.duplicate(endpoint).unwrap();
            let me = world.me();
            if me == 0 && early {
                endpoint.wait_until(|layer| layer.waiting().0 > 0).unwrap();
            }
            let add = move |a: u32, b: u32| if me == 0 { panic!("an operator that panics") } else { a + b };
            let caught = catch_unwind(AssertUnwindSafe(|| world.allreduce(endpoint, &mut vec![1u32; count], add)));
            assert_eq!(caught.is_err(), me == 0, "{caught:?}");
            assert_eq!(world.barrier(endpoint), Err(CollectiveError::OperatorPanicked { rank: Rank(0) }));
            Some(other.allreduce_one(endpoint, 1u32, Sum).unwrap())
        });
        assert_eq!(found, [Some(2), Some(2)], "{count} elements, early: {early}, direct: {direct}");
    }
}

/// An operation that has no room to send lets its rank idle.
#[test]
fn blocked_operations_idle() {
    for direct in [false, true] {
        blocked_operation_idles(direct);
    }
}

fn blocked_operation_idles(direct: bool) {
    let step = AtomicU32::new(0);
    let idles = play_over(2, tuned(false, direct), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        let large = world.broadcast_nb(endpoint, 0, vec![7u32; 1 << 21]).unwrap();
        if world.me() == 1 {
            // It has asked for the message, and takes nothing of it for now.
            step.store(1, Ordering::Relaxed);
            while step.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            assert_eq!(large.wait(endpoint).unwrap().len(), 1 << 21);
            return Some(1);
        }
        while step.load(Ordering::Relaxed) < 1 {
            thread::yield_now();
        }
        // The announcement wakes it at most once.
        let before = endpoint.idles();
        let _ = endpoint.wait_until_for(Span::from_millis(300), |_| false);
        let idles = endpoint.idles() - before;
        step.store(2, Ordering::Relaxed);
        drop(large.wait(endpoint).unwrap());
        Some(idles)
    });
    assert!(idles.iter().all(|idles| *idles > Some(0)), "{idles:?}");
}

type Calling = fn(&Team, &mut Ranks, usize) -> Result<(), CollectiveError>;

/// Members that call different things learn of it, whatever these are: two calls, elements, and whether calls are
/// compared.
#[test]
fn calls_that_differ_fail() {
    let broadcast: [Calling; 2] = [
        |team, endpoint, count| team.broadcast(endpoint, 0, &mut vec![1u64; count]),
        |team, endpoint, count| team.broadcast(endpoint, 1, &mut vec![1u64; count]),
    ];
    let reduce: Calling = |team, endpoint, count| team.reduce(endpoint, 0, &mut vec![1u64; count], Sum);
    let barrier: Calling = |team, endpoint, _| team.barrier(endpoint);
    let gather: [Calling; 2] = [
        |team, endpoint, count| team.gather(endpoint, 0, &vec![1u64; count], &mut vec![0; 2 * count]),
        |team, endpoint, count| team.gather(endpoint, 1, &vec![1u64; count], &mut vec![0; 2 * count]),
    ];
    let others: [[Calling; 2]; 4] = [
        [
            |team, endpoint, _| team.split(endpoint, Some(0), 0).map(drop),
            |team, endpoint, _| team.duplicate(endpoint).map(drop),
        ],
        [
            |team, endpoint, count| team.scan(endpoint, &mut vec![1u64; count], Sum),
            |team, endpoint, count| team.exscan(endpoint, &mut vec![1u64; count], Sum),
        ],
        [
            |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], Sum),
            |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u32; count], Sum),
        ],
        [reduce, |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], Sum)],
    ];
    let pairs: [([Calling; 2], usize, bool); 14] = [
        (others[0], 1, true),
        (others[1], 1, true),
        (others[1], 3000, true),
        (others[2], 2, true),
        (others[2], 3000, true),
        (others[3], 1, true),
        (broadcast, 1, false),
        (broadcast, 1, true),
        (broadcast, 3000, true),
        (gather, 1, true),
        (gather, 3000, true),
        ([barrier, broadcast[1]], 1, true),
        ([broadcast[0], reduce], 3000, true),
        ([reduce, broadcast[0]], 3000, true),
    ];
    let all = pairs.into_iter().enumerate().flat_map(|(at, pair)| [false, true].map(|direct| (at, pair, direct)));
    for (at, (calls, count, check), direct) in all {
        let found = play_over(2, tuned(check, direct), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let first = calls[world.me() as usize](&world, endpoint, count);
            // Those who only send learn of it later.
            let second = world.barrier(endpoint);
            Some(first.and(second))
        });
        for found in found.into_iter().flatten() {
            let named = matches!(found, Err(CollectiveError::Mismatch { .. }));
            assert!(named, "pair {at}, direct: {direct}: {found:?}");
        }
    }
}

type Checked<'a> = &'a (dyn Fn(&Team, &mut Ranks, usize) -> Result<(), CollectiveError> + Sync);

/// Where calls are checked, a mismatch is told with both calls, whatever is looked at first.
#[test]
fn checked_calls_are_always_named() {
    let reduce: Calling = |team, endpoint, count| team.reduce(endpoint, 0, &mut vec![1u64; count], Sum);
    let allreduce: Calling = |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], Sum);
    let gather: Calling = |team, endpoint, count| {
        let mut all = vec![0; count * team.size() as usize];
        team.gather(endpoint, 0, &vec![1u64; count], &mut all)
    };
    let scatter: Calling = |team, endpoint, count| {
        let all = vec![1u64; count * team.size() as usize];
        team.scatter(endpoint, 0, &all, &mut vec![0; count])
    };
    let alltoall: Calling = |team, endpoint, count| {
        let all = vec![1u64; count * team.size() as usize];
        team.alltoall(endpoint, &all, &mut vec![0; all.len()])
    };
    let gather_all = |team: &Team, endpoint: &mut Ranks, counts: Vec<usize>| {
        let (part, mut all) = (vec![1u64; counts[team.me() as usize]], vec![0; counts.iter().sum()]);
        team.allgatherv(endpoint, &part, &counts, &mut all)
    };
    let pairs: [[Checked<'_>; 2]; 4] = [
        [&gather, &scatter],
        [&alltoall, &allreduce],
        [&reduce, &allreduce],
        [
            &|team, endpoint, count| gather_all(team, endpoint, vec![count; team.size() as usize]),
            &|team, endpoint, count| gather_all(team, endpoint, vec![count + 1; team.size() as usize]),
        ],
    ];
    for (at, calls) in pairs.into_iter().enumerate() {
        let cases = [(2, 1), (5, 1), (5, 3000)].into_iter();
        for ((ranks, count), direct) in cases.flat_map(|case| [false, true].map(|direct| (case, direct))) {
            let found = play_over(ranks, tuned(true, direct), |endpoint| {
                let world = Team::world(endpoint).unwrap();
                let first = calls[usize::from(world.me() == ranks - 1)](&world, endpoint, count);
                Some(first.and_then(|()| world.barrier(endpoint)))
            });
            for found in found.into_iter().flatten() {
                let named = matches!(found, Err(CollectiveError::Mismatch { .. }));
                assert!(named, "pair {at}, {ranks} ranks, {count} elements, direct: {direct}: {found:?}");
            }
        }
    }
}

/// Operators, whether they keep an order, and the types of elements are part of a call. Where members share
/// memory, they are compared in any case.
#[test]
fn operators_and_types_are_compared() {
    let sum: Calling = |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], Sum);
    let pairs: [[Calling; 2]; 5] = [
        [sum, |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], super::Max)],
        [sum, |team, endpoint, count| team.allreduce(endpoint, &mut vec![1.0f64; count], Sum)],
        [sum, |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], super::Ordered(Sum))],
        [
            |team, endpoint, count| team.scan(endpoint, &mut vec![1u64; count], Sum),
            |team, endpoint, count| team.scan(endpoint, &mut vec![1u64; count], |a: u64, b: u64| a + b),
        ],
        [
            |team, endpoint, count| team.broadcast(endpoint, 0, &mut vec![1u64; count]),
            |team, endpoint, count| team.broadcast(endpoint, 0, &mut vec![[1u32; 2]; count]),
        ],
    ];
    for (at, calls) in pairs.into_iter().enumerate() {
        for (count, (check, direct)) in [1, 3000]
            .into_iter()
            .flat_map(|count| [(true, false), (true, true), (false, true)].map(|way| (count, way)))
        {
            let found = play_over(2, tuned(check, direct), |endpoint| {
                let world = Team::world(endpoint).unwrap();
                let first = calls[world.me() as usize](&world, endpoint, count);
                Some(first.and_then(|()| world.barrier(endpoint)))
            });
            for found in found.into_iter().flatten() {
                let named = match &found {
                    Err(CollectiveError::Mismatch { first_call, second_call, .. }) => first_call != second_call,
                    Err(CollectiveError::Unmatched { .. } | CollectiveError::Size { .. }) => !check,
                    _ => false,
                };
                assert!(named, "pair {at}, {count} elements, check: {check}, direct: {direct}: {found:?}");
            }
        }
    }
}

/// A member whose arguments are wrong tells the others, who go through with the call; members that are all refused
/// stay in step.
#[test]
fn refused_calls_are_told() {
    for (check, direct) in [(false, false), (false, true), (true, false), (true, true)] {
        let found = play_over(3, tuned(check, direct), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let other = world.duplicate(endpoint).unwrap();
            let short = world.allgather(endpoint, &[1u8], &mut []).unwrap_err();
            assert!(matches!(short, CollectiveError::Length { given: 0, needed: 3, .. }), "{short}");
            let missing = world.select(endpoint, &[7]).unwrap_err();
            assert_eq!(missing, CollectiveError::NoSuchMember { member: 7, size: 3 });
            assert_eq!(world.allreduce_one(endpoint, 1u32, Sum).unwrap(), 3);
            // Nobody is in it any more when the team fails.
            other.barrier(endpoint).unwrap();
            let mut room = vec![0; if world.me() == 1 { 2 } else { 3 }];
            let first = world.allgather(endpoint, &[1u8], &mut room);
            Some((first, world.barrier(endpoint)))
        });
        let refused = || CollectiveError::Refused { rank: Rank(1) };
        for (rank, found) in found.into_iter().flatten().enumerate() {
            let what = "the slice for all parts";
            let first = match rank {
                1 => CollectiveError::Length { what, given: 2, needed: 3 },
                _ => refused(),
            };
            assert_eq!(found, (Err(first), Err(refused())), "rank {rank}");
        }
    }
}

/// Sums of counts that no memory holds are refused.
#[test]
fn counts_beyond_memory_are_refused() {
    run(2, false, |endpoint, world| {
        let most = isize::MAX as usize / 8;
        for counts in [[usize::MAX, 2], [usize::MAX / 2, 2]] {
            let found = world.allgatherv_nb(endpoint, &[0u64; 2], &counts).map(drop);
            let given = counts[0].saturating_add(2);
            let expected = CollectiveError::Length { what: "the list of counts", given, needed: most };
            assert_eq!(found, Err(expected));
        }
        assert_eq!(world.allreduce_one(endpoint, 1u32, Sum).unwrap(), 2);
    });
}

/// A coordinator that leaves is no survivor, whatever it has sent before.
#[test]
fn shrinking_goes_on_without_leavers() {
    let found = play(3, false, |endpoint| {
        let world = Team::world(endpoint).unwrap();
        world.barrier(endpoint).unwrap();
        if world.me() == 0 {
            return None;
        }
        let team = world.shrink(endpoint).unwrap();
        Some((team.ranks().to_vec(), team.allreduce_one(endpoint, 1u32, Sum).unwrap()))
    });
    assert_eq!(found[1..], [Some((vec![Rank(1), Rank(2)], 2)), Some((vec![Rank(1), Rank(2)], 2))]);
}

/// After a time-out, making the world and shrinking it go on where they were.
#[test]
fn time_outs_are_repeated() {
    let timed_out = AtomicU32::new(0);
    let found = play(2, false, |endpoint| {
        let mut teams: Vec<Team> = Vec::new();
        for step in 0..4u32 {
            let call = |endpoint: &mut Ranks| match step {
                0 => Team::world(endpoint),
                _ => teams[step as usize - 1].shrink(endpoint),
            };
            if endpoint.rank() == Rank(0) {
                endpoint.set_timeout(Some(Span::from_millis(2)));
                let first = call(endpoint);
                assert!(matches!(first, Err(CollectiveError::Wait(_))), "step {step}: {first:?}");
                endpoint.set_timeout(Some(LONG));
                timed_out.fetch_add(1, Ordering::Relaxed);
            }
            while timed_out.load(Ordering::Relaxed) <= step {
                thread::yield_now();
            }
            let team = call(endpoint).unwrap();
            teams.push(team);
        }
        let sums = teams.iter().map(|team| team.allreduce_one(endpoint, 1u32, Sum).unwrap());
        Some(sums.collect::<Vec<_>>())
    });
    assert_eq!(found, [Some(vec![2; 4]), Some(vec![2; 4])]);
}

/// A rank that is lost before the first call leaves a world that fails, and can be shrunk.
#[test]
fn worlds_without_a_rank_shrink() {
    for first in [false, true] {
        let found = play(3, false, |endpoint| {
            if endpoint.rank() == Rank(2) {
                return None;
            }
            if first {
                while endpoint.status(Rank(2)) == Some(am_core::PeerStatus::Active) {
                    let _ = endpoint.poll();
                }
            }
            let world = Team::world(endpoint).unwrap();
            let found = world.barrier(endpoint).unwrap_err();
            let team = world.shrink(endpoint).unwrap();
            Some((found.loss(), team.allreduce_one(endpoint, 1u32, Sum).unwrap()))
        });
        let expected = Some((Some((Rank(2), LossCause::Left)), 2));
        assert_eq!(found[..2], [expected, expected]);
    }
}

/// A rank is lost between two rounds of a split: what the others have of it fails for all of them.
#[test]
fn splits_fail_for_all() {
    let made = AtomicU32::new(0);
    let found = play_over(3, tuned(false, false), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        made.fetch_add(1, Ordering::Relaxed);
        while made.load(Ordering::Relaxed) < 3 {
            let _ = endpoint.poll();
            thread::yield_now();
        }
        if world.me() == 1 {
            // Its message to rank 0 goes, and the one to rank 2 would go in the next round.
            drop(world.begin_words(endpoint, Operation::Split, [0, 7, 0, Operation::Split as u32, 1]).unwrap());
            return None;
        }
        if world.me() == 2 {
            // Rank 0 has all that it needs of this one before this one knows that rank 1 has left.
            let words = [0, 0, 0, Operation::Split as u32, 1];
            let split = world.begin_words(endpoint, Operation::Split, words).unwrap();
            for _ in 0..200 {
                let _ = endpoint.poll();
                thread::sleep(std::time::Duration::from_millis(1));
            }
            return Some(split.wait(endpoint).unwrap_err().loss());
        }
        let split = world.split(endpoint, Some(0), 0);
        let team = match split {
            Ok(team) => team.unwrap(),
            Err(error) => return Some(error.loss()),
        };
        Some(team.barrier(endpoint).unwrap_err().loss())
    });
    let lost = Some(Some((Rank(1), LossCause::Left)));
    assert_eq!(found, [lost, None, lost]);
}

/// An operation with two numbers of elements: those of this member, and its position.
type Sized = fn(&Team, &mut Ranks, usize) -> Result<(), CollectiveError>;

const SIZED: [(&str, Sized); 12] = [
    ("broadcast", |team, endpoint, count| team.broadcast(endpoint, 0, &mut vec![1u64; count])),
    ("last root", |team, endpoint, count| team.broadcast(endpoint, team.size() - 1, &mut vec![1u64; count])),
    ("reduce", |team, endpoint, count| team.reduce(endpoint, 0, &mut vec![1u64; count], Sum)),
    ("allreduce", |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], Sum)),
    ("ordered", |team, endpoint, count| team.allreduce(endpoint, &mut vec![1u64; count], super::Ordered(Sum))),
    ("reduce_scatter", |team, endpoint, count| {
        team.reduce_scatter(endpoint, &vec![1u64; count * team.size() as usize], &mut vec![0; count], Sum)
    }),
    ("scan", |team, endpoint, count| team.scan(endpoint, &mut vec![1u64; count], Sum)),
    ("scatter", |team, endpoint, count| {
        let all = vec![1u64; if team.me() == 0 { count * team.size() as usize } else { 0 }];
        team.scatter(endpoint, 0, &all, &mut vec![0; count])
    }),
    ("gather", |team, endpoint, count| {
        let mut all = vec![0; if team.me() == 0 { count * team.size() as usize } else { 0 }];
        team.gather(endpoint, 0, &vec![1u64; count], &mut all)
    }),
    ("gatherv", |team, endpoint, count| {
        let root = team.me() == 0;
        let counts = vec![count; if root { team.size() as usize } else { 0 }];
        team.gatherv(endpoint, 0, &vec![1u64; count], &counts, &mut vec![0; counts.iter().sum()])
    }),
    ("allgather", |team, endpoint, count| {
        team.allgather(endpoint, &vec![1u64; count], &mut vec![0; count * team.size() as usize])
    }),
    ("alltoall", |team, endpoint, count| {
        let all = vec![1u64; count * team.size() as usize];
        team.alltoall(endpoint, &all, &mut vec![0; all.len()])
    }),
];

/// Sizes on both sides of what is sent unasked, and of what algorithms are chosen by: every member learns of
/// both, whoever is the odd one.
#[test]
fn sizes_that_differ_are_told() {
    const SIZES: [(usize, usize); 6] = [(1, 2), (300, 1), (100, 3000), (3000, 100), (3000, 100_000), (0, 5)];
    for (ranks, odd, check, direct) in [
        (2, 0, false, false),
        (2, 1, true, false),
        (2, 1, false, true),
        (5, 0, false, false),
        (5, 2, false, false),
        (5, 4, false, false),
        (5, 2, true, false),
        (5, 2, false, true),
    ] {
        for (name, call) in SIZED {
            for (most, other) in SIZES {
                let found = play_over(ranks, tuned(check, direct), |endpoint| {
                    let world = Team::world(endpoint).unwrap();
                    let first = call(&world, endpoint, if world.me() == odd { other } else { most });
                    Some(first.and_then(|()| world.barrier(endpoint)))
                });
                for found in found.into_iter().flatten() {
                    let told = match &found {
                        Err(CollectiveError::Mismatch { first_call, second_call, .. }) => {
                            first_call != second_call
                        }
                        Err(CollectiveError::Size { sent, expected, .. }) => sent != expected,
                        _ => false,
                    };
                    let way = format!("check: {check}, direct: {direct}");
                    assert!(told, "{name} of {most}, {other} at {odd} of {ranks}, {way}: {found:?}");
                }
            }
        }
    }
}

/// Whose root is another waits for nobody in vain, though its calls are not checked.
#[test]
fn roots_that_differ_are_told() {
    for (ranks, count) in [(2, 1), (2, 3000), (5, 1), (5, 3000)] {
        let found = play_over(ranks, tuned(false, false), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let root = u32::from(world.me() == 1);
            let first = world.broadcast(endpoint, root, &mut vec![1u64; count]);
            Some(first.and_then(|()| world.barrier(endpoint)))
        });
        for found in found.into_iter().flatten() {
            let named = matches!(found, Err(CollectiveError::Mismatch { .. }));
            assert!(named, "{ranks} ranks, {count} elements: {found:?}");
        }
    }
}

/// Without the check, names that differ where no message shows it are no failure, however late a member is.
#[test]
fn a_late_member_decides_nothing() {
    for late in [0, 60] {
        let outcomes = play_over(2, tuned(false, false), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            world.barrier(endpoint).unwrap();
            let (mut element, mut sum) = ([7u64], [7u64]);
            if world.me() == 0 {
                thread::sleep(std::time::Duration::from_millis(late));
                world.broadcast(endpoint, 0, &mut element).unwrap();
                thread::sleep(std::time::Duration::from_millis(late));
                world.allreduce(endpoint, &mut sum, Sum).unwrap();
            } else {
                let mut got = [[0u32; 2]];
                world.broadcast(endpoint, 0, &mut got).unwrap();
                assert_eq!(got, [[7, 0]]);
                world.allreduce(endpoint, &mut sum, |a: u64, b: u64| a + b).unwrap();
            }
            world.barrier(endpoint).unwrap();
            Some(sum)
        });
        assert_eq!(outcomes, [Some([14]), Some([14])]);
    }
}
