//! The protocol as a state machine with neither socket nor clock.
//!
//! A [`Machine`] belongs to one endpoint. Its driver feeds it datagrams ([`Machine::handle`]) and time
//! ([`Machine::tick`]), takes datagrams out ([`Machine::transmit`]) until there are none, and sleeps until
//! [`Machine::deadline`]. The application's side are [`Machine::request`], [`Machine::long`],
//! [`Machine::control`], [`Machine::poll`] and [`Machine::answer`], with the types of [`am_core::transport`].
//!
//! | module | owns |
//! |---|---|
//! | `bytes`, `wire`, `message` | the bytes of datagrams and of messages inside a lane |
//! | `seal`, `replay` | keys, authentication, and the numbers that have been seen |
//! | `peer` | one peer: handshake, epochs, loss |
//! | `session`, `transmit`, `receive` | the accounts of a session; datagrams put together and taken apart |
//! | `stream`, `ranges`, `buffer_pool` | lanes and payload streams, their gaps, their memory |
//! | `recovery`, `path` | round trips, losses, window, pacing; the size of datagrams |
//! | `machine`, `api` | all peers: the driver's side and the application's side |
//! | `deliver`, `batch` | messages to the core, answers back; handlers run without the machine |
//! | `timer`, `context`, `config` | deadlines; what sessions share; settings |
//!
//! # How a message travels
//!
//! A session has four byte streams each way: the request lane, the reply lane, and one of Long payloads for
//! either. A message is a header (and a Medium payload) in its lane; datagrams carry ranges of streams, so that
//! small messages share a datagram and large ones are cut with no further rule. A range of a Long payload says
//! where in the segment it belongs and is written there when it arrives, in any order; the message waits in its
//! lane until all have come. What is lost is sent again as a range, in whatever datagram is next and at whatever
//! size the path has then.
//!
//! # Why nothing waits for ever
//!
//! Datagrams are acknowledged by machines, not by applications, so all room that waits for an acknowledgement
//! comes back while the peer lives. Requests wait for room at the receiver: every peer has a window of its own,
//! and what is beyond is lent for whole messages, first come, first served. Room for a reply is set aside before
//! its request leaves, so the reply lane has no limit to wait for. Who waits for request room keeps polling, which
//! is am-core's rule.

mod api;
mod batch;
mod buffer_pool;
mod bytes;
mod config;
mod context;
mod deliver;
#[cfg(feature = "fuzzing")]
mod hostile;
mod machine;
mod message;
mod path;
mod peer;
mod ranges;
mod receive;
mod recovery;
mod replay;
mod seal;
mod session;
mod stream;
mod timer;
mod transmit;
mod wire;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use hostile::authentic;

/// The largest segment whose places messages can name, in bytes.
pub(crate) const MAX_SEGMENT: u64 = bytes::MAX_VARINT;

pub(crate) use batch::{Access, Batch};
pub use config::{Config, ConfigError, DATAGRAM_START, Protection, ProtocolConfig, Secrets};
pub use context::{Counters, Dropped};
#[cfg(feature = "fuzzing")]
pub(crate) use deliver::Direct;
pub use machine::{BorrowedPayload, Machine, Parts};
#[cfg(test)]
pub(crate) use message::encoded;

use am_core::transport::{Departure, LossCause};
use am_core::{AnyMemory, Peer, Segment};

/// The memory that Long messages are placed in.
pub type OwnSegment = Segment<AnyMemory>;

/// Something that happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session is open.
    Connected(Peer),
    /// The peer is lost. With [`ProtocolConfig::rejoin`] it may come back.
    Lost(Peer, LossCause),
    /// The peer has left, and all that it sent before has been delivered.
    Departed(Peer, Departure),
    /// The peer knows the job's secret but has another protocol version or other settings; it counts as lost.
    Incompatible {
        /// The peer.
        peer: Peer,
        /// Its protocol version.
        version: u8,
        /// Fingerprint of the settings here.
        ours: u64,
        /// Fingerprint of the settings there.
        theirs: u64,
    },
}

impl Event {
    /// Whom it is about.
    pub fn peer(&self) -> Peer {
        match *self {
            Self::Connected(peer)
            | Self::Lost(peer, _)
            | Self::Departed(peer, _)
            | Self::Incompatible { peer, .. } => peer,
        }
    }
}
