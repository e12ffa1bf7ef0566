//! Memory of a process that its node's interface can read and write.

use am_core::segment::Memory;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Memory of one rank, zero at first. An interface reads and writes it at the virtual times at which the hardware
/// would, where the rank has made it known to it. Clones and parts are handles to the same memory.
///
/// Access costs no virtual time and does not wait for it: a rank that has run ahead of the machine sees what had
/// been written when it last looked at its interface, and a write is visible to the interface at once. Use
/// [`Handle::read`](crate::Handle::read) and [`Handle::write`](crate::Handle::write) to let everything earlier
/// happen first.
///
/// ```
/// let memory = fabric_sim::HostMemory::new(100);
/// memory.write(7, b"words");
/// let mut found = [0; 5];
/// memory.read(7, &mut found);
/// assert_eq!((&found, memory.len()), (b"words", 100));
/// ```
#[derive(Clone)]
pub struct HostMemory {
    words: Rc<Box<[AtomicU64]>>,
    /// The word that it begins with.
    first: usize,
    len: usize,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

impl PartialEq for HostMemory {
    /// Whether it is the same memory.
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.words, &other.words) && (self.first, self.len) == (other.first, other.len)
    }
}

impl Eq for HostMemory {}

/// Memory of fewer bytes may as well be cleared.
const SMALL: usize = 256 << 10;
/// Blocks of so many bytes always come from the system, and go back to it.
const FRESH: usize = (32 << 20) + (64 << 10);

impl HostMemory {
    /// Memory of `len` bytes. Pages that are never touched take no room.
    ///
    /// # Panics
    /// If there is no such amount of memory.
    pub fn new(len: usize) -> Self {
        Self::try_new(len).expect("there is memory for a simulated rank's memory")
    }

    /// Memory of `len` bytes; none if there is no such amount. Pages that are never touched take no room.
    pub fn try_new(len: usize) -> Option<Self> {
        // What an allocator has had before it must clear, and that touches every page. glibc's keeps freed blocks
        // of up to 32 MiB.
        let room = if len < SMALL { len } else { len.max(FRESH) };
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(room.div_ceil(8)).ok()?;
        Some(Self { words: Rc::new(words), first: 0, len })
    }

    /// The `len` bytes from `at` on, a multiple of 8, as memory of their own.
    ///
    /// # Panics
    /// If they are not all inside, or begin within a word.
    pub fn part(&self, at: usize, len: usize) -> Self {
        self.check(at, len);
        assert!(at.is_multiple_of(8), "a part begins with a word, not at byte {at}");
        Self { words: Rc::clone(&self.words), first: self.first + at / 8, len }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from an offset on.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        self.check(at, out.len());
        self.load(at, out);
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn write(&self, at: usize, source: &[u8]) {
        self.check(at, source.len());
        self.store(at, source);
    }

    /// The little-endian word at an offset that is a multiple of 8.
    ///
    /// # Panics
    /// If the offset is no multiple of 8, or outside the memory.
    pub fn word(&self, at: usize) -> u64 {
        self.check(at, 8);
        assert!(at.is_multiple_of(8), "offset {at} is a multiple of 8");
        self.words()[at / 8].load(Ordering::Relaxed)
    }

    /// One byte.
    ///
    /// # Panics
    /// If it is outside the memory.
    #[inline]
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len, "byte {at} lies in the memory of {} bytes", self.len);
        (self.words()[at / 8].load(Ordering::Relaxed) >> (at % 8 * 8)) as u8
    }

    /// Copies bytes to another place, block by block from the first on. Of no bytes the places do not matter.
    ///
    /// # Panics
    /// If either range is outside its memory.
    pub fn copy(&self, at: usize, to: &Self, goal: usize, len: usize) {
        if len == 0 {
            return;
        }
        self.check(at, len);
        to.check(goal, len);
        let mut buffer = [0; 256];
        for done in (0..len).step_by(buffer.len()) {
            let some = &mut buffer[..(len - done).min(256)];
            self.load(at + done, some);
            to.store(goal + done, some);
        }
    }

    fn check(&self, at: usize, len: usize) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at offset {at} lie in the memory of {} bytes", self.len);
    }
}

impl Memory for HostMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.len.div_ceil(8)]
    }

    /// One thread has this memory, so a word that is partly covered needs no locked instruction, which would wait
    /// until memory has answered to everything before it: with thousands of nodes that is long.
    #[inline]
    fn store(&self, at: usize, source: &[u8]) {
        let words = self.words();
        let (head, rest) = source.split_at(source.len().min((8 - at % 8) % 8));
        store_part(words, at, head);
        let first = (at + head.len()) / 8;
        let (whole, tail) = rest.as_chunks::<8>();
        for (word, value) in words[first..first + whole.len()].iter().zip(whole) {
            word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
        }
        store_part(words, 8 * (first + whole.len()), tail);
    }
}

/// Writes bytes into the word that all of them lie in.
#[inline]
fn store_part(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        let word = &words[at / 8];
        let mut all = word.load(Ordering::Relaxed).to_le_bytes();
        all[at % 8..at % 8 + bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(all), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beside_those_written_stay() {
        for at in 0..9 {
            for len in 0..20 {
                let memory = HostMemory::new(32);
                memory.write(0, &[7; 32]);
                memory.write(at, &vec![1; len]);
                let mut found = [0; 32];
                memory.read(0, &mut found);
                let expected: Vec<u8> =
                    (0..32).map(|byte| if (at..at + len).contains(&byte) { 1 } else { 7 }).collect();
                assert_eq!(found, *expected, "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn parts_are_the_same_memory() {
        let whole = HostMemory::new(100);
        let part = whole.part(16, 20);
        part.write(3, b"abc");
        assert_eq!((whole.byte(19), part.byte(5), part.len()), (b'a', b'c', 20));
        assert_eq!(part.part(0, 8).word(0), whole.word(16));
        assert_eq!(part, whole.part(16, 20));
        assert_ne!(part, whole.part(16, 12));
        assert_ne!(HostMemory::new(8), HostMemory::new(8));
    }

    #[test]
    fn copies_longer_than_a_block_arrive_whole() {
        let (from, to) = (HostMemory::new(1000), HostMemory::new(1000));
        let bytes: Vec<u8> = (0..700).map(|at| at as u8).collect();
        from.write(5, &bytes);
        from.copy(5, &to, 13, 700);
        let mut found = vec![0; 700];
        to.read(13, &mut found);
        assert_eq!(found, bytes);
        assert_eq!((to.byte(12), to.byte(713)), (0, 0));
    }

    #[test]
    #[should_panic(expected = "8 bytes at offset 96 lie in the memory of 100 bytes")]
    fn nothing_beyond_the_end_is_reached() {
        let _ = HostMemory::new(100).word(96);
    }
}
