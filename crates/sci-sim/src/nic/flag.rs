//! A flag in shared memory: one byte that several processes set and one clears. Model-checked with loom where protocols are
//! built on it, so it is written with atomics that can be loom's.
//!
//! Compile with `--cfg am_loom` for that; then this module and the protocols are all there is of the crate.

#[cfg(not(am_loom))]
use std::sync::atomic::{AtomicU8, fence};

#[cfg(am_loom)]
use loom::sync::atomic::{AtomicU8, fence};

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// One byte of shared memory, accessed as a whole.
#[derive(Debug)]
#[repr(transparent)]
pub struct Flag(AtomicU8);

impl Flag {
    /// A flag of its own, for models and tests; those of programs lie in segments.
    pub fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }

    /// Sets a flag that several may set. Everything stored before it is visible to whoever sees it, or sees what another set
    /// over it.
    #[inline]
    pub fn set(&self, value: u8) {
        // Release: pairs with the Acquire of `look` and `take`. Acquire, in one step with it: hands on what those have released
        // whose value is overwritten here, so that one look at the last value shows the stores of all.
        self.0.swap(value, AcqRel);
    }

    /// Sets a flag that nobody else sets at the same time. Everything stored before it is visible to whoever sees it.
    #[inline]
    pub fn set_alone(&self, value: u8) {
        // Release: pairs with the Acquire of `look` and `take`.
        self.0.store(value, Release);
    }

    /// The value now. What was stored before it is visible then.
    #[inline]
    pub fn look(&self) -> u8 {
        // Acquire: pairs with the Release of `set`.
        self.0.load(Acquire)
    }

    /// The value now, and nothing about what was stored before it: for looks that mostly find nothing.
    #[inline]
    pub fn glance(&self) -> u8 {
        self.0.load(Relaxed)
    }

    /// Clears the flag and returns what it was.
    #[inline]
    pub fn take(&self) -> u8 {
        // Acquire: pairs with the Release of `set`. In one step with the store: what is set later stays.
        self.0.swap(0, AcqRel)
    }
}

/// Everything stored before is visible to others before anything stored or loaded afterwards is.
#[inline]
pub fn barrier() {
    // SeqCst: also orders stores before loads, as a look at whether the receiver sleeps needs it.
    fence(SeqCst);
}
