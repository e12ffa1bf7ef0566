//! What the callee's side counts, where the settings ask for it.

use crate::meter::{End, Party};
use crate::server::Server;
use crate::task::{Arrived, Taken};
use crate::wire::Header;
use am_core::Instant;

impl<W: Send + 'static> Server<W> {
    /// A request of so many bytes has come, and this has become of it; its answer, if it is there, has so many
    /// bytes.
    #[cold]
    pub(crate) fn count(&mut self, arrived: Arrived, request: usize, taken: &Taken, answer: usize) {
        let (method, one_way) = (arrived.header.method, arrived.header.is(Header::ONE_WAY));
        let bytes = if arrived.header.is(Header::LONG) { arrived.long as usize } else { request };
        let bytes = bytes.saturating_sub(self.tracer.envelope());
        self.meter.begun(Party::Callee, method, bytes);
        let seen = Default::default();
        match taken {
            Taken::Answered(verdict) => {
                self.meter.ended(Party::Callee, method, || End::of_status(verdict.status, one_way), answer, seen);
            }
            Taken::Forgotten => self.meter.ended(Party::Callee, method, || End::Cancelled, 0, seen),
            Taken::Later(key) => {
                if let Some(task) = self.tasks.get_mut(*key) {
                    task.counted = true;
                    self.unseen.push(*key);
                }
            }
        }
    }

    /// Whether there is something of which only the time is missing.
    #[inline]
    pub(crate) fn waits_for_time(&self) -> bool {
        !self.unseen.is_empty() || self.meter.waits()
    }

    /// The time is known.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.meter.settle(now);
        for key in self.unseen.drain(..) {
            if let Some(task) = self.tasks.get_mut(key) {
                task.seen.at(now);
            }
        }
    }
}
