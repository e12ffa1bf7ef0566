//! The configuration of a simulated machine: ranks, topology, parameters, faults.

use crate::model::Parameters;
use crate::nic::TransferErrors;
use crate::nic::mutation::Defects;
use crate::nic::virtual_time::Shared;
use fabric_sim::parameters::{self, Checker, default};
use fabric_sim::{Config, ConfigError, Faults, Placement, Topology};
use serde::{Deserialize, Serialize};
use std::path::Path;
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
///     topology = { kind = 'torus', dims = [4, 2] }
///     parameters = { dma = { crossover_bytes = 8192 } }
///     faults = { seed = 7, corruption = 0.001 }
///     adversary = { reorder_ns = 500 }
/// ").unwrap();
/// assert_eq!(config.parameters.dma.crossover_bytes, 8192);
///
/// let small = "ranks = 9\ntopology = { kind = 'torus', dims = [4, 2] }";
/// let error = sci_sim::SciConfig::from_toml(small).unwrap_err();
/// assert_eq!(error.to_string(), "ranks is 9, but must be at most 8 nodes times 1 ranks per node");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SciConfig {
    /// Number of ranks, one per node.
    pub ranks: u32,
    /// How nodes are connected.
    pub topology: Topology,
    /// Which node a rank runs on.
    #[serde(default)]
    pub placement: Placement,
    /// What adapters and links cost.
    #[serde(default)]
    pub parameters: Parameters,
    /// What goes wrong in the network. What is lost or spoilt fails the sequence, or the transfer, that it belongs
    /// to. Links do not double packets: SCI's echoes prevent that.
    #[serde(default)]
    pub faults: Faults,
    /// Lines that fail besides.
    #[serde(default)]
    pub errors: TransferErrors,
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

impl SciConfig {
    /// So many ranks on a machine, with the paper's parameters.
    pub fn new(ranks: u32, topology: Topology) -> Self {
        Self {
            ranks,
            topology,
            placement: Placement::default(),
            parameters: Parameters::paper(),
            faults: Faults::default(),
            errors: TransferErrors::default(),
            adversary: AdversarialTiming::default(),
            trace: false,
            stack_bytes: default::stack_bytes(),
            notice_ns: default::notice_ns(),
            deadline_ns: default::deadline_ns(),
            testing: Testing::default(),
        }
    }

    /// Two neighbours.
    pub fn pair() -> Self {
        Self::new(2, Topology::Torus { dims: vec![2, 1] })
    }

    /// One of the paper's two-dimensional tori, 4 x 2, with up to 8 ranks.
    pub fn torus(ranks: u32) -> Self {
        Self::new(ranks, Topology::Torus { dims: vec![4, 2] })
    }

    /// The paper's machine, 16 nodes: two 4 x 2 tori \[S\], of which each node is linked to its counterpart in the
    /// other \[A\].
    pub fn paper(ranks: u32) -> Self {
        Self::new(ranks, Topology::Torus { dims: vec![4, 2, 2] })
    }

    /// The smallest machine made of 4 x 2 tori that has room for so many ranks.
    pub fn fitting(ranks: u32) -> Self {
        match ranks {
            0..=2 => Self { ranks, ..Self::pair() },
            3..=8 => Self::torus(ranks),
            _ => Self::new(ranks, Topology::Torus { dims: vec![4, 2, ranks.div_ceil(8)] }),
        }
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
    /// As [`SciConfig::from_toml`], or says why the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        parameters::from_file(path, Self::check)
    }

    /// Checks that there can be such a machine.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not possible and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.network()?;
        self.shared().map(drop)
    }

    /// The network below the adapters.
    pub(crate) fn network(&self) -> Result<Config, ConfigError> {
        let config = Config {
            topology: self.topology.clone(),
            placement: self.placement,
            nic: self.parameters.network(),
            faults: self.faults.clone(),
            trace: self.trace,
            stack_bytes: self.stack_bytes,
            notice_ns: self.notice_ns,
            deadline_ns: self.deadline_ns,
            ..Config::new(self.ranks)
        };
        config.check()?;
        Ok(config)
    }

    /// What the adapters share.
    pub(crate) fn shared(&self) -> Result<Rc<Shared>, ConfigError> {
        let nodes = self.topology.nodes()?;
        if nodes > MAX_NODES {
            let limit = "at most 16383 nodes, whose numbers are multiples of 4";
            return Err(ConfigError::range("topology", format!("{nodes} nodes"), limit));
        }
        let reorder = Checker::of("adversary").time("reorder_ns", self.adversary.reorder_ns)?;
        if self.faults.duplication > 0.0 && !self.faults.link_retry {
            let (field, other) = ("faults.duplication".into(), "faults.link_retry".into());
            let reason = "SCI's echoes keep links from doubling packets".into();
            return Err(ConfigError::Contradiction { field, other, reason });
        }
        self.errors.check(|field, value, limit| ConfigError::range(field, value, limit))?;
        Ok(Rc::new(Shared {
            ranks: Default::default(),
            costs: self.parameters.compile()?,
            parameters: self.parameters.clone(),
            errors: self.errors.clone(),
            seed: self.faults.seed,
            reorder: reorder.0,
            breakable: self.faults.cut_links(),
            defects: self.testing.defects,
        }))
    }
}
