//! Programs on a network with finite buffers: the engine's packets on their way through [`Buffered`].

use crate::buffered::Buffered;
use crate::config::Config;
use crate::engine::Core;
use crate::in_flight::Flight;
use crate::queue::Event;
use crate::trace::StageKind;
use am_core::Instant;

/// The network, and what its packets belong to.
pub(crate) struct BufferedRun {
    network: Buffered,
    /// The largest packet, header included; a longer message is several.
    packet: u32,
    /// By the number of a packet: the message, by its index.
    messages: Vec<u32>,
    /// By the index of a message: how many of its packets are still to come.
    left: Vec<u32>,
    /// When the engine looks at the network next.
    due: u64,
    /// Events that the run has counted.
    counted: u64,
}

impl BufferedRun {
    pub(crate) fn new(mut network: Buffered, config: &Config) -> Box<Self> {
        network.recycle();
        network.passings = config.trace.then(Vec::new);
        let room = config.buffers.channel_bytes;
        let packet = if config.nic.packet_bytes == 0 { room } else { config.nic.packet_bytes.min(room) };
        Box::new(Self { network, packet, messages: Vec::new(), left: Vec::new(), due: u64::MAX, counted: 0 })
    }

    /// Packets that have not reached their nodes.
    pub(crate) fn under_way(&self) -> usize {
        self.network.under_way()
    }

    /// A message sets out at a time, in as many packets as it takes.
    fn send(&mut self, index: u32, flight: &Flight, at: u64) {
        let Flight { at: from, goal, bytes, header, .. } = *flight;
        let wire = bytes.saturating_add(header).max(1);
        let packets = wire.div_ceil(self.packet);
        if self.left.len() <= index as usize {
            self.left.resize(index as usize + 1, 0);
        }
        self.left[index as usize] = packets;
        for packet in 0..packets {
            let some = self.packet.min(wire - packet * self.packet);
            let number = self.network.send_wire(at, (from, goal), some, some) as usize;
            if self.messages.len() <= number {
                self.messages.resize(number + 1, 0);
            }
            self.messages[number] = index;
        }
    }
}

impl<B: Clone> Core<B> {
    /// Lets a packet that leaves its interface at a time into the network.
    pub(crate) fn buffer(&mut self, index: u32, at: u64) {
        let flight = *self.in_flight.path(index);
        if let Some(buffers) = &mut self.buffers {
            buffers.send(index, &flight, at);
        }
        self.look_at_buffers();
    }

    /// Foresees what happens next in the network.
    fn look_at_buffers(&mut self) {
        if let Some(buffers) = &mut self.buffers
            && let Some(next) = buffers.network.next_at()
            && next < buffers.due
        {
            buffers.due = next;
            self.queue.push(next, Event::Buffers);
        }
    }

    /// Lets happen what happens in the network up to now.
    pub(crate) fn run_buffers(&mut self, now: u64) {
        let Some(mut buffers) = self.buffers.take() else { return };
        // An earlier look has replaced this one: it has looked, or has foreseen another for this time or later.
        if buffers.due != now {
            self.buffers = Some(buffers);
            return;
        }
        buffers.due = u64::MAX;
        buffers.network.run_until(Instant(now));
        // The look itself is an event of the run.
        let events = buffers.network.events();
        self.counts.events += (events - buffers.counted).saturating_sub(1);
        buffers.counted = events;
        if let Some(mut passings) = buffers.network.passings.take() {
            for (number, link, enters, left) in passings.drain(..) {
                self.span(buffers.messages[number as usize], StageKind::Link, link, enters, left);
            }
            buffers.network.passings = Some(passings);
        }
        for delivery in buffers.network.take_delivered() {
            let message = buffers.messages[delivery.number as usize];
            let left = &mut buffers.left[message as usize];
            *left -= 1;
            if *left == 0 {
                let flight = self.in_flight.path(message);
                (flight.at, flight.tail) = (flight.goal, delivery.at.0);
                self.queue.push(delivery.at.0, Event::Arrive(message));
            }
        }
        self.buffers = Some(buffers);
        self.look_at_buffers();
    }
}

impl<B> Core<B> {
    /// Tells the links what they have carried.
    pub(crate) fn settle_buffers(&mut self) {
        if let Some(buffers) = &self.buffers {
            for (link, totals) in self.links.iter_mut().zip(buffers.network.totals()) {
                link.carried(totals);
            }
        }
    }
}
