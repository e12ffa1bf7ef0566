//! The table of packets under way. What every hop needs lies apart from the packets, whose contents nobody looks
//! at on the way: with many packets under way memory is what takes the time.

use crate::device::Packet;
use crate::network::Flow;
use crate::transmit_queue::{Entry, Train, TransmitQueue};

/// Where a packet under way is, or one that a device has set aside.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    /// Where its head is, and the node it goes to.
    pub(crate) at: u32,
    pub(crate) goal: u32,
    /// When its last bit is where its head is.
    pub(crate) tail: u64,
    pub(crate) bytes: u32,
    /// Header bytes on the wire; the device's token while the packet is set aside.
    pub(crate) header: u32,
    /// What it remembers of its way.
    pub(crate) flow: Flow,
    /// Latency of the links that its head has passed.
    pub(crate) passed: u64,
    pub(crate) corrupt: bool,
    /// Which of the channels of its pair it travels on, and its turn among all packets.
    pub(crate) channel: u8,
    pub(crate) turn: u64,
    /// Traffic of the interfaces themselves, which no statistics of latency count.
    pub(crate) aside: bool,
}

/// All packets under way, by index.
pub(crate) struct InFlight<B> {
    paths: Vec<Flight>,
    packets: Vec<Option<Packet<B>>>,
    unused: Vec<u32>,
}

impl<B> InFlight<B> {
    pub(crate) const fn new() -> Self {
        Self { paths: Vec::new(), packets: Vec::new(), unused: Vec::new() }
    }

    /// Gives a packet a place.
    #[inline]
    pub(crate) fn launch(&mut self, flight: Flight, packet: Packet<B>) -> u32 {
        if let Some(index) = self.unused.pop() {
            self.paths[index as usize] = flight;
            self.packets[index as usize] = Some(packet);
            return index;
        }
        self.paths.push(flight);
        self.packets.push(Some(packet));
        self.paths.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn path(&mut self, index: u32) -> &mut Flight {
        &mut self.paths[index as usize]
    }

    #[inline]
    pub(crate) fn packet(&self, index: u32) -> &Packet<B> {
        self.packets[index as usize].as_ref().expect("an event names a packet that is under way")
    }

    /// Lets a packet onto a queue that it reaches at a time: as a train if it is longer than a packet may be.
    pub(crate) fn board(
        &mut self,
        index: u32,
        transmit: &mut TransmitQueue,
        now: u64,
        length: u64,
        longest: u32,
    ) -> Entry {
        let Flight { bytes, header, passed, .. } = *self.path(index);
        let wire = bytes.saturating_add(header);
        if wire <= longest && transmit.is_plain(now) {
            return transmit.pass(now, length);
        }
        // A piece of a train takes as long as the largest packet.
        let piece = (u128::from(length) * u128::from(longest) / u128::from(wire.max(1))) as u64;
        if wire <= longest {
            return transmit.cut_in(now, length, piece, |train| self.delay(train));
        }
        let channel = self.path(index).channel;
        let Packet { number, from, to, .. } = *self.packet(index);
        let train = Train { index, number, lane: (from, to, channel), last: true, end: 0, passed };
        transmit.join(now, length, piece, train, |train| self.delay(train))
    }

    /// A train ends later on a queue that it passes, or has passed: so its last bit is later wherever its head is.
    fn delay(&mut self, train: &Train) {
        let index = train.index as usize;
        // A packet that was lost further on has left its place to another.
        if self.packets[index].as_ref().is_some_and(|packet| packet.number == train.number) {
            let path = &mut self.paths[index];
            path.tail = path.tail.max(train.end + path.passed.saturating_sub(train.passed));
        }
    }

    /// Takes a packet out of the table.
    #[inline]
    pub(crate) fn land(&mut self, index: u32) -> (Flight, Packet<B>) {
        self.unused.push(index);
        let flight = self.paths[index as usize];
        let packet = self.packets[index as usize].take();
        let mut packet = packet.expect("an event names a packet that is under way");
        packet.corrupt = flight.corrupt;
        (flight, packet)
    }
}
