//! Credit: what a sender may have in a receiver's memory for unexpected messages, and what it knows of it.

use super::Machine;
use super::control::Credit;

impl Machine {
    /// Learns how much of its messages a peer has taken.
    #[inline]
    pub(super) fn accept_credit(&mut self, peer: usize, credit: Credit) {
        let state = &mut self.peers[peer];
        let more = credit.since(state.returned);
        // Messages may overtake each other, so that an older count comes later.
        if more.messages != 0 && (more.messages as i32) > 0 && (more.units as i32) >= 0 {
            state.returned = credit;
            if !state.backlog.is_empty() {
                self.launch_more(peer);
            }
        }
    }

    /// The credit for a message to a peer, which knows it then.
    #[inline]
    pub(super) fn attach_credit(&mut self, peer: usize) -> Credit {
        let window = self.window.messages;
        let state = &mut self.peers[peer];
        (state.reported, state.due) = (state.consumed, false);
        if state.heard.wrapping_sub(state.reported.messages) <= window / 2 {
            state.short = false;
        }
        state.reported
    }

    /// A message of a peer has left this rank's memory for unexpected ones.
    #[inline]
    pub(super) fn consume(&mut self, peer: usize, units: u32) {
        let window = self.window;
        let state = &mut self.peers[peer];
        state.consumed.messages = state.consumed.messages.wrapping_add(1);
        state.consumed.units = state.consumed.units.wrapping_add(units);
        let untold = state.consumed.since(state.reported);
        if state.short || untold.messages >= window.messages / 2 || untold.units >= window.units / 2 {
            state.due = true;
            self.mark_ready(peer);
        }
    }
}
