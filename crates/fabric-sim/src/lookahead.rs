//! Lookahead: ranks that are resumed late, and packets that enter the network late, where no rank can notice.
//!
//! With thousands of ranks every resumption finds the rank's memory outside the caches. A device that knows that
//! nothing which its rank does can reach the network before some time ([`Device::lookahead`]) has the rank resumed
//! only then: the rank does in one go what it would have done in many, and its clock shows the same. The
//! device keeps the rest of the promise: what the rank must not see too early waits until the rank has caught up
//! ([`DeviceContext::resume_early`]), and what waits for the rank's own engine costs no events
//! ([`DeviceContext::send_fifo`]).

use crate::context::Context;
use crate::device::Device;
use crate::device_context::{DeviceContext, Outgoing};
use crate::engine::{Core, Engine, NOBODY};
use crate::ranks::{RankState, State};
use am_core::Instant;

impl RankState {
    /// Whether it should have gone on before a time.
    fn is_behind(&self, now: u64) -> bool {
        match self.state {
            State::Waiting(_) => self.due < now,
            State::Queued => self.now < now,
            State::Running | State::Done | State::Stopped => false,
        }
    }
}

impl<B: Clone> Core<B> {
    /// Resumes a rank that waits with lookahead if it should have gone on before now; returns whether it will at
    /// this moment, before what is foreseen for this moment from here on.
    pub(crate) fn resume_early(&mut self, rank: u32, now: u64) -> bool {
        let state = &self.ranks[rank as usize];
        let behind = state.is_behind(now);
        if behind && matches!(state.state, State::Waiting(_)) {
            self.go_on(rank, now);
        }
        behind
    }

    /// [`Core::resume_early`] for all ranks: before something that any of them may notice.
    pub(crate) fn resume_all_early(&mut self, now: u64) -> bool {
        let behind = (0..self.ranks.len() as u32).filter(|rank| self.resume_early(*rank, now)).count();
        behind != 0
    }

    /// Lets a packet enter its sender's interface behind all others that were sent so; returns its number.
    fn send_fifo(&mut self, packet: Outgoing<B>, now: u64) -> u64 {
        let (mut packet, header) = self.packet(packet, now);
        let (node, number) = (self.node_of[packet.from as usize] as usize, packet.number);
        let first = self.nodes[node].first;
        if first == NOBODY {
            self.nodes[node].first = self.launch(packet, header);
            return number;
        }
        let last = self.lines[node].back().map(|(last, _)| last.sent);
        let last = last.unwrap_or_else(|| self.in_flight.packet(first).sent);
        packet.sent = packet.sent.max(last);
        self.lines[node].push_back((packet, header));
        number
    }
}

impl<D: Device> Engine<D> {
    /// The time before which a rank that begins to wait need not be resumed.
    #[inline]
    pub(crate) fn lookahead(&mut self, rank: u32) -> u64 {
        let Self { core, devices, .. } = self;
        let (node, now) = (core.node_of[rank as usize], core.ranks[rank as usize].now);
        devices[node as usize].lookahead(rank, &DeviceContext { core, node, now }).0
    }
}

impl<D: Device> Context<'_, D> {
    /// Lets the time until another pass, if this rank knows that nothing concerns it before: it did not wait, and
    /// was not suspended. A time that has passed changes nothing.
    pub fn skip_to(&self, time: Instant) {
        let state = &mut self.machine.borrow_mut().core.ranks[self.rank as usize];
        state.now = state.now.max(time.0);
    }
}

impl<B: Clone> DeviceContext<'_, B> {
    /// Whether a rank of this node that waits with [lookahead](Device::lookahead) should have gone on before
    /// now. If so it will at this moment, before what is [set aside](DeviceContext::defer) for this moment
    /// from now on: what the rank must not see too early can wait for that.
    pub fn resume_early(&mut self, rank: u32) -> bool {
        self.core.resume_early(rank, self.now)
    }

    /// [`DeviceContext::send_as`] for what a node's one engine sends: a packet enters the network at its time,
    /// but not before those of this node that were sent so earlier. However many wait, only the first of them
    /// is an event to come, and the others cost a run nothing but their places.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send_fifo(&mut self, packet: Outgoing<B>) -> u64 {
        self.core.send_fifo(packet, self.now)
    }
}
