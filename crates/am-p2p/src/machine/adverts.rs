//! Receives that are advertised to their senders, and receives that are cancelled.

use super::advance::Item;
use super::chains::Selector;
use super::control::Control;
use super::peers::{Advert, Pair};
use super::receive::{Receive, Stage};
use super::sending::{Grant, Stage as Sending};
use super::{LARGEST_TAG, Machine};
use am_core::slab::Key;

/// Receives that are advertised to a peer at most.
pub(super) const ADVERTS: u32 = 16;

/// Receives of the same sender and tag that may come before an advertised one.
const DEEPEST: u32 = 16;

/// What asking to cancel a receive has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// It is cancelled.
    Done,
    /// Its sender is asked.
    Asked,
    /// It has met a message, or was over.
    Late,
}

impl Machine {
    /// How many receives with the same sender and tag come before a posted one, as far as that is looked for.
    fn place(&self, key: Key) -> Option<u32> {
        let selector = self.receives.get(key)?.selector;
        let before = self.posted.iter(selector).take(DEEPEST as usize + 1).position(|other| other == key);
        before.map(|before| before as u32)
    }

    /// Has a receive advertised once it is its turn to be sent, or no wildcard is posted.
    pub(super) fn advertise(&mut self, key: Key) {
        let Some(receive) = self.receives.get(key) else { return };
        if receive.stage != Stage::Posted || receive.advertised {
            return;
        }
        let selector = receive.selector;
        let pair = self.pair(selector.context, selector.source);
        let (peer, context) = (self.pairs[pair].peer as usize, self.context(selector.context));
        let into_segment = self.receive_mut(key).has_own();
        if self.reads(peer) && !into_segment {
            // Its message is read, or its sender hears where to write it: where it lies in a segment, one copy is
            // enough.
        } else if self.contexts[context].wildcards != 0 || self.pairs[pair].revoking.is_some() {
            self.defer(context, key);
        } else if self.peers[peer].adverts < ADVERTS && self.peers[peer].gone.is_none() {
            self.peers[peer].queue.push_back(Item::Advertise(key));
            self.mark_ready(peer);
        }
    }

    /// Notes a receive that may be advertised later.
    fn defer(&mut self, context: usize, key: Key) {
        let Self { contexts, receives, .. } = self;
        let deferred = &mut contexts[context].deferred;
        if deferred.len() == deferred.capacity() {
            // Those that have met their messages meanwhile need no room.
            deferred.retain(|key| receives.get(*key).is_some_and(|receive| receive.stage == Stage::Posted));
        }
        deferred.push(key);
    }

    /// What advertises a receive now, which takes the memory for it; `None` if it is not to be advertised any
    /// more, or not yet. Made at the moment of sending: what it says is counted from the messages that have come
    /// by then.
    pub(super) fn advertisement(&mut self, key: Key) -> Option<Control> {
        let receive = self.receives.get(key)?;
        let (selector, capacity) = (receive.selector, receive.capacity);
        if receive.stage != Stage::Posted || receive.advertised || receive.cancelling {
            return None;
        }
        let pair = self.pair(selector.context, selector.source);
        let (peer, context) = (self.pairs[pair].peer as usize, self.context(selector.context));
        if self.contexts[context].wildcards != 0 || self.pairs[pair].revoking.is_some() {
            self.defer(context, key);
            return None;
        }
        if self.peers[peer].adverts >= ADVERTS {
            return None;
        }
        let place = self.place(key)?;
        let own = self.receive_mut(key).own(capacity);
        let block = match own {
            Some(own) => own,
            None => self.staging.take(capacity)?,
        };
        let receive = self.receive_mut(key);
        (receive.transfer().staged, receive.advertised) = (Some(block), true);
        self.peers[peer].adverts += 1;
        let (seen, offset, stays) = (self.pairs[pair].expected, block.offset, own.is_some());
        let Selector { context, tag, .. } = selector;
        Some(Control::Rtr { context, tag, seen, place, receive: key, capacity, offset, stays, copies: false })
    }

    /// Takes back an advertisement that could not be sent.
    pub(super) fn withdraw_advertisement(&mut self, key: Key) {
        let receive = self.receive_mut(key);
        let source = receive.selector.source;
        receive.advertised = false;
        let block = receive.take_staged();
        block.into_iter().for_each(|block| self.staging.give_back(block));
        let peer = self.peer(source);
        self.peers[peer].adverts -= 1;
    }

    /// The advertised receive that the next message with a tag to a peer is for.
    #[inline(always)]
    pub(super) fn take_advert(&mut self, pair: usize, tag: u32) -> Option<Advert> {
        if self.pairs[pair].adverts.is_empty() { None } else { self.take_one_advert(pair, tag) }
    }

    #[inline(never)]
    fn take_one_advert(&mut self, pair: usize, tag: u32) -> Option<Advert> {
        let peer = self.pairs[pair].peer as usize;
        let taken = self.pairs[pair].take_advert(tag);
        self.peers[peer].advertised -= u32::from(taken.is_some());
        taken
    }

    /// Advertises what waited for the last wildcard of a communicator.
    #[cold]
    pub(super) fn release_deferred(&mut self) {
        let Some(context) = self.unblocked.take() else { return };
        let index = self.context(context);
        let deferred = std::mem::take(&mut self.contexts[index].deferred);
        deferred.into_iter().for_each(|key| self.advertise(key));
    }

    /// The messages with a tag that a receiver had not seen: how many, and the one at a place among them.
    fn unseen(&self, pair: usize, tag: u32, seen: u32, place: u32) -> (u32, Option<Key>) {
        let Pair { log, next, .. } = &self.pairs[pair];
        // Of those that are there, which a faulty peer may count wrongly.
        let unseen = log.since(seen, *next).filter(|sent| sent.tag == tag);
        let at = unseen.clone().nth(place as usize).and_then(|sent| sent.send);
        (unseen.count() as u32, at)
    }

    pub(super) fn on_rtr(&mut self, from: u32, (context, tag, seen): (u32, u32, u32), mut advert: Advert) {
        let Some(pair) = self.pair_of_arrival(context, from) else { return };
        let peer = self.pairs[pair].peer as usize;
        if tag > LARGEST_TAG || self.peers[peer].advertised >= ADVERTS {
            return self.fault(from);
        }
        let (unseen, at) = self.unseen(pair, tag, seen, advert.before);
        if unseen <= advert.before {
            advert.before -= unseen;
            self.peers[peer].advertised += 1;
            self.pairs[pair].adverts.push(advert);
            return;
        }
        // A message that was announced meanwhile is for this receive; one that went eagerly needs it no more.
        let announced = at.filter(|key| {
            let send = self.sends.get(*key);
            send.is_some_and(|send| send.stage == Sending::Offered && send.len <= advert.capacity)
        });
        if let Some(key) = announced {
            self.counts.crossing += 1;
            let Advert { receive, offset, stays, .. } = advert;
            self.grant(key, Grant { receive, offset: Some(offset), stays, unknown: false });
        }
    }

    pub(super) fn on_revoke(
        &mut self,
        from: u32,
        (context, tag, seen): (u32, u32, u32),
        place: u32,
        receive: Key,
    ) {
        let Some(pair) = self.pair_of_arrival(context, from) else { return };
        let (unseen, _) = self.unseen(pair, tag, seen, place);
        let (peer, done) = (self.pairs[pair].peer as usize, unseen <= place);
        if done {
            let place = place - unseen;
            let adverts = &mut self.pairs[pair].adverts;
            let before = adverts.len();
            adverts.retain(|advert| advert.receive != receive);
            self.peers[peer].advertised -= (before - adverts.len()) as u32;
            let behind = adverts.iter_mut().filter(|advert| advert.tag == tag && advert.before > place);
            behind.for_each(|advert| advert.before -= 1);
        }
        self.answer(peer, Control::Revoked { context, receive, done });
    }

    pub(super) fn on_revoked(&mut self, from: u32, context: u32, key: Key, done: bool) {
        let Some(pair) = self.pair_of_arrival(context, from) else { return };
        if self.pairs[pair].revoking != Some(key) {
            return self.fault(from);
        }
        // It may have met its message meanwhile, and be gone.
        if self.cancelling(key).is_some() {
            self.receive_mut(key).cancelling = false;
            if done {
                self.cancel_now(key);
            }
        }
        self.revoked(pair, context);
    }

    /// What revokes a receive now; `None` if it is over without: it has met its message, or is cancelled since its
    /// sender has not been told of it nor of one behind it. Made at the moment of sending, as
    /// [`Machine::advertisement`] is.
    pub(super) fn revocation(&mut self, pair: usize, context: u32, key: Key) -> Option<Control> {
        if let Some(selector) = self.cancelling(key) {
            if self.is_known(key) {
                // Advertised receives are never deeper than is looked for, but what is cancelled may be before one
                // of these.
                let place = self.posted.iter(selector).position(|other| other == key);
                let place = place.expect("it is posted") as u32;
                let (tag, seen) = (selector.tag, self.pairs[pair].expected);
                return Some(Control::Revoke { context, tag, seen, place, receive: key });
            }
            self.cancel_now(key);
        }
        self.revoked(pair, context);
        None
    }

    /// The selector of a receive that is to be revoked, and has met no message yet.
    fn cancelling(&self, key: Key) -> Option<Selector> {
        let receive = self.receives.get(key)?;
        (receive.stage == Stage::Posted && receive.cancelling).then_some(receive.selector)
    }

    /// The revocation of a pair is over: the next one follows, and what waited for it is advertised.
    fn revoked(&mut self, pair: usize, context: u32) {
        self.pairs[pair].revoking = None;
        while let Some(next) = self.pairs[pair].cancels.pop_front() {
            if self.cancelling(next).is_none() {
                continue;
            }
            self.receive_mut(next).cancelling = false;
            if self.cancel(next) == Cancel::Asked {
                return;
            }
        }
        self.unblocked = Some(context);
        self.release_deferred();
    }

    pub(super) fn on_retire(&mut self, from: u32, receive: Key) {
        // It has been, by the number of the eager message.
        let peer = self.peer(from);
        self.answer(peer, Control::Retired { receive });
    }

    pub(super) fn on_retired(&mut self, from: u32, key: Key) {
        match self.receives.get(key).filter(|receive| receive.from == from && receive.stage == Stage::Retiring) {
            Some(_) => {
                let peer = self.peer(from);
                self.peers[peer].adverts -= 1;
                self.finish(key);
            }
            None => self.ignore(),
        }
    }

    fn cancel_now(&mut self, key: Key) {
        self.unlink(key);
        #[cfg(test)]
        self.history.push(super::model::Event::Cancelled(self.name_of(key)));
        let receive = self.receive_mut(key);
        let (block, wanted) = (receive.take_staged(), receive.wanted);
        receive.stage = Stage::Cancelled;
        block.into_iter().for_each(|block| self.staging.give_back(block));
        if !wanted {
            self.discard(key);
        }
    }

    /// Asks for a receive to be cancelled. It is not if it has met a message, which may be under way.
    pub(crate) fn cancel(&mut self, key: Key) -> Cancel {
        if self.is_over_in_line(key) == Some(false) {
            self.post_line();
        }
        let key = self.posted_of(key);
        let Some(receive) = self.receives.get(key) else { return Cancel::Late };
        if receive.stage != Stage::Posted {
            return Cancel::Late;
        }
        if receive.cancelling {
            return Cancel::Asked;
        }
        let selector = receive.selector;
        if !self.is_known(key) {
            self.cancel_now(key);
            self.release_deferred();
            return Cancel::Done;
        }
        let pair = self.pair(selector.context, selector.source);
        self.receive_mut(key).cancelling = true;
        if self.pairs[pair].revoking.is_some() {
            self.pairs[pair].cancels.push_back(key);
            return Cancel::Asked;
        }
        self.pairs[pair].revoking = Some(key);
        let peer = self.pairs[pair].peer as usize;
        self.peers[peer].queue.push_back(Item::Revoke(selector.context, key));
        self.mark_ready(peer);
        Cancel::Asked
    }

    /// Whether a receive's sender knows of it or of one behind it, which is for one message sooner once this is
    /// cancelled.
    fn is_known(&self, key: Key) -> bool {
        let Some(Receive { selector, .. }) = self.receives.get(key) else { return false };
        selector.class() == 0 && self.advertises() && {
            let from_here = self.posted.iter(*selector).skip_while(|other| *other != key);
            from_here.filter_map(|other| self.receives.get(other)).any(|other| other.advertised)
        }
    }

    /// Whether a receive's sender is being asked to cancel it.
    pub(crate) fn is_cancelling(&self, key: Key) -> bool {
        self.receives.get(self.posted_of(key)).is_some_and(|receive| receive.cancelling)
    }

    /// Whether a receive was cancelled.
    pub(crate) fn is_cancelled(&self, key: Key) -> bool {
        self.receives.get(self.posted_of(key)).is_some_and(|receive| receive.stage == Stage::Cancelled)
    }

    /// Nobody waits for a receive any more: it is cancelled, or its message is let go.
    pub(crate) fn drop_receive(&mut self, key: Key) {
        if self.drop_from_line(key) {
            return;
        }
        let key = self.leave_line(key);
        let Some(receive) = self.receives.get_mut(key) else { return };
        receive.wanted = false;
        let (stage, cancelling) = (receive.stage, receive.cancelling);
        match stage {
            Stage::Posted if !cancelling => {
                self.cancel(key);
            }
            Stage::Moving if self.leave_unread(key) => {}
            Stage::Posted | Stage::Moving | Stage::Retiring => {}
            Stage::Done | Stage::Cancelled => self.discard(key),
        }
    }
}
