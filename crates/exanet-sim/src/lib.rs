//! ExaNet in virtual time: the interface of the ExaNeSt prototype, a packetizer with mailboxes and a user-level
//! RDMA engine, with its semantics, timing consistent with what was published, and faults on demand.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`nic`] | the interface: what programs call, and the state machines behind it; nothing of active messages |
//! | [`model`] | the parameter table: what everything costs, with the source of each figure, and its fit |
//! | [`conduit`] | active messages on the interface |
//! | [`mpi`] | two-sided messages on the interface, in five protocols |
//! | `delivery` | what both do with packets: their order, refusals, peers that cannot be reached |
//! | `config` | [`ExanetConfig`]: a machine; [`rack`]: the prototype's; [`run`]: a program on each of its ranks |
//!
//! It is larger than the other simulated conduits, at 8500 lines with its unit tests: the interface carries two
//! programs' interfaces, active messages (`conduit`) and the published library's two-sided messages in five
//! protocols (`mpi`), and `nic`, `conduit` and `mpi` each have a model that tests compare them with.
//!
//! Semantics lie in state machines without a clock, costs in one table; so the same program runs at no cost
//! ([`model::Parameters::free`]), at the prototype's, or under an [`AdversarialTiming`] and [`PageFaults`].
//!
//! # Known limits
//!
//! - A node that gives no sign for [`model::RetryParameters::limit`] attempts is taken for unreachable: what was
//!   under way to it may have arrived or not. The conduit's ranks are lost for each other then
//!   ([`Silent`](am_core::LossCause::Silent)), also if the link comes back.
//! - Answers between interfaces take the links' time, but none of the units'.
//! - All published totals are in the training set of the fit ([`model::fit`]), so no published value is held out:
//!   what the simulation can be judged by are the claims about protocols and programs.
//!
//! # Example
//!
//! A write and its notification take as long as the parameter table says: 0.6 us and the bytes' time.
//!
//! ```
//! use exanet_sim::ExanetConfig;
//! use exanet_sim::nic::{Access, HostMemory, Notify, Paging, Progress};
//!
//! let report = exanet_sim::run(&ExanetConfig::pair(), |nic| {
//!     let memory = HostMemory::new(1 << 16);
//!     nic.open();
//!     nic.map(0, &memory, Access::ReadWrite, Paging::Pinned).unwrap();
//!     if nic.rank() == 1 {
//!         while !nic.notified(&memory, 32_768, 7) {
//!             nic.idle(None, fabric_sim::WaitFor::Named("the notification"));
//!         }
//!         return nic.now().0 as f64 / 1e6;
//!     }
//!     let peer = nic.address(1).unwrap();
//!     let write = nic.rdma_write(0, peer, 4096, 16_384, Some(Notify { at: 32_768, value: 7 })).unwrap();
//!     while nic.rdma_poll(write).unwrap() == Progress::Pending {
//!         nic.idle(None, fabric_sim::WaitFor::Named("the end of the write"));
//!     }
//!     0.0
//! })?;
//! let microseconds = report.results[1].unwrap();
//! assert!((microseconds - (0.6 + 16.384 / 1.0256)).abs() < 0.05, "{microseconds}");
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

#![forbid(unsafe_code)]

pub mod conduit;
mod config;
mod delivery;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod mpi;
pub mod nic;

#[doc(hidden)]
pub use config::Testing;
pub use config::{AdversarialTiming, ExanetConfig, ExanetInterface, PageFaults, rack, run};
pub use nic::Nic;
