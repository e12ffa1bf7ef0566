//! SCI shared segments: the SISCI programming interface in virtual time and between processes, with its semantics,
//! the published machine's timing, and faults on demand.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`nic`] | the interface: what programs call, and the two implementations behind it; nothing of active messages |
//! | [`model`] | the parameter table: what everything costs, with the source of each figure |
//! | [`conduit`] | active messages on the interface |
//! | `config` | [`SciConfig`]: a simulated machine; [`run`]: a program on each of its ranks |
//!
//! The interface is one trait, [`nic::Sisci`], with two implementations: [`nic::Virtual`] in virtual time, with
//! costs from one table, faults from a seed and an [`AdversarialTiming`]; and [`nic::Mapped`] between the
//! processes of a host, whose segments are mapped files. What is written for the trait runs on both.
//!
//! # Example
//!
//! A node stores 80 bytes to its neighbour, checks that they have landed, and sets a flag. The data take the 3.16
//! us of the published machine, the flag 2.93 us from when it is stored.
//!
//! ```
//! use am_core::{Instant, Span, WaitReason};
//! use sci_sim::nic::{Code, Flags, NodeId, SegmentId, SequenceStatus, Sisci};
//!
//! /// What each of two nodes does, in virtual time or not.
//! fn program<N: Sisci>(nic: &N, first: bool, other: NodeId) -> Result<Instant, Code> {
//!     let session = nic.open()?;
//!     let segment = nic.create_segment(&session, SegmentId(1), 4096, Flags::NONE)?;
//!     nic.prepare_segment(&segment)?;
//!     let mine = nic.map_local(&segment, 0, 4096)?;
//!     nic.watch(&mine, 0)?;
//!     nic.set_available(&segment)?;
//!     if !first {
//!         while nic.take_flag(&mine, 0) == 0 {
//!             nic.idle(None, WaitReason::Message);
//!         }
//!         return Ok(nic.now());
//!     }
//!     let remote = loop {
//!         match nic.connect_segment(&session, other, SegmentId(1), Span::from_millis(1), Flags::NONE) {
//!             Err(Code::NoSuchSegment | Code::ConnectionRefused) => {
//!                 nic.idle(Some(nic.now() + Span::from_micros(50)), WaitReason::Message);
//!             }
//!             connected => break connected?,
//!         }
//!     };
//!     let map = nic.map_remote(&remote, 0, 4096)?;
//!     let mut sequence = nic.create_map_sequence(&map)?;
//!     assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
//!     loop {
//!         nic.store(&map, 64, &[7; 80])?;
//!         match nic.check_sequence(&mut sequence, Flags::NONE)? {
//!             SequenceStatus::Ok => break,
//!             SequenceStatus::Retriable => {}
//!             _ => while nic.start_sequence(&mut sequence) != SequenceStatus::Ok {},
//!         }
//!     }
//!     let checked = nic.now();
//!     nic.store_flag(&map, 0, 1)?;
//!     nic.store_barrier();
//!     nic.alert(&map);
//!     Ok(checked)
//! }
//!
//! let report = sci_sim::run(&sci_sim::SciConfig::pair(), |nic| {
//!     let (rank, nodes) = (nic.rank(), nic.nodes());
//!     program(&nic, rank == 0, nodes[1 - rank as usize]).unwrap()
//! })?;
//! let times: Vec<Instant> = report.results.into_iter().flatten().collect();
//! assert_eq!(times[1].since(times[0]).to_string(), "2.930 us");
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

// All of it is in `nic::mapped::region`.
#![deny(unsafe_code)]
#![cfg_attr(
    am_loom,
    allow(dead_code, reason = "there is nothing but the parts that are checked, and only tests use them")
)]

pub mod conduit;
#[cfg(not(am_loom))]
mod config;
#[cfg(all(feature = "fuzzing", not(am_loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(am_loom))]
pub mod model;
pub mod nic;

#[cfg(not(am_loom))]
#[doc(hidden)]
pub use config::Testing;
#[cfg(not(am_loom))]
pub use config::{AdversarialTiming, SciConfig, SciInterface, fitting, run, torus};
