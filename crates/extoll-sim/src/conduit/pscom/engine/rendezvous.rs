//! Rendezvous: data that waits at its sender, registered, until the receiver has fetched it by a get.

use super::{Arrival, Connection, Engine, LinkError, Wire};
use crate::conduit::pscom::header::{Envelope, Header, Kind};
use crate::conduit::pscom::pinned::Block;
use crate::conduit::pscom::stream::Outgoing;
use crate::nic::rma::{Nla, Notify, RmaError};
use fabric_sim::WaitFor;

/// Bytes of an offer: address, length and number of what waits at the sender.
pub(super) const OFFER_BYTES: usize = 16;

/// Data that waits at a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit::pscom) struct Offer {
    nla: Nla,
    pub(super) len: u32,
    number: u32,
}

/// A get under way.
pub(super) struct Fetch {
    from: u32,
    envelope: Envelope,
    offer: Offer,
    block: Block,
    ticket: u64,
}

impl Engine<'_> {
    /// Gets the data of an offer; [`Arrival::Fetched`] brings it under the ticket.
    pub(in crate::conduit::pscom) fn fetch(&mut self, from: u32, envelope: Envelope, offer: Offer, ticket: u64) {
        let number = self.connection(from);
        if let Err(error) = self.try_fetch(number, envelope, offer, ticket) {
            self.breaks(number, error);
        }
    }

    /// Keeps data until the receiver has fetched it, and tells the receiver where it is.
    pub(super) fn offer(&mut self, number: u32, envelope: Envelope, body: Vec<u8>, ticket: u64) {
        let rma = self.rma.as_ref().expect("rings exist where there is RMA");
        let peer = self.connections[number as usize].peer;
        self.unsent += 1;
        let block = match self.pinned.take(rma, body.len()) {
            Ok(block) => block,
            Err(error) => {
                self.finish(ticket);
                return self.breaks(number, error.into());
            }
        };
        // The block's last reader has said that it is done.
        block.memory.write(0, &body);
        self.offers = self.offers.wrapping_add(1);
        let mut told = self.pool.take();
        told.extend_from_slice(&block.nla.0.to_le_bytes());
        told.extend_from_slice(&(body.len() as u32).to_le_bytes());
        told.extend_from_slice(&self.offers.to_le_bytes());
        self.offered.insert(self.offers, (block, peer, ticket));
        self.pool.give(body);
        let header = Header { kind: Kind::Rendezvous, body: OFFER_BYTES as u32, envelope };
        self.enqueue(number, Outgoing::new(header, told), 0);
    }

    pub(super) fn withdraw(&mut self, number: u32) {
        if let Some((block, _, ticket)) = self.offered.remove(&number) {
            self.pinned.give(block);
            self.finish(ticket);
        }
    }

    pub(super) fn try_fetch(
        &mut self,
        number: u32,
        envelope: Envelope,
        offer: Offer,
        ticket: u64,
    ) -> Result<(), LinkError> {
        let Connection { wire, peer, .. } = &self.connections[number as usize];
        let (Wire::Ring { ring, .. }, Some(rma)) = (wire, &self.rma) else {
            return Err(LinkError::Unexpected("an offer without RMA"));
        };
        let (from, connection) = (*peer, ring.connection());
        let block = self.pinned.take(rma, offer.len as usize)?;
        loop {
            match rma.post_get_bt(connection, block.region, 0, offer.len, offer.nla, Notify::COMPLETER) {
                // Outstanding commands end by themselves, whatever the peers do.
                Err(RmaError::NoDescMem { .. }) => {
                    self.nic.idle(None, WaitFor::Named("room for a command"));
                    // That may have been told of room to send.
                    self.refused = None;
                }
                other => break other?,
            }
        }
        self.fetches.push(Fetch { from, envelope, offer, block, ticket });
        Ok(())
    }

    /// Takes note of a get that has ended.
    pub(super) fn take_fetched(&mut self) -> bool {
        if self.fetches.is_empty() {
            return false;
        }
        let Some(rma) = &self.rma else { return false };
        let Ok(notification) = rma.noti_probe() else { return false };
        let (value, failed) = (notification.value, notification.error);
        rma.noti_free(notification).expect("the port is open");
        let Some(index) = self.fetches.iter().position(|fetch| fetch.block.nla.0 == value) else { return true };
        let Fetch { from, envelope, offer, block, ticket } = self.fetches.remove(index);
        let number = self.connection(from);
        if failed {
            self.pinned.give(block);
            self.breaks(number, LinkError::Unexpected("an offer of what is not there"));
            return true;
        }
        let mut body = self.pool.take();
        body.resize(offer.len as usize, 0);
        block.memory.read(0, &mut body);
        self.pinned.give(block);
        let mut thanks = self.pool.take();
        thanks.extend_from_slice(&offer.number.to_le_bytes());
        let own = Envelope { context: 0, tag: 0, source: self.nic.rank() };
        let header = Header { kind: Kind::Fetched, body: thanks.len() as u32, envelope: own };
        self.enqueue(number, Outgoing::new(header, thanks), 0);
        self.arrived.push_back(Arrival::Fetched { from, envelope, ticket, body });
        true
    }
}

/// Reads an offer; `None` if it has another length.
pub(super) fn read_offer(body: &[u8]) -> Option<Offer> {
    let (nla, rest) = body.split_first_chunk::<8>()?;
    let (len, number) = rest.split_first_chunk::<4>()?;
    let number = u32::from_le_bytes(*number.first_chunk::<4>().filter(|_| number.len() == 4)?);
    Some(Offer { nla: Nla(u64::from_le_bytes(*nla)), len: u32::from_le_bytes(*len), number })
}
