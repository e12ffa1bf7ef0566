//! A rank's handle to the machine: time, sending, receiving, waiting.

use crate::device::{Device, Mailbox, Packet};
use crate::device_context::{DeviceContext, Outgoing, PacketId};
use crate::engine::Engine;
use crate::error::WaitFor;
use crate::random::splitmix64;
use crate::ranks::State;
use crate::stage::slowed;
use crate::trace::{StageKind, TraceSpan};
use am_core::{Instant, PeerStatus, Span};
use corosensei::Yielder;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What a rank's program gets: the rank's own clock and its way into the network.
///
/// The rank runs ahead of the rest of the machine as long as it only computes and sends; before it looks at what
/// has arrived, everything earlier happens. Operations cost virtual time as the parameter table says. Clones are
/// handles to the same rank.
pub struct Context<'a, D: Device> {
    pub(crate) rank: u32,
    pub(crate) machine: Rc<RefCell<Engine<D>>>,
    yielder: &'a Yielder<(), ()>,
}

impl<D: Device> Clone for Context<'_, D> {
    fn clone(&self) -> Self {
        Self { machine: Rc::clone(&self.machine), ..*self }
    }
}

impl<D: Device> fmt::Debug for Context<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("rank", &self.rank).finish_non_exhaustive()
    }
}

impl<'a, D: Device> Context<'a, D> {
    pub(crate) fn new(rank: u32, machine: Rc<RefCell<Engine<D>>>, yielder: &'a Yielder<(), ()>) -> Self {
        Self { rank, machine, yielder }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.machine.borrow().core.ranks.len() as u32
    }

    /// The node that a rank runs on.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.machine.borrow().core.node_of[rank as usize]
    }

    /// This rank's time.
    pub fn now(&self) -> Instant {
        Instant(self.machine.borrow().core.ranks[self.rank as usize].now)
    }

    /// Lets time pass in which the rank computes; on a slow node it takes longer. Does not suspend the rank.
    #[inline]
    pub fn charge(&self, cost: Span) {
        self.charged(cost);
    }

    /// [`Context::charge`]; returns this rank's time.
    #[inline]
    pub fn charged(&self, cost: Span) -> Instant {
        let mut machine = self.machine.borrow_mut();
        let state = &mut machine.core.ranks[self.rank as usize];
        state.now = state.now.saturating_add(slowed(cost.picos(), state.slowness));
        Instant(state.now)
    }

    /// Charges for a look that found nothing. What loops without idling calls this, or its time never ends.
    pub fn charge_empty_poll(&self) {
        let cost = self.machine.borrow().core.costs.empty_poll;
        self.charge(Span(cost));
    }

    /// Charges what the processor spends on taking a packet.
    pub fn charge_poll(&self, bytes: u32) {
        let mut machine = self.machine.borrow_mut();
        let core = &mut machine.core;
        let state = &mut core.ranks[self.rank as usize];
        state.now += core.costs.host_poll.alone(bytes, state.slowness);
    }

    /// Charges what the processor spends on sending.
    pub fn charge_issue(&self, bytes: u32) {
        let mut machine = self.machine.borrow_mut();
        let core = &mut machine.core;
        let state = &mut core.ranks[self.rank as usize];
        state.now += core.costs.host_issue.alone(bytes, state.slowness);
    }

    /// Sends a packet of `bytes` bytes, header not counted; charges what the processor spends on it. Does not
    /// block.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send(&self, to: u32, bytes: u32, body: D::Body) {
        self.charge_issue(bytes);
        self.send_as(Outgoing::new(self.rank, to, bytes, body));
    }

    /// Sends a packet with a header, a time and a number of one's own, at no cost for the processor. Does not
    /// block. Returns the packet's number.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send_as(&self, packet: Outgoing<D::Body>) -> u64 {
        let mut machine = self.machine.borrow_mut();
        let now = machine.core.ranks[self.rank as usize].now;
        machine.core.send(packet, now)
    }

    /// Hands the device of this rank's node something at this rank's time, as [`Device::due`] with a token: the
    /// way to give an interface work without waiting for what is behind. Does not block. Returns the packet's
    /// number.
    pub fn post(&self, to: u32, bytes: u32, body: D::Body, token: u32) -> u64 {
        let mut machine = self.machine.borrow_mut();
        let core = &mut machine.core;
        let (node, now) = (core.node_of[self.rank as usize], core.ranks[self.rank as usize].now);
        let number = core.number(None);
        let (from, sent) = (self.rank, Instant(now));
        core.defer(node, now, Packet { number, from, to, bytes, sent, corrupt: false, body }, token);
        number
    }

    /// Lets everything happen that happens up to this rank's time. Suspends the rank while others are behind.
    pub fn sync(&self) {
        loop {
            {
                let mut machine = self.machine.borrow_mut();
                let over = machine.core.over;
                let state = &machine.core.ranks[self.rank as usize];
                let now = state.now;
                // Ranks of one moment take turns once: a rank that has just been resumed had waited for the
                // others.
                let late = now > machine.core.horizon;
                let settled = over || state.resumed == Some(now) || !late && machine.settle_for(self.rank, now);
                let state = &mut machine.core.ranks[self.rank as usize];
                let stopped = state.state == State::Stopped;
                if settled && !stopped && !over {
                    state.synced = state.synced.max(now);
                    return;
                }
                // While it unwinds, a rank must not be suspended: others would seem to be panicking too.
                if std::thread::panicking() {
                    return;
                }
                if !stopped && !over {
                    machine.core.enqueue(self.rank, now);
                }
            }
            self.yielder.suspend(());
        }
    }

    /// Lets happen what happens up to this rank's time before it is another rank's turn. Returns whether the rank
    /// may begin to wait even if that is not all: what is still behind finds it waiting, and lets it go on at its
    /// own time.
    fn catch_up(&self) -> bool {
        let mut machine = self.machine.borrow_mut();
        let now = machine.core.ranks[self.rank as usize].now;
        if machine.core.over || now > machine.core.horizon {
            return machine.catch_up_late(self.rank, now);
        }
        let settled = machine.settle_for(self.rank, now);
        let state = &mut machine.core.ranks[self.rank as usize];
        if settled {
            state.synced = state.synced.max(now);
        }
        state.state != State::Stopped
    }

    /// Until when everything is known that has happened: this rank's time when it last [synced](Context::sync) or
    /// idled.
    #[inline]
    pub fn synced(&self) -> Instant {
        Instant(self.machine.borrow().core.ranks[self.rank as usize].synced)
    }

    /// Suspends this rank until one of these happens:
    ///
    /// * a device wakes it ([`DeviceContext::wake`]);
    /// * a rank is lost, or the rank named by `wanted` ends (see [`WaitFor`] for whose end wakes whom);
    /// * its time reaches `until`; `None` sets no limit.
    ///
    /// Returns at once if one of these has happened since the last call, or if the rank named by `wanted` ended at
    /// any time before. `wanted` also appears in deadlock reports; an endpoint's
    /// [`WaitReason`](am_core::WaitReason) converts to it.
    ///
    /// Waking is not counted. One return stands for everything that happened before it, so a program must look at
    /// all that it waits for before it calls this again; otherwise it may wait for something that is already
    /// there.
    ///
    /// With [`Device::lookahead`] the machine may resume the rank later than its clock shows.
    pub fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>) {
        let lookahead = self.machine.borrow_mut().lookahead(self.rank);
        if !self.catch_up() {
            self.sync();
        }
        {
            let (wanted, mut machine) = (wanted.into(), self.machine.borrow_mut());
            // Its end may have become known while this rank waited for another one, and nobody tells of it again.
            let ended = match wanted {
                WaitFor::From(peer) | WaitFor::Room { to: peer, .. } => machine.core.members.has_ended(peer),
                _ => false,
            };
            let state = &mut machine.core.ranks[self.rank as usize];
            let passed = until.is_some_and(|until| until.0 <= state.now);
            if std::mem::take(&mut state.news) || passed || ended || std::thread::panicking() {
                return;
            }
            machine.core.wait(self.rank, until.map(|until| until.0), lookahead, wanted);
        }
        self.yielder.suspend(());
        let state = &mut self.machine.borrow_mut().core.ranks[self.rank as usize];
        state.news = false;
        state.synced = state.now.max(state.resumed.unwrap_or_default());
    }

    /// Works on the device of this rank's node, after everything earlier has happened. Must not be called within
    /// itself.
    ///
    /// # Panics
    /// If it is.
    pub fn device<R>(&self, work: impl FnOnce(&mut D, &mut DeviceContext<'_, D::Body>) -> R) -> R {
        self.sync();
        self.local(work)
    }

    /// Works on the device as it is, without letting anything happen first: cheaper than [`Context::device`],
    /// never suspends the rank, and right for what belongs to this rank alone. What has arrived in the meantime
    /// may be missing, and other ranks of the node may be behind this one. Must not be called within itself.
    ///
    /// # Panics
    /// If it is.
    pub fn local<R>(&self, work: impl FnOnce(&mut D, &mut DeviceContext<'_, D::Body>) -> R) -> R {
        let mut machine = self.machine.borrow_mut();
        let Engine { core, devices, .. } = &mut *machine;
        let (node, now) = (core.node_of[self.rank as usize], core.ranks[self.rank as usize].now);
        work(&mut devices[node as usize], &mut DeviceContext { core, node, now })
    }

    /// Whether the run is traced.
    pub fn tracing(&self) -> bool {
        self.machine.borrow().core.spans.is_some()
    }

    /// Adds a span of this rank's program to the trace, if there is one: a message's life, a phase of the program.
    pub fn record(&self, name: &'static str, about: impl Into<PacketId>, begin: Instant, end: Instant) {
        if let Some(spans) = &mut self.machine.borrow_mut().core.spans {
            let PacketId { number: packet, from, to } = about.into();
            spans.push(TraceSpan {
                packet,
                from,
                to,
                stage: StageKind::Program(name),
                place: self.rank,
                begin,
                end,
            });
        }
    }

    /// A random number from this rank's stream, which follows from the seed of the [faults](crate::Faults::seed).
    pub fn random(&self) -> u64 {
        splitmix64(&mut self.machine.borrow_mut().core.ranks[self.rank as usize].random)
    }

    /// Tells all ranks a word, past the network and at no cost, as a job's launcher does; a later one takes its
    /// place. In a [run of halves](crate::Sim::run_halves) the other half knows it as of its next window, and
    /// its ranks that wait are woken.
    pub fn announce(&self, word: u64) {
        self.machine.borrow_mut().core.announce(self.rank, word);
    }

    /// The word that a rank has [announced](Context::announce), if any. Lets nothing happen.
    #[inline]
    pub fn announced(&self, rank: u32) -> Option<u64> {
        self.machine.borrow().core.announced.get(rank as usize).copied().flatten()
    }

    /// How many ranks have [announced](Context::announce) a word.
    pub fn announcements(&self) -> u32 {
        self.machine.borrow().core.announcements
    }

    /// [`DeviceContext::throw`](crate::DeviceContext::throw) by a rank.
    pub fn throw(&self, switch: u8) {
        self.machine.borrow_mut().core.throw(switch);
    }

    /// Leaves the job. The others learn it at [`Config::notice_ns`](crate::Config::notice_ns) after this rank's
    /// last packet has landed. Only the first departure counts.
    pub fn depart(&self, status: PeerStatus) {
        self.sync();
        let mut machine = self.machine.borrow_mut();
        let now = machine.core.ranks[self.rank as usize].now;
        machine.core.depart(self.rank, status, now);
    }

    /// What is known of a rank at this rank's time.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn status(&self, rank: u32) -> PeerStatus {
        self.sync();
        self.machine.borrow().core.members.status(rank)
    }

    /// What was known of a rank the last time that the machine was looked at; lets nothing happen.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn known_status(&self, rank: u32) -> PeerStatus {
        self.machine.borrow().core.members.status(rank)
    }

    /// How many ranks are known to have departed, in order or not, as of the last time the machine was looked at.
    pub fn departures(&self) -> u32 {
        self.machine.borrow().core.members.departures()
    }

    /// How many ranks are known to be lost, as of the last time the machine was looked at.
    pub fn losses(&self) -> u32 {
        self.machine.borrow().core.members.losses()
    }
}

impl<B: Clone + 'static> Context<'_, Mailbox<B>> {
    /// The next packet that has arrived, if any.
    pub fn receive(&self) -> Option<Packet<B>> {
        let packet = self.device(|mailbox, _| mailbox.of(self.rank).pop_front());
        match &packet {
            Some(packet) => self.charge_poll(packet.bytes),
            None => self.charge_empty_poll(),
        }
        packet
    }

    /// The next packet; waits for it.
    pub fn wait(&self) -> Packet<B> {
        loop {
            let packet = self.device(|mailbox, _| mailbox.of(self.rank).pop_front());
            if let Some(packet) = packet {
                self.charge_poll(packet.bytes);
                return packet;
            }
            self.idle(None, WaitFor::Arrival);
        }
    }
}
