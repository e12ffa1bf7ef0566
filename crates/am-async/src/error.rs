//! What calls fail with.

use am_core::{Address, LossCause, PollError, Rank, SendError, Span, WaitError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The error of methods that have none of their own: the text of any error. `?` makes one of every error.
///
/// It has no [`std::error::Error`], so that it can be made of all that have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure(pub String);

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Why a rank refuses a request without working on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It works on as many requests as its [`CallConfig::tasks`](crate::CallConfig::tasks) allow.
    Tasks,
    /// The method works on as many requests as its [limit](crate::Methods::limit) allows.
    Method,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tasks => "it works on as many requests as its CallConfig::tasks allows",
            Self::Method => "the method works on as many requests as its Methods::limit allows",
        })
    }
}

/// Why [`Caller::try_call`](crate::Caller::try_call) makes no call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Busy {
    /// As many calls to the rank are under way as
    /// [`CallConfig::calls_per_peer`](crate::CallConfig::calls_per_peer) allows.
    Peer {
        /// The limit.
        limit: u32,
    },
    /// As many calls are under way as [`CallConfig::calls`](crate::CallConfig::calls) allows.
    All {
        /// The limit.
        limit: u32,
    },
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { limit } => {
                write!(f, "{limit} calls to it are under way, which CallConfig::calls_per_peer limits")
            }
            Self::All { limit } => write!(f, "{limit} calls are under way, which CallConfig::calls limits"),
        }
    }
}

/// A call has no answer. `E` is the error of the method itself.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E = Failure> {
    /// The method returned an error.
    #[error("the method failed: {0}")]
    Failed(E),
    /// The deadline passed. The callee has been told, and works on the request no longer than it takes to learn of
    /// that.
    #[error("no answer from rank {to} in time{}", .after.map(|span| format!(", which was {span}")).unwrap_or_default())]
    TimedOut {
        /// Who was called.
        to: Address,
        /// The time that the call had, where it was given as a span.
        after: Option<Span>,
    },
    /// The callee is lost. The method may have run or not.
    #[error("rank {rank} is lost: {cause}")]
    RankLost {
        /// The lost rank.
        rank: Rank,
        /// How it was lost.
        cause: LossCause,
    },
    /// The callee has left the job.
    #[error("rank {0} has finished")]
    Finished(Rank),
    /// The method panicked at the callee, which lives on.
    #[error("the method panicked on rank {to}: {text}")]
    Panicked {
        /// Who was called.
        to: Address,
        /// What it panicked with, if that was a text.
        text: String,
    },
    /// The callee refused the request under load: it has not begun to work on it.
    #[error("rank {to} refused the request: {why}")]
    Refused {
        /// Who was called.
        to: Address,
        /// Why.
        why: Refusal,
    },
    /// [`Caller::try_call`](crate::Caller::try_call) would have to wait. Nothing was sent.
    #[error("the call to rank {to} would wait: {why}")]
    Busy {
        /// Who was to be called.
        to: Address,
        /// Why.
        why: Busy,
    },
    /// The request is longer than `CallConfig::max_bytes`, here or at the callee.
    #[error("a request of {bytes} bytes exceeds the limit of {limit} bytes, which CallConfig::max_bytes sets")]
    RequestTooLarge {
        /// Bytes of the request.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The answer is longer than `CallConfig::max_bytes`, here or at the callee.
    #[error("an answer of {bytes} bytes exceeds the limit of {limit} bytes, which CallConfig::max_bytes sets")]
    AnswerTooLarge {
        /// Bytes of the answer.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The request could not be turned into bytes.
    #[error("the request can not be serialised: {0}")]
    Unserialisable(String),
    /// The callee could not make sense of the request: one of the two breaks the protocol.
    #[error("rank {to} can make nothing of the request")]
    BadRequest {
        /// Who was called.
        to: Address,
    },
    /// The answer is none to this method: the callee breaks the protocol.
    #[error("the answer of rank {to} is no answer of this method")]
    BadAnswer {
        /// Who was called.
        to: Address,
    },
    /// The destination is not part of the job.
    #[error("no rank {to} in a job of {ranks} ranks (from 0)")]
    NoSuchRank {
        /// Who was to be called.
        to: Address,
        /// Ranks in the job.
        ranks: u32,
    },
    /// The endpoint has no such method: it was registered in another table.
    #[error("the endpoint has no such method: it was registered in another table")]
    ForeignMethod,
    /// This rank's own endpoint is gone.
    #[error("this rank's endpoint has left its job")]
    Closed,
    /// The request could not be handed to the network.
    #[error(transparent)]
    Send(Box<SendError>),
    /// A blocking wait failed: a handler's error, or the endpoint's time-out.
    #[error(transparent)]
    Wait(Box<WaitError>),
}

impl<E> From<WaitError> for CallError<E> {
    fn from(error: WaitError) -> Self {
        Self::Wait(Box::new(error))
    }
}

impl<E> From<PollError> for CallError<E> {
    fn from(error: PollError) -> Self {
        Self::Wait(Box::new(error.into()))
    }
}

impl<E> CallError<E> {
    /// The rank whose loss ended the call and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::RankLost { rank, cause } => Some((*rank, *cause)),
            Self::Send(error) => error.loss(),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss ended the call, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }

    /// Whether the method has certainly not run.
    pub fn not_begun(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Busy { .. }
                | Self::RequestTooLarge { .. }
                | Self::Unserialisable(_)
                | Self::BadRequest { .. }
                | Self::NoSuchRank { .. }
                | Self::ForeignMethod
        )
    }
}
