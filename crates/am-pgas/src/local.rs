//! Rows of values in memory that this process sees: its own segment, and those of ranks on the same host.
//!
//! Peers may write such memory at any time, so a [`LocalSlice`] is no `&[V]`: it copies values in and out. A value
//! of eight aligned bytes is one load or store; larger and misaligned ones can be seen in part while somebody
//! writes them.

use crate::pointer::{Element, GlobalSlice};
use am_core::one_sided::{Atomic, AtomicOp, AtomicValue, OneSidedError, atomic::Number};
use am_core::zerocopy::IntoBytes;
use am_core::{Memory, Rank, Segment, SegmentError};
use std::fmt;
use std::marker::PhantomData;

/// A row of values in memory that this process sees; see the [module](self).
pub struct LocalSlice<'a, V, M> {
    segment: &'a Segment<M>,
    rank: Rank,
    offset: u64,
    len: u64,
    of: PhantomData<V>,
}

impl<V, M> Clone for LocalSlice<'_, V, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, M> Copy for LocalSlice<'_, V, M> {}

impl<V, M> fmt::Debug for LocalSlice<'_, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSlice").field("offset", &self.offset).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<'a, V: Element, M: Memory> LocalSlice<'a, V, M> {
    /// The values of a slice in the segment that it points into.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`].
    pub fn new(segment: &'a Segment<M>, slice: GlobalSlice<V>) -> Result<Self, SegmentError> {
        let (offset, size) = (slice.offset(), segment.len() as u64);
        let bytes = slice.bytes();
        match bytes.and_then(|bytes| offset.checked_add(bytes)) {
            Some(end) if end <= size => {
                Ok(Self { segment, rank: slice.rank(), offset, len: slice.len(), of: PhantomData })
            }
            _ => Err(SegmentError::OutOfRange { offset, len: bytes.unwrap_or(u64::MAX), segment: size }),
        }
    }

    /// Number of values.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, index: u64, count: u64) -> u64 {
        let inside = index.checked_add(count).is_some_and(|end| end <= self.len);
        assert!(inside, "{count} values at index {index} lie outside the row of {} values", self.len);
        self.offset + index * size_of::<V>() as u64
    }

    /// The value at an index.
    ///
    /// # Panics
    /// Outside the row.
    #[inline]
    pub fn load(&self, index: u64) -> V {
        let mut value = V::new_zeroed();
        let read = self.segment.read(self.place(index, 1), value.as_mut_bytes());
        read.expect("the row lies inside the segment");
        value
    }

    /// Stores a value at an index.
    ///
    /// # Panics
    /// Outside the row.
    #[inline]
    pub fn store(&self, index: u64, value: V) {
        let written = self.segment.write(self.place(index, 1), value.as_bytes());
        written.expect("the row lies inside the segment");
    }

    /// Copies the values from an index on out of the row.
    ///
    /// # Panics
    /// Outside the row.
    pub fn read(&self, index: u64, out: &mut [V]) {
        let read = self.segment.read(self.place(index, out.len() as u64), out.as_mut_bytes());
        read.expect("the row lies inside the segment");
    }

    /// Copies values into the row, from an index on.
    ///
    /// # Panics
    /// Outside the row.
    pub fn write(&self, index: u64, values: &[V]) {
        let written = self.segment.write(self.place(index, values.len() as u64), values.as_bytes());
        written.expect("the row lies inside the segment");
    }

    /// Stores one value everywhere.
    pub fn fill(&self, value: V) {
        (0..self.len).for_each(|index| self.store(index, value));
    }

    /// The values, each as it is when the iterator comes to it.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = V> + use<'a, V, M> {
        let this = *self;
        let count = usize::try_from(self.len).expect("a row in memory has fewer values than memory has bytes");
        (0..count).map(move |index| this.load(index as u64))
    }

    /// The values in a new vector (allocates).
    pub fn to_vec(&self) -> Vec<V> {
        let count = usize::try_from(self.len).expect("a row in memory has fewer values than memory has bytes");
        let mut all: Vec<V> = (0..count).map(|_| V::new_zeroed()).collect();
        self.read(0, &mut all);
        all
    }

    /// Does an atomic operation on the value at an index, coherent with those of other ranks, and returns what was
    /// there.
    ///
    /// # Errors
    /// [`OneSidedError::Unsupported`] for bit operations on floating-point numbers; [`OneSidedError::Segment`] for
    /// a misaligned place.
    ///
    /// # Panics
    /// Outside the row.
    #[inline]
    pub fn atomic(&self, index: u64, op: AtomicOp<V>) -> Result<V, OneSidedError>
    where
        V: AtomicValue + Number,
    {
        let (at, atomic) = (self.place(index, 1), Atomic::new(op));
        if !atomic.is_supported() {
            return Err(OneSidedError::Unsupported { code: atomic.code, kind: atomic.kind });
        }
        let old = self.segment.atomic(at, &atomic);
        old.map(V::from_bits).map_err(|source| OneSidedError::Segment { rank: self.rank, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointer::GlobalPtr;
    use am_core::loopback;
    use am_core::one_sided::{AtomicCode, AtomicKind};

    #[test]
    fn values_go_in_and_out() {
        let segment = loopback::segment(64);
        let slice = GlobalPtr::<u32>::new(Rank(0), 8).slice(14);
        let row = LocalSlice::new(&segment, slice).unwrap();
        row.fill(7);
        row.store(3, 9);
        row.write(12, &[1, 2]);
        let mut all = [7; 14];
        (all[3], all[12], all[13]) = (9, 1, 2);
        assert_eq!(row.to_vec(), all);
        assert!(row.iter().eq(all));
        assert_eq!(row.atomic(3, AtomicOp::Add(1)), Ok(9));
        assert_eq!((row.load(3), row.load(2)), (10, 7));
        let row_of_floats = LocalSlice::new(&segment, GlobalPtr::<f32>::new(Rank(0), 8).slice(14)).unwrap();
        let bits = OneSidedError::Unsupported { code: AtomicCode::And, kind: AtomicKind::F32 };
        assert_eq!(row_of_floats.atomic(0, AtomicOp::And(0.0)), Err(bits));
        assert_eq!(row.load(0), 7, "nothing has changed");
        assert!(LocalSlice::new(&segment, slice.start().slice(15)).is_err());
        assert!(LocalSlice::new(&segment, slice.start().slice(u64::MAX)).is_err());
    }

    #[test]
    #[should_panic(expected = "2 values at index 13 lie outside the row of 14 values")]
    fn indices_are_checked() {
        let segment = loopback::segment(64);
        let row = LocalSlice::new(&segment, GlobalPtr::<u32>::new(Rank(0), 8).slice(14)).unwrap();
        row.read(13, &mut [0; 2]);
    }
}
