//! The core's one-sided operations: puts, which are stores to the peer's payload segment as those of Long messages
//! are, and gets of a line.
//!
//! A put is checked before it returns, so it is done then. A read across the network makes the processor wait for
//! a round trip per line, so that longer gets travel as messages; it is done when it returns, too. There are no
//! atomics.

use super::layout::LINE;
use super::net::Gone;
use super::transport::Conduit;
use crate::nic::Sisci;
use am_core::transport::{
    Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote,
};
use am_core::{Payload, Peer};

/// How often a line is asked for.
const TRIES: u32 = 16;

impl<N: Sisci> Conduit<N> {
    /// Reads bytes of a peer's segment; whether they have come at last.
    fn fetch(&mut self, from: u32, at: usize, out: &mut [u8]) -> Result<bool, Gone> {
        self.net.open_payload(from)?;
        for _ in 0..TRIES {
            if self.net.read(from, at, out)? {
                return Ok(true);
            }
            self.hold_on(from)?;
        }
        Ok(false)
    }
}

impl<N: Sisci> NativeOneSided for Conduit<N> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        capability.put = self.config.segment;
        (capability.get, capability.get_into) = (LINE as u64, LINE as u64);
        // Behind a line a request and its reply are faster.
        capability.longest_get = LINE as u64;
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], _: Option<u64>, done: &mut Done<'_>) -> Result<(), Refused> {
        self.known_status(to.peer.0).active().map_err(Refused::Gone)?;
        let placed = self.place(to.peer.0, to.at, bytes);
        placed.map_err(|_| Refused::Gone(self.known_status(to.peer.0)))?;
        done(Completion::done(to.ticket));
        Ok(())
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, done: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer, at, ticket } = from;
        self.known_status(peer.0).active().map_err(Refused::Gone)?;
        let mut line = [0; LINE];
        let bytes = &mut line[..len as usize];
        let came = self.fetch(peer.0, at as usize, bytes);
        let came = came.map_err(|Gone| Refused::Gone(self.known_status(peer.0)))?;
        let outcome = match landing {
            _ if !came => Err(OperationFault::Failed),
            Landing::Report => Ok(Brought { bytes: Payload::own(bytes), ..Brought::NOTHING }),
            Landing::Segment(into) => {
                self.segment.write(into, bytes).expect("the core has checked the place");
                Ok(Brought::NOTHING)
            }
        };
        done(Completion { ticket, outcome });
        Ok(())
    }
}
