//! Updates of a table in shared segments, which every rank reaches by itself: the variants without messages.

use super::error::RunError;
use super::hpcc::Distribution;
use super::rank::Work;
use active_messages::Segment;
use active_messages::transport::Memory;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Updates that the direct variant has under way: more than the processor's outstanding misses, few enough that
/// none of their cache lines is lost before its turn.
const BATCH: usize = 32;

/// Words of the smallest page of memory that a system uses.
const PAGE_WORDS: usize = 4096 / 8;

/// The whole table as it lies in the segments of all ranks.
pub struct SharedTable<'a, M> {
    distribution: Distribution,
    parts: Vec<Part<'a, M>>,
}

struct Part<'a, M> {
    first: u64,
    words: &'a [AtomicU64],
    segment: &'a Segment<M>,
}

/// Where a word lies.
#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    index: usize,
}

impl<'a, M: Memory> SharedTable<'a, M> {
    /// The table in `segments`, one of each rank. Touches all of it, so that no update meets a page for the first
    /// time.
    pub fn new(distribution: Distribution, segments: &'a [Segment<M>]) -> Self {
        let part = |(rank, segment): (u64, &'a Segment<M>)| Part {
            first: distribution.first(rank),
            words: segment.words(),
            segment,
        };
        let parts: Vec<_> = (0..).zip(segments).map(part).collect();
        let touch = |part: &Part<'_, M>| {
            part.words.iter().step_by(PAGE_WORDS).fold(0, |all, word| all | word.load(Relaxed))
        };
        black_box(parts.iter().map(touch).max());
        Self { distribution, parts }
    }

    /// Where an update's word lies.
    #[inline(always)]
    fn place(&self, update: u64) -> Place {
        let word = self.distribution.word(update);
        let rank = self.distribution.owner(word) as usize;
        Place { rank, index: (word - self.parts[rank].first) as usize }
    }

    #[inline(always)]
    fn word(&self, place: Place) -> &'a AtomicU64 {
        &self.parts[place.rank].words[place.index]
    }
}

/// One atomic XOR after the other.
pub fn atomic<M: Memory>(table: &SharedTable<'_, M>, mut work: Work) {
    for update in work.stream.by_ref() {
        // Relaxed: updates commute, and the barrier after the last one orders them with the verification.
        table.word(table.place(update)).fetch_xor(update, Relaxed);
        work.progress.advance(1);
    }
}

/// Get, XOR and put through the segments' own copies. An update of another rank in between is lost.
///
/// # Errors
/// [`RunError::Segment`] if a segment is smaller than its part of the table.
pub fn put_get<M: Memory>(table: &SharedTable<'_, M>, mut work: Work) -> Result<(), RunError> {
    for update in work.stream.by_ref() {
        let place = table.place(update);
        let (segment, offset) = (table.parts[place.rank].segment, 8 * place.index as u64);
        let mut bytes = [0; 8];
        segment.read(offset, &mut bytes)?;
        let value = u64::from_ne_bytes(bytes) ^ update;
        segment.write(offset, &value.to_ne_bytes())?;
        work.progress.advance(1);
    }
    Ok(())
}

/// What a program without messages does best: looks ahead a batch, prefetches its words, then updates them
/// atomically.
pub fn direct<M: Memory>(table: &SharedTable<'_, M>, mut work: Work) {
    let nowhere = AtomicU64::new(0);
    let mut batch = [(0, &nowhere); BATCH];
    loop {
        let mut filled = 0;
        for (slot, update) in batch.iter_mut().zip(work.stream.by_ref()) {
            let place = table.place(update);
            table.parts[place.rank].segment.prefetch(8 * place.index as u64);
            *slot = (update, table.word(place));
            filled += 1;
        }
        for (update, word) in &batch[..filled] {
            // Relaxed: as in `atomic`.
            word.fetch_xor(*update, Relaxed);
        }
        work.progress.advance(filled);
        if filled < BATCH {
            return;
        }
    }
}
