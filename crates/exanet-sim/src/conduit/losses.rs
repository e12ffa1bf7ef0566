//! Peers that are lost for this rank although their processes go on: those that break the protocol, and those that the
//! interface could not reach for longer than it tries. What was under way to these may be missing, so nothing that
//! comes later makes sense; they are told, as soon as they can be reached, since they cannot find out themselves.

use super::transport::Conduit;
use crate::nic::{Nack, PacketError};
use am_core::{LossCause, Peer, PeerStatus};

/// The packet that says so, too short to be part of a frame.
pub(super) const LOST: [u8; 1] = [0];
/// How often a lost peer is told unless it can be reached, each time as long as the interface tries.
const TRIES: u32 = 16;

/// A peer that is to be told that it is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untold {
    peer: u32,
    tries: u32,
    /// Whether a packet is under way.
    sent: bool,
}

impl Conduit<'_> {
    /// Takes a peer for lost, whatever is known of its process.
    #[cold]
    pub(super) fn lose(&mut self, peer: u32, cause: LossCause) {
        if !self.faulty.insert(Peer(peer), cause) {
            return;
        }
        let state = self.peers.of(peer);
        state.line.clear();
        state.inbox.clear();
        state.waits = false;
        self.waiting.retain(|waiting| *waiting != peer);
        self.fresh = true;
    }

    /// The interface could not reach a peer: what was sent to it may be missing.
    #[cold]
    pub(super) fn unreachable(&mut self, peer: u32) {
        if self.faulty.contains(Peer(peer)) || self.nic.context().known_status(peer) != PeerStatus::Active {
            return;
        }
        self.lose(peer, LossCause::Silent);
        self.untold.push(Untold { peer, tries: 0, sent: false });
    }

    /// A packet was refused for good, and given up.
    pub(super) fn refused_for_good(&mut self, peer: u32, nack: Nack) {
        // One that has no open context has left.
        if nack != Nack::Unreachable {
            return self.untold.retain(|untold| untold.peer != peer);
        }
        self.unreachable(peer);
        for untold in self.untold.iter_mut().filter(|untold| untold.peer == peer && untold.sent) {
            (untold.sent, untold.tries) = (false, untold.tries + 1);
        }
        self.untold.retain(|untold| untold.tries < TRIES);
    }

    /// Tells lost peers, as far as channels are free.
    pub(super) fn tell_lost(&mut self) {
        for index in 0..self.untold.len() {
            let Untold { peer, sent, .. } = self.untold[index];
            let Some(address) = self.nic.address(peer).filter(|_| !sent) else { continue };
            match self.nic.pkt_send(address, &LOST) {
                Ok(_) => self.untold[index].sent = true,
                // The interface wakes this rank when there is room.
                Err(PacketError::Full { .. }) => return,
                Err(_) => {}
            }
        }
    }
}
