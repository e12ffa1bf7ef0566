//! Peers that broke the protocol: lost for this endpoint, although nobody else knows.

use super::{LossCause, PeerStatus};
use crate::address::Peer;

/// The peers that an endpoint found faulty, with the cause of their loss. Few, so a list.
///
/// What is known of them from elsewhere comes as closures and arguments: a peer that was found faulty may end
/// later, and counts as one loss all the same.
#[derive(Clone, Debug, Default)]
pub struct FaultyPeers {
    peers: Vec<(Peer, LossCause)>,
}

impl FaultyPeers {
    /// No peers. Does not allocate.
    pub const fn new() -> Self {
        Self { peers: Vec::new() }
    }

    /// Adds a peer; whether it was not there yet. The first cause stays. Allocates.
    pub fn insert(&mut self, peer: Peer, cause: LossCause) -> bool {
        let new = !self.contains(peer);
        if new {
            self.peers.push((peer, cause));
        }
        new
    }

    /// Whether a peer was found faulty.
    #[inline]
    pub fn contains(&self, peer: Peer) -> bool {
        !self.peers.is_empty() && self.peers.iter().any(|(faulty, _)| *faulty == peer)
    }

    /// Number of faulty peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether no peer was found faulty.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// A peer's status, `known` unless it was found faulty.
    #[inline]
    pub fn status(&self, peer: Peer, known: impl FnOnce() -> PeerStatus) -> PeerStatus {
        if self.peers.is_empty() {
            return known();
        }
        let found = self.peers.iter().find(|(faulty, _)| *faulty == peer);
        found.map_or_else(known, |(_, cause)| PeerStatus::Lost(*cause))
    }

    /// How many endpoints have been lost: `known` of them, and those found faulty that are not among these by what
    /// is `known_of` them.
    #[inline]
    pub fn losses(&self, known: u32, known_of: impl Fn(Peer) -> PeerStatus) -> u32 {
        let more = self.peers.iter().filter(|(peer, _)| !matches!(known_of(*peer), PeerStatus::Lost(_)));
        known + more.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_peers_count_once() {
        let mut faulty = FaultyPeers::new();
        let died = PeerStatus::Lost(LossCause::Died);
        assert!(faulty.insert(Peer(3), LossCause::Faulty) && !faulty.insert(Peer(3), LossCause::Incompatible));
        assert!(faulty.insert(Peer(1), LossCause::Incompatible));
        assert_eq!((faulty.len(), faulty.contains(Peer(2))), (2, false));
        assert_eq!(faulty.status(Peer(3), || died), PeerStatus::Lost(LossCause::Faulty));
        assert_eq!(faulty.status(Peer(2), || died), died);
        assert_eq!(faulty.losses(4, |_| PeerStatus::Active), 6);
        // One that was found faulty has died since, so that it is known otherwise, too.
        let known_of = |peer| if peer == Peer(3) { died } else { PeerStatus::Active };
        assert_eq!(faulty.losses(5, known_of), 6);
    }
}
