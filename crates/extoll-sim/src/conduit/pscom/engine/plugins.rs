//! Which plugin carries a connection, and what happens when it cannot.
//!
//! The plugin that is configured is asked first; one that cannot connect is skipped. The ring cannot when the
//! interface has no translation entries left for its buffers. VELO takes nothing per connection and always can.
//! Both ends must come to the same, so a rank without a ring says so: by sending over VELO, or by a refusal in
//! answer to a greeting. Whoever has a ring that has not been greeted back takes it down then; nothing has been
//! sent over it.

use super::{Connection, DATA, Engine, LinkError, OFFER_BYTES, Wire};
use crate::conduit::pscom::config::Plugin;
use crate::conduit::pscom::pinned::{Block, LANDING};
use crate::conduit::pscom::ring::Ring;
use crate::conduit::pscom::stream::Assembler;
use crate::nic::rma::RmaError;
use std::collections::VecDeque;

/// What carries the connections of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginCounts {
    /// Connections over VELO.
    pub velo: u32,
    /// Connections over a ring.
    pub rma: u32,
    /// Those over VELO that were to have a ring, but this end or the other had no translation entries left for it.
    pub without_ring: u32,
}

impl<'a> Engine<'a> {
    /// The number of the connection to a rank, which is made if there is none.
    pub(in crate::conduit::pscom) fn connection(&mut self, peer: u32) -> u32 {
        self.known(peer).unwrap_or_else(|| self.connect(peer, false))
    }

    /// The number of the connection that a packet comes by. Who sends data over VELO has no ring.
    pub(super) fn connection_of(&mut self, peer: u32, mtt: u8) -> u32 {
        self.known(peer).unwrap_or_else(|| self.connect(peer, mtt == DATA))
    }

    fn connect(&mut self, peer: u32, ringless: bool) -> u32 {
        let number = self.connections.len() as u32;
        let wire = self.wire(peer, number, ringless);
        let greets = matches!(wire, Wire::Ring { .. });
        self.connections.push(Connection {
            peer,
            wire,
            queue: VecDeque::new(),
            sending: false,
            assembler: Assembler::new(self.limit.max(OFFER_BYTES as u32)),
            gone: false,
            broken: false,
        });
        self.numbers.insert(peer.into(), number);
        if greets {
            self.sends(number);
        }
        number
    }

    fn wire(&mut self, peer: u32, number: u32, ringless: bool) -> Wire<'a> {
        let own = self.nic.rank();
        if peer == own {
            return Wire::Own;
        }
        let address = self.nic.address(peer).expect("messages go to ranks of the job");
        let page = self.velo.connect(address).expect("the port is open and the process exists");
        if self.config.plugin_of(own, peer) == Plugin::Velo {
            self.counts.velo += 1;
            return Wire::Velo { page, refuses: false };
        }
        let ring = if ringless { None } else { self.open_ring(peer, number) };
        if let Some(ring) = ring {
            self.counts.rma += 1;
            return Wire::Ring { ring: Box::new(ring), hello: page, greeted: false };
        }
        self.counts.velo += 1;
        self.counts.without_ring += 1;
        Wire::Velo { page, refuses: false }
    }

    /// A ring to a rank, unless the translation table has no room.
    fn open_ring(&mut self, peer: u32, number: u32) -> Option<Ring<'a>> {
        let address = self.nic.address(peer)?;
        let rma = self.rma.clone()?;
        let Self { config, costs, landing, pinned, chunks, rings, .. } = self;
        let mut open = || -> Result<Ring<'a>, RmaError> {
            // Whoever has a ring may be offered data, and must have a place for it.
            if landing.is_none() {
                *landing = Some(Block::register(&rma, LANDING)?);
            }
            Ring::open(&rma, address, config.ring, costs.slot, chunks, (rings, number))
        };
        // Registered memory that is not in use is worth less than a ring.
        open().or_else(|_| if pinned.release(&rma) { open() } else { Err(RmaError::InvPort) }).ok()
    }

    /// The peer has no ring: what waits for one goes over VELO.
    pub(super) fn fall_back(&mut self, number: u32) {
        let Connection { wire, .. } = &mut self.connections[number as usize];
        let Wire::Ring { hello, .. } = wire else { return };
        let page = *hello;
        if let Wire::Ring { ring, .. } = std::mem::replace(wire, Wire::Velo { page, refuses: false }) {
            ring.close();
        }
        self.stuck = false;
        self.counts.rma -= 1;
        self.counts.velo += 1;
        self.counts.without_ring += 1;
    }

    /// A greeting for a ring that this rank does not have.
    pub(super) fn refuse(&mut self, number: u32) -> Result<(), LinkError> {
        let (own, Connection { wire, peer, .. }) = (self.nic.rank(), &mut self.connections[number as usize]);
        if self.config.plugin_of(own, *peer) == Plugin::Velo {
            return Err(LinkError::Unexpected("a greeting for a ring that this rank does not use"));
        }
        if let Wire::Velo { refuses, .. } = wire {
            *refuses = true;
            self.sends(number);
        }
        Ok(())
    }

    /// What carries the connections.
    pub(in crate::conduit::pscom) fn counts(&self) -> PluginCounts {
        self.counts
    }
}
