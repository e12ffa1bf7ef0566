//! Two-sided messages with tags, on teams of ranks: what MPI calls point-to-point communication, as a
//! [layer](am_core::layer) on [`am_core`] that any transport carries.
//!
//! A [`Communicator`] is a team of [`am_pgas`] whose members send each other slices of plain values, sections of
//! arrays, and (feature `serde`) values of any type; with tags, any source and any tag, blocking or as requests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Communicator`] | making and ending communicators; sending and receiving, probes, sections, persistent requests |
//! | [`collectives`] | collective operations as messages |
//! | [`request`](mod@request) | messages under way, waited for alone and together |
//! | [`segment`](mod@segment) | messages from memory of segments and into it, with fewer copies |
//! | [`OwnedSend`] | messages from memory that they own, which is not copied |
//! | [`Messages`], [`MessageConfig`] | the layer, and how long messages travel ([`Protocol`]) |
//! | [`MessageError`] | what can go wrong, with rank, tag and sizes |
//! | [`mpi`] | the shape that users of rsmpi know, and a table "rsmpi -> here" |
//! | `machine` (private) | the protocols, as a state machine without a network |
//!
//! [`P2p`] is this layer together with those of [`am_pgas`] that it needs, for programs that have no other state.
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, loopback};
//! use am_p2p::{ANY_SOURCE, Communicator, P2p};
//!
//! let ranks = loopback::network(2, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<P2p>::new();
//!         let p2p = P2p::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, p2p)?;
//!         let world = Communicator::world(&mut endpoint)?;
//!         if world.rank() == 0 {
//!             world.send(&mut endpoint, 1, 7, &[1.0, 2.5])?;
//!         } else {
//!             let (values, status) = world.receive_vec::<_, _, f64>(&mut endpoint, ANY_SOURCE, 7)?;
//!             assert_eq!((values, status.source_rank()), (vec![1.0, 2.5], 0));
//!         }
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```
//!
//! # How messages travel
//!
//! A short message is one active message whose handler finds its receive (*eager*); nothing is allocated once
//! buffers have been used. The receive of a blocking call has a place of its own while no other one is posted. A
//! long one goes by the chosen [`Protocol`]: to memory of the receiver's segment where there is some free, by Long
//! messages, which every transport carries as well as it can, otherwise in Medium messages. Blocking calls lend
//! the slice, so that the sender copies once, to the receiver's segment, and the receiver once, out of it while it
//! is being filled.
//!
//! Between processes of one host the default protocol takes one copy or two, whichever has been faster with the
//! messages before ([`MessageConfig::lent_cost`]): the sender announces where a long message lies, and the call
//! that waits for it reads it there ([`Transport::read_lent`](am_core::Transport::read_lent)), into its buffer.
//! The
//! system has to permit it (`kernel.yama.ptrace_scope` is 0, and no filter of system calls forbids
//! `process_vm_readv`); otherwise, and where two copies that overlap are faster, messages are written as above, if
//! there is room for them in the segment. That takes calls of the sender that wait or poll: a message
//! of a sender that computes stands still, unless `lent_cost` is `u32::MAX`, with which only its receiver has
//! work to do. A send that is lent is over when the receiver has read the message, so that it takes a call of the
//! receiver that waits or polls. A message that is announced while
//! the receiver waits for something else, as in a blocking send or in [`request::wait_any`], is soon read into
//! memory of its own: [`ReceiveRequest::wait`] hands that out, [`ReceiveRequest::wait_into`] copies once more. An
//! immediate send copies its bytes first, unless it is given them
//! ([`Communicator::immediate_send_owned`]), and at most 64 messages are lent at once; others are written.
//!
//! Messages that nobody has asked for take memory of the receiver, which each sender accounts for
//! ([`MessageConfig::unexpected`]): without room a sender announces a message instead, and without room for
//! announcements it waits.
//!
//! # What the network does by itself
//!
//! Messages are written by Long messages, which is the network's own way: where it writes remote memory
//! (libfabric, and the simulated SCI, EXTOLL, Portals and ExaNet), the payload of a Long message that is longer
//! than a frame is placed by the same remote write as a native put of [`am_core`]
//! ([`NativeOneSided`](am_core::transport::NativeOneSided)), and the frame behind it tells the end of the part,
//! which a put needs a message for, too. In shared memory, segments are memory: messages from there are copied
//! by one side, into the other's segment or out of it.
//!
//! Native gets are not used. They read segments alone, and what most calls send lies elsewhere: it would have to
//! be copied to the segment before. A message that lies there (module [`segment`](mod@segment)) for a rank of
//! another host could be read by a get, so that its sender need not poll after it has announced it; it is
//! written instead once the sender does. By [`Protocol::Read`], a handler of the sender answers each request for
//! a part with a Long reply. A get would take the layer of one-sided operations in the state of each program
//! that sends messages, since completions of native operations go to that layer only. Between hosts it would serve
//! libfabric alone, since UDP has none, and take a copy more there than writing: a get comes through a buffer of
//! the wire, a Long is placed in the segment.
//!
//! # Limits
//!
//! A rank keeps at most 4096 messages of a peer that wait for their receives, fewer with little
//! [`MessageConfig::unexpected`] memory for many ranks. Beyond that the peer waits, also with messages for
//! receives that are posted. A blocking receive or probe of a message of that peer fails at once then, with
//! [`MessageError::Exhausted`], and so does one of a message of any rank where this holds of all members that are
//! left. A wait for one of several requests, all of which are such receives, names the first of them, and waiting
//! for that fails so. A rank that waits for another one's memory, as when both send to each other without
//! receiving, ends by [`Endpoint::set_timeout`](am_core::Endpoint::set_timeout), with a report that names the
//! peer: MPI permits standard sends to wait for their receives.
//!
//! # What can go wrong
//!
//! A rank that is lost ends what is under way with it, at each of its peers, as an error that names it; others go
//! on. A rank that breaks the protocol counts as lost, with the cause [`Faulty`](am_core::LossCause::Faulty), for
//! whom it has sent what cannot be; every number that it sends is checked. A dropped request is safe: it owns its
//! buffer. See [`MessageError`].
//!
//! Memory of the segment ([`MessageConfig::staging`]) that a lost rank had been told to write to takes no other
//! message before the transport says that the rank writes no more
//! ([`Membership::writes_no_more`](am_core::transport::Membership::writes_no_more)). In shared memory that is at
//! once where the rank has left or its process has ended; over UDP, too, where each rank places by itself what
//! comes. libfabric and the simulated machines do not tell: their interfaces write without the receiver, and a
//! write may be under way when its loss is known. Nor does shared memory of a rank that broke the transport's
//! protocol and may live. Such memory stays as it is to the end of the job, and messages that find no other come
//! in parts.

#![forbid(unsafe_code)]

pub mod collectives;
mod communicator;
mod config;
mod error;
mod kind;
mod layer;
mod machine;
mod messages;
pub mod mpi;
mod owned;
mod persistent;
mod probe;
pub mod request;
mod sections;
pub mod segment;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(feature = "serde")]
mod values;

pub use communicator::{ANY_SOURCE, ANY_TAG, Communicator, Source, Status, Tag};
pub use config::{ByProtocol, Counts, MessageConfig, Protocol};
pub use error::{AskedBytes, AskedRank, AskedTag, MessageError};
pub use kind::ElementType;
pub use layer::Messages;
pub use owned::{OwnedSend, OwnedValues};
pub use persistent::{PersistentReceive, PersistentSegmentReceive, PersistentSegmentSend, PersistentSend};
pub use probe::Message;
pub use request::{Pending, ReceiveRequest, SendRequest};
pub use segment::{SegmentMemory, SegmentReceive, SegmentSend};
#[cfg(feature = "serde")]
pub use values::ValueReceive;

use am_core::{Handlers, HasLayer, RegisterError};
use am_pgas::layers::{Aggregation, Collectives, OneSided};
use am_pgas::{Pgas, pgas_state};

/// Messages together with the layers of [`am_pgas`], as one part of an endpoint's state.
#[derive(Debug)]
pub struct P2p {
    pgas: Pgas,
    messages: Messages,
}

impl P2p {
    /// Registers the layers with default settings and makes their states. Allocates.
    ///
    /// # Errors
    /// [`RegisterError`] if one of the layers is there already, or the table is full.
    pub fn register<S>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError>
    where
        S: HasLayer<OneSided> + HasLayer<Aggregation> + HasLayer<Collectives> + HasLayer<Messages>,
    {
        Self::register_with(handlers, MessageConfig::default())
    }

    /// Registers the layers and makes their states. Allocates.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_with<S>(handlers: &mut Handlers<S>, config: MessageConfig) -> Result<Self, RegisterError>
    where
        S: HasLayer<OneSided> + HasLayer<Aggregation> + HasLayer<Collectives> + HasLayer<Messages>,
    {
        Ok(Self { pgas: Pgas::register(handlers)?, messages: Messages::register_with(handlers, config)? })
    }
}

pgas_state!(P2p, pgas);

impl HasLayer<Messages> for P2p {
    fn as_layer(&self) -> &Messages {
        &self.messages
    }

    fn as_layer_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }
}

/// Says where a program's state owns its [`P2p`]: `p2p_state!(State, field)` implements [`HasLayer`] for its
/// layers.
#[macro_export]
macro_rules! p2p_state {
    ($state:ty, $field:ident) => {
        $crate::layers::pgas_state!(
            @ $state, $field,
            $crate::layers::OneSided, $crate::layers::SegmentAllocator, $crate::layers::Aggregation,
            $crate::layers::Collectives, $crate::Messages
        );
    };
}

/// What [`p2p_state!`](crate::p2p_state) names.
pub mod layers {
    pub use am_pgas::layers::{Aggregation, Collectives, OneSided, SegmentAllocator};
    pub use am_pgas::pgas_state;
}
