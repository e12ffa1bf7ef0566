//! Failures of the wire, and what travels outside of the sequence of frames because of them.
//!
//! An operation with a number names its peer, which is lost. An injected frame that fails names nobody, and its
//! place in a sequence stays empty. So every peer that frames were injected to is asked which frame is due there.
//! Who has all of them is in order; where some are missing for longer than [`Settings::backoff`](super::Settings),
//! the peer is lost. Who is lost for such a reason is told so, if it can be.

use super::Machine;
use super::peers::Probe;
use crate::frame::{Credits, Header, Kind, Origin};
use crate::wire::{Failure, Fault, Wire};
use am_core::{Instant, LossCause, PeerStatus, Span, Words};

/// How often a peer is asked while frames are missing there: so many times until they count as lost.
const QUESTIONS: u64 = 8;
/// How often a peer is told that it is lost, as long as telling it fails.
const WORDS: u8 = 4;

impl<W: Wire> Machine<W> {
    /// The wire has failed towards a peer.
    pub(super) fn fail(&mut self, to: u32, failure: Failure) {
        self.last_failure = Some((Some(to), failure));
        if to == self.me() {
            return;
        }
        if self.known_status(to) == PeerStatus::Active {
            self.lose(to, LossCause::Silent);
            self.peers.of(to).words = WORDS;
        }
        // Also where the word itself has failed.
        let state = self.peers.of(to);
        if state.words > 0 && !self.asides.contains(&(to, Kind::Severed)) {
            state.words -= 1;
            self.asides.push((to, Kind::Severed));
        }
    }

    /// An injected frame has failed, nobody knows towards whom.
    pub(super) fn doubt(&mut self, failure: Failure) {
        self.last_failure = Some((None, failure));
        for peer in 0..self.peers.len() {
            let doubtful = self.peers.known(peer).is_some_and(|state| state.injected);
            if !doubtful || self.known_status(peer) != PeerStatus::Active {
                continue;
            }
            match &mut self.peers.of(peer).probe {
                // The frame may be one that was sent after the question.
                Some(probe) => probe.again = true,
                none => {
                    *none = Some(Probe::default());
                    self.probing.push(peer);
                }
            }
        }
    }

    /// Whether the time has to be known.
    #[inline]
    pub(super) fn wants_time(&self) -> bool {
        !self.probing.is_empty()
    }

    /// Asks the peers in doubt, and loses those where frames are missing for too long.
    pub(super) fn ask_doubtful(&mut self) {
        let Some(now) = self.now else { return };
        let backoff = self.settings.backoff;
        let mut index = 0;
        while let Some(&peer) = self.probing.get(index) {
            let active = self.known_status(peer) == PeerStatus::Active;
            let state = self.peers.of(peer);
            let settled = state.queue.is_empty() && state.longs == 0;
            let Some(probe) = state.probe.as_mut().filter(|_| active) else {
                state.probe = None;
                self.probing.swap_remove(index);
                continue;
            };
            if probe.missing.is_some_and(|since| now - since >= backoff) {
                let failure = self.last_failure.map_or_else(Failure::default, |(_, failure)| failure);
                self.fail(peer, failure);
                continue;
            }
            // What waits here is not missing there.
            let begins = probe.number.is_some() || settled;
            if begins && !probe.asked && probe.next.is_none_or(|next| now >= next) {
                probe.number.get_or_insert(state.next_out);
                probe.asked = true;
                probe.next = Some(now + Span(backoff.0 / QUESTIONS));
                self.asides.push((peer, Kind::Probe));
            }
            index += 1;
        }
    }

    /// A frame outside of the sequence.
    pub(super) fn take_aside(&mut self, from: u32, kind: Kind, number: u32) {
        match kind {
            Kind::Probe if !self.asides.contains(&(from, Kind::Due)) => self.asides.push((from, Kind::Due)),
            Kind::Due => self.take_answer(from, number),
            Kind::Severed => self.lose(from, LossCause::Silent),
            _ => {}
        }
    }

    /// A peer says which frame is due there.
    fn take_answer(&mut self, from: u32, due: u32) {
        let now = self.now;
        let state = self.peers.of(from);
        let Some(probe) = &mut state.probe else { return };
        let Some(number) = probe.number else { return };
        probe.asked = false;
        if due.wrapping_sub(number).cast_signed() < 0 {
            probe.missing = probe.missing.or(now);
            return;
        }
        if probe.again {
            *probe = Probe::default();
            return;
        }
        state.injected = state.next_out != number;
        state.probe = None;
        self.probing.retain(|peer| *peer != from);
    }

    /// Sends what stands outside of the sequence, as far as the wire takes it.
    pub(super) fn send_asides(&mut self) {
        let mut index = 0;
        while let Some(&(to, kind)) = self.asides.get(index) {
            if self.send_aside(to, kind) {
                self.asides.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Whether nothing remains to be done for one of them.
    fn send_aside(&mut self, to: u32, kind: Kind) -> bool {
        let severed = kind == Kind::Severed;
        if !severed && self.known_status(to) != PeerStatus::Active {
            return true;
        }
        let Some(buffer) = self.frames.take_any() else { return false };
        let state = self.peers.of(to);
        let sequence = match kind {
            Kind::Probe => state.next_out,
            Kind::Due => state.next_in,
            _ => 0,
        };
        let origin = Origin { tag: self.settings.tag, from: self.me(), sequence };
        let header = Header { origin, kind, handler: 0, args: 0, credits: Credits::default(), placed: (0, 0) };
        let len = header.compose(self.wire.buffer(buffer), &Words::EMPTY, &[]);
        let sent = self.wire.send(to, buffer, len);
        match sent {
            Ok(()) => {
                self.under_way[buffer as usize] = to;
                self.peers.of(to).frames += 1;
                return true;
            }
            Err(Fault::Again) => {}
            Err(Fault::Failed(code)) if !severed => self.fail(to, Failure { code, own: 0 }),
            Err(Fault::Failed(_)) => {}
        }
        self.frames.put(buffer);
        !matches!(sent, Err(Fault::Again))
    }

    /// Told the time, or that nobody knows it.
    #[inline]
    pub(super) fn set_time(&mut self, now: impl FnOnce() -> Instant) {
        self.now = self.wants_time().then(now);
    }
}
