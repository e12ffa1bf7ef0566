//! The table of packets under way. What every hop needs lies apart from the packets, whose contents nobody looks
//! at on the way: with many packets under way memory is what takes the time.

use crate::device::Packet;
use crate::network::Flow;
use crate::transmit_queue::{Entry, Train, TransmitQueue};
use std::collections::HashMap;

/// Where a packet under way is, or one that a device has set aside.
#[derive(Clone, Copy, Debug)]
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
    /// Trains that cross between halves, where there are two.
    trains: Option<Box<Trains>>,
}

/// A train that has left for the other half.
struct Left {
    number: u64,
    /// When its last bit leaves, and the latency that it has passed then.
    tail: u64,
    passed: u64,
}

/// Trains that cross: they are known by a number of the half that they have left.
#[derive(Default)]
struct Trains {
    last: u64,
    /// Trains that have left, by what queues know of them.
    left: HashMap<(u32, u64), Left>,
    /// Trains that have come, by number: their index here and the packet's number.
    entered: HashMap<u64, (u32, u64)>,
    /// With so many in a table it is looked which are still needed.
    limit: usize,
    /// What the other half is to be told: trains that end later, with the latency that they had passed there.
    later: Vec<(u64, u64, u64)>,
}

impl<B> InFlight<B> {
    pub(crate) const fn new() -> Self {
        Self { paths: Vec::new(), packets: Vec::new(), unused: Vec::new(), trains: None }
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
        self.delay_at(train.index, train.number, train.end, train.passed);
    }

    fn delay_at(&mut self, index: u32, number: u64, end: u64, passed: u64) {
        // A packet that was lost further on has left its place to another.
        if self.packets[index as usize].as_ref().is_some_and(|packet| packet.number == number) {
            let path = &mut self.paths[index as usize];
            path.tail = path.tail.max(end + path.passed.saturating_sub(passed));
        } else if let Some(trains) = &mut self.trains
            && let Some(left) = trains.left.get_mut(&(index, number))
        {
            left.tail = left.tail.max(end + left.passed.saturating_sub(passed));
            trains.later.push((left.number, end, passed));
        }
    }

    /// This is one of two halves.
    pub(crate) fn halve(&mut self) {
        self.trains = Some(Box::default());
    }

    /// A packet is about to leave for the other half; its number there if it is a train.
    pub(crate) fn leaves(&mut self, index: u32, longest: u32, now: u64) -> Option<u64> {
        let Flight { bytes, header, tail, passed, .. } = self.paths[index as usize];
        let trains = self.trains.as_mut().filter(|_| bytes.saturating_add(header) > longest)?;
        trains.last += 1;
        let key = (index, self.packets[index as usize].as_ref()?.number);
        if trains.left.len() >= trains.limit.max(64) {
            trains.left.retain(|_, left| left.tail > now);
            trains.limit = 2 * trains.left.len().max(trains.entered.len());
        }
        trains.left.insert(key, Left { number: trains.last, tail, passed });
        Some(trains.last)
    }

    /// A train has come from the other half, where it has a number.
    pub(crate) fn enters(&mut self, train: u64, index: u32) {
        let Self { packets, trains, .. } = self;
        let (Some(trains), Some(packet)) = (trains, &packets[index as usize]) else { return };
        if trains.entered.len() >= trains.limit.max(64) {
            let Trains { entered, left, .. } = &mut **trains;
            entered.retain(|_, (index, number)| {
                let here = packets[*index as usize].as_ref().is_some_and(|packet| packet.number == *number);
                here || left.contains_key(&(*index, *number))
            });
            trains.limit = 2 * trains.left.len().max(trains.entered.len());
        }
        trains.entered.insert(train, (index, packet.number));
    }

    /// A train that has come from the other half ends later there.
    pub(crate) fn later(&mut self, train: u64, end: u64, passed: u64) {
        let known = self.trains.as_ref().and_then(|trains| trains.entered.get(&train).copied());
        if let Some((index, number)) = known {
            self.delay_at(index, number, end, passed);
        }
    }

    /// What the other half is to be told of trains.
    pub(crate) fn take_later(&mut self) -> impl Iterator<Item = (u64, u64, u64)> + use<B> {
        let later = self.trains.as_mut().map(|trains| std::mem::take(&mut trains.later));
        later.unwrap_or_default().into_iter()
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
