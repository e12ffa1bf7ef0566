//! Memory that a provider reads and writes beside the program: segments, and the buffers of messages.
//!
//! A [`Region`] is a private mapping of zero pages that stays where it is until it is dropped, and that is empty
//! in forks. [`OfiMemory`] shows one as words, all of whose accesses are atomic, since peers write there at any
//! time. An [`Arena`] cuts one into buffers, and shows a buffer as bytes only while the provider does not have it.
//! [`Contexts`] are the provider's alone. [`Process`] tells a fork.

use am_core::Memory;
use memmap2::{MmapMut, MmapRaw};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Zero pages that do not move.
pub(crate) struct Region {
    map: MmapRaw,
}

impl Region {
    /// A region of at least `len` bytes, whole pages, none of which exists before it is touched. In a fork all of
    /// it is zero: the kernel copies none of its pages, so that those that a provider has pinned stay the
    /// parent's.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let page = 4096;
        let len = len.max(1).checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapRaw::from(MmapMut::map_anon(len)?);
        // SAFETY: the range is one whole mapping, which is alive; the advice changes nothing in this process.
        let outcome = unsafe { libc::madvise(map.as_mut_ptr().cast(), map.len(), libc::MADV_WIPEONFORK) };
        if outcome == 0 { Ok(Self { map }) } else { Err(io::Error::last_os_error()) }
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        let start = self.start().cast::<AtomicU64>();
        // SAFETY: the mapping is aligned to pages, zero at first, and lives as long as `self`; whoever else in
        // this process touches it does so through atomics. A peer's bytes arrive by the provider, which is not
        // part of the program: a word may be torn then, and every bit pattern is a valid word.
        unsafe { std::slice::from_raw_parts(start, self.len() / 8) }
    }
}

/// The memory of a segment that a provider writes to.
#[derive(Clone)]
pub struct OfiMemory(Arc<Region>);

impl OfiMemory {
    /// Memory of at least `len` zero bytes, none of which exists before it is touched.
    ///
    /// # Errors
    /// What the system says if it has no room.
    pub fn new(len: usize) -> io::Result<Self> {
        Ok(Self(Arc::new(Region::new(len)?)))
    }
}

impl fmt::Debug for OfiMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfiMemory").field("bytes", &self.0.len()).finish_non_exhaustive()
    }
}

impl Memory for OfiMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Buffers of one size, each of which belongs either to the program or to the provider.
pub(crate) struct Arena {
    region: Region,
    bytes: usize,
    stride: usize,
    lent: Vec<bool>,
}

impl Arena {
    /// `count` buffers of `bytes` bytes, all of them the program's.
    pub(crate) fn new(count: usize, bytes: usize) -> io::Result<Self> {
        // A line apart from a multiple of pages, so that the beginnings of buffers do not compete for the same
        // cache sets.
        let stride = bytes.next_multiple_of(64) + 64;
        let whole = stride.checked_mul(count).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { region: Region::new(whole)?, bytes, stride, lent: vec![false; count] })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn own(&self, index: usize) -> *mut u8 {
        assert!(!self.lent[index], "buffer {index} is with the provider");
        self.region.start().wrapping_add(index * self.stride)
    }

    /// A buffer's bytes.
    ///
    /// # Panics
    /// If the provider has it.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let start = self.own(index);
        // SAFETY: the buffer lies inside the region, which outlives the borrow; it is the program's (`own`), so
        // nobody writes to it before it is lent, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(start, self.bytes) }
    }

    /// Some bytes of a buffer that the provider may have, and has said to have filled.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    ///
    /// # Safety
    /// The provider must not write to these bytes any more before the buffer is lent again, which takes `&mut
    /// self`.
    pub(crate) unsafe fn filled(&self, index: usize, at: usize, len: usize) -> &[u8] {
        assert!(index < self.lent.len() && at <= self.bytes && len <= self.bytes - at, "bytes of a buffer");
        let start = self.region.start().wrapping_add(index * self.stride + at);
        // SAFETY: the bytes lie inside the region, which outlives the borrow; nobody writes to them, as the caller
        // says.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Where in a buffer an address is; nothing of an address elsewhere.
    pub(crate) fn offset(&self, index: usize, address: *const u8) -> Option<usize> {
        let start = self.region.start() as usize + index * self.stride;
        (address as usize).checked_sub(start).filter(|at| *at <= self.bytes)
    }

    /// A buffer's bytes, to be written.
    ///
    /// # Panics
    /// If the provider has it.
    pub(crate) fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let start = self.own(index);
        // SAFETY: as in `bytes`; and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }

    /// Hands a buffer to the provider: where it is, and its size in bytes.
    ///
    /// # Panics
    /// If the provider has it.
    pub(crate) fn lend(&mut self, index: usize) -> (*mut u8, usize) {
        let start = self.own(index);
        self.lent[index] = true;
        (start, self.bytes)
    }

    /// The provider is done with a buffer.
    ///
    /// # Panics
    /// If it did not have it.
    pub(crate) fn take_back(&mut self, index: usize) {
        assert!(std::mem::take(&mut self.lent[index]), "buffer {index} was not with the provider");
    }

    /// Whether the provider has a buffer.
    pub(crate) fn is_lent(&self, index: usize) -> bool {
        self.lent[index]
    }
}

/// Places that a provider writes to while an operation is under way, and whose addresses name operations. Nothing
/// else is made of them: no reference to one ever exists.
pub(crate) struct Contexts {
    region: Region,
    count: u32,
}

impl Contexts {
    /// Bytes of each: those of C's `struct fi_context2`.
    pub(crate) const BYTES: usize = 64;

    /// So many places.
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        let bytes = (count as usize).checked_mul(Self::BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { region: Region::new(bytes)?, count })
    }

    /// Where a place is.
    pub(crate) fn place(&self, index: u32) -> *mut c_void {
        assert!(index < self.count, "there are {} contexts", self.count);
        self.region.start().wrapping_add(index as usize * Self::BYTES).cast()
    }

    /// The place that begins at an address; nothing of any other address.
    pub(crate) fn index(&self, context: *mut c_void) -> Option<u32> {
        let from = (context as usize).checked_sub(self.region.start() as usize)?;
        let index = u32::try_from(from / Self::BYTES).ok()?;
        (from % Self::BYTES == 0 && index < self.count).then_some(index)
    }
}

/// The process that something belongs to. Asking costs a load: in a fork the kernel has wiped the word.
pub(crate) struct Process(Region);

impl Process {
    /// The process that asks.
    pub(crate) fn current() -> io::Result<Self> {
        let region = Region::new(8)?;
        region.words()[0].store(1, Relaxed);
        Ok(Self(region))
    }

    /// Whether another process asks: a fork of it.
    #[inline]
    pub(crate) fn is_other(&self) -> bool {
        // Relaxed: it is written before anybody else can ask.
        self.0.words()[0].load(Relaxed) == 0
    }
}

// SAFETY: a region is memory of this process; what is reached through it is atomic (`words`), guarded by borrows
// (`Arena`), or an address alone (`Contexts`).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Segment;

    #[test]
    fn segments_read_what_was_written() {
        let segment = Segment::new(OfiMemory::new(10_000).unwrap(), 10_000);
        segment.write(9_990, &[7; 10]).unwrap();
        let mut out = [1; 20];
        segment.read(9_980, &mut out).unwrap();
        assert_eq!((&out[..10], &out[10..]), (&[0; 10][..], &[7; 10][..]));
        assert!(OfiMemory::new(0).is_ok());
    }

    #[test]
    fn contexts_are_told_by_their_addresses() {
        let contexts = Contexts::new(3).unwrap();
        for index in 0..3 {
            assert_eq!(contexts.index(contexts.place(index)), Some(index));
        }
        let beyond = contexts.place(2).wrapping_byte_add(Contexts::BYTES);
        let strangers = [std::ptr::null_mut(), contexts.place(1).wrapping_byte_add(8), beyond];
        assert_eq!(strangers.map(|place| contexts.index(place)), [None; 3]);
        assert!(!Process::current().unwrap().is_other());
    }

    #[test]
    fn buffers_do_not_overlap() {
        let mut arena = Arena::new(3, 100).unwrap();
        (0..3).for_each(|index| arena.bytes_mut(index).fill(index as u8 + 1));
        assert!((0..3).all(|index| arena.bytes(index) == [index as u8 + 1; 100]));
    }

    #[test]
    #[should_panic(expected = "buffer 1 is with the provider")]
    fn a_lent_buffer_is_not_shown() {
        let mut arena = Arena::new(2, 8).unwrap();
        arena.lend(1);
        arena.bytes(0);
        arena.bytes(1);
    }
}
