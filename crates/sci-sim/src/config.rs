//! A simulated SCI machine: ranks, topology, parameters, faults.

use crate::model::Parameters;
use crate::nic::mutation::Defects;
use crate::nic::virtual_time::{Adapter, Shared};
use crate::nic::{TransferErrors, Virtual};
use fabric_sim::parameters::Checker;
use fabric_sim::{Config, ConfigError, Context, Interface, Machine, Report, RunError, Topology};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Nodes of a machine: their SCI numbers are multiples of 4 and have 16 bits.
const MAX_NODES: u32 = 16_383;

/// An SCI machine and what happens to it. Read it from TOML, or start from one of the constructors and change
/// fields. Each rank has a node of its own; the SCI number of the first is 4, of the second 8 and so on, in the
/// order of the topology.
///
/// ```
/// let config = sci_sim::SciConfig::from_toml("
///     ranks = 8
///     topology = { kind = 'ringlets', dims = [4, 2] }
///     parameters = { dma = { crossover_bytes = 8192 } }
///     faults = { seed = 7, corruption = 0.001 }
///     adversary = { reorder_ns = 500 }
/// ").unwrap();
/// assert_eq!(config.parameters.dma.crossover_bytes, 8192);
///
/// let small = "ranks = 9\ntopology = { kind = 'ringlets', dims = [4, 2] }";
/// let error = sci_sim::SciConfig::from_toml(small).unwrap_err();
/// assert_eq!(error.to_string(), "ranks is 9, but must be at most 8 nodes times 1 ranks per node");
/// ```
pub type SciConfig = Machine<SciInterface>;

/// SCI's adapter, which [`SciConfig`] is a machine of. A node has one rank. What the network loses or spoils fails
/// the sequence, or the transfer, that it belongs to; links do not double packets, which SCI's echoes prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SciInterface;

/// Timing that the interface permits, but that is as hard on programs as it can be. Drawn from the faults' seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdversarialTiming {
    /// A line may be held back at its receiver for up to this long, in nanoseconds, so that lines overtake each
    /// other. Stores into one line stay in their order, and barriers and checks hold.
    pub reorder_ns: f64,
}

/// What tests do to the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Testing {
    /// What it does wrong.
    pub defects: Defects,
}

/// One of the paper's two 4 x 2 tori \[S\], which were two networks, with up to 8 ranks. Tori of SCI are made of
/// ringlets, which carry packets one way \[P\]: what leads to a node and its answer pass each ringlet once
/// together.
pub fn torus(ranks: u32) -> SciConfig {
    Machine::new(ranks, ringlets([4, 2]))
}

/// The smallest machine made of 4 x 2 tori that has room for so many ranks. With more than 8 it is a machine that
/// never existed: the paper's two tori were two networks, and that tori are joined by ringlets of a third
/// dimension is assumed \[A\]. Figures that are compared with the paper use at most 8 ranks.
pub fn fitting(ranks: u32) -> SciConfig {
    match ranks {
        0..=2 => SciConfig { ranks, ..Machine::pair() },
        3..=8 => torus(ranks),
        _ => Machine::new(ranks, ringlets([4, 2, ranks.div_ceil(8)])),
    }
}

fn ringlets<const N: usize>(dims: [u32; N]) -> Topology {
    Topology::Ringlets { dims: dims.into() }
}

/// Runs a program on every rank: [`Machine::run`]. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(machine: &SciConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Virtual<'_>) -> R + 'static,
{
    machine.run(program)
}

impl Interface for SciInterface {
    type Parameters = Parameters;
    type Adversary = AdversarialTiming;
    type Errors = TransferErrors;
    type Testing = Testing;
    type Shared = Shared;
    type Device = Adapter;
    type Handle<'a> = Virtual<'a>;

    fn pair() -> Topology {
        ringlets([2])
    }

    fn network(machine: &SciConfig, network: &mut Config) -> Result<(), ConfigError> {
        if machine.ranks_per_node != 1 {
            let limit = "1, since each rank has a node of its own";
            return Err(ConfigError::range("ranks_per_node", machine.ranks_per_node, limit));
        }
        network.nic = machine.parameters.network();
        network.check()
    }

    fn shared(machine: &SciConfig) -> Result<Shared, ConfigError> {
        let nodes = machine.topology.nodes()?;
        if nodes > MAX_NODES {
            let limit = "at most 16383 nodes, whose numbers are multiples of 4";
            return Err(ConfigError::range("topology", format!("{nodes} nodes"), limit));
        }
        let reorder = Checker::of("adversary").time("reorder_ns", machine.adversary.reorder_ns)?;
        if machine.faults.duplication > 0.0 && !machine.faults.link_retry {
            let (field, other) = ("faults.duplication".into(), "faults.link_retry".into());
            let reason = "SCI's echoes keep links from doubling packets".into();
            return Err(ConfigError::Contradiction { field, other, reason });
        }
        machine.errors.check(|field, value, limit| ConfigError::range(field, value, limit))?;
        Ok(Shared {
            ranks: Default::default(),
            costs: machine.parameters.compile()?,
            parameters: machine.parameters.clone(),
            errors: machine.errors.clone(),
            seed: machine.faults.seed,
            reorder: reorder.0,
            breakable: machine.faults.cut_links(),
            defects: machine.testing.defects,
        })
    }

    fn device(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Adapter {
        Adapter::new(shared, node, ranks)
    }

    fn handle(context: Context<'_, Adapter>, shared: Rc<Shared>) -> Virtual<'_> {
        Virtual::initialize(context, shared)
    }
}
