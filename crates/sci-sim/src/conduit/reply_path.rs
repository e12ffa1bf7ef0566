//! The way back to a requester.

use super::header::{Header, Kind, Ready};
use super::net::Gone;
use super::send::Outgoing;
use super::transport::Conduit;
use crate::nic::Sisci;
use am_core::transport::{Body, Buffer, Fill, PendingKey, ReplyPath, ReplyPathGone};
use am_core::{Category, Lane, Peer, Words};

/// A way back. Dropped unused it sends the control flag that frees the requester's slot, also while a handler
/// unwinds.
///
/// A reply to a request whose payload lies in its slot leaves when the handler has returned: the requester may
/// fill the slot again as soon as it has the reply.
pub(super) struct ConduitReplyPath<'c, N: Sisci> {
    conduit: &'c mut Conduit<N>,
    to: u32,
    /// The request's slot.
    slot: u32,
    /// Whether a reply is allowed.
    replies: bool,
    /// Whether the handler still reads the request's slot.
    in_slot: bool,
    end: End,
}

/// How a request ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Without a reply so far.
    Open,
    /// With a reply that has been sent, or will be after detaching.
    Done,
    /// With a reply that is sent when the handler is done: its payload is in the conduit's buffer.
    Staged(Header, Words),
}

const REPLIES: u64 = 1 << 32;

impl<'c, N: Sisci> ConduitReplyPath<'c, N> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(
        conduit: &'c mut Conduit<N>,
        to: u32,
        slot: u32,
        replies: bool,
        in_slot: bool,
    ) -> Self {
        Self { conduit, to, slot, replies, in_slot, end: End::Open }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(conduit: &'c mut Conduit<N>, key: PendingKey) -> Self {
        let (slot, replies) = (key.tag as u32, key.tag & REPLIES != 0);
        Self { conduit, to: key.to.0, slot, replies, in_slot: false, end: End::Open }
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.conduit.known_status(self.to).active().map_err(|_| ReplyPathGone)
    }

    /// Sends or stages a reply whose Medium payload is in the conduit's buffer. Its turn is now, whenever it
    /// leaves.
    fn end_with(
        &mut self,
        category: Category,
        handler: u8,
        payload: usize,
        place: u64,
        args: &Words,
    ) -> Result<(), ReplyPathGone> {
        let number = self.conduit.number(self.to, Lane::Reply);
        self.conduit.numbered(self.to, Lane::Reply);
        let header = Header { kind: Kind::Reply(category), handler, payload: payload as u32, place, number };
        if self.in_slot {
            self.end = End::Staged(header, *args);
            return Ok(());
        }
        self.end = End::Done;
        self.transmit(&header, args).map_err(|Gone| ReplyPathGone)
    }

    fn transmit(&mut self, header: &Header, args: &Words) -> Result<(), Gone> {
        let slot = self.conduit.layout.reply_slot(self.slot);
        let staged = std::mem::take(&mut self.conduit.staged);
        let len = if header.ready() == Ready::Medium { header.payload as usize } else { 0 };
        let frame = Outgoing { header: *header, args, payload: &staged[..len] };
        let sent = self.conduit.transmit(self.to, slot, &frame);
        self.conduit.staged = staged;
        sent
    }
}

impl<N: Sisci> ReplyPath for ConduitReplyPath<'_, N> {
    fn bound(&self) -> usize {
        if self.replies { self.conduit.layout.medium() } else { 0 }
    }

    fn segment_len(&self) -> u64 {
        self.conduit.config.segment
    }

    fn long_limit(&self) -> u64 {
        self.conduit.config.segment
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        match body {
            Body::None => {
                self.check()?;
                self.end_with(Category::Short, handler, 0, 0, args)
            }
            Body::Copy(payload) => {
                self.send_filled(handler, args, payload.len(), &mut |buffer| buffer.write(0, payload))
            }
            Body::Place(payload, at) => {
                self.check()?;
                // The payload goes to a place of its own, whatever the handler still reads.
                self.conduit.place(self.to, at, payload).map_err(|Gone| ReplyPathGone)?;
                self.end_with(Category::Long, handler, payload.len(), at, args)
            }
        }
    }

    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut Fill<'_>,
    ) -> Result<(), ReplyPathGone> {
        assert!(len <= self.bound(), "the core checks the bound of a reply");
        self.check()?;
        let buffer = &mut self.conduit.staged[..len];
        // What is not written must not be what another peer was sent.
        buffer.fill(0);
        fill(&mut Buffer(buffer));
        self.end_with(Category::Medium, handler, len, 0, args)
    }

    fn detach(&mut self) -> PendingKey {
        self.end = End::Done;
        let replies = if self.replies { REPLIES } else { 0 };
        PendingKey::new(Peer(self.to), u64::from(self.slot) | replies)
    }
}

impl<N: Sisci> Drop for ConduitReplyPath<'_, N> {
    fn drop(&mut self) {
        let reply = match self.end {
            End::Done => return,
            End::Staged(header, args) => Some((header, args)),
            End::Open => None,
        };
        if reply.is_none() {
            self.conduit.bare_given += u64::from(self.replies);
            if self.to == self.conduit.me {
                // Nothing has to travel.
                return self.conduit.settle(self.to, self.slot);
            }
        }
        if std::thread::panicking() {
            // Sending may wait, and a rank that unwinds cannot: whoever catches this pays later.
            let reply = reply.map(|(header, args)| (header, args, self.conduit.staged.clone()));
            return self.conduit.owed.push(Owed { to: self.to, slot: self.slot, reply });
        }
        // A requester that has gone needs no answer.
        let _ = match reply {
            Some((header, args)) => self.transmit(&header, &args),
            None => self.conduit.control_flag(self.to, self.conduit.layout.reply_slot(self.slot)),
        };
    }
}

/// An answer that a handler has left behind by unwinding.
#[derive(Debug)]
pub(super) struct Owed {
    to: u32,
    slot: u32,
    /// The reply that it had handed over before, with the buffer of its payload.
    reply: Option<(Header, Words, Vec<u8>)>,
}

impl<N: Sisci> Conduit<N> {
    /// Sends what handlers have left behind by unwinding.
    #[inline]
    pub(super) fn pay(&mut self) {
        if !self.owed.is_empty() && !std::thread::panicking() {
            self.pay_owed();
        }
    }

    #[cold]
    fn pay_owed(&mut self) {
        while let Some(Owed { to, slot, reply }) = self.owed.pop() {
            let end = match reply {
                Some((header, args, payload)) => {
                    self.staged = payload;
                    End::Staged(header, args)
                }
                None => End::Open,
            };
            // Counted when it was left behind.
            drop(ConduitReplyPath { conduit: self, to, slot, replies: false, in_slot: false, end });
        }
    }
}
