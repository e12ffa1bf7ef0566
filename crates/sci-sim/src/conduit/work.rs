//! The work queue: messages that have been found and wait for their handlers, first in, first out.
//!
//! Polling looks at one flag; only when that is set does it look for messages, and it then queues all that it
//! finds. So a poll costs the same however many senders there are, and a message is looked for once.

use super::header::Ready;
use std::collections::VecDeque;

/// A message that has been found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) from: u32,
    pub(super) slot: u32,
    pub(super) ready: Ready,
}

/// The queue of a rank, with room for everything that can be there at once: a message per slot.
#[derive(Debug)]
pub(super) struct WorkQueue {
    found: VecDeque<Found>,
}

impl WorkQueue {
    pub(super) fn new(slots: usize) -> Self {
        Self { found: VecDeque::with_capacity(slots) }
    }

    #[inline]
    pub(super) fn push(&mut self, found: Found) {
        self.found.push_back(found);
    }

    /// Puts a message before all others.
    pub(super) fn push_front(&mut self, found: Found) {
        self.found.push_front(found);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Found> {
        self.found.pop_front()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}
