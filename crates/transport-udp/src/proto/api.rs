//! The application's side of a machine: sending, what is known of peers, leaving.

use super::Event;
use super::buffer_pool::Pool;
use super::config::Config;
use super::context::{BULK, Counters};
use super::deliver::{clip, length};
use super::machine::{BorrowedPayload, Machine};
use super::message::{Kind, MAX_HEADER, Message, cost_of, room_of};
use super::peer::Slot;
use am_core::arguments::Words;
use am_core::transport::{
    CreditSnapshot, Departure, Owed, PeerStatus, Refused, ReplyBound, RequestHeader, Resource,
};
use am_core::{Instant, Peer};

/// Payload of a request, and bound of a reply, in bytes, that credits are counted in.
const SMALL: u64 = 64;
const USUAL_REPLY: u32 = 1024;

impl Machine {
    /// The settings; the secrets among them have been wiped once keys were derived.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Bytes of message buffers that exist; they are made when first needed and kept.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.pools.iter().map(Pool::bytes).sum()
    }

    /// Bytes of message buffers in use.
    pub fn buffer_bytes_used(&self) -> usize {
        self.shared.pools.iter().map(Pool::used).sum()
    }

    /// The next event. At most four for each peer are kept; the oldest give way.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many peers have been lost so far.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// Bare credits given so far.
    pub fn bare_credits(&self) -> u64 {
        self.shared.bare_given
    }

    /// What is known of a peer. That it has finished is known as soon as all that it sent before can be polled; a
    /// loss, when a poll has come upon it.
    pub fn status(&self, peer: Peer) -> PeerStatus {
        let Some(slot) = self.slots.get(peer.index()) else { return PeerStatus::Active };
        let said = || slot.session.as_ref()?.has_said_all().filter(|leave| leave.how == Departure::Finished as u8);
        slot.ended.or_else(|| said().map(|_| PeerStatus::Finished)).unwrap_or(PeerStatus::Active)
    }

    /// Tells the size in bytes of the segment that a peer was said to have: if it has another one, it counts as
    /// incompatible.
    pub fn promise_segment(&mut self, peer: Peer, bytes: u64) {
        if let Some(slot) = self.slots.get_mut(peer.index()) {
            slot.promised_segment = Some(bytes);
        }
    }

    /// Bytes of messages and Long payloads accepted so far.
    pub fn accepted_bytes(&self) -> u64 {
        self.shared.accepted
    }

    /// Whether a session with the peer is open.
    pub fn is_connected(&self, peer: Peer) -> bool {
        self.session(peer).is_some()
    }

    /// Size of a connected peer's segment in bytes.
    pub fn peer_segment(&self, peer: Peer) -> Option<u64> {
        self.session(peer).map(|session| session.peer_segment)
    }

    /// Bytes of UDP payload that datagrams to a connected peer have at most, as probed so far.
    pub fn datagram_size(&self, peer: Peer) -> Option<u16> {
        self.session(peer).map(|session| session.path.current())
    }

    /// Opens a session ahead of the first message. Peers that are gone are left alone.
    ///
    /// # Panics
    /// If the job has no such peer.
    pub fn connect(&mut self, now: Instant, to: Peer) {
        self.slots[to.index()].connect(now);
        self.make_ready(to);
    }

    /// Fails if a peer is gone, or this endpoint has departed.
    fn takes_messages(&self, to: Peer) -> Result<(), Refused> {
        let there = self.slots.get(to.index()).is_some_and(|slot| slot.ended.is_none());
        if there && self.departing.is_none() { Ok(()) } else { Err(Refused::Gone(self.status(to))) }
    }

    fn submit(
        &mut self,
        now: Instant,
        to: Peer,
        mut message: Message,
        words: &Words,
        payload: &[u8],
        bulk: Option<u64>,
    ) -> Result<(), Refused> {
        self.takes_messages(to)?;
        let slot = &mut self.slots[to.index()];
        let Some(session) = slot.session.as_deref_mut() else {
            self.connect(now, to);
            return Err(Refused::Busy(Resource::Connection));
        };
        session.admit(&self.shared, length(&message, payload.len()), cost_of(message.room))?;
        if let (Some(total), Kind::Long { at, .. }) = (bulk, message.kind) {
            let stream = &mut session.traffic.bulk_out[0];
            if stream.missing() > 0 || stream.bytes.queued() >= self.shared.config.bulk_queue.into() {
                return Err(Refused::Busy(Resource::RequestBytes));
            }
            message.kind = Kind::Long { len: total, at, end: stream.begin(total, at) };
        }
        session.append(&mut self.shared, 0, &message, words, payload);
        self.make_ready(to);
        Ok(())
    }

    /// Sends a Short request, or with a payload a Medium one.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent. Without a session one is being opened, and `Busy` says so.
    ///
    /// # Panics
    /// If the payload exceeds [`ProtocolConfig::medium`](super::ProtocolConfig::medium).
    pub fn request(
        &mut self,
        now: Instant,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        payload: Option<&[u8]>,
    ) -> Result<(), Refused> {
        let len = payload.map_or(0, <[u8]>::len);
        assert!(len <= self.shared.config.medium as usize, "the core checks the size of a Medium request");
        let kind = if payload.is_some() { Kind::Medium { len: len as u64 } } else { Kind::Short };
        let room = room_of(clip(head.reply, self.shared.config.medium));
        let message = Message { kind, handler: head.handler, room };
        self.submit(now, to, message, args, payload.unwrap_or(&[]), None)
    }

    /// Room for Short requests without replies to a peer, in bytes of its request lane, beyond the longest of
    /// them, and the name of the session. Messages that begin within it would all be accepted now; see
    /// [`Machine::append_staged`].
    pub(crate) fn room_to_stage(&self, to: Peer) -> Option<(u64, u64)> {
        self.takes_messages(to).ok()?;
        let session = self.session(to)?;
        Some((session.mine, session.room(&self.shared).checked_sub(MAX_HEADER as u64)?))
    }

    /// Takes bytes of requests that [`Machine::room_to_stage`] had room for. If that session is over, they are
    /// lost, as what it had accepted before.
    pub(crate) fn append_staged(&mut self, to: Peer, session: u64, bytes: &[u8]) {
        let Self { slots, shared, .. } = self;
        let slot = slots.get_mut(to.index()).filter(|slot| slot.ended.is_none());
        let session = slot.and_then(|slot| slot.session.as_deref_mut()).filter(|open| open.mine == session);
        if let Some(session) = session {
            session.append_bytes(shared, bytes);
            self.make_ready(to);
        }
    }

    /// Whether a Medium request of `len` payload bytes would be accepted now.
    ///
    /// # Errors
    /// As [`Machine::request`].
    pub fn check(&mut self, now: Instant, to: Peer, head: RequestHeader, len: usize) -> Result<(), Refused> {
        self.takes_messages(to)?;
        let slot = &mut self.slots[to.index()];
        let Some(session) = slot.session.as_deref_mut() else {
            self.connect(now, to);
            return Err(Refused::Busy(Resource::Connection));
        };
        let room = room_of(clip(head.reply, self.shared.config.medium));
        let message = Message { kind: Kind::Medium { len: len as u64 }, handler: head.handler, room };
        session.admit(&self.shared, length(&message, len), cost_of(room))
    }

    /// Takes note of how a peer has ended, from a source outside the protocol, such as the job's launcher. What
    /// such a peer had sent and is not delivered yet is dropped, unless its farewell has come and nothing is
    /// missing before it: then it ends as it says.
    pub fn declare(&mut self, now: Instant, peer: Peer, status: PeerStatus) {
        let said_all = |slot: &Slot| slot.session.as_ref().is_some_and(|session| session.has_said_all().is_some());
        let fresh = self.slots.get(peer.index()).is_some_and(|slot| slot.ended.is_none() && !said_all(slot));
        if fresh && status != PeerStatus::Active {
            self.end_peer(peer, status, now);
        }
    }

    /// Sends a message between cores.
    ///
    /// # Errors
    /// As [`Machine::request`].
    ///
    /// # Panics
    /// As [`Machine::request`].
    pub fn control(&mut self, now: Instant, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        assert!(payload.len() <= self.shared.config.medium as usize, "the core keeps control messages short");
        let kind = Kind::Control { len: payload.len() as u64 };
        self.submit(now, to, Message { kind, handler: 0, room: 0 }, args, payload, None)
    }

    /// Begins a Long request of `len` payload bytes for byte `at` of the peer's segment. The payload follows in
    /// pieces through [`Machine::push`], or as a whole through [`Machine::buffer_tail`]; until it is complete, no
    /// other Long request to this peer is accepted.
    ///
    /// # Errors
    /// [`Refused`]; nothing was begun.
    ///
    /// # Panics
    /// If the range lies outside the peer's segment.
    pub fn long(
        &mut self,
        now: Instant,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: u64,
        at: u64,
    ) -> Result<(), Refused> {
        if let Some(segment) = self.peer_segment(to) {
            let inside = at.checked_add(len).is_some_and(|end| end <= segment);
            assert!(inside, "the core checks the range of a Long request");
        }
        let room = room_of(clip(head.reply, self.shared.config.medium));
        let kind = Kind::Long { len, at, end: 0 };
        self.submit(now, to, Message { kind, handler: head.handler, room }, args, &[], Some(len))
    }

    /// Takes bytes of the Long payload that is under way to a peer, as many as are missing and there is room for
    /// now; returns how many. More room comes with acknowledgements.
    ///
    /// # Errors
    /// [`Refused::Gone`] if the peer is gone, and the message with it.
    pub fn push(&mut self, to: Peer, bytes: &[u8]) -> Result<usize, Refused> {
        let Some(session) = self.slots.get_mut(to.index()).and_then(|slot| slot.session.as_deref_mut()) else {
            return Err(Refused::Gone(self.status(to)));
        };
        let bulk = &mut session.traffic.bulk_out[0];
        let room =
            u64::from(self.shared.config.bulk_queue).saturating_sub(bulk.bytes.queued()).min(bulk.missing());
        let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        bulk.push(&mut self.shared.pools[BULK], &bytes[..len]);
        self.shared.accepted += len as u64;
        if len > 0 {
            self.make_ready(to);
        }
        Ok(len)
    }

    /// Takes the rest of the Long payload that is under way to a peer, if what is not acknowledged of it, and of
    /// earlier ones, fits [`ProtocolConfig::bulk_queue`](super::ProtocolConfig::bulk_queue); returns whether it
    /// did. Otherwise nothing is copied, and [`Machine::transmit_lent`] sends from the payload itself as much as
    /// may leave; ask again when acknowledgements have come.
    ///
    /// # Errors
    /// [`Refused::Gone`] if the peer is gone, and the message with it.
    ///
    /// # Panics
    /// If the payload is not as long as was announced.
    pub fn buffer_tail(&mut self, lent: BorrowedPayload<'_>) -> Result<bool, Refused> {
        let BorrowedPayload { to, payload } = lent;
        let Some(session) = self.slots.get_mut(to.index()).and_then(|slot| slot.session.as_deref_mut()) else {
            return Err(Refused::Gone(self.status(to)));
        };
        let room = self.shared.config.bulk_queue.into();
        let kept = session.traffic.bulk_out[0].buffer_tail(&mut self.shared.pools[BULK], payload, room);
        if kept {
            self.shared.accepted += payload.len() as u64;
        }
        self.make_ready(to);
        Ok(kept)
    }

    /// Whether every accepted request to a peer that is still there has been handled.
    pub fn quiet(&self) -> bool {
        self.slots.iter().filter(|slot| slot.ended.is_none()).all(|slot| match &slot.session {
            Some(session) => session.is_quiet(),
            None => true,
        })
    }

    /// What could still be sent to a peer now.
    pub fn credits(&self, peer: Peer) -> CreditSnapshot {
        let Some(session) = self.session(peer) else { return CreditSnapshot::default() };
        let config = &self.shared.config;
        let room = |limit: u32, used: u64| u64::from(limit).saturating_sub(used);
        let request_bytes = room(config.send_queue, session.traffic.out[0].queued())
            .min(room(config.send_budget, self.shared.queued[0]));
        let reply_bytes =
            room(config.reply_window, session.set_aside).min(room(config.reply_budget, self.shared.set_aside));
        // Frames share room with payloads: how many small requests, and how many replies of a usual bound, fit.
        let usual = config.medium.min(USUAL_REPLY);
        CreditSnapshot::default()
            .requests(request_bytes / (MAX_HEADER as u64 + SMALL), request_bytes)
            .replies(reply_bytes / cost_of(room_of(ReplyBound::UpTo(usual))), reply_bytes)
    }

    /// What a peer owes this endpoint. Room is set aside for replies in bytes, so that their number is not known.
    pub fn owed(&self, peer: Peer) -> Owed {
        let Some(session) = self.session(peer) else { return Owed::default() };
        let some = session.set_aside > 0;
        Owed::new(!session.is_quiet(), some.into()).or_more(some)
    }

    /// Takes leave of all peers; what was accepted before is still delivered. Keep driving the machine until it is
    /// [settled](Machine::settled), or for as long as it is worth.
    pub fn depart(&mut self, how: Departure) {
        self.departing = Some(how);
        for index in 0..self.slots.len() {
            if let Some(session) = &mut self.slots[index].session {
                (session.traffic.leave, session.traffic.leave_due) = (Some(how as u8), true);
            }
            self.make_ready(Peer(index as u32));
        }
    }

    /// How this endpoint is taking leave, if it is.
    pub fn departing(&self) -> Option<Departure> {
        self.departing
    }

    /// Opens sessions with all peers that there is none with, so that they learn of a leave that they do not
    /// expect.
    pub fn connect_to_say_farewell(&mut self, now: Instant) {
        for index in 0..self.slots.len() as u32 {
            if Peer(index) != self.shared.config.me {
                self.connect(now, Peer(index));
            }
        }
    }

    /// Whether all that was sent to peers that are still there has been acknowledged, and no session is being
    /// opened. A peer that has taken leave itself waits for nothing more.
    pub fn settled(&self) -> bool {
        self.slots.iter().all(|slot| match &slot.session {
            Some(session) => session.is_settled(),
            // Who finishes has met everyone there was to meet.
            None => self.departing == Some(Departure::Finished) || !slot.is_connecting(),
        })
    }
}
