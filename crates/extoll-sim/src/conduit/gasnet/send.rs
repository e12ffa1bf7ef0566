//! Sending: admission, cutting frames into packets, puts, and the credits that are owed to others.

use super::bounce::Bounce;
use super::header::{Header, IDS, Kind, LEAD, MOST_CREDITS, write_lead};
use super::layout::{Implementation, MTT_CONTROL, Piece};
use super::peers::{Made, PeerState};
use super::transport::{Gasnet, Outgoing};
use crate::nic::HostMemory;
use crate::nic::rma::{self, Access, Nla, Notify, RmaError};
use crate::nic::velo::{self, VeloError};
use am_core::transport::{Refused, ReplyBound};
use am_core::{Peer, PeerStatus, Resource};
use fabric_sim::WaitFor;

/// The largest packet of any interface.
const MTU: usize = 120;
/// The class of notifications that complete a Long message.
pub(super) const LONG_CLASS: u8 = 0xa1;
/// Own puts under way beyond which their notifications are taken in, so that the queue stays free for others.
const MANY_PUTS: usize = 128;

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

/// The bounce buffers of a rank and their allocator.
pub(super) struct BounceBuffers {
    pub(super) memory: HostMemory,
    pub(super) region: rma::Region,
    pub(super) base: Nla,
    pub(super) allocator: Bounce,
}

impl BounceBuffers {
    pub(super) fn new(rma: &rma::Rma<'_>, size: u32, access: Access) -> Self {
        let memory = HostMemory::new(size as usize);
        let region = rma.register(&memory, 0, size.into(), access);
        let region = region.expect("the translation table has room for the bounce buffers");
        let base = rma.nla(region, 0).expect("a region begins with its first byte");
        Self { memory, region, base, allocator: Bounce::new(size) }
    }
}

/// The room that a request takes, given back if it is not sent.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    requests: u32,
    control: u32,
    pub(super) reserve: u32,
}

impl Gasnet<'_> {
    /// Takes the room that a request of some bytes needs.
    pub(super) fn admit(
        &mut self,
        to: Peer,
        kind: Kind,
        reply: ReplyBound,
        bytes: (usize, usize),
    ) -> Result<Admitted, Refused> {
        self.known_status(to.0).active().map_err(Refused::Gone)?;
        let (slots, rooms) = (self.layout.slots(bytes.0, bytes.1), self.shared.rooms);
        let (mut requests, mut control) = (slots, 0);
        let mut reserve = match reply {
            ReplyBound::None => 1,
            ReplyBound::UpTo(bound) if bound == self.usual.0 => self.usual.1,
            ReplyBound::UpTo(bound) => {
                let reserve = self.layout.reserve(bound as usize);
                self.usual = (bound, reserve);
                reserve
            }
        };
        if kind == Kind::Control && slots <= rooms.control_frame {
            (requests, control, reserve) = (0, slots, 0);
        }
        let peer = self.peers.of(to.0);
        if peer.control.available() < control || peer.requests.available() < requests {
            return Err(self.busy(Resource::of_request(bytes.1)));
        }
        if peer.answers.take(reserve).is_err() {
            return Err(self.busy(Resource::of_reply(reply)));
        }
        peer.requests.take(requests).expect("the room was seen a moment ago");
        peer.control.take(control).expect("the room was seen a moment ago");
        self.unhandled += u64::from(requests);
        Ok(Admitted { requests, control, reserve })
    }

    /// Gives back what was not used.
    pub(super) fn withdraw_room(&mut self, to: u32, admitted: Admitted) {
        let peer = self.peers.of(to);
        let returned = [
            peer.requests.give_back(admitted.requests),
            peer.control.give_back(admitted.control),
            peer.answers.give_back(admitted.reserve),
        ];
        assert!(returned.iter().all(Result::is_ok), "what was taken is outstanding");
        self.unhandled -= u64::from(admitted.requests);
    }

    /// Sends a request that has been admitted; on a refusal gives back what it took.
    pub(super) fn request(&mut self, to: Peer, admitted: Admitted, frame: &Outgoing<'_>) -> Result<(), Refused> {
        let sent = if frame.kind.is_long() && self.segment_of(to.0).is_none() {
            Err(self.busy(Resource::Connection))
        } else {
            self.transmit(to.0, frame, false).map_err(|failure| match failure {
                Failure::Busy => Refused::Busy(Resource::Interface),
                Failure::Gone => Refused::Gone(self.known_status(to.0)),
            })
        };
        if sent.is_err() {
            self.withdraw_room(to.0, admitted);
        }
        sent
    }

    fn velo_connection(&mut self, to: u32) -> Result<velo::Connection, Gone> {
        let peer = self.peers.of(to);
        if let Some(number) = peer.velo.number() {
            return Ok(velo::Connection(number));
        }
        let address = self.nic.address(to).ok_or(Gone)?;
        let connection = self.velo.connect(address).map_err(|_| Gone)?;
        self.peers.of(to).velo = Made::of(connection.0);
        Ok(connection)
    }

    pub(super) fn rma_connection(&mut self, to: u32) -> Result<rma::Connection, Gone> {
        if let Some(number) = self.peers.of(to).rma.number() {
            return Ok(rma::Connection(number));
        }
        let address = self.nic.address(to).ok_or(Gone)?;
        let connection = self.rma.connect(address).map_err(|_| Gone)?;
        self.peers.of(to).rma = Made::of(connection.0);
        Ok(connection)
    }

    /// Whether each request of a peer is acknowledged by itself, as the first implementation does, except to
    /// itself.
    #[inline]
    pub(super) fn acknowledges(&self, to: u32) -> bool {
        self.implementation() == Implementation::First && to != self.presence.me
    }

    /// The credits that ride on a frame.
    fn riders(peer: &mut PeerState) -> (u16, u16) {
        let most = u32::from(MOST_CREDITS);
        let (handled, freed) = (peer.handled.min(most), peer.freed.min(most));
        peer.handled -= handled;
        peer.freed -= freed;
        (handled as u16, freed as u16)
    }

    /// Sends a frame that has room; waits for the interface where need be.
    pub(super) fn insist(&mut self, to: u32, frame: &Outgoing<'_>) -> Result<(), Gone> {
        self.transmit(to, frame, true).map_err(|_| Gone)
    }

    /// Sends a frame that has room. Unless it insists, it is refused if the interface does not take the first
    /// packet at once.
    fn transmit(&mut self, to: u32, frame: &Outgoing<'_>, insists: bool) -> Result<(), Failure> {
        let Outgoing { kind, handler, reserve, args, payload, place } = *frame;
        let implementation = self.implementation();
        self.nic.charge(self.shared.costs.composing());
        let acknowledges = self.acknowledges(to);
        let peer = self.peers.of(to);
        let (handled, freed) = if acknowledges { (0, 0) } else { Self::riders(peer) };
        let long = kind.is_long();
        let length = match (long, payload.is_empty()) {
            (false, _) => payload.len() as u16,
            (true, false) => peer.next_long,
            (true, true) => 0,
        };
        let header = Header { kind, args: args.len() as u8, handler, length, reserve, handled, freed };
        let mut lead = [0; LEAD];
        let end = write_lead(&mut lead, header, place, args);
        let over_velo = if long { &[] } else { payload };
        if implementation == Implementation::First {
            // The first implementation stages a payload before it cuts it.
            self.nic.charge(self.shared.costs.copying(over_velo.len()));
        }
        let sent = self.packets(to, kind, &lead[..end], over_velo, insists);
        if sent.is_err() {
            // The credits go with a later frame.
            let peer = self.peers.of(to);
            peer.handled += u32::from(handled);
            peer.freed += u32::from(freed);
            return sent;
        }
        if !long || payload.is_empty() {
            return Ok(());
        }
        self.peers.of(to).next_long = (length + 1) % IDS;
        self.puts(to, payload, place.offset, length).map_err(|Gone| Failure::Gone)
    }

    /// Sends the packets of a frame.
    fn packets(&mut self, to: u32, kind: Kind, lead: &[u8], payload: &[u8], insists: bool) -> Result<(), Failure> {
        let connection = self.velo_connection(to).map_err(|Gone| Failure::Gone)?;
        let mut packet = [0; MTU];
        let between = matches!(kind, Kind::Control | Kind::Credit);
        for Piece { mtt, from, to: end } in self.layout.pieces(lead.len(), payload.len()) {
            // What comes from the lead, and what from the payload.
            let head = &lead[from.min(lead.len())..end.min(lead.len())];
            let tail = &payload[from.max(lead.len()) - lead.len()..end.max(lead.len()) - lead.len()];
            packet[..head.len()].copy_from_slice(head);
            packet[head.len()..end - from].copy_from_slice(tail);
            let mtt = if from == 0 && between { MTT_CONTROL } else { mtt };
            while let Err(error) = self.velo.send(connection, &packet[..end - from], 0, mtt) {
                if !matches!(error, VeloError::TryAgain { .. }) {
                    return Err(Failure::Gone);
                }
                if from == 0 && !insists {
                    return Err(Failure::Busy);
                }
                self.await_interface(to).map_err(|Gone| Failure::Gone)?;
            }
        }
        Ok(())
    }

    /// Waits until the interface may take more; takes in what completes Long messages meanwhile, without
    /// delivering it.
    fn await_interface(&mut self, to: u32) -> Result<(), Gone> {
        let taken = self.take_notifications();
        // While it unwinds, a rank cannot wait.
        if self.known_status(to) != PeerStatus::Active || std::thread::panicking() {
            return Err(Gone);
        }
        if taken != 0 {
            // They may have been what was waited for, and nobody wakes for them again.
            return Ok(());
        }
        // This takes the news of whatever arrives, which the next poll has to look at before the rank may sleep.
        self.presence.fresh = true;
        self.nic.idle(None, WaitFor::Room { to, of: Resource::Interface });
        Ok(())
    }

    /// Puts a payload into the peer's segment, by way of the bounce buffers; the last put tells the peer.
    fn puts(&mut self, to: u32, payload: &[u8], offset: u64, id: u16) -> Result<(), Gone> {
        let connection = self.rma_connection(to)?;
        let remote = self.segment_of(to).ok_or(Gone)?;
        self.make_bounce();
        let largest = self.largest_put() as usize;
        let second = self.implementation() == Implementation::Second;
        let mut at = 0;
        while at < payload.len() {
            let piece = &payload[at..payload.len().min(at + largest)];
            let block = loop {
                match self.bounce.as_mut().and_then(|bounce| bounce.allocator.take(piece.len() as u32)) {
                    Some(block) => break block,
                    None => self.await_interface(to)?,
                }
            };
            self.nic.charge(self.shared.costs.copying(piece.len()));
            let bounce = self.bounce.as_ref().expect("the bounce buffers have been made");
            bounce.memory.write(block as usize, piece);
            let region = bounce.region;
            let last = at + piece.len() == payload.len();
            let notify = if last && second { Notify::REQUESTER | Notify::COMPLETER } else { Notify::REQUESTER };
            let target = Nla(remote.0 + offset + at as u64);
            self.post(to, |rma| {
                rma.post_put_bt(connection, region, block.into(), piece.len() as u32, target, notify)
            })?;
            at += piece.len();
        }
        if !second {
            self.post(to, |rma| rma.post_notification(connection, id.into(), LONG_CLASS, Notify::COMPLETER))?;
        }
        if !second || self.bounce.as_ref().is_some_and(|bounce| bounce.allocator.outstanding() > MANY_PUTS) {
            self.take_notifications();
        }
        Ok(())
    }

    fn post(&mut self, to: u32, order: impl Fn(&rma::Rma<'_>) -> Result<(), RmaError>) -> Result<(), Gone> {
        while let Err(error) = order(&self.rma) {
            if !matches!(error, RmaError::NoDescMem { .. }) {
                return Err(Gone);
            }
            self.await_interface(to)?;
        }
        Ok(())
    }

    pub(super) fn make_bounce(&mut self) {
        let (rma, size) = (&self.rma, self.shared.config.bounce);
        self.bounce.get_or_insert_with(|| BounceBuffers::new(rma, size, Access::ReadOnly));
    }

    /// Gives credits back at once if they are this rank's own, for what it sent to itself and did not answer. A
    /// reply is behind them otherwise, and must not be overtaken. Returns whether they were.
    pub(super) fn settle_own(&mut self, to: u32, handled: u32, freed: u32, controlled: u32) -> bool {
        if to != self.presence.me {
            return false;
        }
        let peer = self.peers.of(to);
        let returned = [
            peer.requests.give_back(handled).is_ok(),
            peer.answers.give_back(freed).is_ok(),
            peer.control.give_back(controlled).is_ok(),
        ];
        assert!(!returned.contains(&false), "a rank handles what it sent to itself once");
        self.unhandled -= u64::from(handled);
        self.presence.fresh = true;
        true
    }

    /// Notes credits to be given back to a peer: request slots, answer slots.
    pub(super) fn owe(&mut self, to: u32, handled: u32, freed: u32) {
        if handled + freed == 0 {
            return;
        }
        let rooms = self.shared.rooms;
        let peer = self.peers.of(to);
        peer.handled += handled;
        peer.freed += freed;
        self.credit.list(to, &mut peer.listed);
        if peer.handled * 2 > rooms.requests || peer.freed * 2 > rooms.answers {
            self.credit.urgent.push(to);
        }
    }

    /// Notes control slots to be given back to a peer.
    pub(super) fn owe_control(&mut self, to: u32, slots: u32) {
        let due = self.shared.rooms.control_due;
        let peer = self.peers.of(to);
        peer.controlled += slots;
        if peer.controlled >= due {
            self.credit.urgent.push(to);
        }
    }

    /// Sends a peer the credits that are owed to it, if any.
    pub(super) fn pay(&mut self, to: u32) {
        let due = self.shared.rooms.control_due;
        loop {
            let peer = self.peers.of(to);
            // Control slots alone have their slots only when enough of them are due.
            if peer.handled + peer.freed == 0 && peer.controlled < due {
                return;
            }
            let most = u32::from(MOST_CREDITS);
            let (handled, freed, controlled) =
                (peer.handled.min(most), peer.freed.min(most), peer.controlled.min(u32::from(IDS) - 1));
            peer.handled -= handled;
            peer.freed -= freed;
            peer.controlled -= controlled;
            if self.known_status(to) != PeerStatus::Active {
                continue;
            }
            let header = Header {
                kind: Kind::Credit,
                args: 0,
                handler: 0,
                length: controlled as u16,
                reserve: 0,
                handled: handled as u16,
                freed: freed as u16,
            };
            self.nic.charge(self.shared.costs.composing());
            // A peer that is gone needs no credits.
            let _ = self.packets(to, Kind::Credit, &header.encode().to_le_bytes(), &[], true);
        }
    }

    /// Sends all credits that are owed, a packet per peer.
    pub(super) fn pay_all(&mut self) {
        while let Some(to) = self.credit.due.pop() {
            self.peers.of(to).listed = false;
            self.pay(to);
        }
        self.pay_urgent();
        self.credit.was_sent();
    }

    /// Sends the credits that someone may be waiting for.
    pub(super) fn pay_urgent(&mut self) {
        while let Some(to) = self.credit.urgent.pop() {
            self.pay(to);
        }
    }
}
