//! What a rank keeps per peer, only for peers it has to do with: jobs may have many ranks.

use fabric_sim::PagedPeers;

/// Messages between cores that may be under way to a peer besides all requests, so that no flood of these gets in
/// their way.
pub(super) const CONTROLS: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerState {
    /// Requests, of any kind, that the peer has not handled; and replies of it that may still come.
    pub(super) unhandled: u32,
    pub(super) expected: u32,
    /// Messages between cores that the peer has not handled.
    pub(super) controls: u32,
    /// Credits that the peer has a right to, and does not know of yet.
    pub(super) handled: u16,
    pub(super) freed: u16,
    pub(super) controls_handled: u8,
    /// Whether the peer is in the list of those that credits are owed to.
    pub(super) listed: bool,
}

/// States of peers, made when first used.
pub(super) struct Peers {
    ranks: u32,
    states: Option<PagedPeers<PeerState>>,
}

impl Peers {
    pub(super) const fn new(ranks: u32) -> Self {
        Self { ranks, states: None }
    }

    #[inline]
    pub(super) fn of(&mut self, peer: u32) -> &mut PeerState {
        let ranks = self.ranks;
        let states = self.states.get_or_insert_with(|| PagedPeers::new(ranks));
        states.get_or_insert_with(peer, PeerState::default)
    }

    pub(super) fn known(&self, peer: u32) -> Option<&PeerState> {
        self.states.as_ref()?.get(peer)
    }

    /// A peer of which something holds: this one, or the first behind it, in a circle.
    pub(super) fn at_or_after(&self, peer: u32, fits: impl Fn(u32, &PeerState) -> bool) -> Option<u32> {
        self.states.as_ref()?.at_or_after(peer, fits)
    }
}
