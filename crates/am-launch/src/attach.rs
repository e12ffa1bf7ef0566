//! The job's shared memory as this crate needs it: made by a launcher, inherited or received by a rank.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use am_core::Rank;

/// The shared memory of one job.
#[derive(Debug)]
pub(crate) struct Shared {
    file: OwnedFd,
}

/// Why the shared memory can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SharedError(String);

impl Shared {
    /// Makes the shared memory of a new job.
    pub(crate) fn create(_ranks: u32) -> Result<Self, SharedError> {
        let file = nix::sys::memfd::memfd_create(c"am-job", nix::sys::memfd::MFdFlags::empty())
            .map_err(|error| SharedError(error.to_string()))?;
        Ok(Self { file })
    }

    /// Takes the shared memory that a launcher or rank 0 made.
    pub(crate) fn open(file: OwnedFd, _ranks: u32) -> Result<Self, SharedError> {
        Ok(Self { file })
    }

    /// The descriptor to hand to other processes.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Tells the survivors that a rank is gone.
    pub(crate) fn mark_dead(&self, _rank: Rank) {}
}
