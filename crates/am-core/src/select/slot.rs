//! Reserved room and buffers of either transport.

use crate::transport::{PayloadWriter, Slot};

/// Room for a Medium request, taken in either transport.
#[derive(Debug)]
pub enum SelectRoom<N, F> {
    /// In the near one.
    Near(N),
    /// In the far one.
    Far(F),
}

/// A reserved Medium request of the near or the far transport.
#[derive(Debug)]
pub enum SelectSlot<N, F> {
    /// Of the near one.
    Near(N),
    /// Of the far one.
    Far(F),
}

impl<N: PayloadWriter, F: PayloadWriter> PayloadWriter for SelectSlot<N, F> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Near(slot) => slot.len(),
            Self::Far(slot) => slot.len(),
        }
    }

    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        match self {
            Self::Near(slot) => slot.write(at, bytes),
            Self::Far(slot) => slot.write(at, bytes),
        }
    }
}

impl<N: Slot, F: Slot> Slot for SelectSlot<N, F> {
    #[inline]
    fn commit(self) {
        match self {
            Self::Near(slot) => slot.commit(),
            Self::Far(slot) => slot.commit(),
        }
    }
}
