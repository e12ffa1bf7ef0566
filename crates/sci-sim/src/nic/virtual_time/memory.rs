//! Memory of a simulated node that its adapter, and through it other nodes, can read and write.

use am_core::segment::Memory;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Memory of a local segment, zero at first. Clones and parts are handles to the same memory.
///
/// Access costs no virtual time and does not wait for it: a rank that has run ahead of the machine sees what had landed when
/// it last looked; see [`Sisci::memory`](crate::nic::Sisci::memory).
#[derive(Clone)]
pub struct HostMemory {
    words: Rc<Box<[AtomicU64]>>,
    first: usize,
    len: usize,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

impl HostMemory {
    /// Memory of `len` bytes; none if there is not so much. Pages that are never touched take no room.
    pub(super) fn new(len: usize) -> Option<Self> {
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(len.div_ceil(8)).ok()?;
        Some(Self { words: Rc::new(words), first: 0, len })
    }

    /// The part from byte `at`, a multiple of 8.
    pub(super) fn part(&self, at: usize, len: usize) -> Self {
        assert!(at.is_multiple_of(8) && at + len <= self.len, "parts are checked when they are mapped");
        Self { words: Rc::clone(&self.words), first: self.first + at / 8, len }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One byte.
    ///
    /// # Panics
    /// If it is outside.
    #[inline]
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len, "byte {at} lies in the memory of {} bytes", self.len);
        (self.words()[at / 8].load(Ordering::Relaxed) >> (at % 8 * 8)) as u8
    }

    /// Copies bytes to another place.
    pub(super) fn copy(&self, at: usize, to: &Self, goal: usize, len: usize) {
        let mut buffer = [0; 256];
        for done in (0..len).step_by(buffer.len()) {
            let some = &mut buffer[..(len - done).min(256)];
            self.load(at + done, some);
            to.store(goal + done, some);
        }
    }
}

impl Memory for HostMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.len.div_ceil(8)]
    }
}
