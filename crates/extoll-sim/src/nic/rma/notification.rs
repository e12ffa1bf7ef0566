//! Notifications and their queue, as a state machine with no clock.

use crate::nic::address::Address;
use std::collections::VecDeque;
use std::ops::{BitOr, Deref};

/// Which notifications a command asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notify(pub(crate) u8);

impl Notify {
    /// None.
    pub const NONE: Self = Self(0);
    /// At the process that posted the command: it has been executed there. The source of a put may be changed.
    pub const REQUESTER: Self = Self(1);
    /// At the process that a get or lock asks: it has been answered.
    pub const RESPONDER: Self = Self(2);
    /// Where the data goes: all of it is in memory.
    pub const COMPLETER: Self = Self(4);

    /// Whether this asks for any of those.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Notify {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The commands of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// A put.
    Put,
    /// A put whose data is in the command.
    ImmediatePut,
    /// A get.
    Get,
    /// A fetch-compare-and-add.
    Lock,
    /// A notification by itself.
    Notification,
}

/// What a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which of the three it is.
    pub kind: Notify,
    /// What it is about.
    pub command: Command,
    /// The other process.
    pub partner: Address,
    /// Whether the command failed: nothing was written or read.
    pub error: bool,
    /// The class of a [`Command::Notification`], otherwise 0.
    pub class: u8,
    /// Bytes moved.
    pub size: u32,
    /// The 64 bits of a [`Command::Notification`]; the old value of a lock; otherwise the NLA of the first byte at
    /// the process that is notified.
    pub value: u64,
    /// Whether a lock's comparison held, so that the sum was stored.
    pub hit: bool,
}

/// A notification that the process has taken out of the queue. Its entry is free again when
/// [`Rma::noti_free`](super::Rma::noti_free) gets it back; dropped, it takes up its entry for good.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a notification takes up an entry of the queue until it is freed"]
pub struct Notification {
    event: Event,
    entry: u64,
}

impl Deref for Notification {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

#[derive(Clone, Copy)]
enum Entry {
    Ready(Event),
    Taken,
    Freed,
}

/// The queue of a process: a ring that the interface fills and the process empties, in any order.
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// All before this have been taken.
    seen: u64,
    capacity: usize,
}

impl Queue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { entries: VecDeque::new(), first: 0, seen: 0, capacity: capacity as usize }
    }

    pub(crate) fn used(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.capacity
    }

    /// # Panics
    /// If the queue is full.
    pub(crate) fn push(&mut self, event: Event) {
        assert!(!self.is_full(), "notifications are written only where there is room");
        self.entries.push_back(Entry::Ready(event));
    }

    /// Takes the first ready entry that fits. `Err`: there is none; the flag says whether there are others.
    pub(crate) fn take(&mut self, fits: impl Fn(&Event) -> bool) -> Result<Notification, bool> {
        let (mut others, skip) = (false, (self.seen - self.first) as usize);
        for (index, entry) in self.entries.iter_mut().enumerate().skip(skip) {
            let Entry::Ready(event) = *entry else { continue };
            if !fits(&event) {
                others = true;
                continue;
            }
            *entry = Entry::Taken;
            let number = self.first + index as u64;
            if !others {
                self.seen = number + 1;
            }
            return Ok(Notification { event, entry: number });
        }
        Err(others)
    }

    /// Frees an entry; room appears when the first entries are free. Returns whether it did.
    pub(crate) fn free(&mut self, notification: &Notification) -> bool {
        let index = notification.entry.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            *entry = Entry::Freed;
        }
        let before = self.entries.len();
        while matches!(self.entries.front(), Some(Entry::Freed)) {
            self.entries.pop_front();
            self.first += 1;
        }
        self.seen = self.seen.max(self.first);
        before != self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(value: u64) -> Event {
        let partner = Address { node: 0, vpid: 0 };
        let (kind, command) = (Notify::COMPLETER, Command::Notification);
        Event { kind, command, partner, error: false, class: 0, size: 8, value, hit: false }
    }

    #[test]
    fn entries_are_taken_in_order_or_by_match() {
        let mut queue = Queue::new(3);
        assert_eq!(queue.take(|_| true), Err(false));
        (0..3).for_each(|value| queue.push(event(value)));
        assert!(queue.is_full());
        assert_eq!(queue.take(|event| event.value == 9), Err(true));
        let one = queue.take(|event| event.value == 1).unwrap();
        let zero = queue.take(|_| true).unwrap();
        let two = queue.take(|_| true).unwrap();
        assert_eq!((zero.value, one.value, two.value), (0, 1, 2));
        assert_eq!(queue.take(|_| true), Err(false));
        assert!(!queue.free(&one) && queue.is_full(), "the first entry still blocks the ring");
        assert!(queue.free(&zero) && queue.used() == 1);
        queue.push(event(3));
        assert!(queue.free(&two));
        assert_eq!(queue.take(|_| true).unwrap().value, 3);
    }
}
