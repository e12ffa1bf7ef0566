//! Why a rank could not join its job.

use std::io;

use crate::cluster::rendezvous::RendezvousError;
use crate::env;
use crate::env::error::EnvironmentError;
use crate::rank::identity::StartedBy;
use crate::rank::meet::LocalRendezvousError;

/// Why a rank could not join its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// The environment is malformed or contradicts itself.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// An inherited descriptor is not there or not what it should be.
    #[error("{variable}={number} in the environment is no descriptor of this job: {source}")]
    Descriptor {
        /// The variable that names it.
        variable: &'static str,
        /// The descriptor's number.
        number: u32,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The handler for SIGQUIT can't be set.
    #[error("no handler for SIGQUIT: {0}")]
    Signal(nix::Error),
    /// The ranks of this host did not find each other.
    #[error(transparent)]
    LocalRendezvous(#[from] LocalRendezvousError),
    /// The ranks of several hosts did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The ranks could not tell each other where they meet.
    #[error(
        "ranks of several hosts cannot meet over their launcher's {space}: {reason}; they do without it where AM_RENDEZVOUS=HOST:PORT \
         (rank 0's host, a free port) and AM_SECRET_FILE=FILE are set for every rank"
    )]
    KeyValueSpace {
        /// `PMI` or `PMIx`.
        space: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The interface that was asked for makes no sense.
    #[error("{}={value} in the environment: {reason}", env::INTERFACE)]
    Interface {
        /// Its value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest that the launcher left is another job's.
    #[error("the job's manifest is that of a job of {found} ranks, but this is one of {ranks}")]
    Manifest {
        /// Ranks of its job.
        found: u32,
        /// Ranks according to the environment.
        ranks: u32,
    },
    /// The program wants another number of ranks than its launcher started.
    #[error("the program asks for {asked} ranks, but {by} started {started}", by = started_by)]
    OtherSize {
        /// The number that the program asked for.
        asked: u32,
        /// The number of ranks that were started.
        started: u32,
        /// Who started them.
        started_by: StartedBy,
    },
}
