//! What the calls of this rank have sent: requests in turns of the peers, notes, and parts of long requests.

use super::{Queued, Shipment, State, Table};
use crate::buffers;
use crate::config::CallConfig;
use crate::meter::End;
use crate::outcome::{Due, Note, Outcome, Outgoing, Sent, Wakers};
use crate::wire::Header;
use am_core::slab::Key;
use am_core::{Address, SendError};

/// Parts of each long request that are sent in one go.
const PARTS: usize = 8;

/// Why sending to a peer has stopped.
enum Stop {
    /// Others have their turn.
    Turn,
    /// Nothing is left.
    Empty,
    /// As many calls as may be are under way to it.
    Limit,
    /// As many calls as may be are under way.
    AllLimit,
    /// The network has no room.
    Room,
}

impl Table {
    /// Sends what can be sent, in turns of the peers; whether anything was, and whether something is left.
    pub(crate) fn send(
        &mut self,
        wakers: &mut Wakers,
        mut send: impl FnMut(Outgoing<'_>) -> Sent,
    ) -> (bool, bool) {
        let (mut advanced, mut blocked) = (false, false);
        for _ in 0..self.uncounted.len() {
            let Some(key) = self.uncounted.pop_front() else { break };
            if self.send_one(key, wakers, &mut send) {
                advanced = true;
            } else {
                self.uncounted.push_back(key);
                blocked = true;
            }
        }
        let mut turn = 0;
        while let Some(&peer) = self.turns.get(turn) {
            let outcome = self.send_to(peer, wakers, &mut send);
            advanced |= outcome.0;
            match outcome.1 {
                // What waits for the limits goes on when a call ends.
                Stop::Empty | Stop::Limit => {
                    self.turns.remove(turn);
                    self.peers[peer as usize].listed = false;
                }
                Stop::Turn => {
                    self.turns.remove(turn);
                    self.turns.push_back(peer);
                }
                // It keeps its place: who has sent is behind it.
                Stop::Room | Stop::AllLimit => {
                    blocked |= matches!(outcome.1, Stop::Room);
                    turn += 1;
                }
            }
        }
        (advanced, blocked)
    }

    /// Sends calls to a peer: one while others wait for their turn, else all that can be sent.
    fn send_to(
        &mut self,
        peer: u32,
        wakers: &mut Wakers,
        send: &mut impl FnMut(Outgoing<'_>) -> Sent,
    ) -> (bool, Stop) {
        let CallConfig { calls_per_peer, calls, .. } = self.config;
        let mut advanced = false;
        loop {
            let (reserved, reserved_in_all) = self.reserved(peer);
            let calling = &mut self.peers[peer as usize];
            let Some(&queued) = calling.queue.front() else { return (advanced, Stop::Empty) };
            let permitted = match queued {
                Queued::Call(key) => {
                    let slot = self.slots.get(key).filter(|slot| matches!(slot.state, State::Queued));
                    let Some(slot) = slot else {
                        calling.queue.pop_front();
                        calling.stale = calling.stale.saturating_sub(1);
                        continue;
                    };
                    slot.permitted
                }
                #[cfg(feature = "tower")]
                Queued::Permit(_) => false,
            };
            if advanced && self.turns.len() > 1 {
                return (advanced, Stop::Turn);
            }
            // One that has a place is not in its own way.
            let others = u32::from(!permitted);
            if calling.under_way + reserved * others >= calls_per_peer.max(1) {
                return (advanced, Stop::Limit);
            }
            if self.under_way + reserved_in_all * others >= calls.max(1) {
                return (advanced, Stop::AllLimit);
            }
            match queued {
                Queued::Call(key) if !self.send_one(key, wakers, send) => return (advanced, Stop::Room),
                Queued::Call(_) => {}
                #[cfg(feature = "tower")]
                Queued::Permit(permit) => self.give_permit(permit, wakers),
            }
            let calling = &mut self.peers[peer as usize];
            calling.queue.pop_front();
            if permitted {
                calling.permitted -= 1;
                #[cfg(feature = "tower")]
                self.permits.is_sent(peer);
            }
            advanced = true;
        }
    }

    /// Sends a call that is queued; whether there was room for it.
    fn send_one(&mut self, key: Key, wakers: &mut Wakers, send: &mut impl FnMut(Outgoing<'_>) -> Sent) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return true };
        let left = match slot.due {
            Due::At(at) => Some(at - self.now),
            Due::After(span) => Some(span),
            Due::Within(at, span) => Some(span.min(at - self.now)),
            Due::Never => None,
        };
        let window = slot.stream.as_ref().map_or(0, |answers| answers.window());
        let outgoing = Outgoing { key, to: slot.to, header: slot.header, request: &slot.bytes, left, window };
        let sent = send(outgoing);
        match sent {
            Sent::NotNow => return false,
            Sent::Announced => slot.header.flags |= Header::LONG,
            Sent::Yes if slot.header.is(Header::ONE_WAY) => {
                // Whatever comes of it, nobody waits.
                if let Some(timer) = slot.timer.take() {
                    self.timers.remove(timer);
                }
                if let Some(slot) = self.slots.remove(key) {
                    slot.count(&self.meter, || End::OneWay, 0);
                    buffers::give(slot.bytes);
                }
                return true;
            }
            Sent::Yes | Sent::Failed(_) => {}
        }
        slot.state = State::Sent;
        let calling = &mut self.peers[slot.peer as usize];
        if slot.counted {
            calling.under_way += 1;
            self.under_way += 1;
        } else {
            calling.uncounted += 1;
        }
        if let Sent::Failed(error) = sent {
            // It was under way for a moment, so that its end is that of others.
            self.refused(key, error, wakers);
        }
        true
    }

    /// Sends notes until there is no room; whether any was sent, and whether any is left.
    pub(crate) fn send_notes(&mut self, mut send: impl FnMut(Note) -> Sent) -> (bool, bool) {
        let mut advanced = false;
        // A peer that is slow does not hold those to others up.
        for _ in 0..self.notes.len() {
            let Some(note) = self.notes.pop_front() else { break };
            match send(note) {
                Sent::NotNow => self.notes.push_back(note),
                // To a peer that is gone.
                Sent::Yes | Sent::Announced | Sent::Failed(_) => advanced = true,
            }
        }
        (advanced, !self.notes.is_empty())
    }

    /// Sends parts of long requests until there is no room; whether any was sent, and whether any is left. `send`
    /// gets the destination, the number that the part goes to, the offset, and all bytes from there on; it says
    /// how many of them it has sent.
    pub(crate) fn send_parts(
        &mut self,
        wakers: &mut Wakers,
        mut send: impl FnMut(Address, u64, usize, &[u8]) -> Result<usize, SendError>,
    ) -> (bool, bool) {
        let mut advanced = false;
        for _ in 0..PARTS {
            if !self.send_a_part_each(wakers, &mut send) {
                break;
            }
            advanced = true;
        }
        (advanced, !self.shipments.is_empty())
    }

    fn send_a_part_each(
        &mut self,
        wakers: &mut Wakers,
        send: &mut impl FnMut(Address, u64, usize, &[u8]) -> Result<usize, SendError>,
    ) -> bool {
        let mut advanced = false;
        for _ in 0..self.shipments.len() {
            let Some(mut shipment) = self.shipments.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(shipment.call) else { continue };
            match send(slot.to, shipment.remote, shipment.sent, &slot.bytes[shipment.sent..]) {
                Ok(0) => self.shipments.push_back(shipment),
                Ok(sent) => {
                    advanced = true;
                    shipment.sent += sent;
                    if shipment.sent < slot.bytes.len() {
                        self.shipments.push_back(shipment);
                        continue;
                    }
                    slot.state = State::Sent;
                    buffers::give(std::mem::take(&mut slot.bytes));
                    if slot.header.is(Header::ONE_WAY) {
                        self.end(shipment.call, Outcome::Answer, wakers);
                    }
                }
                // Its end is that of all calls to the peer.
                Err(_) => slot.state = State::Sent,
            }
        }
        advanced
    }

    /// The callee has room for a long request.
    pub(crate) fn granted(&mut self, from: Address, call: Key, remote: u64) {
        let Some(slot) = self.slots.get_mut(call) else { return };
        if slot.to == from
            && let State::Writing { remote: granted } = &mut slot.state
        {
            *granted = Some(remote);
            return;
        }
        if slot.to != from
            || !matches!(slot.state, State::Sent)
            || !slot.header.is(Header::LONG)
            || slot.bytes.is_empty()
        {
            return;
        }
        slot.state = State::Sending;
        self.shipments.push_back(Shipment { call, remote, sent: 0 });
    }

    /// A call that [`Table::start_sent`] made has been announced, and its request is being written.
    pub(crate) fn announced(&mut self, call: Key) {
        if let Some(slot) = self.slots.get_mut(call) {
            slot.header.flags |= Header::LONG;
            slot.state = State::Writing { remote: None };
        }
    }

    /// Whether a request is still to be written, and the number that its parts go to, once the callee has room.
    pub(crate) fn writing(&self, call: Key) -> Option<Option<u64>> {
        match self.slots.get(call)?.state {
            State::Writing { remote } => Some(remote),
            _ => None,
        }
    }

    /// A request has been written, and so much of it sent.
    pub(crate) fn written(&mut self, call: Key, request: Vec<u8>, all: bool, sent: usize) {
        let Some(slot) = self.slots.get_mut(call) else { return buffers::give(request) };
        let State::Writing { remote } = slot.state else { return buffers::give(request) };
        slot.state = State::Sent;
        if all {
            return buffers::give(request);
        }
        slot.bytes = request;
        if let Some(remote) = remote {
            slot.state = State::Sending;
            self.shipments.push_back(Shipment { call, remote, sent });
        }
    }
}
