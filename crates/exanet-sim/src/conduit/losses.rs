//! Peers that are lost for this rank although their processes go on: those that break the protocol, and those that
//! the interface could not reach for longer than it tries. What was under way to these may be missing, so nothing
//! that comes later makes sense; they are told, as soon as they can be reached, since they cannot find out
//! themselves.

use super::transport::Conduit;
use crate::nic::Nack;
use am_core::{LossCause, Peer, PeerStatus};

impl Conduit<'_> {
    /// Takes a peer for lost, whatever is known of its process.
    #[cold]
    pub(super) fn lose(&mut self, peer: u32, cause: LossCause) {
        if !self.presence.faulty.insert(Peer(peer), cause) {
            return;
        }
        let state = self.peers.of(peer);
        state.line.clear();
        state.inbox.clear();
        state.waits = false;
        self.waiting.retain(|waiting| *waiting != peer);
        self.presence.fresh = true;
    }

    /// The interface could not reach a peer: what was sent to it may be missing.
    #[cold]
    pub(super) fn unreachable(&mut self, peer: u32) {
        if self.presence.faulty.contains(Peer(peer)) || self.nic.context().known_status(peer) != PeerStatus::Active
        {
            return;
        }
        self.lose(peer, LossCause::Silent);
        self.loss_notices.add(peer);
    }

    /// Sends again what full mailboxes refused. Whether it did anything.
    pub(super) fn send_refused(&mut self, refused: u64) -> bool {
        let mut given_up = Vec::new();
        let done = self.refusals.serve(&self.nic, refused, |peer, nack| given_up.push((peer, nack)));
        for (peer, nack) in given_up {
            if nack == Nack::Unreachable {
                self.unreachable(peer);
            }
            self.loss_notices.refused(peer, nack);
        }
        self.loss_notices.send(&self.nic);
        done
    }
}
