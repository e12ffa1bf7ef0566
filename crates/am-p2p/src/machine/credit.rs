//! Credit: what a sender may have in a receiver's memory for unexpected messages, and what it knows of it.

use super::Machine;
use super::control::Credit;
use super::peers::Peer;

impl Peer {
    /// What is of the peer in this rank's memory for unexpected messages.
    #[inline]
    pub(super) fn held(&self) -> Credit {
        self.received.since(self.consumed)
    }

    /// A message has left this rank's memory for unexpected ones. Whether the peer has to be told.
    #[inline(always)]
    pub(super) fn consume(&mut self, window: Credit, units: u32) -> bool {
        self.consumed.add(units);
        let unreported = self.consumed.since(self.reported);
        self.short || unreported.messages >= window.messages / 2 || unreported.units >= window.units / 2
    }

    /// What the peer has sent of this rank's messages back, if it tells more than is known, can be true, and
    /// nothing waits for that. `None` otherwise, and nothing has changed.
    #[inline(always)]
    pub(super) fn plain_credit(&self, credit: Credit) -> Option<Credit> {
        if credit == self.returned {
            return Some(credit);
        }
        let (more, outstanding) = (credit.since(self.returned), self.sent.since(self.returned));
        // Not one that was overtaken, which looks like very much more.
        let plain = more.messages.wrapping_sub(1) < outstanding.messages
            && more.units <= outstanding.units
            && self.backlog.is_empty();
        plain.then_some(credit)
    }

    /// The credit for a message to the peer, which knows it then.
    #[inline(always)]
    pub(super) fn attach_credit(&mut self, window: Credit) -> Credit {
        (self.reported, self.due) = (self.consumed, false);
        if self.received.messages.wrapping_sub(self.reported.messages) <= window.messages / 2 {
            self.short = false;
        }
        self.reported
    }
}

impl Machine {
    /// Learns how much of its messages a peer has taken. Whether that can be.
    #[inline(always)]
    pub(super) fn accept_credit(&mut self, peer: usize, credit: Credit) -> bool {
        let state = &mut self.peers[peer];
        let more = credit.since(state.returned);
        // Messages may overtake each other, so that an older count comes later.
        if more.messages == 0 || (more.messages as i32) < 0 {
            return true;
        }
        let outstanding = state.sent.since(state.returned);
        if more.messages > outstanding.messages || more.units > outstanding.units {
            let rank = state.rank;
            self.fault(rank);
            return false;
        }
        state.returned = credit;
        if !state.backlog.is_empty() {
            self.launch_more(peer);
        }
        true
    }

    /// The credit for a message to a peer, which knows it then.
    #[inline(always)]
    pub(super) fn attach_credit(&mut self, peer: usize) -> Credit {
        self.peers[peer].attach_credit(self.window)
    }

    /// Whether messages have come that nobody has asked for.
    pub(crate) fn has_unasked(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Of a peer that may send nothing before one of its messages is received, none of which has met a receive:
    /// how many these are. A wait for another one of its messages does not end by itself.
    pub(crate) fn starved(&self, rank: u32) -> Option<u32> {
        let peer = &self.peers[*self.peer_of.get(&rank)? as usize];
        let held = peer.held().messages;
        (peer.gone.is_none() && held >= self.window.messages).then_some(held)
    }

    /// Whether all messages have come that this rank has sent to itself.
    pub(crate) fn has_heard_all(&self, me: u32) -> bool {
        let Some(peer) = self.peer_of.get(&me).map(|peer| &self.peers[*peer as usize]) else { return true };
        peer.sent == peer.received && peer.backlog.is_empty()
    }

    /// Which memory for unexpected messages is used up, here and at peers, in words. Allocates.
    pub(crate) fn exhausted(&self) -> Vec<String> {
        let mut all = Vec::new();
        for peer in self.peers.iter().filter(|peer| peer.gone.is_none()) {
            let (rank, backlog, held) = (peer.rank, peer.backlog.len(), peer.held().messages);
            if backlog != 0 {
                all.push(format!(
                    "{backlog} message(s) to rank {rank} wait for its memory for unexpected messages"
                ));
            }
            if held >= self.window.messages {
                all.push(format!(
                    "{held} messages of rank {rank} wait for receives, which use up its part of \
                     MessageConfig::unexpected: it sends no more before one of them is received"
                ));
            }
        }
        all
    }

    /// A message of a peer has left this rank's memory for unexpected ones.
    #[inline(always)]
    pub(super) fn consume(&mut self, peer: usize, units: u32) {
        if self.peers[peer].consume(self.window, units) {
            self.report_consumed(peer);
        }
    }

    #[inline(never)]
    pub(super) fn report_consumed(&mut self, peer: usize) {
        self.peers[peer].due = true;
        self.mark_ready(peer);
    }
}
