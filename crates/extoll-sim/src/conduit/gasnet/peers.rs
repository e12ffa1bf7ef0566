//! What a rank keeps per peer, only for peers it has to do with: jobs may have many ranks.

use super::assembly::Partial;
use super::joins::Joins;
use super::rooms::Rooms;
use am_core::credit::Account;
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

const PAGE: usize = 16;

type Page = Option<Box<[Option<PeerState>; PAGE]>>;

/// States of peers, made when first used.
pub(super) struct Peers {
    rooms: Rooms,
    pages: Vec<Page>,
}

impl Peers {
    pub(super) fn new(ranks: u32, rooms: Rooms) -> Self {
        Self { rooms, pages: (0..(ranks as usize).div_ceil(PAGE)).map(|_| None).collect() }
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        let Self { rooms, pages } = self;
        let page = pages[peer as usize / PAGE].get_or_insert_with(Default::default);
        page[peer as usize % PAGE].get_or_insert_with(|| PeerState {
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

    /// The state of a peer, if there ever was anything to keep.
    #[inline]
    pub(super) fn known(&self, peer: u32) -> Option<&PeerState> {
        self.pages[peer as usize / PAGE].as_ref()?[peer as usize % PAGE].as_ref()
    }

    /// The next peer after one, in a circle that ends with it, whose state fits.
    pub(super) fn next(&self, after: u32, fits: impl Fn(u32, &PeerState) -> bool) -> Option<u32> {
        let (pages, first) = (self.pages.len(), after as usize / PAGE);
        let begin = after as usize % PAGE + 1;
        let parts = std::iter::once((first, begin..PAGE))
            .chain((1..pages).map(|step| ((first + step) % pages, 0..PAGE)))
            .chain(std::iter::once((first, 0..begin)));
        parts
            .filter_map(|(page, range)| Some((page, range, self.pages[page].as_ref()?)))
            .flat_map(|(page, range, states)| range.map(move |offset| (page * PAGE + offset, &states[offset])))
            .find(|(peer, state)| state.as_ref().is_some_and(|state| fits(*peer as u32, state)))
            .map(|(peer, _)| peer as u32)
    }

    /// All peers with a state, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &PeerState)> {
        let pages = self.pages.iter().enumerate().filter_map(|(index, page)| Some((index, page.as_ref()?)));
        pages.flat_map(|(index, page)| {
            let states = page.iter().enumerate();
            states.filter_map(move |(offset, state)| Some(((index * PAGE + offset) as u32, state.as_ref()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::gasnet::GasnetConfig;

    #[test]
    fn a_peer_takes_a_cache_line() {
        assert_eq!(size_of::<Option<PeerState>>(), 64);
    }

    #[test]
    fn the_next_peer_is_found_in_a_circle() {
        let rooms = GasnetConfig::default().compile(100, 64).expect("a job of 100 ranks is possible");
        let mut peers = Peers::new(100, rooms);
        for peer in [3, 5, 40, 99] {
            peers.of(peer).handled = 1;
        }
        peers.of(4);
        let next = |after| peers.next(after, |_, state| state.handled != 0);
        assert_eq!([0, 3, 5, 40, 99, 39, 98].map(next), [3, 5, 40, 99, 3, 40, 99].map(Some));
        assert_eq!(peers.next(3, |peer, _| peer == 3), Some(3));
        assert_eq!(peers.next(3, |_, _| false), None);
    }
}
