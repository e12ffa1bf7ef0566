//! Hands whole messages to the core, and carries the answers back.

use super::Machine;
use super::context::{Context, IN};
use super::message::{Kind, MAX_HEADER, Message, cost_of};
use super::session::{Fault, Session};
use am_core::arguments::Words;
use am_core::transport::{
    Arrival, Body, Category, NoPort, PayloadWriter, PendingKey, Port, PortGone, ReplyBound, Sink,
};
use am_core::{Instant, Payload, Peer};

/// Messages of one peer in a row, before others get their turn.
const TURN: usize = 32;

/// The way back of one request; whatever happens, the request is answered, detached or becomes a bare credit.
struct Way<'a> {
    session: &'a mut Session,
    shared: &'a mut Context,
    now: Instant,
    peer: Peer,
    room: u64,
    used: bool,
    /// Bytes of the request lane that the request took; none when it was detached before.
    request: u64,
}

struct Buffer<'a>(&'a mut [u8]);

impl PayloadWriter for Buffer<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Way<'_> {
    fn reply(&mut self, kind: Kind, handler: u8, args: &Words, payload: &[u8]) {
        self.used = true;
        self.session.owed = self.session.owed.saturating_sub(cost_of(self.room));
        let message = Message { kind, handler, room: self.room };
        self.session.append(self.shared, 1, &message, args, payload);
    }
}

impl Port for Way<'_> {
    fn bound(&self) -> usize {
        self.room.saturating_sub(1) as usize
    }

    fn segment_len(&self) -> u64 {
        self.session.peer_segment
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), PortGone> {
        match body {
            Body::None => self.reply(Kind::Short, handler, args, &[]),
            Body::Copy(payload) => {
                assert!(payload.len() <= self.bound(), "the core checks the bound of a reply");
                self.reply(Kind::Medium { len: payload.len() as u64 }, handler, args, payload);
            }
            Body::Place(payload, at) => {
                let len = payload.len() as u64;
                let inside = at.checked_add(len).is_some_and(|end| end <= self.session.peer_segment);
                assert!(inside, "the core checks the range of a Long reply");
                let bulk = &mut self.session.traffic.bulk_out[1];
                let end = bulk.begin(len, at);
                bulk.push(&mut self.shared.pools[super::context::BULK], payload);
                self.reply(Kind::Long { len, at, end }, handler, args, &[]);
            }
        }
        Ok(())
    }

    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut dyn FnMut(&mut dyn PayloadWriter),
    ) -> Result<(), PortGone> {
        assert!(len <= self.bound(), "the core checks the bound of a reply");
        let mut payload = std::mem::take(&mut self.shared.scratch);
        payload.clear();
        payload.resize(len, 0);
        fill(&mut Buffer(&mut payload));
        self.reply(Kind::Medium { len: len as u64 }, handler, args, &payload);
        self.shared.scratch = payload;
        Ok(())
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey { to: self.peer, tag: self.session.mine ^ self.room }
    }
}

impl Drop for Way<'_> {
    fn drop(&mut self) {
        if !self.used && self.room > 0 {
            self.session.give_bare(self.shared, self.now, self.room);
        }
        if self.request > 0 {
            self.session.consume(self.shared, self.now, 0, self.request);
        }
    }
}

impl Machine {
    /// Delivers at most `budget` arrived messages to the sink, and returns how many. Replies of a peer come before its
    /// requests; peers take turns.
    ///
    /// A request whose reply might not fit its peer's share of the reply budget waits; that room comes back as the
    /// peer's machine acknowledges earlier replies, whatever its application does.
    pub fn poll<S: Sink>(&mut self, now: Instant, budget: usize, sink: &mut S) -> usize {
        self.release_held(now);
        let (mut count, mut fruitless) = (0, 0);
        while count < budget && fruitless < self.arrived.len() {
            let Some(peer) = self.arrived.pop_front() else { break };
            let most = TURN.min(budget - count);
            // Back in the line first, so that a handler that unwinds does not lose the peer its place.
            self.arrived.push_back(peer);
            let result = self.serve(Peer(peer), now, most, sink);
            if !matches!(result, Ok((_, true))) {
                self.arrived.pop_back();
                self.slots[peer as usize].arrived = false;
            }
            match result {
                // Only peers that stay in the line count, or those behind the others would be missed.
                Ok((0, stays)) => fruitless += usize::from(stays),
                Ok((served, _)) => {
                    count += served;
                    fruitless = 0;
                    self.make_ready(Peer(peer));
                }
                Err(Fault) => self.lose_faulty(Peer(peer)),
            }
        }
        if count > 0 {
            self.lend(now);
        }
        count
    }

    /// Serves one peer; returns how many messages, and whether there may be more.
    fn serve<S: Sink>(
        &mut self,
        peer: Peer,
        now: Instant,
        most: usize,
        sink: &mut S,
    ) -> Result<(usize, bool), Fault> {
        let mut count = 0;
        let mut words = Words::EMPTY;
        while count < most {
            let Self { slots, shared, inbox, .. } = self;
            let Some(session) = slots[peer.index()].session.as_deref_mut() else { return Ok((count, false)) };
            let (lane, message, header) = if let Some((message, header)) = session.front(shared, 1, &mut words)? {
                (1, message, header)
            } else if let Some((message, header)) = session.front(shared, 0, &mut words)? {
                if !session.may_reply(shared, cost_of(message.room)) {
                    return Ok((count, true));
                }
                (0, message, header)
            } else {
                self.note_departure(peer, now);
                return Ok((count, false));
            };
            if let (0, Kind::Short) = (lane, message.kind) {
                // The usual message has a way of its own: an arrival that is put together here need not be copied.
                session.owed += cost_of(message.room);
                let (room, handler) = (message.room, message.handler);
                let mut way = Way { session, shared, now, peer, room, used: false, request: header };
                let (category, args, payload) = (Category::Short, &words, Payload::EMPTY);
                sink.request(Arrival { from: peer, category, handler, args, payload }, &mut way);
                count += 1;
                continue;
            }
            let len = message.payload();
            let segment;
            let payload = match message.kind {
                Kind::Short => Payload::EMPTY,
                Kind::Long { len, at, .. } => {
                    segment = shared.segment.clone();
                    segment.view(at, len as usize).map_err(|_| Fault)?
                }
                Kind::Medium { .. } | Kind::Control { .. } => {
                    let incoming = &session.traffic.incoming[lane].fifo;
                    inbox.resize(len as usize, 0);
                    incoming.read(&shared.pools[IN + lane], incoming.start() + header, inbox);
                    Payload::own(inbox)
                }
            };
            let (category, handler, args) = (message.category(), message.handler, &words);
            let arrival = Arrival { from: peer, category, handler, args, payload };
            if lane == 1 {
                let cost = cost_of(message.room);
                session.set_aside -= cost;
                shared.set_aside -= cost;
                session.consume(shared, now, 1, header + len);
                sink.reply(arrival);
            } else {
                session.owed += cost_of(message.room);
                let request = header + len;
                let mut way = Way { session, shared, now, peer, room: message.room, used: false, request };
                if let Kind::Control { .. } = message.kind {
                    sink.control(peer, args, payload);
                } else {
                    sink.request(arrival, &mut way);
                }
            }
            count += 1;
        }
        Ok((count, true))
    }

    /// Opens the way back of a detached request once more; a way left unused becomes a bare credit. If the session of
    /// that request is over, every reply is refused.
    pub fn answer<R>(&mut self, now: Instant, key: PendingKey, reply: impl FnOnce(&mut dyn Port) -> R) -> R {
        let medium = u64::from(self.shared.config.medium);
        let Self { slots, shared, .. } = self;
        let session = slots.get_mut(key.to.index()).and_then(|slot| slot.session.as_deref_mut());
        let room = session.as_ref().map_or(u64::MAX, |session| session.mine ^ key.tag);
        match session.filter(|_| room <= medium + 1) {
            Some(session) => {
                let mut way = Way { session, shared, now, peer: key.to, room, used: false, request: 0 };
                let result = reply(&mut way);
                drop(way);
                self.make_ready(key.to);
                result
            }
            None => reply(&mut NoPort { bound: medium as usize, segment_len: u64::MAX, key }),
        }
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
