//! Owns the memory that the bench processes share for the raw baselines: one anonymous file, mapped by
//! every process, viewed as atomics. All `unsafe` of the bench stands here.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// One cache line of eight words, the unit in which the raw baselines talk.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

/// Bytes of one [`Line`].
pub(crate) const LINE_BYTES: usize = 64;

/// A mapping of an anonymous memory file, which child processes open through the descriptor of their parent.
pub(crate) struct Shared {
    map: MmapRaw,
    file: File,
}

impl Shared {
    /// Creates a zeroed file of `bytes` bytes and maps it. Pages are only taken once they are touched.
    pub(crate) fn create(bytes: usize, huge_pages: bool) -> io::Result<Self> {
        let fd = memfd_create("shm-bench", MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(fd);
        file.set_len(bytes as u64)?;
        Self::map(file, huge_pages)
    }

    /// Maps the file behind descriptor `fd` of the process `owner`, which holds it open.
    pub(crate) fn open(owner: u32, fd: RawFd, huge_pages: bool) -> io::Result<Self> {
        Self::map(open_descriptor(owner, fd)?, huge_pages)
    }

    fn map(file: File, huge_pages: bool) -> io::Result<Self> {
        let map = MmapOptions::new().map_raw(&file)?;
        if huge_pages {
            // A kernel without huge pages for shared memory refuses; the baseline then runs on small ones.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Self { map, file })
    }

    /// The descriptor number, by which other processes open the same memory.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The `count` cache lines from byte `offset` on.
    ///
    /// # Panics
    /// If the range is not inside the mapping or `offset` is not a multiple of 64.
    pub(crate) fn lines(&self, offset: usize, count: usize) -> &[Line] {
        self.check(offset, count * LINE_BYTES);
        // SAFETY: `check` holds the offset inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: the range is mapped for as long as `self` lives, aligned to 64 (the mapping to a page,
        // the offset checked), and `Line` is made of atomics only, so that any process may write it at any time.
        unsafe { std::slice::from_raw_parts(start.cast::<Line>(), count) }
    }

    /// The `count` 64-bit words from byte `offset` on.
    ///
    /// # Panics
    /// If the range is not inside the mapping or `offset` is not a multiple of 64.
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.check(offset, count * 8);
        // SAFETY: `check` holds the offset inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: as in `lines`: mapped, aligned, and atomics only.
        unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), count) }
    }

    /// Copies `source` to byte `offset` of the mapping, as fast as `memcpy` goes.
    ///
    /// The caller's protocol keeps every other process off the range meanwhile.
    ///
    /// # Panics
    /// If the range is not inside the mapping or `offset` is not a multiple of 64.
    pub(crate) fn copy_in(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        // SAFETY: `check` holds the offset inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: the range is mapped and writable, `source` is private memory and cannot overlap it, and the
        // baselines pass the range to and fro with Release and Acquire, so that no other process touches it now.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), start, source.len()) }
    }

    /// Copies from byte `offset` of the mapping into `target`.
    ///
    /// The caller's protocol keeps every writer off the range meanwhile.
    ///
    /// # Panics
    /// If the range is not inside the mapping or `offset` is not a multiple of 64.
    pub(crate) fn copy_out(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        // SAFETY: `check` holds the offset inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(offset) };
        // SAFETY: the range is mapped and readable, `target` is private memory and cannot overlap it, and the
        // baselines pass the range to and fro with Release and Acquire, so that no other process writes it now.
        unsafe { std::ptr::copy_nonoverlapping(start, target.as_mut_ptr(), target.len()) }
    }

    /// Copies from byte `from` of the mapping to byte `to` of it.
    ///
    /// The caller's protocol keeps every writer off both ranges meanwhile, and every reader off the second.
    ///
    /// # Panics
    /// If a range is not inside the mapping, they overlap, or one does not begin at a multiple of 64.
    pub(crate) fn copy_within(&self, from: usize, to: usize, bytes: usize) {
        self.check(from, bytes);
        self.check(to, bytes);
        assert!(from.abs_diff(to) >= bytes, "{bytes} bytes at {from} and {to} overlap");
        // SAFETY: `check` holds the offset inside the mapping.
        let source = unsafe { self.map.as_mut_ptr().add(from) };
        // SAFETY: as above.
        let target = unsafe { self.map.as_mut_ptr().add(to) };
        // SAFETY: both ranges are mapped and do not overlap, and the baselines pass them to and fro with Release
        // and Acquire, so that no other process writes the first or touches the second now.
        unsafe { std::ptr::copy_nonoverlapping(source.cast_const(), target, bytes) }
    }

    fn check(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes).expect("range fits the address space");
        assert!(end <= self.map.len(), "bytes {offset}..{end} exceed the mapping of {} bytes", self.map.len());
        assert_eq!(offset % LINE_BYTES, 0, "offset {offset} is not a multiple of a cache line");
    }
}

/// Opens what descriptor `fd` of the process `owner` refers to. Memory made after a child was started reaches it
/// this way too.
pub(crate) fn open_descriptor(owner: u32, fd: RawFd) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{owner}/fd/{fd}"))
}

/// Takes up a descriptor that this process inherited from its parent, once.
pub(crate) fn inherited(fd: RawFd) -> OwnedFd {
    // SAFETY: the parent has made the descriptor before it started this process and says its number once, so that
    // nobody else owns it here.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sleeps while the low half of `word` is `expected`, or until somebody is woken for it; or not at all.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u32) {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is mapped and aligned, the system reads its low half alone, and there is no time-out to
    // read.
    unsafe { libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAIT, expected, forever) };
}

/// Wakes whoever sleeps at `word`.
pub(crate) fn futex_wake(word: &AtomicU64) {
    // SAFETY: the system takes the address as a name, and reads nothing.
    unsafe { libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAKE, i32::MAX) };
}

fn low_half(word: &AtomicU64) -> *const u32 {
    let halves = word.as_ptr().cast_const().cast::<u32>();
    halves.wrapping_add(usize::from(cfg!(target_endian = "big")))
}
