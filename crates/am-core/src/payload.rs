//! The bytes that a Medium or Long message brings, readable in place while its handler runs.
//!
//! A payload may lie in memory that the sender can still write. It is therefore never a `&[u8]`: every access is a
//! copy out, and a faulty sender can at worst make the bytes wrong.

use crate::segment::Memory;
use crate::transport::Category;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The payload of a message, borrowed for the time its handler runs: it cannot be kept in the state. Keep a copy
/// ([`Payload::to_vec`], or [`Payload::copy_to`] a buffer of the state), or let a Long message place the bytes in
/// the segment.
///
/// Reading allocates nothing except where a method says so.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    bytes: Bytes<'a>,
    place: Location,
}

/// Where a payload lies, which tells its message's category.
#[derive(Clone, Copy, Debug)]
enum Location {
    /// Nowhere: there is none.
    Nowhere,
    /// In a buffer.
    Buffer,
    /// At an offset of the local segment.
    Segment(u64),
}

#[derive(Clone, Copy)]
enum Bytes<'a> {
    /// Memory of this process alone.
    Own(&'a [u8]),
    /// A few words that others may write: the bytes start `skew` (0..8) bytes into them.
    Shared { words: &'a [AtomicU64], skew: usize, len: usize },
    /// Part of a memory that others may write, which knows how to copy fast.
    Memory { memory: &'a dyn Memory, from: usize, len: usize },
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, len) = match self {
            Self::Own(bytes) => ("own", bytes.len()),
            Self::Shared { len, .. } => ("shared", *len),
            Self::Memory { len, .. } => ("memory", *len),
        };
        write!(f, "{len} bytes ({kind})")
    }
}

/// Words that one step of a copy moves: compilers do not unroll loops over atomics by themselves.
pub(crate) const BLOCK: usize = 8;

/// Copies `out.len()` bytes that start `from` bytes into `words`.
///
/// # Panics
/// If the words end before the bytes do; callers check the range.
#[inline]
pub(crate) fn load_bytes(words: &[AtomicU64], from: usize, out: &mut [u8]) {
    let (mut word, skew) = (from / 8, from % 8);
    let mut rest = out;
    // One word, as many messages have.
    if skew == 0 && rest.len() == 8 {
        return rest.copy_from_slice(&words[word].load(Relaxed).to_le_bytes());
    }
    if skew != 0 {
        let (head, tail) = rest.split_at_mut(rest.len().min(8 - skew));
        head.copy_from_slice(&words[word].load(Relaxed).to_le_bytes()[skew..skew + head.len()]);
        rest = tail;
        word += 1;
    }
    let (whole, tail) = rest.as_chunks_mut::<8>();
    let end = word + whole.len();
    let (targets, few_targets) = whole.as_chunks_mut::<BLOCK>();
    let (sources, few_sources) = words[word..end].as_chunks::<BLOCK>();
    for (target, source) in targets.iter_mut().zip(sources) {
        *target = std::array::from_fn(|index| source[index].load(Relaxed).to_le_bytes());
    }
    for (target, source) in few_targets.iter_mut().zip(few_sources) {
        *target = source.load(Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        tail.copy_from_slice(&words[end].load(Relaxed).to_le_bytes()[..tail.len()]);
    }
}

impl<'a> Payload<'a> {
    /// No bytes, as Short messages carry.
    pub const EMPTY: Payload<'static> = Payload { bytes: Bytes::Own(&[]), place: Location::Nowhere };

    /// A payload in memory that only this process writes.
    #[inline]
    pub fn own(bytes: &'a [u8]) -> Self {
        Self { bytes: Bytes::Own(bytes), place: Location::Buffer }
    }

    /// A payload of `len` bytes that starts `from` bytes into words which others may write.
    ///
    /// # Panics
    /// If the words hold fewer than `from + len` bytes.
    #[inline]
    pub fn shared(words: &'a [AtomicU64], from: usize, len: usize) -> Self {
        let end = from.checked_add(len).expect("a payload lies inside its memory");
        let words = &words[from / 8..end.div_ceil(8)];
        Self { bytes: Bytes::Shared { words, skew: from % 8, len }, place: Location::Buffer }
    }

    /// A payload of `len` bytes that starts `from` bytes into a memory which others may write.
    ///
    /// # Panics
    /// If the memory holds fewer than `from + len` bytes.
    #[inline]
    pub fn in_memory(memory: &'a dyn Memory, from: usize, len: usize) -> Self {
        let end = from.checked_add(len);
        assert!(end.is_some_and(|end| end <= memory.words().len() * 8), "a payload lies inside its memory");
        Self { bytes: Bytes::Memory { memory, from, len }, place: Location::Buffer }
    }

    /// Marks the payload as placed at an offset of the local segment (a Long message).
    #[inline]
    pub fn placed_at(self, offset: u64) -> Self {
        Self { place: Location::Segment(offset), ..self }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self.bytes {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Shared { len, .. } | Bytes::Memory { len, .. } => len,
        }
    }

    /// The words that the bytes start in and how far into the first, unless they are this process's own.
    #[inline]
    fn words(&self) -> Option<(&'a [AtomicU64], usize)> {
        match self.bytes {
            Bytes::Own(_) => None,
            Bytes::Shared { words, skew, .. } => Some((words, skew)),
            Bytes::Memory { memory, from, .. } => memory.words().get(from / 8..).map(|words| (words, from % 8)),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a Long message's payload lies in the local segment, in bytes; `None` for Short and Medium.
    #[inline]
    pub fn offset(&self) -> Option<u64> {
        match self.place {
            Location::Segment(offset) => Some(offset),
            Location::Nowhere | Location::Buffer => None,
        }
    }

    /// The category of the message that brings this payload: a Short message and an empty Medium one differ.
    #[inline]
    pub fn category(&self) -> Category {
        match self.place {
            Location::Nowhere => Category::Short,
            Location::Buffer => Category::Medium,
            Location::Segment(_) => Category::Long,
        }
    }

    /// The same payload as a message of this category has it.
    #[inline(always)]
    pub(crate) fn of(self, category: Category) -> Self {
        match (category, self.place) {
            (Category::Short, _) => Self { place: Location::Nowhere, ..self },
            (Category::Medium, Location::Nowhere) => Self { place: Location::Buffer, ..self },
            (Category::Medium | Category::Long, _) => self,
        }
    }

    /// The bytes themselves, where they lie in memory of this process alone; `None` where the sender could still
    /// write them, as in shared memory and in segments.
    #[inline]
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.bytes {
            Bytes::Own(bytes) => Some(bytes),
            Bytes::Shared { .. } | Bytes::Memory { .. } => None,
        }
    }

    /// Hints that the byte `from` bytes into the payload, and those of its cache line, will be read soon: a
    /// handler that works its way through a long payload need not wait for each line. Any offset is allowed, also
    /// behind the payload: what lies there is not read. Does nothing where the payload lies in memory of this
    /// process alone or in a few words of a queue's cell, in memory whose [`Memory::prefetch`] does nothing (that
    /// of tests and of simulated machines), and outside that memory. Costs an instruction, and waits for nothing.
    #[inline]
    pub fn prefetch(&self, from: usize) {
        if let Bytes::Memory { memory, from: start, .. } = self.bytes {
            memory.prefetch(start.wrapping_add(from));
        }
    }

    /// Copies as many bytes as both sides have, starting `from` bytes into the payload; returns how many.
    #[inline]
    pub fn copy_from(&self, from: usize, out: &mut [u8]) -> usize {
        let count = out.len().min(self.len().saturating_sub(from));
        let out = &mut out[..count];
        match self.bytes {
            _ if count == 0 => {}
            Bytes::Own(bytes) => out.copy_from_slice(&bytes[from..from + count]),
            Bytes::Shared { words, skew, .. } => load_bytes(words, skew + from, out),
            Bytes::Memory { memory, from: start, .. } => memory.load(start + from, out),
        }
        count
    }

    /// Copies the payload's start into `out`, as many bytes as both have; returns how many.
    #[inline(always)]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        // One word, as many messages have.
        if let Bytes::Shared { words: [word], skew: 0, len: 8 } = self.bytes
            && let Some(out) = out.first_chunk_mut()
        {
            *out = word.load(Relaxed).to_le_bytes();
            return out.len();
        }
        self.copy_from(0, out)
    }

    /// The little-endian 64-bit value at byte `8 * index`, or `None` past the last whole one.
    #[inline]
    pub fn u64(&self, index: usize) -> Option<u64> {
        if index >= self.len() / 8 {
            return None;
        }
        if let Some((words, 0)) = self.words() {
            return Some(u64::from_le(words[index].load(Relaxed)));
        }
        let mut bytes = [0; 8];
        self.copy_from(8 * index, &mut bytes);
        Some(u64::from_le_bytes(bytes))
    }

    /// Calls `f` with each whole little-endian 64-bit value in order; a shorter rest is left out.
    #[inline]
    pub fn for_each_u64(&self, mut f: impl FnMut(u64)) {
        if let Bytes::Own(bytes) = self.bytes {
            for chunk in bytes.chunks_exact(8) {
                f(u64::from_le_bytes(chunk.try_into().expect("chunks of eight bytes")));
            }
        } else if let Some((words, 0)) = self.words() {
            for word in &words[..self.len() / 8] {
                f(u64::from_le(word.load(Relaxed)));
            }
        } else {
            for index in 0..self.len() / 8 {
                f(self.u64(index).expect("the index is below the number of whole values"));
            }
        }
    }

    /// The bytes in a new vector (allocates).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len()];
        self.copy_to(&mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shared_and_own_payloads_read_alike(
            values in prop::collection::vec(any::<u64>(), 1..20), from in 0usize..40, len in 0usize..100,
            skip in 0usize..20
        ) {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let words: Vec<AtomicU64> = values.iter().map(|v| AtomicU64::new(*v)).collect();
            let from = from.min(bytes.len());
            let len = len.min(bytes.len() - from);
            let own = Payload::own(&bytes[from..from + len]);
            let memory: std::sync::Arc<[AtomicU64]> = values.iter().map(|v| AtomicU64::new(*v)).collect();
            let views = [Payload::shared(&words, from, len), Payload::in_memory(&memory, from, len)];
            for shared in views {
            prop_assert_eq!(own.to_vec(), shared.to_vec());
            let (mut a, mut b) = ([0; 33], [0; 33]);
            prop_assert_eq!(own.copy_from(skip, &mut a), shared.copy_from(skip, &mut b));
            prop_assert_eq!(a, b);
            let (mut x, mut y) = (Vec::new(), Vec::new());
            own.for_each_u64(|v| x.push(v));
            shared.for_each_u64(|v| y.push(v));
            prop_assert_eq!(&x, &y);
            prop_assert_eq!(x.len(), len / 8);
            prop_assert_eq!(own.u64(x.len()), None);
            prop_assert_eq!(shared.u64(x.len()), None);
            }
        }
    }
}
