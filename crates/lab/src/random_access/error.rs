//! What can go wrong in a rank.

use active_messages::pgas::aggregate::{AggregateError, AggregatorError};
use active_messages::shm::JoinError;
use active_messages::{AttachError, LossCause, PollError, RegisterError, SegmentError, SendError, WaitError};
use std::io;

/// A rank could not complete its run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The command line does not fit the job that a launcher started.
    #[error("{0}")]
    Usage(String),
    /// The job's shared memory could not be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The job could not be attached to.
    #[error(transparent)]
    Launch(#[from] active_messages::launch::JobAttachError),
    /// A handler could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The updates' aggregator does not fit its memory.
    #[error(transparent)]
    Aggregator(#[from] AggregatorError),
    /// Updates could not be pushed, or did not all arrive.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// The ranks did not come together.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An update was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Serving incoming updates failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// Waiting for the other ranks failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A word of the table lies outside its segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// There is not enough memory for this rank's part of the table.
    #[error("no memory for {words} words of the table: {source}")]
    Memory {
        /// Words of this rank.
        words: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The variant needs native access to the segments of other ranks, and the transport has none.
    #[error("variant {variant} needs native access to the segment of rank {rank}, which this backend has not")]
    NoNativeAccess {
        /// The variant.
        variant: String,
        /// The rank out of reach.
        rank: u32,
    },
    /// The simulation ended early, or one of its ranks failed.
    #[error("{0}")]
    Simulation(String),
    /// A rank reported its figures in a form that rank 0 does not understand.
    #[error("a rank's report makes no sense: {0}")]
    Report(#[from] serde_json::Error),
    /// More words have a wrong value than the variant allows.
    #[error("verification failed: {errors} errors, {allowed} allowed")]
    Verification {
        /// Wrong words.
        errors: u64,
        /// Wrong words that the variant allows.
        allowed: u64,
    },
}

impl RunError {
    /// Whether the rank failed because another one left.
    pub fn follows(&self) -> bool {
        let wait = match self {
            Self::Aggregate(AggregateError::Gone { .. }) => return true,
            Self::Attach(AttachError::Wait(error))
            | Self::Wait(error)
            | Self::Send(SendError::Wait(error))
            | Self::Aggregate(AggregateError::Wait(error)) => error,
            Self::Poll(error) => return matches!(error, PollError::PeerLost { cause: LossCause::Left, .. }),
            _ => return false,
        };
        matches!(wait, WaitError::Poll(PollError::PeerLost { cause: LossCause::Left, .. }))
    }
}
