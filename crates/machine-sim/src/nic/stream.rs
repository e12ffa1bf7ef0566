//! The packets of a pair, where they may overtake each other or be lost: numbered by their sender, in order again
//! at their receiver, and kept until they are acknowledged.

use super::wire::{Content, PacketBody};
use am_core::Instant;
use std::collections::{BTreeMap, VecDeque};

/// What a sender keeps of a peer.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) next: u32,
    /// Packets under way that were not acknowledged, and those that wait for room: turn, bytes, contents.
    pub(super) kept: VecDeque<(u32, u32, PacketBody)>,
    pub(super) waiting: VecDeque<(u32, PacketBody)>,
    /// Fruitless attempts in a row, and when the next is made.
    pub(super) attempts: u32,
    pub(super) due: Instant,
    /// Messages behind one that waits to be cleared, which is the first: their sizes, and when they were sent.
    pub(super) announced: VecDeque<(Content, u64)>,
}

impl Out {
    /// Whether something has still to be sent or acknowledged.
    pub(super) fn is_busy(&self) -> bool {
        !self.kept.is_empty() || !self.waiting.is_empty() || !self.announced.is_empty()
    }

    /// Drops what was acknowledged; whether that was anything.
    pub(super) fn acknowledge(&mut self, turn: u32) -> bool {
        let before = self.kept.len();
        while self.kept.front().is_some_and(|(kept, ..)| turn.wrapping_sub(*kept).wrapping_sub(1) < 1 << 31) {
            self.kept.pop_front();
        }
        self.kept.len() != before
    }
}

/// What a receiver keeps of a peer.
#[derive(Debug, Default)]
pub(super) struct In {
    pub(super) expected: u32,
    /// Packets that came too early, by how much.
    early: BTreeMap<u32, (u32, Instant, PacketBody)>,
}

/// What a packet is to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    Early,
    Known,
}

impl In {
    pub(super) fn turn(&self, turn: u32) -> Turn {
        match turn.wrapping_sub(self.expected) {
            0 => Turn::Now,
            ahead if ahead < 1 << 31 => {
                if self.early.contains_key(&turn) {
                    Turn::Known
                } else {
                    Turn::Early
                }
            }
            _ => Turn::Known,
        }
    }

    pub(super) fn keep(&mut self, turn: u32, bytes: u32, sent: Instant, contents: PacketBody) {
        self.early.insert(turn, (bytes, sent, contents));
    }

    /// The next packet, if it has come.
    pub(super) fn next(&mut self) -> Option<(u32, Instant, PacketBody)> {
        let next = self.early.remove(&self.expected)?;
        self.expected = self.expected.wrapping_add(1);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round() {
        let mut stream = In { expected: u32::MAX, ..In::default() };
        assert_eq!(
            [u32::MAX, 0, u32::MAX - 1].map(|turn| stream.turn(turn)),
            [Turn::Now, Turn::Early, Turn::Known]
        );
        stream.keep(0, 8, Instant(0), PacketBody::Part);
        assert!(stream.turn(0) == Turn::Known && stream.next().is_none());
        stream.expected = 0;
        assert!(stream.next().is_some() && stream.next().is_none());
        assert_eq!(stream.expected, 1);
    }

    #[test]
    fn acknowledgements_cover_all_before() {
        let mut out = Out::default();
        out.kept.extend([u32::MAX - 1, u32::MAX, 0, 1].map(|turn| (turn, 8, PacketBody::Part)));
        assert!(!out.acknowledge(u32::MAX - 1));
        assert!(out.acknowledge(0));
        assert_eq!(out.kept.iter().map(|(turn, ..)| *turn).collect::<Vec<_>>(), [0, 1]);
        assert!(out.acknowledge(2) && !out.is_busy());
    }
}
