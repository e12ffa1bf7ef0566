//! A first-in first-out queue of peers that holds each peer at most once and never allocates after set-up.

use crate::address::Peer;
use std::collections::VecDeque;

/// Peers that wait for the same thing, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerQueue {
    order: VecDeque<Peer>,
    queued: Vec<bool>,
}

impl PeerQueue {
    /// An empty queue for peers `0..peers`; the only call that allocates.
    pub(super) fn new(peers: u32) -> Self {
        Self { order: VecDeque::with_capacity(peers as usize), queued: vec![false; peers as usize] }
    }

    /// Appends a peer that is not waiting yet; one that is keeps its place.
    pub(super) fn push(&mut self, peer: Peer) {
        let queued = &mut self.queued[peer.index()];
        if !*queued {
            *queued = true;
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
        self.queued[peer.index()] = false;
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
