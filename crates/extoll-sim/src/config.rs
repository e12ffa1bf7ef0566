//! A machine of EXTOLL interfaces: ranks, topology, parameters, faults.

use crate::model::Parameters;
use crate::nic::device::{Shared, TimingLimits};
use crate::nic::mutation::Defects;
use crate::nic::rma::command_queue::Pace;
use crate::nic::{Extoll, Nic};
use fabric_sim::bytes::Pool;
use fabric_sim::parameters::Checker;
use fabric_sim::{Config, ConfigError, Context, Interface, Machine, NoErrors, Report, RunError, Topology};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// An EXTOLL machine and what happens to it. Read it from TOML, or start from one of the constructors and change
/// fields.
///
/// ```
/// let config = extoll_sim::ExtollConfig::from_toml("
///     ranks = 1024
///     ranks_per_node = 16
///     topology = { kind = 'mesh', dims = [4, 4, 4] }
///     parameters = { velo = { segments = 4 } }
///     faults = { seed = 7, loss = 0.01 }
/// ").unwrap();
/// assert_eq!(config.parameters.velo.segments, 4);
///
/// let small = "ranks = 2\ntopology = { kind = 'ring', nodes = 1 }";
/// let error = extoll_sim::ExtollConfig::from_toml(small).unwrap_err();
/// assert_eq!(error.to_string(), "ranks is 2, but must be at most 1 nodes times 1 ranks per node");
/// ```
pub type ExtollConfig = Machine<ExtollInterface>;

/// EXTOLL's interface, which [`ExtollConfig`] is a machine of. A node has 1 to 256 ranks. Where links do not
/// repair losses, the interfaces do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtollInterface;

/// Timing that the interface permits, but that is as hard on programs as it can be. Drawn from the faults' seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdversarialTiming {
    /// Packets take up to this much longer through the receiving interface, in nanoseconds. Those of one pair and
    /// channel stay in order, others overtake: VELO and RMA, commands and answers.
    pub jitter_ns: f64,
    /// The interface's writes to a mailbox happen one by one, up to this far apart, in nanoseconds.
    pub store_gap_ns: f64,
}

/// What tests do to the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Testing {
    /// What it does wrong.
    pub defects: Defects,
}

/// The cluster of the conduit paper: 64 nodes of 16 cores, filled in order, as a 4x4x4 mesh.
pub fn cluster(ranks: u32) -> ExtollConfig {
    ExtollConfig { ranks_per_node: 16, ..Machine::new(ranks, Topology::Mesh { dims: vec![4, 4, 4] }) }
}

/// Runs a program on every rank: [`Machine::run`]. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(machine: &ExtollConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    machine.run(program)
}

impl Interface for ExtollInterface {
    type Parameters = Parameters;
    type Adversary = AdversarialTiming;
    type Errors = NoErrors;
    type Testing = Testing;
    type Shared = Shared;
    type Device = Extoll;
    type Handle<'a> = Nic<'a>;

    fn pair() -> Topology {
        Topology::Direct { nodes: 2 }
    }

    fn network(machine: &ExtollConfig, network: &mut Config) -> Result<(), ConfigError> {
        if machine.ranks_per_node > 256 {
            let limit = "at most 256, since vpids have 8 bits";
            return Err(ConfigError::range("ranks_per_node", machine.ranks_per_node, limit));
        }
        network.nic = machine.parameters.network();
        Ok(())
    }

    fn shared(machine: &ExtollConfig) -> Result<Shared, ConfigError> {
        let AdversarialTiming { jitter_ns, store_gap_ns } = machine.adversary;
        let (table, faults) = (Checker::of("adversary"), &machine.faults);
        let jitter = table.time("jitter_ns", jitter_ns)?.0;
        let adversary = TimingLimits { jitter, store_gap: table.time("store_gap_ns", store_gap_ns)?.0 };
        let (costs, rma) = (machine.parameters.compile()?, &machine.parameters.rma);
        let pace = Pace {
            fragment: rma.fragment_bytes,
            burst: rma.burst,
            ramp_fragments: rma.ramp_fragments,
            ramp: costs.ramp,
            gap: costs.tx_gap.max(machine.parameters.fragment_on_wire()),
        };
        Ok(Shared {
            directory: Default::default(),
            parameters: machine.parameters.clone(),
            costs,
            pace,
            adversary,
            pool: Rc::new(Pool::default()),
            slots: Default::default(),
            defects: machine.testing.defects,
            // What a stopped node does not take stands in the way of what is for others, until it is given up.
            lossy: faults.can_lose(u32::MAX) || faults.can_double() || faults.stop_nodes(),
        })
    }

    fn device(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Extoll {
        Extoll::new(shared, node, ranks)
    }

    fn handle(context: Context<'_, Extoll>, shared: Rc<Shared>) -> Nic<'_> {
        Nic::new(context, shared)
    }
}
