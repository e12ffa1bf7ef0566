//! The one-way baselines: a single-producer, single-consumer ring of 64-byte slots with 56 bytes of payload,
//! written and read in full, announced in three ways.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::mapping::Line;
use super::raw::{drain, fill, payload, wait, wait_for};

/// Slots of the ring. 256 KiB of them run twice as fast as 64 KiB, whose lines still sit in the peer's first-level
/// cache.
pub(crate) const SLOTS: usize = 4096;
/// Slots filled before their index is published in the batched ring.
const BATCH: u64 = 32;

/// How a slot is announced to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Announce {
    /// A flag in the slot, set by the producer and cleared by the consumer.
    Flag,
    /// The lap number in the slot; the consumer returns room a quarter ring at a time.
    Lap,
    /// A shared index, published every 32 slots; room returns a quarter ring at a time.
    Index,
}

/// The ring as both sides see it; all of it starts out as zeros.
pub(crate) struct Ring<'a> {
    /// [`SLOTS`] slots.
    pub(crate) slots: &'a [Line],
    /// Slots published, where an index announces them.
    pub(crate) tail: &'a AtomicU64,
    /// Slots given back, but for the flags.
    pub(crate) head: &'a AtomicU64,
}

impl Ring<'_> {
    /// Sends so many messages.
    pub(crate) fn produce(&self, announce: Announce, messages: u64) {
        match announce {
            Announce::Flag => self.produce_flags(messages),
            Announce::Lap => self.produce_laps(messages),
            Announce::Index => self.produce_indices(messages),
        }
    }

    /// Receives so many messages.
    pub(crate) fn consume(&self, announce: Announce, messages: u64) {
        let sum = match announce {
            Announce::Flag => self.consume_flags(messages),
            Announce::Lap => self.consume_laps(messages),
            Announce::Index => self.consume_indices(messages),
        };
        black_box(sum);
    }

    fn slot(&self, message: u64) -> &Line {
        &self.slots[message as usize % SLOTS]
    }

    fn lap(message: u64) -> u64 {
        message / SLOTS as u64 + 1
    }

    /// Waits for room for a message, with `known` slots known to be given back; returns what is known then.
    fn room(&self, message: u64, known: u64) -> u64 {
        wait_for(self.head, known, |known| message - known < SLOTS as u64)
    }

    fn return_room(&self, message: u64) {
        if (message + 1).is_multiple_of(SLOTS as u64 / 4) {
            // Release: pairs with the Acquire in `room`; the slots have been read.
            self.head.store(message + 1, Release);
        }
    }

    fn produce_flags(&self, messages: u64) {
        for message in 0..messages {
            let slot = self.slot(message);
            wait(|| slot.0[0].load(Acquire) == 0);
            fill(slot, 1, message);
        }
    }

    fn consume_flags(&self, messages: u64) -> u64 {
        let receive = |sum, message| {
            let slot = self.slot(message);
            let sum = sum ^ drain(slot, 1);
            // Release: pairs with the producer's Acquire; the payload has been read.
            slot.0[0].store(0, Release);
            sum
        };
        (0..messages).fold(0, receive)
    }

    fn produce_laps(&self, messages: u64) {
        let mut known = 0;
        for message in 0..messages {
            known = self.room(message, known);
            fill(self.slot(message), Self::lap(message), message);
        }
    }

    fn consume_laps(&self, messages: u64) -> u64 {
        let receive = |sum, message| {
            let sum = sum ^ drain(self.slot(message), Self::lap(message));
            self.return_room(message);
            sum
        };
        (0..messages).fold(0, receive)
    }

    fn produce_indices(&self, messages: u64) {
        let mut known = 0;
        for message in 0..messages {
            known = self.room(message, known);
            for word in &self.slot(message).0[1..] {
                word.store(message, Relaxed);
            }
            if (message + 1).is_multiple_of(BATCH) || message + 1 == messages {
                // Release: pairs with the Acquire in `consume_indices`; the slots have been filled.
                self.tail.store(message + 1, Release);
            }
        }
    }

    fn consume_indices(&self, messages: u64) -> u64 {
        let (mut sum, mut known) = (0, 0);
        for message in 0..messages {
            known = wait_for(self.tail, known, |known| known > message);
            sum ^= payload(self.slot(message));
            self.return_room(message);
        }
        sum
    }
}
