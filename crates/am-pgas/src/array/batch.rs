//! Batches: one operation on many elements anywhere, which go together to the ranks that own them.
//!
//! Where the memory of all ranks is seen, a batch is a loop that fetches elements ahead. Elsewhere elements are
//! sorted by owner, as many at a time as keep the messages of all ranks full, and the next of these are sent
//! before the last are waited for.

use super::{ArrayError, GlobalArray, pending};
use crate::pointer::Element;
use am_core::one_sided::atomic::Number;
use am_core::one_sided::{
    Atomic, AtomicBatch, AtomicCode, AtomicValue, OneSided, OneSidedError, Operation, Output, Runs,
};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, Segment, Transport};
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements that are fetched ahead of the one being worked on, into the second cache.
pub(super) const AHEAD: usize = 128;

/// Those of them that are fetched into the first.
pub(super) const NEAR: usize = 24;

/// Elements that are sorted at a time, at least, and for each rank.
const AT_ONCE: usize = 1 << 16;
const AT_ONCE_EACH: usize = 512;

/// The operands of a batch: one for all elements, or one for each.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a, V> {
    /// The same for all.
    One(V),
    /// One for each, in the order of the indices.
    Each(&'a [V]),
}

impl<V: Element> From<V> for Values<'_, V> {
    fn from(value: V) -> Self {
        Self::One(value)
    }
}

impl<'a, V: Element> From<&'a [V]> for Values<'a, V> {
    fn from(values: &'a [V]) -> Self {
        Self::Each(values)
    }
}

impl<'a, V: Element> From<&'a Vec<V>> for Values<'a, V> {
    fn from(values: &'a Vec<V>) -> Self {
        Self::Each(values)
    }
}

impl<'a, V: Element, const N: usize> From<&'a [V; N]> for Values<'a, V> {
    fn from(values: &'a [V; N]) -> Self {
        Self::Each(values)
    }
}

impl<V: Element> Values<'_, V> {
    #[inline]
    fn at(&self, index: usize) -> V {
        match self {
            Self::One(value) => *value,
            Self::Each(values) => values[index],
        }
    }

    fn check(&self, elements: usize) -> Result<(), ArrayError> {
        match self {
            Self::Each(values) if values.len() != elements => {
                Err(ArrayError::Lengths { given: values.len() as u64, needed: elements as u64 })
            }
            _ => Ok(()),
        }
    }

    /// The operands of elements in another order, in `buffer` if there are several.
    fn sorted<'b>(&'b self, order: &[u32], first: usize, buffer: &'b mut Vec<V>) -> &'b [V] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Each(values) => {
                buffer.clear();
                buffer.extend(order.iter().map(|index| values[first + *index as usize]));
                buffer
            }
        }
    }
}

/// An operation that has been started, and what its end has to know.
type Started<R, K> = Result<(Operation<R>, K), OneSidedError>;

/// Puts what an operation has brought where it belongs.
fn scatter<V>(out: &mut [V], first: usize, order: &[u32], values: Vec<V>) {
    for (index, value) in order.iter().zip(values) {
        out[first + *index as usize] = value;
    }
}

/// Elements sorted by owner.
#[derive(Default)]
struct Sorted {
    /// Owner and offset of each.
    places: Vec<(u32, u32)>,
    /// Where the elements of each rank begin, and behind the last where all end.
    starts: Vec<u32>,
    /// The positions of the elements, by owner.
    order: Vec<u32>,
    /// The offsets of the elements, by owner.
    offsets: Vec<u32>,
}

impl Sorted {
    fn sort(&mut self, ranks: usize, places: impl Iterator<Item = (u32, u32)>) {
        self.places.clear();
        self.places.extend(places);
        self.starts.clear();
        self.starts.resize(ranks + 2, 0);
        for (rank, _) in &self.places {
            self.starts[*rank as usize + 2] += 1;
        }
        for rank in 0..ranks {
            self.starts[rank + 2] += self.starts[rank + 1];
        }
        self.order.resize(self.places.len(), 0);
        self.offsets.resize(self.places.len(), 0);
        for (index, (rank, offset)) in (0..).zip(&self.places) {
            let next = &mut self.starts[*rank as usize + 1];
            (self.order[*next as usize], self.offsets[*next as usize]) = (index, *offset);
            *next += 1;
        }
    }

    /// Each rank that owns some, their positions, and their offsets.
    fn ranks(&self) -> impl Iterator<Item = (Rank, &[u32], &[u32])> {
        let bounds = self.starts.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
        let some = (0..).map(Rank).zip(bounds).filter(|(_, range)| !range.is_empty());
        some.map(|(rank, range)| (rank, &self.order[range.clone()], &self.offsets[range]))
    }
}

impl<V: Element, const D: usize> GlobalArray<V, D> {
    fn check_batch(&self, indices: &[u64]) -> Result<(), ArrayError> {
        let len = self.distribution.len();
        // No index is above all of their bits together, which are found faster than the largest.
        if indices.iter().fold(0, |bits, index| bits | index) < len {
            return Ok(());
        }
        match indices.iter().max() {
            Some(index) if *index >= len => Err(ArrayError::OutOfRange { dimension: 0, index: *index, len }),
            _ => Ok(()),
        }
    }

    /// A rank's segment, if this process sees it and it holds the array.
    #[inline]
    pub(super) fn segment<'e, T: Transport, S>(
        &self,
        endpoint: &'e Endpoint<T, S>,
        rank: Rank,
    ) -> Result<Option<&'e Segment<T::Memory>>, ArrayError> {
        match endpoint.mapped_segment(rank) {
            Some(segment) if (segment.len() as u64) < self.end() => Err(ArrayError::Foreign),
            segment => Ok(segment),
        }
    }

    /// Calls `f` with the memory, the byte offset and the number of each element, if the memory of all their ranks
    /// is seen. Compiled into each caller, where what `f` does is known.
    #[inline(always)]
    fn directly<T: Transport, S>(
        &self,
        endpoint: &Endpoint<T, S>,
        indices: &[u64],
        mut f: impl FnMut(&Segment<T::Memory>, u64, usize),
    ) -> Result<bool, ArrayError> {
        let (base, size) = (self.memory.offset(), size_of::<V>() as u64);
        if indices.len() < self.distribution.ranks() as usize {
            // For a few elements, it costs less to look for their ranks alone.
            for number in indices {
                if self.segment(endpoint, self.distribution.place_of_number(*number).rank)?.is_none() {
                    return Ok(false);
                }
            }
            for (index, number) in indices.iter().enumerate() {
                let place = self.distribution.place_of_number(*number);
                let segment = self.segment(endpoint, place.rank)?.expect("the memory was seen");
                f(segment, base + place.offset * size, index);
            }
            return Ok(true);
        }
        let segments = (0..self.distribution.ranks()).map(|rank| self.segment(endpoint, Rank(rank)).transpose());
        let segments: Option<Result<Vec<_>, _>> = segments.collect();
        let Some(segments) = segments.transpose()? else { return Ok(false) };
        let find = |number: u64| {
            let place = self.distribution.place_of_number(number);
            let segment: &Segment<T::Memory> = segments[place.rank.0 as usize];
            let offset = base + place.offset * size;
            segment.prefetch(offset);
            (segment, offset)
        };
        let mut ahead = [(endpoint.segment(), 0); AHEAD];
        for (slot, number) in ahead.iter_mut().zip(indices) {
            *slot = find(*number);
        }
        let (first, last) = indices.split_at(indices.len().saturating_sub(AHEAD));
        let coming = &indices[indices.len() - first.len()..];
        for (index, number) in coming.iter().enumerate() {
            let slot = &mut ahead[index % AHEAD];
            let (segment, offset) = std::mem::replace(slot, find(*number));
            f(segment, offset, index);
        }
        for index in first.len()..first.len() + last.len() {
            let (segment, offset) = ahead[index % AHEAD];
            f(segment, offset, index);
        }
        Ok(true)
    }

    /// Calls `start` for the elements of each rank, as many as go together, with the number of the first of all of
    /// them; then `end` with what the operation brings and what else that returned. What was started is ended
    /// after the next was started, or nothing more could be.
    fn by_rank<T: Transport, S: HasLayer<OneSided>, R: Output, K>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        mut start: impl FnMut(&mut Endpoint<T, S>, Rank, &[u32], &[u32], usize) -> Started<R, K>,
        mut end: impl FnMut(R, K),
    ) -> Result<(), ArrayError> {
        let elements = self.distribution.capacity();
        if u32::try_from(elements).is_err() {
            return Err(ArrayError::TooLargeForBatches { elements });
        }
        let ranks = self.distribution.ranks() as usize;
        let at_once = AT_ONCE.max(ranks * AT_ONCE_EACH);
        let mut sorted = Sorted::default();
        let (mut before, mut now) = (Vec::new(), Vec::new());
        let first = endpoint.operations_begun();
        let mut end = |_: &_, brought, known| end(brought, known);
        for (round, indices) in indices.chunks(at_once).enumerate() {
            let places = indices.iter().map(|number| {
                let place = self.distribution.place_of_number(*number);
                (place.rank.0, place.offset as u32)
            });
            sorted.sort(ranks, places);
            for (rank, order, offsets) in sorted.ranks() {
                match start(endpoint, rank, order, offsets, round * at_once) {
                    Ok(started) => now.push(started),
                    Err(error) => {
                        let all = before.into_iter().chain(now);
                        return Ok(pending::finish(endpoint, first, all, Err(error), end)?);
                    }
                }
            }
            let waited = pending::finish(endpoint, first, before.drain(..), Ok(()), &mut end);
            if waited.is_err() {
                return Ok(pending::finish(endpoint, first, now, waited, end)?);
            }
            std::mem::swap(&mut before, &mut now);
        }
        Ok(pending::finish(endpoint, first, before, Ok(()), end)?)
    }

    fn runs_of<'r>(&self, offsets: &'r [u32]) -> Runs<'r> {
        let size = size_of::<V>() as u64;
        Runs::Indexed { base: self.memory.offset(), unit: size, len: size, indices: offsets }
    }

    /// Reads the elements with these numbers, which count in row-major order. Allocates for each 2^16 elements.
    ///
    /// # Errors
    /// [`ArrayError::OutOfRange`], [`ArrayError::Lengths`], [`ArrayError::Foreign`];
    /// [`ArrayError::TooLargeForBatches`] over messages; as [`Endpoint::get_runs`].
    pub fn batch_load<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        self.check_batch(indices)?;
        Values::Each(out).check(indices.len())?;
        let load = |word: &AtomicU64, index: usize| {
            // Relaxed: as all reads of segments.
            out[index].as_mut_bytes().copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        };
        if self.on_words::<false, _, _>(endpoint, indices, load)? {
            return Ok(());
        }
        let read = |segment: &Segment<T::Memory>, offset, index: usize| {
            let read = segment.read(offset, out[index].as_mut_bytes());
            read.expect("the array lies inside the segments");
        };
        if self.directly(endpoint, indices, read)? {
            return Ok(());
        }
        self.by_rank(
            endpoint,
            indices,
            |endpoint, rank, order, offsets, first| {
                let get = endpoint.get_runs_nb(rank, &self.runs_of(offsets))?;
                Ok((get.of(), (order.to_vec(), first)))
            },
            |values: Vec<V>, (order, first)| scatter(out, first, &order, values),
        )
    }

    /// Writes the elements with these numbers, which count in row-major order, and waits until they are there. Of
    /// an element that is named several times, it is unspecified which value it has then. Allocates for each 2^16
    /// elements.
    ///
    /// # Errors
    /// As [`GlobalArray::batch_load`].
    pub fn batch_store<'v, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        values: impl Into<Values<'v, V>>,
    ) -> Result<(), ArrayError> {
        let values = values.into();
        self.check_batch(indices)?;
        values.check(indices.len())?;
        let store = |word: &AtomicU64, index| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(values.at(index).as_bytes());
            // Relaxed: as all writes to segments.
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        };
        if self.on_words::<true, _, _>(endpoint, indices, store)? {
            return Ok(());
        }
        let write = |segment: &Segment<T::Memory>, offset, index| {
            let written = segment.write(offset, values.at(index).as_bytes());
            written.expect("the array lies inside the segments");
        };
        if self.directly(endpoint, indices, write)? {
            return Ok(());
        }
        let mut packed = Vec::new();
        self.by_rank(
            endpoint,
            indices,
            |endpoint, rank, order, offsets, first| {
                packed.clear();
                packed.extend(order.iter().map(|index| values.at(first + *index as usize)));
                let bytes = packed.as_slice().as_bytes();
                Ok((endpoint.put_runs_nb(rank, &self.runs_of(offsets), bytes)?, ()))
            },
            |(), ()| (),
        )
    }
}

impl<V: Element + AtomicValue + Number, const D: usize> GlobalArray<V, D> {
    /// Checks a batch of atomics.
    fn check_atomics(
        &self,
        indices: &[u64],
        code: AtomicCode,
        operands: [&Values<'_, V>; 2],
    ) -> Result<(), ArrayError> {
        self.check_batch(indices)?;
        operands.iter().try_for_each(|values| values.check(indices.len()))?;
        if !(Atomic { kind: V::KIND, code, operand: 0, expected: 0 }).is_supported() {
            return Err(OneSidedError::Unsupported { code, kind: V::KIND }.into());
        }
        Ok(())
    }

    /// Adds to the elements with these numbers, which count in row-major order, atomically and coherent with every
    /// other atomic, and waits until it is done. An element may be named several times. Allocates for each 2^16
    /// elements.
    ///
    /// # Errors
    /// As [`GlobalArray::batch_load`].
    pub fn batch_add<'v, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        values: impl Into<Values<'v, V>>,
    ) -> Result<(), ArrayError> {
        self.update(endpoint, indices, AtomicCode::Add, &values.into())
    }

    /// Does an atomic operation on the elements with these numbers as [`GlobalArray::batch_add`] does.
    ///
    /// # Errors
    /// As [`GlobalArray::batch_load`]; [`OneSidedError::Unsupported`] for bits of floating-point numbers, and for
    /// a compare-and-swap, which has a [form of its own](GlobalArray::batch_compare_exchange).
    pub fn batch_update<'v, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        code: AtomicCode,
        values: impl Into<Values<'v, V>>,
    ) -> Result<(), ArrayError> {
        // What is known here costs nothing in the loop.
        let values = &values.into();
        match code {
            AtomicCode::Xor => self.update(endpoint, indices, AtomicCode::Xor, values),
            AtomicCode::Or => self.update(endpoint, indices, AtomicCode::Or, values),
            AtomicCode::CompareSwap => Err(OneSidedError::Unsupported { code, kind: V::KIND }.into()),
            AtomicCode::Get => self.check_atomics(indices, code, [values, values]),
            code => self.update(endpoint, indices, code, values),
        }
    }

    #[inline(always)]
    fn update<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        code: AtomicCode,
        values: &Values<'_, V>,
    ) -> Result<(), ArrayError> {
        self.check_atomics(indices, code, [values, values])?;
        let atomic = |value: V| Atomic { kind: V::KIND, code, operand: value.to_bits(), expected: 0 };
        // Which kind of operands it is, no element asks: what it loads behind an atomic operation waits for that.
        let done = match *values {
            Values::One(value) => {
                let atomic = atomic(value);
                self.on_words::<true, _, _>(endpoint, indices, |word, _| {
                    atomic.on_word(word);
                })?
            }
            Values::Each(values) => self.on_words::<true, _, _>(endpoint, indices, |word, index| {
                atomic(values[index]).on_word(word);
            })?,
        };
        if done {
            return Ok(());
        }
        let update = |segment: &Segment<T::Memory>, offset, index| {
            segment.atomic(offset, &atomic(values.at(index))).expect("the array lies aligned inside the segments");
        };
        if self.directly(endpoint, indices, update)? {
            return Ok(());
        }
        let mut buffer = Vec::new();
        self.by_rank(
            endpoint,
            indices,
            |endpoint, rank, order, offsets, first| {
                let operands = values.sorted(order, first, &mut buffer);
                let batch = AtomicBatch { code, operands, expected: &[] };
                Ok((endpoint.updates_nb(rank, self.memory.offset(), offsets, &batch)?, ()))
            },
            |(), ()| (),
        )
    }

    /// Does an atomic operation on the elements with these numbers as [`GlobalArray::batch_update`] does, and
    /// yields what was there.
    ///
    /// # Errors
    /// As [`GlobalArray::batch_update`].
    pub fn batch_fetch<'v, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        code: AtomicCode,
        values: impl Into<Values<'v, V>>,
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        if code == AtomicCode::CompareSwap {
            return Err(OneSidedError::Unsupported { code, kind: V::KIND }.into());
        }
        self.fetch_atomics(endpoint, indices, code, &values.into(), None, out)
    }

    /// Replaces those of the elements with these numbers that are what is expected, atomically, and yields what
    /// was there: the expected value where it was replaced. Floating-point numbers are compared by their bits.
    ///
    /// # Errors
    /// As [`GlobalArray::batch_load`].
    pub fn batch_compare_exchange<'v, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        expected: impl Into<Values<'v, V>>,
        new: impl Into<Values<'v, V>>,
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        let (expected, new) = (expected.into(), new.into());
        self.fetch_atomics(endpoint, indices, AtomicCode::CompareSwap, &new, Some(&expected), out)
    }

    fn fetch_atomics<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        indices: &[u64],
        code: AtomicCode,
        values: &Values<'_, V>,
        expected: Option<&Values<'_, V>>,
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        self.check_atomics(indices, code, [values, expected.unwrap_or(values)])?;
        Values::Each(out).check(indices.len())?;
        let fetch = |word: &AtomicU64, index| {
            let operand = values.at(index).to_bits();
            let expected = expected.map_or(0, |expected| expected.at(index).to_bits());
            out[index] = V::from_bits(Atomic { kind: V::KIND, code, operand, expected }.on_word(word));
        };
        if self.on_words::<true, _, _>(endpoint, indices, fetch)? {
            return Ok(());
        }
        let fetch = |segment: &Segment<T::Memory>, offset, index| {
            let operand = values.at(index).to_bits();
            let expected = expected.map_or(0, |expected| expected.at(index).to_bits());
            let old = segment.atomic(offset, &Atomic { kind: V::KIND, code, operand, expected });
            out[index] = V::from_bits(old.expect("the array lies aligned inside the segments"));
        };
        if self.directly(endpoint, indices, fetch)? {
            return Ok(());
        }
        let (mut operands, mut compared) = (Vec::new(), Vec::new());
        self.by_rank(
            endpoint,
            indices,
            |endpoint, rank, order, offsets, first| {
                let operands = match code {
                    AtomicCode::Get => &[],
                    _ => values.sorted(order, first, &mut operands),
                };
                let expected = match expected {
                    Some(expected) => expected.sorted(order, first, &mut compared),
                    None => &[],
                };
                let batch = AtomicBatch { code, operands, expected };
                let fetch = endpoint.atomics_nb(rank, self.memory.offset(), offsets, &batch)?;
                Ok((fetch.of(), (order.to_vec(), first)))
            },
            |values: Vec<V>, (order, first)| scatter(out, first, &order, values),
        )
    }
}
