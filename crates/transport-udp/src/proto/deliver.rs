//! Takes whole messages out for the core, and carries the answers back.

use super::Machine;
use super::batch::{Access, Batch, Outcome, PAYLOADS, TURN};
use super::context::{BULK, IN};
use super::message::{Kind, MAX_HEADER, Message, cost_of};
use super::session::{Ahead, Fault};
use am_core::arguments::Words;
use am_core::transport::{Category, NullReplyPath, PendingKey, ReplyBound, ReplyPath, Sink};
use am_core::{Instant, Peer};

/// A machine that nobody else can be at.
pub(crate) struct Direct<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) now: Instant,
}

impl Access for Direct<'_> {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> Option<R> {
        Some(work(self.machine, self.now))
    }
}

impl Machine {
    /// What messages of this machine are delivered in.
    pub(crate) fn new_batch(&self) -> Batch {
        Batch::new(self.shared.segment.clone(), self.shared.config.medium as usize)
    }

    /// Delivers at most `budget` arrived messages to the sink, and returns how many. Replies of a peer come before
    /// its requests; peers take turns.
    ///
    /// A request whose reply might not fit its peer's share of the reply budget waits; that room comes back as the
    /// peer's machine acknowledges earlier replies, whatever its application does.
    pub fn poll<S: Sink>(&mut self, now: Instant, budget: usize, sink: &mut S) -> usize {
        // Lost with a handler that unwinds, and made anew.
        let mut batch = self.batch.take().unwrap_or_else(|| Box::new(self.new_batch()));
        let mut count = 0;
        self.release_held(now);
        while count < budget && self.take_batch(now, budget - count, &mut batch) {
            count += batch.deliver(sink, &mut Direct { machine: self, now });
            self.settle(now, &mut batch);
        }
        self.batch = Some(batch);
        count
    }

    /// Copies messages of the next peer that has some into the batch, at most `most`. Returns whether there are
    /// any. The batch before it is [settled](Machine::settle).
    pub(crate) fn take_batch(&mut self, now: Instant, most: usize, batch: &mut Batch) -> bool {
        let mut fruitless = 0;
        while fruitless < self.arrived.len() {
            let Some(peer) = self.arrived.pop_front() else { break };
            // Back in the line until nothing is left in its lanes, so that neither a handler that unwinds nor a
            // batch that ends early loses the peer its place.
            self.arrived.push_back(peer);
            let ended = self.slots[peer as usize].ended.is_some();
            // What comes after a farewell is nobody's.
            let stays = !ended
                && match self.fill(Peer(peer), most.min(TURN), batch) {
                    Ok(_) if batch.len > 0 => return true,
                    Ok(stays) => stays,
                    Err(Fault) => {
                        self.lose_faulty(Peer(peer), now);
                        false
                    }
                };
            // Only peers that stay in the line count, or those behind the others would be missed.
            fruitless += usize::from(stays);
            if !stays {
                self.arrived.pop_back();
                self.slots[peer as usize].arrived = false;
                self.note_departure(Peer(peer), now);
                if !ended && self.slots[peer as usize].ended.is_some() {
                    // What it gives back may be room that others wait for.
                    fruitless = 0;
                }
            }
        }
        false
    }

    /// Copies messages of a peer. Returns whether there are more that have to wait.
    fn fill(&mut self, peer: Peer, most: usize, batch: &mut Batch) -> Result<bool, Fault> {
        let Self { slots, shared, .. } = self;
        batch.len = 0;
        let session = slots[peer.index()].session.as_deref();
        let Some(session) = session.filter(|session| !session.is_empty()) else { return Ok(false) };
        batch.begin(peer, session.mine, session.peer_segment);
        let mut ahead = Ahead::default();
        while batch.len < most {
            let entry = &mut batch.entries[batch.len];
            let front = match session.front(shared, 1, &ahead, entry) {
                Ok(false) => session.front(shared, 0, &ahead, entry),
                front => front,
            };
            match front {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                // It is found again once what stands before it has been delivered.
                Err(Fault) if batch.len > 0 => return Ok(true),
                Err(Fault) => return Err(Fault),
            }
            let (cost, payload, lane) = (cost_of(entry.message.room), entry.message.payload(), entry.lane);
            if lane == 0 && !session.may_reply(shared, ahead.owed, cost) {
                return Ok(true);
            }
            if payload > 0 {
                let len = payload as usize;
                if batch.len > 0 && batch.filled + len > PAYLOADS {
                    return Ok(true);
                }
                (entry.payload, ahead.bytes[lane]) = (batch.filled, ahead.bytes[lane] + entry.len);
                let incoming = &session.traffic.incoming[lane].fifo;
                let from = incoming.start() + ahead.bytes[lane] - payload;
                incoming.read(&shared.pools[IN + lane], from, batch.space(len));
            } else {
                (entry.payload, ahead.bytes[lane]) = (0, ahead.bytes[lane] + entry.len);
            }
            batch.len += 1;
            *(if lane == 0 { &mut ahead.owed } else { &mut ahead.set_aside }) += cost;
        }
        Ok(true)
    }

    /// Takes note of what has become of a batch: what was delivered leaves its lanes, and its replies and credits
    /// may be sent. Nothing happens if the session is over.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, batch: &mut Batch) {
        self.settle_outcome(now, &mut batch.outcome);
    }

    pub(super) fn settle_outcome(&mut self, now: Instant, outcome: &mut Outcome) {
        if outcome.is_empty() {
            return;
        }
        let peer = outcome.peer;
        let Self { slots, shared, .. } = self;
        let session = slots[peer.index()].session.as_deref_mut();
        let settled = session
            .filter(|session| session.mine == outcome.session)
            .map(|session| session.settle(shared, now, outcome));
        outcome.clear();
        match settled {
            Some(Ok(())) => {
                self.make_ready(peer);
                self.lend(now);
            }
            Some(Err(Fault)) => self.lose_faulty(peer, now),
            None => {}
        }
    }

    /// Appends a Long reply to the request that is being handled; everything before it is settled. Returns whether
    /// further requests of the peer have to wait. Nothing happens if the session is over.
    pub(super) fn reply_long(
        &mut self,
        outcome: &Outcome,
        room: u64,
        handler: u8,
        args: &Words,
        payload: &[u8],
        at: u64,
    ) -> bool {
        let Self { slots, shared, .. } = self;
        let session = slots[outcome.peer.index()].session.as_deref_mut();
        let Some(session) = session.filter(|session| session.mine == outcome.session) else { return true };
        let bulk = &mut session.traffic.bulk_out[1];
        let len = payload.len() as u64;
        let end = bulk.begin(len, at);
        bulk.push(&mut shared.pools[BULK], payload);
        let message = Message { kind: Kind::Long { len, at, end }, handler, room };
        session.append(shared, 1, &message, args, &[]);
        let full = !session.may_reply_long(shared);
        self.make_ready(outcome.peer);
        full
    }

    /// Makes the batch ready for the answer to a detached request, and returns the room of its reply; `None` if
    /// the session of that request is over.
    pub(crate) fn open_answer(&self, key: PendingKey, batch: &mut Batch) -> Option<u64> {
        let session = self.session(key.to)?;
        let room = session.mine ^ key.tag;
        batch.begin(key.to, session.mine, session.peer_segment);
        (room <= u64::from(self.shared.config.medium) + 1).then_some(room)
    }

    /// Where an answer goes when the session of its request is over.
    pub(crate) fn no_port(&self, key: PendingKey) -> NullReplyPath {
        NullReplyPath::new(self.shared.config.medium as usize, u64::MAX, key)
    }

    /// Opens the way back of a detached request once more; a way left unused becomes a bare credit. If the session
    /// of that request is over, every reply is refused.
    pub fn answer<R>(&mut self, now: Instant, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let mut batch = self.batch.take().unwrap_or_else(|| Box::new(self.new_batch()));
        let result = match self.open_answer(key, &mut batch) {
            Some(room) => batch.answer(room, &mut Direct { machine: self, now }, reply),
            None => reply(&mut self.no_port(key)),
        };
        self.settle(now, &mut batch);
        self.batch = Some(batch);
        result
    }
}

/// Bytes that a request takes of the lane at most.
pub(super) fn length(message: &Message, payload: usize) -> u64 {
    MAX_HEADER as u64 + if message.category() == Category::Medium { payload as u64 } else { 0 }
}

/// A reply bound that fits the settings.
pub(super) fn clip(bound: ReplyBound, medium: u32) -> ReplyBound {
    match bound {
        ReplyBound::UpTo(bytes) => ReplyBound::UpTo(bytes.min(medium)),
        ReplyBound::None => ReplyBound::None,
    }
}
