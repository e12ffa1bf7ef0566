//! Receiving: events of the SAFE queue, which never run a handler, and of the AM queue, which do.

use super::codec::{Bits, CreditByte, Form, HeaderData, Kind, LONG_TARGET, LongTarget, Target};
use super::config::FlowControl;
use super::events::{Am, Origin, Safe};
use super::firehose::Slot;
use super::joins::FrameHeader;
use super::one_sided::is_direct;
use super::reply_path::ConduitReplyPath;
use super::transport::{Chunk, Conduit};
use crate::credit::{Revoke, Surrender};
use crate::nic::HostMemory;
use am_core::segment::Memory;
use am_core::transport::{Arrival, Sink};
use am_core::{Payload, Peer, PeerStatus, Words};

/// Events that one look at a queue takes in at most, before it is the other queue's turn.
const SAFE_EVENTS: usize = 12;
const AM_EVENTS: usize = 8;
/// Turns that one poll takes at most without having anything for the sink.
const TURNS: u32 = 64;

/// A reply that lies in its chunk, complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyReply {
    bits: Bits,
    len: u32,
}

/// What a frame says besides its payload.
struct PendingLong {
    args: Words,
    place: LongTarget,
    /// Where its payload begins in it.
    at: usize,
}

/// Reads a frame's arguments and place; `None` if it is too short for what its bits say.
fn read_lead(memory: &HostMemory, begin: usize, len: usize, bits: &Bits) -> Option<PendingLong> {
    let args = 4 * usize::from(bits.args);
    let at = args + if bits.form.is_long() { LONG_TARGET } else { 0 };
    if at > len {
        return None;
    }
    let mut bytes = [0; 64];
    memory.load(begin, &mut bytes[..args]);
    let words = Words::from_le_bytes(&bytes[..args]).ok()?;
    let mut place = [0; LONG_TARGET];
    if bits.form.is_long() {
        memory.load(begin + args, &mut place);
    }
    Some(PendingLong { args: words, place: LongTarget::decode(place), at })
}

impl Conduit<'_> {
    fn piece_of(&self, chunk: u32) -> usize {
        (chunk / self.shared.config.chunk) as usize
    }

    /// The chunk of a request that went to a peer and is under way.
    fn chunk_of(&mut self, from: u32, chunk: u32) -> Option<&mut Chunk> {
        let piece = self.piece_of(chunk);
        let found = self.chunks.get_mut(piece)?;
        let exact = chunk.is_multiple_of(self.shared.config.chunk);
        (exact && found.busy && found.to == from && !found.replied).then_some(found)
    }

    /// Gives a chunk and its send slot back, if nothing needs it any more.
    fn settle(&mut self, chunk: u32) {
        let piece = self.piece_of(chunk);
        let state = &mut self.chunks[piece];
        if state.busy && state.left && state.delivered {
            state.busy = false;
            self.pieces.give(piece as u32);
            self.send_slots.give(1);
        }
    }

    /// The reply to a request has come, or what stands for it.
    fn replied(&mut self, chunk: u32, delivered: bool) {
        let piece = self.piece_of(chunk);
        let state = &mut self.chunks[piece];
        (state.replied, state.delivered) = (true, delivered);
        self.peers.of(state.to).under_way -= 1;
        self.outstanding -= 1;
        self.presence.fresh = true;
        if delivered {
            self.settle(chunk);
        }
    }

    /// Takes in what the SAFE queue has, at most so many events; replies become ready. Returns how many there
    /// were.
    pub(super) fn harvest(&mut self, most: usize) -> usize {
        let mut taken = 0;
        while taken < most {
            let Some(event) = self.wire.safe() else { break };
            taken += 1;
            self.safe_event(event);
        }
        taken
    }

    fn safe_event(&mut self, event: Safe) {
        match event {
            Safe::Left { origin, bits } if is_direct(origin, bits) => {
                let ended = self.direct.borrow_mut().operations.left_by(bits);
                self.direct_ended(ended);
            }
            Safe::Delivered { origin, bits, outcome } | Safe::Fetched { origin, bits, outcome }
                if is_direct(origin, bits) =>
            {
                let ended = self.direct.borrow_mut().operations.done(bits, outcome);
                self.direct_ended(ended);
            }
            Safe::Left { origin: Origin::Request, bits } => {
                let chunk = (bits >> 32) as u32;
                let piece = self.piece_of(chunk);
                self.chunks[piece].left = true;
                self.settle(chunk);
            }
            Safe::Left { origin: Origin::Reply, bits } => {
                self.send_slots.give(1);
                // The automatic ones have no slot.
                let had_slot = Bits::decode(bits).is_some_and(|bits| bits.kind == Kind::Reply);
                self.slots_left += u64::from(had_slot);
            }
            Safe::Left { origin: Origin::Temporary(slot), bits } => {
                self.direct.borrow_mut().registered.give(Slot(slot));
                assert!(self.staging.left_from(Slot(slot)), "Long payloads leave from staging memory");
                if bits as u8 == Target::RarSrc as u8 {
                    self.send_slots.give(1);
                }
            }
            Safe::Refused { bits } => self.refused(bits.chunk),
            Safe::Placed { from, bits } => {
                let Some(chunk) = self.chunk_of(from, bits.chunk) else { return self.lose(from) };
                chunk.placed = true;
                let piece = self.piece_of(bits.chunk);
                if let Some(found) = self.headed.iter().position(|(headed, _)| *headed == piece) {
                    let (_, reply) = self.headed.swap_remove(found);
                    self.ready.push_back(reply);
                    self.replied(bits.chunk, false);
                }
            }
            Safe::Reply { from, bits, data, len } => self.reply_event(from, bits, data, len),
            Safe::Left { .. } | Safe::Delivered { .. } | Safe::Fetched { .. } | Safe::Nothing => {}
        }
    }

    /// An automatic reply of this rank to itself.
    pub(super) fn credited(&mut self, me: u32, chunk: u32, credit: CreditByte) {
        self.give_itself(me, credit);
        self.replied(chunk, true);
    }

    /// Credits of this rank's own.
    pub(super) fn give_itself(&mut self, me: u32, credit: CreditByte) {
        let back = credit.as_return(self.shared.config.extra);
        assert!(self.peers.of(me).right.accept(back), "a rank gives itself what it owes itself");
        if let Some(order) = &mut self.peers.of(me).order {
            order.succeed();
        }
        self.presence.fresh = true;
    }

    fn reply_event(&mut self, from: u32, bits: Bits, data: HeaderData, len: u32) {
        let size = self.shared.config.chunk;
        let tells = self.wire.tells_payloads();
        let Some(chunk) = self.chunk_of(from, bits.chunk) else { return self.lose(from) };
        if bits.kind.is_request() || data.source != from || len != data.length || len > size {
            return self.lose(from);
        }
        if bits.kind == Kind::Again {
            return self.refused(bits.chunk);
        }
        let placed = chunk.placed || !tells;
        let back = data.credit.as_return(self.shared.config.extra);
        if !self.peers.of(from).right.accept(back) {
            return self.lose(from);
        }
        if let Some(order) = &mut self.peers.of(from).order {
            order.succeed();
        }
        match bits.kind {
            Kind::Reply => {
                let reply = ReadyReply { bits, len };
                if bits.form == Form::Unpacked && !placed {
                    let piece = self.piece_of(bits.chunk);
                    self.headed.push((piece, reply));
                } else {
                    self.ready.push_back(reply);
                    self.replied(bits.chunk, false);
                }
            }
            Kind::Surrender => {
                let surrender = Surrender { credits: bits.handler.into() };
                let taken = self.ledger.bank().map(|bank| bank.surrendered(Peer(from), surrender));
                self.replied(bits.chunk, true);
                if taken.is_none_or(|taken| taken.is_err()) {
                    self.lose(from);
                }
            }
            Kind::Credit => self.replied(bits.chunk, true),
            // The rest of the reply follows.
            _ => self.presence.fresh = true,
        }
    }

    /// Forgets requests to peers that are gone, whose replies will never come.
    pub(super) fn sweep(&mut self) {
        let gone = self.presence.gone(self.nic.context());
        if self.swept == gone {
            return;
        }
        let (size, mut complete) = (self.shared.config.chunk, true);
        for piece in 0..self.chunks.len() {
            let Chunk { to, busy, replied, .. } = self.chunks[piece];
            if !busy || replied || self.known_status(to) == PeerStatus::Active {
                continue;
            }
            // Its last reply may be between the wire and the queue until its departure counts.
            match self.counting_status(to) {
                PeerStatus::Active => complete = false,
                _ => self.replied(piece as u32 * size, true),
            }
        }
        if complete {
            self.swept = gone;
        }
    }

    /// Brings the credits of lost peers back to the bank, once nothing of theirs can be in the receive buffers.
    fn settle_losses(&mut self) {
        let losses = self.nic.context().losses();
        if losses == self.settled_losses {
            return;
        }
        self.settled_losses = losses;
        for peer in 0..self.nic.ranks() {
            let lost = matches!(self.nic.context().known_status(peer), PeerStatus::Lost(_));
            if let (true, Some(bank)) = (lost, self.ledger.bank()) {
                bank.lose(Peer(peer)).expect("it is a peer of the job");
            }
        }
    }

    /// Takes what has arrived to the sink, at most `budget` messages: the conduit's own work, then the SAFE queue,
    /// then the AM queue, the last only while holding all that a reply may need.
    pub(super) fn serve<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        for _ in 0..TURNS {
            self.work();
            let mut taken = self.harvest(SAFE_EVENTS);
            while done < budget && self.tell_completed(sink) {
                done += 1;
            }
            while done < budget
                && let Some(reply) = self.ready.pop_front()
            {
                self.deliver_reply(reply, sink);
                done += 1;
            }
            for _ in 0..AM_EVENTS {
                if done >= budget {
                    break;
                }
                if !self.holds_reply() {
                    if done > 0 || !self.await_reply_room() {
                        break;
                    }
                    // Replies that came meanwhile go first.
                    taken += 1;
                    break;
                }
                if let Some((from, heading)) = self.joined.pop_front() {
                    self.deliver_joined(from, &heading, sink);
                    done += 1;
                    continue;
                }
                let Some(event) = self.wire.am() else {
                    self.drained();
                    break;
                };
                taken += 1;
                done += usize::from(self.am_event(event, sink));
            }
            if done > 0 || taken == 0 {
                return done;
            }
        }
        self.presence.fresh = true;
        done
    }

    /// Waits for what a reply needs: for the interface to send replies that were given to it, never for a peer.
    /// Without that, a poll that brings nothing would not tell that nothing is there. Returns whether it may be
    /// there now.
    fn await_reply_room(&mut self) -> bool {
        while !self.holds_reply() {
            if self.harvest(SAFE_EVENTS) == 0 {
                if std::thread::panicking() {
                    return false;
                }
                self.presence.fresh = true;
                self.wire.idle_safe("what a reply needs");
            }
        }
        true
    }

    /// The AM queue is empty.
    fn drained(&mut self) {
        if std::mem::take(&mut self.disabled) {
            self.wire.enable();
        }
        self.settle_losses();
    }

    /// Takes in an event of the AM queue; returns whether the sink was given something.
    fn am_event<S: Sink>(&mut self, event: Am, sink: &mut S) -> bool {
        match event {
            Am::Unlinked(buffer) => {
                // Everything in it has been handled: the events of its messages were before this one.
                self.wire.link(buffer);
                false
            }
            Am::Disabled => {
                self.disabled = true;
                self.disabled_times += 1;
                false
            }
            Am::Placed { from, bits } => {
                if let Some(heading) = self.peers.of(from).joins.get_or_insert_default().place(bits.chunk) {
                    self.joined.push_back((from, heading));
                }
                false
            }
            Am::Request { from, bits, data, at, len } => self.request_event(from, bits, data, at, len, sink),
            Am::Malformed { from } => {
                self.lose(from);
                false
            }
            Am::Nothing => false,
        }
    }

    fn request_event<S: Sink>(
        &mut self,
        from: u32,
        bits: Bits,
        data: HeaderData,
        at: u64,
        len: u32,
        sink: &mut S,
    ) -> bool {
        let Bits { chunk, kind, form, .. } = bits;
        let credit = data.credit;
        if self.presence.faulty.contains(Peer(from)) {
            return false;
        }
        let memory = self.memories.inbox.clone();
        let lead = read_lead(&memory, at as usize, len as usize, &bits);
        let segment = self.shared.config.segment;
        let in_segment =
            |place: &LongTarget| place.offset.checked_add(place.len).is_some_and(|end| end <= segment);
        let counted = self.shared.config.flow != FlowControl::Disable;
        let unpacked = form == Form::Unpacked;
        let right = counted.then(|| self.cost(len as usize, unpacked) == credit.cost());
        let Some(lead) = lead.filter(|lead| {
            let payload = len as usize - lead.at;
            kind.is_request()
                && data.source == from
                && right.unwrap_or(true)
                && (!counted || data.length == len)
                && (!form.is_long() || in_segment(&lead.place))
                && (form != Form::Packed || lead.place.len == payload as u64)
                && (form != Form::Short && !unpacked || payload == 0)
        }) else {
            self.lose(from);
            return false;
        };
        if !counted && !self.takes_turn(from, chunk, data.length) {
            return false;
        }
        let cost = credit.cost();
        if !self.ledger.arrive(from, credit.as_charge(self.shared.config.extra), &mut self.peers) {
            // It would have found room only where another had a right to it.
            self.lose(from);
            return false;
        }
        self.nic.charge(self.shared.overhead);
        if kind == Kind::Revoke {
            self.honour(from, chunk, credit, bits.handler);
            return false;
        }
        let PendingLong { args, place, at: begin } = lead;
        if unpacked {
            let heading = FrameHeader { bits, credit, args, place };
            let heading = if self.wire.tells_payloads() {
                self.peers.of(from).joins.get_or_insert_default().head(heading)
            } else {
                Some(heading)
            };
            let Some(heading) = heading else { return false };
            self.deliver_joined(from, &heading, sink);
            return true;
        }
        let (begin, payload) = (at + begin as u64, len as usize - begin);
        if form == Form::Packed {
            self.unpack(&memory, begin as usize, &place);
            self.deliver_joined(from, &FrameHeader { bits, credit, args, place }, sink);
            return true;
        }
        let payload = Payload::in_memory(&memory, begin as usize, payload);
        self.hand_over(from, &bits, cost, &args, payload, sink);
        true
    }

    /// Whether a request's turn in its pair has come; it is dropped otherwise, and its sender told so.
    fn takes_turn(&mut self, from: u32, chunk: u32, number: u32) -> bool {
        let testing = self.shared.config.testing.out_of_turn;
        let order = self.peers.of(from).order.get_or_insert_default();
        if order.takes(number) || testing {
            return true;
        }
        self.signal(from, chunk, 0, Kind::Again, 0);
        false
    }

    /// Gives credits up that a peer wants back.
    fn honour(&mut self, from: u32, chunk: u32, credit: CreditByte, limit: u8) {
        let revoke = Revoke { limit: limit.into(), end_of_epoch: credit.ends_epoch() };
        let surrender = match &mut self.peers.of(from).right {
            super::peers::Right::Loan(borrower) => borrower.honour(revoke).map_or(0, |answer| answer.credits),
            _ => 0,
        };
        self.signal(from, chunk, credit.cost(), Kind::Surrender, surrender as u8);
    }

    /// Copies a packed Long payload to its place.
    fn unpack(&self, memory: &HostMemory, begin: usize, place: &LongTarget) {
        self.nic.charge(self.shared.copying(place.len as usize));
        let (mut buffer, mut done) = ([0; 512], 0);
        while done < place.len as usize {
            let part = (place.len as usize - done).min(buffer.len());
            memory.load(begin + done, &mut buffer[..part]);
            let written = self.segment.write(place.offset + done as u64, &buffer[..part]);
            written.expect("the place was checked");
            done += part;
        }
    }

    fn deliver_joined<S: Sink>(&mut self, from: u32, heading: &FrameHeader, sink: &mut S) {
        let segment = self.segment.clone();
        let LongTarget { offset, len } = heading.place;
        let payload = segment.view(offset, len as usize).expect("the place was checked when the header came");
        self.hand_over(from, &heading.bits, heading.credit.cost(), &heading.args, payload, sink);
    }

    fn hand_over<S: Sink>(
        &mut self,
        from: u32,
        bits: &Bits,
        cost: u32,
        args: &Words,
        payload: Payload<'_>,
        sink: &mut S,
    ) {
        let Bits { chunk, handler, kind, form, .. } = *bits;
        if kind == Kind::Control {
            self.signal(from, chunk, cost, Kind::Credit, 0);
            return sink.control(Peer(from), args, payload);
        }
        let arrival = Arrival::new(Peer(from), form.category(), handler, args, payload);
        let mut path = ConduitReplyPath::of_request(self, from, chunk, cost, kind == Kind::Request);
        sink.request(arrival, &mut path);
    }

    fn deliver_reply<S: Sink>(&mut self, reply: ReadyReply, sink: &mut S) {
        let ReadyReply { bits, len } = reply;
        let piece = self.piece_of(bits.chunk);
        let from = self.chunks[piece].to;
        // Nothing can be sent from the chunk before the handler has ended, even if it unwinds.
        self.chunks[piece].delivered = true;
        self.settle(bits.chunk);
        let memory = self.memories.requests.clone();
        self.nic.charge(self.shared.overhead);
        let segment = self.shared.config.segment;
        let lead = read_lead(&memory, bits.chunk as usize, len as usize, &bits);
        match lead {
            Some(PendingLong { args, place, at }) => {
                let payload = len as usize - at;
                let inside = place.offset.checked_add(place.len).is_some_and(|end| end <= segment);
                let fits = match bits.form {
                    Form::Short => payload == 0,
                    Form::Medium => true,
                    Form::Packed => inside && place.len == payload as u64,
                    Form::Unpacked => inside && payload == 0,
                };
                if fits {
                    let begin = bits.chunk as usize + at;
                    if bits.form == Form::Packed {
                        self.unpack(&memory, begin, &place);
                    }
                    let segment = self.segment.clone();
                    let payload = if bits.form.is_long() {
                        segment.view(place.offset, place.len as usize).expect("the place was checked")
                    } else {
                        Payload::in_memory(&memory, begin, payload)
                    };
                    let (category, handler) = (bits.form.category(), bits.handler);
                    sink.reply(Arrival::new(Peer(from), category, handler, &args, payload));
                } else {
                    self.lose(from);
                }
            }
            None => self.lose(from),
        }
    }
}
