//! Receiving: what arrives is put into the order of its sender, its credits count, and it goes to the sink.

use super::peers::CONTROLS;
use super::{Machine, Settings};
use crate::frame::{Credits, Header, Kind, Malformed, Origin};
use crate::wire::{Fault, Receipt, Wire};
use am_core::{LossCause, Peer, PeerStatus};
use std::ops::Range;

/// How a sender leaves, in its departure.
pub(super) mod departure {
    pub(crate) const FINISHED: u8 = 0;
    pub(crate) const LEFT: u8 = 1;
    pub(crate) const PANICKED: u8 = 2;
}

/// A frame's header, and where its payload begins.
type Opened = (Header, usize);

/// A message for the sink.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) header: Header,
    /// The frame, and where its payload begins; its arguments end there.
    pub(super) bytes: Vec<u8>,
    pub(super) rest: usize,
    /// Others wait behind it.
    pub(super) more: bool,
}

impl<W: Wire> Machine<W> {
    /// Offers a slot again.
    pub(super) fn post(&mut self, slot: u32) {
        match self.wire.post(slot) {
            Ok(()) => {}
            Err(Fault::Again) => self.unposted.push(slot),
            Err(Fault::Failed(_)) => self.break_down(),
        }
    }

    /// Takes in what the wire has brought: a frame, or several. The slot is on offer again before anything is made
    /// of a frame, if the wire is done with the slot.
    pub(super) fn arrive(&mut self, receipt: Receipt) {
        let bytes = self.wire.arrived(&receipt);
        let known = Header::begin(bytes).ok().filter(|(Origin { tag, from, .. }, _)| {
            *tag == self.settings.tag && *from < self.peers.len() && *from != self.me()
        });
        let wanted = known.filter(|(origin, _)| !self.faulty.contains(Peer(origin.from)));
        self.strays += u64::from(known.is_none());
        match wanted {
            Some((origin, (Kind::Bundle, _))) => {
                self.unbundle(origin.from, &receipt);
                self.post_last(&receipt);
            }
            Some((origin, kind)) => {
                let copy = if kind.0.is_aside() { Vec::new() } else { self.take_out(&receipt, 0..receipt.len) };
                self.post_last(&receipt);
                self.sort(&origin, kind, copy);
            }
            None => self.post_last(&receipt),
        }
    }

    /// Offers the slot of a message again, if it was the last there.
    fn post_last(&mut self, receipt: &Receipt) {
        if receipt.last {
            self.post(receipt.slot);
        }
    }

    /// A copy of some bytes of what has arrived.
    pub(super) fn take_out(&mut self, receipt: &Receipt, bytes: Range<usize>) -> Vec<u8> {
        let mut copy = self.memory();
        copy.extend_from_slice(&self.wire.arrived(receipt)[bytes]);
        copy
    }

    /// Puts a frame into the order of its sender; of one outside of the sequence there is nothing but its header.
    pub(super) fn sort(&mut self, origin: &Origin, (kind, how): (Kind, u8), frame: Vec<u8>) {
        let Origin { from, sequence, .. } = *origin;
        if kind.is_aside() {
            return self.take_aside(from, kind, sequence);
        }
        let ahead = sequence.wrapping_sub(self.peers.of(from).next_in);
        if ahead == 0 {
            self.accept(from, (kind, how), frame);
            return self.accept_held(from);
        }
        let held = self.peers.of(from).held.iter().any(|(other, _)| *other == sequence);
        // More than are ever under way from one peer, nobody sends.
        if ahead >= Settings::slots(2, self.settings.window) || held {
            self.spare.push(frame);
            return self.lose(from, LossCause::Faulty);
        }
        self.peers.of(from).held.push((sequence, frame));
    }

    /// Accepts the frames that came before their turn, as far as it is theirs now.
    fn accept_held(&mut self, from: u32) {
        loop {
            let peer = self.peers.of(from);
            let next = peer.next_in;
            let Some(place) = peer.held.iter().position(|(sequence, _)| *sequence == next) else { return };
            let (_, bytes) = peer.held.swap_remove(place);
            let (_, kind) = Header::begin(&bytes).expect("it was read when it came");
            self.accept(from, kind, bytes);
        }
    }

    /// Takes in a frame whose turn it is.
    fn accept(&mut self, from: u32, (kind, how): (Kind, u8), frame: Vec<u8>) {
        let peer = self.peers.of(from);
        peer.next_in = peer.next_in.wrapping_add(1);
        match kind {
            Kind::Departure => {
                self.spare.push(frame);
                self.take_leave(from, how);
            }
            Kind::DepartureAck => {
                peer.heard = true;
                self.spare.push(frame);
            }
            // Nobody will look at it.
            _ if self.departing => self.spare.push(frame),
            _ => {
                // A peer that keeps to its credit never has more on the way.
                if peer.ready == Settings::slots(2, self.settings.window) {
                    self.spare.push(frame);
                    return self.lose(from, LossCause::Faulty);
                }
                peer.ready += 1;
                self.ready.push_back(frame);
            }
        }
    }

    /// A peer leaves. What it had sent before is here.
    fn take_leave(&mut self, from: u32, how: u8) {
        let status = match how {
            departure::FINISHED => PeerStatus::Finished,
            departure::LEFT => PeerStatus::Lost(LossCause::Left),
            departure::PANICKED => PeerStatus::Lost(LossCause::Panicked),
            _ => return self.lose(from, LossCause::Faulty),
        };
        let peer = self.peers.of(from);
        if peer.left.is_some() {
            return self.lose(from, LossCause::Faulty);
        }
        peer.left = Some(status);
        self.left += u32::from(status != PeerStatus::Finished);
        let told = peer.told;
        self.note_losses();
        self.fresh = true;
        // Who leaves, too, and has said so has answered; the peer may be gone once it has that.
        if !told {
            self.answers.push(from);
        }
    }

    /// The next message that has arrived, for the sink.
    pub(super) fn take(&mut self) -> Option<Delivery> {
        while let Some(bytes) = self.ready.pop_front() {
            self.fresh = true;
            let (Origin { from, .. }, _) = Header::begin(&bytes).expect("it was read when it came");
            if from != self.me() {
                self.peers.of(from).ready -= 1;
            }
            match self.open(from, &bytes) {
                Ok(Some((header, rest))) => {
                    let more = !self.ready.is_empty();
                    return Some(Delivery { header, rest, bytes, more });
                }
                Ok(None) => {}
                Err(Malformed) => self.lose(from, LossCause::Faulty),
            }
            self.spare.push(bytes);
        }
        None
    }

    /// A frame's header, and where its payload begins; its credits count. Nothing if there is nothing for the
    /// sink.
    fn open(&mut self, from: u32, bytes: &[u8]) -> Result<Option<Opened>, Malformed> {
        if self.faulty.contains(Peer(from)) {
            return Ok(None);
        }
        let (header, _, rest) = Header::read(bytes)?;
        self.place(&header, rest)?;
        self.collect(from, header.credits)?;
        match header.kind {
            Kind::Credit
            | Kind::Departure
            | Kind::DepartureAck
            | Kind::Probe
            | Kind::Due
            | Kind::Severed
            | Kind::Bundle => return Ok(None),
            Kind::Request(_) | Kind::OneWay(_) => {
                self.count(from, Credits { handled: 1, freed: header.kind.allows_reply().into(), controls: 0 })?;
            }
            Kind::Reply(_) => {
                let peer = self.peers.of(from);
                peer.expected = peer.expected.checked_sub(1).ok_or(Malformed)?;
            }
            Kind::Control => {
                let control = Credits { controls: 1, ..Credits::default() };
                self.count(from, control)?;
                self.owe(from, control);
            }
        }
        Ok(Some((header, bytes.len() - rest.len())))
    }

    /// Puts the payload of a Long message that came in its frame where it belongs.
    fn place(&self, header: &Header, rest: &[u8]) -> Result<(), Malformed> {
        let (at, len) = header.placed;
        if !header.kind.is_long() {
            return Ok(());
        }
        if !rest.is_empty() {
            if rest.len() as u64 != len {
                return Err(Malformed);
            }
            self.segment.write(at, rest).map_err(|_| Malformed)?;
        }
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        self.segment.view(at, len).map(drop).map_err(|_| Malformed)
    }

    /// Counts what a peer has sent and has no credit for yet. More than it may have under way is nonsense.
    fn count(&mut self, from: u32, taken: Credits) -> Result<(), Malformed> {
        if from == self.me() {
            return Ok(());
        }
        let window = self.settings.window;
        let peer = self.peers.of(from);
        peer.taken_requests += u32::from(taken.handled);
        peer.taken_replies += u32::from(taken.freed);
        peer.taken_controls += u32::from(taken.controls);
        let kept = peer.taken_requests <= window && peer.taken_replies <= window;
        if kept && peer.taken_controls <= CONTROLS { Ok(()) } else { Err(Malformed) }
    }

    /// Takes in the credits that a frame brings.
    fn collect(&mut self, from: u32, credits: Credits) -> Result<(), Malformed> {
        let peer = self.peers.of(from);
        let Credits { handled, freed, controls } = credits;
        let less = |count: u32, by: u32| count.checked_sub(by).ok_or(Malformed);
        let left = (
            less(peer.unhandled, handled.into())?,
            less(peer.expected, freed.into())?,
            less(peer.controls, controls.into())?,
        );
        (peer.unhandled, peer.expected, peer.controls) = left;
        self.unhandled -= u64::from(handled) + u64::from(controls);
        Ok(())
    }
}
