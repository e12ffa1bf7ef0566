//! Batches on elements of one word each in memory that is seen: loops that fetch words ahead, and find the place
//! of each element once.

use super::batch::{AHEAD, NEAR};
use super::{ArrayError, GlobalArray};
use crate::pointer::Element;
use am_core::{Endpoint, Memory, Rank, Transport};
use std::sync::atomic::AtomicU64;

/// A rank's part of an array.
struct Part<'e, M> {
    memory: &'e M,
    words: &'e [AtomicU64],
}

impl<V: Element, const D: usize> GlobalArray<V, D> {
    /// Calls `f` with the word and the number of each element, if elements are words, the memory of all ranks is
    /// seen, and there are not too few elements; says whether `f` changes words. Compiled into each caller, where
    /// what `f` does is known.
    #[inline(always)]
    pub(super) fn on_words<const CHANGES: bool, T: Transport, S>(
        &self,
        endpoint: &Endpoint<T, S>,
        indices: &[u64],
        f: impl FnMut(&AtomicU64, usize),
    ) -> Result<bool, ArrayError> {
        let base = self.memory.offset() as usize;
        let (ranks, capacity) = (self.distribution.ranks(), self.distribution.capacity() as usize);
        if size_of::<V>() != 8 || !base.is_multiple_of(8) || indices.len() < AHEAD.max(ranks as usize) {
            return Ok(false);
        }
        let mut parts = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks {
            let Some(segment) = self.segment(endpoint, Rank(rank))? else { return Ok(false) };
            let words = segment.words().get(base / 8..base / 8 + capacity).ok_or(ArrayError::Foreign)?;
            parts.push(Part { memory: segment.memory(), words });
        }
        match self.distribution.power_of_two_blocks() {
            Some(shift) => {
                let inside = (1 << shift) - 1;
                let place = |number| ((number >> shift) as usize, (number & inside) as usize);
                // Where the place costs less than to note it: a note is a store, for which an atomic operation
                // waits.
                match CHANGES {
                    true => walk_twice::<CHANGES, _>(&parts, base, indices, place, f),
                    false => walk::<CHANGES, _>(&parts, base, indices, place, f),
                }
            }
            None => {
                let place = |number| {
                    let place = self.distribution.place_of_number(number);
                    (place.rank.0 as usize, place.offset as usize)
                };
                walk::<CHANGES, _>(&parts, base, indices, place, f);
            }
        }
        Ok(true)
    }
}

impl<'e, M: Memory> Part<'e, M> {
    /// Fetches a word into the second cache long before its use; `base` is where the part begins, in bytes.
    #[inline(always)]
    fn fetch(&self, base: usize, offset: usize) -> &'e AtomicU64 {
        self.memory.prefetch_l2(base + 8 * offset);
        &self.words[offset]
    }
}

/// Calls `f` with the word and the number of each element, of which there are some. Finds the place of each once.
#[inline(always)]
fn walk<const CHANGES: bool, M: Memory>(
    parts: &[Part<'_, M>],
    base: usize,
    indices: &[u64],
    place: impl Fn(u64) -> (usize, usize),
    mut f: impl FnMut(&AtomicU64, usize),
) {
    let find = |number: &u64| {
        let (rank, offset) = place(*number);
        parts[rank].fetch(base, offset)
    };
    let mut ahead: [&AtomicU64; AHEAD] = [&parts[0].words[0]; AHEAD];
    // One loop for all of it, so that what is called is compiled once, and in place.
    for at in 0..indices.len() + AHEAD {
        // An atomic operation waits for its word; a load from the second cache is hidden by the next ones.
        if CHANGES {
            parts[0].memory.prefetch_write(ahead[(at + NEAR) % AHEAD]);
        }
        let word = &mut ahead[at % AHEAD];
        if at >= AHEAD {
            f(word, at - AHEAD);
        }
        if let Some(number) = indices.get(at) {
            *word = find(number);
        }
    }
}

/// The same, but finds the place of each element when it is fetched and when it is used.
#[inline(always)]
fn walk_twice<const CHANGES: bool, M: Memory>(
    parts: &[Part<'_, M>],
    base: usize,
    indices: &[u64],
    place: impl Fn(u64) -> (usize, usize),
    mut f: impl FnMut(&AtomicU64, usize),
) {
    let fetch = |number: &u64| {
        let (rank, offset) = place(*number);
        parts[rank].fetch(base, offset);
    };
    indices.iter().take(AHEAD).for_each(fetch);
    for (at, number) in indices.iter().enumerate() {
        if let Some(coming) = indices.get(at + AHEAD) {
            fetch(coming);
        }
        if let Some(near) = indices.get(at + NEAR).filter(|_| CHANGES) {
            let (rank, offset) = place(*near);
            parts[rank].memory.prefetch_write(&parts[rank].words[offset]);
        }
        let (rank, offset) = place(*number);
        f(&parts[rank].words[offset], at);
    }
}
