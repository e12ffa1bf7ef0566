//! Memory for long requests and long answers on their way here: one limit for both, and one order in which they get it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Who waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Requests of others to this rank.
    Requests = 0,
    /// Answers to calls of this rank.
    Answers = 1,
}

impl Side {
    const fn other(self) -> usize {
        1 - self as usize
    }
}

/// Nobody waits.
const NOBODY: u64 = u64::MAX;

/// Relaxed throughout: the numbers guard nothing but themselves. Who gives memory back on another thread rings the doorbell
/// afterwards, and the endpoint looks again.
#[derive(Debug)]
pub(crate) struct Room {
    limit: u64,
    used: AtomicU64,
    next: AtomicU64,
    /// The first ticket that waits at each side.
    first: [AtomicU64; 2],
    /// Whether one that waited before may have its turn now.
    freed: AtomicBool,
}

impl Room {
    pub(crate) fn new(limit: u64) -> Self {
        let first = [AtomicU64::new(NOBODY), AtomicU64::new(NOBODY)];
        Self { limit, used: AtomicU64::new(0), next: AtomicU64::new(0), first, freed: AtomicBool::new(false) }
    }

    /// A place in the order.
    pub(crate) fn ticket(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Takes memory for the first that waits at a side, if it is there and no other has waited longer. One message always has room.
    pub(crate) fn take(&self, side: Side, ticket: u64, bytes: u64) -> bool {
        self.first_is(side, Some(ticket));
        if self.first[side.other()].load(Relaxed) < ticket {
            return false;
        }
        let more = |used: u64| (used == 0 || used.saturating_add(bytes) <= self.limit).then_some(used + bytes);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Which ticket waits first at a side, if any does.
    pub(crate) fn first_is(&self, side: Side, ticket: Option<u64>) {
        let ticket = ticket.unwrap_or(NOBODY);
        if self.first[side as usize].swap(ticket, Relaxed) < ticket {
            self.free(side.other());
        }
    }

    /// Has those that wait looked at again: one that was first has gone.
    pub(crate) fn look_again(&self) {
        self.freed.store(true, Relaxed);
    }

    /// Gives memory back.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.free(0);
        self.free(1);
    }

    fn free(&self, side: usize) {
        if self.first[side].load(Relaxed) != NOBODY {
            self.freed.store(true, Relaxed);
        }
    }

    /// Whether those that wait are to be looked at again.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Relaxed)
    }

    /// [`Room::is_freed`], until it is so again. To be called before looking.
    pub(crate) fn take_freed(&self) -> bool {
        self.is_freed() && self.freed.swap(false, Relaxed)
    }

    /// Bytes in use.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_share_one_limit_in_order() {
        let room = Room::new(100);
        let tickets: Vec<u64> = (0..4).map(|_| room.ticket()).collect();
        assert!(room.take(Side::Requests, tickets[0], 90));
        room.first_is(Side::Requests, None);
        // The second does not fit, and keeps the third, which would, behind it.
        assert!(!room.take(Side::Answers, tickets[1], 20));
        assert!(!room.take(Side::Requests, tickets[2], 5));
        assert!(!room.take_freed());
        room.give(90);
        assert!(room.take_freed() && !room.is_freed());
        assert!(room.take(Side::Answers, tickets[1], 20));
        // Whoever waited behind is told once the first has gone.
        room.first_is(Side::Answers, None);
        assert!(room.take_freed());
        assert!(room.take(Side::Requests, tickets[2], 5));
        room.first_is(Side::Requests, None);
        room.give(25);
        assert_eq!(room.used(), 0);
        // One message has room, however long it is.
        assert!(room.take(Side::Requests, tickets[3], 1000));
    }
}
