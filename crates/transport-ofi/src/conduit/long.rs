//! Long messages whose payload does not fit a frame: parts are written to the destination's segment, the frame
//! follows.

use super::Machine;
use super::peers::Queued;
use super::send::Outgoing;
use crate::frame::strip;
use crate::wire::{Failure, Fault, Wire};
use am_core::transport::Refused;
use am_core::{Peer, PeerStatus, Resource};

/// Bytes that the system copies at once.
const PIECE: usize = 1 << 20;

/// A Long message under way.
#[derive(Debug, Default)]
pub(super) struct LongOut {
    to: u32,
    /// Parts that are not written yet.
    parts: u32,
    /// A part will never be written: the message must not arrive.
    failed: bool,
    /// Its frame, sent when all parts are written.
    frame: Vec<u8>,
}

impl<W: Wire> Machine<W> {
    /// Whether a payload travels in its frame.
    pub(super) fn fits_frame(&self, to: u32, len: usize) -> bool {
        to != self.me() && len <= self.settings.medium
    }

    /// Whether there are buffers for all parts of a payload, or it is too long for all that a peer may have.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    pub(super) fn check_parts(&mut self, to: u32, len: usize) -> Result<(), Refused> {
        let sizes = self.sizes;
        let parts = u32::try_from(len.div_ceil(sizes.chunk_bytes)).unwrap_or(u32::MAX);
        let held = self.peers.of(to).chunks;
        let wait = to != self.me()
            && !self.wire.places(to)
            && parts <= sizes.chunks
            && self.chunks.could_hold(sizes.chunks, parts)
            && !self.chunks.has_room_for(held, parts);
        self.refused |= wait;
        if wait { Err(Refused::Busy(Resource::Interface)) } else { Ok(()) }
    }

    /// Sends a Long message that has room. Blocks while all buffers are under way, taking in what arrives without
    /// delivering it.
    ///
    /// # Errors
    /// How the peer has ended, if it does meanwhile.
    pub(super) fn transmit_long(
        &mut self,
        to: u32,
        frame: &Outgoing<'_>,
        payload: &[u8],
    ) -> Result<(), PeerStatus> {
        let at = frame.placed.0;
        if to == self.me() {
            self.segment.write(at, payload).expect("the core checks the range of a Long message");
            self.transmit(to, frame);
            return Ok(());
        }
        if self.fits_frame(to, payload.len()) {
            self.transmit(to, &Outgoing { payload, ..*frame });
            return Ok(());
        }
        if self.wire.places(to) && self.place_now(to, payload, at)? {
            self.transmit(to, frame);
            return Ok(());
        }
        let header = self.header(to, frame);
        let mut bytes = self.memory();
        bytes.resize(header.len() + 4 * frame.args.len(), 0);
        header.compose(&mut bytes, frame.args, &[]);
        let long = self.free_longs.pop().unwrap_or(self.longs.len());
        if long == self.longs.len() {
            self.longs.push(LongOut::default());
        }
        // One part more than there are, until all are under way: it must not end before.
        self.longs[long] = LongOut { to, parts: 1, failed: false, frame: bytes };
        self.peers.of(to).longs += 1;
        let size = self.sizes.chunk_bytes;
        let mut result = Ok(());
        for (index, part) in payload.chunks(size).enumerate() {
            let Some(buffer) = self.wait_for_chunk(to) else {
                result = Err(self.known_status(to));
                self.longs[long].failed = true;
                break;
            };
            self.wire.buffer(buffer)[..part.len()].copy_from_slice(part);
            self.longs[long].parts += 1;
            self.start_part(to, buffer, (part.len(), at + (index * size) as u64), long);
        }
        self.part_done(long);
        result
    }

    /// Has the system copy a payload to a peer's segment; whether it is there. Between pieces it takes in what
    /// arrives, without delivering it.
    ///
    /// # Errors
    /// How the peer has ended, if it does meanwhile.
    fn place_now(&mut self, to: u32, payload: &[u8], at: u64) -> Result<bool, PeerStatus> {
        for (index, piece) in payload.chunks(PIECE).enumerate() {
            if index != 0 {
                self.progress();
            }
            self.known_status(to).active()?;
            if !self.wire.place(to, piece, at + (index * PIECE) as u64) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A free buffer for a part; `None` if the peer has ended.
    fn wait_for_chunk(&mut self, to: u32) -> Option<u32> {
        let mut tries = 0u32;
        loop {
            if self.known_status(to) != PeerStatus::Active {
                return None;
            }
            let held = self.peers.of(to).chunks;
            if let Some(buffer) = self.chunks.take(held) {
                self.peers.of(to).chunks += 1;
                return Some(buffer);
            }
            self.progress();
            tries += 1;
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
    }

    fn start_part(&mut self, to: u32, buffer: u32, (len, at): (usize, u64), long: usize) {
        let direct = self.peers.of(to).queue.is_empty();
        let result = if direct { self.post_part(to, buffer, (len, at), long) } else { Err(Fault::Again) };
        match result {
            Ok(()) => {}
            Err(Fault::Again) => self.enqueue(to, Queued::Write { buffer, len, at, long }),
            Err(Fault::Failed(code)) => {
                self.give_chunk(to, buffer);
                self.part_failed(long);
                self.fail(to, Failure { code, own: 0 });
            }
        }
    }

    /// A peer's chunk is free again.
    pub(super) fn give_chunk(&mut self, to: u32, buffer: u32) {
        self.peers.of(to).chunks -= 1;
        self.chunks.put(buffer);
    }

    /// A part that was under way has failed.
    pub(super) fn write_failed(&mut self, buffer: u32) {
        let frames = self.sizes.frames;
        self.longs[self.long_of[(buffer - frames) as usize]].failed = true;
        self.written(buffer);
    }

    /// A part will not be written.
    pub(super) fn part_failed(&mut self, long: usize) {
        self.longs[long].failed = true;
        self.part_done(long);
    }

    /// A part is written.
    pub(super) fn written(&mut self, buffer: u32) {
        let to = self.under_way[buffer as usize];
        self.give_chunk(to, buffer);
        self.fresh = true;
        let frames = self.sizes.frames;
        self.part_done(self.long_of[(buffer - frames) as usize]);
    }

    /// A part is no longer under way; behind the last one the frame is sent.
    pub(super) fn part_done(&mut self, long: usize) {
        let state = &mut self.longs[long];
        state.parts -= 1;
        if state.parts != 0 {
            return;
        }
        let LongOut { to, failed, mut frame, .. } = std::mem::take(state);
        self.free_longs.push(long);
        self.peers.of(to).longs -= 1;
        if !self.faulty.contains(Peer(to)) {
            // Of one that was given up, because the peer leaves, a credit goes in its place: its number must not
            // be missing before the last word, and the message must not be there without its data.
            if failed {
                strip(&mut frame);
            }
            self.enqueue(to, Queued::Frame(frame));
        } else {
            self.spare.push(frame);
        }
    }
}
