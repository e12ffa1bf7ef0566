//! Who takes part in a job, how endpoints leave it, and how they are lost.

use crate::address::{Peer, Shape};
use std::fmt;

/// How a peer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// Its endpoint was dropped without `finish`.
    Left,
    /// It panicked.
    Panicked,
    /// Its process ended without a word, for instance killed.
    Died,
    /// It broke the protocol: a frame from it made no sense.
    Faulty,
    /// It has not been heard from for the configured time.
    Silent,
    /// It speaks another version of the transport's protocol, or lays data out differently.
    Incompatible,
    /// It was started anew; its predecessor is gone.
    Restarted,
    /// Nothing is wrong with it: this endpoint's own transport has failed, and reaches nobody any more.
    Broken,
    /// Nothing is wrong with it: this process is a fork of the one that the endpoint belongs to, and may not use
    /// it.
    Forked,
}

impl LossCause {
    /// All causes; a cause's place is its [code](Self::code).
    const ALL: [Self; 9] = [
        Self::Left,
        Self::Panicked,
        Self::Died,
        Self::Faulty,
        Self::Silent,
        Self::Incompatible,
        Self::Restarted,
        Self::Broken,
        Self::Forked,
    ];

    /// A number that stands for the cause in messages.
    ///
    /// ```
    /// use am_core::LossCause;
    ///
    /// assert_eq!(LossCause::from_code(LossCause::Silent.code()), Some(LossCause::Silent));
    /// assert_eq!(LossCause::from_code(200), None);
    /// ```
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The cause that a number stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "it left without finishing (neither Endpoint::finish nor leave)",
            Self::Panicked => "it panicked",
            Self::Died => "its process died",
            Self::Faulty => "it sent a malformed frame",
            Self::Silent => "it does not answer",
            Self::Incompatible => "it is of an incompatible version or layout",
            Self::Restarted => "it was started anew",
            Self::Broken => {
                "this endpoint's own transport has failed and reaches nobody; the process has to be started anew"
            }
            Self::Forked => {
                "this endpoint belongs to the process that this one was forked from, which alone can use it"
            }
        })
    }
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStatus {
    /// Taking part.
    Active,
    /// Ended properly, with `finish`.
    Finished,
    /// Lost.
    Lost(LossCause),
}

impl PeerStatus {
    /// Passes if the peer takes part.
    ///
    /// # Errors
    /// Its status if it does not.
    #[inline]
    pub fn active(self) -> Result<(), Self> {
        if self == Self::Active { Ok(()) } else { Err(self) }
    }
}

/// How this endpoint leaves its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// After a collective `finish`.
    Finished,
    /// Without one.
    Left,
    /// While unwinding from a panic.
    Panicked,
}

impl Departure {
    /// The departure of an endpoint that is dropped without `finish`, told from the thread's state.
    pub fn of_drop() -> Self {
        if std::thread::panicking() { Self::Panicked } else { Self::Left }
    }

    /// What the others are to know of it.
    pub const fn status(self) -> PeerStatus {
        match self {
            Self::Finished => PeerStatus::Finished,
            Self::Left => PeerStatus::Lost(LossCause::Left),
            Self::Panicked => PeerStatus::Lost(LossCause::Panicked),
        }
    }
}

/// Who takes part in a job, and how they have ended.
pub trait Membership {
    /// This endpoint.
    fn local_peer(&self) -> Peer;

    /// The shape of the job.
    fn shape(&self) -> Shape;

    /// How many endpoints have been lost so far; cheap, compared by the core at every poll.
    fn losses(&self) -> u32;

    /// What is known of a peer. What it sent before it finished or left can be polled once this says so.
    fn status(&self, peer: Peer) -> PeerStatus;

    /// Whether this process is a fork of the one that the endpoint belongs to, so that the memory that it sees of
    /// the job is not its to use; cheap, asked at every operation on memory. Transports whose endpoints work in
    /// forks, or end with their process, leave it at false.
    fn is_fork(&self) -> bool {
        false
    }

    /// Whether a peer that takes part no more can change nothing more of this rank's segment: nothing of it is on
    /// its way there, and neither its processor nor an interface still writes. What was set aside for it can be
    /// used again then. Transports that cannot tell leave it at false, for ever if need be; true is final.
    fn writes_no_more(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Takes note that all endpoints have come to their end together: [`depart`](Self::depart) follows on each of
    /// them, and none sends to a peer any more that it has had nothing to do with, or asks for its status. Such
    /// peers need not be told of the departure, so that an end connects no further pair. Transports that tell all
    /// peers anyway leave it at nothing.
    fn all_depart(&mut self) {}

    /// Leaves the job. Frames already accepted are still delivered to the peers.
    fn depart(&mut self, how: Departure);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_places() {
        for (place, cause) in LossCause::ALL.into_iter().enumerate() {
            assert_eq!((usize::from(cause.code()), LossCause::from_code(place as u8)), (place, Some(cause)));
        }
    }
}
