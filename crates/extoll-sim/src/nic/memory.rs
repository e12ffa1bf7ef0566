//! What can be registered with the interface: memory of a process, plain or sparse.

use super::sparse::SparseMemory;
use am_core::segment::Memory;
use fabric_sim::HostMemory;

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
