//! Frames that travel together: what a program sends to a peer in one turn, behind the first.
//!
//! A message of the network costs more than all else that a short frame takes. So the first frame to a peer since
//! the program has last polled goes at once, and those that follow it are collected in one buffer, which is sent
//! when it is full, when a frame comes that is not short, or with the next look at the network: of the program, or
//! of the helper once the program has been absent for long enough. Who sends and then waits, or polls, delays
//! nothing.

use super::Machine;
use super::peers::Bundle;
use super::send::Outgoing;
use crate::frame::{Credits, HEADER, Header, Kind, LENGTH, Malformed, Origin, next_of_bundle};
use crate::wire::{Receipt, Wire};
use am_core::{LossCause, Peer, Words};
use std::ops::Range;

/// Bytes of a bundle at most: the share of a message's costs that is left to a Short is small then.
const MOST: usize = 2048;

impl<W: Wire> Machine<W> {
    /// Adds a frame to those that wait for the end of the turn; whether it is one of them.
    pub(super) fn join(&mut self, to: u32, header: &Header, frame: &Outgoing<'_>) -> bool {
        let most = MOST.min(self.sizes.frame_bytes);
        let len = header.len() + 4 * frame.args.len() + frame.payload.len();
        let peer = self.peers.of(to);
        // Credits are not the program's: what that sends next still goes at once.
        if matches!(frame.kind, Kind::Credit) && peer.bundle.is_none() {
            return false;
        }
        let first = std::mem::replace(&mut peer.sent_in, self.turns) != self.turns;
        let last_words = matches!(frame.kind, Kind::Departure | Kind::DepartureAck);
        if first || last_words || HEADER + LENGTH + len > most {
            return false;
        }
        if peer.bundle.is_some_and(|bundle| bundle.len + LENGTH + len > most) {
            self.close_bundle(to);
        }
        let peer = self.peers.of(to);
        if !peer.queue.is_empty() {
            return false;
        }
        let Some(bundle) = peer.bundle.or_else(|| self.open_bundle(to)) else { return false };
        let room = &mut self.wire.buffer(bundle.buffer)[bundle.len..];
        room[..LENGTH].copy_from_slice(&(len as u16).to_le_bytes());
        header.compose(&mut room[LENGTH..], frame.args, frame.payload);
        let (len, frames) = (bundle.len + LENGTH + len, bundle.frames + 1);
        self.peers.of(to).bundle = Some(Bundle { len, frames, ..bundle });
        true
    }

    fn open_bundle(&mut self, to: u32) -> Option<Bundle> {
        let peer = self.peers.of(to);
        let buffer = self.frames.take(peer.frames)?;
        peer.frames += 1;
        if !std::mem::replace(&mut peer.bundled, true) {
            self.bundles.push(to);
        }
        if std::mem::take(&mut self.helper_rests) {
            // The program may be about to compute.
            self.notices.wake_helper();
        }
        Some(Bundle { buffer, len: HEADER, frames: 0 })
    }

    /// Sends what waits for the end of the turn.
    pub(super) fn close_bundles(&mut self) {
        while let Some(to) = self.bundles.pop() {
            self.peers.of(to).bundled = false;
            self.close_bundle(to);
        }
    }

    /// Sends the frames to a peer that wait for the end of the turn.
    pub(super) fn close_bundle(&mut self, to: u32) {
        let peer = self.peers.of(to);
        let Some(Bundle { buffer, len, frames }) = peer.bundle.take() else { return };
        peer.frames -= 1;
        // Requests that were refused for want of buffers may be sent again.
        self.fresh |= std::mem::take(&mut self.refused);
        if self.faulty.contains(Peer(to)) {
            self.frames.put(buffer);
            return;
        }
        let (tag, from) = (self.settings.tag, self.me());
        let bytes = self.wire.buffer(buffer);
        if frames == 1 {
            // It needs no bundle.
            bytes.copy_within(HEADER + LENGTH..len, 0);
            return self.post_or_queue(to, buffer, len - HEADER - LENGTH);
        }
        let origin = Origin { tag, from, sequence: 0 };
        let (kind, credits) = (Kind::Bundle, Credits::default());
        Header { origin, kind, handler: 0, args: 0, credits, placed: (0, 0) }.compose(bytes, &Words::EMPTY, &[]);
        self.post_or_queue(to, buffer, len);
    }

    /// Takes in the frames of a bundle.
    pub(super) fn unbundle(&mut self, from: u32, bundle: &Receipt) {
        let mut at = HEADER;
        loop {
            let Some(rest) = self.wire.arrived(bundle).get(at..) else {
                return self.lose(from, LossCause::Faulty);
            };
            match next_of_bundle(rest) {
                Ok(None) => return,
                Ok(Some((frame, _))) => {
                    let (begin, end) = (at + LENGTH, at + LENGTH + frame.len());
                    if self.arrive_in_bundle(from, bundle, begin..end).is_err() {
                        return self.lose(from, LossCause::Faulty);
                    }
                    at = end;
                }
                Err(Malformed) => return self.lose(from, LossCause::Faulty),
            }
        }
    }

    fn arrive_in_bundle(&mut self, from: u32, bundle: &Receipt, place: Range<usize>) -> Result<(), Malformed> {
        let frame = &self.wire.arrived(bundle)[place.clone()];
        let (origin, kind) = Header::begin(frame)?;
        if origin.from != from || kind.0 == Kind::Bundle || kind.0.is_aside() {
            return Err(Malformed);
        }
        if !self.faulty.contains(Peer(from)) {
            let copy = self.take_out(bundle, place);
            self.sort(&origin, kind, copy);
        }
        Ok(())
    }
}
