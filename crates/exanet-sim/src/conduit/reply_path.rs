//! The way back to a requester.

use super::frame::NO_SLOT;
use super::send::{Admitted, Outgoing};
use super::transport::Conduit;
use am_core::transport::{Body, PendingKey, ReplyPath, ReplyPathGone, Transport};
use am_core::{Peer, PeerStatus, Words};
use fabric_sim::conduit::Kind;

/// A way back. Dropped unused it owes the requester a bare credit, also while a handler unwinds.
pub(super) struct ConduitReplyPath<'t, 'a> {
    transport: &'t mut Conduit<'a>,
    to: u32,
    /// The requester's slot for the reply, if one is allowed.
    slot: Option<u8>,
    /// The slot of the request that is being handled, and whether a reply may tell that it is free.
    handling: u32,
    early: bool,
    used: bool,
}

impl<'t, 'a> ConduitReplyPath<'t, 'a> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(
        transport: &'t mut Conduit<'a>,
        to: u32,
        handling: u32,
        early: bool,
        reply: Option<u8>,
    ) -> Self {
        Self { transport, to, slot: reply.filter(|slot| *slot < 32), handling, early, used: false }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(transport: &'t mut Conduit<'a>, key: PendingKey) -> Self {
        let slot = (key.tag < 32).then_some(key.tag as u8);
        Self { transport, to: key.to.0, slot, handling: 0, early: false, used: false }
    }

    fn transmit(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        let Some(slot) = self.slot else { return Err(ReplyPathGone) };
        if self.to == self.transport.presence.me {
            self.transport.own_replies |= 1 << slot;
        } else if self.early {
            // After its reply a handler can do nothing that would need the room of its request.
            let handled = std::mem::take(&mut self.handling);
            self.transport.owe(self.to, handled, 0);
        }
        let (payload, offset) = body.parts();
        let kind = Kind::Reply(body.category());
        self.used = true;
        let frame = Outgoing { kind, handler, slots: Admitted::reply(slot), args, payload, offset };
        self.transport.insist(self.to, &frame).map_err(|_| ReplyPathGone)
    }
}

impl ReplyPath for ConduitReplyPath<'_, '_> {
    fn bound(&self) -> usize {
        if self.slot.is_some() { self.transport.shared.sizes.medium as usize } else { 0 }
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
        self.transmit(handler, args, body)
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        if self.transport.known_status(self.to) == PeerStatus::Active { Ok(()) } else { Err(ReplyPathGone) }
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        self.transport.spare.take(len)
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.transport.spare.give(buffer);
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey::new(Peer(self.to), self.slot.unwrap_or(NO_SLOT).into())
    }
}

impl Drop for ConduitReplyPath<'_, '_> {
    fn drop(&mut self) {
        let mut freed = 0;
        if let (false, Some(slot)) = (self.used, self.slot) {
            self.transport.bare_given += 1;
            freed = 1 << slot;
        }
        if self.transport.settle_own(self.to, self.handling, freed) {
            return;
        }
        self.transport.owe(self.to, self.handling, freed);
    }
}
