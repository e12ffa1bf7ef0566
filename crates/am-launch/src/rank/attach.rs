//! The job's shared memory as launchers and ranks handle it: made once, handed on as a descriptor, opened again.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use transport_shm::{Job, JobConfig, JobError};

/// What a program wants its job's shared memory to be like: a function from the default configuration.
#[derive(Clone)]
pub(crate) struct Configure(Arc<dyn Fn(JobConfig) -> JobConfig + Send + Sync>);

impl Configure {
    pub(crate) fn new(configure: impl Fn(JobConfig) -> JobConfig + Send + Sync + 'static) -> Self {
        Self(Arc::new(configure))
    }

    /// `first`, and then this, which has the last word.
    pub(crate) fn after(self, first: impl Fn(JobConfig) -> JobConfig + Send + Sync + 'static) -> Self {
        Self::new(move |job| (self.0)(first(job)))
    }

    /// Makes the shared memory of a job of `ranks` ranks. Its descriptor is inherited by nobody yet.
    pub(crate) fn create(&self, ranks: u32) -> Result<Job, JobError> {
        let job = Job::create(&(self.0)(JobConfig::new(ranks)))?;
        job.close_on_exec()?;
        Ok(job)
    }
}

impl Default for Configure {
    fn default() -> Self {
        Self::new(|default| default)
    }
}

impl fmt::Debug for Configure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Configure(..)")
    }
}

/// Opens the shared memory that a launcher or rank 0 made, if it is that of a job of `ranks` ranks.
pub(crate) fn open(file: OwnedFd, ranks: u32) -> Result<Job, OpenError> {
    let job = Job::open(file)?;
    match job.shape().ranks {
        made if made != ranks => Err(OpenError::OtherSize { made, ranks }),
        _ => Ok(job),
    }
}

/// Why a rank can't use the shared memory that it was handed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is no job's memory, or that of another program's version.
    #[error(transparent)]
    Job(#[from] JobError),
    /// It was made for another number of ranks.
    #[error("the job's shared memory was made for {made} ranks, but this is one of {ranks}")]
    OtherSize {
        /// The number of ranks that it was made for.
        made: u32,
        /// The number of ranks according to the environment.
        ranks: u32,
    },
}
