//! The way back to a requester.

use super::codec::Kind;
use super::send::Outgoing;
use super::transport::Conduit;
use am_core::transport::{Body, PendingKey, ReplyPath, ReplyPathGone, Transport};
use am_core::{Peer, Words};

/// A way back. Dropped unused it returns the request's credits by an automatic reply, also while a handler
/// unwinds.
pub(super) struct ConduitReplyPath<'t, 'a> {
    transport: &'t mut Conduit<'a>,
    to: u32,
    /// The request's chunk at the requester, and its credits.
    chunk: u32,
    cost: u32,
    /// Whether a reply is allowed.
    replies: bool,
    used: bool,
}

impl<'t, 'a> ConduitReplyPath<'t, 'a> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(
        transport: &'t mut Conduit<'a>,
        to: u32,
        chunk: u32,
        cost: u32,
        replies: bool,
    ) -> Self {
        Self { transport, to, chunk, cost, replies, used: false }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(transport: &'t mut Conduit<'a>, key: PendingKey) -> Self {
        Self { transport, to: key.to.0, chunk: key.tag as u32, cost: 0, replies: true, used: false }
    }

    fn reply(&mut self, frame: &Outgoing<'_>) -> Result<(), ReplyPathGone> {
        self.check()?;
        self.used = true;
        let sent = self.transport.reply(self.to, self.chunk, self.cost, frame);
        sent.map_err(|_| ReplyPathGone)
    }
}

impl ReplyPath for ConduitReplyPath<'_, '_> {
    fn bound(&self) -> usize {
        if self.replies { self.transport.shared.sizes.medium as usize } else { 0 }
    }

    fn segment_len(&self) -> u64 {
        self.transport.shared.config.segment
    }

    fn long_limit(&self) -> u64 {
        self.transport.limits(Peer(self.to)).long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        let (form, payload, at) = self.transport.form_of(args, body);
        self.reply(&Outgoing { kind: Kind::Reply, form, handler, args, payload, at })
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.transport.known_status(self.to).active().map_err(|_| ReplyPathGone)
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        self.transport.spare.take(len)
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.transport.spare.give(buffer);
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        // The credits go back at once: the receive buffer is free.
        self.transport.signal(self.to, self.chunk, self.cost, Kind::Ahead, 0);
        PendingKey::new(Peer(self.to), self.chunk.into())
    }
}

impl Drop for ConduitReplyPath<'_, '_> {
    fn drop(&mut self) {
        if !self.used {
            self.transport.bare_given += u64::from(self.replies);
            self.transport.signal(self.to, self.chunk, self.cost, Kind::Credit, 0);
        }
    }
}
