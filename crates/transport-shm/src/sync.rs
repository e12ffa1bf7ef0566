//! The atomics that the rings and the parking are written with: the standard ones, or loom's when they are model-checked.

#[cfg(not(am_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence, fence};

#[cfg(am_loom)]
pub(crate) use crate::model::atomics::{AtomicU32, AtomicU64, compiler_fence, fence};

pub(crate) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
