//! Sending: admission, cutting frames into packets, writes, and the credits that are owed to others.

use super::config::note;
use super::frame::{Header, LEAD, LongTarget, NO_SLOT, PART, cut, packets, write_lead};
use super::stages::{Purpose, Transfer};
use super::transport::{BUFFERS_AT, Conduit, NOTES_AT, SEGMENT_AT};
use crate::nic::{Address, Notify, PacketError, RdmaError};
use am_core::transport::{Refused, ReplyBound};
use am_core::{Peer, PeerStatus, Resource, Words};
use fabric_sim::WaitFor;
use fabric_sim::conduit::Kind;

/// The peer takes no more messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone;

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// The interface takes nothing now, and nothing was sent.
    Busy,
    Gone,
}

/// The slots that a request takes, given back if it is not sent.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    slot: u8,
    reply: u8,
}

/// A frame to be sent.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'f> {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) slots: Admitted,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
    pub(super) offset: u64,
}

impl Admitted {
    /// Of a reply, in a slot of its requester's.
    pub(super) const fn reply(slot: u8) -> Self {
        Self { slot, reply: NO_SLOT }
    }
}

impl Conduit<'_> {
    /// Whether there is a way to a peer.
    pub(super) fn check(&mut self, to: u32) -> Result<(), Refused> {
        match self.known_status(to) {
            PeerStatus::Active if self.nic.context().announced(to).is_some() => Ok(()),
            PeerStatus::Active => Err(self.busy(Resource::Connection)),
            status => Err(Refused::Gone(status)),
        }
    }

    /// Whether a payload travels in packets.
    fn is_inline(&self, kind: Kind, payload: usize) -> bool {
        !kind.is_long() && payload <= self.shared.config.inline as usize
    }

    /// Takes the slots that a request with so many bytes of payload needs.
    pub(super) fn admit(
        &mut self,
        to: Peer,
        kind: Kind,
        reply: ReplyBound,
        payload: usize,
    ) -> Result<Admitted, Refused> {
        self.check(to.0)?;
        let sizes = self.shared.sizes;
        let small = kind == Kind::Control && self.is_inline(kind, payload);
        let of = if small { sizes.control_slots() } else { sizes.request_slots() };
        let peer = self.peers.of(to.0);
        let Some(slot) = peer.slots.take(of) else {
            return Err(self.busy(Resource::of_request(payload)));
        };
        let mut admitted = Admitted { slot, reply: NO_SLOT };
        if reply != ReplyBound::None {
            let Some(slot) = peer.replies.take(u32::MAX) else {
                peer.slots.give(1 << admitted.slot).expect("the slot was just taken");
                return Err(self.busy(Resource::of_reply(reply)));
            };
            admitted.reply = slot;
        }
        self.unhandled += u64::from(!small);
        Ok(admitted)
    }

    /// Gives back what was not used.
    pub(super) fn withdraw_slots(&mut self, to: u32, admitted: Admitted) {
        let requests = self.shared.sizes.request_slots();
        let peer = self.peers.of(to);
        let slot = peer.slots.give(1 << admitted.slot);
        let reply = if admitted.reply == NO_SLOT { Ok(()) } else { peer.replies.give(1 << admitted.reply) };
        assert!(slot.is_ok() && reply.is_ok(), "what was taken is in use");
        self.unhandled -= u64::from(1 << admitted.slot & requests != 0);
    }

    /// Sends a request that has been admitted; on a refusal gives back what it took.
    pub(super) fn request(&mut self, to: Peer, frame: &Outgoing<'_>) -> Result<(), Refused> {
        let sent = self.transmit(to.0, frame, false).map_err(|failure| match failure {
            Failure::Busy => self.busy(Resource::Interface),
            Failure::Gone => Refused::Gone(self.gone_status(to.0)),
        });
        if sent.is_err() {
            self.withdraw_slots(to.0, frame.slots);
        }
        sent
    }

    /// What is to be said of a peer that takes no more.
    fn gone_status(&self, to: u32) -> PeerStatus {
        match self.known_status(to) {
            // While it unwinds, a rank reaches nobody.
            PeerStatus::Active => PeerStatus::Lost(am_core::LossCause::Broken),
            status => status,
        }
    }

    /// Sends a frame that has room; waits for the interface where need be.
    pub(super) fn insist(&mut self, to: u32, frame: &Outgoing<'_>) -> Result<(), Gone> {
        self.transmit(to, frame, true).map_err(|_| Gone)
    }

    /// Sends a frame that has room. Unless it insists, it is refused if the interface does not take the first
    /// packet at once.
    fn transmit(&mut self, to: u32, frame: &Outgoing<'_>, insists: bool) -> Result<(), Failure> {
        let Outgoing { kind, handler, slots, args, payload, offset } = *frame;
        let inline = self.is_inline(kind, payload.len());
        let written = !inline && !payload.is_empty();
        if written && !insists && self.stages.left() == 0 {
            return Err(Failure::Busy);
        }
        self.nic.charge(self.shared.costs.compose);
        let peer = self.peers.of(to);
        let (handled, freed) = (std::mem::take(&mut peer.handled), std::mem::take(&mut peer.freed));
        let write = if written { peer.writes.wrapping_add(1).max(1) } else { 0 };
        let direct = if inline { payload } else { &[] };
        let header = Header {
            kind,
            handler,
            args: args.len() as u8,
            slot: slots.slot,
            reply: slots.reply,
            payload: direct.len() as u16,
            write,
            handled,
            freed,
        };
        let mut lead = [0; LEAD];
        let place = LongTarget { offset, len: payload.len() as u64 };
        let end = write_lead(&mut lead, &header, place, args);
        if let Err(failure) = self.packets(to, &lead[..end], direct, insists) {
            // The credits go with a later frame.
            let peer = self.peers.of(to);
            peer.handled |= handled;
            peer.freed |= freed;
            return Err(failure);
        }
        if written {
            self.peers.of(to).writes = write;
            self.writes(to, frame, write).map_err(|Gone| Failure::Gone)?;
        }
        Ok(())
    }

    /// Sends the packets of a frame.
    fn packets(&mut self, to: u32, lead: &[u8], payload: &[u8], insists: bool) -> Result<(), Failure> {
        let address = self.nic.address(to).ok_or(Failure::Gone)?;
        let mut packet = [0; 4 + PART];
        for index in 0..packets(lead.len() + payload.len()) {
            let turn = self.peers.of(to).turn;
            let len = cut(&mut packet, turn, lead, payload, index);
            while let Err(error) = self.nic.pkt_send(address, &packet[..len]) {
                if !matches!(error, PacketError::Full { .. }) {
                    return Err(Failure::Gone);
                }
                if index == 0 && !insists {
                    return Err(Failure::Busy);
                }
                self.await_interface(to).map_err(|Gone| Failure::Gone)?;
            }
            self.peers.of(to).turn = turn.wrapping_add(1);
        }
        Ok(())
    }

    /// Waits until the interface may take more. Takes in what arrives meanwhile, without delivering it: so whoever
    /// waits for this rank's mailbox goes on.
    fn await_interface(&mut self, to: u32) -> Result<(), Gone> {
        let found = self.take_in();
        // While it unwinds, a rank cannot wait.
        if self.known_status(to) != PeerStatus::Active || std::thread::panicking() {
            return Err(Gone);
        }
        if !found {
            // This takes the news of whatever arrives, which the next poll has to look at before the rank may
            // sleep.
            self.presence.fresh = true;
            self.nic.idle(self.refusals.until(None), WaitFor::Room { to, of: Resource::Interface });
        }
        Ok(())
    }

    /// Writes a payload where it belongs at the peer, by way of the stages. The last part is written once the
    /// others are there, and tells the peer.
    fn writes(&mut self, to: u32, frame: &Outgoing<'_>, number: u32) -> Result<(), Gone> {
        let address = self.nic.address(to).ok_or(Gone)?;
        let (slot, reply) = (frame.slots.slot, matches!(frame.kind, Kind::Reply(_)));
        let place = if frame.kind.is_long() {
            SEGMENT_AT + frame.offset
        } else {
            BUFFERS_AT + self.shared.sizes.buffer(self.presence.me, reply, slot)
        };
        let notify = Notify { at: NOTES_AT + note(self.presence.me, reply, slot), value: number.into() };
        let largest = self.shared.config.stage_bytes as usize;
        let count = frame.payload.len().div_ceil(largest);
        for (index, part) in frame.payload.chunks(largest).enumerate() {
            let last = index + 1 == count;
            while last && self.parts_under_way(to) {
                self.await_interface(to)?;
            }
            // A part that came to nothing takes its peer with it.
            if self.known_status(to) != PeerStatus::Active {
                return Err(Gone);
            }
            let (purpose, notify) = if last { (Purpose::Message, Some(notify)) } else { (Purpose::Part, None) };
            self.write(to, address, place + (index * largest) as u64, part, purpose, notify)?;
        }
        Ok(())
    }

    fn parts_under_way(&self, to: u32) -> bool {
        self.stages.under_way.iter().any(|transfer| transfer.peer == to && transfer.purpose == Purpose::Part)
    }

    /// Copies bytes to a stage and writes them from there.
    fn write(
        &mut self,
        to: u32,
        address: Address,
        place: u64,
        bytes: &[u8],
        purpose: Purpose,
        notify: Option<Notify>,
    ) -> Result<(), Gone> {
        let stage = loop {
            match self.stages.take(&self.nic, &self.shared.config) {
                Some(stage) => break stage,
                None => self.await_interface(to)?,
            }
        };
        self.nic.charge(self.shared.costs.copying(bytes.len()));
        self.nic.write(self.stages.memory(stage), 0, bytes);
        let (source, len) = (self.stages.at(stage), bytes.len() as u64);
        loop {
            match self.nic.rdma_write(source, address, place, len, notify) {
                Ok(id) => {
                    self.stages.under_way.push(Transfer { id, peer: to, purpose, stage: Some(stage) });
                    return Ok(());
                }
                Err(RdmaError::QueueFull(_)) => {
                    if let Err(Gone) = self.await_interface(to) {
                        self.stages.give(stage);
                        return Err(Gone);
                    }
                }
                Err(_) => {
                    self.stages.give(stage);
                    return Err(Gone);
                }
            }
        }
    }

    /// Gives slots back at once if they are this rank's own, for what it sent to itself. Returns whether they
    /// were.
    pub(super) fn settle_own(&mut self, to: u32, handled: u32, freed: u32) -> bool {
        if to != self.presence.me {
            return false;
        }
        let requests = self.shared.sizes.request_slots();
        let peer = self.peers.of(to);
        peer.inside &= !handled;
        let returned = [peer.slots.give(handled), peer.replies.give(freed)];
        assert!(returned.iter().all(Result::is_ok), "a rank handles what it sent to itself once");
        self.unhandled -= u64::from((handled & requests).count_ones());
        self.presence.fresh = true;
        true
    }

    /// Notes slots to be given back to a peer: of its requests here, and of answers that it does not get.
    pub(super) fn owe(&mut self, to: u32, handled: u32, freed: u32) {
        if handled | freed == 0 {
            return;
        }
        let sizes = self.shared.sizes;
        let peer = self.peers.of(to);
        peer.handled |= handled;
        peer.freed |= freed;
        peer.inside &= !handled;
        let (handled, freed) = (peer.handled, peer.freed);
        self.credit.list(to, &mut peer.listed);
        let requests = (handled & sizes.request_slots()).count_ones() * 2 > sizes.requests;
        let control = (handled & sizes.control_slots()).count_ones() > 1;
        if requests || control || freed.count_ones() * 2 > sizes.replies {
            self.credit.urgent.push(to);
        }
    }

    /// Sends a peer the credits that are owed to it, if any.
    fn pay(&mut self, to: u32) {
        let peer = self.peers.of(to);
        let (handled, freed) = (std::mem::take(&mut peer.handled), std::mem::take(&mut peer.freed));
        if handled | freed == 0 || self.known_status(to) != PeerStatus::Active {
            return;
        }
        let mut lead = [0; LEAD];
        let end = write_lead(&mut lead, &Header::credit(handled, freed), LongTarget::default(), &Words::EMPTY);
        self.nic.charge(self.shared.costs.compose);
        // A peer that is gone needs no credits.
        let _ = self.packets(to, &lead[..end], &[], true);
    }

    /// Sends all credits that are owed, a packet per peer. Those of small messages between cores alone can wait.
    pub(super) fn pay_all(&mut self) {
        self.pay_urgent();
        let control = self.shared.sizes.control_slots();
        let mut later = 0;
        while let Some(to) = self.credit.due.len().checked_sub(later + 1).map(|at| self.credit.due[at]) {
            let peer = self.peers.of(to);
            if peer.handled & !control == 0 && peer.freed == 0 && peer.handled != 0 {
                later += 1;
                continue;
            }
            let at = self.credit.due.len() - later - 1;
            self.credit.due.swap_remove(at);
            peer.listed = false;
            self.pay(to);
        }
        self.credit.was_sent();
    }

    /// Sends the credits that someone may be waiting for.
    pub(super) fn pay_urgent(&mut self) {
        while let Some(to) = self.credit.urgent.pop() {
            self.pay(to);
        }
    }
}
