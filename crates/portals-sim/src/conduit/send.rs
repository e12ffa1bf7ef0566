//! Sending: what a request needs before it may leave, requests, replies, revocations, and requests that are sent
//! again.

use super::codec::{Bits, CreditByte, Form, HeaderData, Kind, LONG_TARGET, LongTarget, MOST_LENGTH, Target};
use super::config::FlowControl;
use super::one_sided::Direct;
use super::registered::Covered;
use super::send_slots::{FOR_CONTROL, FOR_REPLY};
use super::transport::{Chunk, Conduit, write_args};
use crate::credit::CreditUse;
use crate::nic::HostMemory;
use am_core::segment::Memory;
use am_core::transport::{Body, Refused};
use am_core::{Peer, PeerStatus, Resource, Words};

/// A frame to be sent.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'f> {
    pub(super) kind: Kind,
    pub(super) form: Form,
    pub(super) handler: u8,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
    /// Where a Long payload goes.
    pub(super) at: u64,
}

/// What room is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Request,
    /// A Long request whose payload goes by itself.
    Unpacked,
    /// A message between cores, for which requests leave some room.
    Control,
}

/// What a request takes, to be given back if it is not sent.
#[derive(Debug)]
pub struct Admitted {
    /// Offset of its chunk.
    pub(super) chunk: u32,
    charge: CreditUse,
}

/// A request that may have to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    bits: Bits,
    len: u32,
    pub(super) number: u32,
}

/// The requester takes no more messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone;

impl Conduit<'_> {
    /// How a body travels, its payload, and where that is placed.
    pub(super) fn form_of<'b>(&self, args: &Words, body: Body<'b>) -> (Form, &'b [u8], u64) {
        match body {
            Body::None => (Form::Short, &[], 0),
            Body::Copy(payload) => (Form::Medium, payload, 0),
            Body::Place(payload, at) => (self.long_form(args, payload.len()), payload, at),
        }
    }

    /// How a Long payload of some bytes travels.
    fn long_form(&self, args: &Words, payload: usize) -> Form {
        let packed = 4 * args.len() + LONG_TARGET + payload <= self.shared.config.chunk as usize;
        if packed { Form::Packed } else { Form::Unpacked }
    }

    /// Bytes of a frame before its payload.
    pub(super) fn lead(form: Form, args: &Words) -> usize {
        4 * args.len() + if form.is_long() { LONG_TARGET } else { 0 }
    }

    /// What a request of some bytes costs.
    pub(super) fn cost(&self, bytes: usize, unpacked: bool) -> u32 {
        // The payload of an unpacked Long message takes an event, too.
        self.shared.sizes.costs.of(bytes) + u32::from(unpacked)
    }

    /// Takes all that a request of some bytes needs: a send slot, a chunk and credits.
    pub(super) fn admit(&mut self, to: Peer, bytes: usize, purpose: Purpose) -> Result<Admitted, Refused> {
        if self.known_status(to.0) != PeerStatus::Active {
            return Err(match self.counting_status(to.0) {
                PeerStatus::Active => self.busy(Resource::Connection),
                status => Refused::Gone(status),
            });
        }
        let unreserved = self.shared.config.testing.unreserved;
        let leave = if purpose == Purpose::Control || unreserved { 0 } else { FOR_CONTROL };
        let short = |conduit: &Self| conduit.send_slots.for_requests().min(conduit.pieces.left()) <= leave;
        if short(self) {
            self.harvest(usize::MAX);
            if short(self) {
                self.sweep();
            }
            if short(self) {
                return Err(self.busy(Resource::Interface));
            }
        }
        let cost = self.cost(bytes, purpose == Purpose::Unpacked);
        let most = self.shared.sizes.most_per_peer;
        let peer = self.peers.of(to.0);
        if purpose != Purpose::Control && !unreserved && peer.under_way >= most {
            return Err(self.busy(Resource::RequestFrames));
        }
        if peer.order.as_ref().is_some_and(|order| order.is_stalled()) {
            return Err(self.busy(Resource::Credits));
        }
        let Some(charge) = peer.right.take(cost) else { return Err(self.busy(Resource::Credits)) };
        let piece = self.pieces.take(0).expect("a chunk was seen a moment ago");
        assert!(self.send_slots.take_for_request(1), "a send slot was seen a moment ago");
        if self.chunks.len() <= piece as usize {
            self.chunks.resize(piece as usize + 1, Chunk::default());
        }
        self.chunks[piece as usize] = Chunk { to: to.0, busy: true, ..Chunk::default() };
        // What is left of its last request concerns a peer that was lost.
        self.headed.retain(|(headed, _)| *headed != piece as usize);
        if let Some(again) = self.again.get_mut(piece as usize) {
            *again = None;
        }
        Ok(Admitted { chunk: piece * self.shared.config.chunk, charge })
    }

    /// Gives back what was not used.
    pub(super) fn withdraw(&mut self, to: u32, admitted: Admitted) {
        self.peers.of(to).right.cancel(admitted.charge);
        let piece = admitted.chunk / self.shared.config.chunk;
        self.chunks[piece as usize].busy = false;
        self.pieces.give(piece);
        self.send_slots.give(1);
    }

    /// Sends a request, or refuses it as a whole.
    pub(super) fn send_frame(&mut self, to: Peer, frame: &Outgoing<'_>) -> Result<(), Refused> {
        let Outgoing { form, args, payload, at, .. } = *frame;
        let unpacked = form == Form::Unpacked;
        let lead = Self::lead(form, args);
        let bytes = if unpacked { lead } else { lead + payload.len() };
        let purpose = match (frame.kind, unpacked) {
            (Kind::Control, _) => Purpose::Control,
            (_, true) => Purpose::Unpacked,
            (_, false) => Purpose::Request,
        };
        let admitted = self.admit(to, bytes, purpose)?;
        if unpacked {
            // Replies may need the last stage.
            let Some(staged) = (if self.staging.left() > 1 { self.stage(payload) } else { None }) else {
                self.harvest(usize::MAX);
                self.withdraw(to.0, admitted);
                return Err(self.busy(Resource::Interface));
            };
            self.put_payload(to.0, &staged, payload.len(), at, Target::RarAm, admitted.chunk);
        }
        self.launch(to.0, admitted, frame, if unpacked { 0 } else { payload.len() });
        Ok(())
    }

    /// Writes a request into its chunk, and sends it. A payload that is there already is not in the frame, only
    /// its length.
    pub(super) fn launch(&mut self, to: u32, admitted: Admitted, frame: &Outgoing<'_>, payload: usize) {
        let Admitted { chunk, charge } = admitted;
        let memory = self.memories.requests.clone();
        let lead = self.write_frame(&memory, chunk as usize, frame);
        let len = (lead + payload) as u32;
        let Outgoing { kind, form, handler, args, .. } = *frame;
        let bits = Bits { target: Target::ReqRb, chunk, args: args.len() as u8, handler, kind, form };
        self.launch_bits(to, bits, len, CreditByte::charge(charge, self.shared.config.extra));
    }

    fn launch_bits(&mut self, to: u32, bits: Bits, len: u32, credit: CreditByte) {
        let mut length = len;
        if self.shared.config.flow == FlowControl::Disable {
            length = self.peers.of(to).order.get_or_insert_default().number();
            let piece = (bits.chunk / self.shared.config.chunk) as usize;
            self.again.resize(self.chunks.len(), None);
            self.again[piece] = Some(Again { bits, len, number: length });
        }
        self.outstanding += 1;
        self.peers.of(to).under_way += 1;
        self.wire.request(to, bits.chunk, len, bits, HeaderData { source: self.presence.me, length, credit });
    }

    /// Writes arguments, place and payload; returns how many bytes are before the payload.
    fn write_frame(&self, memory: &HostMemory, begin: usize, frame: &Outgoing<'_>) -> usize {
        let Outgoing { form, args, payload, at, .. } = *frame;
        let mut lead = write_args(memory, begin, args);
        if form.is_long() {
            memory.store(begin + lead, &LongTarget { offset: at, len: payload.len() as u64 }.encode());
            lead += LONG_TARGET;
        }
        if form != Form::Unpacked && !payload.is_empty() {
            self.nic.charge(self.shared.copying(payload.len()));
            memory.store(begin + lead, payload);
        }
        lead
    }

    /// Copies a payload to staging memory that is registered; `None` while there is none.
    fn stage(&mut self, payload: &[u8]) -> Option<Covered> {
        let (index, memory) = self.staging.take(payload.len())?;
        let Direct { registered, .. } = &mut *self.direct.borrow_mut();
        let Ok(covered) = registered.take(&self.nic, &self.wire, &memory, 0, memory.len() as u64) else {
            self.staging.withdraw(index);
            return None;
        };
        self.staging.register(index, covered.slot);
        self.nic.charge(self.shared.copying(payload.len()));
        memory.store(0, payload);
        Some(covered)
    }

    fn put_payload(&self, to: u32, staged: &Covered, len: usize, at: u64, target: Target, chunk: u32) {
        let kind = if target == Target::RarAm { Kind::Request } else { Kind::Reply };
        let bits = Bits { target, chunk, args: 0, handler: 0, kind, form: Form::Unpacked };
        self.wire.payload(to, staged.md, len as u32, at, bits);
    }

    /// Sends a reply into the chunk of its request, with the credits of that. Waits for the interface where need
    /// be.
    pub(super) fn reply(&mut self, to: u32, chunk: u32, cost: u32, frame: &Outgoing<'_>) -> Result<(), Gone> {
        let unpacked = frame.form == Form::Unpacked;
        self.await_send_slots(1 + u32::from(unpacked))?;
        let (slots, size) = (u64::from(self.shared.config.reply_slots), u64::from(self.shared.config.chunk));
        while self.slots_begun - self.slots_left == slots {
            if !self.await_interface("a reply slot") {
                return Err(Gone);
            }
        }
        if unpacked {
            let staged = loop {
                if let Some(staged) = self.stage(frame.payload) {
                    break staged;
                }
                if !self.await_interface("registered memory") {
                    return Err(Gone);
                }
            };
            self.send_slots.spend();
            self.put_payload(to, &staged, frame.payload.len(), frame.at, Target::RarSrc, chunk);
        }
        let slot = self.slots_begun % slots * size;
        self.slots_begun += 1;
        self.send_slots.spend();
        let memory = self.memories.replies.clone();
        let lead = self.write_frame(&memory, slot as usize, frame);
        let length = (lead + if unpacked { 0 } else { frame.payload.len() }) as u32;
        let credit = CreditByte::back(self.ledger.give(to, cost, &mut self.peers), self.shared.config.extra);
        let Outgoing { kind, form, handler, args, .. } = *frame;
        let bits = Bits { target: Target::ReqSb, chunk, args: args.len() as u8, handler, kind, form };
        self.wire.reply(to, slot, length, bits, HeaderData { source: self.presence.me, length, credit });
        Ok(())
    }

    /// Sends what the conduit itself answers: no bytes, a handler's number at most, and credits.
    pub(super) fn signal(&mut self, to: u32, chunk: u32, cost: u32, kind: Kind, number: u8) {
        // The credits are back in any case.
        let credit = CreditByte::back(self.ledger.give(to, cost, &mut self.peers), self.shared.config.extra);
        // What a rank sent to itself and does not answer need not travel back; nor may the credits of what is
        // detached, which what stands for the answer would overtake.
        if to == self.presence.me && kind == Kind::Credit {
            return self.credited(to, chunk, credit);
        }
        if to == self.presence.me && kind == Kind::Ahead {
            return self.give_itself(to, credit);
        }
        if self.known_status(to) != PeerStatus::Active || self.await_send_slots(1).is_err() {
            return;
        }
        self.send_slots.spend();
        let bits = Bits { target: Target::ReqSb, chunk, args: 0, handler: number, kind, form: Form::Short };
        self.wire.reply(to, 0, 0, bits, HeaderData { source: self.presence.me, length: 0, credit });
    }

    /// Holds so many send slots for replies at least.
    fn await_send_slots(&mut self, count: u32) -> Result<(), Gone> {
        while !self.send_slots.hold(count) {
            if !self.await_interface("a send slot for a reply") {
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// Whether all that the reply to one more request can need is held: two send slots, a reply slot, staging
    /// memory.
    pub(super) fn holds_reply(&mut self) -> bool {
        if self.shared.config.testing.unreserved {
            return true;
        }
        self.send_slots.hold(FOR_REPLY)
            && self.slots_begun - self.slots_left < self.shared.config.reply_slots.into()
            && self.staging.left() > 0
    }

    /// The conduit's own work: asks quiet peers for credits back, as long as there is what that takes.
    pub(super) fn work(&mut self) {
        if !self.stalled.is_empty() {
            self.send_again();
        }
        while let Some(victim) = self.ledger.bank().and_then(|bank| bank.revocation_waits_for()) {
            let admitted = match self.admit(victim, 0, Purpose::Request) {
                Ok(admitted) => admitted,
                Err(refused) => {
                    let bank = self.ledger.bank().expect("there is a bank");
                    if let Refused::Gone(_) = refused {
                        // Its credits come back as those of the lost do; the revocation is over with it.
                        bank.drop_revocation();
                        continue;
                    }
                    bank.postpone_revocation();
                    return;
                }
            };
            let revocation = self.ledger.bank().and_then(|bank| bank.next_revocation());
            let Some((_, revoke)) = revocation.filter(|(peer, _)| *peer == victim) else {
                self.withdraw(victim.0, admitted);
                return;
            };
            let Admitted { chunk, charge } = admitted;
            let handler = revoke.limit as u8;
            let bits =
                Bits { target: Target::ReqRb, chunk, args: 0, handler, kind: Kind::Revoke, form: Form::Short };
            self.revoked += 1;
            let credit = CreditByte::revoke(charge, self.shared.config.extra, revoke.end_of_epoch);
            self.launch_bits(victim.0, bits, 0, credit);
        }
    }

    /// A request was refused or dropped by its receiver.
    pub(super) fn refused(&mut self, chunk: u32) {
        let piece = (chunk / self.shared.config.chunk) as usize;
        let Some(Chunk { to, busy: true, .. }) = self.chunks.get(piece).copied() else { return };
        let Some(again) = self.again.get(piece).copied().flatten() else { return };
        let (now, pause) = (self.nic.now(), self.shared.pause);
        let order = self.peers.of(to).order.get_or_insert_default();
        order.refuse(again.number & MOST_LENGTH, chunk, now, pause);
        if !self.stalled.contains(&to) {
            self.stalled.push(to);
        }
    }

    fn send_again(&mut self) {
        let now = self.nic.now();
        let mut index = 0;
        while let Some(to) = self.stalled.get(index).copied() {
            if self.known_status(to) != PeerStatus::Active {
                self.stalled.swap_remove(index);
                continue;
            }
            while let Some((_, chunk)) = self.peers.of(to).order.get_or_insert_default().again(now) {
                let piece = (chunk / self.shared.config.chunk) as usize;
                let request = self.again[piece].filter(|_| self.chunks[piece].busy);
                if let Some(Again { bits, len, number }) = request {
                    self.resent += 1;
                    self.chunks[piece].left = false;
                    let data =
                        HeaderData { source: self.presence.me, length: number, credit: CreditByte::default() };
                    self.wire.request(to, chunk, len, bits, data);
                }
            }
            if self.peers.of(to).order.as_ref().is_some_and(|order| order.is_stalled()) {
                index += 1;
            } else {
                self.stalled.swap_remove(index);
            }
        }
    }
}
