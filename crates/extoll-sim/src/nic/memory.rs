//! Memory of a process that its interface can read and write.

use super::sparse::SparseMemory;
use am_core::segment::Memory;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Memory of one rank, zero at first. The interface reads and writes it at the virtual times at which the hardware would,
/// once it is registered with [`Rma::register`](crate::nic::rma::Rma::register). Clones are handles to the same memory.
///
/// Access costs no virtual time and does not wait for it: a rank that has run ahead of the machine sees what had been
/// written when it last looked at its interface, and a write is visible to the interface at once. Use
/// [`Nic::read`](crate::Nic::read) and [`Nic::write`](crate::Nic::write) to let everything earlier happen first.
///
/// ```
/// let memory = extoll_sim::nic::HostMemory::new(100);
/// memory.write(7, b"words");
/// let mut found = [0; 5];
/// memory.read(7, &mut found);
/// assert_eq!((&found, memory.len()), (b"words", 100));
/// ```
#[derive(Clone)]
pub struct HostMemory {
    words: Rc<Box<[AtomicU64]>>,
    len: usize,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

impl HostMemory {
    /// Memory of `len` bytes. Pages that are never touched take no room.
    ///
    /// # Panics
    /// If there is no such amount of memory.
    pub fn new(len: usize) -> Self {
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(len.div_ceil(8));
        Self { words: Rc::new(words.expect("there is memory for a simulated rank's memory")), len }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from an offset on.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        self.check(at, out.len());
        self.load(at, out);
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn write(&self, at: usize, source: &[u8]) {
        self.check(at, source.len());
        self.store(at, source);
    }

    /// The little-endian word at an offset that is a multiple of 8.
    ///
    /// # Panics
    /// If the offset is no multiple of 8, or outside the memory.
    pub fn word(&self, at: usize) -> u64 {
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "offset {at} is a multiple of 8");
        self.words[at / 8].load(Ordering::Relaxed)
    }

    fn check(&self, at: usize, len: usize) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at offset {at} lie in the memory of {} bytes", self.len);
    }
}

impl Memory for HostMemory {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

/// Whatever can be registered.
pub(crate) enum Registrable {
    Plain(HostMemory),
    Sparse(SparseMemory),
}

impl Registrable {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(memory) => memory.len(),
            Self::Sparse(memory) => memory.len(),
        }
    }

    #[inline]
    pub(crate) fn store(&self, at: usize, source: &[u8]) {
        match self {
            Self::Plain(memory) => memory.store(at, source),
            Self::Sparse(memory) => memory.store(at, source),
        }
    }

    #[inline]
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        match self {
            Self::Plain(memory) => memory.load(at, out),
            Self::Sparse(memory) => memory.load(at, out),
        }
    }
}
