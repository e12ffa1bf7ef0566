//! Large operations whose members read what the others lend, over the loopback transport and a transport that
//! plays the system: it knows what every member lends, and refuses as it is told.

use super::direct_tests::{elements, give_up_and_go_on};
use super::tests::{LONG, tuned};
use super::{Collectives, Tuning};
use crate::Team;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::transport::{Lent, LentFault};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, Handlers, Instant, Membership, Peer, Span, Transport, Waiting};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// What members lend, by member and address, and how often it was read.
#[derive(Default)]
struct Memory {
    lent: Mutex<BTreeMap<(u32, u64), Vec<u8>>>,
    reads: AtomicU32,
    refusals: AtomicU32,
}

impl Memory {
    fn knows(&self, member: u32, elements: &[u64]) {
        let address = elements.as_ptr().expose_provenance() as u64;
        self.lent.lock().unwrap().insert((member, address), elements.as_bytes().to_vec());
    }
}

/// Why a member does not read what another one lends, from a byte on.
type Fault = dyn Fn(u32, u32, u64) -> Option<LentFault> + Sync;

struct Reading<'a> {
    inner: Loopback,
    me: u32,
    memory: &'a Memory,
    fault: &'a Fault,
    spins: bool,
    /// Tenths of a second that the system has taken for copies out of this member's own memory; with `None` it
    /// makes none.
    slow: Option<u32>,
}

impl Membership for Reading<'_> {
    am_core::forward!(inner: local_peer, shape, losses, status, is_fork, depart);
}

impl Waiting for Reading<'_> {
    am_core::forward!(inner: idle, idle_unless, wake_peer, waker, charge);
    am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);

    fn now(&self) -> Instant {
        self.inner.now() + Span(u64::from(self.slow.unwrap_or(0)) * 100_000_000_000)
    }

    fn spins(&self) -> bool {
        self.spins
    }
}

impl Transport for Reading<'_> {
    type Memory = <Loopback as Transport>::Memory;
    type Room = <Loopback as Transport>::Room;
    type Slot<'a>
        = <Loopback as Transport>::Slot<'a>
    where
        Self: 'a;
    am_core::forward!(inner:
        may_deliver, limits, send, reserve, slot, control, poll, reply_detached, flush, is_quiescent,
        segment, segment_len, remote_segment, auxiliary, native, credits, owed, bare_credits,
    );

    fn reads_lent(&mut self, _: Peer) -> bool {
        true
    }

    fn read_lent(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        if let Some(fault) = (self.fault)(self.me, of.0, at) {
            self.memory.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(fault);
        }
        if let Some(slow) = self.slow.as_mut().filter(|_| of.0 == self.me) {
            *slow += 1;
            return Ok(());
        }
        let memory = self.memory.lent.lock().unwrap();
        let bytes = memory.get(&(of.0, lent.address)).ok_or(LentFault::NoMemory)?;
        out.copy_from_slice(&bytes[at as usize..][..out.len()]);
        self.memory.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Runs `part` on every rank, none of which has a processor to itself; how often members have read, and been
/// refused.
fn play(
    ranks: u32,
    fault: &Fault,
    part: impl Fn(&mut Endpoint<Reading<'_>, Collectives>, &Team, &Memory) + Sync,
) -> [u32; 2] {
    play_on((false, tuned(false, true), None), ranks, fault, part)
}

/// The same on ranks that each have a processor, or do not, and whose system makes slow copies, or none, out of
/// their own memory.
fn play_on(
    (spins, tuning, slow): (bool, Tuning, Option<u32>),
    ranks: u32,
    fault: &Fault,
    part: impl Fn(&mut Endpoint<Reading<'_>, Collectives>, &Team, &Memory) + Sync,
) -> [u32; 2] {
    let memory = Memory::default();
    let member = |inner, me| {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register_tuned(&mut handlers, tuning.clone()).unwrap();
        let transport = Reading { inner, me, memory: &memory, fault, spins, slow };
        let mut endpoint = Endpoint::attach(transport, handlers, collectives).unwrap();
        endpoint.set_timeout(Some(LONG));
        let world = Team::world(&mut endpoint).unwrap();
        part(&mut endpoint, &world, &memory);
        endpoint.finish().unwrap();
    };
    thread::scope(|scope| {
        for (me, inner) in (0..).zip(network(ranks, LoopbackConfig::default())) {
            let member = &member;
            scope.spawn(move || member(inner, me));
        }
    });
    [&memory.reads, &memory.refusals].map(|count| count.load(Ordering::Relaxed))
}

/// Broadcasts and allgathers of lengths around those of a block and of a piece, with and without handles.
fn all_forms(endpoint: &mut Endpoint<Reading<'_>, Collectives>, world: &Team, memory: &Memory) {
    let (me, size, sent) = (world.me(), world.size(), endpoint.statistics().total_sent());
    for (salt, count) in (0..).zip([8 << 10, (8 << 10) + 1, 16 << 10, (128 << 10) + 1]) {
        for root in 0..size {
            let mut found = elements(me, salt, count);
            memory.knows(me, &found);
            world.broadcast(endpoint, root, &mut found).unwrap();
            assert!(found == elements(root, salt, count), "{count} elements of member {root}");
        }
        let (given, mut all) = (elements(me, salt + 100, count), vec![0; size as usize * count]);
        memory.knows(me, &given);
        // One that passes by blocks is under way.
        let handle = world.broadcast_nb(endpoint, 0, given.clone()).unwrap();
        world.allgather(endpoint, &given, &mut all).unwrap();
        let expected = (0..size).map(|member| elements(member, salt + 100, count)).collect::<Vec<_>>().concat();
        assert!(all == expected, "{count} elements of each");
        assert!(handle.wait(endpoint).unwrap() == elements(0, salt + 100, count));
        // Some calls have a handle, others lend.
        let lent = me == 1;
        let found = match lent {
            true => world.allgather(endpoint, &given, &mut all).map(|()| all),
            false => world.allgather_nb(endpoint, &given).unwrap().wait(endpoint),
        };
        assert!(found.unwrap() == expected, "{count} elements of each, partly lent");
    }
    assert_eq!(endpoint.statistics().total_sent(), sent, "nothing goes by messages");
}

#[test]
fn lent_elements_are_read_where_they_are() {
    // Of four lengths, the last in five pieces: broadcasts of three roots, read by two each; allgathers, in which
    // each reads two; and one member's part that the two others read.
    assert_eq!(play(3, &|_, _, _| None, all_forms), [8 * (6 + 6 + 2), 0]);
}

#[test]
fn broadcasts_pass_by_blocks_where_each_has_a_processor() {
    let machine = (true, tuned(false, true), None);
    assert_eq!(play_on(machine, 3, &|_, _, _| None, all_forms), [8 * (6 + 2), 0]);
}

/// What members that each have a processor give passes by blocks if the system's copies take too long.
#[test]
fn slow_copies_are_not_lent_for() {
    let reads = |spins, lent_cost| {
        let tuning = Tuning { lent_cost, ..tuned(false, true) };
        play_on((spins, tuning, Some(0)), 3, &|_, _, _| None, all_forms)[0]
    };
    assert_eq!(reads(true, Tuning::default().lent_cost), 0);
    assert_eq!(reads(true, u32::MAX), 8 * (6 + 2));
    assert_eq!(reads(false, 0), 8 * (6 + 6 + 2), "members that share processors do not ask");
}

/// Members lend until they know what the system's copies cost, and find that out at a later call if the first one
/// fails, but not for ever.
#[test]
fn failed_measurements_are_made_again() {
    let measured = |failures: u32| {
        let failed = [(); 3].map(|()| AtomicU32::new(0));
        let fault = move |me: u32, of: u32, _: u64| {
            let fails = me == of && failed[me as usize].fetch_add(1, Ordering::Relaxed) < failures;
            fails.then_some(LentFault::Refused)
        };
        play_on((true, tuned(false, true), Some(0)), 3, &fault, all_forms)
    };
    assert_eq!(measured(0), [0, 0]);
    // All lend twice: member 1 in both allgathers of the first length, the others in the first of two lengths.
    assert_eq!(measured(2), [6 + 2 + 4, 3 * 2]);
    assert_eq!(measured(u32::MAX), [8 * (6 + 2), 3 * 3], "three measurements of each");
}

#[test]
fn who_cannot_read_asks_for_blocks() {
    let refused = |fault: fn(u32, u32) -> bool| {
        play(3, &move |me, of, _| fault(me, of).then_some(LentFault::Refused), all_forms)
    };
    let [reads, refusals] = refused(|_, _| true);
    // Nobody lends again who was asked.
    assert!(reads == 0 && (3..=6).contains(&refusals), "{refusals}");
    let [reads, refusals] = refused(|me, _| me == 1);
    assert!(reads > 0 && (2..=4).contains(&refusals), "{reads} {refusals}");
    let [reads, refusals] = refused(|me, of| (me, of) == (2, 0));
    assert!(reads > 20 && refusals == 1, "{reads} {refusals}");
}

#[test]
fn loans_that_end_while_read_pass_by_blocks() {
    let [reads, refusals] = play(3, &|me, of, at| (me != of && at > 0).then_some(LentFault::Withdrawn), all_forms);
    assert!(reads > 0 && refusals > 0);
}

/// A call that times out takes its loan back, and goes on with copies of its elements.
#[test]
fn loans_end_with_time_outs() {
    let over = AtomicU32::new(0);
    let count = 20_000;
    let found = play(2, &|_, _, _| Some(LentFault::Withdrawn), |endpoint, world, _| {
        give_up_and_go_on(endpoint, world, &over, count);
    });
    // Once in the broadcast, and each way in the allgather.
    assert_eq!(found, [0, 3]);
}
