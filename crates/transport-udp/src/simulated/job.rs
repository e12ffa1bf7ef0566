//! A job on the simulated network: its settings, and the run.

use super::SimUdp;
use super::driver::{Rules, SimDriver};
use super::ethernet::{Ethernet, HostCosts, WIRE_OVERHEAD};
use super::node::{Node, Seat};
use crate::proto::{Config, Secrets};
use crate::sim::{self, SplitMix64};
use am_core::{Peer, Shape, Span};
use fabric_sim::{Context, LinkFaults, Report, RunError, Sim};

/// Settings of a simulated job. All ranks have the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EthernetJobConfig {
    /// The fabric: ranks, hosts, links, faults, trace.
    pub fabric: fabric_sim::Config,
    /// Settings of all machines; the rank's own index and incarnation are filled in.
    pub machine: Config,
    /// What processors pay.
    pub host: HostCosts,
    /// Bytes of every rank's segment.
    pub segment_bytes: usize,
    /// How long accepted messages wait at most for company, if the rank neither polls nor flushes.
    pub flush_after: Span,
    /// Whether there is a launcher, which tells ranks of departures and deaths that the protocol has not told
    /// them.
    pub launcher: bool,
}

impl EthernetJobConfig {
    /// One rank per host around a switch, without faults; segments of 64 KiB.
    pub fn new(ranks: u32, ethernet: &Ethernet) -> Self {
        let mut fabric = fabric_sim::Config::new(ranks);
        fabric.nic = ethernet.nic();
        let mtu_bytes = Some(ethernet.datagram + WIRE_OVERHEAD);
        fabric.faults.links.push(LinkFaults { mtu_bytes, ..LinkFaults::default() });
        let secrets = Secrets { job: b"the same in every simulated job".to_vec(), incarnation: [0; 32] };
        let mut machine = Config::new(Shape::new(ranks), Peer(0), secrets);
        machine.datagram_limit = u16::try_from(ethernet.datagram).unwrap_or(u16::MAX);
        let flush_after = Span::from_micros(20);
        Self { fabric, machine, host: ethernet.host, segment_bytes: 64 << 10, flush_after, launcher: true }
    }

    /// The smallest buffers: Medium messages of 1 KiB, and hardly more than one of them under way.
    pub fn smallest(mut self) -> Self {
        self.machine.protocol = self.machine.protocol.smallest();
        self
    }

    fn machine_of(&self, rank: u32) -> Config {
        let mut config = self.machine.clone();
        (config.me, config.shape) = (Peer(rank), Shape::new(self.fabric.ranks));
        let mut random = generator(self.fabric.faults.seed, rank.into());
        for part in config.secrets.incarnation.chunks_mut(8) {
            part.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        config
    }

    /// Runs a program on every rank. Equal settings and programs give equal runs, to the last bit of
    /// [`Report::hash`]. Programs reach the simulation itself through [`SimDriver::context`].
    ///
    /// # Errors
    /// [`RunError`]: settings of the fabric that cannot be, a rank that panicked, a run past its deadline.
    ///
    /// # Panics
    /// If the machines' settings contradict each other.
    pub fn run<R: 'static>(&self, program: impl Fn(SimUdp<'_>) -> R + 'static) -> Result<Report<R>, RunError> {
        let seed = self.fabric.faults.seed;
        let host = |node: u32, ranks: &[u32]| {
            let seat = |rank: &u32| {
                let (machine, segment) = sim::machine(self.machine_of(*rank), self.segment_bytes)
                    .expect("the settings of machines fit together");
                Seat::new(*rank, machine, segment)
            };
            Node::new(ranks.iter().map(seat).collect(), generator(seed, u64::from(node) | 1 << 32))
        };
        let rules = Rules {
            costs: self.host,
            segment_bytes: self.segment_bytes as u64,
            flush_after: self.flush_after,
            launcher: self.launcher,
        };
        Sim::run_with(&self.fabric, host, move |context: Context<'_, Node>| {
            program(SimDriver::join(context, rules))
        })
    }
}

/// The random numbers of one purpose in a run.
fn generator(seed: u64, purpose: u64) -> SplitMix64 {
    SplitMix64(SplitMix64(seed).next_u64() ^ SplitMix64(purpose).next_u64())
}
