//! What operations failed with, so that one wait for several of them tells of all.

use crate::address::Rank;
use crate::one_sided::OneSidedError;
use crate::transport::{LossCause, OperationFault};
use std::fmt;

/// Operations on the segment of one rank that failed of one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Whose segment they were for.
    pub rank: Rank,
    /// What they failed of; [`OperationFault::Gone`] if the target was lost, or left, before it had done them.
    pub fault: OperationFault,
    /// How many there were.
    pub operations: u64,
    /// How the target was lost, where it is gone by a loss.
    pub loss: Option<LossCause>,
}

/// Operations that failed, by target and cause, the first that was found to fail first. Never empty in an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(Vec<Failure>);

impl Failures {
    /// Counts a failure. Allocates for a target or cause that is new.
    pub(super) fn add(&mut self, rank: Rank, fault: OperationFault) {
        self.add_all(&[Failure { rank, fault, operations: 1, loss: None }]);
    }

    /// Counts failures.
    pub(super) fn add_all(&mut self, others: &[Failure]) {
        for other in others {
            let same = |known: &&mut Failure| known.rank == other.rank && known.fault == other.fault;
            match self.0.iter_mut().find(same) {
                Some(known) => known.operations += other.operations,
                None => self.0.push(other.clone()),
            }
        }
    }

    /// Notes how ranks were lost that are gone.
    pub(super) fn note_causes(&mut self, cause: impl Fn(Rank) -> Option<LossCause>) {
        for failure in self.0.iter_mut().filter(|failure| failure.fault == OperationFault::Gone) {
            failure.loss = cause(failure.rank);
        }
    }

    /// The first target that was lost, if one was, and how.
    pub(super) fn loss(&self) -> Option<(Rank, LossCause)> {
        self.0.iter().find_map(|failure| Some((failure.rank, failure.loss?)))
    }

    /// Whether nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets them, and keeps their room.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All of them, each target and cause once.
    pub fn all(&self) -> &[Failure] {
        &self.0
    }

    /// How many operations failed.
    pub fn operations(&self) -> u64 {
        self.0.iter().map(|failure| failure.operations).sum()
    }

    /// The error that tells of them, if anything failed.
    pub(super) fn into_error(self) -> Option<OneSidedError> {
        match self.0[..] {
            [] => None,
            [Failure { rank, fault: OperationFault::Gone, loss, .. }] => {
                Some(OneSidedError::Gone { rank, cause: loss })
            }
            [Failure { rank, fault, .. }] => Some(OneSidedError::Failed { rank, fault }),
            _ => Some(OneSidedError::Several(self)),
        }
    }
}

/// Targets that the message names before the rest is only counted.
const NAMED: usize = 4;

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations failed:", self.operations())?;
        for (index, Failure { rank, fault, operations, .. }) in self.0.iter().take(NAMED).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma} {operations} on the segment of rank {rank} ({fault})")?;
        }
        match self.0.len().checked_sub(NAMED) {
            Some(more @ 1..) => write!(f, ", and those of {more} more targets or causes"),
            _ => Ok(()),
        }
    }
}
