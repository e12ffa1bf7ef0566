//! Typed one-sided access: values and rows of values of other ranks' segments, and atomics in domains.
//!
//! [`GlobalMemory`] gives an [`Endpoint`] the operations of [`am_core::one_sided`] on [`GlobalPtr`] and
//! [`GlobalSlice`]. Where a segment is memory of this process too, a value of eight aligned bytes is one load or
//! store behind a check of its place.
//!
//! | form | returns when |
//! |---|---|
//! | `put_value`, `put_slice`, `get_value`, `get_slice` | the operation is done at the target |
//! | `put_value_nb`, `get_value_nb`, `put_slice_nb`, `get_slice_nb` | it is under way; the [`Operation`] is waited for ([`Endpoint::wait`]) or tested |
//! | `put_value_nbi`, `put_slice_nbi`, `get_slice_nbi` | it is under way; [`Endpoint::quiet`] waits for all of these, or [`Endpoint::end_region`] yields an operation for those since [`Endpoint::begin_region`] |
//! | `put_value_signal`, `put_slice_signal` | it is under way; the target learns by a counter that the values have arrived |
//!
//! The three moments of a put's completion: its source can be reused as soon as the call returns, always; it is
//! done at the target when its operation, region or `quiet` says so; the target itself learns of it by the counter
//! of a put with signal, or by the handler of a Long message ([`Endpoint::request_long`]). A get writes into `&mut
//! [V]` only while the call blocks; otherwise into a buffer that its operation owns, or into this rank's own
//! segment.
//!
//! # Example
//!
//! ```
//! use am_core::one_sided::AtomicOp;
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use am_pgas::memory::{AtomicDomain, GlobalMemory, Operations};
//! use am_pgas::{Pgas, pointer::GlobalPtr};
//!
//! let transport = loopback::network(1, loopback::LoopbackConfig::default().segment(256)).remove(0);
//! let mut handlers = Handlers::<Pgas>::new();
//! let pgas = Pgas::register(&mut handlers)?;
//! let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
//!
//! let counter = GlobalPtr::<u64>::new(Rank(0), 0);
//! let row = GlobalPtr::<f32>::new(Rank(0), 64).slice(4);
//! endpoint.put_slice(row, &[1.0, 2.0, 3.0, 4.0])?;
//! endpoint.put_value(row.at(2).unwrap(), 9.5)?;
//! let get = endpoint.get_slice_nb(row)?;
//! assert_eq!(endpoint.wait(get)?, [1.0, 2.0, 9.5, 4.0]);
//!
//! let counts = AtomicDomain::<u64>::new(Operations::ADD | Operations::GET)?;
//! counts.apply(&mut endpoint, counter, AtomicOp::Add(5))?;
//! assert_eq!(counts.apply(&mut endpoint, counter, AtomicOp::Get)?, 5);
//! assert!(counts.apply(&mut endpoint, counter, AtomicOp::Swap(1)).is_err(), "not in the domain");
//! # endpoint.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::local::LocalSlice;
use crate::pointer::{Element, GlobalPtr, GlobalSlice};
use am_core::one_sided::{AtomicBatch, AtomicCode, OneSided, OneSidedError, Operation};
use am_core::transport::{Category, Lane};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, SegmentError, Transport};
use std::sync::atomic::{Ordering, fence};

mod domain;

pub use domain::{AtomicDomain, AtomicError, Operations};

mod sealed {
    pub trait Sealed {}

    impl<T: am_core::Transport, S> Sealed for am_core::Endpoint<T, S> {}
}

/// Typed one-sided access; see the [module](self).
///
/// # Errors
/// Every operation fails with an [`OneSidedError`]: a place outside the job or a segment, which is found before
/// anything is sent; a buffer of another length than its slice ([`OneSidedError::Lengths`], in bytes); a target
/// that is gone; an error of sending or waiting. The endpoint can be used afterwards.
pub trait GlobalMemory: sealed::Sealed {
    /// The memory that segments lie in.
    type Memory;

    /// Writes a value and waits until it is there.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_value<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<(), OneSidedError>;

    /// Begins to write a value.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_value_nb<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<Operation<()>, OneSidedError>;

    /// Begins to write a value; waited for by [`Endpoint::quiet`] or the access region that is open.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_value_nbi<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<(), OneSidedError>;

    /// Reads a value.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn get_value<V: Element>(&mut self, from: GlobalPtr<V>) -> Result<V, OneSidedError>;

    /// Begins to read a value; [`Endpoint::wait`] returns it, alone in a vector. Allocates its buffer.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn get_value_nb<V: Element>(&mut self, from: GlobalPtr<V>) -> Result<Operation<Vec<V>>, OneSidedError> {
        self.get_slice_nb(from.slice(1))
    }

    /// Writes values and waits until they are there.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_slice<V: Element>(&mut self, to: GlobalSlice<V>, values: &[V]) -> Result<(), OneSidedError>;

    /// Begins to write values. The source can be reused when this returns.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_slice_nb<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError>;

    /// As [`put_slice_nb`](Self::put_slice_nb), waited for by [`Endpoint::quiet`] or the access region that is
    /// open.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn put_slice_nbi<V: Element>(&mut self, to: GlobalSlice<V>, values: &[V]) -> Result<(), OneSidedError>;

    /// Begins to write values, and to add one to a counter of the same rank once they are there, which that waits
    /// for with [`wait_counter`](Self::wait_counter). What exceeds one Long message is written first, and blocks.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors); [`OneSidedError::Elsewhere`] for a counter of another rank; a
    /// misaligned counter.
    fn put_slice_signal<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        values: &[V],
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError>;

    /// As [`put_slice_signal`](Self::put_slice_signal), of one value.
    ///
    /// # Errors
    /// As [`put_slice_signal`](Self::put_slice_signal).
    fn put_value_signal<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        value: V,
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError> {
        self.put_slice_signal(to.slice(1), &[value], counter)
    }

    /// Waits until a counter of this rank's own segment is at least `value`, serving incoming messages meanwhile;
    /// returns what it is. What was put before the signals that it counts is there then.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors); [`OneSidedError::Elsewhere`] for a counter of another rank; a
    /// misaligned counter.
    fn wait_counter(&mut self, counter: GlobalPtr<u64>, value: u64) -> Result<u64, OneSidedError>;

    /// Reads values.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn get_slice<V: Element>(&mut self, from: GlobalSlice<V>, out: &mut [V]) -> Result<(), OneSidedError>;

    /// Begins to read values; [`Endpoint::wait`] returns them. Allocates their buffer.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors).
    fn get_slice_nb<V: Element>(&mut self, from: GlobalSlice<V>) -> Result<Operation<Vec<V>>, OneSidedError>;

    /// Begins to read values into a slice of this rank's own segment; waited for by [`Endpoint::quiet`] or the
    /// access region that is open. The slices may overlap: `into` then gets the values that `from` held before.
    ///
    /// # Errors
    /// See the [trait](GlobalMemory#errors); [`OneSidedError::Elsewhere`] if `into` is not this rank's.
    fn get_slice_nbi<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        into: GlobalSlice<V>,
    ) -> Result<(), OneSidedError>;

    /// The values of a slice as memory of this process, or `None` if it does not see that segment, or is a fork of
    /// the endpoint's process. No communication.
    ///
    /// # Errors
    /// A place outside the job or the segment.
    fn local<V: Element>(
        &self,
        slice: GlobalSlice<V>,
    ) -> Result<Option<LocalSlice<'_, V, Self::Memory>>, OneSidedError>;
}

/// Checks that a buffer has as many values as a slice; errors give bytes.
#[inline]
fn same_length<V>(slice: GlobalSlice<V>, values: usize) -> Result<(), OneSidedError> {
    if slice.len() == values as u64 {
        return Ok(());
    }
    let given = (values as u64).saturating_mul(size_of::<V>() as u64);
    Err(OneSidedError::Lengths { given, needed: slice.bytes().unwrap_or(u64::MAX) })
}

/// The bytes of a slice, which no segment has if they are more than memory can hold.
fn byte_length<V>(endpoint_segment: Option<u64>, slice: GlobalSlice<V>) -> Result<usize, OneSidedError> {
    let bytes = slice.bytes().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        let (len, segment) = (slice.bytes().unwrap_or(u64::MAX), endpoint_segment.unwrap_or(0));
        let source = SegmentError::OutOfRange { offset: slice.offset(), len, segment };
        OneSidedError::Segment { rank: slice.rank(), source }
    })
}

/// What an access to mapped memory failed with, with the rank.
#[inline(always)]
fn in_segment<V: Element>(place: GlobalPtr<V>, done: Result<(), SegmentError>) -> Result<(), OneSidedError> {
    done.map_err(|source| OneSidedError::Segment { rank: place.rank(), source })
}

/// Apart and out of the way, as [`get_by_message`] is, so that a store to mapped memory is compiled in one piece.
#[cold]
#[inline(never)]
fn put_by_message<T: Transport, S: HasLayer<OneSided>, V: Element>(
    endpoint: &mut Endpoint<T, S>,
    to: GlobalPtr<V>,
    value: V,
) -> Result<(), OneSidedError> {
    endpoint.put(to.rank(), to.offset(), value.as_bytes())
}

#[cold]
#[inline(never)]
fn get_by_message<T: Transport, S: HasLayer<OneSided>, V: Element>(
    endpoint: &mut Endpoint<T, S>,
    from: GlobalPtr<V>,
) -> Result<V, OneSidedError> {
    let mut value = V::new_zeroed();
    endpoint.get(from.rank(), from.offset(), value.as_mut_bytes())?;
    Ok(value)
}

impl<T: Transport, S: HasLayer<OneSided>> GlobalMemory for Endpoint<T, S> {
    type Memory = T::Memory;

    // Values are handed on as such: their bytes' address would keep them from staying in a register.
    #[inline]
    fn put_value<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<(), OneSidedError> {
        match self.mapped_segment(to.rank()) {
            Some(memory) => in_segment(to, memory.write(to.offset(), value.as_bytes())),
            None => put_by_message(self, to, value),
        }
    }

    #[inline]
    fn put_value_nb<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<Operation<()>, OneSidedError> {
        self.put_nb(to.rank(), to.offset(), value.as_bytes())
    }

    #[inline]
    fn put_value_nbi<V: Element>(&mut self, to: GlobalPtr<V>, value: V) -> Result<(), OneSidedError> {
        self.put_nbi(to.rank(), to.offset(), value.as_bytes())
    }

    #[inline]
    fn get_value<V: Element>(&mut self, from: GlobalPtr<V>) -> Result<V, OneSidedError> {
        match self.mapped_segment(from.rank()) {
            Some(memory) => {
                let mut value = V::new_zeroed();
                in_segment(from, memory.read(from.offset(), value.as_mut_bytes()))?;
                Ok(value)
            }
            None => get_by_message(self, from),
        }
    }

    #[inline]
    fn put_slice<V: Element>(&mut self, to: GlobalSlice<V>, values: &[V]) -> Result<(), OneSidedError> {
        same_length(to, values.len())?;
        self.put(to.rank(), to.offset(), values.as_bytes())
    }

    fn put_slice_nb<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError> {
        same_length(to, values.len())?;
        self.put_nb(to.rank(), to.offset(), values.as_bytes())
    }

    #[inline]
    fn put_slice_nbi<V: Element>(&mut self, to: GlobalSlice<V>, values: &[V]) -> Result<(), OneSidedError> {
        same_length(to, values.len())?;
        self.put_nbi(to.rank(), to.offset(), values.as_bytes())
    }

    fn put_slice_signal<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        values: &[V],
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError> {
        same_length(to, values.len())?;
        let (rank, offset, bytes) = (to.rank(), to.offset(), values.as_bytes());
        // Everything is checked before anything is written.
        check_counter(self, rank, counter)?;
        let most = self.max_payload(rank, Category::Long, Lane::Request, 4).unwrap_or(u64::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        if bytes.len() <= most || self.remote_segment(rank).is_some() {
            return self.put_signal(rank, offset, bytes, counter.offset());
        }
        check_place(self, to.start().cast::<u8>().slice(bytes.len() as u64), 1)?;
        let (first, last) = bytes.split_at(bytes.len() - most);
        self.put(rank, offset, first)?;
        self.put_signal(rank, offset + first.len() as u64, last, counter.offset())
    }

    fn wait_counter(&mut self, counter: GlobalPtr<u64>, value: u64) -> Result<u64, OneSidedError> {
        if counter.rank() != self.rank() {
            return Err(OneSidedError::Elsewhere { given: counter.rank(), needed: self.rank() });
        }
        self.wait_signal(counter.offset(), value)
    }

    #[inline]
    fn get_slice<V: Element>(&mut self, from: GlobalSlice<V>, out: &mut [V]) -> Result<(), OneSidedError> {
        same_length(from, out.len())?;
        self.get(from.rank(), from.offset(), out.as_mut_bytes())
    }

    fn get_slice_nb<V: Element>(&mut self, from: GlobalSlice<V>) -> Result<Operation<Vec<V>>, OneSidedError> {
        let bytes = byte_length(self.segment_len(from.rank()), from)?;
        Ok(self.get_nb(from.rank(), from.offset(), bytes)?.of())
    }

    fn get_slice_nbi<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        into: GlobalSlice<V>,
    ) -> Result<(), OneSidedError> {
        let me = self.rank();
        if into.rank() != me {
            return Err(OneSidedError::Elsewhere { given: into.rank(), needed: me });
        }
        let bytes = byte_length(self.segment_len(from.rank()), from)?;
        if into.len() != from.len() {
            let (given, needed) = (into.bytes().unwrap_or(u64::MAX), bytes as u64);
            return Err(OneSidedError::Lengths { given, needed });
        }
        self.get_nbi(from.rank(), from.offset(), bytes, into.offset())
    }

    fn local<V: Element>(
        &self,
        slice: GlobalSlice<V>,
    ) -> Result<Option<LocalSlice<'_, V, T::Memory>>, OneSidedError> {
        let rank = slice.rank();
        if rank.0 >= self.ranks() {
            return Err(OneSidedError::NoSuchRank { rank, ranks: self.ranks() });
        }
        let local = self.mapped_segment(rank).map(|segment| LocalSlice::new(segment, slice));
        local.transpose().map_err(|source| OneSidedError::Segment { rank, source })
    }
}

/// Checks the counter of a put to a rank, before anything is written.
pub(crate) fn check_counter<T: Transport, S>(
    endpoint: &Endpoint<T, S>,
    rank: Rank,
    counter: GlobalPtr<u64>,
) -> Result<(), OneSidedError> {
    if counter.rank() != rank {
        return Err(OneSidedError::Elsewhere { given: counter.rank(), needed: rank });
    }
    check_place(endpoint, counter.cast::<u8>().slice(8), 8)
}

/// Begins to add one to the counter of a put that is done at its target.
pub(crate) fn signal<T: Transport, S: HasLayer<OneSided>>(
    endpoint: &mut Endpoint<T, S>,
    counter: GlobalPtr<u64>,
) -> Result<Operation<()>, OneSidedError> {
    // Release: whoever sees the counter sees the values; pairs with the fence of a wait for a signal.
    fence(Ordering::Release);
    let batch = AtomicBatch { code: AtomicCode::Add, operands: &[1], expected: &[] };
    endpoint.updates_nb(counter.rank(), counter.offset(), &[0], &batch)
}

/// Checks a place of a put with signal in several messages before the first of them.
fn check_place<T: Transport, S>(
    endpoint: &Endpoint<T, S>,
    bytes: GlobalSlice<u8>,
    alignment: u64,
) -> Result<(), OneSidedError> {
    let (rank, offset, len) = (bytes.rank(), bytes.offset(), bytes.len());
    let no_such = OneSidedError::NoSuchRank { rank, ranks: endpoint.ranks() };
    let segment = endpoint.segment_len(rank).ok_or(no_such)?;
    let wrong = |source| Err(OneSidedError::Segment { rank, source });
    if offset.checked_add(len).is_none_or(|end| end > segment) {
        return wrong(SegmentError::OutOfRange { offset, len, segment });
    }
    if !offset.is_multiple_of(alignment) {
        return wrong(SegmentError::Misaligned { offset, alignment });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_ranks::{Ranks, on_ranks, over_messages, run_ranks};
    use am_core::Rank;
    use am_core::loopback::LoopbackConfig;

    #[test]
    fn values_and_slices_travel() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let row = GlobalPtr::<[u16; 3]>::new(other, 1001).slice(50);
            let values: Vec<[u16; 3]> = (0..50).map(|index| [index, 7, me.0 as u16]).collect();
            endpoint.put_slice(row, &values).unwrap();
            endpoint.put_value(row.at(9).unwrap(), [1, 2, 3]).unwrap();
            let put = endpoint.put_slice_nb(row.range(10..12).unwrap(), &[[4; 3], [5; 3]]).unwrap();
            endpoint.wait(put).unwrap();
            endpoint.put_slice_nbi(row.range(12..13).unwrap(), &[[6; 3]]).unwrap();
            endpoint.put_value_nbi(row.at(13).unwrap(), [7; 3]).unwrap();
            endpoint.quiet().unwrap();
            let mut expected = values;
            expected[9..14].copy_from_slice(&[[1, 2, 3], [4; 3], [5; 3], [6; 3], [7; 3]]);
            let mut found = [[0; 3]; 50];
            endpoint.get_slice(row, &mut found).unwrap();
            assert_eq!(found[..], expected);
            let get = endpoint.get_slice_nb(row).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), expected);
            let put = endpoint.put_value_nb(row.at(14).unwrap(), [8; 3]).unwrap();
            endpoint.wait(put).unwrap();
            let get = endpoint.get_value_nb(row.at(14).unwrap()).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), [[8; 3]]);
            expected[14] = [8; 3];
            assert_eq!(endpoint.get_value(row.at(9).unwrap()), Ok([1, 2, 3]));
            let into = GlobalPtr::new(me, 4000).slice(50);
            endpoint.get_slice_nbi(row, into).unwrap();
            endpoint.quiet().unwrap();
            assert_eq!(endpoint.local(into).unwrap().unwrap().to_vec(), expected);
        });
    }

    /// Slices of the own segment that overlap, both ways, by less than a piece that is copied at once and by more.
    #[test]
    fn slices_that_overlap_are_moved() {
        on_ranks(1, |endpoint| {
            let all = GlobalPtr::<u8>::new(endpoint.rank(), 3).slice(20_000);
            let mut model: Vec<u8> = (0..20_000u32).map(|at| (at * 7 / 3) as u8).collect();
            endpoint.put_slice(all, &model).unwrap();
            for (from, into, len) in
                [(0, 1, 19_000), (500, 0, 19_000), (0, 4096, 9000), (5000, 0, 9000), (10, 10, 9999), (0, 3, 5)]
            {
                let slice = |at| all.range(at..at + len).unwrap();
                endpoint.get_slice_nbi(slice(from), slice(into)).unwrap();
                endpoint.quiet().unwrap();
                model.copy_within(from as usize..(from + len) as usize, into as usize);
                let found = endpoint.local(all).unwrap().unwrap().to_vec();
                assert!(found == model, "{len} from {from} to {into}");
            }
        });
    }

    #[test]
    fn signals_tell_the_target() {
        on_ranks(2, |endpoint| {
            let other = Rank(1 - endpoint.rank().0);
            let counter = GlobalPtr::<u64>::new(other, 8);
            for round in 1..20u64 {
                let row = GlobalPtr::<u64>::new(other, 64).slice(100);
                let put = endpoint.put_slice_signal(row, &[round; 100], counter).unwrap();
                assert_eq!(endpoint.wait_counter(counter.on(endpoint.rank()), round), Ok(round));
                let own = endpoint.local(row.on(endpoint.rank())).unwrap().unwrap();
                assert!(own.iter().all(|value| value == round));
                endpoint.wait(put).unwrap();
                endpoint.barrier().unwrap();
            }
            let at = GlobalPtr::<u32>::new(other, 1000);
            let put = endpoint.put_value_signal(at, 77, counter).unwrap();
            assert_eq!(endpoint.wait_counter(counter.on(endpoint.rank()), 20), Ok(20));
            assert_eq!(endpoint.get_value(at.on(endpoint.rank())), Ok(77));
            endpoint.wait(put).unwrap();
        });
    }

    /// Where a Long message is smaller than the values, nothing is written unless all places are right.
    #[test]
    fn signals_of_several_messages() {
        let config = LoopbackConfig::default().long(64).direct(false);
        run_ranks(2, config, &|endpoint: &mut Ranks| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let segment = endpoint.segment().len() as u64;
            let counter = GlobalPtr::<u64>::new(other, 8);
            let row = GlobalPtr::<u64>::new(other, segment - 800).slice(101);
            let outside = endpoint.put_slice_signal(row, &[1; 101], counter).unwrap_err();
            let source = SegmentError::OutOfRange { offset: segment - 800, len: 808, segment };
            assert_eq!(outside, OneSidedError::Segment { rank: other, source });
            let inside = row.range(0..100).unwrap();
            let odd = GlobalPtr::<u64>::new(other, 12);
            let misaligned = endpoint.put_slice_signal(inside, &[1; 100], odd).unwrap_err();
            let source = SegmentError::Misaligned { offset: 12, alignment: 8 };
            assert_eq!(misaligned, OneSidedError::Segment { rank: other, source });
            endpoint.barrier().unwrap();
            let own = endpoint.local(inside.on(me)).unwrap().unwrap().to_vec();
            assert_eq!(own, [0; 100], "nothing was written");
            endpoint.barrier().unwrap();
            let values: Vec<u64> = (0..100).collect();
            let put = endpoint.put_slice_signal(inside, &values, counter).unwrap();
            assert_eq!(endpoint.wait_counter(counter.on(me), 1), Ok(1));
            assert_eq!(endpoint.local(inside.on(me)).unwrap().unwrap().to_vec(), values);
            endpoint.wait(put).unwrap();
        });
    }

    #[test]
    fn wrong_places_are_told() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let row = GlobalPtr::<u32>::new(other, 0).slice(4);
            let lengths = OneSidedError::Lengths { given: 12, needed: 16 };
            assert_eq!(endpoint.put_slice(row, &[0; 3]), Err(lengths.clone()));
            assert_eq!(endpoint.get_slice(row, &mut [0; 3]), Err(lengths));
            let elsewhere = OneSidedError::Elsewhere { given: me, needed: other };
            let counter = GlobalPtr::new(me, 0);
            assert_eq!(endpoint.put_slice_signal(row, &[0; 4], counter).err(), Some(elsewhere));
            let elsewhere = OneSidedError::Elsewhere { given: other, needed: me };
            assert_eq!(endpoint.get_slice_nbi(row, row), Err(elsewhere.clone()));
            assert_eq!(endpoint.wait_counter(counter.on(other), 0), Err(elsewhere));
            let huge = row.start().slice(u64::MAX);
            assert!(matches!(endpoint.get_slice_nb(huge), Err(OneSidedError::Segment { .. })));
            assert!(matches!(endpoint.local(huge.on(me)), Err(OneSidedError::Segment { .. })));
            let nobody = Err(OneSidedError::NoSuchRank { rank: Rank(2), ranks: 2 });
            assert_eq!(endpoint.put_value(row.start().on(Rank(2)), 1), nobody);
            assert_eq!(endpoint.get_value(row.start()), Ok(0));
        });
        // A peer's memory that is not seen is no error.
        over_messages(2, |endpoint| {
            let row = GlobalPtr::<u32>::new(Rank(1 - endpoint.rank().0), 0).slice(4);
            assert!(endpoint.local(row).unwrap().is_none());
        });
    }
}
