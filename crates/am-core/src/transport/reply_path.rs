//! The way back for one reply.

use super::{Body, Buffer, PayloadWriter};
use crate::address::Peer;
use crate::arguments::Words;

/// A reply that could not be sent. The reply path is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPathGone;

/// Writes the payload of a reply where it leaves from.
pub type Fill<'a> = dyn FnMut(&mut dyn PayloadWriter) + 'a;

/// The way back for one reply. A reply path that is let go unused becomes a bare credit.
pub trait ReplyPath {
    /// The payload bound that the requester set aside room for.
    fn bound(&self) -> usize;

    /// Size of the requester's segment in bytes.
    fn segment_len(&self) -> u64;

    /// The largest payload of a Long reply in bytes: [`Limits::long`](super::Limits::long) towards the requester.
    fn long_limit(&self) -> u64;

    /// Sends a reply; a Long one is placed in the requester's segment first.
    ///
    /// # Errors
    /// [`ReplyPathGone`] if the requester is gone.
    ///
    /// # Panics
    /// If a payload to copy exceeds [`ReplyPath::bound`], or one to place exceeds [`ReplyPath::long_limit`] or
    /// does not lie in the requester's segment; the core checks all of these first.
    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone>;

    /// Whether there is somebody to reply to, as far as is known without a look at the network.
    ///
    /// # Errors
    /// [`ReplyPathGone`] if the requester is gone.
    fn check(&self) -> Result<(), ReplyPathGone> {
        Ok(())
    }

    /// A buffer of `len` bytes, all zero, for a payload that is written before it is sent. Without an
    /// implementation by the transport it is allocated.
    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        vec![0; len]
    }

    /// Takes back what [`take_buffer`](Self::take_buffer) gave.
    fn give_buffer(&mut self, _: Vec<u8>) {}

    /// Sends a Medium reply of `len` bytes that `fill` writes. Without an implementation by the transport it
    /// writes to a buffer that is copied like any other payload.
    ///
    /// # Errors
    /// [`ReplyPathGone`] if the requester is gone; `fill` is not called then.
    ///
    /// # Panics
    /// If `len` exceeds [`ReplyPath::bound`]; the core checks it first.
    fn send_filled(
        &mut self,
        handler: u8,
        args: &Words,
        len: usize,
        fill: &mut Fill<'_>,
    ) -> Result<(), ReplyPathGone> {
        assert!(len <= self.bound(), "the core checks the bound of a reply");
        self.check()?;
        let mut payload = self.take_buffer(len);
        fill(&mut Buffer(&mut payload));
        let sent = self.send(handler, args, Body::Copy(&payload));
        self.give_buffer(payload);
        sent
    }

    /// Keeps the way back open beyond the handler; [`Transport::reply_detached`](super::Transport::reply_detached)
    /// opens it again.
    fn detach(&mut self) -> PendingKey;
}

/// What a transport needs to find a detached way back; opaque to everyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingKey {
    /// The requester.
    pub to: Peer,
    /// Whatever the transport wants to remember.
    pub tag: u64,
}

/// The way back where there is none: of a message that permits no reply, or to a requester that is gone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NullReplyPath {
    /// What the core may believe that a reply has room for, until it learns that the requester is gone; 0 where no
    /// reply is permitted.
    pub bound: usize,
    /// Size of the requester's segment in bytes, as far as it still matters.
    pub segment_len: u64,
    /// What [`ReplyPath::detach`] returns.
    pub key: PendingKey,
}

impl NullReplyPath {
    /// Of a message from `from` that permits no reply.
    pub const fn one_way(from: Peer) -> Self {
        Self { bound: 0, segment_len: 0, key: PendingKey { to: from, tag: 0 } }
    }
}

impl ReplyPath for NullReplyPath {
    fn bound(&self) -> usize {
        self.bound
    }

    fn segment_len(&self) -> u64 {
        self.segment_len
    }

    fn long_limit(&self) -> u64 {
        u64::MAX
    }

    fn send(&mut self, _: u8, _: &Words, _: Body<'_>) -> Result<(), ReplyPathGone> {
        Err(ReplyPathGone)
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        Err(ReplyPathGone)
    }

    fn detach(&mut self) -> PendingKey {
        self.key
    }
}
