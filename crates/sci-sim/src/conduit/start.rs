//! Opening conduits: on every rank of a simulated machine, and on the ranks of a job of processes or threads.

use super::{Conduit, ConduitConfig, NodeMap, OpenError};
use crate::SciConfig;
use crate::model::ConduitParameters;
use crate::nic::{Mapped, MappedConfig, MappedError, NodeId, TransferErrors, Virtual};
use fabric_sim::{Report, RunError};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What a rank takes of the system's memory: at 63, 126 and 252 ranks with 6 partners 390.1, 682.7 and 1271.9 KiB
/// each, since a node has a command segment for each other one, as published. 16,384 ranks would take 1.2 TiB.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 103_200, partner: 690, other: 4_780, twice: 0 };

/// Runs a program on every rank of a simulated machine, each with its conduit. Blocks until all have returned.
/// What the conduit's own work costs is the machine's [`ConduitParameters`].
///
/// # Errors
/// As [`sci_sim::run`](crate::run); sizes that are not possible; and a panic of a rank whose segments cannot be
/// exported or imported.
pub fn run<R, F>(config: &SciConfig, conduit: &ConduitConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Conduit<Virtual<'_>>) -> R + 'static,
{
    // A machine that cannot be is refused in its own words, before what the conduit needs of it.
    config.check()?;
    conduit.check(config.ranks)?;
    MEMORY.check(config.ranks)?;
    let conduit = conduit.clone();
    crate::run(config, move |nic| {
        let (nodes, costs, rank) = (nic.nodes(), nic.parameters().conduit.clone(), nic.rank());
        let opened = Conduit::open(nic, &nodes, &conduit, &costs);
        program(opened.unwrap_or_else(|error| panic!("the conduit of rank {rank} cannot be opened: {error}")))
    })
}

/// A job whose ranks are processes or threads of one host, and whose segments are files that they all map.
#[derive(Clone, Debug)]
pub struct MappedJob {
    directory: PathBuf,
    nodes: NodeMap,
    config: ConduitConfig,
    errors: TransferErrors,
}

/// Why a rank could not join a job of mapped segments.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no such rank.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The interface could not be had.
    #[error(transparent)]
    Mapped(#[from] MappedError),
    /// The conduit could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Tries for each that the configuration asks for, with as much shorter pauses: processes start within
/// milliseconds.
const FINER: u32 = 1000;

impl MappedJob {
    /// A job in a directory, which all ranks name alike; the first to come makes it, the last to leave removes it.
    pub fn new(directory: impl Into<PathBuf>, nodes: NodeMap, config: ConduitConfig) -> Self {
        Self { directory: directory.into(), nodes, config, errors: TransferErrors::default() }
    }

    /// A job named by something that all its ranks know, such as the launcher's id of the job; in memory where the
    /// system has a file system there. Ranks are numbered as nodes are ([`NodeMap::consecutive`]).
    pub fn named(name: &str, ranks: u32, config: ConduitConfig) -> Self {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let name: String = name.chars().map(plain).collect();
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        Self::new(parent.join(format!("sci-{name}")), NodeMap::consecutive(ranks), config)
    }

    /// The same job with transfer errors on purpose.
    #[must_use]
    pub fn errors(self, errors: TransferErrors) -> Self {
        Self { errors, ..self }
    }

    /// Joins as one rank. Waits for the other ranks to come.
    ///
    /// # Errors
    /// [`JoinError`]: no such rank, files that cannot be made, peers that do not come.
    pub fn join(&self, rank: u32) -> Result<Conduit<Mapped>, JoinError> {
        let ranks = self.nodes.ranks();
        let node = self.nodes.node(rank).ok_or(JoinError::NoSuchRank { rank, ranks })?;
        let nodes: Vec<_> = (0..ranks).filter_map(|rank| self.nodes.node(rank)).map(NodeId).collect();
        let config = ConduitConfig {
            connect_tries: self.config.connect_tries.saturating_mul(FINER),
            connect_pause_ns: self.config.connect_pause_ns / f64::from(FINER),
            ..self.config.clone()
        };
        let mut interface = MappedConfig::new(&self.directory, NodeId(node), nodes.iter().copied());
        // The paper's limit is that of its driver; here files are as large as the job asks for.
        interface.segment_bytes = interface.segment_bytes.max((config.segment as usize).next_multiple_of(64));
        interface.errors = self.errors.clone();
        // Costs are those of the processor itself.
        Ok(Conduit::open(Mapped::initialize(interface)?, &nodes, &config, &ConduitParameters::default())?)
    }
}
