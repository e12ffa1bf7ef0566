//! Lookahead over Portals 3.3: messages that are delivered, and processes that are resumed, late where no
//! process can notice.
//!
//! - The event of a message comes a certain time after the message. A process that knows the next event in its
//!   queues goes on at that time without being suspended.
//! - A plain put changes nothing that is not told of by an event: it is kept until the process looks at its
//!   interface.
//! - What a process sends waits for its sending engine. While the engine has a backlog, nobody can notice when
//!   the process gave its commands, so it is resumed once the backlog is gone.
//!
//! None of that holds once something may happen to a process that no event of Portals 3.3 tells of
//! ([`Shared::no_lookahead`]). `tests/it/lookahead.rs` compares every clock at every step with a run without
//! lookahead.

use super::device::{NO_LOOKAHEAD, PORTALS_4, Portals, Shared, TX};
use super::handle::Nic;
use super::p3::engine::ALL;
use super::p3::unit::Message;
use super::wire::Wire;
use am_core::Instant;
use fabric_sim::DeviceContext;

impl Portals {
    /// The time before which nothing that an idling rank does next can be noticed, if it is the only process
    /// of its node and looks at event queues of Portals 3.3 alone.
    pub(super) fn lookahead_of(&self, rank: u32, port: &DeviceContext<'_, Wire>) -> Instant {
        let Shared { late_read, no_lookahead, .. } = &*self.shared;
        let [process] = &*self.processes else { return Instant::default() };
        let noticed = *late_read || no_lookahead.get() || !process.sleeps || process.watched == ALL;
        debug_assert_eq!(process.rank, rank);
        if noticed { Instant::default() } else { port.free_at(TX) }
    }

    /// Whether a message can be kept until someone looks at the process: nobody waits for an answer to it, and
    /// what it changes is told of by an event.
    #[inline]
    pub(super) fn keeps(&self, message: &Message) -> bool {
        message.is_plain_put() && !self.shared.late_read && !self.shared.no_lookahead.get()
    }

    /// When the event of the next message is there that is kept for a process.
    pub(crate) fn kept_event(&self, local: u32) -> Option<Instant> {
        let (at, ..) = self.processes[local as usize].kept.first()?;
        Some(self.shared.costs.told(*at))
    }

    /// Delivers what was kept for a process and has arrived by now. Everything that looks at it calls this first,
    /// so that nobody can tell: kept messages spare a large machine finding a process's state in memory for each
    /// of them.
    #[inline]
    pub(crate) fn catch_up(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        if !self.processes[local as usize].kept.is_empty() {
            self.deliver_kept(local, port);
        }
    }

    fn deliver_kept(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        let mut kept = std::mem::take(&mut self.processes[local as usize].kept);
        let arrived = kept.iter().take_while(|(at, ..)| *at <= port.now()).count();
        for (at, from, message) in kept.drain(..arrived) {
            self.p3_arrive(local, from, message, at, port);
        }
        self.processes[local as usize].kept = kept;
    }
}

impl Nic<'_> {
    /// From now on something may happen to processes that no event of Portals 3.3 tells of.
    pub(crate) fn forbid_lookahead(&self) {
        self.shared.no_lookahead.set(true);
        self.context().throw(NO_LOOKAHEAD);
    }

    /// From now on there are events of Portals 4.
    pub(crate) fn expect_portals_4(&self) {
        self.shared.portals_4.set(true);
        self.context().throw(PORTALS_4);
        self.forbid_lookahead();
    }

    /// Whether all events are known that get into this rank's queues up to a time.
    #[inline]
    pub(super) fn foresees(&self, time: Instant) -> bool {
        time < self.context().synced() + self.shared.costs.lookahead
    }

    /// Whether a rank that idles need not be suspended to know that the next that concerns it is at a time: it
    /// foresees it, and nothing changes its memory without an event. (It may learn of a loss later by as much as
    /// it foresees.)
    pub(crate) fn knows(&self, next: Instant) -> bool {
        next <= self.now() || self.foresees(next) && !self.shared.late_read && !self.shared.no_lookahead.get()
    }
}
