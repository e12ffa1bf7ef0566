//! Portals in virtual time: the interface of SeaStar networks, Portals 3.3 and Portals 4, with its programming
//! interfaces, its semantics and return codes, timing consistent with what was published, and faults on demand.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`nic`] | the interface: what programs call, and the state machines behind it; nothing of active messages |
//! | [`model`] | the parameter table: what everything costs, with the source of each figure |
//! | [`conduit`] | active messages on the interface |
//! | [`credit`] | the credit machines of a bank that lends, which the conduit embeds |
//! | `config` | [`PortalsConfig`]: a machine; [`run`]: a program on each of its ranks |
//!
//! Semantics lie in state machines that are told the time, costs in one table; so the same program runs at no cost
//! ([`model::Parameters::free`]), at the published machine's, or under an [`AdversarialTiming`].
//!
//! # Example
//!
//! A put and its acknowledgement take as long as the parameter table says.
//!
//! ```
//! use portals_sim::PortalsConfig;
//! use portals_sim::nic::{HostMemory, p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink}};
//!
//! let report = portals_sim::run(&PortalsConfig::pair(), |nic| {
//!     let (p3, memory) = (nic.p3(), HostMemory::new(64));
//!     p3.init().unwrap();
//!     let eq = p3.eq_alloc(8).unwrap();
//!     let me = p3.me_attach(0, Criteria::bits(0, 0), Unlink::Retain, Position::After).unwrap();
//!     let md = Md::new(&memory, Options::OP_PUT | Options::MANAGE_REMOTE | Options::EVENT_START_DISABLE);
//!     p3.md_attach(me, &md, Unlink::Retain).unwrap();
//!     let source = p3.md_bind(&Md { eq: Some(eq), ..md }, Unlink::Retain).unwrap();
//!     nic.launched();
//!     let began = nic.now();
//!     if nic.rank() == 0 {
//!         p3.put(source, 0, 1, Ack::Request, nic.id(1).unwrap(), 0, 0, 0, 0).unwrap();
//!         while p3.eq_wait(eq, None).unwrap().kind != EventKind::Ack {}
//!     }
//!     nic.now().since(began).0 as f64 / 1e6
//! })?;
//! let microseconds = report.results[0].unwrap();
//! assert!((microseconds - (10.0 - 0.726)).abs() < 0.01, "{microseconds}");
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

#![forbid(unsafe_code)]

pub mod conduit;
mod config;
pub mod credit;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod nic;

#[doc(hidden)]
pub use config::Testing;
pub use config::{AdversarialTiming, PortalsConfig, PortalsInterface, run, xt4};
pub use nic::Nic;
