//! **Active messages over pluggable network interfaces.** A message names a handler that runs at its destination
//! and may reply once; the same program runs between processes of one host, between hosts, and on simulated
//! machines.
//!
//! This crate is the front door: it re-exports the family, and chooses the transports of a program's ranks
//! ([`launch`]).
//!
//! | module | what it is |
//! |---|---|
//! | (root) | what programs use of the safe core, [`am_core`]: handlers, tokens, segments, endpoints, layers |
//! | [`transport`] | the contract that networks implement, and what only their authors need |
//! | [`launch`] | how a program's ranks are started or start themselves ([`am_launch`]), and how they attach |
//! | [`shm`] | [`transport_shm`]: ranks of one host over shared memory |
//! | [`udp`] | [`transport_udp`]: ranks of many hosts over UDP |
//! | `ofi` | `transport_ofi`: ranks over any network of libfabric; feature `ofi` |
//! | [`pgas`] | [`am_pgas`]: one-sided access, teams, collectives, aggregation and global arrays, as layers |
//! | `calls` | `am_async`: typed calls with answers as futures, as a layer; feature `calls` |
//! | `p2p` | `am_p2p`: two-sided messages with tags on teams, as a layer; feature `p2p` |
//! | `mpi` | two-sided messages in the shape that users of rsmpi know; feature `p2p` |
//! | [`select`] | several transports in one job, chosen per peer |
//! | `extoll` | `extoll_sim`: EXTOLL's VELO and RMA in virtual time, and two conduits on them |
//! | `sci` | `sci_sim`: SCI's shared segments, in virtual time and as mapped files, and the conduit on them |
//! | `portals` | `portals_sim`: Portals 3.3 and Portals 4 in virtual time, and the conduit on them |
//! | `exanet` | `exanet_sim`: ExaNet's packetizer and RDMA engine in virtual time, and the conduit on them |
//! | `machine` | `machine_sim`: a machine of one's own from one TOML file, with LogGP parameters on any topology |
//! | `fabric` | `fabric_sim`: the virtual-time machine below simulated interfaces |
//! | [`loopback`] | a whole job inside one process, for tests and examples |
//! | [`anywhere`] | one entry point that runs a program on any of these |
//! | [`prelude`] | what almost every program uses |
//!
//! # Which backend
//!
//! * [`shm`] between processes (or threads) of one host: a Short round trip costs about one cache-line transfer
//!   each way.
//! * [`udp`] between hosts: authenticated, encrypted, congestion-controlled. [`Select`] joins it with [`shm`] for
//!   the ranks of the same host.
//! * `extoll` to see what a program does on up to thousands of nodes with a published machine's timing,
//!   deterministically and with faults on demand. The feature `sim` brings the simulators.
//! * [`loopback`] where a program, a test or a documentation example wants no processes at all.
//!
//! # Example
//!
//! Every rank adds its number to a sum on rank 0. Started plainly, the program starts its own ranks by running
//! itself again; under `amrun`, `mpirun` or `srun` it is one of theirs.
//!
//! ```no_run
//! use active_messages::prelude::*;
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     launch::run(RunOptions::new().default_ranks(4), |job: RankJob| {
//!         let mut handlers = Handlers::<u64>::new();
//!         let add = handlers.one_way("add", |sum, _, value: u64, _| *sum += value)?;
//!         let mut endpoint = Endpoint::attach(job.attach(JoinOptions::default())?, handlers, 0)?;
//!         endpoint.request(Rank(0), add, u64::from(endpoint.rank().0))?;
//!         let first = endpoint.rank() == Rank(0);
//!         let sum = endpoint.finish()?;
//!         if first {
//!             println!("the ranks' numbers add up to {sum}");
//!         }
//!         Ok::<(), Box<dyn std::error::Error>>(())
//!     })
//! }
//! ```

#![forbid(unsafe_code)]

pub mod anywhere;
#[cfg(feature = "calls")]
mod calls_task;
mod job;
pub mod launch;
#[cfg(feature = "ofi")]
mod libfabric;
#[cfg(feature = "p2p")]
pub mod mpi;
mod transports;

/// Typed calls: [`am_async`], and what [`RankJob::attach_tokio`](crate::launch::RankJob::attach_tokio) has.
#[cfg(feature = "calls")]
pub mod calls {
    pub use crate::calls_task::{CallsAttachError, JobDriver};
    pub use am_async::*;
}
pub use am_core::{
    Address, Arguments, AttachError, BadMessage, Category, Destination, Endpoint, HandlerError, HandlerFailure,
    HandlerOutcome, HandlerResult, Handlers, HasLayer, Instant, Joining, Lane, Limits, LossCause, Payload,
    PayloadWriter, PeerStatus, PendingReply, Plain, PollError, Rank, RegisterError, Rejected, Reply, ReplyError,
    ReplyRange, Request, RequestRange, Reservation, Resource, Segment, SegmentError, Select, SendError,
    SharedEndpoint, Span, StallReport, Statistics, Token, Traffic, Transport, WaitError, Words,
};
pub use am_core::{
    credit, endpoint, error, handlers, layer, loopback, one_sided, outcome, payload, segment, select, shared,
    stall, stats, supervision, time, token, zerocopy,
};
#[cfg(feature = "p2p")]
pub use am_p2p as p2p;
pub use am_pgas as pgas;
#[cfg(feature = "ofi")]
pub use transport_ofi as ofi;
pub use transport_shm as shm;
pub use transport_udp as udp;
#[cfg(feature = "sim")]
pub use {
    exanet_sim as exanet, extoll_sim as extoll, fabric_sim as fabric, machine_sim as machine,
    portals_sim as portals, sci_sim as sci,
};

/// What those need who write a transport, or ask one for more than an endpoint tells: the contract, and the types
/// that only it has.
pub mod transport {
    pub use am_core::transport::*;
    pub use am_core::{AnyMemory, Memory, Peer, Shape};
}

/// What almost every program uses.
pub mod prelude {
    pub use crate::launch::{self, RankJob, RunOptions, TransportOptions};
    pub use crate::shm::{JobConfig, JoinOptions, Shm};
    pub use crate::{
        Address, Arguments, Category, Endpoint, HandlerResult, Handlers, Instant, Joining, Payload, PayloadWriter,
        PendingReply, Plain, Rank, Reply, Request, Segment, SendError, Span, Token, Transport, WaitError, Words,
    };
}

/// Compiles the snippets of "How do I ...".
#[cfg(all(doctest, feature = "calls", feature = "p2p"))]
#[doc = include_str!("../docs/how_do_i.md")]
struct HowDoI;

/// Compiles the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
