//! The safe core of a crate family for **active messages over pluggable network interfaces**: a message names a
//! handler that runs at its destination and may reply once.
//!
//! A program registers [`Handlers`], attaches them to a [`Transport`] as an [`Endpoint`], sends requests, and
//! polls. The core has no socket, no thread and no clock of its own, forbids `unsafe`, and allocates nothing per
//! message.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`address`] | ranks, endpoints of a rank, the shape of a job |
//! | [`arguments`] | typed handler arguments and the words that travel |
//! | [`payload`] | what a handler sees of a Medium or Long message |
//! | [`segment`] | memory that peers may read and write |
//! | [`handlers`] | registration, typed handles, the table's fingerprint |
//! | [`layer`] | libraries that share one endpoint: their handlers, state and progress |
//! | [`outcome`] | what handlers may return, and their errors |
//! | [`token`] | the permission to reply: tokens and pending replies |
//! | [`endpoint`] | sending, polling, waiting, the barrier |
//! | [`shared`] | one endpoint for several threads |
//! | [`transport`] | the contract that networks implement |
//! | [`select`] | several transports in one job, chosen per peer |
//! | [`credit`] | credits: the account that transports embed |
//! | [`stats`], [`stall`], [`error`], [`time`] | counters, the stall report, errors, time |
//! | [`supervision`] | what a launcher is told of endpoints |
//! | [`loopback`] | a network inside one process |
//!
//! The feature `tracing` reports joining, stalls, time-outs, losses and dropped messages to the `tracing` crate.
//!
//! # Example
//!
//! Two ranks as two threads: rank 0 asks rank 1 to add numbers.
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank, loopback};
//!
//! let ranks = loopback::network(2, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<u64>::new();
//!         let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value)?;
//!         let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
//!             token.reply(sum, a + b)?;
//!             Ok(())
//!         })?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, 0)?;
//!         if endpoint.rank() == Rank(0) {
//!             endpoint.request(Rank(1), add, (20, 22))?;
//!             endpoint.wait_until(|total| *total == 42)?;
//!         }
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```

#![forbid(unsafe_code)]

pub mod address;
pub mod arguments;
pub mod backoff;
pub mod credit;
pub mod endpoint;
pub mod error;
pub mod handlers;
pub mod layer;
pub mod loopback;
#[cfg(doctest)]
mod misuse;
pub mod one_sided;
pub mod outcome;
pub mod payload;
pub mod private;
pub mod segment;
pub mod select;
pub mod shared;
pub mod slab;
pub mod stall;
pub mod stats;
pub mod supervision;
pub mod time;
pub mod token;
mod trace;
pub mod transport;

pub use address::{Address, Destination, Peer, Rank, Shape};
pub use arguments::{Arguments, Plain, Words};
pub use endpoint::{Endpoint, Joining, Reservation};
pub use error::{AttachError, BadMessage, PollError, RegisterError, Rejected, ReplyError, SendError, WaitError};
pub use handlers::{Handlers, Reply, ReplyRange, Request, RequestRange};
pub use layer::HasLayer;
pub use outcome::{HandlerError, HandlerFailure, HandlerOutcome, HandlerResult};
pub use payload::Payload;
pub use segment::{AnyMemory, Memory, Segment, SegmentError};
pub use select::Select;
pub use shared::SharedEndpoint;
pub use stall::StallReport;
pub use stats::{Statistics, Traffic};
pub use time::{Instant, Span};
pub use token::{PendingReply, Token};
/// What derives the traits that [`Plain`] asks for.
pub use zerocopy;

pub use transport::{
    Category, Lane, Limits, LossCause, Membership, PayloadWriter, PeerStatus, Resource, Transport, WaitReason,
    Waiting,
};
