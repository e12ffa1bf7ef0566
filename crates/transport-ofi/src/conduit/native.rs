//! One-sided operations that the network does by itself: puts and gets, each with a buffer of the wire.
//!
//! An operation of at most a frame's size takes a buffer for frames, of which there are many, a longer one a
//! buffer for parts of Long payloads. It holds its buffer until it is done, also where what it brought still waits
//! for a poll only as a copy. One that the network fails to carry is [`Gone`](OperationFault::Gone): its failure
//! is the loss of the peer. Atomics travel as messages: those of a network's interface are not coherent with the
//! processor's, which handlers and Long payloads use.

use super::{Conduit, Machine};
use crate::wire::{Failure, Fault, Wire};
use am_core::transport::{
    Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote, Sink, Ticket,
};
use am_core::{Memory, Payload, Peer, PeerStatus, Resource};

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Native {
    to: u32,
    ticket: Ticket,
    len: usize,
    /// Of a get, where its bytes go.
    landing: Option<Landing>,
}

/// An operation that is over, until the program polls: what it is called, and what a get has brought.
#[derive(Debug)]
pub(super) struct Ended {
    ticket: Ticket,
    outcome: Result<Option<Vec<u8>>, OperationFault>,
}

impl<W: Wire> Machine<W> {
    /// A buffer for an operation of so many bytes, within a peer's share.
    fn take_buffer(&mut self, to: u32, len: usize) -> Option<u32> {
        let peer = self.peers.of(to);
        if len <= self.sizes.frame_bytes {
            let buffer = self.frames.take(peer.frames)?;
            peer.frames += 1;
            return Some(buffer);
        }
        let buffer = self.chunks.take(peer.chunks)?;
        peer.chunks += 1;
        Some(buffer)
    }

    fn give_buffer(&mut self, to: u32, buffer: u32) {
        if buffer < self.sizes.frames {
            self.peers.of(to).frames -= 1;
            self.frames.put(buffer);
        } else {
            self.give_chunk(to, buffer);
        }
        self.fresh |= std::mem::take(&mut self.refused);
    }

    /// Starts a put of some bytes, or a get of so many.
    fn start(&mut self, at: Remote, source: Result<&[u8], (usize, Landing)>) -> Result<(), Refused> {
        let Remote { peer: Peer(to), at, ticket } = at;
        self.known_status(to).active().map_err(Refused::Gone)?;
        let len = source.map_or_else(|(len, _)| len, <[u8]>::len);
        let Some(buffer) = self.take_buffer(to, len) else {
            self.refused = true;
            return Err(Refused::Busy(Resource::Interface));
        };
        let started = match source {
            Ok(bytes) => {
                self.wire.buffer(buffer)[..len].copy_from_slice(bytes);
                self.wire.write(to, buffer, len, at)
            }
            Err(_) => self.wire.read(to, buffer, len, at),
        };
        let landing = source.err().map(|(_, landing)| landing);
        match started {
            Ok(()) => {
                self.under_way[buffer as usize] = to;
                self.natives[buffer as usize] = Some(Native { to, ticket, len, landing });
                self.peers.of(to).natives += 1;
                self.natives_out += 1;
                Ok(())
            }
            Err(fault) => {
                self.give_buffer(to, buffer);
                if let Fault::Failed(code) = fault {
                    self.fail(to, Failure { code, own: 0 });
                    return Err(Refused::Gone(self.known_status(to)));
                }
                self.refused = true;
                Err(Refused::Busy(Resource::Interface))
            }
        }
    }

    /// Whether what the wire has done with a buffer was such an operation; then it is over.
    pub(super) fn end_native(&mut self, buffer: u32, done: Result<(), Failure>) -> bool {
        let Some(Native { to, ticket, len, landing }) = self.natives[buffer as usize].take() else { return false };
        self.peers.of(to).natives -= 1;
        self.natives_out -= 1;
        let outcome = match (done, landing) {
            // A peer that the network does not reach is lost with this failure, whoever else tells of it, and
            // when: its operations have one end, whichever of the two comes first.
            (Err(failure), _) => {
                self.fail(to, failure);
                Err(OperationFault::Gone)
            }
            (Ok(()), None) => Ok(None),
            // Who knows of the loss has its memory back.
            (Ok(()), Some(_)) if self.known_status(to) != PeerStatus::Active => Err(OperationFault::Gone),
            (Ok(()), Some(Landing::Segment(at))) => {
                let written = self.segment.write(at, &self.wire.buffer(buffer)[..len]);
                written.map(|()| None).map_err(|_| OperationFault::Refused)
            }
            (Ok(()), Some(Landing::Report)) => {
                let mut bytes = self.memory();
                bytes.extend_from_slice(&self.wire.buffer(buffer)[..len]);
                Ok(Some(bytes))
            }
        };
        self.give_buffer(to, buffer);
        self.ended.push_back(Ended { ticket, outcome });
        self.fresh = true;
        true
    }
}

impl<W: Wire, M: Memory> Conduit<W, M> {
    /// Hands operations that are over to the sink, without the lock.
    pub(super) fn complete<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        while done < budget {
            let Some(ended) = self.lock().ended.pop_front() else { break };
            let outcome = match &ended.outcome {
                Ok(None) => Ok(Brought::NOTHING),
                Ok(Some(bytes)) => Ok(Brought { value: 0, bytes: Payload::own(bytes) }),
                Err(fault) => Err(*fault),
            };
            sink.completed(Completion { ticket: ended.ticket, outcome });
            done += 1;
            if let Ok(Some(bytes)) = ended.outcome
                && !self.is_elsewhere()
            {
                self.lock().spare.push(bytes);
            }
        }
        done
    }
}

impl<W: Wire, M: Memory + Clone> NativeOneSided for Conduit<W, M> {
    fn capability(&self, to: Peer) -> Capability {
        if to == self.me {
            return Capability::default();
        }
        let mut capability = Capability::default();
        (capability.put, capability.get, capability.get_into) = (self.piece, self.piece, self.piece);
        capability.longest_get = u64::MAX;
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], _: Option<u64>, _: &mut Done<'_>) -> Result<(), Refused> {
        self.usable()?;
        self.lock().start(to, Ok(bytes))
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, _: &mut Done<'_>) -> Result<(), Refused> {
        self.usable()?;
        let len = usize::try_from(len).expect("the core checks the length of a get");
        self.lock().start(from, Err((len, landing)))
    }
}
