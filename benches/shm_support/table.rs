//! The RandomAccess baselines without messages: one shared table that every rank updates directly, by prefetched
//! atomic XOR, along its own section of the benchmark's stream; and a part of the table for each rank, which that
//! rank alone updates.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::mapping::Shared;
use active_messages::shm::{prefetch, prefetch_l2};
use lab::random_access::{hpcc, table};

/// Updates between a prefetch and its use; far inside the 1024 of the look-ahead rule.
const PREFETCH_DISTANCE: usize = 128;
/// Updates between a prefetch into the first cache and its use, the word being in the second by then.
const NEAR: usize = 24;
/// Indices of one batch.
pub(crate) const BATCH: usize = 1 << 12;

/// The table and this rank's place in the stream.
pub(crate) struct RawTable {
    memory: Shared,
    words: usize,
    value: u64,
    own: std::ops::Range<usize>,
    prepared: bool,
}

impl RawTable {
    /// The table of `words_per_rank` words for each of `ranks` ranks, a power of two in all, as `rank` sees it.
    pub(crate) fn new(memory: Shared, words_per_rank: u64, rank: usize, ranks: usize) -> Self {
        let first = rank * words_per_rank as usize;
        Self {
            memory,
            words: words_per_rank as usize * ranks,
            value: hpcc::starts(4 * first as i64),
            own: first..first + words_per_rank as usize,
            prepared: false,
        }
    }

    /// Fills this rank's part; then `touch` maps the rest, so that no page is missing once time runs.
    pub(crate) fn fill(&mut self) {
        if !self.prepared {
            let words = self.memory.words(0, self.words);
            for index in self.own.clone() {
                words[index].store(index as u64, Relaxed);
            }
        }
    }

    /// Touches every page, after all ranks have filled theirs.
    pub(crate) fn touch(&mut self) {
        if !std::mem::replace(&mut self.prepared, true) {
            let words = self.memory.words(0, self.words);
            let sum = words.iter().step_by(512).fold(0, |sum, word| sum ^ word.fetch_xor(0, Relaxed));
            std::hint::black_box(sum);
        }
    }

    /// Applies as many operations to random words as [`Self::update`], whose indices lie in a list of each batch:
    /// adds ones, or loads.
    pub(crate) fn batches(&mut self, count: u64, add: bool, indices: &mut Vec<u64>, out: &mut [u64]) {
        let table = self.memory.words(0, self.words);
        let mask = self.words as u64 - 1;
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH as u64);
            left -= batch;
            indices.clear();
            for _ in 0..batch {
                self.value = hpcc::step(self.value);
                indices.push(self.value & mask);
            }
            indices.iter().take(PREFETCH_DISTANCE).for_each(|index| prefetch_l2(&table[*index as usize]));
            for (at, index) in indices.iter().enumerate() {
                if let Some(coming) = indices.get(at + PREFETCH_DISTANCE) {
                    prefetch_l2(&table[*coming as usize]);
                }
                if let Some(coming) = indices.get(at + NEAR) {
                    prefetch(&table[*coming as usize]);
                }
                let word = &table[*index as usize];
                if add {
                    word.fetch_add(1, Relaxed);
                } else {
                    out[at] = word.load(Relaxed);
                }
            }
            std::hint::black_box(&mut *out);
        }
    }

    /// Applies the next `updates` of this rank's stream.
    pub(crate) fn update(&mut self, updates: u64) {
        let table = self.memory.words(0, self.words);
        let mask = self.words as u64 - 1;
        let at = |value: u64| -> &AtomicU64 { &table[(value & mask) as usize] };
        let mut next = self.value;
        let mut ahead = [0; PREFETCH_DISTANCE];
        for place in &mut ahead {
            next = hpcc::step(next);
            *place = next;
            prefetch_l2(at(next));
        }
        let mut place = 0;
        for _ in 0..updates {
            let due = ahead[place];
            next = hpcc::step(next);
            ahead[place] = next;
            place = (place + 1) % PREFETCH_DISTANCE;
            prefetch_l2(at(next));
            prefetch(at(ahead[(place + NEAR) % PREFETCH_DISTANCE]));
            at(due).fetch_xor(due, Relaxed);
            self.value = due;
        }
    }
}

/// What messages could reach at best: a rank's own part of the table, in large pages where the system grants them,
/// with updates that need no other rank.
pub(crate) struct OwnTable {
    words: &'static mut [u64],
    value: u64,
}

impl OwnTable {
    /// A part of `words` words, a power of two, as `rank` has it.
    pub(crate) fn new(words: u64, rank: usize) -> Self {
        let words = table::allocate(words).expect("the system has room for a part of the table");
        (0..).zip(words.iter_mut()).for_each(|(index, word)| *word = index);
        Self { value: hpcc::starts(4 * (rank * words.len()) as i64), words }
    }

    /// Applies the next `updates` of this rank's stream, all of them to its own part, each behind `ahead` others
    /// that have been prefetched: into the second cache at once, into the first 24 (or half as many) updates
    /// before.
    pub(crate) fn update(&mut self, ahead: usize, updates: u64) {
        match ahead {
            16 => self.update_behind::<16>(updates),
            32 => self.update_behind::<32>(updates),
            64 => self.update_behind::<64>(updates),
            128 => self.update_behind::<128>(updates),
            256 => self.update_behind::<256>(updates),
            _ => panic!("no loop for {ahead} updates ahead"),
        }
    }

    #[inline(never)]
    fn update_behind<const AHEAD: usize>(&mut self, updates: u64) {
        let Self { words, value } = self;
        let (mut next, mut place, mask) = (*value, 0, words.len() as u64 - 1);
        let mut under_way = [0; AHEAD];
        for _ in 0..updates {
            next = hpcc::step(next);
            if let Some(word) = words.get((next & mask) as usize) {
                prefetch_l2(word);
            }
            let due = std::mem::replace(&mut under_way[place], next);
            place = (place + 1) % AHEAD;
            if let Some(word) = words.get((under_way[(place + NEAR.min(AHEAD / 2)) % AHEAD] & mask) as usize) {
                prefetch(word);
            }
            if let Some(word) = words.get_mut((due & mask) as usize) {
                *word ^= due;
            }
        }
        // The last ones are not applied; the first are the zeros in place of those before.
        *value = next;
    }
}
