//! What goes wrong on the simulated network: given cuts and partitions, or all kinds of mischief drawn from a
//! seed.

use super::ethernet::WIRE_OVERHEAD;
use super::job::EthernetJobConfig;
use crate::sim::SplitMix64;
use am_core::{Instant, Span};
use fabric_sim::{Drawn, DrawnKind, FaultEvent, LinkFaults, Scheduled, Topology};

fn nanos(picos: u64) -> f64 {
    picos as f64 / 1e3
}

impl EthernetJobConfig {
    fn schedule(&mut self, at: Instant, event: FaultEvent) {
        self.fabric.faults.schedule.push(Scheduled { at_ns: nanos(at.0), event });
    }

    /// The switch of a network that has one.
    fn switch(&self) -> Option<u32> {
        match self.fabric.topology {
            Topology::Crossbar { nodes } => Some(nodes),
            _ => None,
        }
    }

    /// Joins every two hosts by a cable of their own, so that pairs can differ and be cut.
    ///
    /// # Panics
    /// With more than 256 hosts a run is refused.
    pub fn cabled(mut self) -> Self {
        let nodes = self.fabric.ranks.div_ceil(self.fabric.ranks_per_node.max(1));
        self.fabric.topology = Topology::Direct { nodes };
        self
    }

    /// What is special about the direction from one host to another, on a network of cables.
    pub fn link(mut self, from: u32, to: u32, special: LinkFaults) -> Self {
        self.fabric.faults.links.push(LinkFaults { from: Some(from), to: Some(to), ..special });
        self
    }

    /// Lets datagrams of at most so many bytes pass from one host to another; larger ones vanish.
    pub fn narrow(self, from: u32, to: u32, datagram: u32) -> Self {
        self.link(from, to, LinkFaults { mtu_bytes: Some(datagram + WIRE_OVERHEAD), ..LinkFaults::default() })
    }

    /// Cuts the direction from one host to another for a time; for good if `span` is longer than the run.
    pub fn cut(mut self, from: u32, to: u32, at: Instant, span: Span) -> Self {
        self.schedule(at, FaultEvent::LinkDown { from, to });
        self.schedule(at + span, FaultEvent::LinkUp { from, to });
        self
    }

    /// Parts some hosts from all others for a time, on a network of cables, or one host on a network with a
    /// switch.
    pub fn part(mut self, hosts: &[u32], at: Instant, span: Span) -> Self {
        if let Some(switch) = self.switch() {
            for host in hosts {
                self = self.cut(*host, switch, at, span).cut(switch, *host, at, span);
            }
            return self;
        }
        let all = 0..self.fabric.ranks.div_ceil(self.fabric.ranks_per_node.max(1));
        for other in all.filter(|other| !hosts.contains(other)) {
            for host in hosts {
                self = self.cut(*host, other, at, span).cut(other, *host, at, span);
            }
        }
        self
    }

    /// Stops a host for good: its ranks die without a word.
    pub fn stop(mut self, host: u32, at: Instant) -> Self {
        self.schedule(at, FaultEvent::NodeStop { node: host });
        self
    }

    /// Draws mischief of every kind from a seed: loss, damage, doubling, reordering, pauses, links that differ by
    /// direction in loss, length and the datagrams that they carry, links that go down and come back. No host
    /// stops, and everything heals within a few hundred milliseconds.
    pub fn mischief(mut self, seed: u64) -> Self {
        let mut random = SplitMix64(seed ^ 0x5eed_0fd1_5a57_e125);
        let cables = self.switch().is_none();
        let nodes = self.fabric.ranks.div_ceil(self.fabric.ranks_per_node.max(1));
        let faults = &mut self.fabric.faults;
        faults.seed = seed;
        let mut chance = |most_permille: u64, in_permille: u32| {
            if random.chance(in_permille) { random.below(most_permille + 1) as f64 / 1e3 } else { 0.0 }
        };
        faults.loss = chance(100, 700);
        faults.corruption = chance(30, 500);
        faults.duplication = chance(80, 500);
        faults.reordering = chance(200, 600);
        faults.delay = chance(20, 300);
        faults.reorder_ns = nanos(random.below(3_000_000_000));
        faults.delay_ns = nanos(random.below(2_000_000_000));
        if nodes < 2 {
            return self;
        }
        for _ in 0..random.below(4) {
            let down_ns = nanos(random.below(40_000_000_000));
            let kind = DrawnKind::LinkFlap { down_ns };
            faults.drawn.push(Drawn { count: 1 + random.below(2) as u32, within_ns: 100e6, kind });
        }
        for _ in 0..random.below(2 * u64::from(nodes)) {
            let from = random.below(nodes.into()) as u32;
            let to = (from + 1 + random.below(u64::from(nodes) - 1) as u32) % nodes;
            if !cables {
                continue;
            }
            let special = LinkFaults {
                loss: random.chance(300).then(|| random.below(300) as f64 / 1e3),
                latency_ns: random.chance(300).then(|| nanos(random.below(5_000_000_000))),
                mtu_bytes: random.chance(300).then(|| 1200 + random.below(300) as u32 + WIRE_OVERHEAD),
                queue_bytes: random.chance(200).then(|| 20_000 + random.below(200_000) as u32),
                ..LinkFaults::default()
            };
            self = self.link(from, to, special);
        }
        self
    }
}
