//! Operations through memory that the members share, over the loopback transport.

use super::operations::YIELDS;
use super::tests::{LONG, Ranks, play_over, run, tuned};
use super::{CollectiveError, Collectives, Max, Sum};
use crate::Team;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Instant, Membership, PeerStatus, Rank, Span, Transport, WaitReason, Waiting};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

/// Requests that an endpoint has sent.
fn sent(endpoint: &Ranks) -> u64 {
    endpoint.statistics().total_sent()
}

/// What a member gives: its position and a number.
pub(super) fn elements(member: u32, salt: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|at| (u64::from(member) << 48 | salt << 32) + at).collect()
}

/// Member 0 gives up on a broadcast and an allgather of two, changes what it gave, and goes on with member 1,
/// which takes part in both once `over` says that they are over.
pub(super) fn give_up_and_go_on<T: Transport>(
    endpoint: &mut Endpoint<T, Collectives>,
    world: &Team,
    over: &AtomicU32,
    count: usize,
) {
    if world.me() == 0 {
        endpoint.set_timeout(Some(Span::from_millis(2)));
        let mut given = elements(0, 1, count);
        let timed_out = world.broadcast(endpoint, 0, &mut given).unwrap_err();
        assert!(matches!(timed_out, CollectiveError::Wait(_)), "{timed_out}");
        given.fill(0);
        let (own, mut all) = (elements(0, 2, count), vec![0; 2 * count]);
        let timed_out = world.allgather(endpoint, &own, &mut all).unwrap_err();
        assert!(matches!(timed_out, CollectiveError::Wait(_)), "{timed_out}");
        endpoint.set_timeout(Some(LONG));
        over.store(1, Ordering::Relaxed);
    } else {
        while over.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let mut found = vec![0; count];
        world.broadcast(endpoint, 0, &mut found).unwrap();
        assert!(found == elements(0, 1, count));
        let (own, mut all) = (elements(1, 2, count), vec![0; 2 * count]);
        world.allgather(endpoint, &own, &mut all).unwrap();
        assert!(all == [elements(0, 2, count), own].concat());
    }
    assert_eq!(world.allreduce_one(endpoint, 1u32, Sum).unwrap(), 2);
}

#[test]
fn small_operations_send_nothing() {
    let found = play_over(3, tuned(false, true), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        let before = sent(endpoint);
        let me = world.me();
        for round in 0..200u32 {
            let root = round % 3;
            world.barrier(endpoint).unwrap();
            assert_eq!(world.allreduce_one(endpoint, me + round, Max).unwrap(), 2 + round);
            let mut word = [me, round];
            world.broadcast(endpoint, root, &mut word).unwrap();
            assert_eq!(word, [root, round]);
            let mut sum = [u64::from(me), 1];
            world.reduce(endpoint, root, &mut sum, Sum).unwrap();
            assert_eq!(sum, if me == root { [3, 3] } else { [u64::from(me), 1] });
            let mut all = [0; 9];
            world.gather(endpoint, root, &elements(me, 5, 3), &mut all).unwrap();
            let expected = [0, 1, 2].map(|member| elements(member, 5, 3)).concat();
            assert_eq!(all, if me == root { &expected[..] } else { &[0; 9] });
            world.allgather(endpoint, &elements(me, 5, 3), &mut all).unwrap();
            assert_eq!(all[..], expected);
            let mut scanned = [me + 1];
            world.scan(endpoint, &mut scanned, Sum).unwrap();
            assert_eq!(scanned, [[1, 3, 6][me as usize]]);
            world.exscan(endpoint, &mut scanned, Sum).unwrap();
            assert_eq!(scanned, [[1, 1, 4][me as usize]]);
        }
        let begun: Vec<_> = (0..100)
            .map(|value| world.broadcast_nb(endpoint, value % 3, vec![value * (me + 1)]).unwrap())
            .collect();
        for (value, handle) in (0..).zip(begun) {
            assert_eq!(handle.wait(endpoint).unwrap(), [value * (value % 3 + 1)]);
        }
        Some(sent(endpoint) - before)
    });
    assert_eq!(found, [Some(0); 3]);
}

/// Around every length at which there is another block, with every root, and with more operations than blocks.
#[test]
fn large_operations_pass_in_blocks() {
    let found = play_over(3, tuned(false, true), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        let (me, block) = (world.me(), 24 << 7);
        let before = sent(endpoint);
        for (salt, count) in (0..).zip([1 << 10, block - 1, block, block + 1, 4 * block, 9 * block + 5]) {
            for root in 0..3 {
                let mut found = elements(me, salt, count);
                world.broadcast(endpoint, root, &mut found).unwrap();
                assert!(found == elements(root, salt, count), "{count} elements of member {root}");
                let given = elements(me, salt + 100, count);
                let handle = world.broadcast_nb(endpoint, root, given.clone()).unwrap();
                let gathering = world.allgather_nb(endpoint, &given).unwrap();
                let expected = [0, 1, 2].map(|member| elements(member, salt + 100, count)).concat();
                let mut all = vec![0; 3 * count];
                world.allgather(endpoint, &given, &mut all).unwrap();
                assert!(all == expected, "{count} elements of each");
                assert!(handle.wait(endpoint).unwrap() == elements(root, salt + 100, count), "{count} elements");
                assert!(gathering.wait(endpoint).unwrap() == expected, "{count} elements of each, with a handle");
            }
        }
        Some(sent(endpoint) - before)
    });
    assert_eq!(found, [Some(0); 3]);
}

/// A blocking operation that a time-out ends goes on with copies of its elements.
#[test]
fn operations_outlast_time_outs() {
    let over = AtomicU32::new(0);
    play_over(2, tuned(false, true), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        let count = 100_000;
        give_up_and_go_on(endpoint, &world, &over, count);
        Some(())
    });
}

/// The room of teams that are no more is used again.
#[test]
fn rooms_of_teams_are_used_again() {
    let direct = run(2, true, |endpoint, world| {
        for _ in 0..200 {
            let copy = world.duplicate(endpoint).unwrap();
            copy.barrier(endpoint).unwrap();
        }
        let last = world.duplicate(endpoint).unwrap();
        endpoint.layer::<Collectives>().engine().shares(last.members.context)
    });
    assert_eq!(direct, [true; 2]);
}

/// A root that runs ahead uses no slot again that another member still reads; and who does nothing but small
/// operations serves its peers.
#[test]
fn roots_that_run_ahead_wait_for_the_readers() {
    const ROUNDS: u64 = 30_000;
    play_over(3, tuned(false, true), |endpoint| {
        let world = Team::world(endpoint).unwrap();
        world.barrier(endpoint).unwrap();
        for round in 0..ROUNDS {
            let mut value = [if world.me() == 0 { round } else { 0 }; 4];
            world.broadcast(endpoint, 0, &mut value).unwrap();
            assert_eq!(value, [round; 4], "at member {}", world.me());
        }
        for round in 0..ROUNDS {
            let mut sum = [round + u64::from(world.me())];
            world.reduce(endpoint, 0, &mut sum, Sum).unwrap();
            if world.me() == 0 {
                assert_eq!(sum, [3 * round + 3]);
            }
        }
        Some(())
    });
}

/// Calls of which one goes through memory and the other by messages, or both by messages, each member of which
/// waits for the other.
#[test]
fn calls_by_messages_are_compared_too() {
    // Elements and root of each member's broadcast.
    let calls = [[(1, 0), (1000, 0)], [(1000, 0), (1, 0)], [(1000, 0), (1000, 1)], [(1000, 1), (1000, 0)]];
    for (calls, check) in calls.into_iter().flat_map(|calls| [(calls, false), (calls, true)]) {
        let found = play_over(2, tuned(check, true), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let (count, root) = calls[world.me() as usize];
            let first = world.broadcast(endpoint, root, &mut vec![1u64; count]);
            // Those who only give learn of it later.
            Some(first.and_then(|()| world.barrier(endpoint)))
        });
        let called = |member: usize| (calls[member].0 as u64, Some(calls[member].1));
        for found in found.into_iter().flatten() {
            let told = match found {
                Err(CollectiveError::Mismatch { first_call, second_call, .. }) => {
                    [(first_call.count, first_call.root), (second_call.count, second_call.root)]
                        == [0, 1].map(called)
                }
                // What a member sent may be looked at before what it called.
                Err(CollectiveError::Unmatched { .. } | CollectiveError::Size { .. }) => !check,
                _ => false,
            };
            assert!(told, "{calls:?}: {found:?}");
        }
    }
}

/// A loopback transport that counts how often it lets others use the processor and does not sleep.
struct Counting {
    inner: Loopback,
    gave_way: Arc<AtomicU32>,
}

impl Membership for Counting {
    am_core::forward!(inner: local_peer, shape, losses, status, is_fork, depart);
}

impl Waiting for Counting {
    am_core::forward!(inner: idle_unless, wake_peer, spins, waker, now, charge);
    am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        if until.is_some_and(|until| until <= self.inner.now()) {
            self.gave_way.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
        } else {
            self.inner.idle(until, reason);
        }
    }
}

impl Transport for Counting {
    type Memory = <Loopback as Transport>::Memory;
    type Room = <Loopback as Transport>::Room;
    type Slot<'a> = <Loopback as Transport>::Slot<'a>;
    am_core::forward!(inner:
        may_deliver, limits, send, reserve, slot, control, poll, reply_detached, flush, is_quiescent,
        segment, segment_len, remote_segment, auxiliary, native, credits, owed, bare_credits,
    );
}

/// Where ranks share processors, a member lets the others come before it waits for them.
#[test]
fn crowded_members_let_others_come() {
    let gave_way: [Arc<AtomicU32>; 2] = Default::default();
    let begins = Barrier::new(2);
    let member = |inner, me: usize| {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register_tuned(&mut handlers, tuned(false, true)).unwrap();
        let transport = Counting { inner, gave_way: Arc::clone(&gave_way[me]) };
        let mut endpoint = Endpoint::attach(transport, handlers, collectives).unwrap();
        endpoint.set_timeout(Some(LONG));
        let world = Team::world(&mut endpoint).unwrap();
        world.barrier(&mut endpoint).unwrap();
        gave_way[me].store(0, Ordering::SeqCst);
        begins.wait();
        // The other has to give way for this one to come.
        while me == 1
            && gave_way[0].load(Ordering::SeqCst) < YIELDS
            && endpoint.status(Rank(0)) == Some(PeerStatus::Active)
        {
            thread::yield_now();
        }
        world.barrier(&mut endpoint).unwrap();
        endpoint.finish().unwrap();
    };
    thread::scope(|scope| {
        for (me, inner) in network(2, LoopbackConfig::default()).into_iter().enumerate() {
            let member = &member;
            scope.spawn(move || member(inner, me));
        }
    });
    assert_eq!(gave_way[0].load(Ordering::SeqCst), YIELDS);
}

/// Room of teams that every member has dropped is used again, by those who make other teams.
#[test]
fn room_of_teams_that_were_dropped_is_used_again() {
    let direct = play_over(3, tuned(false, true), |endpoint| {
        let world = &Team::world(endpoint).unwrap();
        let me = world.me();
        let mut shared = [0; 2];
        for (phase, pair) in [[0, 1], [0, 2]].into_iter().enumerate() {
            let mut held = Vec::new();
            for _ in 0..20 {
                let team = world.split(endpoint, pair.contains(&me).then_some(0), 0).unwrap();
                let Some(team) = team else { continue };
                shared[phase] += u32::from(endpoint.layer::<Collectives>().engine().shares(team.members.context));
                // One of the two comes later, so that it finds the other there.
                for late in [0, 1, 0, 1] {
                    if team.me() == late {
                        thread::sleep(std::time::Duration::from_millis(1));
                    }
                    team.barrier(endpoint).unwrap();
                }
                held.push(team);
            }
        }
        Some(shared)
    });
    assert_eq!(direct, [[20, 20], [20, 0], [0, 20]].map(Some));
}

/// An operator that panics leaves the caller's elements alone.
#[test]
fn operators_that_panic_leave_the_elements() {
    let found = play_over(2, tuned(false, true), |endpoint| {
        let world = &Team::world(endpoint).unwrap();
        let mut left = [[0u64; 2]; 2];
        for (late, left) in (0u32..).zip(&mut left) {
            let team = world.duplicate(endpoint).unwrap();
            let me = u64::from(team.me());
            let mut elements = [7 + me, 9 + me];
            if team.me() == late {
                thread::sleep(std::time::Duration::from_millis(5));
            }
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let operator = move |a: u64, b: u64| if a >= 9 { panic!("refused") } else { a + b };
                let _ = team.allreduce(endpoint, &mut elements, operator);
            }));
            let _ = panicked;
            *left = [elements[0] - me, elements[1] - me];
        }
        Some(left)
    });
    assert_eq!(found, [Some([[7, 9]; 2]); 2]);
}

/// Random operations in teams that overlap, some with handles, give what they should.
#[test]
fn operations_in_teams_that_overlap_give_what_they_should() {
    for seed in 0..12u64 {
        let found = play_over(4, tuned(seed % 4 == 3, true), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let me = world.me();
            let lists: [&[u32]; 4] = [&[0, 1, 2], &[3, 1, 2], &[0, 3], &[0, 1, 2, 3]];
            let teams: Vec<_> = lists.iter().map(|list| world.select(endpoint, list).unwrap()).collect();
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut pending = Vec::new();
            for round in 0..4000u64 {
                let at = random(4) as usize;
                let (kind, root, wide) = (random(8), random(lists[at].len() as u64) as u32, random(40) == 0);
                let (naps, who) = (random(300) == 0, random(4) as u32);
                if naps && who == me {
                    thread::sleep(std::time::Duration::from_micros(300));
                }
                let Some(team) = &teams[at] else { continue };
                let n = u64::from(team.size());
                let words = if wide { 40 } else { 1 + (round % 4) as usize };
                let given = vec![round * 10 + u64::from(team.me()); words];
                let sum = vec![n * round * 10 + n * (n - 1) / 2; words];
                let of_root = vec![round * 10 + u64::from(root); words];
                let mut data = given.clone();
                match kind {
                    0 => team.barrier(endpoint).unwrap(),
                    1 | 2 => {
                        team.allreduce(endpoint, &mut data, Sum).unwrap();
                        assert_eq!(data, sum, "round {round}");
                    }
                    3 | 4 => {
                        team.broadcast(endpoint, root, &mut data).unwrap();
                        assert_eq!(data, of_root, "round {round}");
                    }
                    5 => {
                        team.reduce(endpoint, root, &mut data, Sum).unwrap();
                        assert_eq!(data, if team.me() == root { sum } else { given }, "round {round}");
                    }
                    6 => pending.push((team.allreduce_nb(endpoint, data, Sum).unwrap(), sum)),
                    _ => pending.push((team.broadcast_nb(endpoint, root, data).unwrap(), of_root)),
                }
                if pending.len() > 12 || round % 97 == 0 {
                    for (handle, expected) in pending.drain(..) {
                        assert_eq!(handle.wait(endpoint).unwrap(), expected, "before round {round}");
                    }
                }
            }
            for (handle, expected) in pending.drain(..) {
                assert_eq!(handle.wait(endpoint).unwrap(), expected);
            }
            Some(())
        });
        assert_eq!(found, [Some(()); 4], "seed {seed}");
    }
}

/// Calls that differ are told to all, whoever differs and when.
#[test]
fn calls_that_differ_late_are_told_to_all() {
    for seed in 0..60u64 {
        let found = play_over(3, tuned(false, true), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let (wrong, at) = ((seed % 3) as u32, 5 + seed % 17);
            let mut outcome = Ok(());
            for round in 0..60u64 {
                let differs = round == at && world.me() == wrong;
                let words = if differs { 3 } else { 2 };
                let mut data = vec![1u64; words];
                let root = (round / 5 % 3) as u32;
                outcome = match (seed / 3 + round / 7) % 3 {
                    0 => world.broadcast(endpoint, root, &mut data),
                    1 => world.reduce(endpoint, root, &mut data, Sum),
                    _ => world.allreduce(endpoint, &mut data, Sum),
                };
                if outcome.is_err() {
                    break;
                }
            }
            Some(outcome.is_err())
        });
        assert_eq!(found, [Some(true); 3], "seed {seed}");
    }
}

/// A member that goes amid small operations is told to all; what came before is right.
#[test]
fn losses_amid_small_operations_are_told_to_all() {
    for seed in 0..60u64 {
        let found = play_over(4, tuned(false, true), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            let me = world.me();
            for round in 0..200u64 {
                if u64::from(me) == seed % 4 && round == 3 + seed {
                    return None;
                }
                let mut data = [round + u64::from(me); 2];
                let root = (round % 4) as u32;
                let done = match (round / 9 + seed) % 3 {
                    0 => world.broadcast(endpoint, root, &mut data).map(|()| data[0] == round + u64::from(root)),
                    1 => world
                        .reduce(endpoint, root, &mut data, Sum)
                        .map(|()| me != root || data[0] == 4 * round + 6),
                    _ => world.allreduce(endpoint, &mut data, Sum).map(|()| data[0] == 4 * round + 6),
                };
                match done {
                    Ok(right) => assert!(right, "seed {seed}, round {round}: {data:?}"),
                    Err(CollectiveError::Lost { rank, .. }) => {
                        assert_eq!(u64::from(rank.0), seed % 4);
                        return Some(true);
                    }
                    Err(other) => panic!("seed {seed}: {other}"),
                }
            }
            Some(false)
        });
        let lost = (seed % 4) as usize;
        for (member, found) in found.into_iter().enumerate().filter(|(member, _)| *member != lost) {
            assert_eq!(found, Some(true), "seed {seed}, member {member}");
        }
    }
}
