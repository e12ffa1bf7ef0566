//! Active messages between the processes (and threads) of one host, over memory that they share.
//!
//! A [`Job`] is a memory file without a name: whoever makes it hands its descriptor to the ranks, which join it
//! as [`Shm`] transports, and it disappears with the last of them, however they end. Between every two
//! endpoints lie rings of 64-byte cells, so that a small message costs one cache-line transfer, or a part of
//! one where a writer is far ahead of its reader; payloads lie in rings of bytes and are read in place; Long
//! payloads are copied once, into the destination's segment. A rank that dies is known to the others at once:
//! each of them has a thread that sleeps until then.
//!
//! [Order](am_core::Endpoint#order): requests of one endpoint to another are handled as they were sent, and
//! replies likewise.
//!
//! Memory: per ordered pair of endpoints at most 648 KiB for up to 8 endpoints, 328 KiB up to 16, 168 KiB up to
//! 64, 48 KiB beyond, touched only by pairs that talk, so that 64 ranks which all talk to each other need 10.5 MiB
//! each. [`JobConfig`] changes it.
//!
//! # Limits
//!
//! All ranks of a job are in one pid namespace: joining from another one fails with [`JoinError::PidNamespace`].
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | `config`, `layout` | sizes, and where everything lies |
//! | `job` | making, opening and joining jobs; the status board |
//! | `ring` | the ring of cells and the positions in the ring of bytes; checked with loom |
//! | `frame`, `lanes` | what a frame contains; the four lane ends towards a peer |
//! | `transport`, `reply_path` | the [`Transport`](am_core::Transport) itself and the way back of replies |
//! | `park`, `bell`, `ear`, `watch` | sleeping and waking; calling wakers; event loops; the death watch |
//! | `pages` | whether the system gives segments large pages |
//! | `region`, `sys` | all `unsafe`: views of shared memory, system calls |
//! | `model` | what stands in for the machine when `ring`, `park`, `calls` and `ear` are checked with loom |
//!
//! # Example
//!
//! Two ranks as threads of one process; processes differ only in how they come by the job.
//!
//! ```
//! use am_core::{Address, Endpoint, Handlers, Payload, Rank};
//! use transport_shm::{Job, JobConfig};
//!
//! let job = Job::create(&JobConfig::new(2))?;
//! std::thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let job = &job;
//!         scope.spawn(move || {
//!             let mut handlers = Handlers::<u64>::new();
//!             let add =
//!                 handlers.one_way("add", |sum: &mut u64, _: Address, value: u64, _: Payload<'_>| *sum += value);
//!             let add = add.unwrap();
//!             let mut endpoint = Endpoint::attach(job.join(rank).unwrap(), handlers, 0).unwrap();
//!             endpoint.request(Rank(1 - rank), add, 42).unwrap();
//!             endpoint.wait_until(|sum| *sum == 42).unwrap();
//!             endpoint.finish().unwrap();
//!         });
//!     }
//! });
//! # Ok::<(), transport_shm::JobError>(())
//! ```

#![cfg_attr(
    am_loom,
    allow(dead_code, reason = "there is nothing but the parts that are checked, and only tests use them")
)]

#[cfg(not(am_loom))]
mod bell;
mod calls;
#[cfg(not(am_loom))]
mod config;
#[cfg(any(am_loom, feature = "event-loop"))]
mod ear;
#[cfg(not(am_loom))]
mod frame;
#[cfg(all(feature = "fuzzing", not(am_loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(am_loom))]
mod idle_waker;
#[cfg(not(am_loom))]
mod job;
#[cfg(not(am_loom))]
mod lanes;
#[cfg(not(am_loom))]
mod layout;
#[cfg(am_loom)]
mod model;
#[cfg(not(am_loom))]
mod pages;
mod park;
#[cfg(not(am_loom))]
mod region;
#[cfg(not(am_loom))]
mod reply_path;
mod ring;
mod sync;
#[cfg(not(am_loom))]
mod sys;
#[cfg(not(am_loom))]
mod transport;
#[cfg(not(am_loom))]
mod watch;
#[cfg(not(am_loom))]
mod ways;

#[cfg(not(am_loom))]
pub use {
    config::{JobConfig, JobConfigError},
    job::{Job, JobError, JoinError, JoinOptions},
    pages::LargePages,
    region::{ShmMemory, prefetch, prefetch_l2},
    reply_path::ShmSlot,
    transport::Shm,
};
