//! Why a connection ends before its time.

use crate::conduit::pscom::ring::RingError;
use crate::conduit::pscom::stream::StreamError;
use crate::nic::rma::RmaError;
use crate::nic::velo::VeloError;
use thiserror::Error;

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer sent chunks that make no sense.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The ring broke.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The interface does not get through to the peer.
    #[error(transparent)]
    Velo(#[from] VeloError),
    /// The peer sent something that is part of no conversation.
    #[error("unexpected: {0}")]
    Unexpected(&'static str),
}

impl LinkError {
    /// Whether the peer is out of reach, rather than wrong.
    pub(in crate::conduit::pscom) fn is_silence(&self) -> bool {
        matches!(self, Self::Velo(_))
    }
}

impl From<RmaError> for LinkError {
    fn from(error: RmaError) -> Self {
        Self::Ring(error.into())
    }
}
