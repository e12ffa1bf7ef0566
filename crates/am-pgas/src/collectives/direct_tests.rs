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
