//! A device's hands: what it can do to the network, to its node's stages and to its ranks.

use crate::device::Packet;
use crate::engine::Core;
use crate::in_flight::Flight;
use crate::queue::Event;
use crate::random::splitmix64;
use crate::trace::{StageKind, TraceSpan};
use am_core::{Instant, PeerStatus, Span};

/// What a device can do to the world.
pub struct DeviceContext<'a, B> {
    pub(crate) core: &'a mut Core<B>,
    pub(crate) node: u32,
    pub(crate) now: u64,
}

impl<B> std::fmt::Debug for DeviceContext<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceContext").field("node", &self.node).field("now", &self.now).finish_non_exhaustive()
    }
}

/// A packet to send, with everything that [`DeviceContext::send`] decides by itself.
///
/// ```
/// use fabric_sim::Outgoing;
/// // A put of 4096 bytes in 64 fragments, each with a header of 15 bytes on the wire.
/// let put = Outgoing { header: Some(64 * 15), ..Outgoing::new(0, 1, 4096, "put") };
/// assert_eq!(put.at, None); // now
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing<B> {
    /// The rank that sends it.
    pub from: u32,
    /// The rank it is for.
    pub to: u32,
    /// Its length in bytes, which the stages see.
    pub bytes: u32,
    /// What links carry besides, in bytes; without it [`NicParameters::header_bytes`](crate::NicParameters).
    pub header: Option<u32>,
    /// When it enters the network, at the earliest now; without it now.
    pub at: Option<Instant>,
    /// Its number in traces; without it a new one. A packet that goes on for another keeps that one's number, so
    /// that their spans belong together.
    pub number: Option<u64>,
    /// Packets of two ranks stay in order channel by channel, where the interface keeps order
    /// ([`NicParameters::ordered`](crate::NicParameters::ordered)) and long messages travel in packets
    /// ([`NicParameters::packet_bytes`](crate::NicParameters::packet_bytes)). 0 unless given.
    pub channel: u8,
    /// Whether it is traffic of the interfaces themselves, such as a report of progress, or tells its own latency
    /// by [`DeviceContext::took`]: then its time on the way is not among the latencies of the
    /// [`Report`](crate::Report).
    pub aside: bool,
    /// What it carries.
    pub body: B,
}

impl<B> Outgoing<B> {
    /// A packet that is sent now, with the usual header.
    pub const fn new(from: u32, to: u32, bytes: u32, body: B) -> Self {
        Self { from, to, bytes, header: None, at: None, number: None, channel: 0, aside: false, body }
    }
}

/// Whom a span or a stage's work is for: a packet, or whatever else has a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketId {
    /// The packet's number, or a message's.
    pub number: u64,
    /// The sending rank.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
}

impl<B> From<&Packet<B>> for PacketId {
    fn from(packet: &Packet<B>) -> Self {
        Self { number: packet.number, from: packet.from, to: packet.to }
    }
}

/// When work enters a stage and leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTimes {
    /// It enters.
    pub enters: Instant,
    /// It leaves.
    pub leaves: Instant,
}

impl<B: Clone> Core<B> {
    /// Lets a packet enter its sender's interface; returns its number.
    pub(crate) fn send(&mut self, packet: Outgoing<B>, now: u64) -> u64 {
        let (aside, channel) = (packet.aside, packet.channel);
        let (packet, header) = self.packet(packet, now);
        let number = packet.number;
        let index = self.launch(packet, header);
        let flight = self.in_flight.path(index);
        (flight.aside, flight.channel) = (aside, channel);
        number
    }

    /// Counts a packet that is sent; returns it and its header's length.
    pub(crate) fn packet(&mut self, packet: Outgoing<B>, now: u64) -> (Packet<B>, u32) {
        let Outgoing { from, to, bytes, header, at, number, channel: _, aside: _, body } = packet;
        let ranks = self.node_of.len();
        assert!((to as usize) < ranks, "rank {to} is outside the job of {ranks} ranks");
        self.counts.sent += 1;
        self.members.sent(from);
        let number = self.number(number);
        let sent = Instant(at.map_or(now, |at| at.0.max(now)));
        let packet = Packet { number, from, to, bytes, sent, corrupt: false, body };
        (packet, header.unwrap_or(self.costs.header))
    }

    /// Lets a packet that has been counted enter its sender's interface at its time; returns its index.
    pub(crate) fn launch(&mut self, packet: Packet<B>, header: u32) -> u32 {
        let Packet { from, to, bytes, sent: Instant(tail), .. } = packet;
        let (at, goal) = (self.node_of[from as usize], self.node_of[to as usize]);
        let index = self.in_flight.launch(
            Flight {
                at,
                goal,
                tail,
                bytes,
                header,
                flow: self.network.flow(at, goal),
                passed: 0,
                corrupt: false,
                channel: 0,
                turn: 0,
                aside: false,
            },
            packet,
        );
        self.queue.push(tail, Event::Inject(index));
        index
    }

    pub(crate) fn number(&mut self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers
        })
    }
}

impl<B: Clone> DeviceContext<'_, B> {
    /// The node.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        Instant(self.now)
    }

    /// The node that a rank runs on.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.core.node_of[rank as usize]
    }

    /// Links between this node and that of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn hops(&self, rank: u32) -> u32 {
        self.core.network.hops(self.node, self.core.node_of[rank as usize])
    }

    /// How many links a packet between two ranks passes before it comes to one that is down at this moment; `None`
    /// if all of them carry. For interfaces that know the state of their links.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn cut(&self, from: u32, to: u32) -> Option<u32> {
        let (mut at, goal) = (self.core.node_of[from as usize], self.core.node_of[to as usize]);
        let mut passed = 0;
        let flow = self.core.network.straight(at, goal);
        while at != goal {
            let (link, next) = self.core.network.next(at, goal, flow);
            if self.core.links[link as usize].down {
                return Some(passed);
            }
            (at, passed) = (next, passed + 1);
        }
        None
    }

    /// Lets a rank of this node go on, if it idles; otherwise its next idling ends at once.
    pub fn wake(&mut self, rank: u32) {
        self.core.wake(rank, self.now);
    }

    /// When one of the device's own [stages](crate::Device::stages) can take work that reaches it now.
    ///
    /// # Panics
    /// If the device has no such stage.
    pub fn free_at(&self, stage: usize) -> Instant {
        Instant(self.core.nodes[self.node as usize].own[stage].1.next(self.now))
    }

    /// Sends a packet on behalf of a rank of this node, at no cost for its processor.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send(&mut self, from: u32, to: u32, bytes: u32, body: B) {
        self.send_as(Outgoing::new(from, to, bytes, body));
    }

    /// [`DeviceContext::send`] with a header, a time and a number of one's own; returns the packet's number.
    ///
    /// # Panics
    /// If `to` is outside the job.
    pub fn send_as(&mut self, packet: Outgoing<B>) -> u64 {
        self.core.send(packet, self.now)
    }

    /// A message has come whose packets were sent [aside](Outgoing::aside): from when it was sent first, however
    /// often it was sent again, until now is one of the latencies of the [`Report`](crate::Report).
    pub fn took(&mut self, sent: Instant) {
        self.core.latency.add(self.now.saturating_sub(sent.0));
    }

    /// A new packet number, for [`Outgoing::number`]: so that what the device's stages do for a packet before it
    /// is sent can be about it.
    pub fn number(&mut self) -> u64 {
        self.core.number(None)
    }

    /// Lets a rank of this node leave the job, as [`Context::depart`](crate::Context::depart) does: for ranks that
    /// have ended before their device has sent everything.
    pub fn depart(&mut self, rank: u32, status: PeerStatus) {
        self.core.depart(rank, status, self.now);
    }

    /// Calls the device's [`Device::timer`](crate::Device::timer) at a time; one that has passed counts as now.
    pub fn timer(&mut self, at: Instant, token: u32) {
        self.core.queue.push(at.0.max(self.now), Event::Timer { node: self.node, token });
    }

    /// Sets a packet aside and hands it to the device's [`Device::due`](crate::Device::due) at a time; one that
    /// has passed counts as now. Until then it counts as under way: its sender's departure becomes known only
    /// afterwards.
    pub fn defer(&mut self, at: Instant, packet: Packet<B>, token: u32) {
        self.core.defer(self.node, at.0.max(self.now), packet, token);
    }

    /// Passes work through one of the device's own [stages](crate::Device::stages), which it reaches at a time;
    /// returns when it enters and leaves. Work is served in the order of the calls. It shows in the trace and in
    /// [`Report::stages`](crate::Report::stages).
    ///
    /// # Panics
    /// If the device has no such stage.
    pub fn serve(&mut self, stage: usize, at: Instant, bytes: u32, about: impl Into<PacketId>) -> StageTimes {
        let node = &mut self.core.nodes[self.node as usize];
        let slowness = node.slowness;
        let (name, server) = &mut node.own[stage];
        let (enters, leaves) = server.serve(at.0, bytes, slowness);
        let (name, served) = (*name, StageTimes { enters: Instant(enters), leaves: Instant(leaves) });
        if self.tracing() {
            self.record(name, about, served.enters, served.leaves);
        }
        served
    }

    /// Whether the run is traced.
    pub fn tracing(&self) -> bool {
        self.core.spans.is_some()
    }

    /// Adds a span of this node to the trace, if there is one.
    pub fn record(&mut self, name: &'static str, about: impl Into<PacketId>, begin: Instant, end: Instant) {
        if let Some(spans) = &mut self.core.spans {
            let PacketId { number: packet, from, to } = about.into();
            spans.push(TraceSpan {
                packet,
                from,
                to,
                stage: StageKind::Device(name),
                place: self.node,
                begin,
                end,
            });
        }
    }

    /// Throws a switch of all devices of the machine, below 32, once and for all. The devices share what it is; in
    /// a [run of halves](crate::Sim::run_halves) those of the other half are
    /// [told](crate::Crossing::thrown) before anything comes there that is sent from now on.
    #[inline]
    pub fn throw(&mut self, switch: u8) {
        self.core.throw(switch);
    }

    /// What is known of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn status(&self, rank: u32) -> PeerStatus {
        self.core.members.status(rank)
    }

    /// A random number from this node's stream, which follows from the seed of the [faults](crate::Faults::seed).
    pub fn random(&mut self) -> u64 {
        splitmix64(&mut self.core.nodes[self.node as usize].random)
    }

    /// A time stretched as far as this node is slow.
    pub fn slowed(&self, time: Span) -> Span {
        Span(crate::stage::slowed(time.0, self.core.nodes[self.node as usize].slowness))
    }
}
