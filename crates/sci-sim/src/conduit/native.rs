//! The core's one-sided operations: puts, which are stores to the peer's payload segment as those of Long messages
//! are.
//!
//! A put is checked before it returns, so it is done then. Reads across the network take about ten times as long
//! as stores, so that gets travel as messages, and there are no atomics.

use super::transport::Conduit;
use crate::nic::Sisci;
use am_core::one_sided::Atomic;
use am_core::transport::{Capability, Completion, Done, Landing, NativeOneSided, Refused, Resource, Ticket};
use am_core::{Peer, PeerStatus};

impl<N: Sisci> NativeOneSided for Conduit<N> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        capability.put = self.config.segment;
        capability
    }

    fn put(
        &mut self,
        to: Peer,
        at: u64,
        bytes: &[u8],
        _: Option<u64>,
        ticket: Ticket,
        done: &mut Done<'_>,
    ) -> Result<(), Refused> {
        match self.known_status(to.0) {
            PeerStatus::Active => {}
            status => return Err(Refused::Gone(status)),
        }
        let placed = self.place(to.0, at, bytes);
        placed.map_err(|_| Refused::Gone(self.known_status(to.0)))?;
        done(Completion::done(ticket));
        Ok(())
    }

    /// There are none; see [`NativeOneSided::capability`].
    fn get(&mut self, _: Peer, _: u64, _: u64, _: Landing, _: Ticket, _: &mut Done<'_>) -> Result<(), Refused> {
        Err(Refused::Busy(Resource::Interface))
    }

    /// There are none; see [`NativeOneSided::capability`].
    fn atomic(
        &mut self,
        _: Peer,
        _: u64,
        _: &Atomic,
        _: bool,
        _: Ticket,
        _: &mut Done<'_>,
    ) -> Result<(), Refused> {
        Err(Refused::Busy(Resource::Interface))
    }
}
