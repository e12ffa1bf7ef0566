//! The nodes' ports: what an interface puts out to all links of its node together, and takes in from them.
//!
//! Packets are cut through: a port passes a packet on while it still comes, so one that nothing meets is not
//! delayed, and takes no event. What comes faster than the port's rate, from several links or from several units,
//! waits.

use crate::in_flight::{Flight, InFlight};
use crate::nic::{PortCosts, serialization};
use crate::transmit_queue::{Entry, TransmitQueue};

/// The ports of all nodes.
#[derive(Debug)]
pub(crate) struct Ports {
    rates: PortCosts,
    /// Of each node, the queue out and the queue in; a bus is the first alone.
    transmit_queues: Vec<[TransmitQueue; 2]>,
}

impl Ports {
    pub(crate) fn new(rates: PortCosts, nodes: u32) -> Self {
        Self { rates, transmit_queues: (0..nodes).map(|_| Default::default()).collect() }
    }

    /// A packet wants to leave its node at a time: tells when its head does. Its last bit follows as the port lets
    /// it.
    #[inline]
    pub(crate) fn put_out<B>(&mut self, index: u32, now: u64, packets: &mut InFlight<B>, longest: u32) -> u64 {
        let Flight { at, goal, bytes, header, .. } = *packets.path(index);
        if self.passes_by(bytes) {
            return now;
        }
        let length = serialization(self.counted(bytes, header), self.rates.out);
        let Entry { enters, left } =
            packets.board(index, &mut self.transmit_queues[at as usize][0], now, length, longest);
        // What stays on its node has been read whole.
        if at != goal {
            let tail = &mut packets.path(index).tail;
            *tail = (*tail).max(left);
        }
        enters
    }

    /// The head of a packet comes out of its last link at a time. Only a train is looked at: its last bit follows
    /// as the port lets it.
    pub(crate) fn begin_to_take_in<B>(&mut self, index: u32, head: u64, packets: &mut InFlight<B>, longest: u32) {
        let Flight { goal, bytes, header, .. } = *packets.path(index);
        let wire = bytes.saturating_add(header);
        if wire > longest && !self.passes_by(bytes) {
            let length = serialization(self.counted(bytes, header), self.rates.into);
            let Entry { left, .. } = packets.board(index, self.queue_in(goal), head, length, longest);
            let tail = &mut packets.path(index).tail;
            *tail = (*tail).max(left);
        }
    }

    /// The last bit of a packet is here: tells when the port has taken it in.
    #[inline]
    pub(crate) fn take_in<B>(&mut self, index: u32, now: u64, packets: &mut InFlight<B>, longest: u32) -> u64 {
        let Flight { goal, bytes, header, .. } = *packets.path(index);
        let wire = bytes.saturating_add(header);
        if wire > longest || self.passes_by(bytes) {
            return now;
        }
        let counted = self.counted(bytes, header);
        let length = serialization(counted, self.rates.into);
        // The first bit came as long ago as a packet takes on a link, or out of its sender's port.
        let slower = serialization(wire, self.rates.link).max(serialization(counted, self.rates.out));
        let begun = now.saturating_sub(length.min(slower));
        packets.board(index, self.queue_in(goal), begun, length, longest).left.max(now)
    }

    /// Whether a packet has nothing that the port carries.
    #[inline]
    fn passes_by(&self, bytes: u32) -> bool {
        self.rates.payload_only && bytes == 0
    }

    /// What a port carries of a packet.
    #[inline]
    fn counted(&self, bytes: u32, header: u32) -> u32 {
        if self.rates.payload_only { bytes } else { bytes.saturating_add(header) }
    }

    fn queue_in(&mut self, node: u32) -> &mut TransmitQueue {
        &mut self.transmit_queues[node as usize][usize::from(!self.rates.shared)]
    }
}
