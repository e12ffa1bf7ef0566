//! The way back to a requester.

use super::send::Outgoing;
use super::{Conduit, Machine};
use crate::frame::{Credits, Kind};
use crate::wire::Wire;
use am_core::transport::{Body, PendingKey, ReplyPath, ReplyPathGone, Transport};
use am_core::{Memory, Peer, PeerStatus, Words};

const HANDLED: Credits = Credits { handled: 1, freed: 0, controls: 0 };
const FREED: Credits = Credits { handled: 0, freed: 1, controls: 0 };
const BOTH: Credits = Credits { handled: 1, freed: 1, controls: 0 };

/// A way back. Dropped unused it owes the requester a bare credit, also while a handler unwinds.
pub(super) struct ConduitReplyPath<'t, W: Wire, M: Memory> {
    conduit: &'t mut Conduit<W, M>,
    to: u32,
    /// Whether a reply is allowed.
    allowed: bool,
    /// Whether the request is being handled, and not known to be.
    handling: bool,
    used: bool,
}

impl<'t, W: Wire, M: Memory + Clone> ConduitReplyPath<'t, W, M> {
    /// The way back for a request that is being handled.
    pub(super) fn of_request(conduit: &'t mut Conduit<W, M>, to: u32, allowed: bool) -> Self {
        Self { conduit, to, allowed, handling: true, used: false }
    }

    /// A way back that had been detached.
    pub(super) fn of_key(conduit: &'t mut Conduit<W, M>, key: PendingKey) -> Self {
        Self { conduit, to: key.to.0, allowed: key.tag != 0, handling: false, used: false }
    }

    /// Whether a reply may be sent.
    fn check_in(&self, machine: &Machine<W>) -> Result<(), ReplyPathGone> {
        let there = self.allowed && !self.used && machine.known_status(self.to) == PeerStatus::Active;
        if there { Ok(()) } else { Err(ReplyPathGone) }
    }

    fn transmit(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        if self.conduit.is_elsewhere() {
            return Err(ReplyPathGone);
        }
        // One turn at the state: the helper must not send the credit ahead of the reply.
        let mut machine = self.conduit.lock();
        self.check_in(&machine)?;
        if std::mem::take(&mut self.handling) {
            // After its reply a handler can do nothing that would need the room of its request.
            machine.owe(self.to, HANDLED);
        }
        let (payload, at) = body.parts();
        let kind = Kind::Reply(body.category());
        match body {
            Body::Place(..) => {
                let frame = Outgoing { kind, handler, args, payload: &[], placed: (at, payload.len() as u64) };
                machine.transmit_long(self.to, &frame, payload).map_err(|_| ReplyPathGone)?;
            }
            Body::None | Body::Copy(_) => {
                machine.transmit(self.to, &Outgoing { kind, handler, args, payload, placed: (0, 0) });
            }
        }
        self.used = true;
        Ok(())
    }
}

impl<W: Wire, M: Memory + Clone> ReplyPath for ConduitReplyPath<'_, W, M> {
    fn bound(&self) -> usize {
        if self.allowed { self.conduit.medium } else { 0 }
    }

    fn segment_len(&self) -> u64 {
        self.conduit.segment_bytes(self.to)
    }

    fn long_limit(&self) -> u64 {
        self.conduit.limits(Peer(self.to)).long
    }

    fn send(&mut self, handler: u8, args: &Words, body: Body<'_>) -> Result<(), ReplyPathGone> {
        if let Body::Copy(payload) = body {
            assert!(payload.len() <= self.bound(), "the core checks the bound of a reply");
        }
        self.transmit(handler, args, body)
    }

    fn check(&self) -> Result<(), ReplyPathGone> {
        if self.conduit.is_elsewhere() {
            return Err(ReplyPathGone);
        }
        self.check_in(&self.conduit.lock())
    }

    fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.conduit.lock().memory();
        buffer.resize(len, 0);
        buffer
    }

    fn give_buffer(&mut self, buffer: Vec<u8>) {
        // The program may have forked while it filled the buffer.
        if !self.conduit.is_elsewhere() {
            self.conduit.lock().spare.push(buffer);
        }
    }

    fn detach(&mut self) -> PendingKey {
        self.used = true;
        PendingKey::new(Peer(self.to), self.allowed.into())
    }
}

impl<W: Wire, M: Memory> Drop for ConduitReplyPath<'_, W, M> {
    fn drop(&mut self) {
        let bare = !self.used && self.allowed;
        let credits = match (self.handling, bare) {
            (true, true) => BOTH,
            (true, false) => HANDLED,
            (false, true) => FREED,
            (false, false) => return,
        };
        if self.conduit.is_elsewhere() {
            return;
        }
        let mut machine = self.conduit.lock();
        machine.bare_given += u64::from(bare);
        machine.owe(self.to, credits);
    }
}
