//! Messages that their receiver reads where the sender lends them: one copy, and no memory of the segment.
//!
//! A sender whose memory its receiver can read, as far as both know, announces where a long message lies. The
//! receiver reads it into the buffer of the call that waits for it, and says so (ACK). Where no call reads it for
//! a while, since the program waits for something else, it is read into memory of its own, which the receive hands
//! out. Where the read fails, the message takes the way of other announced messages: the sender hears where to
//! write it (CTS). A message whose loan has ended is an error of the read.

use super::control::{Control, Credit, Offer, Source};
use super::place::place_of;
use super::receive::Stage;
use super::{Machine, Wire};
use crate::config::Protocol;
use am_core::slab::Key;
use am_core::transport::{LentFault, Loan};

/// Messages that are lent at once at most; others are written.
pub(super) const LOANS: usize = 64;

/// Bytes that are read between two looks at the network. Tests have few bytes in several pieces.
pub(crate) const PIECE: usize = if cfg!(test) { 500 } else { 1 << 20 };

/// How long messages wait for calls that read them: [`TURN`] for each turn of [`Machine::advance`], less where a
/// call has read a part of another message since the one before.
const PATIENCE: u32 = 16 * TURN;
const TURN: u32 = 16;

/// A message that its receiver may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readable {
    pub(crate) from: u32,
    pub(crate) len: u64,
    pub(crate) lent: Source,
}

impl Machine {
    /// Whether it is known if memory of a peer can be read, or does not matter.
    pub(crate) fn knows_access(&self, rank: u32) -> bool {
        let known = |peer: &u32| self.peers[*peer as usize].readable.is_some();
        self.config.protocol != Protocol::Elided || self.peer_of.get(&rank).is_some_and(known)
    }

    /// Learns whether memory of a peer can be read.
    pub(crate) fn note_access(&mut self, rank: u32, readable: bool) {
        let peer = self.peer(rank);
        self.peers[peer].readable = Some(readable);
    }

    /// Whether memory of a peer can be read, and the peer is taken to read this rank's.
    pub(super) fn reads(&self, peer: usize) -> bool {
        self.config.protocol == Protocol::Elided && self.peers[peer].readable == Some(true)
    }

    /// Lends a message to a peer that is taken to read it, where there is a proof left.
    pub(crate) fn lend(&mut self, to: u32, bytes: &[u8]) -> Option<Loan> {
        let peer = self.peer(to);
        if bytes.len() as u64 <= self.eager || !self.reads(peer) {
            return None;
        }
        self.lender.lend(bytes)
    }

    /// Whether a message in a sender's segment is read there, where the receiver sees that as memory.
    pub(crate) fn reads_segments(&self) -> bool {
        matches!(self.config.protocol, Protocol::Read | Protocol::Elided)
    }

    /// A receive has met a message that may be read: whether it waits for that now.
    pub(super) fn await_reader(&mut self, key: Key, peer: usize, Offer { send, lent }: Offer) -> bool {
        let refused = self.peers[peer].readable == Some(false);
        let (elided, into_segment) = (self.config.protocol == Protocol::Elided, self.receive_mut(key).has_own());
        let len = self.receive_mut(key).len;
        let Some(lent) = lent else { return false };
        let reads = match &lent {
            Source::Segment(_) => self.reads_segments(),
            // Written by its sender, it needs no second copy into the segment.
            Source::Process(_) if !elided || refused || into_segment => false,
            Source::Process(_) => {
                let (written, timed) = self.is_better_written(len);
                if timed {
                    self.receive_mut(key).transfer().timed = true;
                }
                !written
            }
        };
        if !reads {
            return false;
        }
        if self.unread.is_empty() {
            self.patience = 0;
        }
        self.unread.push_back(key);
        let receive = self.receive_mut(key);
        (receive.stage, receive.transfer().lent) = (Stage::Moving, Some((send, lent)));
        true
    }

    /// The message of a receive that a call may read into its buffer.
    pub(crate) fn readable(&self, key: Key) -> Option<Readable> {
        let key = self.posted_of(key);
        let has_place = self.receives.get(key)?.has_place();
        self.lent_to(key).filter(|_| !has_place)
    }

    /// The message of a receive that lies in its sender's memory.
    fn lent_to(&self, key: Key) -> Option<Readable> {
        let receive = self.receives.get(key).filter(|receive| receive.stage == Stage::Moving)?;
        receive.lent().map(|(_, lent)| Readable { from: receive.from, len: receive.len, lent })
    }

    /// A call reads a message from now on, to its end or until it says [`Machine::cannot_read`].
    pub(crate) fn begin_reading(&mut self, key: Key) {
        let key = self.posted_of(key);
        self.unread.retain(|other| *other != key);
    }

    /// A message has been read into its buffer. What tells the sender so, which the caller sends, or gives back to
    /// [`Machine::send_later`]; `None` where it is queued behind others.
    pub(crate) fn has_read(&mut self, key: Key) -> Option<(u32, Control, Credit)> {
        let key = self.posted_of(key);
        let receive = self.receives.get_mut(key)?;
        let ((send, _), from) = (receive.take_lent()?, receive.from);
        self.counts.ack += 1;
        // As the sender counts it.
        match self.config.protocol {
            Protocol::Elided => self.counts.received_by.lent += 1,
            _ => self.counts.received_by.read += 1,
        }
        self.finish(key);
        let (peer, ack) = (self.peer(from), Control::Ack { send });
        if self.peers[peer].queue.is_empty() && self.peers[peer].gone.is_none() {
            return Some((from, ack, self.attach_credit(peer)));
        }
        self.queue_control(peer, ack);
        None
    }

    /// Sends what the network had no room for.
    #[cold]
    pub(crate) fn send_later(&mut self, to: u32, control: Control) {
        let peer = self.peer(to);
        self.queue_control(peer, control);
    }

    /// A message cannot be read, or the sender's memory cannot at all: it is written instead.
    #[cold]
    pub(crate) fn cannot_read(&mut self, key: Key, refused: bool) {
        let key = self.posted_of(key);
        self.begin_reading(key);
        let Some(receive) = self.receives.get_mut(key).filter(|receive| receive.stage == Stage::Moving) else {
            return;
        };
        let (Some((send, lent)), from) = (receive.take_lent(), receive.from) else { return };
        let transfer = receive.transfer();
        (transfer.place, transfer.arrived) = (None, 0);
        let peer = self.peer(from);
        if refused && !lent.is_segment() {
            self.peers[peer].readable = Some(false);
        }
        self.ask_to_write(key, peer, send);
    }

    /// Nobody is going to read a message: its sender hears that it is let go. Whether it was one that may be read.
    pub(super) fn leave_unread(&mut self, key: Key) -> bool {
        let Some(receive) = self.receives.get_mut(key) else { return false };
        let (Some((send, _)), from) = (receive.take_lent(), receive.from) else { return false };
        self.begin_reading(key);
        let peer = self.peer(from);
        self.queue_control(peer, Control::Refuse { send, freed: false });
        self.finish(key);
        true
    }

    /// Whether messages wait for calls that read them. When they have waited for long, a part of the first is
    /// read.
    pub(super) fn await_readers<W: Wire>(&mut self, wire: &mut W) -> bool {
        while let Some(key) = self.unread.front()
            && self.lent_to(*key).is_none()
        {
            self.unread.pop_front();
        }
        let Some(first) = self.unread.front().copied() else { return false };
        if self.patience < PATIENCE {
            self.patience += if self.part_read { 1 } else { TURN };
        } else {
            self.read_part(first, wire);
        }
        true
    }

    /// Reads a part of a message into memory of its own.
    fn read_part<W: Wire>(&mut self, key: Key, wire: &mut W) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        if receive.has_own() {
            // It goes there at once if its sender writes it.
            return self.cannot_read(key, false);
        }
        let (from, whole) = (receive.from, receive.len);
        let len = usize::try_from(whole).ok();
        let transfer = receive.transfer();
        let (Some((_, lent)), at, make) = (transfer.lent, transfer.arrived, transfer.make) else { return };
        let made = |len| make.and_then(|make| make(len)).or_else(|| place_of::<u8>(len));
        let Some(mut place) = transfer.place.take().or_else(|| len.and_then(made)) else {
            // There is no memory, or there is some of the segment.
            return self.cannot_read(key, false);
        };
        let bytes: &mut [u8] = place.bytes_mut();
        let part = at as usize..bytes.len().min(at as usize + PIECE);
        let (end, over) = (part.end, part.end == bytes.len());
        let since = self.reading_begins().filter(|_| !lent.is_segment());
        match wire.read_lent(from, &lent, at, &mut bytes[part]) {
            Ok(()) => {
                self.note_reading(since, whole, end as u64 - at);
                let transfer = self.receive_mut(key).transfer();
                (transfer.place, transfer.arrived) = (Some(place), end as u64);
                if over {
                    self.begin_reading(key);
                    if let Some((to, ack, _)) = self.has_read(key) {
                        self.send_later(to, ack);
                    }
                }
            }
            Err(fault) => self.cannot_read(key, fault == LentFault::Refused),
        }
    }

    /// The message that is lent so: what it is called, and its bytes unless its caller has them.
    #[cfg(test)]
    pub(super) fn lent_message(&self, lent: &am_core::transport::Lent) -> Option<(Key, Option<&[u8]>)> {
        let (key, send) = self.sends.iter().find(|(_, send)| send.lent == Some(Source::Process(*lent)))?;
        Some((key, send.owned()))
    }

    /// The messages of receives that lie in their senders' memory.
    #[cfg(test)]
    pub(super) fn lent_to_receives(&self) -> Vec<(u32, am_core::transport::Lent)> {
        let lent = |receive: &super::Receive| match receive.lent()?.1 {
            Source::Process(lent) => Some((receive.from, lent)),
            Source::Segment(_) => None,
        };
        self.receives.iter().filter_map(|(_, receive)| lent(receive)).collect()
    }
}
