//! A packet's way: from the sender's interface over link after link into the receiver's.

use crate::buffered::LinkTotals;
use crate::device::Packet;
use crate::engine::{Core, NOBODY};
use crate::fault_rng::Try;
use crate::faults::LinkRules;
use crate::in_flight::Flight;
use crate::lane_order::Lane;
use crate::network::{DIRECT, Flow};
use crate::nic::serialization;
use crate::queue::Event;
use crate::stage::Server;
use crate::trace::{StageKind, TraceSpan};
use crate::transmit_queue::{Entry, TransmitQueue};
use am_core::Instant;
use std::collections::VecDeque;

/// A link in one direction: what every packet needs, in a cache line of its own.
#[repr(align(64))]
pub(crate) struct Link {
    transmit: TransmitQueue,
    latency: u64,
    pub(crate) busy: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    femtos_per_byte: u64,
    /// The longest packet that nothing need be looked up for.
    plain: u32,
    pub(crate) down: bool,
    /// It is down, or its queue is limited.
    pub(crate) careful: bool,
}

/// What a link needs when something goes wrong.
pub(crate) struct Outage {
    link_rules: LinkRules,
    pub(crate) held: VecDeque<u32>,
    pub(crate) retries: u64,
}

impl Link {
    /// A link whose packets have at most `packet` bytes; what is longer is a train.
    pub(crate) fn new(link_rules: &LinkRules, packet: u32) -> Self {
        let LinkRules { latency, femtos_per_byte, mtu, queue, .. } = *link_rules;
        Self {
            transmit: TransmitQueue::default(),
            latency,
            busy: 0,
            packets: 0,
            bytes: 0,
            femtos_per_byte,
            plain: mtu.min(packet),
            down: false,
            careful: queue != u32::MAX,
        }
    }

    pub(crate) const fn latency(&self) -> u64 {
        self.latency
    }

    /// For how long of a run it carried packets: what still waits for it at the run's end does not count.
    pub(crate) fn used(&self, ended: u64) -> u64 {
        self.busy.saturating_sub(self.transmit.left_at(ended)).min(ended)
    }

    /// What it has carried, where the links of a network with finite buffers did it.
    pub(crate) fn carried(&mut self, totals: LinkTotals) {
        (self.packets, self.bytes, self.busy) = (totals.packets, totals.bytes, totals.busy);
        self.transmit.occupy_until(totals.free_at);
    }

    /// How long a packet occupies it.
    #[inline]
    fn serialization(&self, bytes: u32) -> u64 {
        serialization(bytes, self.femtos_per_byte)
    }
}

impl Outage {
    pub(crate) fn new(link_rules: LinkRules) -> Self {
        Self { link_rules, held: VecDeque::new(), retries: 0 }
    }

    /// Whether the link's queue is limited.
    pub(crate) fn limited(&self) -> bool {
        self.link_rules.queue != u32::MAX
    }
}

/// Passes stage after stage; returns when the packet enters the first and leaves the last. Stages that take no
/// time are not looked at.
#[inline]
fn pass<const N: usize>(
    stages: &mut [Server; N],
    free: [bool; N],
    now: u64,
    bytes: u32,
    slowness: u64,
) -> (u64, u64) {
    let (mut enters, mut leaves) = (now, now);
    for (index, (stage, free)) in stages.iter_mut().zip(free).enumerate() {
        if !free {
            let served = stage.serve(leaves, bytes, slowness);
            enters = if index == 0 { served.0 } else { enters };
            leaves = served.1;
        }
    }
    (enters, leaves)
}

impl<B: Clone> Core<B> {
    /// Whether the node that a packet goes to has stopped.
    #[inline]
    pub(crate) fn gone(&mut self, index: u32) -> bool {
        self.nodes[self.in_flight.path(index).goal as usize].stopped
    }

    pub(crate) fn lose(&mut self, index: u32, now: u64) {
        self.give_way(index, now);
        let (_, packet) = self.in_flight.land(index);
        self.counts.lost += 1;
        self.landed(packet.from, now);
    }

    /// The pair and channel of a packet.
    fn lane(&mut self, index: u32) -> Lane {
        let channel = self.in_flight.path(index).channel;
        let Packet { from, to, .. } = *self.in_flight.packet(index);
        (from, to, channel)
    }

    /// A packet sets out: those of its lane come behind it.
    #[inline]
    fn set_out(&mut self, index: u32) {
        if self.lane_order.is_some() {
            let lane = self.lane(index);
            if self.away.is_some() {
                return self.set_out_of_half(index, lane);
            }
            let turn = self.lane_order.as_mut().map(|order| order.set_out(index, lane));
            self.in_flight.path(index).turn = turn.unwrap_or_default();
        }
    }

    /// The same where this is a half: the order is kept in the half of the destination.
    #[cold]
    fn set_out_of_half(&mut self, index: u32, lane: Lane) {
        let goal = self.in_flight.path(index).goal;
        let Some(order) = &mut self.lane_order else { return };
        let turn = order.next_turn();
        if !self.set_out_there(goal, lane, turn)
            && let Some(order) = &mut self.lane_order
        {
            order.add(index, lane, turn);
        }
        self.in_flight.path(index).turn = turn;
    }

    /// A packet is about to be handed to its destination; whether it is its turn. The next one of its lane, if
    /// that has come, follows.
    #[inline]
    pub(crate) fn hand_over(&mut self, index: u32, now: u64) -> bool {
        if self.lane_order.is_none() {
            return true;
        }
        let (lane, turn) = (self.lane(index), self.in_flight.path(index).turn);
        let turned = self.lane_order.as_mut().is_none_or(|order| order.comes(index, lane, turn));
        if turned {
            self.give_way(index, now);
        }
        turned
    }

    /// The next packet of a packet's lane need not wait for it any more.
    fn give_way(&mut self, index: u32, now: u64) {
        if self.lane_order.is_none() {
            return;
        }
        let (lane, turn) = (self.lane(index), self.in_flight.path(index).turn);
        if let Some(next) = self.lane_order.as_mut().and_then(|order| order.handed_over(index, lane, turn)) {
            self.queue.push(now, Event::Deliver(next));
        }
    }

    #[inline]
    pub(crate) fn span(&mut self, index: u32, stage: StageKind, place: u32, begin: u64, end: u64) {
        if self.spans.is_some() {
            self.add_span(index, stage, place, begin, end);
        }
    }

    /// Out of the way of runs without a trace.
    #[cold]
    #[inline(never)]
    fn add_span(&mut self, index: u32, stage: StageKind, place: u32, begin: u64, end: u64) {
        let Packet { number: packet, from, to, .. } = *self.in_flight.packet(index);
        let (begin, end) = (Instant(begin), Instant(end));
        if let Some(spans) = &mut self.spans {
            spans.push(TraceSpan { packet, from, to, stage, place, begin, end });
        }
    }

    /// Passes the sending stages.
    pub(crate) fn inject(&mut self, index: u32, now: u64) {
        let flight = self.in_flight.path(index);
        let (at, goal, bytes) = (flight.at, flight.goal, flight.bytes);
        let node = &mut self.nodes[at as usize];
        if node.first == index {
            node.first = NOBODY;
            if let Some((packet, header)) = self.lines[at as usize].pop_front() {
                self.nodes[at as usize].first = self.launch(packet, header);
            }
        }
        let node = &mut self.nodes[at as usize];
        if node.stopped {
            return self.lose(index, now);
        }
        self.set_out(index);
        let node = &mut self.nodes[at as usize];
        let (enters, leaves) = pass(&mut node.tx, node.tx_free, now, bytes, node.slowness);
        self.span(index, StageKind::Send, at, enters, leaves);
        let mut head = leaves;
        self.in_flight.path(index).tail = leaves;
        if at != goal && self.buffers.is_some() {
            return self.buffer(index, leaves);
        }
        if let Some(ports) = &mut self.ports {
            head = ports.put_out(index, leaves, &mut self.in_flight, self.costs.packet);
        }
        if at == goal {
            self.in_flight.path(index).tail = head;
            self.plan_arrival(index, head);
        } else if head == now {
            self.hop(index, now);
        } else {
            self.queue.push(head, Event::Hop(index));
        }
    }

    /// The head of a packet wants the next link. Of all that happens this happens most, and mostly nothing is in
    /// its way.
    #[inline]
    pub(crate) fn hop(&mut self, index: u32, now: u64) {
        if self.fault_rng.any || self.spans.is_some() {
            return self.hop_carefully(index, now);
        }
        let Flight { at, goal, tail, bytes, header, flow, .. } = *self.in_flight.path(index);
        if flow & DIRECT == 0 {
            return self.hop_carefully(index, now);
        }
        let wire = bytes.saturating_add(header);
        let (number, next) = self.network.next(at, goal, flow);
        let link = &mut self.links[number as usize];
        if link.careful || wire > link.plain || !link.transmit.is_plain(now) {
            return self.hop_carefully(index, now);
        }
        let length = link.serialization(wire);
        let Entry { enters, left } = link.transmit.pass(now, length);
        link.packets += 1;
        link.bytes += u64::from(wire);
        link.busy += length;
        let latency = link.latency;
        let flight = self.in_flight.path(index);
        flight.at = next;
        flight.tail = (tail + latency).max(left + latency);
        if next == goal {
            let tail = flight.tail;
            self.queue.push(tail, Event::Arrive(index));
        } else {
            self.queue.push(enters + latency, Event::Hop(index));
        }
    }

    /// The next link of a packet, where it leads, and what the packet remembers of its way from there on.
    fn way(&mut self, at: u32, goal: u32, flow: Flow, now: u64) -> (u32, u32, Flow) {
        if flow & DIRECT != 0 {
            let (link, next) = self.network.next(at, goal, flow);
            return (link, next, flow);
        }
        let links = &self.links;
        // A link that is down is the last choice.
        let queue = |link: u32| match &links[link as usize] {
            link if link.down => u64::MAX,
            link => link.transmit.free_at().saturating_sub(now),
        };
        self.network.choose(at, goal, flow, queue)
    }

    /// The same, with all that may be in its way.
    #[inline(never)]
    fn hop_carefully(&mut self, index: u32, now: u64) {
        let flight = self.in_flight.path(index);
        let (at, goal, tail, bytes, flight_flow) =
            (flight.at, flight.goal, flight.tail, flight.bytes, flight.flow);
        let wire = bytes.saturating_add(flight.header);
        let (number, next, flow) = self.way(at, goal, flight_flow, now);
        let (link, outage) = (&mut self.links[number as usize], &mut self.outages[number as usize]);
        let length = link.serialization(wire);
        let latency = link.latency;
        let LinkRules { mtu, queue, .. } = outage.link_rules;
        let crowded = queue != u32::MAX
            && self.fault_rng.retry.is_none()
            && link.transmit.free_at().saturating_sub(now) > link.serialization(queue);
        if wire > mtu || crowded {
            return self.lose(index, now);
        }
        if link.down {
            if self.fault_rng.retry.is_some() {
                outage.held.push_back(index);
                return;
            }
            return self.lose(index, now);
        }
        let longest = self.costs.packet;
        // What is repeated is a packet, and not a train of them.
        let again = link.serialization(wire.min(longest));
        let (mut pause, mut outcome, mut doubled) = (0, Try::Good, false);
        if self.fault_rng.any {
            pause = self.fault_rng.pause();
            outcome = self.fault_rng.cross(&outage.link_rules);
            if let Some(retry) = self.fault_rng.retry {
                while outcome != Try::Good {
                    outage.retries += 1;
                    link.busy += again;
                    pause += again + retry;
                    outcome = self.fault_rng.cross(&outage.link_rules);
                }
            }
            doubled = self.fault_rng.doubled();
        }
        link.packets += 1;
        link.bytes += u64::from(wire);
        link.busy += length;
        let Entry { enters, left } = self.in_flight.board(index, &mut link.transmit, now, length, longest);
        let (enters, left) = (enters + pause, left + pause);
        if pause != 0 && wire <= longest {
            link.transmit.occupy_until(left);
        }
        // A copy takes its time on the link; with link retry the far end drops it.
        let copied = doubled && outcome != Try::Lost && self.fault_rng.retry.is_none();
        if doubled {
            // Of a train one packet.
            let free = if wire <= longest { left } else { link.transmit.free_at().max(now) };
            link.transmit.occupy_until(free + again);
            link.busy += again;
        }
        self.span(index, StageKind::Link, number, enters, left + latency);
        if outcome == Try::Lost {
            return self.lose(index, now);
        }
        let flight = self.in_flight.path(index);
        flight.corrupt |= outcome == Try::Spoilt;
        (flight.at, flight.flow) = (next, flow);
        flight.passed += latency;
        flight.tail = (tail + latency).max(left + latency);
        if self.crosses(next, goal) {
            return self.cross(index, enters + latency, now);
        }
        if next == goal
            && let Some(ports) = &mut self.ports
        {
            ports.begin_to_take_in(index, enters + latency, &mut self.in_flight, longest);
        }
        let flight = *self.in_flight.path(index);
        self.counts.corrupted += u64::from(outcome == Try::Spoilt);
        self.onward(index, enters + latency);
        if copied {
            // The original is there still, under way or at the destination's interface: it lands in an event of
            // its own.
            let packet = self.in_flight.packet(index).clone();
            self.counts.duplicated += 1;
            self.members.sent(packet.from);
            let copy = self.in_flight.launch(Flight { tail: flight.tail + length, ..flight }, packet);
            self.onward(copy, enters + length + latency);
        }
    }

    /// A packet whose head has left a link at `head`: to the next link, or into the destination.
    fn onward(&mut self, index: u32, head: u64) {
        let flight = self.in_flight.path(index);
        if flight.at != flight.goal {
            return self.queue.push(head, Event::Hop(index));
        }
        let mut tail = flight.tail;
        if self.fault_rng.any {
            tail += self.fault_rng.held_back();
        }
        self.plan_arrival(index, tail);
    }

    /// The last bit of a packet will be at its destination. That of a train is behind all that arrives at that
    /// moment, and trains are in the order of their senders and channels: a short packet that has cut in before a
    /// train's last piece can end with it, and trains that share links do, whatever the times are. Which of them
    /// was foreseen first depends on when links were told of the other one.
    pub(crate) fn plan_arrival(&mut self, index: u32, tail: u64) {
        let Flight { bytes, header, channel, .. } = *self.in_flight.path(index);
        if bytes.saturating_add(header) <= self.costs.packet {
            return self.queue.push(tail, Event::Arrive(index));
        }
        let sender = self.in_flight.packet(index).from;
        self.queue.push_last(tail, sender << 8 | u32::from(channel), Event::Arrive(index));
    }

    /// Passes the receiving stages; returns whether the packet comes out at once.
    pub(crate) fn arrive(&mut self, index: u32, now: u64) -> bool {
        let flight = self.in_flight.path(index);
        let (at, bytes, tail) = (flight.goal, flight.bytes, flight.tail);
        if tail > now {
            // A train that others have made wait.
            self.plan_arrival(index, tail);
            return false;
        }
        let mut ready = now;
        if let Some(ports) = &mut self.ports {
            ready = ports.take_in(index, now, &mut self.in_flight, self.costs.packet);
        }
        let node = &mut self.nodes[at as usize];
        if node.stopped {
            self.lose(index, now);
            return false;
        }
        let (enters, leaves) = pass(&mut node.rx, node.rx_free, ready, bytes, node.slowness);
        self.span(index, StageKind::Receive, at, enters, leaves);
        if leaves != now {
            self.queue.push(leaves, Event::Deliver(index));
        }
        leaves == now
    }
}
