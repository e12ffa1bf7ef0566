//! SCI shared segments: the SISCI programming interface in virtual time and between processes, with its semantics, the
//! published machine's timing, and faults on demand.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`nic`] | the interface: what programs call, and the two implementations behind it; nothing of active messages |
//! | [`model`] | the parameter table: what everything costs, with the source of each figure |
//! | [`conduit`] | active messages on the interface |
//! | `config`, `run` | [`SciConfig`]: a simulated machine; [`run`]: a program on each of its ranks |

// Under loom there is nothing but the parts that are checked, and only tests use them.
#![cfg_attr(am_loom, allow(dead_code))]

pub mod conduit;
#[cfg(not(am_loom))]
mod config;
#[cfg(not(am_loom))]
pub mod model;
pub mod nic;
#[cfg(not(am_loom))]
mod run;

#[cfg(not(am_loom))]
#[doc(hidden)]
pub use config::Testing;
#[cfg(not(am_loom))]
pub use {
    config::{Adversary, SciConfig},
    run::run,
};
