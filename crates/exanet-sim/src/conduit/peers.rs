//! What a rank keeps per peer, only for peers it has to do with: jobs may have many ranks.

use super::config::Sizes;
use super::frame::{Frame, Line};
use fabric_sim::PagedPeers;
use std::collections::VecDeque;

/// Slots of one kind at one place, of which those with a set bit are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    free: u32,
    all: u32,
}

/// More came back than is in use: the peer is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotInUse;

impl Slots {
    const fn new(all: u32) -> Self {
        Self { free: all, all }
    }

    /// Takes one of some slots.
    pub(super) fn take(&mut self, of: u32) -> Option<u8> {
        let slot = (self.free & of).trailing_zeros();
        if slot == u32::BITS {
            return None;
        }
        self.free &= !(1 << slot);
        Some(slot as u8)
    }

    /// Gives slots back; all of them were in use.
    pub(super) fn give(&mut self, slots: u32) -> Result<(), NotInUse> {
        if slots & !(self.all & !self.free) != 0 {
            return Err(NotInUse);
        }
        self.free |= slots;
        Ok(())
    }

    pub(super) const fn free(&self, of: u32) -> u32 {
        (self.free & of).count_ones()
    }

    pub(super) const fn in_use(&self) -> u32 {
        self.all & !self.free
    }
}

/// What a rank knows of one peer.
#[derive(Debug)]
pub(super) struct PeerState {
    /// Slots at the peer for this rank's requests and small messages between cores.
    pub(super) slots: Slots,
    /// Slots here for the peer's replies, and those of them whose reply has come.
    pub(super) replies: Slots,
    pub(super) answered: u32,
    /// Slots here that requests of the peer are in.
    pub(super) inside: u32,
    /// Credits that the peer has a right to, and does not know of yet.
    pub(super) handled: u32,
    pub(super) freed: u32,
    /// Whether the peer is in the list of those that credits are owed to.
    pub(super) listed: bool,
    /// The turn of the next packet to it, and the number of the last write that is notified.
    pub(super) turn: u16,
    pub(super) writes: u32,
    /// Its packets become frames, which wait for delivery; whether the peer is in the list of those who have some.
    pub(super) line: Line,
    pub(super) inbox: VecDeque<Frame>,
    pub(super) waits: bool,
}

/// States of peers, made when first used.
pub(super) struct Peers {
    sizes: Sizes,
    states: PagedPeers<PeerState>,
}

impl Peers {
    pub(super) fn new(ranks: u32, sizes: Sizes) -> Self {
        Self { sizes, states: PagedPeers::new(ranks) }
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        let sizes = self.sizes;
        self.states.get_or_insert_with(peer, || PeerState {
            slots: Slots::new(sizes.request_slots() | sizes.control_slots()),
            replies: Slots::new(sizes.reply_slots()),
            answered: 0,
            inside: 0,
            handled: 0,
            freed: 0,
            listed: false,
            turn: 0,
            writes: 0,
            line: Line::default(),
            inbox: VecDeque::new(),
            waits: false,
        })
    }

    /// All of them.
    #[inline]
    pub(super) fn known(&self) -> &PagedPeers<PeerState> {
        &self.states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_once() {
        let mut slots = Slots::new(0b1011);
        assert_eq!([slots.take(0b0011), slots.take(0b0011), slots.take(0b0011)], [Some(0), Some(1), None]);
        assert_eq!((slots.take(u32::MAX), slots.in_use(), slots.free(u32::MAX)), (Some(3), 0b1011, 0));
        assert_eq!([0b0100, 0b0010, 0b0010].map(|bits| slots.give(bits)), [Err(NotInUse), Ok(()), Err(NotInUse)]);
        assert_eq!((slots.in_use(), slots.free(0b0011)), (0b1001, 1));
    }
}
