//! The HPCC RandomAccess rules as plain functions: the update stream and how the table and the updates are shared
//! out.
//!
//! Nothing here knows of messages. The rules are those of the HPC Challenge benchmark: a table `T` of `2^n` words
//! of 64 bits with `T[i] = i`, and `4 * 2^n` updates `T[a mod 2^n] ^= a`, where `a` runs through the powers of `x`
//! in GF(2)\[x\] modulo `x^64 + x^2 + x + 1`.

use std::ops::Range;

/// The number of steps after which the stream repeats.
pub const PERIOD: u64 = 1_317_624_576_693_539_401;

/// How many updates, or samples of the stream, a process may hold back before they are sent or applied. Messages
/// that the transport has taken are sent, whether or not its queues still hold them.
pub const LOOK_AHEAD: usize = 1024;

/// The reduction polynomial without its leading term: `x^2 + x + 1`.
const POLYNOMIAL: u64 = 7;

/// `SQUARES[j]` is `x^(2j)`: the square of a sample is the XOR of these over the sample's set bits.
const SQUARES: [u64; 64] = {
    let mut squares = [0; 64];
    let mut power = 1;
    let mut j = 0;
    while j < 64 {
        squares[j] = power;
        power = step(step(power));
        j += 1;
    }
    squares
};

/// One step of the stream: multiplies by `x`. Branch-free, because the top bit is as good as random.
#[inline(always)]
pub const fn step(a: u64) -> u64 {
    (a << 1) ^ (((a as i64) >> 63) as u64 & POLYNOMIAL)
}

/// The sample `a(n)` in about 64 squarings, where `a(0) = 1`. `n` may be negative or beyond [`PERIOD`].
pub fn starts(n: i64) -> u64 {
    let n = n.rem_euclid(PERIOD as i64) as u64;
    if n == 0 {
        return 1;
    }
    let top = n.ilog2();
    let mut sample = 2;
    for bit in (0..top).rev() {
        sample = square(sample);
        if n >> bit & 1 == 1 {
            sample = step(sample);
        }
    }
    sample
}

/// Squares a sample in GF(2^64): squaring is linear there.
fn square(sample: u64) -> u64 {
    SQUARES.iter().enumerate().filter(|(j, _)| sample >> j & 1 == 1).fold(0, |sum, (_, term)| sum ^ term)
}

/// The samples of a section of the stream, in order.
#[derive(Clone, Debug)]
pub struct Stream {
    last: u64,
    left: u64,
}

impl Stream {
    /// The samples `a(seed + section.start + 1) ..= a(seed + section.end)`: the first sample ever used is `a(1)`.
    pub fn new(seed: u64, section: Range<u64>) -> Self {
        let position = (u128::from(seed) + u128::from(section.start)) % u128::from(PERIOD);
        Self { last: starts(position as i64), left: section.end - section.start }
    }

    /// How many samples are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next `most` samples, or those that are left.
    #[inline(always)]
    pub fn strip(&mut self, most: u64) -> impl Iterator<Item = u64> {
        let left = self.left;
        (0..most.min(left)).map(move |before| {
            self.last = step(self.last);
            // From the number of the sample, so that nothing is counted twice.
            self.left = left - 1 - before;
            self.last
        })
    }

    /// Makes the next `most` samples, or those that are left, in a loop that looks once how many these are;
    /// returns how many.
    #[inline(always)]
    pub fn make(&mut self, most: u64, mut each: impl FnMut(u64)) -> u64 {
        let (count, mut last) = (most.min(self.left), self.last);
        for _ in 0..count {
            last = step(last);
            each(last);
        }
        (self.left, self.last) = (self.left - count, last);
        count
    }
}

impl Iterator for Stream {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        self.last = step(self.last);
        Some(self.last)
    }
}

/// Which rank owns which words of the table, and which section of the stream each rank makes.
///
/// With `min = words / ranks` and `rest = words % ranks`, the first `rest` ranks own `min + 1` consecutive words
/// and the others `min`. For a power of two of ranks this is HPCC's shift-and-mask distribution.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    log2_words: u32,
    ranks: u64,
    /// Binary logarithm of the words of every rank, when the number of ranks is a power of two.
    log2_part: Option<u32>,
    min: u64,
    rest: u64,
}

impl Distribution {
    /// Shares `2^log2_words` words out to `ranks` ranks.
    ///
    /// # Panics
    /// When there are no ranks or more ranks than words: the command line rules both out.
    pub fn new(log2_words: u32, ranks: u32) -> Self {
        let (words, ranks) = (1_u64 << log2_words, u64::from(ranks));
        assert!((1..=words).contains(&ranks), "every rank owns a word");
        let log2_part = ranks.is_power_of_two().then(|| log2_words - ranks.ilog2());
        Self { log2_words, ranks, log2_part, min: words / ranks, rest: words % ranks }
    }

    /// The number of words of the whole table.
    pub fn words(&self) -> u64 {
        1 << self.log2_words
    }

    /// The word of the whole table that a sample updates.
    #[inline(always)]
    pub fn word(&self, sample: u64) -> u64 {
        sample & (self.words() - 1)
    }

    /// The first word of a rank; for `rank == ranks` the end of the table.
    #[inline(always)]
    pub fn first(&self, rank: u64) -> u64 {
        self.min * rank + rank.min(self.rest)
    }

    /// The words a rank owns.
    pub fn owned(&self, rank: u32) -> Range<u64> {
        self.first(u64::from(rank))..self.first(u64::from(rank) + 1)
    }

    /// The rank that owns a word, without a division.
    ///
    /// Where a shift does not do, `word * ranks / words` would be the owner if every rank owned exactly
    /// `words / ranks`. The ranks with a word more come first, so a rank's true first word is never before that
    /// estimate and the owner never after it.
    #[inline(always)]
    pub fn owner(&self, word: u64) -> u64 {
        if let Some(log2_part) = self.log2_part {
            return word >> log2_part;
        }
        let mut rank = (word * self.ranks) >> self.log2_words;
        while word < self.first(rank) {
            rank -= 1;
        }
        rank
    }

    /// Where every rank owns as many words and their number is a power of two: what a sample is masked with, and
    /// shifted by then, to become its owner. Loops test this once.
    pub fn shift(&self) -> Option<(u64, u32)> {
        self.log2_part.map(|log2_part| (self.words() - 1, log2_part))
    }

    /// The section of a stream of `updates` samples that a rank makes: in proportion to the words it owns, and
    /// therefore exactly `4 * first .. 4 * (first + owned)` in a full run.
    pub fn section(&self, rank: u32, updates: u64) -> Range<u64> {
        let share = |rank| {
            let part = u128::from(updates) * u128::from(self.first(rank));
            (part >> self.log2_words) as u64
        };
        share(u64::from(rank))..share(u64::from(rank) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_samples_are_reproduced() {
        for (n, sample) in [
            (0, 0x1),
            (1, 0x2),
            (63, 0x8000_0000_0000_0000),
            (64, 0x7),
            (65, 0xe),
            (100, 0x70_0000_0000),
            (1000, 0xb6b6_db00_0000_0103),
            (4096, 0x13),
            (1 << 20, 0x1_0001_0111),
            (1 << 30, 0x1_0001_0007),
            (1 << 40, 0x1_0000_0116),
            (1 << 50, 0x1_0001_0010),
            (-1, 0x8000_0000_0000_0003),
            (PERIOD as i64, 0x1),
        ] {
            assert_eq!(starts(n), sample, "starts({n})");
        }
    }

    #[test]
    fn seeking_agrees_with_stepping() {
        let mut sample = 1;
        for n in 0..10_000 {
            assert_eq!(starts(n), sample, "starts({n})");
            sample = step(sample);
        }
        assert_eq!(step(starts(-1)), 1);
    }

    #[test]
    fn the_published_final_tables_are_reproduced() {
        for (log2_words, xor, sum) in [
            (10, 0xffff_ffff_ffff_ffe1, 0xac38_4cb8_4247_d355),
            (12, 0x0001_ffe0, 0xa8a6_a9ff_d225_2eb4),
            (16, 0xffff_ffff_ffff_fe19, 0xe895_4eb0_3f19_91ab),
        ] {
            let words = 1_u64 << log2_words;
            let mut table: Vec<u64> = (0..words).collect();
            for sample in Stream::new(0, 0..4 * words) {
                table[(sample & (words - 1)) as usize] ^= sample;
            }
            assert_eq!(table.iter().fold(0, |x, t| x ^ t), xor, "XOR of 2^{log2_words}");
            let total = table.iter().fold(0_u64, |s, t| s.wrapping_add(*t));
            assert_eq!(total, sum, "sum of 2^{log2_words}");
        }
    }

    #[test]
    fn the_seed_is_an_offset_into_the_stream() {
        let whole: Vec<u64> = Stream::new(0, 0..300).collect();
        let later: Vec<u64> = Stream::new(100, 50..200).collect();
        assert_eq!(whole[150..], later);
        let wrapped = Stream::new(u64::MAX, 7..8).next();
        let position = (u128::from(u64::MAX) + 8) % u128::from(PERIOD);
        assert_eq!(wrapped, Some(starts(position as i64)));
        assert_eq!(Stream::new(PERIOD, 0..1).next(), Some(2));
    }

    /// HPCC's own formula for the owner of a word.
    fn published_owner(log2_words: u32, ranks: u64, word: u64) -> u64 {
        let words = 1_u64 << log2_words;
        if ranks.is_power_of_two() {
            let bits = ranks.ilog2();
            return (word >> (log2_words - bits)) & (ranks - 1);
        }
        let (min, rest) = (words / ranks, words % ranks);
        if word < (min + 1) * rest { word / (min + 1) } else { (word - rest) / min }
    }

    #[test]
    fn owners_are_the_published_ones_for_every_word() {
        for log2_words in 0..=10 {
            for ranks in 1..=(1_u32 << log2_words).min(130) {
                let distribution = Distribution::new(log2_words, ranks);
                for word in 0..distribution.words() {
                    let owner = distribution.owner(word);
                    let expected = published_owner(log2_words, u64::from(ranks), word);
                    assert_eq!(owner, expected, "word {word} of 2^{log2_words} on {ranks} ranks");
                    assert!(distribution.owned(owner as u32).contains(&word));
                }
            }
        }
    }

    #[test]
    fn owners_of_a_large_table_are_the_published_ones() {
        for ranks in [2_u32, 3, 5, 7, 8, 60, 64, 1000] {
            let distribution = Distribution::new(40, ranks);
            for rank in 0..u64::from(ranks) {
                let first = distribution.first(rank);
                for word in first.saturating_sub(2)..first + 3 {
                    let expected = published_owner(40, u64::from(ranks), word);
                    assert_eq!(distribution.owner(word), expected, "word {word}, {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn words_and_sections_tile_the_table_and_the_stream() {
        for log2_words in 0..=10 {
            for ranks in 1..=(1_u32 << log2_words).min(130) {
                let distribution = Distribution::new(log2_words, ranks);
                for updates in [0, 1, 17, 1000, 4 * distribution.words()] {
                    let (mut word, mut position) = (0, 0);
                    for rank in 0..ranks {
                        let (owned, section) = (distribution.owned(rank), distribution.section(rank, updates));
                        assert_eq!((owned.start, section.start), (word, position));
                        if updates == 4 * distribution.words() {
                            assert_eq!(section, 4 * owned.start..4 * owned.end);
                        }
                        (word, position) = (owned.end, section.end);
                    }
                    assert_eq!((word, position), (distribution.words(), updates));
                }
            }
        }
    }

    #[test]
    fn all_ranks_together_make_exactly_the_serial_stream() {
        for (log2_words, seed) in [(0, 0), (3, 5), (6, 0), (8, 1 << 50)] {
            for ranks in 1..=(1_u32 << log2_words).min(40) {
                let distribution = Distribution::new(log2_words, ranks);
                for updates in [3, 4 * distribution.words()] {
                    let serial: Vec<u64> = Stream::new(seed, 0..updates).collect();
                    let shared: Vec<u64> = (0..ranks)
                        .flat_map(|rank| Stream::new(seed, distribution.section(rank, updates)))
                        .collect();
                    assert_eq!(shared, serial, "2^{log2_words} words on {ranks} ranks");
                }
            }
        }
    }
}
