//! The way back to a requester.

use super::header::{Kind, LongTarget};
use super::transport::{Gasnet, Outgoing};
use am_core::transport::{Body, PendingKey, ReplyPath, ReplyPathGone, Transport};
use am_core::{Category, Peer, Words};

/// A way back. Dropped unused it owes the requester a bare credit, also while a handler unwinds.
pub(super) struct ConduitReplyPath<'t, 'a> {
    transport: &'t mut Gasnet<'a>,
    to: u32,
    /// Slots that the requester has set aside and that have not been given back, and those of them that a reply
    /// may take.
    reserve: u32,
    room: u32,
    /// Whether a reply is allowed.
    replies: bool,
    /// Slots of the request, if it is being handled.
    handling: u32,
    used: bool,
}

/// What a detached way back remembers: in the low half the slots that are set aside, then those for a reply, and
/// whether one is allowed.
const ROOM: u32 = 32;
const REPLIES: u64 = 1 << 63;

impl<'t, 'a> ConduitReplyPath<'t, 'a> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(
        transport: &'t mut Gasnet<'a>,
        to: u32,
        reserve: u16,
        replies: bool,
        slots: u32,
    ) -> Self {
        let reserve = u32::from(reserve);
        // One slot is for a packet of credits.
        let room = reserve.saturating_sub(1);
        Self { transport, to, reserve, room, replies, handling: slots, used: false }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(transport: &'t mut Gasnet<'a>, key: PendingKey) -> Self {
        let (reserve, room) = (key.tag as u32, (key.tag & !REPLIES) >> ROOM);
        let replies = key.tag & REPLIES != 0;
        Self { transport, to: key.to.0, reserve, room: room as u32, replies, handling: 0, used: false }
    }

    /// Slots that go back with the acknowledgement of the request: the first implementation sends one for each,
    /// and that takes a slot.
    fn acknowledgement(&self) -> u32 {
        u32::from(self.handling != 0 && self.transport.acknowledges(self.to))
    }

    fn transmit(
        &mut self,
        category: Category,
        handler: u8,
        args: &Words,
        payload: &[u8],
        at: u64,
    ) -> Result<(), ReplyPathGone> {
        // After its reply a handler can do nothing that would need the room of its request.
        let handled = if self.transport.acknowledges(self.to) { 0 } else { std::mem::take(&mut self.handling) };
        self.transport.owe(self.to, handled, 0);
        let reserve = self.reserve - self.acknowledgement();
        let place = LongTarget { offset: at, len: payload.len() as u64 };
        let frame =
            Outgoing { kind: Kind::Reply(category), handler, reserve: reserve as u16, args, payload, place };
        self.used = true;
        self.transport.insist(self.to, &frame).map_err(|_| ReplyPathGone)
    }
}

impl ReplyPath for ConduitReplyPath<'_, '_> {
    fn bound(&self) -> usize {
        if self.replies { self.transport.bound_of(self.room) } else { 0 }
    }

    fn segment_len(&self) -> u64 {
        self.transport.segment_size()
    }

    fn long_limit(&self) -> u64 {
        self.transport.limits(Peer(self.to)).long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        self.check()?;
        let (payload, at) = body.parts();
        let bounded = !matches!(body, Body::Copy(_)) || payload.len() <= self.bound();
        assert!(bounded, "the core checks the bound of a reply");
        self.transmit(body.category(), handler, args, payload, at)
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        self.transport.known_status(self.to).active().map_err(|_| ReplyPathGone)
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        self.transport.buffers.spare.take(len)
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.transport.buffers.spare.give(buffer);
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        let kept = self.reserve - self.acknowledgement();
        let replies = if self.replies { REPLIES } else { 0 };
        PendingKey::new(Peer(self.to), u64::from(kept) | u64::from(self.room) << ROOM | replies)
    }
}

impl Drop for ConduitReplyPath<'_, '_> {
    fn drop(&mut self) {
        if !self.used {
            self.transport.bare_given += u64::from(self.replies);
            if self.transport.settle_own(self.to, self.handling, self.reserve, 0) {
                return;
            }
        }
        let freed = if self.used { self.acknowledgement() } else { self.reserve };
        self.transport.owe(self.to, self.handling, freed);
        if self.transport.acknowledges(self.to) && !std::thread::panicking() {
            self.transport.pay(self.to);
        }
    }
}
