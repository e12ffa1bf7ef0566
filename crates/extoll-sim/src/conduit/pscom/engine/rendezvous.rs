//! Rendezvous: data that waits at its sender, registered, until the receiver has fetched it by a get.
//!
//! Registered memory is bounded by the translation table. A sender that finds no place for its data sends it
//! through the ring; a receiver that finds none gets it piece by piece by way of its landing block, one message
//! after the other.

use super::{Arrival, Connection, Engine, LinkError, Wire};
use crate::conduit::pscom::header::{Envelope, Header, Kind};
use crate::conduit::pscom::pinned::{Block, LANDING};
use crate::conduit::pscom::stream::Outgoing;
use crate::nic::HostMemory;
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

/// Data to be fetched.
pub(super) struct Fetch {
    from: u32,
    envelope: Envelope,
    offer: Offer,
    /// Where it lands; `None`: in the landing block, in turn.
    block: Option<Block>,
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

    /// Where the next message of a ring connection is large and can be kept here until the receiver has fetched
    /// it, replaces it by one that tells where it is.
    pub(super) fn offer_first(&mut self, number: u32) {
        let least = self.config.rendezvous as usize;
        let Connection { wire, queue, peer, .. } = &mut self.connections[number as usize];
        let (Wire::Ring { ring, .. }, Some((message, ticket)), Some(rma)) = (wire, queue.front_mut(), &self.rma)
        else {
            return;
        };
        let Some((Header { kind: Kind::Eager, envelope, .. }, len)) = message.unsent() else { return };
        if least == 0 || len < least || !ring.may_send() {
            return;
        }
        // What finds no place goes through the ring.
        let Ok(block) = self.pinned.take(rma, len) else { return };
        let mut told = self.pool.take();
        self.offers = self.offers.wrapping_add(1);
        told.extend_from_slice(&block.nla.0.to_le_bytes());
        told.extend_from_slice(&(len as u32).to_le_bytes());
        told.extend_from_slice(&self.offers.to_le_bytes());
        let header = Header { kind: Kind::Rendezvous, body: OFFER_BYTES as u32, envelope };
        let body = std::mem::replace(message, Outgoing::new(header, told)).into_body();
        // The block's last reader has said that it is done.
        block.memory.write(0, &body);
        self.offered.insert(self.offers, (block, *peer, std::mem::take(ticket)));
        self.unsent += 1;
        self.pool.give(body);
    }

    pub(super) fn withdraw(&mut self, number: u32) {
        if let Some((block, _, ticket)) = self.offered.remove(&number) {
            self.pinned.give(block);
            self.finish(ticket);
        }
    }

    fn try_fetch(&mut self, number: u32, envelope: Envelope, offer: Offer, ticket: u64) -> Result<(), LinkError> {
        let Connection { wire, peer, .. } = &self.connections[number as usize];
        let (Wire::Ring { .. }, Some(rma)) = (wire, &self.rma) else {
            return Err(LinkError::Unexpected("an offer without RMA"));
        };
        let block = match self.pinned.take(rma, offer.len as usize) {
            Ok(block) => Some(block),
            Err(RmaError::NoMem { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let fetch = Fetch { from: *peer, envelope, offer, block, ticket };
        if fetch.block.is_some() {
            self.get(&fetch)?;
            self.fetches.push(fetch);
        } else {
            self.landings.push_back(fetch);
            if self.landings.len() == 1 {
                self.land();
            }
        }
        Ok(())
    }

    /// Posts the get of data that has a block, or of the next piece for the landing block.
    fn get(&mut self, fetch: &Fetch) -> Result<(), LinkError> {
        let Fetch { from, offer, ref block, .. } = *fetch;
        let number = self.known(from).expect("offers come over connections");
        let (Wire::Ring { ring, .. }, Some(rma)) = (&self.connections[number as usize].wire, &self.rma) else {
            return Err(LinkError::Unexpected("an offer without RMA"));
        };
        let connection = ring.connection();
        let landed = self.landed.len() as u32;
        let (region, len, source) = match (block, &self.landing) {
            (Some(block), _) => (block.region, offer.len, offer.nla),
            (None, Some(landing)) => {
                let left = (offer.len - landed).min(1 << LANDING);
                (landing.region, left, Nla(offer.nla.0.wrapping_add(landed.into())))
            }
            (None, None) => return Err(LinkError::Unexpected("an offer without RMA")),
        };
        loop {
            match rma.post_get_bt(connection, region, 0, len, source, Notify::COMPLETER) {
                // Outstanding commands end by themselves, whatever the peers do.
                Err(RmaError::NoDescMem { .. }) => {
                    self.nic.idle(None, WaitFor::Named("room for a command"));
                    // That may have been told of room to send.
                    self.refused = None;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Gets the next piece for the landing block. Fetches that fail are given up with their connections.
    fn land(&mut self) {
        while let Some(fetch) = self.landings.pop_front() {
            let got = self.get(&fetch);
            let from = fetch.from;
            let Err(error) = got else { return self.landings.push_front(fetch) };
            self.landed.clear();
            let number = self.connection(from);
            self.breaks(number, error);
        }
    }

    /// Takes note of a get that has ended.
    pub(super) fn take_fetched(&mut self) -> bool {
        if self.fetches.is_empty() && self.landings.is_empty() {
            return false;
        }
        let Some(rma) = &self.rma else { return false };
        let Ok(notification) = rma.noti_probe() else { return false };
        let (value, size, failed) = (notification.value, notification.size, notification.error);
        rma.noti_free(notification).expect("the port is open");
        let landed =
            self.landing.as_ref().filter(|landing| landing.nla.0 == value).map(|block| block.memory.clone());
        if let Some(memory) = landed {
            self.take_landed(&memory, size, failed);
            return true;
        }
        let lands = |fetch: &Fetch| fetch.block.as_ref().is_some_and(|block| block.nla.0 == value);
        let Some(index) = self.fetches.iter().position(lands) else { return true };
        let fetch = self.fetches.remove(index);
        let mut body = self.pool.take();
        if let Some(block) = &fetch.block {
            body.resize(fetch.offer.len as usize, 0);
            block.memory.read(0, &mut body);
        }
        self.fetched(fetch, body, failed);
        true
    }

    /// A piece has come to the landing block: the first in turn goes on, or is complete.
    fn take_landed(&mut self, memory: &HostMemory, size: u32, failed: bool) {
        let Some(fetch) = self.landings.pop_front() else { return };
        let (at, whole) = (self.landed.len(), fetch.offer.len as usize);
        self.landed.resize((at + size as usize).min(whole), 0);
        memory.read(0, &mut self.landed[at..]);
        if failed || self.landed.len() == whole {
            let body = std::mem::replace(&mut self.landed, self.pool.take());
            self.fetched(fetch, body, failed);
        } else {
            self.landings.push_front(fetch);
        }
        self.land();
    }

    /// Hands over what was fetched, and tells its sender.
    fn fetched(&mut self, fetch: Fetch, body: Vec<u8>, failed: bool) {
        let Fetch { from, envelope, offer, block, ticket } = fetch;
        let number = self.connection(from);
        if let Some(block) = block {
            self.pinned.give(block);
        }
        if failed {
            self.pool.give(body);
            return self.breaks(number, LinkError::Unexpected("an offer of what is not there"));
        }
        let mut thanks = self.pool.take();
        thanks.extend_from_slice(&offer.number.to_le_bytes());
        let own = Envelope { context: 0, tag: 0, source: self.nic.rank() };
        let header = Header { kind: Kind::Fetched, body: thanks.len() as u32, envelope: own };
        self.enqueue(number, Outgoing::new(header, thanks), 0);
        self.arrived.push_back(Arrival::Fetched { from, envelope, ticket, body });
    }
}

/// Reads an offer; `None` if it has another length.
pub(super) fn read_offer(body: &[u8]) -> Option<Offer> {
    let (nla, rest) = body.split_first_chunk::<8>()?;
    let (len, number) = rest.split_first_chunk::<4>()?;
    let number = u32::from_le_bytes(*number.first_chunk::<4>().filter(|_| number.len() == 4)?);
    Some(Offer { nla: Nla(u64::from_le_bytes(*nla)), len: u32::from_le_bytes(*len), number })
}
