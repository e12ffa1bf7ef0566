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

// Under loom there is nothing but the parts that are checked, and only tests use them.
#![cfg_attr(am_loom, allow(dead_code))]

pub mod conduit;
#[cfg(not(am_loom))]
pub mod model;
pub mod nic;
