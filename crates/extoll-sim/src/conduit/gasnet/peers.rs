//! What a rank keeps per peer, only for peers it has to do with: jobs may have many ranks.

use super::assembly::Partial;
use super::joins::Joins;
use super::rooms::Rooms;
use crate::nic::{rma, velo};
use am_core::credit::Account;

/// What a rank knows of one peer.
#[derive(Debug)]
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
    /// It broke the protocol.
    pub(super) faulty: bool,
    /// The number of the next Long message to it.
    pub(super) next_long: u16,
    pub(super) velo: Option<velo::Connection>,
    pub(super) rma: Option<rma::Connection>,
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
            faulty: false,
            next_long: 0,
            velo: None,
            rma: None,
            partial: None,
            joins: None,
        })
    }

    /// The state of a peer, if there ever was anything to keep.
    #[inline]
    pub(super) fn known(&self, peer: u32) -> Option<&PeerState> {
        self.pages[peer as usize / PAGE].as_ref()?[peer as usize % PAGE].as_ref()
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
