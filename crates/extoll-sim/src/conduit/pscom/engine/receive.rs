//! Receiving: slots of rings and packets of the mailbox, put together to messages.

use super::rendezvous::read_offer;
use super::{Arrival, Connection, DATA, Engine, HELLO, LinkError, REFUSAL, Wire};
use crate::conduit::pscom::header::{Header, Kind};
use crate::conduit::pscom::stream::{Incoming, StreamError};
use crate::nic::rma::Nla;
use crate::nic::velo::Message;

/// Bytes of a greeting: where the sender's receive buffers are.
const HELLO_BYTES: usize = 8;

impl Engine<'_> {
    /// Takes a slot of each ring that has one, and returns tokens.
    pub(super) fn take_slots(&mut self) -> bool {
        if self.counts.rma == 0 {
            return false;
        }
        self.nic.sync();
        let (mut any, mut from) = (false, 0);
        while let Some(number) = self.rings.next(from) {
            from = number + 1;
            match self.take_slot(number) {
                Ok(taken) => any |= taken,
                Err(error) => {
                    self.breaks(number, error);
                    any = true;
                }
            }
        }
        any
    }

    fn take_slot(&mut self, number: u32) -> Result<bool, LinkError> {
        let Self { connections, pool, scratch, .. } = self;
        let Connection { wire, assembler, broken, .. } = &mut connections[number as usize];
        let Wire::Ring { ring, .. } = wire else { return Ok(false) };
        if *broken {
            self.rings.clear(number);
            return Ok(false);
        }
        let mut outcome = Ok(None);
        let taken = ring.take(scratch, |chunk| outcome = assembler.feed(chunk, pool))?;
        let returned = ring.return_tokens()?;
        if !taken && !ring.must_return() {
            // Nothing changes until the peer writes again.
            self.rings.clear(number);
        }
        if let Some(incoming) = outcome? {
            self.take_message(number, incoming)?;
        }
        if taken {
            (self.refused, self.stuck) = (None, false);
        }
        Ok(taken | returned)
    }

    /// Takes a packet out of the mailbox.
    pub(super) fn take_packet(&mut self) -> bool {
        let mut packet = Message::NONE;
        if !self.velo.probe_into(&mut packet) {
            return false;
        }
        self.refused = self.refused.map(|taken| taken + 1);
        let from = self.nic.rank_at(packet.from).expect("packets come from ranks of the job");
        let number = self.connection_of(from, packet.mtt);
        if !self.connections[number as usize].broken
            && let Err(error) = self.take_from(number, &packet)
        {
            self.breaks(number, error);
        }
        true
    }

    pub(super) fn take_from(&mut self, number: u32, packet: &Message) -> Result<(), LinkError> {
        if let Wire::Ring { ring, .. } = &self.connections[number as usize].wire
            && !ring.is_open()
            && !packet.error
            && matches!(packet.mtt, DATA | REFUSAL)
        {
            self.fall_back(number);
        }
        let Self { connections, pool, nic, costs, .. } = self;
        let Connection { wire, assembler, .. } = &mut connections[number as usize];
        match (wire, packet.mtt) {
            _ if packet.error => Err(LinkError::Unexpected("a packet that was spoilt on its way")),
            (Wire::Velo { .. }, DATA) => {
                let first = assembler.between();
                let incoming = assembler.feed(packet.data(), pool)?;
                if first && incoming.is_none() {
                    nic.charge(costs.velo_reassembly);
                }
                if let Some(incoming) = incoming {
                    nic.charge(costs.velo_half);
                    self.take_message(number, incoming)?;
                }
                Ok(())
            }
            (Wire::Ring { ring, .. }, HELLO) if !ring.is_open() => {
                let nla: [u8; HELLO_BYTES] =
                    packet.data().try_into().map_err(|_| LinkError::Unexpected("a greeting of another length"))?;
                ring.greet(Nla(u64::from_le_bytes(nla)));
                self.stuck = false;
                Ok(())
            }
            (Wire::Ring { .. }, HELLO) => Err(LinkError::Unexpected("a second greeting")),
            (Wire::Velo { .. }, HELLO) => self.refuse(number),
            // Here is no ring either.
            (Wire::Velo { .. }, REFUSAL) => Ok(()),
            _ => Err(LinkError::Unexpected("a packet of another plugin")),
        }
    }

    pub(super) fn take_message(&mut self, number: u32, incoming: Incoming) -> Result<(), LinkError> {
        let from = self.connections[number as usize].peer;
        let Incoming { header: Header { kind, envelope, .. }, body } = incoming;
        if envelope.source != from {
            return Err(LinkError::Unexpected("a message in the name of another rank"));
        }
        match kind {
            Kind::Eager => self.arrived.push_back(Arrival::Message { from, envelope, body }),
            Kind::Rendezvous => {
                let offer = read_offer(&body).ok_or(LinkError::Unexpected("an offer of another length"))?;
                self.pool.give(body);
                if offer.len > self.limit {
                    return Err(StreamError::TooLong { body: offer.len, limit: self.limit }.into());
                }
                self.arrived.push_back(Arrival::Offer { from, envelope, offer });
            }
            Kind::Fetched => {
                let number: Option<&[u8; 4]> = body.first_chunk();
                let number = number.map(|number| u32::from_le_bytes(*number));
                self.pool.give(body);
                let known = number.filter(|number| self.offered.get(number).is_some_and(|offer| offer.1 == from));
                self.withdraw(known.ok_or(LinkError::Unexpected("thanks for what was not offered"))?);
            }
        }
        Ok(())
    }
}
