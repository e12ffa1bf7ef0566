//! EXTOLL in virtual time: the VELO unit for small messages and the RMA unit for remote memory access, with their
//! programming interface, their semantics, the published machines' timing, and faults on demand.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`nic`] | the interface: what programs call, and the state machines behind it; nothing of active messages |
//! | [`model`] | the parameter tables: what everything costs, with the source of each figure |
//! | [`conduit`] | active messages and point-to-point messages on the interface |
//! | `config` | [`ExtollConfig`]: a machine; [`run`]: a program on each of its ranks |
//!
//! Semantics lie in state machines that are told the time, costs in one table; so the same program runs at no cost
//! ([`model::Parameters::free`]), at the published machine's, or under an [`AdversarialTiming`].
//!
//! # Example
//!
//! A ping-pong over VELO takes as long as the parameter table says.
//!
//! ```
//! use extoll_sim::{ExtollConfig, model::Parameters};
//!
//! let config = ExtollConfig { parameters: Parameters::deep(), ..ExtollConfig::pair() };
//! let report = extoll_sim::run(&config, |nic| {
//!     let velo = nic.velo();
//!     velo.open().unwrap();
//!     let peer = velo.connect(nic.address(1 - nic.rank()).unwrap()).unwrap();
//!     let began = nic.now();
//!     for _ in 0..10 {
//!         if nic.rank() == 0 {
//!             velo.send(peer, &[0; 64], 0, 0).unwrap();
//!         }
//!         velo.recv(None).unwrap();
//!         if nic.rank() == 1 {
//!             velo.send(peer, &[0; 64], 0, 0).unwrap();
//!         }
//!     }
//!     nic.now().since(began).0 as f64 / 20e6
//! })?;
//! let one_way_us = report.results[0].unwrap();
//! assert!((one_way_us - 1.90).abs() < 0.01, "{one_way_us}");
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

#![forbid(unsafe_code)]

pub mod conduit;
mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod nic;

#[doc(hidden)]
pub use config::Testing;
pub use config::{AdversarialTiming, ExtollConfig, ExtollInterface, cluster, run};
pub use nic::Nic;
