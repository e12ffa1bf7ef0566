//! Sending: admission, frames, and the credits that are owed to others.

use super::frame::{Header, arguments_len};
use super::peers::CONTROLS;
use super::transport::Conduit;
use am_core::transport::{Refused, ReplyBound};
use am_core::{Peer, PeerStatus, Resource, Words};
use fabric_sim::conduit::Kind;

/// What a request has taken, given back if it is not sent.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    pub(super) reply: bool,
}

/// A frame to be sent.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'f> {
    pub(super) kind: Kind,
    pub(super) handler: u8,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
    pub(super) offset: u64,
}

impl Conduit<'_> {
    /// Whether there is a way to a peer.
    pub(super) fn check(&mut self, to: u32) -> Result<(), Refused> {
        match self.known_status(to) {
            PeerStatus::Active if self.nic.context().announced(to).is_some() => Ok(()),
            PeerStatus::Active => Err(self.busy(Resource::Connection)),
            status => Err(Refused::Gone(status)),
        }
    }

    /// Takes what a request with so many bytes of payload needs.
    pub(super) fn admit(
        &mut self,
        to: Peer,
        kind: Kind,
        reply: ReplyBound,
        payload: usize,
    ) -> Result<Admitted, Refused> {
        self.check(to.0)?;
        let (requests, replies) = (self.shared.config.requests, self.shared.config.replies);
        let replies_to = reply != ReplyBound::None;
        let peer = self.peers.of(to.0);
        if kind == Kind::Control {
            if peer.controls >= CONTROLS {
                return Err(self.busy(Resource::RequestFrames));
            }
            peer.controls += 1;
            self.unhandled += 1;
            return Ok(Admitted { reply: false });
        }
        if peer.unhandled >= requests {
            return Err(self.busy(Resource::of_request(payload)));
        }
        if replies_to && peer.expected >= replies {
            return Err(self.busy(Resource::of_reply(reply)));
        }
        peer.unhandled += 1;
        peer.expected += u32::from(replies_to);
        self.unhandled += 1;
        Ok(Admitted { reply: replies_to })
    }

    /// Sends a frame that has room.
    pub(super) fn transmit(&mut self, to: u32, frame: &Outgoing<'_>) {
        let Outgoing { kind, handler, args, payload, offset } = *frame;
        self.nic.charge(self.shared.compose);
        let peer = self.peers.of(to);
        let (handled, freed) = (std::mem::take(&mut peer.handled), std::mem::take(&mut peer.freed));
        let controls = std::mem::take(&mut peer.controls_handled);
        let header = Header { kind, handler, args: args.len() as u8, handled, freed, controls, offset };
        let begin = arguments_len(args.len());
        let fill = |bytes: &mut [u8]| {
            let (words, rest) = bytes.split_at_mut(begin);
            for (bytes, word) in words.as_chunks_mut::<4>().0.iter_mut().zip(args.iter()) {
                *bytes = word.to_le_bytes();
            }
            rest.copy_from_slice(payload);
        };
        let len = u32::try_from(begin + payload.len()).expect("payloads are shorter than 4 GiB");
        if kind.is_long() {
            self.nic.send_placed(to, header.write(), len, (offset, begin), fill);
        } else {
            self.nic.send(to, header.write(), len, fill);
        }
    }

    /// Notes what a peer has a right to know.
    pub(super) fn owe(&mut self, to: u32, handled: u16, freed: u16) {
        if to == self.presence.me {
            // Nobody has to be told.
            let peer = self.peers.of(to);
            peer.unhandled -= u32::from(handled);
            peer.expected -= u32::from(freed);
            self.unhandled -= u64::from(handled);
            self.presence.fresh = true;
            return;
        }
        let peer = self.peers.of(to);
        peer.handled += handled;
        peer.freed += freed;
        self.list(to);
        let window = self.shared.config.requests.min(self.shared.config.replies);
        let peer = self.peers.of(to);
        let urgent = 2 * u32::from(peer.handled.max(peer.freed)) >= window;
        if urgent {
            self.credit.hasten();
        }
    }

    /// Puts a peer into the list of those that credits are owed to.
    pub(super) fn list(&mut self, to: u32) {
        self.credit.list(to, &mut self.peers.of(to).listed);
    }

    /// Sends all credits that nothing else has taken along.
    pub(super) fn pay_all(&mut self) {
        self.credit.was_sent();
        while let Some(to) = self.credit.due.pop() {
            let peer = self.peers.of(to);
            peer.listed = false;
            if (peer.handled, peer.freed, peer.controls_handled) != (0, 0, 0)
                && self.known_status(to) == PeerStatus::Active
            {
                let frame =
                    Outgoing { kind: Kind::Credit, handler: 0, args: &Words::EMPTY, payload: &[], offset: 0 };
                self.transmit(to, &frame);
            }
        }
    }
}
