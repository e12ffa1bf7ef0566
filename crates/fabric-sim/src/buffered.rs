//! A network with finite buffers, exactly: packets wait for room in the next switch, and those behind them wait as
//! well.
//!
//! The engine's links hold whatever waits for them, which costs one event for each link of a packet and never
//! blocks what does not use the same link. Here every link has virtual channels with a buffer each at its far end.
//! A packet passes a link once the link is free and the buffer has room for all of it (virtual cut-through,
//! Kermani and Kleinrock, 1979); room is given back when its last bit has gone on, and known at the near end a
//! link's latency later. So an incast fills the buffers before it, and then those before them, up to the senders
//! (tree saturation, Pfister and Norton, 1985), and packets to elsewhere wait behind its packets.
//!
//! Which channel a packet takes keeps buffers from waiting for each other in a circle: on rings and tori the
//! second behind the link that closes a dimension's circle (datelines, Dally and Seitz, 1987), on dragonflies the
//! next with each global link.
//!
//! A machine file chooses this model for its programs ([`Config::model`]); [`Buffered`] takes packets and times by
//! itself.

use crate::config::{Config, Plan};
use crate::error::ConfigError;
use crate::network::{Flow, Network, Shape};
use crate::nic::serialization;
use crate::routing::Algorithm;
use am_core::Instant;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use thiserror::Error;

/// Who passes a link next, of those that could.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arbitration {
    /// Inputs by turns. On a line each switch gives half of its link to its own node, so that who is far gets
    /// little.
    #[default]
    RoundRobin,
    /// The packet that was sent first, wherever: each sender gets as much as the others.
    Oldest,
}

/// The buffers of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Buffers {
    /// Room of each virtual channel at the far end of each link, in bytes; the longest packet, header included,
    /// must fit.
    pub channel_bytes: u32,
    /// Who passes a link next.
    pub arbitration: Arbitration,
}

impl Default for Buffers {
    /// 8 KiB for each channel, by turns.
    fn default() -> Self {
        Self { channel_bytes: 8 << 10, arbitration: Arbitration::default() }
    }
}

/// A packet that has reached its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// What [`Buffered::send`] returned.
    pub number: u32,
    /// The node that sent it.
    pub from: u32,
    /// The node that it reached.
    pub to: u32,
    /// Its length without header.
    pub bytes: u32,
    /// When it was to be sent.
    pub sent: Instant,
    /// When its last bit was taken in.
    pub at: Instant,
}

/// Packets wait for each other for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("at {at} ps {packets} packets wait for each other for ever")]
#[non_exhaustive]
pub struct Jam {
    /// When the last of them moved, in picoseconds.
    pub at: u64,
    /// How many.
    pub packets: u32,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    from: u32,
    to: u32,
    bytes: u32,
    wire: u32,
    sent: u64,
    flow: Flow,
    /// Where its head is.
    at: u32,
    /// When its last bit is there.
    tail: u64,
    /// The dimension that it travels along, and the channel.
    class: usize,
    channel: u32,
    /// Its turn among all packets, which decides between two that were sent at the same time.
    turn: u32,
    /// The queue out of which its node takes it in.
    taken: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet is to be sent.
    Send(u32),
    /// The head of a packet has reached the far end of a link.
    Head {
        packet: u32,
        queue: u32,
    },
    /// The last bit of the first packet has left a queue.
    Left {
        queue: u32,
    },
    /// A link is free, or room behind it is known.
    Look {
        output: u32,
    },
    Room {
        output: u32,
        channel: u32,
        bytes: u32,
    },
}

/// A link, or what takes packets into their node.
#[derive(Clone, Debug, Default)]
struct Output {
    latency: u64,
    femtos_per_byte: u64,
    free_at: u64,
    /// Room of each channel at the far end, as far as is known here; none for a node, which always has room.
    room: Vec<u32>,
    /// Queues whose first packet wants to pass.
    wanted: BTreeSet<u32>,
    /// The queue that was served last.
    last: u32,
    /// When it is looked at next, if that is settled.
    look: Option<u64>,
    takes_in: bool,
    used: LinkTotals,
}

/// What a link has carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkTotals {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) busy: u64,
    /// When it is free.
    pub(crate) free_at: u64,
}

/// A packet's passing of a link: the packet's number, the link, when its first bit enters and its last bit is out.
pub(crate) type Passing = (u32, u32, u64, u64);

/// What waits at the far end of a link in one channel, or at a node to be sent.
#[derive(Clone, Debug, Default)]
struct Queue {
    packets: VecDeque<u32>,
}

/// A network with finite buffers. Set up with packets, then run; equal inputs give equal runs.
///
/// ```
/// use am_core::Instant;
/// use fabric_sim::buffered::{Arbitration, Buffered, Buffers};
/// use fabric_sim::{Config, LinkParameters, Topology};
///
/// let mut config = Config::new(4);
/// config.topology = Topology::Ring { nodes: 4 };
/// config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 100.0 };
/// let buffers = Buffers { channel_bytes: 2000, arbitration: Arbitration::RoundRobin };
/// let mut network = Buffered::new(&config, buffers)?;
/// network.send(Instant(0), 0, 1, 1000)?;
/// network.run().unwrap();
/// // A link's latency, and 1000 bytes at 1 GB/s.
/// assert_eq!(network.delivered()[0].at, Instant(1_100_000));
/// # Ok::<(), fabric_sim::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Buffered {
    network: Network,
    buffers: Buffers,
    header: u32,
    /// Femtoseconds for a byte out of a node.
    injection: u64,
    channels: u32,
    datelines: bool,
    packets: Vec<Packet>,
    outputs: Vec<Output>,
    /// By link and channel; then by node.
    queues: Vec<Queue>,
    /// By time; at the same time, looks at outputs come last, so that all who want to pass have said so.
    heap: BinaryHeap<Reverse<(u64, bool, u64, Event)>>,
    numbers: u64,
    now: u64,
    delivered: Vec<Delivery>,
    events: u64,
    turns: u32,
    /// The places of packets that were taken in, for others; without it numbers are never used again.
    unused: Option<Vec<u32>>,
    /// What passes links, for traces.
    pub(crate) passings: Option<Vec<Passing>>,
}

impl Buffered {
    /// The network of a configuration: its topology, links, routing and node ports. Ranks, stages and faults have
    /// no part in it. Memory grows with links times channels.
    ///
    /// # Errors
    /// [`ConfigError`]: an impossible configuration, a routing whose packets do not all have one way, or buffers
    /// without room.
    pub fn new(config: &Config, buffers: Buffers) -> Result<Self, ConfigError> {
        Self::of(config.compile()?, buffers)
    }

    /// The network of a checked configuration.
    pub(crate) fn of(plan: Plan, buffers: Buffers) -> Result<Self, ConfigError> {
        if !plan.network.algorithm.keeps_order() || plan.network.algorithm == Algorithm::UpDown {
            let limit = "default, dimension_order or minimal where buffers are finite";
            return Err(ConfigError::range("routing.algorithm", plan.network.algorithm.name(), limit));
        }
        let (network, costs) = (plan.network, plan.costs);
        if buffers.channel_bytes <= costs.header {
            let limit = format!("above {}, a packet's header", costs.header);
            return Err(ConfigError::range("buffers.channel_bytes", buffers.channel_bytes, limit));
        }
        let (links, channels) = (network.links(), network.virtual_channels());
        let link = |rules: &crate::faults::LinkRules| Output {
            latency: rules.latency,
            femtos_per_byte: rules.femtos_per_byte,
            room: vec![buffers.channel_bytes; channels as usize],
            ..Output::default()
        };
        let (injection, ejection) = costs.ports.map_or((0, 0), |ports| (ports.out, ports.into));
        let node = Output { femtos_per_byte: ejection, takes_in: true, ..Output::default() };
        let mut outputs: Vec<Output> = plan.link_rules.iter().map(link).collect();
        outputs.resize(links + network.nodes as usize, node);
        Ok(Self {
            queues: vec![Queue::default(); links * channels as usize + network.nodes as usize],
            outputs,
            injection,
            header: costs.header,
            channels,
            datelines: true,
            network,
            buffers,
            packets: Vec::new(),
            heap: BinaryHeap::new(),
            numbers: 0,
            now: 0,
            delivered: Vec::new(),
            events: 0,
            turns: 0,
            unused: None,
            passings: None,
        })
    }

    /// Lets a node send a packet at a time, behind those that it was told of before. Returns the packet's number.
    ///
    /// # Errors
    /// [`ConfigError`]: there is no such node, or the packet does not fit a channel's buffer.
    pub fn send(&mut self, at: Instant, from: u32, to: u32, bytes: u32) -> Result<u32, ConfigError> {
        let nodes = self.network.nodes;
        if let Some(node) = [from, to].into_iter().find(|node| *node >= nodes) {
            return Err(ConfigError::range("node", node, format!("below {nodes}")));
        }
        let wire = bytes.saturating_add(self.header);
        if wire > self.buffers.channel_bytes {
            let limit = format!("at least {wire}, a packet with its header");
            return Err(ConfigError::range("buffers.channel_bytes", self.buffers.channel_bytes, limit));
        }
        Ok(self.send_wire(at.0, (from, to), bytes, wire))
    }

    /// Lets a node send a packet of so many bytes on the wire, which fits.
    pub(crate) fn send_wire(&mut self, sent: u64, (from, to): (u32, u32), bytes: u32, wire: u32) -> u32 {
        let (flow, turn) = (self.network.flow(from, to), self.turns);
        let (class, channel, at, tail, taken) = (usize::MAX, 0, from, 0, None);
        let packet = Packet { from, to, bytes, wire, sent, flow, at, tail, class, channel, turn, taken };
        self.turns = self.turns.wrapping_add(1);
        let number = match self.unused.as_mut().and_then(Vec::pop) {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        };
        self.push(sent.max(self.now), Event::Send(number));
        number
    }

    /// Uses the numbers of packets again once they have been taken in.
    pub(crate) fn recycle(&mut self) {
        self.unused = Some(Vec::new());
    }

    /// When something happens next.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes what nodes have begun to take in since the last call.
    pub(crate) fn take_delivered(&mut self) -> std::vec::Drain<'_, Delivery> {
        self.delivered.drain(..)
    }

    /// Packets that are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.queues.iter().map(|queue| queue.packets.len()).sum()
    }

    /// What each link has carried.
    pub(crate) fn totals(&self) -> impl Iterator<Item = LinkTotals> + '_ {
        let links = &self.outputs[..self.network.links()];
        links.iter().map(|output| LinkTotals { free_at: output.free_at, ..output.used })
    }

    /// What nodes have begun to take in so far, in that order; the last bit of the last may be still to come.
    pub fn delivered(&self) -> &[Delivery] {
        &self.delivered
    }

    /// Events that were executed: some four for each link of a packet.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Virtual channels of each link.
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// The links whose buffers hold anything: a link's name, and bytes.
    pub fn held(&self) -> Vec<(String, u64)> {
        let of =
            |queue: &Queue| queue.packets.iter().map(|at| u64::from(self.packets[*at as usize].wire)).sum::<u64>();
        let links = self.network.links() * self.channels as usize;
        let by_link = self.queues[..links].chunks(self.channels as usize).enumerate();
        let held = by_link.map(|(link, queues)| (link, queues.iter().map(of).sum::<u64>()));
        held.filter(|(_, bytes)| *bytes != 0)
            .map(|(link, bytes)| (self.network.name(link as u32), bytes))
            .collect()
    }

    /// Runs until all packets have reached their nodes.
    ///
    /// # Errors
    /// [`Jam`]: packets wait for each other for ever, which channels that are used as they are here rule out.
    pub fn run(&mut self) -> Result<(), Jam> {
        self.run_until(Instant(u64::MAX));
        match self.packets.len() - self.delivered.len() {
            0 => Ok(()),
            left => Err(Jam { at: self.now, packets: left as u32 }),
        }
    }

    /// Runs until a time, which is included, or until nothing happens any more.
    pub fn run_until(&mut self, end: Instant) {
        while let Some(Reverse((at, _, _, event))) = self.heap.peek().copied() {
            if at > end.0 {
                return;
            }
            self.heap.pop();
            (self.now, self.events) = (at, self.events + 1);
            match event {
                Event::Send(packet) => {
                    let queue = self.source(self.packets[packet as usize].from);
                    self.enter(packet, queue);
                }
                Event::Head { packet, queue } => self.enter(packet, queue),
                Event::Left { queue } => self.left(queue),
                Event::Look { output } => self.look(output),
                Event::Room { output, channel, bytes } => {
                    self.outputs[output as usize].room[channel as usize] += bytes;
                    self.ask(output);
                }
            }
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.heap.push(Reverse((at, matches!(event, Event::Look { .. }), self.numbers, event)));
    }

    /// The queue of what a node sends.
    fn source(&self, node: u32) -> u32 {
        self.network.links() as u32 * self.channels + node
    }

    /// The output that a packet wants, and where that leads.
    fn output(&self, packet: &Packet) -> (u32, u32) {
        match packet.at == packet.to {
            true => (self.network.links() as u32 + packet.to, packet.to),
            false => self.network.next(packet.at, packet.to, packet.flow),
        }
    }

    /// The class of links that a packet is on behind a link, and its channel there.
    fn channel(&self, packet: &Packet, link: u32) -> (usize, u32) {
        let class = self.network.class(link);
        let before = if packet.class == class { packet.channel } else { 0 };
        let channel = match &self.network.shape {
            // The two orders of dimensions have channels of their own.
            Shape::Grid(grid) => {
                let circles = grid.circles();
                let order = if self.channels > circles { circles * Network::order(packet.flow) } else { 0 };
                let within = if packet.class == class { before.saturating_sub(order) } else { 0 };
                let passed = circles == 2 && (within == 1 || grid.closes(link));
                order + u32::from(passed)
            }
            Shape::Hypercube { .. } if self.channels > 1 => Network::order(packet.flow),
            // Behind each global link the next one; the names of classes are host, local and global.
            Shape::Dragonfly(_) => packet.channel + u32::from(packet.class == 2 && class != 2),
            Shape::Graph(_) if self.channels > 1 && packet.class != usize::MAX => packet.channel + 1,
            _ => 0,
        };
        (class, if self.datelines { channel.min(self.channels - 1) } else { 0 })
    }

    /// A packet is in a queue from now on.
    fn enter(&mut self, packet: u32, queue: u32) {
        let waiting = &mut self.queues[queue as usize];
        waiting.packets.push_back(packet);
        if waiting.packets.len() == 1 {
            self.want(queue);
        }
    }

    /// The first packet of a queue wants to pass its output.
    fn want(&mut self, queue: u32) {
        let Some(packet) = self.queues[queue as usize].packets.front() else { return };
        let (output, _) = self.output(&self.packets[*packet as usize]);
        self.outputs[output as usize].wanted.insert(queue);
        self.ask(output);
    }

    /// An output is looked at as soon as it is free, if anything wants to pass it.
    fn ask(&mut self, output: u32) {
        let state = &mut self.outputs[output as usize];
        let at = state.free_at.max(self.now);
        if !state.wanted.is_empty() && state.look.is_none_or(|look| look > at) {
            state.look = Some(at);
            self.push(at, Event::Look { output });
        }
    }

    /// Lets packets pass an output that is free, as far as they can.
    fn look(&mut self, output: u32) {
        self.outputs[output as usize].look = None;
        while self.outputs[output as usize].free_at <= self.now {
            let Some(queue) = self.next(output) else { return };
            self.pass(queue, output);
        }
        self.ask(output);
    }

    /// The queue whose first packet passes an output next.
    fn next(&self, output: u32) -> Option<u32> {
        let Output { wanted, last, room, takes_in, .. } = &self.outputs[output as usize];
        let first = |queue: u32| {
            let number = self.queues[queue as usize].packets.front().expect("a queue that wants has a packet");
            &self.packets[*number as usize]
        };
        let fits = |queue: &u32| {
            let packet = first(*queue);
            *takes_in || room[self.channel(packet, output).1 as usize] >= packet.wire
        };
        match self.buffers.arbitration {
            Arbitration::RoundRobin => wanted.range(last + 1..).chain(wanted.range(..=last)).copied().find(fits),
            Arbitration::Oldest => {
                let sent = |queue: &u32| {
                    let packet = first(*queue);
                    (packet.sent, packet.turn)
                };
                wanted.iter().copied().filter(fits).min_by_key(sent)
            }
        }
    }

    /// The first packet of a queue passes an output.
    fn pass(&mut self, queue: u32, output: u32) {
        let (now, links) = (self.now, self.network.links() as u32);
        let index = self.queues[queue as usize].packets[0];
        let mut packet = self.packets[index as usize];
        let state = &self.outputs[output as usize];
        let (latency, takes_in) = (state.latency, state.takes_in);
        let length = serialization(packet.wire, state.femtos_per_byte);
        // Out of a node at its port's rate; out of a buffer not before its last bit was there.
        let slowest = match queue >= links * self.channels {
            true => now + length.max(serialization(packet.wire, self.injection)),
            false => (now + length).max(packet.tail),
        };
        let begun = if takes_in { now + length } else { slowest };
        if takes_in {
            let Packet { from, to, bytes, sent, .. } = packet;
            let (sent, at) = (Instant(sent), Instant(slowest));
            packet.taken = Some(queue);
            self.delivered.push(Delivery { number: index, from, to, bytes, sent, at });
        } else {
            let (class, channel) = self.channel(&packet, output);
            (packet.class, packet.channel) = (class, channel);
            packet.at = self.output(&packet).1;
            packet.tail = slowest + latency;
            let state = &mut self.outputs[output as usize];
            state.room[channel as usize] -= packet.wire;
            state.used.packets += 1;
            state.used.bytes += u64::from(packet.wire);
            state.used.busy += length;
            if let Some(passings) = &mut self.passings {
                passings.push((index, output, now, slowest + latency));
            }
            let queue = output * self.channels + channel;
            self.push(now + latency, Event::Head { packet: index, queue });
        }
        self.packets[index as usize] = packet;
        let state = &mut self.outputs[output as usize];
        state.wanted.remove(&queue);
        (state.last, state.free_at) = (queue, begun);
        // Until then it stays the first of its queue, which wants nothing meanwhile.
        self.push(slowest, Event::Left { queue });
    }

    /// The last bit of a queue's first packet has left it.
    fn left(&mut self, queue: u32) {
        let waiting = &mut self.queues[queue as usize].packets;
        let index = waiting.pop_front().expect("what leaves a queue is its first packet");
        if self.packets[index as usize].taken == Some(queue)
            && let Some(unused) = &mut self.unused
        {
            unused.push(index);
        }
        let (link, channel) = (queue / self.channels, queue % self.channels);
        if (link as usize) < self.network.links() {
            let (bytes, latency) = (self.packets[index as usize].wire, self.outputs[link as usize].latency);
            self.push(self.now + latency, Event::Room { output: link, channel, bytes });
        }
        self.want(queue);
    }
}

#[cfg(test)]
mod tests;
