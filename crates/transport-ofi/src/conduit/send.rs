//! Sending: admission, frames, queues of what the wire refuses, and the credits that are owed to others.

use super::Machine;
use super::peers::{CONTROLS, Queued};
use crate::frame::{Credits, Header, Kind, Origin};
use crate::wire::{Failure, Fault, Wire};
use am_core::transport::{Refused, ReplyBound};
use am_core::{Peer, PeerStatus, Resource, Words};

/// What a request has taken, given back if it is not sent.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    reply: bool,
}

/// A frame to be sent.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'f> {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
    /// Of a Long message: offset and length of its payload.
    pub(super) placed: (u64, u64),
}

impl Outgoing<'static> {
    pub(super) const fn bare(kind: Kind) -> Self {
        Self { kind, handler: 0, args: &Words::EMPTY, payload: &[], placed: (0, 0) }
    }
}

impl<W: Wire> Machine<W> {
    /// Takes what a request with so many bytes of payload needs.
    pub(super) fn admit(
        &mut self,
        to: Peer,
        kind: Kind,
        reply: ReplyBound,
        payload: usize,
    ) -> Result<Admitted, Refused> {
        self.known_status(to.0).active().map_err(Refused::Gone)?;
        let window = self.settings.window;
        let replies = reply != ReplyBound::None;
        let peer = self.peers.of(to.0);
        let busy = |resource| Err(Refused::Busy(resource));
        if kind == Kind::Control {
            if peer.controls >= CONTROLS {
                return busy(Resource::RequestFrames);
            }
        } else if peer.unhandled >= window {
            return busy(Resource::of_request(payload));
        } else if replies && peer.expected >= window {
            return busy(Resource::of_reply(reply));
        }
        if to != self.settings.me && (!peer.queue.is_empty() || !self.frames.has_room(peer.frames)) {
            self.refused = true;
            return busy(Resource::Interface);
        }
        if kind == Kind::Control {
            peer.controls += 1;
        } else {
            peer.unhandled += 1;
            peer.expected += u32::from(replies);
        }
        self.unhandled += 1;
        Ok(Admitted { reply: replies })
    }

    /// Gives back what was not used.
    pub(super) fn withdraw(&mut self, to: u32, admitted: Admitted) {
        let peer = self.peers.of(to);
        peer.unhandled -= 1;
        peer.expected -= u32::from(admitted.reply);
        self.unhandled -= 1;
    }

    /// The header of the next frame to a peer; it takes the credits along.
    pub(super) fn header(&mut self, to: u32, frame: &Outgoing<'_>) -> Header {
        let Outgoing { kind, handler, args, placed, .. } = *frame;
        let (tag, from) = (self.settings.tag, self.me());
        let peer = self.peers.of(to);
        let (credits, sequence) = (std::mem::take(&mut peer.owed), peer.next_out);
        let replies = u32::from(credits.freed) + u32::from(matches!(kind, Kind::Reply(_)));
        peer.taken_requests = peer.taken_requests.saturating_sub(credits.handled.into());
        peer.taken_replies = peer.taken_replies.saturating_sub(replies);
        peer.taken_controls = peer.taken_controls.saturating_sub(credits.controls.into());
        peer.next_out = sequence.wrapping_add(1);
        Header { origin: Origin { tag, from, sequence }, kind, handler, args: args.len() as u8, credits, placed }
    }

    /// Sends a frame that has room. It is never refused: what the wire does not take waits.
    pub(super) fn transmit(&mut self, to: u32, frame: &Outgoing<'_>) {
        if self.faulty.contains(Peer(to)) {
            return;
        }
        let header = self.header(to, frame);
        if to == self.me() {
            let mut bytes = self.memory();
            compose(&mut bytes, &header, frame);
            self.ready.push_back(bytes);
            return;
        }
        if self.join(to, &header, frame) {
            return;
        }
        self.close_bundle(to);
        let peer = self.peers.of(to);
        let free = if peer.queue.is_empty() { self.frames.take(peer.frames) } else { None };
        let Some(buffer) = free else {
            let mut bytes = self.memory();
            compose(&mut bytes, &header, frame);
            self.enqueue(to, Queued::Frame(bytes));
            return;
        };
        let len = header.compose(self.wire.buffer(buffer), frame.args, frame.payload);
        self.post_or_queue(to, buffer, len);
    }

    /// Hands a composed message to the wire; what that does not take waits.
    pub(super) fn post_or_queue(&mut self, to: u32, buffer: u32, len: usize) {
        match self.post_frame(to, buffer, len) {
            Ok(()) => {}
            Err(Fault::Again) => {
                let mut bytes = self.memory();
                bytes.extend_from_slice(&self.wire.buffer(buffer)[..len]);
                self.frames.put(buffer);
                self.enqueue(to, Queued::Frame(bytes));
            }
            Err(Fault::Failed(code)) => {
                self.frames.put(buffer);
                self.fail(to, Failure { code, own: 0 });
            }
        }
    }

    /// Memory for a frame.
    pub(super) fn memory(&mut self) -> Vec<u8> {
        let room = super::frame_bytes(self.settings.medium);
        let mut bytes = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(room));
        bytes.clear();
        bytes
    }

    /// Hands a frame in a buffer to the wire; on success the buffer is the wire's, or free again.
    fn post_frame(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        // Who leaves has to know that its last word is on its way, which of an injected frame nobody tells.
        let last = self.departing || self.peers.of(to).left.is_some();
        if len <= self.sizes.inject && !last {
            self.wire.inject(to, buffer, len)?;
            self.frames.put(buffer);
            self.peers.of(to).injected = true;
        } else {
            self.wire.send(to, buffer, len)?;
            self.under_way[buffer as usize] = to;
            self.peers.of(to).frames += 1;
        }
        Ok(())
    }

    pub(super) fn enqueue(&mut self, to: u32, item: Queued) {
        let peer = self.peers.of(to);
        peer.queue.push_back(item);
        if !std::mem::replace(&mut peer.waiting, true) {
            self.waiting.push(to);
        }
        if self.faulty.contains(Peer(to)) {
            self.drop_queue(to);
        }
    }

    /// Hands a part of a Long to the wire.
    pub(super) fn post_part(
        &mut self,
        to: u32,
        buffer: u32,
        (len, at): (usize, u64),
        long: usize,
    ) -> Result<(), Fault> {
        self.wire.write(to, buffer, len, at)?;
        self.under_way[buffer as usize] = to;
        let frames = self.sizes.frames;
        self.long_of[(buffer - frames) as usize] = long;
        Ok(())
    }

    /// Sends what waits, as far as the wire takes it.
    pub(super) fn flush_queues(&mut self) {
        let mut index = 0;
        while let Some(&to) = self.waiting.get(index) {
            self.flush_queue(to);
            let peer = self.peers.of(to);
            if peer.queue.is_empty() {
                peer.waiting = false;
                self.waiting.swap_remove(index);
                // Requests that were refused may be sent again.
                self.fresh = true;
            } else {
                index += 1;
            }
        }
    }

    fn flush_queue(&mut self, to: u32) {
        loop {
            let peer = self.peers.of(to);
            let Some(item) = peer.queue.pop_front() else { return };
            let result = match &item {
                Queued::Write { buffer, len, at, long } => self.post_part(to, *buffer, (*len, *at), *long),
                Queued::Frame(bytes) => match self.frames.take(peer.frames) {
                    None => Err(Fault::Again),
                    Some(buffer) => {
                        self.wire.buffer(buffer)[..bytes.len()].copy_from_slice(bytes);
                        let posted = self.post_frame(to, buffer, bytes.len());
                        if posted.is_err() {
                            self.frames.put(buffer);
                        }
                        posted
                    }
                },
            };
            match (result, item) {
                (Ok(()), Queued::Frame(bytes)) => self.spare.push(bytes),
                (Ok(()), Queued::Write { .. }) => {}
                (Err(fault), item) => {
                    self.peers.of(to).queue.push_front(item);
                    if let Fault::Failed(code) = fault {
                        self.fail(to, Failure { code, own: 0 });
                        self.drop_queue(to);
                    }
                    return;
                }
            }
        }
    }

    /// Forgets what waits for a peer that is gone.
    pub(super) fn drop_queue(&mut self, to: u32) {
        while let Some(item) = self.peers.of(to).queue.pop_front() {
            match item {
                Queued::Frame(bytes) => self.spare.push(bytes),
                Queued::Write { buffer, long, .. } => {
                    self.give_chunk(to, buffer);
                    self.part_failed(long);
                }
            }
        }
    }

    /// The wire is done with a frame.
    pub(super) fn sent(&mut self, buffer: u32) {
        let to = self.under_way[buffer as usize];
        // Requests that were refused for want of buffers may be sent again.
        self.fresh |= std::mem::take(&mut self.refused);
        self.peers.of(to).frames -= 1;
        self.frames.put(buffer);
    }

    /// Notes what a peer has a right to know.
    pub(super) fn owe(&mut self, to: u32, credits: Credits) {
        let Credits { handled, freed, controls } = credits;
        let own = to == self.me();
        let peer = self.peers.of(to);
        if own {
            // Nobody has to be told.
            peer.unhandled -= u32::from(handled);
            peer.expected -= u32::from(freed);
            peer.controls -= u32::from(controls);
            self.unhandled -= u64::from(handled) + u64::from(controls);
            self.fresh = true;
            return;
        }
        // A peer that sends more than it may gets no more credits than can be told.
        peer.owed.handled = peer.owed.handled.saturating_add(handled);
        peer.owed.freed = peer.owed.freed.saturating_add(freed);
        peer.owed.controls = peer.owed.controls.saturating_add(controls);
        let most = u32::from(peer.owed.handled.max(peer.owed.freed));
        if !std::mem::replace(&mut peer.listed, true) {
            self.pending_credit.push(to);
        }
        if 2 * most >= self.settings.window {
            self.polls_before_flush = u32::MAX / 2;
        }
    }

    /// Sends all credits that nothing else has taken along.
    pub(super) fn pay_all(&mut self) {
        self.polls_before_flush = 0;
        let mut index = 0;
        while let Some(&to) = self.pending_credit.get(index) {
            let active = self.known_status(to) == PeerStatus::Active;
            let peer = self.peers.of(to);
            if active && peer.owed != Credits::default() && !peer.queue.is_empty() {
                // They go when the wire takes what waits.
                index += 1;
                continue;
            }
            peer.listed = false;
            self.pending_credit.swap_remove(index);
            if active && self.peers.of(to).owed != Credits::default() {
                self.transmit(to, &Outgoing::bare(Kind::Credit));
            }
        }
    }
}

fn compose(bytes: &mut Vec<u8>, header: &Header, frame: &Outgoing<'_>) {
    bytes.resize(header.len() + 4 * frame.args.len() + frame.payload.len(), 0);
    header.compose(bytes, frame.args, frame.payload);
}
