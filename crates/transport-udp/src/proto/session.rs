//! One session: everything between this endpoint and one incarnation of a peer, once the handshake is over.
//!
//! The parts that put datagrams together and take them apart are in `transmit` and `receive`; here are the
//! accounts.

use super::batch::{Entry, Outcome as Delivered};
use super::config::{Config, DATAGRAM_START};
use super::context::{BULK, Context, IN};
use super::message::{Kind, MAX_HEADER, Message, Parsed, cost_of};
use super::path::Path;
use super::recovery::{Carried, Outcome, Recovery};
use super::replay::Replay;
use super::seal::{Agreement, Chain};
use super::stream::{Incoming, IncomingBulk, Outgoing, OutgoingBulk};
use super::wire::{Credit, Leave};
use am_core::arguments::Words;
use am_core::transport::{Refused, Resource};
use am_core::{Instant, Span};

/// The peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault;

/// The first of two moments, of which the second may never come.
#[inline]
pub(super) fn sooner(first: Instant, second: Option<Instant>) -> Instant {
    second.map_or(first, |second| first.min(second))
}

/// What a batch holds already of messages that are still in their lanes.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Bytes of each lane.
    pub(super) bytes: [u64; 2],
    /// Room of the replies to its requests at the peer, and of its replies here.
    pub(super) owed: u64,
    pub(super) set_aside: u64,
}

/// The streams of a session and what else is sent again when lost.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) out: [Outgoing; 2],
    pub(super) bulk_out: [OutgoingBulk; 2],
    pub(super) incoming: [Incoming; 2],
    pub(super) bulk_in: [IncomingBulk; 2],
    /// The credit frame should go with the next datagram; and by when at the latest.
    pub(super) credit_dirty: bool,
    pub(super) credit_at: Option<Instant>,
    pub(super) credit_urgent: bool,
    /// The furthest limit that was asked for.
    pub(super) want_sent: u64,
    pub(super) leave: Option<u8>,
    pub(super) leave_due: bool,
    pub(super) leave_acked: bool,
    pub(super) path_grew: bool,
    /// The peer has left: the shared accounts have everything back that stood there for it ([`Session::retire`]).
    pub(super) retired: bool,
}

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    /// With this endpoint itself, to which counts can be told at once.
    own: bool,
    pub(super) mine: u64,
    pub(super) theirs: u64,
    /// The peer is known to share the session.
    pub(super) confirmed: bool,
    pub(super) peer_segment: u64,
    pub(super) seal: Chain,
    pub(super) open: Chain,
    pub(super) replay: Replay,
    pub(super) recovery: Recovery,
    pub(super) path: Path,
    pub(super) traffic: Traffic,
    /// What the peer has told.
    pub(super) told: Credit,
    /// What has been told to the peer, and what of it last.
    pub(super) granted: Credit,
    pub(super) reported: Credit,
    /// The limit that the peer would like, and whether it stands in the line.
    pub(super) wanted: u64,
    pub(super) waiting: bool,
    pub(super) loan: u64,
    /// Bytes set aside here for the peer's replies; and there, as far as requests have been delivered, for ours.
    pub(super) set_aside: u64,
    pub(super) owed: u64,
    pub(super) leave_in: Option<Leave>,
    pub(super) ack_pending: u32,
    /// Bytes received since the last acknowledgement.
    pub(super) ack_bytes: u64,
    pub(super) ack_at: Option<Instant>,
    pub(super) newest_at: Instant,
    pub(super) ping: bool,
    pub(super) wake: Option<Instant>,
    /// The last moment at which the peer is known to have been there.
    pub(super) last_heard: Instant,
    pub(super) last_sent: Instant,
    /// Since when something waits for an answer that tells whether the peer is there.
    pub(super) asked_at: Option<Instant>,
}

/// Names and keys of a new session.
pub(super) struct Names {
    pub(super) peer: u32,
    pub(super) mine: u64,
    pub(super) theirs: u64,
    pub(super) peer_segment: u64,
}

impl Session {
    pub(super) fn new(config: &Config, base: u64, keys: &Agreement, names: &Names, now: Instant) -> Self {
        let (me, peer) = ((config.me.0, names.mine), (names.peer, names.theirs));
        Self {
            own: names.peer == config.me.0,
            mine: names.mine,
            theirs: names.theirs,
            confirmed: false,
            peer_segment: names.peer_segment,
            seal: keys.chain([me, peer]),
            open: keys.chain([peer, me]),
            replay: Replay::default(),
            recovery: Recovery::new(now, DATAGRAM_START.into(), config.ack_delay),
            path: Path::new(DATAGRAM_START, config.datagram_limit, now),
            traffic: Traffic::default(),
            told: Credit { limit: base, ..Credit::default() },
            granted: Credit { limit: base, ..Credit::default() },
            reported: Credit { limit: base, ..Credit::default() },
            wanted: 0,
            waiting: false,
            loan: 0,
            set_aside: 0,
            owed: 0,
            leave_in: None,
            ack_pending: 0,
            ack_bytes: 0,
            ack_at: None,
            newest_at: now,
            ping: true,
            wake: None,
            last_heard: now,
            last_sent: now,
            asked_at: None,
        }
    }

    /// Checks that a request of `len` lane bytes, whose reply takes `cost`, can be accepted.
    pub(super) fn admit(&self, shared: &Context, len: u64, cost: u64) -> Result<(), Refused> {
        let config = &shared.config;
        let busy = |resource| Err(Refused::Busy(resource));
        if self.traffic.out[0].queued() + len > config.send_queue.into() {
            return busy(Resource::RequestBytes);
        }
        if shared.queued[0] + len > config.send_budget.into() {
            return busy(Resource::Interface);
        }
        let full = self.set_aside + cost > config.reply_window.into();
        if cost > 0 && (full || shared.set_aside + cost > config.reply_budget.into()) {
            return busy(Resource::ReplyBytes);
        }
        Ok(())
    }

    /// Bytes of requests that can be accepted now.
    pub(super) fn room(&self, shared: &Context) -> u64 {
        let config = &shared.config;
        let mine = u64::from(config.send_queue).saturating_sub(self.traffic.out[0].queued());
        mine.min(u64::from(config.send_budget).saturating_sub(shared.queued[0]))
    }

    /// Whether a request whose reply takes at most `cost` may be handled now, after others whose replies take at
    /// most `ahead`.
    ///
    /// A peer's unacknowledged replies may take as much of the reply budget as is free, so that whoever
    /// acknowledges none has half of what others leave at most. A peer without any is
    /// always served, and so is a message that has no reply: the end of a barrier may depend on it. Payloads of
    /// Long replies have a queue of their own for every peer, which one payload may exceed.
    pub(super) fn may_reply(&self, shared: &Context, ahead: u64, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let mine = self.traffic.out[1].queued() + ahead;
        let free = u64::from(shared.config.reply_budget).saturating_sub(shared.queued[1] + ahead);
        self.may_reply_long(shared) && (mine == 0 || mine + 2 * cost <= free)
    }

    /// Whether there is room for the payload of one more Long reply.
    pub(super) fn may_reply_long(&self, shared: &Context) -> bool {
        self.traffic.bulk_out[1].bytes.queued() < shared.config.bulk_queue.into()
    }

    /// Appends a message to a lane.
    pub(super) fn append(
        &mut self,
        shared: &mut Context,
        lane: usize,
        message: &Message,
        words: &Words,
        payload: &[u8],
    ) {
        let fifo = &mut self.traffic.out[lane].fifo;
        let pool = &mut shared.pools[lane];
        // Most messages are small and find room in the page of the one before.
        let len = fifo.append_with(pool, |space| message.encode(words, space)).unwrap_or_else(|| {
            let mut header = [0; MAX_HEADER];
            let len = message.encode(words, &mut header);
            fifo.append(pool, &header[..len]);
            len
        });
        if !payload.is_empty() {
            fifo.append(pool, payload);
        }
        self.traffic.on_queued(shared, lane, (len + payload.len()) as u64);
        if lane == 0 {
            self.set_aside += cost_of(message.room);
            if !self.traffic.retired {
                shared.set_aside += cost_of(message.room);
            }
        }
    }

    /// Appends requests without replies to their lane, as they stand there.
    pub(super) fn append_bytes(&mut self, shared: &mut Context, bytes: &[u8]) {
        self.traffic.out[0].fifo.append(&mut shared.pools[0], bytes);
        self.traffic.on_queued(shared, 0, bytes.len() as u64);
    }

    /// Finds the message at the front of a lane, behind those that a batch holds already. Returns whether it is
    /// whole.
    #[inline]
    pub(super) fn front(
        &self,
        shared: &Context,
        lane: usize,
        ahead: &Ahead,
        entry: &mut Entry,
    ) -> Result<bool, Fault> {
        let incoming = &self.traffic.incoming[lane];
        let start = incoming.fifo.start() + ahead.bytes[lane];
        if incoming.ready == start {
            return Ok(false);
        }
        let front = incoming.fifo.peek(&shared.pools[IN + lane], start);
        let most = front.len().min((incoming.ready - start) as usize);
        if lane == 0 && entry.parse_plain(&front[..most]) {
            return Ok(true);
        }
        if entry.parse_short(&front[..most], lane) {
            return if self.is_fair(shared, lane, ahead, &entry.message) { Ok(true) } else { Err(Fault) };
        }
        self.parse_front(shared, lane, ahead, entry)
    }

    /// Whether a message takes no more room than it may.
    #[inline]
    fn is_fair(&self, shared: &Context, lane: usize, ahead: &Ahead, message: &Message) -> bool {
        let (payload, cost) = (message.payload(), cost_of(message.room));
        payload <= shared.config.medium.into()
            && match lane {
                0 => {
                    message.room <= u64::from(shared.config.medium) + 1
                        && self.owed + ahead.owed + cost <= shared.config.reply_window.into()
                }
                _ => {
                    message.room > payload
                        && ahead.set_aside + cost <= self.set_aside
                        && !matches!(message.kind, Kind::Control { .. })
                }
            }
    }

    /// Whether nothing of either lane waits to be delivered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.traffic.incoming.iter().all(|incoming| incoming.ready == incoming.fifo.start())
    }

    /// [`Session::front`] of a lane that has bytes.
    fn parse_front(&self, shared: &Context, lane: usize, ahead: &Ahead, entry: &mut Entry) -> Result<bool, Fault> {
        let incoming = &self.traffic.incoming[lane];
        let start = incoming.fifo.start() + ahead.bytes[lane];
        let available = incoming.ready - start;
        let most = available.min(MAX_HEADER as u64) as usize;
        let pool = &shared.pools[IN + lane];
        let front = incoming.fifo.peek(pool, start);
        let words = &mut entry.words;
        let mut parsed = Message::parse(front.get(..most).unwrap_or(front), words);
        if !matches!(parsed, Parsed::Whole(..)) && front.len() < most {
            // It may go on in the next page.
            let mut bytes = [0; MAX_HEADER];
            let bytes = &mut bytes[..most];
            incoming.fifo.read(pool, start, bytes);
            parsed = Message::parse(bytes, words);
        }
        let (message, header) = match parsed {
            Parsed::Whole(message, header) => (message, header as u64),
            Parsed::Part => return Ok(false),
            Parsed::Malformed => return Err(Fault),
        };
        let payload = message.payload();
        if !self.is_fair(shared, lane, ahead, &message) {
            return Err(Fault);
        }
        if let Kind::Long { len, at, end } = message.kind {
            let inside = usize::try_from(len).is_ok_and(|len| shared.segment.view(at, len).is_ok());
            if !inside {
                return Err(Fault);
            }
            if self.traffic.bulk_in[lane].ready < end {
                return Ok(false);
            }
        }
        (entry.message, entry.lane, entry.len) = (message, lane, header + payload);
        Ok(available >= entry.len)
    }

    /// Takes note of what has become of delivered messages.
    ///
    /// # Errors
    /// [`Fault`] if the peer has meanwhile given back the room of replies that it had sent.
    pub(super) fn settle(
        &mut self,
        shared: &mut Context,
        now: Instant,
        delivered: &Delivered,
    ) -> Result<(), Fault> {
        self.return_room(shared, delivered.set_aside)?;
        self.owed = (self.owed + delivered.detached).saturating_sub(delivered.answered);
        let len = delivered.replies().len() as u64;
        if len > 0 {
            self.traffic.out[1].fifo.append(&mut shared.pools[1], delivered.replies());
            self.traffic.on_queued(shared, 1, len);
        }
        if delivered.bare > 0 {
            self.give_bare(shared, now, delivered.bare, delivered.bare_bytes);
        }
        for (lane, len) in delivered.consumed.into_iter().enumerate().filter(|(_, len)| *len > 0) {
            self.consume(shared, now, lane, len);
        }
        Ok(())
    }

    /// Takes messages out of a lane after their handlers have run.
    #[inline]
    fn consume(&mut self, shared: &mut Context, now: Instant, lane: usize, len: u64) {
        let fifo = &mut self.traffic.incoming[lane].fifo;
        let to = fifo.start() + len;
        fifo.release(&mut shared.pools[IN + lane], to);
        if lane == 1 {
            return;
        }
        self.granted.requests = to;
        self.granted.limit = self.granted.limit.max(to + shared.base);
        self.settle_loan(shared);
        let urgent = to - self.reported.requests >= shared.base / 2;
        self.mark_credit(now + shared.config.ack_delay, urgent);
    }

    fn mark_credit(&mut self, by: Instant, urgent: bool) {
        let traffic = &mut self.traffic;
        traffic.credit_dirty = true;
        traffic.credit_urgent |= urgent || self.own;
        traffic.credit_at.get_or_insert(by);
    }

    fn settle_loan(&mut self, shared: &mut Context) {
        if self.traffic.retired {
            return;
        }
        let loan = self.granted.limit.saturating_sub(self.granted.requests + shared.base);
        shared.lent = shared.lent - self.loan + loan;
        shared.borrowers = shared.borrowers - u64::from(self.loan > 0) + u64::from(loan > 0);
        self.loan = loan;
    }

    /// Lends the peer what it wants, at most its share, and all of that or nothing. Returns whether there is
    /// nothing to lend it now.
    ///
    /// A share is whole messages of the largest size, since part of one would occupy memory and be of no use: so
    /// many that all borrowers leave the next part. The first gets half of all, the second a sixth, which leaves a
    /// third, the `n`th the part `1 / (n (n + 1))`, and everyone one message if there is room. So peers that
    /// borrow and never send leave room for others, until one message each has used up what is left (after dynamic
    /// thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998, whose senders give back).
    ///
    /// A loan ends by itself when what it was asked for has been handled. The first in the line is served at the
    /// latest when the loans of all others that send have ended.
    pub(super) fn lend(&mut self, shared: &mut Context, now: Instant) -> bool {
        let (others, due) = (shared.lent - self.loan, self.granted.requests + shared.base);
        let (place, message) = (1 + shared.borrowers - u64::from(self.loan > 0), shared.config.largest_message());
        let share = (shared.lendable / (place * (place + 1)) / message).max(1) * message;
        let target = self.wanted.min(due + share);
        if target <= self.granted.limit || self.traffic.retired {
            return true;
        }
        let loan = target.saturating_sub(due);
        if others + loan > shared.lendable {
            return false;
        }
        self.granted.limit = target;
        self.settle_loan(shared);
        shared.counters.loans += 1;
        self.mark_credit(now, true);
        true
    }

    /// Requests have ended without a reply, which would have taken `bytes` at most.
    fn give_bare(&mut self, shared: &mut Context, now: Instant, count: u64, bytes: u64) {
        self.granted.bare += count;
        self.granted.bare_bytes += bytes;
        shared.bare_given += count;
        let urgent =
            self.granted.bare_bytes - self.reported.bare_bytes >= u64::from(shared.config.reply_window) / 2;
        self.mark_credit(now + shared.config.ack_delay, urgent);
    }

    /// The peer told new counts. Requests that it has handled have arrived, whatever became of their
    /// acknowledgement.
    pub(super) fn on_credit(&mut self, shared: &mut Context, credit: Credit) -> Result<(), Fault> {
        // What was accepted here and has not been sent cannot have been handled there.
        let sent = self.traffic.out[0].sent();
        let back = credit.bare_bytes.saturating_sub(self.told.bare_bytes);
        // Nor are there replies that no room was set aside for.
        let replies = self.traffic.incoming[1].fifo.start() + self.set_aside;
        if credit.requests > sent || credit.replies > replies {
            return Err(Fault);
        }
        self.return_room(shared, back)?;
        if credit.requests > self.told.requests {
            let start = self.traffic.out[0].fifo.start();
            self.traffic.on_acked(shared, 0, start, credit.requests.saturating_sub(start));
        }
        self.told = Credit {
            limit: self.told.limit.max(credit.limit),
            requests: self.told.requests.max(credit.requests),
            bare: self.told.bare.max(credit.bare),
            bare_bytes: self.told.bare_bytes.max(credit.bare_bytes),
            replies: self.told.replies.max(credit.replies),
            payloads: self.told.payloads.max(credit.payloads),
        };
        Ok(())
    }

    /// Whether the peer has handled all requests, and the replies that it had sent by then are here.
    pub(super) fn is_quiet(&self) -> bool {
        let Traffic { out, incoming, bulk_in, .. } = &self.traffic;
        self.told.requests == out[0].fifo.end()
            && incoming[1].ready >= self.told.replies
            && bulk_in[1].ready >= self.told.payloads
    }

    /// Whether nothing waits for an acknowledgement of a peer that would still want it.
    pub(super) fn is_settled(&self) -> bool {
        if self.leave_in.is_some() && self.traffic.leave.is_some() && self.ack_pending == 0 {
            return true;
        }
        let traffic = &self.traffic;
        let lanes = traffic.out.iter().all(|out| out.queued() == 0);
        let bulk = traffic.bulk_out.iter().all(|bulk| bulk.bytes.queued() == 0);
        lanes && bulk && (traffic.leave.is_none() || traffic.leave_acked)
    }

    /// Whether the peer has left and all that it sent before has been handled.
    pub(super) fn has_left(&self) -> Option<Leave> {
        let leave = self.leave_in?;
        let at = |lane: usize| self.traffic.incoming[lane].fifo.start();
        (at(0) >= leave.requests && at(1) >= leave.replies).then_some(leave)
    }

    /// Whether the peer has left and all that it sent before is here, handled or not.
    pub(super) fn has_said_all(&self) -> Option<Leave> {
        let leave = self.leave_in?;
        let Traffic { incoming, bulk_in, .. } = &self.traffic;
        let lanes = incoming[0].ready >= leave.requests && incoming[1].ready >= leave.replies;
        let payloads = bulk_in.iter().zip(leave.payloads).all(|(bulk, end)| bulk.ready >= end);
        (lanes && payloads).then_some(leave)
    }

    /// When something happens next by itself, seen after [`Session::build`] has declined: what is due but could
    /// not leave waits for the window, so for an acknowledgement or a timeout.
    pub(super) fn deadline(&self, now: Instant, silence: Span) -> Instant {
        let alive = self.last_heard.max(self.last_sent) + Span(silence.0 / 4);
        let soon = |at: Option<Instant>| at.filter(|at| *at > now);
        let silent = (self.last_heard + silence).max(self.asked_at.unwrap_or(now) + Span(silence.0 / 4));
        let soft = sooner(sooner(silent, soon(Some(alive))), soon(self.ack_at));
        sooner(sooner(sooner(soft, soon(self.traffic.credit_at)), self.recovery.deadline()), self.wake)
    }

    /// Time has passed. Returns whether the peer has been silent for too long: after `silence`, and not before it
    /// has had a quarter of that to answer. What was never asked is nobody's silence.
    pub(super) fn on_timer(&mut self, shared: &mut Context, now: Instant) -> bool {
        let silence = shared.config.silence;
        let had_time = |since| now.since(since) >= Span(silence.0 / 4);
        if now.since(self.last_heard) >= silence && self.asked_at.is_some_and(had_time) {
            return true;
        }
        if now.since(self.last_heard.max(self.last_sent)) >= Span(silence.0 / 4) {
            self.ping = true;
            self.recovery.let_one_go();
        }
        let Self { recovery, traffic, path, .. } = self;
        if recovery.on_timer(now, |outcome, carried| traffic.settle(shared, path, outcome, carried)) {
            shared.counters.timeouts += 1;
            self.ping = true;
            path.on_timeouts(recovery.timeouts());
        }
        false
    }

    /// Room for replies is needed no longer.
    fn return_room(&mut self, shared: &mut Context, bytes: u64) -> Result<(), Fault> {
        self.set_aside = self.set_aside.checked_sub(bytes).ok_or(Fault)?;
        if !self.traffic.retired {
            shared.set_aside -= bytes;
        }
        Ok(())
    }

    /// The peer has left, and all that it sent has been delivered: it answers no request any more. What the shared
    /// accounts hold for it serves others from now on; the session itself goes on until the last acknowledgements
    /// are through.
    pub(super) fn retire(&mut self, shared: &mut Context) {
        if std::mem::replace(&mut self.traffic.retired, true) {
            return;
        }
        shared.set_aside -= self.set_aside;
        for (queued, out) in shared.queued.iter_mut().zip(&self.traffic.out) {
            *queued -= out.queued();
        }
        shared.lent -= self.loan;
        shared.borrowers -= u64::from(self.loan > 0);
        (self.loan, self.wanted) = (0, 0);
    }

    /// Gives everything back to the shared accounts.
    pub(super) fn close(&mut self, shared: &mut Context) {
        self.retire(shared);
        let [request_out, reply_out, request_in, reply_in, bulk] = &mut shared.pools;
        for (lane, pool) in [request_out, reply_out].into_iter().enumerate() {
            self.traffic.out[lane].fifo.clear(pool);
            self.traffic.bulk_out[lane].bytes.fifo.clear(bulk);
        }
        for (lane, pool) in [request_in, reply_in].into_iter().enumerate() {
            self.traffic.incoming[lane].fifo.clear(pool);
        }
    }
}

impl Traffic {
    /// Bytes of a lane have arrived.
    fn on_acked(&mut self, shared: &mut Context, lane: usize, offset: u64, len: u64) {
        let before = self.out[lane].queued();
        self.out[lane].on_acked(&mut shared.pools[lane], offset, len);
        if !self.retired {
            shared.queued[lane] -= before - self.out[lane].queued();
        }
    }

    /// Bytes were appended to a lane.
    fn on_queued(&self, shared: &mut Context, lane: usize, len: u64) {
        if !self.retired {
            shared.queued[lane] += len;
        }
        shared.accepted += len;
    }

    /// Something that was sent has arrived, or has to be sent again.
    pub(super) fn settle(&mut self, shared: &mut Context, path: &mut Path, outcome: Outcome, carried: Carried) {
        if outcome == Outcome::Lost {
            shared.counters.lost += 1;
        }
        match (carried, outcome) {
            (Carried::Stream { stream, offset, len }, outcome) => {
                let lane = usize::from(stream & 1);
                let len = u64::from(len);
                match (stream >= 2, outcome) {
                    (false, Outcome::Acked) => self.on_acked(shared, lane, offset, len),
                    (true, Outcome::Acked) => self.bulk_out[lane].on_acked(&mut shared.pools[BULK], offset, len),
                    (false, Outcome::Lost) => self.out[lane].on_lost(offset, len),
                    (true, Outcome::Lost) => self.bulk_out[lane].bytes.on_lost(offset, len),
                }
            }
            (Carried::Credit, Outcome::Lost) => (self.credit_dirty, self.credit_urgent) = (true, true),
            (Carried::Want, Outcome::Lost) => self.want_sent = 0,
            (Carried::Leave, Outcome::Lost) => self.leave_due = !self.leave_acked,
            (Carried::Leave, Outcome::Acked) => (self.leave_acked, self.leave_due) = (true, false),
            (Carried::Probe(size), Outcome::Acked) => self.path_grew |= path.on_acked(size),
            (Carried::Probe(size), Outcome::Lost) => path.on_lost(size),
            (Carried::Credit | Carried::Want, Outcome::Acked) => {}
        }
    }
}
