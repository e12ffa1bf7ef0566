//! A machine of one's own in virtual time: a generic network interface with LogGP parameters on any topology,
//! described by one TOML file, and active messages on it.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`model`] | the parameter table: overheads, gaps and latency by size class, data paths, what is native |
//! | [`nic`] | the interface: what programs call, and the state machines behind it; nothing of active messages |
//! | [`conduit`] | active messages on the interface |
//! | [`goal`] | schedules in GOAL's format, run on a machine |
//! | [`presets`] | machines that are built in |
//! | `config` | [`MachineConfig`]: a machine; [`run`]: a program on each of its ranks |
//!
//! # Example
//!
//! ```
//! use machine_sim::MachineConfig;
//!
//! let machine = MachineConfig::from_toml("
//!     ranks = 16
//!     topology = { kind = 'torus', dims = [4, 4] }
//!     [parameters]
//!     latency_ns = 300
//!     link = { bandwidth_mb_s = 10000, latency_ns = 100 }
//!     sizes = [{ send_ns = 100, receive_ns = 100, gap_ns = 10, gap_per_byte_ns = 0.1 }]
//! ").unwrap();
//! let report = machine_sim::run(&machine, |nic| match nic.rank() {
//!     0 => nic.send(1, [0; 2], 8, |bytes| bytes.fill(1)),
//!     1 => assert_eq!(nic.wait().data.len(), 8),
//!     _ => {}
//! })?;
//! // o_s + L + a hop + o_r, and eight bytes at 10 GB/s.
//! assert_eq!(report.ended.0, 600_000 + 800);
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

#![forbid(unsafe_code)]

pub mod conduit;
mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod goal;
pub mod model;
pub mod nic;
pub mod presets;

pub use config::{GenericInterface, MachineConfig, crossbar, run};
pub use nic::Nic;
