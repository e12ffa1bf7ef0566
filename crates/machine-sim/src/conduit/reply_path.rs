//! The way back to a requester.

use super::send::Outgoing;
use super::transport::Conduit;
use am_core::transport::{Body, PendingKey, ReplyPath, ReplyPathGone, Transport};
use am_core::{Peer, PeerStatus, Words};
use fabric_sim::conduit::Kind;

/// A way back. Dropped unused it owes the requester a bare credit, also while a handler unwinds.
pub(super) struct ConduitReplyPath<'t, 'a> {
    transport: &'t mut Conduit<'a>,
    to: u32,
    /// Whether a reply is allowed.
    allowed: bool,
    /// Whether the request is being handled, and not known to be.
    handling: bool,
    used: bool,
}

impl<'t, 'a> ConduitReplyPath<'t, 'a> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(transport: &'t mut Conduit<'a>, to: u32, allowed: bool) -> Self {
        Self { transport, to, allowed, handling: true, used: false }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(transport: &'t mut Conduit<'a>, key: PendingKey) -> Self {
        Self { transport, to: key.to.0, allowed: key.tag != 0, handling: false, used: false }
    }

    fn transmit(&mut self, handler: u8, args: &Words, body: Body<'_>) {
        self.used = true;
        if std::mem::take(&mut self.handling) {
            // After its reply a handler can do nothing that would need the room of its request.
            self.transport.owe(self.to, 1, 0);
        }
        self.transport.own_replies += u32::from(self.to == self.transport.presence.me);
        let (payload, offset) = body.parts();
        let kind = Kind::Reply(body.category());
        self.transport.transmit(self.to, &Outgoing { kind, handler, args, payload, offset });
    }
}

impl ReplyPath for ConduitReplyPath<'_, '_> {
    fn bound(&self) -> usize {
        if self.allowed { self.transport.shared.config.medium as usize } else { 0 }
    }

    fn segment_len(&self) -> u64 {
        self.transport.segment_size()
    }

    fn long_limit(&self) -> u64 {
        self.transport.limits(Peer(self.to)).long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        self.check()?;
        if let Body::Copy(payload) = body {
            assert!(payload.len() <= self.bound(), "the core checks the bound of a reply");
        }
        self.transmit(handler, args, body);
        Ok(())
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        let there = self.allowed && !self.used && self.transport.known_status(self.to) == PeerStatus::Active;
        if there { Ok(()) } else { Err(ReplyPathGone) }
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        self.transport.spare.take(len)
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.transport.spare.give(buffer);
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey::new(Peer(self.to), self.allowed.into())
    }
}

impl Drop for ConduitReplyPath<'_, '_> {
    fn drop(&mut self) {
        let bare = !self.used && self.allowed;
        if bare {
            self.transport.bare_given += 1;
        }
        if self.handling {
            self.transport.owe(self.to, 1, bare.into());
        } else if bare {
            self.transport.owe(self.to, 0, 1);
        }
    }
}
