//! A rank's part of the table, in memory of its own or in its segment, and the check of its final content.

use crate::hpcc::Distribution;
use memmap2::MmapMut;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::FromBytes;

/// The words a rank owns, changed by that rank alone while it holds this.
pub(crate) trait Words {
    /// The number of words.
    fn len(&self) -> usize;

    /// `T[index] ^= value`; without effect when the rank has no such word.
    fn xor(&mut self, index: u64, value: u64);

    /// `T[index]`.
    fn read(&self, index: usize) -> u64;

    /// `T[index] = value`.
    fn write(&mut self, index: usize, value: u64);
}

impl Words for [u64] {
    fn len(&self) -> usize {
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

/// Shared words, while no other rank changes them: plain loads and stores suffice.
impl Words for &[AtomicU64] {
    fn len(&self) -> usize {
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

/// Memory for `words` words that only this process sees, in huge pages where the system grants them: random access to
/// more memory than the address translation caches cover is slow.
///
/// The memory lives as long as the process, so that it is a plain slice in the rank's state.
///
/// # Errors
/// What the system says when it has not that much memory.
pub(crate) fn allocate(words: u64) -> io::Result<&'static mut [u64]> {
    let map = MmapMut::map_anon(usize::try_from(words * 8).map_err(io::Error::other)?)?;
    #[cfg(target_os = "linux")]
    if let Err(error) = map.advise(memmap2::Advice::HugePage) {
        // A kernel built without huge pages refuses the advice: small ones serve too.
        debug_assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let bytes: &'static mut MmapMut = Box::leak(Box::new(map));
    Ok(<[u64]>::mut_from_bytes(bytes).expect("a map of whole words starts at a page"))
}

/// Fills a rank's part with `T[i] = i`.
pub(crate) fn fill(words: &mut (impl Words + ?Sized), first: u64) {
    for index in 0..words.len() {
        words.write(index, first + index as u64);
    }
}

/// Applies those samples whose words this rank owns.
#[inline(always)]
pub(crate) fn repeat(
    words: &mut (impl Words + ?Sized),
    distribution: &Distribution,
    first: u64,
    samples: impl Iterator<Item = u64>,
) {
    for sample in samples {
        // A word before the rank's first becomes an index far beyond its last.
        words.xor(distribution.word(sample).wrapping_sub(first), sample);
    }
}

/// Counts the words with `T[i] != i`.
pub(crate) fn count_errors(words: &(impl Words + ?Sized), first: u64) -> u64 {
    (0..words.len())
        .filter(|index| words.read(*index) != first + *index as u64)
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpcc::Stream;

    /// Runs the whole stream serially on three ranks' parts, forgets `lost` updates, and verifies.
    fn errors_after_losing(lost: u64) -> u64 {
        let distribution = Distribution::new(10, 3);
        (0..3)
            .map(|rank| {
                let owned = distribution.owned(rank);
                let part = allocate(owned.end - owned.start).expect("memory");
                fill(part, owned.start);
                repeat(
                    part,
                    &distribution,
                    owned.start,
                    Stream::new(1_000_000_007, 0..4096 - lost),
                );
                repeat(
                    part,
                    &distribution,
                    owned.start,
                    Stream::new(1_000_000_007, 0..4096),
                );
                count_errors(part, owned.start)
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
    fn shared_and_own_words_behave_alike() {
        let shared: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let (mut shared, own) = (shared.as_slice(), allocate(64).expect("memory"));
        let distribution = Distribution::new(8, 4);
        fill(&mut shared, 64);
        fill(own, 64);
        repeat(&mut shared, &distribution, 64, Stream::new(0, 0..1000));
        repeat(own, &distribution, 64, Stream::new(0, 0..1000));
        assert!((0..64).all(|index| shared.read(index) == own[index]));
        assert_eq!(count_errors(&shared, 64), count_errors(own, 64));
    }
}
