//! The configuration of a run: ranks, machine, parameters, faults.

use crate::model::Parameters;
use crate::nic::device::{Shared, TimingLimits};
use crate::nic::mutation::Defects;
use crate::nic::rma::command_queue::Pace;
use fabric_sim::bytes::Pool;
use fabric_sim::parameters::{self, Checker, default};
use fabric_sim::{Config, ConfigError, Faults, Placement, Topology};
use serde::{Deserialize, Serialize};
use std::path::Path;
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtollConfig {
    /// Number of ranks.
    pub ranks: u32,
    /// Ranks that share a node and its interface, 1 to 256.
    #[serde(default = "default::ranks_per_node")]
    pub ranks_per_node: u32,
    /// How nodes are connected.
    pub topology: Topology,
    /// Which node a rank runs on.
    #[serde(default)]
    pub placement: Placement,
    /// What interfaces and links cost.
    #[serde(default)]
    pub parameters: Parameters,
    /// What goes wrong. Where links do not repair losses, the interfaces do.
    #[serde(default)]
    pub faults: Faults,
    /// Adversarial timing: legal, and as hard on programs as it can be.
    #[serde(default)]
    pub adversary: AdversarialTiming,
    /// Whether to record every stage of every packet.
    #[serde(default)]
    pub trace: bool,
    /// Size of each rank's stack in bytes.
    #[serde(default = "default::stack_bytes")]
    pub stack_bytes: usize,
    /// How long after a rank ends the others know, in nanoseconds.
    #[serde(default = "default::notice_ns")]
    pub notice_ns: f64,
    /// When a run that has not ended is given up, in nanoseconds of virtual time; infinite: never.
    #[serde(default = "default::deadline_ns")]
    pub deadline_ns: f64,
    /// Makes the interface wrong on purpose.
    #[doc(hidden)]
    #[serde(skip)]
    pub testing: Testing,
}

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

impl ExtollConfig {
    /// So many ranks on a machine, one per node, with the parameters of [`Parameters::cluster`].
    pub fn new(ranks: u32, topology: Topology) -> Self {
        Self {
            ranks,
            ranks_per_node: default::ranks_per_node(),
            topology,
            placement: Placement::default(),
            parameters: Parameters::cluster(),
            faults: Faults::default(),
            adversary: AdversarialTiming::default(),
            trace: false,
            stack_bytes: default::stack_bytes(),
            notice_ns: default::notice_ns(),
            deadline_ns: default::deadline_ns(),
            testing: Testing::default(),
        }
    }

    /// Two ranks on two nodes with a link between them.
    pub fn pair() -> Self {
        Self::new(2, Topology::Direct { nodes: 2 })
    }

    /// The cluster of the conduit paper: 64 nodes of 16 cores, filled in order, as a 4x4x4 mesh.
    pub fn cluster(ranks: u32) -> Self {
        Self { ranks_per_node: 16, ..Self::new(ranks, Topology::Mesh { dims: vec![4, 4, 4] }) }
    }

    /// Reads a configuration from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not possible and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, Self::check)
    }

    /// Reads a configuration from a TOML file and checks it.
    ///
    /// # Errors
    /// As [`ExtollConfig::from_toml`], or says why the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        parameters::from_file(path, Self::check)
    }

    /// Checks that there can be such a machine.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not possible and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.network()?.check()?;
        self.shared().map(drop)
    }

    /// The network below the interfaces.
    pub(crate) fn network(&self) -> Result<Config, ConfigError> {
        if self.ranks_per_node > 256 {
            let limit = "at most 256, since vpids have 8 bits";
            return Err(ConfigError::range("ranks_per_node", self.ranks_per_node, limit));
        }
        Ok(Config {
            ranks_per_node: self.ranks_per_node,
            topology: self.topology.clone(),
            placement: self.placement,
            nic: self.parameters.network(),
            faults: self.faults.clone(),
            trace: self.trace,
            stack_bytes: self.stack_bytes,
            notice_ns: self.notice_ns,
            deadline_ns: self.deadline_ns,
            ..Config::new(self.ranks)
        })
    }

    /// What the interfaces share.
    pub(crate) fn shared(&self) -> Result<Rc<Shared>, ConfigError> {
        let AdversarialTiming { jitter_ns, store_gap_ns } = self.adversary;
        let table = Checker::of("adversary");
        let jitter = table.time("jitter_ns", jitter_ns)?.0;
        let adversary = TimingLimits { jitter, store_gap: table.time("store_gap_ns", store_gap_ns)?.0 };
        let (costs, rma) = (self.parameters.compile()?, &self.parameters.rma);
        let pace = Pace {
            fragment: rma.fragment_bytes,
            burst: rma.burst,
            ramp_fragments: rma.ramp_fragments,
            ramp: costs.ramp,
            gap: costs.tx_gap,
        };
        Ok(Rc::new(Shared {
            directory: Default::default(),
            parameters: self.parameters.clone(),
            costs,
            pace,
            adversary,
            pool: Rc::new(Pool::default()),
            slots: Default::default(),
            defects: self.testing.defects,
            lossy: self.lossy(),
        }))
    }

    /// Whether the network can lose or double packets, so that the interfaces must be ready to repair that.
    fn lossy(&self) -> bool {
        let Faults { loss, corruption, duplication, link_retry, links, .. } = &self.faults;
        if links.iter().any(|link| link.mtu_bytes.is_some() || link.queue_bytes.is_some()) {
            return true;
        }
        let random = *loss + *corruption + *duplication > 0.0 || !links.is_empty();
        // What a dead node does not take stands in the way of what is for others, until it is given up.
        self.faults.stop_nodes() || !link_retry && (random || self.faults.cut_links())
    }
}
