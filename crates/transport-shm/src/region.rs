//! Memory shared between processes: the mapping of a job file and typed views into it.
//!
//! This module and `sys` hold all `unsafe` of the crate. What makes views sound: they consist of atomics only,
//! whose every bit pattern is valid; they lie inside the mapping, checked when they are made; and they keep the
//! mapping alive. Payloads go in and out by plain copies whose other end is memory of this process alone. No
//! reference to shared bytes ever exists. Such copies are no data races, since no two threads of this process make
//! conflicting ones through one mapping:
//!
//! - the byte rings of lanes are ordered by the lanes' atomics: the writer's Release store of a header, the
//!   reader's of what is given back;
//! - Long payloads are written and read through mappings of their own ([`Unshared`]), one that only its endpoint
//!   writes and one that only its handlers and `Transport::read_placed` read, neither of which is ever handed out;
//! - segments that are handed out ([`ShmMemory`]), which safe programs may use from any thread, are accessed by
//!   atomics alone, or by string instructions that do the same word by word.
//!
//! Whoever writes through another mapping, in another process or in this one, is to the language what a device is
//! that writes to memory: it can make bytes wrong, nothing else.

use crate::ring::Cell;
use crate::sync::AtomicU64;
use am_core::segment::Memory;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A mapped part of a job file.
#[derive(Debug)]
pub(crate) struct Mapping {
    raw: MmapRaw,
}

impl Mapping {
    /// Maps `len` bytes of a file from `offset`, shared.
    pub(crate) fn new(file: &File, offset: u64, len: usize) -> std::io::Result<Arc<Self>> {
        let raw = MmapOptions::new().offset(offset).len(len).map_raw(file)?;
        Ok(Arc::new(Self { raw }))
    }

    /// Zeroed memory of this process alone, of at least `len` bytes: a child that it forks finds all of it zero
    /// again, where the kernel can do that.
    pub(crate) fn wiped_on_fork(len: usize) -> std::io::Result<Arc<Self>> {
        let raw = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        // Kernels before 4.14 cannot; a child then sees what its parent had.
        let _ = crate::sys::wipe_on_fork(&raw);
        Ok(Arc::new(Self { raw }))
    }

    /// Asks for huge pages; only a hint, so failure is of no consequence.
    pub(crate) fn advise_huge(&self) {
        let _ = self.raw.advise(Advice::HugePage);
    }
}

/// Types that memory of unknown content, changed by others at any time, may be seen as.
///
/// # Safety
/// The type consists of atomics only: every bit pattern is valid and shared mutation is allowed.
pub(crate) unsafe trait Shareable {}

// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: eight atomic integers without padding.
unsafe impl Shareable for Cell {}

/// A slice of atomics in a mapping, which it keeps alive.
pub(crate) struct View<T> {
    start: NonNull<T>,
    len: usize,
    mapping: Arc<Mapping>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self { start: self.start, len: self.len, mapping: Arc::clone(&self.mapping) }
    }
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: a view is a shared reference to atomics plus the owner of their memory; both may go to another thread.
unsafe impl<T: Shareable + Sync> Send for View<T> {}
// SAFETY: as above; all access through a shared view is atomic.
unsafe impl<T: Shareable + Sync> Sync for View<T> {}

impl<T: Shareable> View<T> {
    /// Sees `len` elements from byte `offset` of a mapping.
    ///
    /// # Panics
    /// If they are not inside the mapping or not aligned; layouts are checked before they are mapped.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize, len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(bytes.is_some_and(|end| end <= mapping.raw.len()), "a view lies inside its mapping");
        let start = mapping.raw.as_mut_ptr().wrapping_add(offset).cast::<T>();
        assert!(start.is_aligned(), "the layout aligns every part of a job file");
        let start = NonNull::new(start).expect("a mapping is never at address zero");
        Self { start, len, mapping: Arc::clone(mapping) }
    }
}

impl<T: Shareable> Deref for View<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` checked range and alignment, the mapping lives as long as `self`, `T` is `Shareable`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// One atomic in a mapping, which it keeps alive: read without a comparison of an index.
#[derive(Clone, Debug)]
pub(crate) struct One<T>(View<T>);

impl<T: Shareable> One<T> {
    /// Sees the element at byte `offset` of a mapping.
    ///
    /// # Panics
    /// As [`View::new`].
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize) -> Self {
        Self(View::new(mapping, offset, 1))
    }
}

impl<T: Shareable> Deref for One<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as for the slice of a view, of which this is the only element.
        unsafe { self.0.start.as_ref() }
    }
}

impl View<AtomicU64> {
    /// Copies bytes into the view.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub(crate) fn copy_in(&self, at: usize, source: &[u8]) {
        let end = at.checked_add(source.len());
        assert!(end.is_some_and(|end| end <= self.len * 8), "a copy lies inside its view");
        let target = self.start.as_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: the range was checked above and the mapping is alive. The source is memory of this process that
        // no view covers, since views hand out no byte references; so the two do not overlap. No other thread
        // accesses these bytes through this mapping meanwhile: see the top of this file.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) }
    }

    /// As [`View::copy_in`], past the caches of this processor where it can do that: by stores that are ordered
    /// before all that are made afterwards.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn copy_past(&self, at: usize, source: &[u8]) {
        let end = at.checked_add(source.len());
        assert!(end.is_some_and(|end| end <= self.len * 8), "a copy lies inside its view");
        #[cfg(target_arch = "x86_64")]
        {
            let target = self.start.as_ptr().cast::<u8>().wrapping_add(at);
            let head = target.align_offset(64).min(source.len());
            let (before, rest) = source.split_at(head);
            let (lines, after) = rest.as_chunks::<64>();
            self.copy_in(at, before);
            past::store(self, at + head, lines);
            self.copy_in(at + head + 64 * lines.len(), after);
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.copy_in(at, source);
    }

    /// Copies bytes out of the view.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) {
        let end = at.checked_add(out.len());
        assert!(end.is_some_and(|end| end <= self.len * 8), "a copy lies inside its view");
        let source = self.start.as_ptr().cast::<u8>().wrapping_add(at).cast_const();
        // SAFETY: as in `copy_in`, with the roles exchanged.
        unsafe { std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len()) }
    }
}

/// Hints that a value will be used soon, so that the processor fetches its cache line meanwhile. Costs an
/// instruction, waits for nothing and changes nothing; without effect where the target has no such instruction.
/// For handlers that work on more memory than the caches hold: one that fetches what it needs some messages later
/// waits for several lines at once.
///
/// ```
/// # let (table, indices) = (vec![0_u64; 1024], [5_usize, 900, 77]);
/// indices.iter().filter_map(|index| table.get(*index)).for_each(transport_shm::prefetch);
/// ```
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast(), Use::Read);
}

/// As [`prefetch`], but no nearer than the second cache (L2): for what will be used later than the first cache has
/// room for, or where many lines are to be on their way at once. A processor core has few lines under way into its
/// first cache (24 on AMD's Zen 4, 12 to 16 on older ones) and more into its second, so that programs whose memory
/// is far away gain most from a `prefetch_l2` some hundred uses ahead and a [`prefetch`] some twenty ahead.
///
/// ```
/// # let (table, indices) = (vec![0_u64; 1024], [5_usize, 900, 77]);
/// indices.iter().filter_map(|index| table.get(*index)).for_each(transport_shm::prefetch_l2);
/// ```
#[inline(always)]
pub fn prefetch_l2<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast(), Use::Later);
}

/// What a prefetched line will be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// Read or written so much later that the second cache does.
    Later,
}

/// Hints that the cache line at an address will be used soon. Any address is allowed.
#[inline(always)]
fn fetch_line(line: *const i8, purpose: Use) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match purpose {
            // SAFETY: a prefetch reads nothing into the program and never faults, whatever the address.
            Use::Read => unsafe { _mm_prefetch::<_MM_HINT_T0>(line) },
            // SAFETY: as above.
            Use::Later => unsafe { _mm_prefetch::<_MM_HINT_T1>(line) },
            // The intrinsic falls back to a read prefetch unless the whole program is built for processors
            // that have this instruction; all x86-64 processors execute it, some as a no-op. SAFETY: as above;
            // nothing is read, written or clobbered.
            Use::Write => unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            },
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, purpose);
}

impl<T> View<T> {
    /// Hints that the cache line of byte `at` will be used soon. Any offset is allowed.
    #[inline]
    pub(crate) fn fetch(&self, at: usize, purpose: Use) {
        fetch_line(self.start.as_ptr().cast::<i8>().wrapping_add(at).cast_const(), purpose);
    }
}

/// The memory of a shared-memory segment. Every access is a relaxed atomic one, so it may be shared by threads.
#[derive(Clone, Debug)]
pub struct ShmMemory(View<AtomicU64>);

/// A segment's memory through a mapping that an endpoint keeps to itself, with plain copies. Its words are there
/// for Long payloads that handlers read word by word.
#[derive(Debug)]
pub(crate) struct Unshared(View<AtomicU64>);

impl Unshared {
    /// The view must be the only one of its mapping, and the endpoint that keeps this must not both read and write
    /// it.
    pub(crate) fn new(view: View<AtomicU64>) -> Self {
        Self(view)
    }
}

impl Memory for Unshared {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    #[inline]
    fn store(&self, at: usize, source: &[u8]) {
        self.0.copy_in(at, source);
    }

    #[inline]
    fn load(&self, at: usize, out: &mut [u8]) {
        self.0.copy_out(at, out);
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.0.fetch(at, Use::Read);
    }

    #[inline]
    fn prefetch_write(&self, word: &AtomicU64) {
        fetch_line(std::ptr::from_ref(word).cast(), Use::Write);
    }
}

impl ShmMemory {
    pub(crate) fn new(view: View<AtomicU64>) -> Self {
        Self(view)
    }
}

#[cfg(not(am_loom))]
impl Memory for View<AtomicU64> {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self
    }

    #[inline]
    fn store(&self, at: usize, source: &[u8]) {
        self.copy_in(at, source);
    }

    #[inline]
    fn load(&self, at: usize, out: &mut [u8]) {
        self.copy_out(at, out);
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.fetch(at, Use::Read);
    }

    #[inline]
    fn prefetch_write(&self, word: &AtomicU64) {
        fetch_line(std::ptr::from_ref(word).cast(), Use::Write);
    }
}

/// Words that are accessed one by one.
struct Words<'a>(&'a [AtomicU64]);

impl Memory for Words<'_> {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.0
    }
}

/// Copies of words by string instructions, which processors do by whole cache lines: from a kilobyte on faster
/// than a loop of atomic accesses of eight bytes, up to four times.
#[cfg(target_arch = "x86_64")]
mod string {
    use super::AtomicU64;
    use std::arch::asm;

    /// The least bytes for which they pay.
    pub(super) const LEAST: usize = 1024;

    /// Stores whole words, before what is stored later (Intel SDM, volume 3, string operations on write-back
    /// memory). That no word is torn is what processors do with aligned ones; the manual does not promise it. Who
    /// reads while others write gets some bytes of each in any case.
    pub(super) fn store(words: &[AtomicU64], source: &[[u8; 8]]) {
        assert_eq!(words.len(), source.len(), "as many words as are copied");
        let (target, source) = (words.as_ptr().cast_mut(), source.as_ptr());
        // SAFETY: as many words as both slices have; the target is aligned and stored to as atomics do, and nobody
        // writes the source meanwhile.
        unsafe {
            asm!("rep movsq", inout("rcx") words.len() => _, inout("rsi") source => _, inout("rdi") target => _,
                options(nostack, preserves_flags));
        }
    }

    /// Copies whole words, as atomic loads and stores do one by one; of places that overlap, in ascending order or
    /// by blocks.
    pub(super) fn copy(words: &[AtomicU64], source: &[AtomicU64]) {
        assert_eq!(words.len(), source.len(), "as many words as are copied");
        let (target, source) = (words.as_ptr().cast_mut(), source.as_ptr());
        // SAFETY: as many words as both slices have, which consist of atomics: both ends are aligned, and loaded
        // from and stored to as `load` and `store` do.
        unsafe {
            asm!("rep movsq", inout("rcx") words.len() => _, inout("rsi") source => _, inout("rdi") target => _,
                options(nostack, preserves_flags));
        }
    }

    /// Loads whole words.
    pub(super) fn load(words: &[AtomicU64], out: &mut [[u8; 8]]) {
        assert_eq!(words.len(), out.len(), "as many words as are copied");
        let (source, target) = (words.as_ptr(), out.as_mut_ptr());
        // SAFETY: as in `store`, with relaxed loads of each word, into memory that is this call's alone.
        unsafe {
            asm!("rep movsq", inout("rcx") words.len() => _, inout("rsi") source => _, inout("rdi") target => _,
                options(nostack, preserves_flags));
        }
    }
}

/// Stores of whole cache lines to memory, which neither this processor's caches keep nor others are asked for.
#[cfg(target_arch = "x86_64")]
mod past {
    use super::{AtomicU64, View};
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Stores lines to byte offset `at`, which is that of a line.
    pub(super) fn store(view: &View<AtomicU64>, at: usize, lines: &[[u8; 64]]) {
        let start = view.start.as_ptr().cast::<u8>().wrapping_add(at);
        let inside = lines.len() * 64 <= (view.len * 8).saturating_sub(at);
        assert!(inside && (lines.is_empty() || start.addr().is_multiple_of(64)), "lines of the view");
        for (line, bytes) in lines.iter().enumerate() {
            for (part, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: it reads 16 bytes of the source, of any alignment.
                let value = unsafe { _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>()) };
                let target = start.wrapping_add(64 * line + 16 * part).cast::<__m128i>();
                // SAFETY: inside the view and aligned, both checked above; who else may access it is as in
                // `copy_in`. The fence below comes before any other store of this thread.
                unsafe { _mm_stream_si128(target, value) };
            }
        }
        // SAFETY: every x86-64 processor has it. Stores past the caches are ordered by it alone: the Release store
        // of a header, with which a reader's Acquire load pairs, is an ordinary one.
        unsafe { _mm_sfence() };
    }
}

/// The bytes before the first whole word from `at` on, the bytes of whole words, and the number of the first.
#[cfg(target_arch = "x86_64")]
fn whole_words(at: usize, len: usize) -> (usize, usize, usize) {
    let first = at.div_ceil(8);
    let head = first * 8 - at;
    (head, (len - head) / 8 * 8, first)
}

/// Not inlined: accesses of a few bytes are to stay small.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn store_many(memory: &[AtomicU64], at: usize, source: &[u8]) {
    let (head, whole, first) = whole_words(at, source.len());
    string::store(&memory[first..][..whole / 8], source[head..head + whole].as_chunks().0);
    if head > 0 {
        Words(memory).store(at, &source[..head]);
    }
    if head + whole < source.len() {
        Words(memory).store(at + head + whole, &source[head + whole..]);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn load_many(memory: &[AtomicU64], at: usize, out: &mut [u8]) {
    let (head, whole, first) = whole_words(at, out.len());
    string::load(&memory[first..][..whole / 8], out[head..head + whole].as_chunks_mut().0);
    if head > 0 {
        Words(memory).load(at, &mut out[..head]);
    }
    if head + whole < out.len() {
        Words(memory).load(at + head + whole, &mut out[head + whole..]);
    }
}

impl Memory for ShmMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn store(&self, at: usize, source: &[u8]) {
        if source.len() < string::LEAST {
            return Words(&self.0).store(at, source);
        }
        store_many(&self.0, at, source);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load(&self, at: usize, out: &mut [u8]) {
        if out.len() < string::LEAST {
            return Words(&self.0).load(at, out);
        }
        load_many(&self.0, at, out);
    }

    #[cfg(target_arch = "x86_64")]
    fn copy_words(&self, at: usize, source: &[AtomicU64]) -> bool {
        string::copy(&self.0[at / 8..][..source.len()], source);
        true
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.0.fetch(at, Use::Read);
    }

    #[inline]
    fn prefetch_l2(&self, at: usize) {
        self.0.fetch(at, Use::Later);
    }

    #[inline]
    fn prefetch_write(&self, word: &AtomicU64) {
        fetch_line(std::ptr::from_ref(word).cast(), Use::Write);
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;
    use am_core::segment::Segment;

    /// Every alignment of both ends, around the least length for string instructions.
    #[test]
    fn copies_of_every_alignment_are_exact() {
        let mapping = Mapping::wiped_on_fork(4096).expect("there is memory");
        let memory = ShmMemory::new(View::new(&mapping, 0, 512));
        let bytes: Vec<u8> = (0..2048u32).map(|byte| (byte % 251) as u8 + 1).collect();
        for len in [1008, 1023, 1024, 1025, 1031, 1400] {
            for (at, from) in (0..9).flat_map(|at| [(at, 0), (at, 3), (at + 64, 8)]) {
                memory.store(0, &[0; 2048]);
                memory.store(at, &bytes[from..from + len]);
                let mut all = [0; 2048];
                Words(&memory.0).load(0, &mut all);
                assert!(all[at..at + len] == bytes[from..from + len], "{len} bytes at {at}");
                assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0), "{len} bytes at {at}");
                let mut found = vec![0; len + 16];
                memory.load(at, &mut found[from % 8..][..len]);
                assert!(found[from % 8..][..len] == bytes[from..from + len], "{len} bytes from {at}");
            }
        }
    }

    /// Of every alignment of both ends, and lengths around a line and far beyond.
    #[test]
    fn copies_past_the_caches_are_exact() {
        let mapping = Mapping::wiped_on_fork(8192).expect("there is memory");
        let view: View<AtomicU64> = View::new(&mapping, 0, 1024);
        let bytes: Vec<u8> = (0..8192u32).map(|byte| (byte % 251) as u8 + 1).collect();
        for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 1000, 4096, 7001] {
            for (at, from) in [(0, 0), (0, 1), (1, 0), (8, 16), (17, 5), (63, 64), (64, 3), (100, 0), (1024, 9)] {
                view.copy_in(0, &[0; 8192]);
                view.copy_past(at, &bytes[from..from + len]);
                let mut all = [0; 8192];
                view.copy_out(0, &mut all);
                assert!(all[at..at + len] == bytes[from..from + len], "{len} bytes at {at}");
                assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0), "{len} bytes at {at}");
            }
        }
        // Up to the very end, and not beyond.
        view.copy_past(8192 - 200, &bytes[..200]);
        let beyond = std::panic::catch_unwind(|| view.copy_past(8192 - 199, &bytes[..200]));
        assert!(beyond.is_err());
    }

    /// From segment to segment, of every alignment of both ends.
    #[test]
    fn copies_between_segments_are_exact() {
        let mappings = [1, 2].map(|_| Mapping::wiped_on_fork(8192).expect("there is memory"));
        let segments = mappings.map(|mapping| Segment::new(ShmMemory::new(View::new(&mapping, 0, 1024)), 8192));
        let [from, to] = &segments;
        let bytes: Vec<u8> = (0..8192u32).map(|byte| (byte % 251) as u8 + 1).collect();
        from.write(0, &bytes).unwrap();
        for (len, offset, at) in
            [(1024, 0, 0), (1031, 8, 16), (4099, 24, 8), (1032, 3, 8), (1032, 8, 5), (7, 1, 2)]
        {
            to.write(0, &[0; 8192]).unwrap();
            from.copy_to(offset, to, at, len).unwrap();
            let (mut all, end) = (vec![0; 8192], at as usize + len);
            to.read(0, &mut all).unwrap();
            assert!(all[at as usize..end] == bytes[offset as usize..][..len], "{len} bytes from {offset} to {at}");
            let around = all[..at as usize].iter().chain(&all[end..]);
            assert!(around.into_iter().all(|byte| *byte == 0), "{len} bytes from {offset} to {at}");
        }
    }

    /// Words that one thread stores while another loads them are those before or behind, none a part of each. The
    /// manual does not promise it of string instructions; processors do it.
    #[test]
    fn words_are_whole() {
        let mapping = Mapping::wiped_on_fork(8192).expect("there is memory");
        let memory = ShmMemory::new(View::new(&mapping, 0, 1024));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for turn in 0..4000u32 {
                    memory.store(0, &[turn as u8; 8192]);
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let mut found = [0; 8192];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                memory.load(0, &mut found);
                let torn = found.as_chunks::<8>().0.iter().find(|word| word.iter().any(|byte| *byte != word[0]));
                assert_eq!(torn, None);
            }
        });
    }
}
