//! The atomics that the rings are written with: the standard ones, or loom's when the rings are model-checked.

#[cfg(am_loom)]
pub(crate) use loom::sync::atomic::AtomicU64;
#[cfg(not(am_loom))]
pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
