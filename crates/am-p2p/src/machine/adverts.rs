//! Receives that are advertised to their senders, and receives that are cancelled.

use super::Machine;
use super::control::Control;
use super::peers::Advert;
use super::receiving::Stage;
use super::sending::{Grant, Stage as Sending};
use am_core::slab::Key;

/// Receives that are advertised to a peer at most.
const ADVERTS: u32 = 16;

/// Receives of the same sender and tag that may come before an advertised one.
const DEEPEST: u32 = 16;

/// MessageInfo asking to cancel a receive has come to.
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

    /// Advertises a receive, now or once no wildcard is posted.
    pub(super) fn advertise(&mut self, key: Key) {
        let Some(receive) = self.receives.get(key) else { return };
        let (selector, capacity) = (receive.selector, receive.capacity);
        if receive.stage != Stage::Posted || receive.advertised {
            return;
        }
        let pair = self.pair(selector.context, selector.source);
        let (peer, context) = (self.pairs[pair].peer as usize, self.context(selector.context));
        if self.contexts[context].wildcards != 0 || self.pairs[pair].revoking {
            self.contexts[context].deferred.push(key);
            return;
        }
        if self.peers[peer].adverts >= ADVERTS || self.peers[peer].gone.is_some() {
            return;
        }
        let Some(place) = self.place(key) else { return };
        let Some(block) = self.staging.take(capacity) else { return };
        let receive = self.receive_mut(key);
        (receive.staged, receive.advertised) = (Some(block), true);
        self.peers[peer].adverts += 1;
        self.counts.rtr += 1;
        let seen = self.pairs[pair].expected;
        let (context, tag, offset) = (selector.context, selector.tag, block.offset);
        self.queue_control(peer, Control::Rtr { context, tag, seen, place, receive: key, capacity, offset });
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
        let unseen = self.pairs[pair].log.iter();
        let unseen = unseen.filter(|sent| sent.tag == tag && sent.sequence.wrapping_sub(seen) as i32 >= 0);
        let at = unseen.clone().nth(place as usize).and_then(|sent| sent.send);
        (unseen.count() as u32, at)
    }

    pub(super) fn on_rtr(&mut self, from: u32, (context, tag, seen): (u32, u32, u32), mut advert: Advert) {
        let pair = self.pair(context, from);
        let (unseen, at) = self.unseen(pair, tag, seen, advert.before);
        if unseen <= advert.before {
            advert.before -= unseen;
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
            let Advert { receive, offset, .. } = advert;
            self.grant(key, Grant { receive, offset: Some(offset), unknown: false });
        }
    }

    pub(super) fn on_revoke(
        &mut self,
        from: u32,
        (context, tag, seen): (u32, u32, u32),
        place: u32,
        receive: Key,
    ) {
        let pair = self.pair(context, from);
        let (unseen, _) = self.unseen(pair, tag, seen, place);
        let done = unseen <= place;
        if done {
            let place = place - unseen;
            let adverts = &mut self.pairs[pair].adverts;
            adverts.retain(|advert| advert.receive != receive);
            let behind = adverts.iter_mut().filter(|advert| advert.tag == tag && advert.before > place);
            behind.for_each(|advert| advert.before -= 1);
        }
        self.counts.revocations += 1;
        let peer = self.pairs[pair].peer as usize;
        self.queue_control(peer, Control::Revoked { context, receive, done });
    }

    pub(super) fn on_revoked(&mut self, from: u32, context: u32, key: Key, done: bool) {
        let pair = self.pair(context, from);
        if !self.pairs[pair].revoking {
            self.ignore();
            return;
        }
        // It may have met its message meanwhile, and be gone.
        if let Some(receive) = self.receives.get_mut(key).filter(|receive| receive.cancelling) {
            receive.cancelling = false;
            if done && receive.stage == Stage::Posted {
                self.cancel_now(key);
            }
        }
        self.revoked(context, from);
    }

    /// The revocation of a pair is over: the next one follows, and what waited for it is advertised.
    fn revoked(&mut self, context: u32, from: u32) {
        let pair = self.pair(context, from);
        self.pairs[pair].revoking = false;
        while let Some(next) = self.pairs[pair].cancels.pop_front() {
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
        self.counts.revocations += 1;
        self.queue_control(peer, Control::Retired { receive });
    }

    pub(super) fn on_retired(&mut self, from: u32, key: Key) {
        match self.receives.get(key).filter(|receive| receive.from == from && receive.stage == Stage::Retiring) {
            Some(_) => self.finish(key),
            None => self.ignore(),
        }
    }

    fn cancel_now(&mut self, key: Key) {
        self.unlink(key);
        #[cfg(test)]
        self.history.push(super::model::Event::Cancelled(key));
        let receive = self.receive_mut(key);
        let (block, wanted) = (receive.staged.take(), receive.wanted);
        receive.stage = Stage::Cancelled;
        block.into_iter().for_each(|block| self.staging.give_back(block));
        if !wanted {
            self.discard(key);
        }
    }

    /// Asks for a receive to be cancelled. It is not if it has met a message, which may be under way.
    pub(crate) fn cancel(&mut self, key: Key) -> Cancel {
        let Some(receive) = self.receives.get(key) else { return Cancel::Late };
        if receive.stage != Stage::Posted {
            return Cancel::Late;
        }
        let selector = receive.selector;
        // Those behind it are for one message sooner then, which their sender has to know.
        let known = selector.class() == 0 && self.advertises() && {
            let from_here = self.posted.iter(selector).skip_while(|other| *other != key);
            from_here.filter_map(|other| self.receives.get(other)).any(|other| other.advertised)
        };
        if !known {
            self.cancel_now(key);
            self.release_deferred();
            return Cancel::Done;
        }
        let pair = self.pair(selector.context, selector.source);
        self.receive_mut(key).cancelling = true;
        if self.pairs[pair].revoking {
            self.pairs[pair].cancels.push_back(key);
            return Cancel::Asked;
        }
        // Advertised receives are never deeper than is looked for, but what is cancelled may be before one of these.
        let place = self.posted.iter(selector).position(|other| other == key).expect("it is posted") as u32;
        self.pairs[pair].revoking = true;
        let (seen, peer) = (self.pairs[pair].expected, self.pairs[pair].peer as usize);
        self.counts.revocations += 1;
        let (context, tag) = (selector.context, selector.tag);
        self.queue_control(peer, Control::Revoke { context, tag, seen, place, receive: key });
        Cancel::Asked
    }

    /// Whether a receive's sender is being asked to cancel it.
    pub(crate) fn is_cancelling(&self, key: Key) -> bool {
        self.receives.get(key).is_some_and(|receive| receive.cancelling)
    }

    /// Whether a receive was cancelled.
    pub(crate) fn is_cancelled(&self, key: Key) -> bool {
        self.receives.get(key).is_some_and(|receive| receive.stage == Stage::Cancelled)
    }

    /// Nobody waits for a receive any more: it is cancelled, or its message is let go.
    pub(crate) fn drop_receive(&mut self, key: Key) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        receive.wanted = false;
        let (stage, cancelling) = (receive.stage, receive.cancelling);
        match stage {
            Stage::Posted if !cancelling => {
                self.cancel(key);
            }
            Stage::Posted | Stage::Moving | Stage::Retiring => {}
            Stage::Done | Stage::Cancelled => self.discard(key),
        }
    }
}
