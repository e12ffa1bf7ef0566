//! A first-in first-out queue of peers that holds each peer at most once; it grows to the most that ever waited.

use am_core::Peer;
use std::collections::VecDeque;

/// Peers that wait for the same thing, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerQueue {
    order: VecDeque<Peer>,
    /// A bit for each peer.
    queued: Vec<u64>,
}

impl PeerQueue {
    /// An empty queue for peers `0..peers`, with room at once for a few.
    pub(super) fn new(peers: u32) -> Self {
        let room = peers.min(64) as usize;
        Self { order: VecDeque::with_capacity(room), queued: vec![0; (peers as usize).div_ceil(64)] }
    }

    /// Appends a peer that is not waiting yet; one that is keeps its place.
    pub(super) fn push(&mut self, peer: Peer) {
        let (word, bit) = (&mut self.queued[peer.index() / 64], 1 << (peer.index() % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.order.push_back(peer);
        }
    }

    /// The peer that has waited longest.
    pub(super) fn front(&self) -> Option<Peer> {
        self.order.front().copied()
    }

    /// Removes the peer that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Peer> {
        let peer = self.order.pop_front()?;
        self.queued[peer.index() / 64] &= !(1 << (peer.index() % 64));
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_ignores_repeats_and_never_grows() {
        let mut queue = PeerQueue::new(5);
        let capacity = queue.order.capacity();
        for round in 0..100 {
            for peer in [3, 1, 3, 0, 1, 4, 2, 2] {
                queue.push(Peer(peer));
            }
            assert_eq!(queue.front(), Some(Peer(3)), "round {round}");
            let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|peer| peer.0).collect();
            assert_eq!(order, [3, 1, 0, 4, 2]);
        }
        assert_eq!(queue.order.capacity(), capacity);
    }
}
