//! A rank's part of the table, in memory of its own or in its segment, and the check of its final content.

use super::hpcc::Distribution;
use active_messages::shm::{prefetch, prefetch_l2};
use memmap2::MmapMut;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::FromBytes;

/// Words that only the rank holding this changes for now.
pub trait Words {
    /// The number of words.
    fn count(&self) -> usize;

    /// `T[index] ^= value`; without effect when there is no such word.
    fn xor(&mut self, index: u64, value: u64);

    /// The word at `index`.
    fn read(&self, index: usize) -> u64;

    /// Changes the word at `index`.
    fn write(&mut self, index: usize, value: u64);
}

impl Words for &mut [u64] {
    fn count(&self) -> usize {
        <[u64]>::len(self)
    }

    #[inline(always)]
    fn xor(&mut self, index: u64, value: u64) {
        if let Some(word) = self.get_mut(index as usize) {
            *word ^= value;
        }
    }

    fn read(&self, index: usize) -> u64 {
        self[index]
    }

    fn write(&mut self, index: usize, value: u64) {
        self[index] = value;
    }
}

/// Words that other ranks could change too: as long as none does, relaxed loads and stores suffice.
impl Words for &[AtomicU64] {
    fn count(&self) -> usize {
        <[AtomicU64]>::len(self)
    }

    #[inline(always)]
    fn xor(&mut self, index: u64, value: u64) {
        if let Some(word) = self.get(index as usize) {
            word.store(word.load(Relaxed) ^ value, Relaxed);
        }
    }

    fn read(&self, index: usize) -> u64 {
        self[index].load(Relaxed)
    }

    fn write(&mut self, index: usize, value: u64) {
        self[index].store(value, Relaxed);
    }
}

/// Memory for `words` words that only this process sees, in huge pages where the system grants them: random access
/// to more memory than the address translation caches cover is slow.
///
/// The memory lives as long as the process, so that it is a plain slice in the rank's state.
///
/// # Errors
/// What the system says when it has not that much memory.
pub fn allocate(words: u64) -> io::Result<&'static mut [u64]> {
    let map = MmapMut::map_anon(usize::try_from(8 * words).map_err(io::Error::other)?)?;
    #[cfg(target_os = "linux")]
    {
        // A system without huge pages refuses the advice, and small ones serve too.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    let bytes: &'static mut MmapMut = Box::leak(Box::new(map));
    Ok(<[u64]>::mut_from_bytes(bytes).expect("a map of whole words starts at a page"))
}

/// The part of the table that one rank owns.
#[derive(Debug)]
pub struct Part<W> {
    words: W,
    mask: u64,
    first: u64,
}

impl Part<&'static mut [u64]> {
    /// No part at all, for a rank whose table lies elsewhere.
    pub fn none() -> Self {
        Self { words: &mut [], mask: 0, first: 0 }
    }
}

impl<W: Words> Part<W> {
    /// The part of `rank` in `words`, filled with `T[i] = i`.
    ///
    /// # Panics
    /// If there are not as many words as the rank owns.
    pub fn new(words: W, distribution: &Distribution, rank: u32) -> Self {
        let owned = distribution.owned(rank);
        assert_eq!(words.count() as u64, owned.end - owned.start, "the memory is as large as the part");
        let mut part = Self { words, mask: distribution.words() - 1, first: owned.start };
        for index in 0..part.words.count() {
            part.words.write(index, part.first + index as u64);
        }
        part
    }

    /// Applies an update; without effect when another rank owns its word.
    #[inline(always)]
    pub fn apply(&mut self, update: u64) {
        // A word before the first becomes an index far beyond the last.
        self.words.xor((update & self.mask).wrapping_sub(self.first), update);
    }

    /// Counts the words with `T[i] != i`.
    pub fn errors(&self) -> u64 {
        let wrong = |index: &usize| self.words.read(*index) != self.first + *index as u64;
        (0..self.words.count()).filter(wrong).count() as u64
    }
}

/// Updates on their way into the table: each is applied once [`DEFERRED`] others have come behind it, and its word
/// is fetched meanwhile.
#[derive(Debug)]
pub struct Deferred {
    /// The latest updates; zeros, which change nothing, before there are as many.
    updates: [u64; DEFERRED],
    oldest: usize,
}

/// How many updates before it is applied an update's word is fetched into the first cache: it is in the second one
/// by then, which has room for more that are under way.
const NEAR: usize = 24;

/// How many updates wait at most. They count towards the look-ahead of this rank.
pub const DEFERRED: usize = 128;

impl Default for Deferred {
    fn default() -> Self {
        Self { updates: [0; DEFERRED], oldest: 0 }
    }
}

impl Deferred {
    /// Takes in updates, and applies as many of the oldest.
    #[inline(always)]
    pub fn push(&mut self, updates: &[u64], part: &mut Part<&'static mut [u64]>) {
        // All in variables of this function, so that no store to the table makes the compiler read them again.
        let (words, mask, first, mut oldest) = (&mut *part.words, part.mask, part.first, self.oldest);
        // As in `Part::apply`.
        let index = |update: u64| (update & mask).wrapping_sub(first) as usize;
        for update in updates {
            if let Some(word) = words.get(index(*update)) {
                prefetch_l2(word);
            }
            let due = std::mem::replace(&mut self.updates[oldest], *update);
            oldest = (oldest + 1) % DEFERRED;
            if let Some(word) = words.get(index(self.updates[(oldest + NEAR) % DEFERRED])) {
                prefetch(word);
            }
            if let Some(word) = words.get_mut(index(due)) {
                *word ^= due;
            }
        }
        self.oldest = oldest;
    }

    /// Applies all that wait, in the order in which they came.
    pub fn apply(&mut self, part: &mut Part<&'static mut [u64]>) {
        self.push(&[0; DEFERRED], part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_access::hpcc::Stream;

    /// Runs the whole stream serially on three ranks' parts, forgets `lost` updates, and verifies.
    fn errors_after_losing(lost: u64) -> u64 {
        let distribution = Distribution::new(10, 3);
        (0..3)
            .map(|rank| {
                let owned = distribution.owned(rank);
                let words = allocate(owned.end - owned.start).expect("memory");
                let mut part = Part::new(words, &distribution, rank);
                Stream::new(1_000_000_007, 0..4096 - lost).for_each(|update| part.apply(update));
                Stream::new(1_000_000_007, 0..4096).for_each(|update| part.apply(update));
                part.errors()
            })
            .sum()
    }

    #[test]
    fn a_lost_update_is_an_error_and_none_is_none() {
        assert_eq!(errors_after_losing(0), 0);
        assert_eq!(errors_after_losing(1), 1);
        assert!(errors_after_losing(100) > 50);
    }

    #[test]
    fn deferred_updates_are_applied_once_each() {
        let distribution = Distribution::new(8, 1);
        let mut part = Part::new(allocate(256).expect("memory"), &distribution, 0);
        let mut deferred = Deferred::default();
        for update in Stream::new(5, 0..1000) {
            deferred.push(&[update], &mut part);
        }
        deferred.apply(&mut part);
        deferred.apply(&mut part);
        Stream::new(5, 0..1000).for_each(|update| part.apply(update));
        assert_eq!(part.errors(), 0);
    }

    #[test]
    fn shared_and_own_words_behave_alike() {
        let shared: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let distribution = Distribution::new(8, 4);
        let mut shared = Part::new(shared.as_slice(), &distribution, 1);
        let mut own = Part::new(allocate(64).expect("memory"), &distribution, 1);
        for update in Stream::new(0, 0..1000) {
            shared.apply(update);
            own.apply(update);
        }
        assert!((0..64).all(|index| shared.words.read(index) == own.words[index]));
        assert_eq!(shared.errors(), own.errors());
    }
}
