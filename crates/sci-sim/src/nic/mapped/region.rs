//! Memory shared between processes: a mapped file and typed views into it. All `unsafe` of the crate is here.
//!
//! What makes views sound: they show atomics only, whose every bit pattern is valid and which may change at any
//! time; they lie inside the mapping, checked when they are made; and they keep the mapping alive. Bytes go in and
//! out as relaxed atomics of one or eight bytes, so that a peer that writes at the same time can make them wrong,
//! nothing else.
//!
//! A mapping is as long as its file was when it was made. If somebody makes the file shorter later, access ends
//! the process with `SIGBUS`. Nothing in this crate shortens a file that is mapped: they are made at their full
//! size under a name that nobody opens, and go by being unlinked. Against other programs that write to the job's
//! directory its permissions help.

use crate::nic::flag::{Flag, Sleeper};
use am_core::segment::Memory;
use memmap2::{MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// Types that memory of unknown content, changed by others at any time, may be seen as.
///
/// # Safety
/// The type consists of atomics only, without padding: every bit pattern is valid and shared mutation is allowed.
unsafe trait Shareable {}

// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU8 {}
// SAFETY: an atomic integer.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: a transparent wrapper of an atomic integer.
unsafe impl Shareable for Flag {}
// SAFETY: a transparent wrapper of an atomic integer.
unsafe impl Shareable for Sleeper {}

/// A mapped file, or a part of it, that other processes may see and write too. Clones and parts see the same
/// memory.
#[derive(Clone)]
pub struct View {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory where it is.
    mapping: Arc<MmapRaw>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: a view is a shared reference to atomics plus the owner of their memory; both may go to another thread.
unsafe impl Send for View {}
// SAFETY: as above; all access through a shared view is atomic.
unsafe impl Sync for View {}

impl View {
    /// Maps `len` bytes from the start of a file, shared, to be read and written.
    ///
    /// # Errors
    /// What the system says; and files that are shorter.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Self> {
        let found = file.metadata()?.len();
        if len == 0 || found < len as u64 {
            let text = format!("{found} bytes where {len} should be");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mapping = MmapOptions::new().len(len).map_raw(file)?;
        let start = NonNull::new(mapping.as_mut_ptr()).expect("a mapping is never at address zero");
        Ok(Self { start, len, mapping: Arc::new(mapping) })
    }

    /// A part of it.
    ///
    /// # Panics
    /// If it is not inside, or does not begin at a multiple of 8.
    pub(super) fn part(&self, at: usize, len: usize) -> Self {
        assert!(at.is_multiple_of(8), "a part begins at a multiple of 8");
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "a part lies inside its view");
        // Wrapping arithmetic needs no `unsafe`, and the sum lies inside the mapping.
        let start =
            NonNull::new(self.start.as_ptr().wrapping_add(at)).expect("inside a mapping nothing is at zero");
        Self { start, len, mapping: Arc::clone(&self.mapping) }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `count` elements from byte `at` on.
    #[inline]
    fn slice<T: Shareable>(&self, at: usize, count: usize) -> &[T] {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
        assert!(end.is_some_and(|end| end <= self.len), "bytes from {at} on lie in {} bytes", self.len);
        let start = self.start.as_ptr().wrapping_add(at).cast::<T>();
        assert!(start.is_aligned(), "what lies at byte {at} is aligned");
        // SAFETY: range and alignment were just checked, the mapping lives as long as `self`, `T` is `Shareable`.
        unsafe { std::slice::from_raw_parts(start, count) }
    }

    /// The word at a byte offset, a multiple of 8.
    #[inline]
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        &self.slice(at, 1)[0]
    }

    /// The flag at a byte offset.
    #[inline]
    pub(super) fn flag(&self, at: usize) -> &Flag {
        &self.slice(at, 1)[0]
    }

    /// The sleeping word at a byte offset, a multiple of 4.
    #[inline]
    pub(super) fn sleeper(&self, at: usize) -> &Sleeper {
        &self.slice(at, 1)[0]
    }

    /// Divides a range into bytes up to a word, whole words, and the bytes behind them.
    #[inline]
    fn pieces(&self, at: usize, len: usize) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
        let skew = (at.wrapping_neg() % 8).min(len);
        let words = (len - skew) / 8;
        let tail = len - skew - 8 * words;
        let behind = at + skew + 8 * words;
        (
            self.slice(at, skew),
            if words == 0 { &[] } else { self.slice(at + skew, words) },
            self.slice(behind, tail),
        )
    }

    /// Copies to another place, in order.
    pub(super) fn copy(&self, at: usize, to: &Self, goal: usize, len: usize) {
        let mut buffer = [0; 1024];
        for done in (0..len).step_by(buffer.len()) {
            let some = &mut buffer[..(len - done).min(1024)];
            self.load(at + done, some);
            to.store(goal + done, some);
        }
    }
}

impl Memory for View {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.slice(0, self.len / 8)
    }

    #[inline]
    fn store(&self, at: usize, source: &[u8]) {
        let (head, words, tail) = self.pieces(at, source.len());
        let (first, rest) = source.split_at(head.len());
        let (whole, last) = rest.as_chunks::<8>();
        head.iter().zip(first).for_each(|(byte, value)| byte.store(*value, Relaxed));
        words.iter().zip(whole).for_each(|(word, value)| word.store(u64::from_ne_bytes(*value), Relaxed));
        tail.iter().zip(last).for_each(|(byte, value)| byte.store(*value, Relaxed));
    }

    #[inline]
    fn load(&self, at: usize, out: &mut [u8]) {
        let (head, words, tail) = self.pieces(at, out.len());
        let (first, rest) = out.split_at_mut(head.len());
        let (whole, last) = rest.as_chunks_mut::<8>();
        first.iter_mut().zip(head).for_each(|(value, byte)| *value = byte.load(Relaxed));
        whole.iter_mut().zip(words).for_each(|(value, word)| *value = word.load(Relaxed).to_ne_bytes());
        last.iter_mut().zip(tail).for_each(|(value, byte)| *value = byte.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(len: u64) -> File {
        let path = std::env::temp_dir().join(format!(
            "sci-view-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn views_stay_inside_their_file() {
        let file = file(100);
        assert!(View::new(&file, 101).is_err());
        assert!(View::new(&file, 0).is_err());
        let view = View::new(&file, 100).unwrap();
        assert_eq!(view.part(96, 4).len(), 4);
        let outside = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        assert!(outside(&|| drop(view.part(96, 5))));
        assert!(outside(&|| drop(view.part(4, 4))));
        assert!(outside(&|| _ = view.word(96)));
        assert!(outside(&|| _ = view.word(4)));
        assert!(outside(&|| _ = view.flag(100)));
        assert!(outside(&|| view.store(usize::MAX, &[0; 3])));
        assert!(outside(&|| view.store(99, &[0; 2])));
    }

    proptest! {
        #[test]
        fn stores_touch_their_bytes_alone(
            writes in prop::collection::vec((0usize..60, prop::collection::vec(any::<u8>(), 0..30)), 1..20)
        ) {
            let (view, mut model) = (View::new(&file(96), 96).unwrap(), [0u8; 96]);
            for (at, bytes) in &writes {
                view.store(*at, bytes);
                model[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            let mut all = [0; 96];
            view.load(0, &mut all);
            prop_assert_eq!(all, model);
            let mut some = [0; 41];
            view.load(13, &mut some);
            prop_assert_eq!(&some, &model[13..54]);
        }
    }
}
