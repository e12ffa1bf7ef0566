//! Global pointers: where a value, or a row of values, lies in the segment of a rank.
//!
//! A [`GlobalPtr`] is a rank and a byte offset, a [`GlobalSlice`] a length besides. Both are plain data: they can
//! be kept in segments, sent as arguments of messages, and compared. They promise nothing about what is there;
//! every access is checked against the segment, and an offset beyond it is an error of the access.
//!
//! # Example
//!
//! ```
//! use am_core::Rank;
//! use am_pgas::pointer::GlobalPtr;
//!
//! let first = GlobalPtr::<f64>::new(Rank(3), 64);
//! let third = first.checked_add(2).unwrap();
//! assert_eq!((third.rank(), third.offset(), third.distance(first)), (Rank(3), 80, Some(2)));
//! let row = first.slice(10);
//! assert_eq!(row.at(2), Some(third));
//! assert_eq!(row.at(10), None);
//! assert_eq!(row.range(8..12), None);
//! ```

use am_core::Rank;
use am_core::arguments::{Arguments, Reader, Writer};
use am_core::zerocopy::{FromBytes, Immutable, IntoBytes};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;

/// A value that may lie in a segment: plain data without padding, every bit pattern of which is one. All numbers,
/// arrays of them, and structures that derive the traits (see [`am_core::Plain`]).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in a segment",
    note = "a structure derives `FromBytes`, `IntoBytes` and `Immutable` of `am_core::zerocopy`, and `Copy`"
)]
pub trait Element: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}

impl<V: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> Element for V {}

/// What a global pointer consists of, whatever it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "am_core::zerocopy")]
#[repr(C)]
struct Place {
    /// A rank of 32 bits; ranks beyond are in no job.
    rank: u64,
    offset: u64,
}

/// Where a value lies: a rank, and a byte offset in its segment.
#[derive(FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "am_core::zerocopy")]
#[repr(transparent)]
pub struct GlobalPtr<V> {
    place: Place,
    of: PhantomData<V>,
}

impl<V> GlobalPtr<V> {
    /// The value at a byte offset of a rank's segment.
    #[inline]
    pub const fn new(rank: Rank, offset: u64) -> Self {
        Self { place: Place { rank: rank.0 as u64, offset }, of: PhantomData }
    }

    /// Whose segment.
    #[inline]
    pub fn rank(self) -> Rank {
        Rank(u32::try_from(self.place.rank).unwrap_or(u32::MAX))
    }

    /// The byte offset.
    #[inline]
    pub fn offset(self) -> u64 {
        self.place.offset
    }

    /// The value `count` values on, or `None` beyond all offsets.
    #[inline]
    pub fn checked_add(self, count: u64) -> Option<Self> {
        let offset = count.checked_mul(size_of::<V>() as u64)?.checked_add(self.place.offset)?;
        Some(Self { place: Place { offset, ..self.place }, of: PhantomData })
    }

    /// The value `count` values before, or `None` before the segment.
    #[inline]
    pub fn checked_sub(self, count: u64) -> Option<Self> {
        let offset = self.place.offset.checked_sub(count.checked_mul(size_of::<V>() as u64)?)?;
        Some(Self { place: Place { offset, ..self.place }, of: PhantomData })
    }

    /// How many whole values after `other` this is, or `None` in different segments, or at a distance that is no
    /// multiple of the values' size.
    pub fn distance(self, other: Self) -> Option<i64> {
        let bytes = i128::from(self.place.offset) - i128::from(other.place.offset);
        let size = size_of::<V>() as i128;
        let whole = self.place.rank == other.place.rank && size != 0 && bytes % size == 0;
        if whole { i64::try_from(bytes / size).ok() } else { None }
    }

    /// The same place, as one of another type.
    #[inline]
    pub fn cast<W>(self) -> GlobalPtr<W> {
        GlobalPtr { place: self.place, of: PhantomData }
    }

    /// The same place in another rank's segment: what a symmetric allocation has there.
    #[inline]
    pub fn on(self, rank: Rank) -> Self {
        Self::new(rank, self.place.offset)
    }

    /// The `len` values from here on.
    #[inline]
    pub fn slice(self, len: u64) -> GlobalSlice<V> {
        GlobalSlice { row: Row { start: self.place, len }, of: PhantomData }
    }
}

/// What a global slice consists of, whatever it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "am_core::zerocopy")]
#[repr(C)]
struct Row {
    start: Place,
    len: u64,
}

/// Where a row of values lies: a rank, the byte offset of the first in its segment, and how many there are.
#[derive(FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "am_core::zerocopy")]
#[repr(transparent)]
pub struct GlobalSlice<V> {
    row: Row,
    of: PhantomData<V>,
}

impl<V> GlobalSlice<V> {
    /// Where the first value lies.
    #[inline]
    pub fn start(self) -> GlobalPtr<V> {
        GlobalPtr { place: self.row.start, of: PhantomData }
    }

    /// Whose segment.
    #[inline]
    pub fn rank(self) -> Rank {
        self.start().rank()
    }

    /// The byte offset of the first value.
    #[inline]
    pub fn offset(self) -> u64 {
        self.start().offset()
    }

    /// Number of values.
    #[inline]
    pub fn len(self) -> u64 {
        self.row.len
    }

    /// Whether there are no values.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.row.len == 0
    }

    /// Size in bytes, or `None` beyond 2^64.
    #[inline]
    pub fn bytes(self) -> Option<u64> {
        self.row.len.checked_mul(size_of::<V>() as u64)
    }

    /// Where a value of the row lies, or `None` outside it.
    #[inline]
    pub fn at(self, index: u64) -> Option<GlobalPtr<V>> {
        if index < self.row.len { self.start().checked_add(index) } else { None }
    }

    /// Part of the row, or `None` if it is not inside.
    #[inline]
    pub fn range(self, range: Range<u64>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        if range.end > self.row.len {
            return None;
        }
        Some(self.start().checked_add(range.start)?.slice(len))
    }

    /// The same place in another rank's segment: what a symmetric allocation has there.
    #[inline]
    pub fn on(self, rank: Rank) -> Self {
        self.start().on(rank).slice(self.row.len)
    }
}

/// What pointers have whatever they point to.
macro_rules! like_its_numbers {
    ($pointer:ident, $numbers:ident) => {
        impl<V> Clone for $pointer<V> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<V> Copy for $pointer<V> {}

        impl<V> PartialEq for $pointer<V> {
            #[inline]
            fn eq(&self, other: &Self) -> bool {
                self.$numbers == other.$numbers
            }
        }

        impl<V> Eq for $pointer<V> {}

        impl<V> PartialOrd for $pointer<V> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl<V> Ord for $pointer<V> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.$numbers.cmp(&other.$numbers)
            }
        }

        impl<V> Hash for $pointer<V> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.$numbers.hash(state);
            }
        }
    };
}

like_its_numbers!(GlobalPtr, place);
like_its_numbers!(GlobalSlice, row);

impl<V> fmt::Debug for GlobalPtr<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlobalPtr({}:{:#x})", self.place.rank, self.place.offset)
    }
}

impl<V> fmt::Debug for GlobalSlice<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlobalSlice({}:{:#x}; {})", self.row.start.rank, self.row.start.offset, self.row.len)
    }
}

impl<V> Arguments for GlobalPtr<V> {
    const WORDS: usize = 3;

    #[inline]
    fn store(&self, writer: &mut Writer<'_>) {
        writer.put_u32(self.rank().0);
        writer.put_u64(self.offset());
    }

    #[inline]
    fn load(reader: &mut Reader<'_>) -> Self {
        let rank = Rank(reader.take_u32());
        Self::new(rank, reader.take_u64())
    }

    fn signature() -> String {
        format!("pointer to {}", std::any::type_name::<V>())
    }
}

impl<V> Arguments for GlobalSlice<V> {
    const WORDS: usize = 5;

    #[inline]
    fn store(&self, writer: &mut Writer<'_>) {
        self.start().store(writer);
        writer.put_u64(self.len());
    }

    #[inline]
    fn load(reader: &mut Reader<'_>) -> Self {
        let start = GlobalPtr::load(reader);
        start.slice(reader.take_u64())
    }

    fn signature() -> String {
        format!("slice of {}", std::any::type_name::<V>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::arguments::{Plain, decode, encode};
    use proptest::prelude::*;

    fn is_element<V: Element>() {}

    #[test]
    fn pointers_are_plain_data() {
        is_element::<GlobalPtr<f64>>();
        is_element::<GlobalSlice<[u8; 3]>>();
        let slice = GlobalPtr::<u32>::new(Rank(7), 1 << 40).slice(9);
        assert_eq!(GlobalSlice::read_from_bytes(slice.as_bytes()).unwrap(), slice);
        assert_eq!(encode(&(slice, slice.start(), 1u32)).len(), 9);
        assert_eq!(decode::<(GlobalSlice<u32>, u32)>(&encode(&(slice, 1u32))), Some((slice, 1)));
        assert_eq!(decode::<Plain<GlobalPtr<u32>>>(&encode(&Plain(slice.start()))), Some(Plain(slice.start())));
        assert_eq!(
            format!("{slice:?} {:?}", slice.start()),
            "GlobalSlice(7:0x10000000000; 9) GlobalPtr(7:0x10000000000)"
        );
        // A rank of garbage is in no job.
        assert_eq!(GlobalPtr::<u8>::read_from_bytes(&[0xff; 16]).unwrap().rank(), Rank(u32::MAX));
    }

    #[test]
    fn arithmetic_does_not_wrap() {
        let end = GlobalPtr::<u64>::new(Rank(0), u64::MAX - 8);
        assert_eq!(end.checked_add(1).map(GlobalPtr::offset), Some(u64::MAX));
        assert_eq!((end.checked_add(2), end.checked_add(u64::MAX)), (None, None));
        let begin = GlobalPtr::<u64>::new(Rank(0), 15);
        assert_eq!(begin.checked_sub(1).map(GlobalPtr::offset), Some(7));
        assert_eq!((begin.checked_sub(2), begin.checked_sub(u64::MAX)), (None, None));
        assert_eq!(begin.distance(begin.on(Rank(1))), None);
        assert_eq!(end.distance(GlobalPtr::new(Rank(0), 0)), None);
        assert_eq!(end.slice(u64::MAX).bytes(), None);
        assert_eq!(end.slice(4).range(2..3), None);
        assert_eq!(GlobalPtr::<()>::new(Rank(0), 4).distance(GlobalPtr::new(Rank(0), 4)), None);
    }

    proptest! {
        #[test]
        fn steps_and_distances_agree(
            offset in 0u64..1 << 50, count in 0u64..1 << 40, len in 0u64..100, from in 0u64..120, to in 0u64..120
        ) {
            let start = GlobalPtr::<[u8; 12]>::new(Rank(2), offset);
            let there = start.checked_add(count).unwrap();
            prop_assert_eq!(there.distance(start), Some(count as i64));
            prop_assert_eq!(start.distance(there), Some(-(count as i64)));
            prop_assert_eq!(there.checked_sub(count), Some(start));
            let row = start.slice(len);
            let range = row.range(from..to);
            prop_assert_eq!(range.is_some(), from <= to && to <= len);
            if let Some(range) = range.filter(|range| !range.is_empty()) {
                prop_assert_eq!(range.at(0), row.at(from));
                prop_assert_eq!(range.at(to - from), None);
                prop_assert_eq!(range.at(to - from - 1), row.at(to - 1));
            }
        }
    }
}
