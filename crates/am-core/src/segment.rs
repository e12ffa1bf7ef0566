//! Segments: the part of a rank's memory that its peers may read and write.
//!
//! Nothing here hands out `&[u8]`: reads and writes copy, and single words are atomics, so that a peer that writes
//! at the same moment can tear a value but never break the program. Offsets and lengths are in bytes.
//!
//! # Where the memory comes from
//!
//! A rank has one segment, whose size is chosen before it attaches. Several regions are parts of it (`am-pgas` has
//! an allocator).
//!
//! | transport | memory |
//! |---|---|
//! | [`loopback`](crate::loopback) | of the client's own on request ([`network_over`](crate::loopback::network_over)) |
//! | `transport-udp` | any [`Memory`] of the client's own (`Udp::join_with_segment`) |
//! | `transport-shm` | part of the job's sparse file, of which only touched pages exist: ask for more if in doubt |
//! | simulators | the simulated host's |
//!
//! The client keeps what it gave and uses it with its own atomics, the part behind the segment's end included,
//! which no peer reaches:
//!
//! ```
//! use am_core::loopback::{self, LoopbackConfig};
//! use am_core::segment::Segment;
//! use am_core::{Endpoint, Handlers, Payload, Rank};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! let own: Arc<[AtomicU64]> = (0..4).map(AtomicU64::new).collect();
//! // The first 24 bytes are the segment; the last word stays private.
//! let segment = Segment::new(Arc::clone(&own), 24);
//! let transport = loopback::network_over(vec![segment], LoopbackConfig::new()).remove(0);
//! let mut handlers = Handlers::new();
//! let placed = handlers.one_way("placed", |seen: &mut bool, _, (), payload: Payload<'_>| {
//!     *seen = payload.offset() == Some(16);
//! })?;
//! let mut endpoint = Endpoint::attach(transport, handlers, false)?;
//! endpoint.request_long(Rank(0), placed, (), &7u64.to_le_bytes(), 16)?;
//! assert!(endpoint.request_long(Rank(0), placed, (), &[7; 8], 24).is_err());
//! endpoint.wait_until(|seen| *seen)?;
//! assert_eq!([&own[2], &own[3]].map(|word| word.load(Relaxed)), [7, 3]);
//! # endpoint.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::payload::{BLOCK, Payload, load_bytes};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a segment lies in, as a transport provides it.
///
/// The defaults copy word by word with relaxed atomics; a transport that can copy faster overrides them.
pub trait Memory {
    /// The memory as words.
    fn words(&self) -> &[AtomicU64];

    /// Copies `source` to byte offset `at`.
    ///
    /// # Panics
    /// If the range is outside the memory; [`Segment`] checks it first.
    #[inline(always)]
    fn store(&self, at: usize, source: &[u8]) {
        // One word is one store. It is handed on by value, so that callers keep it in a register.
        match <[u8; 8]>::try_from(source) {
            Ok(word) if at.is_multiple_of(8) => {
                self.words()[at / 8].store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
            Ok(word) => store_skewed(self.words(), at, word),
            Err(_) => store_bytes(self.words(), at, source),
        }
    }

    /// Copies from byte offset `at` into `out`.
    ///
    /// # Panics
    /// If the range is outside the memory; [`Segment`] checks it first.
    #[inline(always)]
    fn load(&self, at: usize, out: &mut [u8]) {
        match <&mut [u8; 8]>::try_from(&mut *out) {
            Ok(word) if at.is_multiple_of(8) => *word = self.words()[at / 8].load(Ordering::Relaxed).to_le_bytes(),
            Ok(word) => *word = load_skewed(self.words(), at),
            Err(_) => load_bytes(self.words(), at, out),
        }
    }

    /// Copies words of other memory, which may change meanwhile, to byte offset `at`, a multiple of 8: as relaxed
    /// atomic accesses of each word do. Whether it did; nothing was copied otherwise, as by default, and memory of
    /// this process takes the bytes on their way.
    ///
    /// # Panics
    /// If the range is outside the memory; [`Segment`] checks it first.
    #[inline]
    fn copy_words(&self, at: usize, source: &[AtomicU64]) -> bool {
        let _ = (at, source);
        false
    }

    /// Hints that the word at byte offset `at` will be used soon. Any offset is allowed.
    fn prefetch(&self, at: usize) {
        let _ = at;
    }

    /// As [`prefetch`](Self::prefetch), but no nearer than the second cache, which has room for more lines that
    /// are under way: for words that will be used some hundred uses later.
    fn prefetch_l2(&self, at: usize) {
        self.prefetch(at);
    }

    /// As [`prefetch`](Self::prefetch), for a word of this memory that will be changed: other processors give its
    /// line up meanwhile, so that the change does not wait for that.
    fn prefetch_write(&self, word: &AtomicU64) {
        let _ = word;
    }
}

impl Memory for Arc<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Memory of any kind; an access costs an indirect call more.
pub type AnyMemory = Arc<dyn Memory + Send + Sync>;

impl Memory for AnyMemory {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    fn store(&self, at: usize, source: &[u8]) {
        (**self).store(at, source);
    }

    fn load(&self, at: usize, out: &mut [u8]) {
        (**self).load(at, out);
    }

    fn copy_words(&self, at: usize, source: &[AtomicU64]) -> bool {
        (**self).copy_words(at, source)
    }

    fn prefetch(&self, at: usize) {
        (**self).prefetch(at);
    }

    fn prefetch_l2(&self, at: usize) {
        (**self).prefetch_l2(at);
    }

    fn prefetch_write(&self, word: &AtomicU64) {
        (**self).prefetch_write(word);
    }
}

/// Memory borrowed from whoever has it.
pub type MemoryRef<'a> = &'a (dyn Memory + 'a);

impl Memory for MemoryRef<'_> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    fn store(&self, at: usize, source: &[u8]) {
        (**self).store(at, source);
    }

    fn load(&self, at: usize, out: &mut [u8]) {
        (**self).load(at, out);
    }

    fn copy_words(&self, at: usize, source: &[AtomicU64]) -> bool {
        (**self).copy_words(at, source)
    }

    fn prefetch(&self, at: usize) {
        (**self).prefetch(at);
    }

    fn prefetch_l2(&self, at: usize) {
        (**self).prefetch_l2(at);
    }

    fn prefetch_write(&self, word: &AtomicU64) {
        (**self).prefetch_write(word);
    }
}

/// Writes eight bytes that lie in two words.
#[cold]
#[inline(never)]
fn store_skewed(words: &[AtomicU64], at: usize, bytes: [u8; 8]) {
    store_bytes(words, at, &bytes);
}

/// Reads eight bytes that lie in two words.
#[cold]
#[inline(never)]
fn load_skewed(words: &[AtomicU64], at: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    load_bytes(words, at, &mut bytes);
    bytes
}

/// Writes bytes into words; words that are only partly covered keep their other bytes.
#[inline(never)]
fn store_bytes(words: &[AtomicU64], at: usize, source: &[u8]) {
    let (mut word, skew) = (at / 8, at % 8);
    let mut rest = source;
    if skew != 0 {
        let (head, tail) = rest.split_at(rest.len().min(8 - skew));
        if !head.is_empty() {
            store_part(&words[word], skew, head);
        }
        (word, rest) = (word + 1, tail);
    }
    let (whole, tail) = rest.as_chunks::<8>();
    let Some(targets) = words.get(word..word + whole.len()) else {
        panic!("{} bytes at {at} do not fit a memory of {} words", source.len(), words.len());
    };
    let (targets, few_targets) = targets.as_chunks::<BLOCK>();
    let (sources, few_sources) = whole.as_chunks::<BLOCK>();
    for (target, source) in targets.iter().zip(sources) {
        for index in 0..BLOCK {
            target[index].store(u64::from_le_bytes(source[index]), Ordering::Relaxed);
        }
    }
    for (word, value) in few_targets.iter().zip(few_sources) {
        word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        store_part(&words[word + whole.len()], 0, tail);
    }
}

/// Writes fewer than eight bytes into a word, `skew` bytes from its start.
fn store_part(word: &AtomicU64, skew: usize, bytes: &[u8]) {
    let (mut mask, mut bits) = ([0; 8], [0; 8]);
    mask[skew..skew + bytes.len()].fill(0xff);
    bits[skew..skew + bytes.len()].copy_from_slice(bytes);
    let (mask, bits) = (u64::from_le_bytes(mask), u64::from_le_bytes(bits));
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | bits))
        .expect("the update never declines");
}

/// Bytes that [`Segment::copy_to`] copies at once.
const PIECE: usize = 8 << 10;

/// An access outside a segment, or to a word that is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The range does not lie inside the segment.
    #[error("{len} bytes at offset {offset} lie outside the segment of {segment} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        len: u64,
        /// Size of the segment in bytes.
        segment: u64,
    },
    /// Words and atomics are accessed at multiples of their size.
    #[error("offset {offset} is not a multiple of {alignment}")]
    Misaligned {
        /// The offset asked for.
        offset: u64,
        /// What it must be a multiple of, in bytes.
        alignment: u64,
    },
}

/// A segment: remotely accessible memory of one rank, seen from this process.
///
/// Clones are cheap and see the same memory.
#[derive(Clone, Copy)]
pub struct Segment<M> {
    pub(crate) memory: M,
    len: usize,
}

impl<M: Memory> fmt::Debug for Segment<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<M: Memory> Segment<M> {
    /// A segment of `len` bytes at the start of some memory.
    ///
    /// # Panics
    /// If the memory is smaller.
    pub fn new(memory: M, len: usize) -> Self {
        assert!(memory.words().len() >= len.div_ceil(8), "a segment fits its memory");
        Self { memory, len }
    }

    /// The same segment, with its kind of memory left open. Allocates.
    pub fn erase(&self) -> Segment<AnyMemory>
    where
        M: Clone + Send + Sync + 'static,
    {
        Segment { memory: Arc::new(self.memory.clone()), len: self.len }
    }

    /// The same segment, borrowed, with its kind of memory left open. Does not allocate.
    #[inline]
    pub fn borrow(&self) -> Segment<MemoryRef<'_>> {
        Segment { memory: &self.memory, len: self.len }
    }

    /// The memory that the segment lies in, from its start.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the segment has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn range(&self, offset: u64, len: usize) -> Result<usize, SegmentError> {
        let inside = self.len.checked_sub(len).is_some_and(|room| offset <= room as u64);
        let error = SegmentError::OutOfRange { offset, len: len as u64, segment: self.len as u64 };
        if inside { Ok(offset as usize) } else { Err(error) }
    }

    /// The word at a byte offset, for atomic operations of any kind.
    ///
    /// # Errors
    /// [`SegmentError`] outside the segment or off alignment.
    #[inline]
    pub fn word(&self, offset: u64) -> Result<&AtomicU64, SegmentError> {
        let at = self.range(offset, 8)?;
        if at % 8 != 0 {
            return Err(SegmentError::Misaligned { offset, alignment: 8 });
        }
        Ok(&self.memory.words()[at / 8])
    }

    /// All whole words of the segment.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        &self.memory.words()[..self.len / 8]
    }

    /// Copies `source` into the segment. Not atomic as a whole: a reader may see part of it.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; nothing is written then.
    #[inline(always)]
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<(), SegmentError> {
        let at = self.range(offset, source.len())?;
        self.memory.store(at, source);
        Ok(())
    }

    /// Copies from the segment into `out`. Not atomic as a whole.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; `out` is unchanged then.
    #[inline(always)]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        let at = self.range(offset, out.len())?;
        self.memory.load(at, out);
        Ok(())
    }

    /// Copies `len` bytes at `offset` into another segment, to byte `at` of it. Not atomic as a whole; where both
    /// ranges overlap in the same memory, what is there afterwards is not specified.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`]; nothing is written then.
    pub fn copy_to<N: Memory>(
        &self,
        offset: u64,
        to: &Segment<N>,
        at: u64,
        len: usize,
    ) -> Result<(), SegmentError> {
        let (from, to_at) = (self.range(offset, len)?, to.range(at, len)?);
        let whole = from.is_multiple_of(8) && to_at.is_multiple_of(8);
        let copied = if whole && len >= PIECE / 8 { len / 8 * 8 } else { 0 };
        let words = || &self.memory.words()[from / 8..][..copied / 8];
        let start = if copied != 0 && to.memory.copy_words(to_at, words()) { copied } else { 0 };
        // Through memory that stays in the processor's first cache.
        let mut piece = [0; PIECE];
        for start in (start..len).step_by(PIECE) {
            let piece = &mut piece[..(len - start).min(PIECE)];
            self.memory.load(from + start, piece);
            to.memory.store(to_at + start, piece);
        }
        Ok(())
    }

    /// A view of a range that copies out on access, as handlers get for Long messages.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`].
    #[inline]
    pub fn view(&self, offset: u64, len: usize) -> Result<Payload<'_>, SegmentError> {
        let at = self.range(offset, len)?;
        Ok(Payload::in_memory(&self.memory, at, len).placed_at(offset))
    }

    /// Hints that the word at `offset` will be used soon; out of range it does nothing.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        if let Ok(at) = self.range(offset, 1) {
            self.memory.prefetch(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(len: usize) -> Segment<Arc<[AtomicU64]>> {
        Segment::new((0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), len)
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        let segment = segment(20);
        assert_eq!(segment.write(15, &[0; 6]), Err(SegmentError::OutOfRange { offset: 15, len: 6, segment: 20 }));
        assert!(segment.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(segment.write(20, &[]).is_ok());
        assert_eq!(segment.word(4).unwrap_err(), SegmentError::Misaligned { offset: 4, alignment: 8 });
        assert!(segment.word(16).is_err());
        segment.prefetch(u64::MAX);
    }

    proptest! {
        #[test]
        fn writes_touch_their_bytes_alone(
            writes in prop::collection::vec((0u64..600, prop::collection::vec(any::<u8>(), 0..300)), 1..20)
        ) {
            const LEN: usize = 667;
            let (segment, mut model) = (segment(LEN), [0u8; LEN]);
            for (offset, bytes) in &writes {
                let start = *offset as usize;
                if segment.write(*offset, bytes).is_ok() {
                    model[start..start + bytes.len()].copy_from_slice(bytes);
                } else {
                    prop_assert!(start + bytes.len() > LEN);
                }
            }
            let mut all = [0; LEN];
            segment.read(0, &mut all).unwrap();
            prop_assert_eq!(all, model);
            for (from, len) in [(3, 50), (5, 600), (8, 640)] {
                prop_assert_eq!(segment.view(from as u64, len).unwrap().to_vec(), &model[from..from + len]);
            }
        }
    }

    #[test]
    fn segments_are_copied_into_each_other() {
        let (from, to) = (segment(40_000), segment(40_000));
        let bytes: Vec<u8> = (0..40_000u32).map(|index| (index % 251) as u8).collect();
        from.write(0, &bytes).unwrap();
        for (offset, at, len) in [(0, 0, 0), (3, 5, 1), (8, 16, 8), (1, 7, PIECE), (5, 2, 3 * PIECE + 9)] {
            to.write(0, &[7; 40_000]).unwrap();
            from.copy_to(offset, &to, at, len).unwrap();
            let mut expected = vec![7; 40_000];
            expected[at as usize..][..len].copy_from_slice(&bytes[offset as usize..][..len]);
            let mut found = vec![0; 40_000];
            to.read(0, &mut found).unwrap();
            assert!(found == expected, "{len} bytes from {offset} to {at}");
        }
        let outside = |offset, at| from.copy_to(offset, &to, at, 8).unwrap_err();
        let error = SegmentError::OutOfRange { offset: 39_993, len: 8, segment: 40_000 };
        assert_eq!([outside(39_993, 0), outside(0, 39_993)], [error; 2]);
    }
}
