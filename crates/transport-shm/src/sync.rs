//! The atomics, locks and conditions that the rings, the parking and the calling of wakers are written with: the
//! standard ones, or loom's when they are model-checked.

#[cfg(not(am_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence, fence};

#[cfg(am_loom)]
pub(crate) use crate::model::atomics::{AtomicU32, AtomicU64, compiler_fence, fence};

#[cfg(not(am_loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(am_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
