//! Lost peers and freed communicators: what ends then, and how.

use super::advance::Item;
use super::chains::{ANY, Selector};
use super::control::Control;
use super::receive::Stage;
use super::unexpected::Content;
use super::{Failure, Machine};
use crate::error::{AskedBytes, MessageError};
use am_core::LossCause;
use am_core::slab::Key;

impl Machine {
    /// A peer is lost, or has finished. All that it sent before has been looked at.
    pub(crate) fn lose(&mut self, rank: u32, cause: Option<LossCause>) {
        self.post_direct();
        self.post_line();
        let (peer, failure) = (self.peer(rank), Failure::Gone(cause));
        let state = &mut self.peers[peer];
        if state.gone.is_some() {
            return;
        }
        state.gone = Some(failure);
        self.endings += 1;
        // Where the peer was to write messages that it has not been told so.
        let untold = state.queue.drain(..).filter_map(|item| match item {
            Item::Control(Control::Cts { receive, .. }) => Some(receive),
            _ => None,
        });
        let untold: Vec<Key> = untold.collect();
        state.backlog.clear();
        (state.advertised, state.answers) = (0, 0);
        for pair in self.pairs.iter_mut().filter(|pair| pair.peer as usize == peer) {
            pair.out_of_order.clear();
            pair.adverts.clear();
            pair.cancels.clear();
            pair.log.clear();
            pair.revoking = None;
        }
        let sends: Vec<Key> = self.sends.iter().filter(|(_, send)| send.to == rank).map(|(key, _)| key).collect();
        for key in sends {
            if !self.is_sent(key) {
                self.sends.get_mut(key).expect("it was found").failure = Some(failure);
                self.sent(key);
            }
        }
        let of = |receive: &super::receive::Receive| match receive.stage {
            Stage::Posted => receive.selector.source == rank,
            Stage::Moving | Stage::Retiring => receive.from == rank,
            Stage::Done | Stage::Cancelled => false,
        };
        let receives: Vec<Key> =
            self.receives.iter().filter(|(_, receive)| of(receive)).map(|(key, _)| key).collect();
        receives.into_iter().for_each(|key| self.fail_receive(key, failure, !untold.contains(&key)));
        let offered = self
            .stored
            .iter()
            .filter(|(_, waiting)| waiting.from == rank && matches!(waiting.content, Content::Offered(_)));
        let offered: Vec<Key> = offered.map(|(key, _)| key).collect();
        for key in offered {
            self.forget_stored(key);
        }
        self.release_deferred();
    }

    fn forget_stored(&mut self, key: Key) {
        self.withdraw(key);
        self.stored.remove(key);
    }

    /// Ends a receive of a peer that is gone without its message. `told` if the peer may know where that goes.
    fn fail_receive(&mut self, key: Key, failure: Failure, told: bool) {
        let Some(receive) = self.receives.get(key) else { return };
        let (posted, retiring) = (receive.stage == Stage::Posted, receive.stage == Stage::Retiring);
        if posted {
            #[cfg(test)]
            self.history.push(super::model::Event::Cancelled(self.name_of(key)));
            self.unlink(key);
        }
        // A message that is here stays.
        if !retiring {
            let receive = self.receive_mut(key);
            receive.failure.get_or_insert(failure);
            receive.take_lent();
            // What the peer has sent there may come later than the news of its loss, unless all of it, or of what
            // was asked for, has come.
            let asked = receive.reading().is_none_or(|reading| reading.under_way != 0);
            let more = told && asked && (posted || receive.arrived() < receive.len);
            let (from, block) =
                (if posted { receive.selector.source } else { receive.from }, receive.take_staged());
            match block {
                Some(block) if more => self.withheld.push((from, block)),
                block => block.into_iter().for_each(|block| self.staging.give_back(block)),
            }
        }
        self.finish(key);
    }

    /// Gives back what was withheld for ranks that write no more, as `silent` says of each.
    #[cold]
    pub(crate) fn release_withheld(&mut self, mut silent: impl FnMut(u32) -> bool) {
        let Self { withheld, staging, .. } = self;
        withheld.retain(|(rank, block)| {
            let over = silent(*rank);
            if over {
                staging.give_back(*block);
            }
            !over
        });
    }

    /// Whether memory is withheld for lost ranks.
    pub(crate) fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// How a peer has ended, if it is lost or has finished.
    pub(crate) fn gone(&self, rank: u32) -> Option<Failure> {
        self.peer_of.get(&rank).and_then(|peer| self.peers[*peer as usize].gone)
    }

    /// The error of a message of a peer that is gone, or whose communicator was freed.
    pub(crate) fn why_gone(&self, rank: u32, tag: u32, bytes: AskedBytes) -> MessageError {
        match self.gone(rank) {
            Some(Failure::Gone(cause)) => MessageError::gone(rank, tag, bytes, cause),
            _ => MessageError::freed(rank, tag, bytes),
        }
    }

    /// Whether a communicator was freed.
    #[inline]
    pub(crate) fn is_closed(&self, context: u32) -> bool {
        self.endings != 0 && self.is_freed(context)
    }

    /// Frees a communicator: receives fail, messages that nobody asked for go, and later ones with them.
    pub(crate) fn close(&mut self, context: u32) {
        self.post_direct();
        self.post_line();
        let index = self.context(context);
        self.contexts[index].freed = true;
        self.endings += 1;
        self.contexts[index].deferred.clear();
        let posted = self
            .receives
            .iter()
            .filter(|(_, receive)| receive.selector.context == context && receive.stage == Stage::Posted);
        let posted: Vec<Key> = posted.map(|(key, _)| key).collect();
        for key in posted {
            // Where senders know of it, or of one behind it, they may write until they are told.
            self.receive_mut(key).failure = Some(Failure::Freed);
            self.cancel(key);
        }
        while let Some(key) = self.unexpected.first(Selector { context, source: ANY, tag: ANY }) {
            self.withdraw(key);
            self.discard_stored(key, true);
        }
        self.unblocked = None;
    }
}
