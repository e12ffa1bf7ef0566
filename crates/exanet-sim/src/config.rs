//! A machine of ExaNet interfaces: ranks, topology, parameters, faults.

use crate::model::Parameters;
use crate::nic::device::Shared;
use crate::nic::mutation::Defects;
use crate::nic::transfer::Cut;
use crate::nic::{Exanet, Nic};
use fabric_sim::bytes::Pool;
use fabric_sim::parameters::Checker;
use fabric_sim::{Config, ConfigError, Context, Interface, Machine, Report, RunError, Topology};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// An ExaNet machine and what happens to it. Read it from TOML, or start from one of the constructors and change
/// fields.
///
/// ```
/// let config = exanet_sim::ExanetConfig::from_toml("
///     ranks = 512
///     ranks_per_node = 4
///     topology = { kind = 'torus', dims = [8, 4, 4] }
///     faults = { seed = 7, loss = 0.01, reordering = 0.1, reorder_ns = 5000 }
///     errors = { page_faults = 0.01 }
/// ").unwrap();
/// assert_eq!(config.errors.page_faults, 0.01);
///
/// let error = exanet_sim::ExanetConfig::from_toml("
///     ranks = 2
///     topology = { kind = 'ring', nodes = 2 }
///     errors = { page_faults = 1 }
/// ").unwrap_err();
/// assert_eq!(error.to_string(), "errors.page_faults is 1, but must be a probability from 0 to below 1");
/// ```
pub type ExanetConfig = Machine<ExanetInterface>;

/// ExaNet's interface, which [`ExanetConfig`] is a machine of. A node has 1 to 256 ranks. Where links do not
/// repair losses, the interfaces do; packets of a pair may overtake each other, as on several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExanetInterface;

/// Timing that the interface permits, but that is as hard on programs as it can be. Drawn from the faults' seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdversarialTiming {
    /// Packets take up to this much longer through the receiving interface, in nanoseconds, and overtake each
    /// other.
    pub jitter_ns: f64,
}

/// What goes wrong in the interfaces. Drawn from the faults' seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageFaults {
    /// Probability that the system has taken away a page that a block is about to use, at each side, unless it is
    /// pinned.
    pub page_faults: f64,
}

/// What tests do to the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Testing {
    /// What it does wrong.
    pub defects: Defects,
}

/// The ExaNeSt prototype's rack \[P\]: 128 nodes of 4 cores, filled in order, in a 3D torus of 8 x 4 x 4.
///
/// Its nodes are the MPSoCs. Published is also that the four of a daughterboard are linked to each other, and
/// that the boards of a blade and the blades form the torus; here every node has the torus' six links, of one
/// speed.
pub fn rack(ranks: u32) -> ExanetConfig {
    ExanetConfig { ranks_per_node: 4, ..Machine::new(ranks, Topology::Torus { dims: vec![8, 4, 4] }) }
}

/// Runs a program on every rank: [`Machine::run`]. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(machine: &ExanetConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    machine.run(program)
}

impl Interface for ExanetInterface {
    type Parameters = Parameters;
    type Adversary = AdversarialTiming;
    type Errors = PageFaults;
    type Testing = Testing;
    type Shared = Shared;
    type Device = Exanet;
    type Handle<'a> = Nic<'a>;

    fn pair() -> Topology {
        Topology::Direct { nodes: 2 }
    }

    fn network(machine: &ExanetConfig, network: &mut Config) -> Result<(), ConfigError> {
        if machine.ranks_per_node > 256 {
            let limit = "at most 256, since contexts have 8 bits";
            return Err(ConfigError::range("ranks_per_node", machine.ranks_per_node, limit));
        }
        network.nic = machine.parameters.network();
        Ok(())
    }

    fn shared(machine: &ExanetConfig) -> Result<Shared, ConfigError> {
        let jitter = Checker::of("adversary").time("jitter_ns", machine.adversary.jitter_ns)?.0;
        let rate = machine.errors.page_faults;
        if !(0.0..1.0).contains(&rate) {
            let limit = "a probability from 0 to below 1";
            return Err(Checker::of("errors").refuse("page_faults", rate, limit));
        }
        let costs = machine.parameters.compile()?;
        let cut = Cut { cell: machine.parameters.cell.payload_bytes, grain: machine.parameters.rdma.grain };
        Ok(Shared {
            directory: Default::default(),
            parameters: machine.parameters.clone(),
            costs,
            cut,
            jitter,
            page_faults: (rate * 18_446_744_073_709_551_616.0) as u64,
            pool: Rc::new(Pool::default()),
            defects: machine.testing.defects,
            // Copies are told apart anyway. The reads that a stopped node does not serve have to be noticed.
            lossy: machine.faults.can_lose(u32::MAX) || machine.faults.stop_nodes(),
        })
    }

    fn device(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Exanet {
        Exanet::new(shared, node, ranks)
    }

    fn handle(context: Context<'_, Exanet>, shared: Rc<Shared>) -> Nic<'_> {
        Nic::new(context, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_sim::Faults;

    #[test]
    fn machines_survive_a_round_trip() {
        let mut machine = rack(512);
        machine.faults = Faults { seed: 7, loss: 0.25, ..Faults::default() };
        machine.adversary = AdversarialTiming { jitter_ns: 12.5 };
        machine.errors = PageFaults { page_faults: 0.5 };
        let text = toml::to_string(&machine).unwrap();
        assert_eq!(ExanetConfig::from_toml(&text).unwrap(), machine);
    }

    #[test]
    fn bad_machines_are_refused_by_field_and_limit() {
        for (text, wanted) in [
            ("rankss = 1", "rankss"),
            ("parameters = { nics = {} }", "nics"),
            ("ranks_per_node = 257", "ranks_per_node is 257, but must be at most 256"),
            ("parameters = { rdma = { window = 0 } }", "parameters.rdma.window is 0, but must be from 1 to 32"),
            ("adversary = { jitter_ns = -1 }", "adversary.jitter_ns is -1"),
            ("errors = { page_faults = -0.1 }", "errors.page_faults is -0.1, but must be a probability"),
            ("errors = { page_faults = nan }", "errors.page_faults is NaN"),
            ("errors = { retriable = 0.1 }", "retriable"),
            ("notice_ns = -1", "notice_ns is -1"),
            ("faults = { loss = 2 }", "faults.loss is 2"),
            ("testing = { defects = 1 }", "testing"),
        ] {
            let text = format!("ranks = 2\ntopology = {{ kind = 'torus', dims = [2, 1, 1] }}\n{text}");
            let error = ExanetConfig::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let crowded = rack(513).check().unwrap_err().to_string();
        assert_eq!(crowded, "ranks is 513, but must be at most 128 nodes times 4 ranks per node");
    }

    #[test]
    fn silence_is_noticed_where_packets_can_be_lost() {
        let with = |faults| {
            let machine = ExanetConfig { faults, ..ExanetConfig::pair() };
            ExanetInterface::shared(&machine).unwrap().lossy
        };
        assert!(!with(Faults::default()));
        assert!(!with(Faults { loss: 0.1, link_retry: true, ..Faults::default() }));
        assert!(!with(Faults { duplication: 0.1, reordering: 0.1, ..Faults::default() }));
        assert!(
            with(Faults { loss: 0.1, ..Faults::default() })
                && with(Faults { corruption: 0.1, ..Faults::default() })
        );
    }
}
