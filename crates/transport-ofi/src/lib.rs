//! Active messages over libfabric (OFI): InfiniBand, Slingshot, EFA, Omni-Path, and TCP, shared memory and UDP on
//! every machine.
//!
//! This crate is experimental: see [Limits](#limits).
//!
//! `libfabric.so.1` (1.14 to 2.x) is loaded at run time: building needs nothing, and a machine without it gets one
//! line that says what to install and what was searched. The transport uses reliable-datagram endpoints
//! (`FI_EP_RDM`) with messages, remote reads and writes.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`Ofi`], [`Conduit`] | the transport, a state machine of messages on any [`wire`] |
//! | [`wire`] | what that needs from a network: the seam behind which tests put one of their own |
//! | [`Opened`], [`LocalJob`] | endpoints before they join their job, jobs whose ranks are threads |
//! | [`OfiConfig`] | settings and their variables |
//! | [`limit_provider_buffers`] | a provider's memory, before the library is loaded |
//! | [`list`], [`choose`], [`Offer`], [`Verdict`] | what this machine has, what would be taken and why |
//! | [`rehearse`] | whether the limits of this process permit an endpoint |
//! | `sys`, `memory` | libfabric's C interface, and memory that a provider reads and writes; `unsafe` stands there alone |
//!
//! # Example
//!
//! Two ranks as threads of one process; ranks of several processes differ in how they hand each other their cards
//! ([`Opened::card`], [`Opened::join`]).
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use transport_ofi::{LocalJob, OfiConfig, OfiError};
//!
//! let config = OfiConfig::default().provider("tcp").interface("127.0.0.1");
//! let job = match LocalJob::new(2, &config) {
//!     Ok(job) => job,
//!     Err(error @ OfiError::NoLibrary { .. }) => return Ok(println!("skipped: {error}")),
//!     Err(error) => return Err(error),
//! };
//! std::thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let job = &job;
//!         scope.spawn(move || {
//!             let mut handlers = Handlers::<u64>::new();
//!             let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value).unwrap();
//!             let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
//!                 token.reply(sum, a + b)?;
//!                 Ok(())
//!             });
//!             let add = add.unwrap();
//!             let mut endpoint = Endpoint::attach(job.join(rank).unwrap(), handlers, 0).unwrap();
//!             endpoint.request(Rank(1 - rank), add, (20, 22)).unwrap();
//!             endpoint.wait_until(|total| *total == 42).unwrap();
//!             endpoint.finish().unwrap();
//!         });
//!     }
//! });
//! # Ok::<(), transport_ofi::OfiError>(())
//! ```
//!
//! # Environment
//!
//! [`OfiConfig::from_environment`] reads these; a value that makes no sense is an error that names it.
//!
//! | variable | what |
//! |---|---|
//! | `AM_FABRIC` | the provider: `verbs`, `cxi`, `tcp`, `udp;ofi_rxd`; the fastest that fits if unset |
//! | `AM_OFI_INTERFACE` | the interface: an address, or a domain such as `eth0` or `mlx5_0` |
//! | `AM_OFI_MEDIUM` | largest Medium payload in bytes |
//! | `AM_OFI_LINGER` | seconds that leaving may take |
//! | `AM_OFI_LIBRARY` | the library's file, in place of `libfabric.so.1` where the dynamic linker looks |
//!
//! # Limits
//!
//! * Tried over the providers tcp, shm and udp of libfabric 1.17, all on one machine; the quick tests also over
//!   tcp of 1.18, 1.21 and 2.4, and over shm between processes of 1.21 and 2.4. Between threads of one process,
//!   shm of 1.21 crashes where an endpoint is closed, and that of 2.4 at times comes to no end. Registration of
//!   local buffers (`FI_MR_LOCAL`) and of endpoint-bound memory (`FI_MR_ENDPOINT`) was run over a provider of the
//!   tests alone: none here asks for it.
//! * Messages are neither encrypted nor authenticated: whoever reaches a provider's endpoint can forge them. A
//!   number of the job in every frame tells strays apart, no more.
//! * A provider that progresses only when it is called (tcp, shm, udp) is carried on by a helper thread once the
//!   program has left it alone for 2 ms (up to 24 ms after a wait that slept): a Long payload of several
//!   parts towards a rank that computes comes that much slower.
//! * Over the provider shm the system copies a Long payload that does not fit a frame (`process_vm_writev`), where
//!   it permits that: the call takes as long as the copy does. The provider's own way, through buffers, is taken
//!   elsewhere. The memory of a segment whose endpoint ends while a rank is lost is not freed then.
//! * What a program sends to a peer in one turn, so without a poll between, travels together, but for the first
//!   message: of a program that then computes, the rest is sent by the helper thread, so up to 4 ms later.
//! * A rank that waits spins, then yields, then sleeps on the completion queue's descriptor; so does the helper
//!   after [`Waiting::notify`](am_core::Waiting::notify). Over a provider without a descriptor (shm) the rank
//!   sleeps for 20 to 500 us at a time instead, and the helper looks every 100 us.
//! * A rank that is killed is known to be lost when the provider reports a failed operation, or when somebody
//!   tells ([`FailureNotifier`]). An injected message that fails names no peer: every peer is asked then which
//!   frame is due there, and one where frames are missing for a second is lost.
//! * Frames are not sent again: a frame that a reliable provider has given up costs the pair its connection.
//! * Puts and gets of `am-pgas` are the network's own, each with a buffer that is copied once. Its atomics are not
//!   used, though tcp, shm and udp offer `FI_ATOMIC`: `fi_atomic(3)`, "Completions", calls results undefined where
//!   several actors, an interface's domain and the processors for instance, perform atomics at once, and handlers
//!   and owners use the processor's on the same words. A put does not signal.
//! * `udp;ofi_rxd` is for tests. Before libfabric 2.4 the provider below it overwrites completions when it has
//!   more packets than its queue holds, and its endpoint stands still for ever; peers count as lost some 160 s
//!   later. [`limit_provider_buffers`], which programs of the facade call, keeps the packets few.
//! * Who finishes tells those that it has had to do with. Who leaves without the others tells every rank, which
//!   connects it to all of them.
//! * Between threads of one process, the provider shm reads memory of endpoints that are closed: ranks leave in an
//!   order that spares it that, unless one lingers in vain.
//! * Handlers of signals that libraries install as libfabric loads them (psm and psm2 do) are taken away again: by
//!   that of psm a rank at times did not end when its launcher asked it to.

mod conduit;
mod config;
mod error;
mod frame;
mod job;
mod memory;
mod near;
mod provider;
mod sys;
mod trial;
pub mod wire;

pub use conduit::{Admitted, Conduit, ConduitSlot, FailureNotifier, Settings};
pub use config::OfiConfig;
pub use error::OfiError;
pub use job::{LocalJob, LocalOptions, Ofi, Opened};
pub use memory::OfiMemory;
pub use provider::{Offer, Verdict, choose, list, version};
pub use sys::{Port, limit_provider_buffers};
pub use trial::rehearse;
