//! Messages between a machine and their handlers, which run without the machine: whole messages of one peer,
//! copied out of its lanes, and what their handlers have made of them so far.
//!
//! [`Machine::take_batch`] fills a batch, [`Batch::deliver`] hands it to the core, and [`Machine::settle`] tells
//! the machine. A lane moves on only when that is told, so a message that was copied and not delivered is still
//! there.

use super::message::{Kind, MAX_HEADER, Message, cost_of};
use super::{Machine, OwnSegment};
use am_core::arguments::Words;
use am_core::transport::{Arrival, Body, PendingKey, ReplyPath, ReplyPathGone, Sink};
use am_core::{Instant, Payload, Peer};

/// Messages of one peer in a row, before others get their turn.
pub(super) const TURN: usize = 32;

/// Bytes of payloads that a batch of several messages holds at most, so that handlers find them in the cache.
pub(super) const PAYLOADS: usize = 8 << 10;

/// Bytes of replies that wait for the machine before it is told of them, except for the last.
const REPLIES: usize = 8 << 10;

/// How handlers reach the machine that their messages came from.
pub(crate) trait Access {
    /// Works on the machine; `None` if this process may use it no more.
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> Option<R>;

    /// Whether this process may use it still. Asked after every handler, so it has to be cheap.
    fn is_usable(&self) -> bool {
        true
    }
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) message: Message,
    pub(super) words: Words,
    pub(super) lane: usize,
    /// Bytes that it takes of its lane.
    pub(super) len: u64,
    /// Where its payload begins among those of the batch.
    pub(super) payload: usize,
}

impl Entry {
    const NONE: Self = Self {
        message: Message { kind: Kind::Short, handler: 0, room: 0 },
        words: Words::EMPTY,
        lane: 0,
        len: 0,
        payload: 0,
    };

    /// Reads a whole Short request without a reply from the front of its lane; returns whether there was one. What
    /// floods consist of has a way of its own here, since all others are handed on through memory.
    #[inline]
    pub(super) fn parse_plain(&mut self, bytes: &[u8]) -> bool {
        let Some((handler, len)) = Message::parse_plain(bytes, &mut self.words) else { return false };
        self.message = Message { kind: Kind::Short, handler, room: 0 };
        (self.lane, self.len) = (0, len as u64);
        true
    }

    /// Reads a whole Short message from the front of a lane; returns whether there was one.
    #[inline]
    pub(super) fn parse_short(&mut self, bytes: &[u8], lane: usize) -> bool {
        let Some((handler, room, len)) = Message::parse_short(bytes, &mut self.words) else { return false };
        self.message = Message { kind: Kind::Short, handler, room };
        (self.lane, self.len) = (lane, len as u64);
        true
    }
}

/// What handlers have done that the machine does not know yet.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) peer: Peer,
    /// Names the session.
    pub(super) session: u64,
    peer_segment: u64,
    /// Bytes of delivered messages in the lanes, and room that their replies had taken here.
    pub(super) consumed: [u64; 2],
    pub(super) set_aside: u64,
    /// Replies without Long payloads, as they stand in the lane, and how many bytes of this are in use.
    replies: Box<[u8]>,
    replied: usize,
    /// Requests that ended without a reply, and the room of their replies.
    pub(super) bare: u64,
    pub(super) bare_bytes: u64,
    /// Room of the replies to requests that were detached; and of earlier ones that have ended.
    pub(super) detached: u64,
    pub(super) answered: u64,
    /// A Medium reply while it is being filled.
    scratch: Vec<u8>,
}

impl Outcome {
    /// The replies.
    pub(super) fn replies(&self) -> &[u8] {
        &self.replies[..self.replied]
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.replied = 0;
        (self.consumed, self.set_aside) = ([0; 2], 0);
        (self.bare, self.bare_bytes, self.detached, self.answered) = (0, 0, 0, 0);
    }

    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.consumed == [0; 2] && self.replied == 0 && self.bare == 0 && self.answered == 0
    }
}

/// Messages of one peer that have been copied out of its lanes, and their [`Outcome`].
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) entries: Box<[Entry; TURN]>,
    pub(super) len: usize,
    /// Payloads of Medium messages, one after the other, and how many bytes of this are in use.
    payloads: Vec<u8>,
    pub(super) filled: usize,
    segment: OwnSegment,
    pub(super) outcome: Outcome,
}

impl Batch {
    /// An empty one for a machine with this segment and payloads of at most `medium` bytes.
    pub(super) fn new(segment: OwnSegment, medium: usize) -> Self {
        let outcome = Outcome {
            peer: Peer(0),
            session: 0,
            peer_segment: 0,
            consumed: [0; 2],
            set_aside: 0,
            replies: vec![0; REPLIES + MAX_HEADER + medium].into_boxed_slice(),
            replied: 0,
            bare: 0,
            bare_bytes: 0,
            detached: 0,
            answered: 0,
            scratch: Vec::with_capacity(medium),
        };
        let payloads = Vec::with_capacity(medium.max(PAYLOADS));
        Self { entries: Box::new([Entry::NONE; TURN]), len: 0, payloads, filled: 0, segment, outcome }
    }

    /// Begins anew with messages of this peer's session.
    pub(super) fn begin(&mut self, peer: Peer, session: u64, peer_segment: u64) {
        debug_assert!(self.outcome.is_empty(), "a batch is settled before the next one");
        (self.len, self.filled) = (0, 0);
        let outcome = &mut self.outcome;
        (outcome.peer, outcome.session, outcome.peer_segment) = (peer, session, peer_segment);
    }

    /// Room for `len` more bytes of payload.
    pub(super) fn space(&mut self, len: usize) -> &mut [u8] {
        let from = self.filled;
        self.filled += len;
        if self.payloads.len() < self.filled {
            self.payloads.resize(self.filled, 0);
        }
        &mut self.payloads[from..self.filled]
    }

    /// Forgets what was delivered, for a machine that can be told no more.
    pub(crate) fn discard(&mut self) {
        self.outcome.clear();
    }

    /// Delivers the messages to the sink, and returns how many. It ends early when so much of Long replies waits
    /// that no further request may be answered, and in the child of a handler that forks; what remains is still in
    /// its lane. What a handler that unwinds leaves is told to the machine.
    pub(crate) fn deliver<S: Sink, A: Access>(&mut self, sink: &mut S, access: &mut A) -> usize {
        let Self { entries, len, payloads, segment, outcome, .. } = self;
        let (entries, from) = (&entries[..std::mem::take(len)], outcome.peer);
        let mut delivery = Delivery { outcome, access, full: false, done: false };
        let mut count = 0;
        for Entry { message, words, lane, len, payload } in entries {
            let (handler, args, room) = (message.handler, words, message.room);
            count += 1;
            if let (0, Kind::Short) = (*lane, message.kind) {
                // The usual message has a way of its own: an arrival that is put together here need not be copied.
                let (category, payload) = (message.category(), Payload::EMPTY);
                let arrival = Arrival::new(from, category, handler, args, payload);
                sink.request(arrival, &mut delivery.way(room, *len));
                if delivery.ends() {
                    break;
                }
                continue;
            }
            let payload = match message.kind {
                Kind::Short => Payload::EMPTY,
                Kind::Long { len, at, .. } => {
                    segment.view(at, len as usize).expect("the range was checked when the message was taken")
                }
                Kind::Medium { len } | Kind::Control { len } => {
                    Payload::own(&payloads[*payload..*payload + len as usize])
                }
            };
            let arrival = Arrival::new(from, message.category(), handler, args, payload);
            if *lane == 1 {
                delivery.outcome.consumed[1] += len;
                delivery.outcome.set_aside += cost_of(room);
                sink.reply(arrival);
                if delivery.ends() {
                    break;
                }
                continue;
            }
            let mut way = delivery.way(room, *len);
            match message.kind {
                Kind::Control { .. } => sink.control(from, args, payload),
                _ => sink.request(arrival, &mut way),
            }
            drop(way);
            if delivery.ends() {
                break;
            }
        }
        delivery.done = true;
        count
    }

    /// Lets a request be answered that was detached before.
    pub(crate) fn answer<A: Access, R>(
        &mut self,
        room: u64,
        access: &mut A,
        reply: impl FnOnce(&mut dyn ReplyPath) -> R,
    ) -> R {
        let mut delivery = Delivery { outcome: &mut self.outcome, access, full: false, done: false };
        let result = reply(&mut delivery.way(room, 0));
        delivery.done = true;
        result
    }
}

/// A batch that is being delivered. The machine is told of its outcome if a handler unwinds.
struct Delivery<'a, A: Access> {
    outcome: &'a mut Outcome,
    access: &'a mut A,
    /// So much of Long replies waits that no further request may be answered.
    full: bool,
    done: bool,
}

impl<A: Access> Delivery<'_, A> {
    /// Whether no further message may be delivered: nobody takes its reply, or the handler before it has forked,
    /// and what remains is the parent's.
    #[inline]
    fn ends(&self) -> bool {
        self.full || !self.access.is_usable()
    }

    #[inline]
    fn way(&mut self, room: u64, request: u64) -> BatchReplyPath<'_, A> {
        BatchReplyPath {
            outcome: self.outcome,
            access: self.access,
            full: &mut self.full,
            room,
            request,
            state: ReplyState::Unused,
        }
    }
}

impl<A: Access> Drop for Delivery<'_, A> {
    fn drop(&mut self) {
        if !self.done {
            settle(self.outcome, self.access);
        }
    }
}

/// Tells the machine, or nobody if there is none any more.
fn settle<A: Access>(outcome: &mut Outcome, access: &mut A) {
    if access.with(|machine, now| machine.settle_outcome(now, outcome)).is_none() {
        outcome.clear();
    }
}

/// What has become of the permission to reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyState {
    Unused,
    Replied,
    Detached,
}

/// The way back of one request; whatever happens, the request is answered, detached or becomes a bare credit.
struct BatchReplyPath<'a, A: Access> {
    outcome: &'a mut Outcome,
    access: &'a mut A,
    full: &'a mut bool,
    room: u64,
    /// Bytes of the request lane that the request took; none when it was detached before.
    request: u64,
    state: ReplyState,
}

impl<A: Access> BatchReplyPath<'_, A> {
    #[inline]
    fn reply(&mut self, kind: Kind, handler: u8, args: &Words, payload: &[u8]) {
        if self.outcome.replied >= REPLIES {
            settle(self.outcome, self.access);
        }
        self.state = ReplyState::Replied;
        let outcome = &mut *self.outcome;
        let free = outcome.replies[outcome.replied..].first_chunk_mut().expect("a header has room behind REPLIES");
        outcome.replied += Message { kind, handler, room: self.room }.encode(args, free);
        if !payload.is_empty() {
            let end = outcome.replied + payload.len();
            outcome.replies[outcome.replied..end].copy_from_slice(payload);
            outcome.replied = end;
        }
    }
}

impl<A: Access> ReplyPath for BatchReplyPath<'_, A> {
    fn bound(&self) -> usize {
        self.room.saturating_sub(1) as usize
    }

    fn segment_len(&self) -> u64 {
        self.outcome.peer_segment
    }

    fn long_limit(&self) -> u64 {
        u64::MAX
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        match body {
            Body::None => self.reply(Kind::Short, handler, args, &[]),
            Body::Copy(payload) => {
                assert!(payload.len() <= self.bound(), "the core checks the bound of a reply");
                self.reply(Kind::Medium { len: payload.len() as u64 }, handler, args, payload);
            }
            Body::Place(payload, at) => {
                let end = at.checked_add(payload.len() as u64);
                let inside = end.is_some_and(|end| end <= self.outcome.peer_segment);
                assert!(inside, "the core checks the range of a Long reply");
                self.state = ReplyState::Replied;
                let (outcome, room) = (&mut *self.outcome, self.room);
                let full = self.access.with(|machine, now| {
                    // Replies leave in the order in which they were made.
                    machine.settle_outcome(now, outcome);
                    machine.reply_long(outcome, room, handler, args, payload, at)
                });
                // Nobody takes further replies of a machine that is gone.
                *self.full |= full.unwrap_or(true);
            }
        }
        Ok(())
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.outcome.scratch);
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.outcome.scratch = buffer;
    }

    fn detach(&mut self) -> PendingKey {
        self.state = ReplyState::Detached;
        PendingKey::new(self.outcome.peer, self.outcome.session ^ self.room)
    }
}

impl<A: Access> Drop for BatchReplyPath<'_, A> {
    #[inline]
    fn drop(&mut self) {
        let (cost, earlier) = (cost_of(self.room), self.request == 0);
        if self.state == ReplyState::Unused && self.room > 0 {
            self.outcome.bare += 1;
            self.outcome.bare_bytes += cost;
        }
        match (self.state == ReplyState::Detached, earlier) {
            (true, false) => self.outcome.detached += cost,
            (false, true) => self.outcome.answered += cost,
            _ => {}
        }
        self.outcome.consumed[0] += self.request;
    }
}

#[cfg(test)]
mod tests;
