//! A rank's own view of its job: who it is, and the shared memory that it joins.

use std::fs::File;
use std::io;
use std::time::Duration;

use am_core::Rank;
use nix::unistd::getppid;
use transport_shm::{Job, JobError, JoinError, JoinOptions, Shm};

use crate::attach::{Configure, OpenError, open};
use crate::contract;
use crate::identity::{EnvironmentError, Identity, StartedBy, identify};
use crate::lifeline;
use crate::meet::{MeetError, Meeting, launcher_name, reopen};

/// How long the ranks of an `mpirun` or `srun` job wait for each other at the start, unless `AM_MEET_TIMEOUT` says
/// otherwise.
pub const DEFAULT_MEET_TIMEOUT: Duration = Duration::from_secs(60);

/// The job that this process is a rank of.
#[derive(Debug)]
pub struct RankJob {
    rank: Rank,
    ranks: u32,
    local_rank: u32,
    job_id: String,
    started_by: StartedBy,
    job: Job,
}

impl RankJob {
    /// Joins the job that the environment describes, or returns `None` if no launcher started this process.
    ///
    /// The environment of `amrun` and of [`run`](crate::run) comes first, then that of `mpirun` (Open MPI, MPICH
    /// and its relatives, PMIx), then that of `srun`. Within a Slurm allocation only a process of a job step with
    /// several tasks is a rank: a batch script has `SLURM_PROCID` too, but no `SLURM_STEP_ID`.
    ///
    /// Under `mpirun` and `srun`, and when the variables were set by hand, this call waits for the other ranks.
    ///
    /// # Errors
    /// A malformed environment, ranks on several hosts, or ranks that don't turn up within `AM_MEET_TIMEOUT`
    /// seconds.
    pub fn from_environment() -> Result<Option<Self>, RankError> {
        Self::identified(&Configure::default())
    }

    /// As [`from_environment`](Self::from_environment); if this rank has to make the shared memory, it is made so.
    pub(crate) fn identified(configure: &Configure) -> Result<Option<Self>, RankError> {
        let Some(identity) = identify(&|name| std::env::var_os(name))? else { return Ok(None) };
        follow_launcher(&identity)?;
        let Identity { rank, ranks, local_rank, started_by, .. } = identity;
        let job_id = identity.job.unwrap_or_else(|| launcher_name(identity.rank_variable));
        let job = match identity.shm_fd {
            Some(number) => inherited(number, ranks)?,
            None => met(&job_id, rank, ranks, configure)?,
        };
        Ok(Some(Self { rank, ranks, local_rank, job_id, started_by, job }))
    }

    /// Joins the job's shared memory as this rank: the transport for an endpoint.
    ///
    /// Not collective; it returns at once. Each endpoint of the rank joins once.
    ///
    /// # Errors
    /// As [`Job::join_with`].
    pub fn shm(&self, options: JoinOptions) -> Result<Shm, JoinError> {
        self.job.join_with(self.rank.0, options)
    }

    /// The job's shared memory, for what [`shm`](Self::shm) doesn't offer.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// This process's number among the ranks of its host.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// A text that names the job uniquely on its host.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// How the job's ranks were started.
    pub fn started_by(&self) -> StartedBy {
        self.started_by
    }
}

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
    /// The ranks did not find each other.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The job's shared memory could not be made.
    #[error("job {job}: {source}")]
    Create {
        /// The job's name.
        job: String,
        /// The reason.
        source: JobError,
    },
    /// The job's shared memory can't be used.
    #[error("job {job}: {source}")]
    Open {
        /// The job's name.
        job: String,
        /// The reason.
        source: OpenError,
    },
    /// The descriptor that should be the job's shared memory is something else.
    #[error("{variable}={number} in the environment is no descriptor of this job: {source}")]
    Segment {
        /// The variable that names it.
        variable: &'static str,
        /// The descriptor's number.
        number: u32,
        /// The reason.
        source: OpenError,
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

/// Makes sure that this process doesn't outlive its launcher.
///
/// A direct child was tied to it by the kernel before it was executed. Below a wrapper (a shell, a debugger) the
/// lifeline has to be watched.
fn follow_launcher(identity: &Identity) -> Result<(), RankError> {
    let (Some(launcher), Some(number)) = (identity.launcher_pid, identity.lifeline_fd) else { return Ok(()) };
    if getppid().as_raw() as u32 == launcher {
        return Ok(());
    }
    let variable = contract::LIFELINE_FD;
    let line = File::open(format!("/proc/self/fd/{number}"));
    line.and_then(lifeline::watch).map_err(|source| RankError::Descriptor { variable, number, source })
}

fn inherited(number: u32, ranks: u32) -> Result<Job, RankError> {
    let variable = contract::SHM_FD;
    let file = reopen(number).map_err(|source| RankError::Descriptor { variable, number, source })?;
    open(file, ranks).map_err(|source| RankError::Segment { variable, number, source })
}

fn met(name: &str, rank: Rank, ranks: u32, configure: &Configure) -> Result<Job, RankError> {
    let meeting = Meeting::new(name.to_owned(), ranks, meet_timeout()?);
    if rank == Rank(0) {
        let job = configure.create(ranks).map_err(|source| RankError::Create { job: name.to_owned(), source })?;
        meeting.serve(job.fd())?;
        return Ok(job);
    }
    open(meeting.fetch(rank)?, ranks).map_err(|source| RankError::Open { job: name.to_owned(), source })
}

fn meet_timeout() -> Result<Duration, EnvironmentError> {
    let variable = contract::MEET_TIMEOUT;
    let Some(value) = std::env::var_os(variable) else { return Ok(DEFAULT_MEET_TIMEOUT) };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or(EnvironmentError::NotANumber {
        variable,
        value,
        expected: "a number of seconds",
    })
}
