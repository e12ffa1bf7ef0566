//! What a rank keeps per peer.

use super::assembly::Partial;
use super::joins::Joins;
use super::rooms::Rooms;
use am_core::credit::Account;
use fabric_sim::PagedPeers;
use std::num::NonZeroU32;

/// The number of a connection once it is made; four bytes either way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made(Option<NonZeroU32>);

impl Made {
    const NOT: Self = Self(None);

    pub(super) fn of(number: u32) -> Self {
        Self(NonZeroU32::new(number.wrapping_add(1)))
    }

    #[inline]
    pub(super) fn number(self) -> Option<u32> {
        self.0.map(|number| number.get() - 1)
    }
}

/// What a rank knows of one peer. A cache line: in large jobs every message is for another peer, and memory is
/// what takes the time.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct PeerState {
    /// Slots of the peer's ring for this rank's requests.
    pub(super) requests: Account,
    /// Slots of this rank's ring for the peer's answers.
    pub(super) answers: Account,
    /// Slots of the peer's ring for small control messages.
    pub(super) control: Account,
    /// Credits that the peer has a right to, and does not know of yet: request slots, answer slots, control slots.
    pub(super) handled: u32,
    pub(super) freed: u32,
    pub(super) controlled: u32,
    /// Whether the peer is in the list of those that credits are owed to.
    pub(super) listed: bool,
    /// The number of the next Long message to it.
    pub(super) next_long: u16,
    /// Connections, once they are made.
    pub(super) velo: Made,
    pub(super) rma: Made,
    pub(super) partial: Option<Box<Partial>>,
    pub(super) joins: Option<Box<Joins>>,
}

/// States of peers, made when first used.
pub(super) struct Peers {
    rooms: Rooms,
    states: PagedPeers<PeerState>,
}

impl Peers {
    pub(super) fn new(ranks: u32, rooms: Rooms) -> Self {
        Self { rooms, states: PagedPeers::new(ranks) }
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        let rooms = &self.rooms;
        self.states.get_or_insert_with(peer, || PeerState {
            requests: Account::new(rooms.requests),
            answers: Account::new(rooms.answers),
            control: Account::new(rooms.control),
            handled: 0,
            freed: 0,
            controlled: 0,
            listed: false,
            next_long: 0,
            velo: Made::NOT,
            rma: Made::NOT,
            partial: None,
            joins: None,
        })
    }

    /// Those that there ever was anything to keep of.
    #[inline]
    pub(super) fn known(&self) -> &PagedPeers<PeerState> {
        &self.states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_a_cache_line() {
        assert_eq!(size_of::<Option<PeerState>>(), 64);
    }
}
