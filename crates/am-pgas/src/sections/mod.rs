//! Vectored, indexed and strided access: many rows of values of a rank's segment in one operation.
//!
//! [`Sections`] is the typed form of [`am_core::one_sided::Runs`] (GASNet-EX API, "Vector-Indexed-Strided"). Where
//! the segment is memory of this process the rows are copied one by one; else the library packs as many as fit
//! into each message, with a short description of where they belong. All rows are checked before anything is sent.
//! Where rows that are written overlap each other, it is unspecified which is seen.
//!
//! | form | returns when | a get's values |
//! |---|---|---|
//! | `put_strided`, `get_strided`, and so on | the operation is done at the target | go into `&mut [V]` |
//! | `put_..._signal` | its values are there, and the addition to a counter of the target is under way | |
//! | `..._nb` | it is under way; [`Endpoint::wait`] waits for it | are packed into a vector that the wait returns |
//! | `..._nbi` | it is under way; [`Endpoint::quiet`] or the access region waits for it | go into this rank's own segment |
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use am_pgas::sections::{Sections, Strided};
//! use am_pgas::{Pgas, memory::GlobalMemory, pointer::GlobalPtr};
//!
//! let transport = loopback::network(1, loopback::LoopbackConfig::default().segment(1024)).remove(0);
//! let mut handlers = Handlers::<Pgas>::new();
//! let pgas = Pgas::register(&mut handlers)?;
//! let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
//!
//! // The second column of a matrix of 3 rows and 10 columns becomes the first of one of 3 rows and 2 columns.
//! let matrix = GlobalPtr::<u32>::new(Rank(0), 0);
//! endpoint.put_slice(matrix.slice(30), &(0..30).collect::<Vec<_>>())?;
//! let mut small = [0; 6];
//! let column = Strided { start: 1, strides: &[10] };
//! endpoint.get_strided(matrix, column, &[3], &mut small, Strided { start: 0, strides: &[2] })?;
//! assert_eq!(small, [1, 0, 11, 0, 21, 0]);
//!
//! endpoint.put_indexed(matrix.slice(30), 2, &[3, 0], &[7, 7, 8, 8])?;
//! let get = endpoint.get_indexed_nb(matrix.slice(30), 1, &[0, 3, 29])?;
//! assert_eq!(endpoint.wait(get)?, [8, 7, 29]);
//! # endpoint.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::memory::{check_counter, signal};
use crate::pointer::{Element, GlobalPtr, GlobalSlice};
use am_core::one_sided::{Dimension, OneSided, OneSidedError, Operation, Runs};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, SegmentError, Transport};

/// How the values of a strided operation lie at one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided<'a> {
    /// The first value, counted in values from the pointer, or from the start of the buffer.
    pub start: u64,
    /// Values from one place to the next in each dimension, the last of which varies fastest.
    pub strides: &'a [i64],
}

mod sealed {
    use am_core::one_sided::OneSided;
    use am_core::{Endpoint, HasLayer, Transport};

    /// What the operations are methods of.
    pub trait Sealed {
        type Transport: Transport;
        type State: HasLayer<OneSided>;

        fn endpoint(&mut self) -> &mut Endpoint<Self::Transport, Self::State>;
    }

    impl<T: Transport, S: HasLayer<OneSided>> Sealed for Endpoint<T, S> {
        type Transport = T;
        type State = S;

        fn endpoint(&mut self) -> &mut Self {
            self
        }
    }
}

/// Vectored, indexed and strided access; see the [module](self).
///
/// # Errors
/// Every operation fails with an [`OneSidedError`]: a row outside the job or the segment, which is found before
/// anything is sent; a buffer of another length than the rows ([`OneSidedError::Lengths`], in bytes; of strided
/// forms, in values, if a place is outside the buffer); other strides than counts
/// ([`OneSidedError::Dimensions`]); rows that repeat places and have more than the segment's bytes and 1 GiB
/// ([`OneSidedError::TooLarge`]); rows of several ranks ([`OneSidedError::Elsewhere`]); a target that is gone; an
/// error of sending or waiting. The endpoint can be used afterwards.
pub trait Sections: sealed::Sealed {
    /// Begins to write values to several slices of one rank, one after the other. The source can be reused when
    /// this returns. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_vectored_nb<V: Element>(
        &mut self,
        to: &[GlobalSlice<V>],
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError> {
        let (rank, ranges) = list(to, self.endpoint().rank())?;
        self.endpoint().put_runs_nb(rank, &Runs::List(&ranges), values.as_bytes())
    }

    /// As [`put_vectored_nb`](Self::put_vectored_nb), and waits until the values are there.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_vectored<V: Element>(&mut self, to: &[GlobalSlice<V>], values: &[V]) -> Result<(), OneSidedError> {
        let put = self.put_vectored_nb(to, values)?;
        Ok(self.endpoint().wait(put)?)
    }

    /// As [`put_vectored_nb`](Self::put_vectored_nb), waited for by [`Endpoint::quiet`] or the access region that
    /// is open.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_vectored_nbi<V: Element>(&mut self, to: &[GlobalSlice<V>], values: &[V]) -> Result<(), OneSidedError> {
        let (rank, ranges) = list(to, self.endpoint().rank())?;
        self.endpoint().put_runs_nbi(rank, &Runs::List(&ranges), values.as_bytes())
    }

    /// As [`put_vectored`](Self::put_vectored), and begins to add one to a counter of the same rank, which that
    /// waits for with [`wait_counter`](crate::memory::GlobalMemory::wait_counter). Blocks until the values are
    /// there.
    ///
    /// # Errors
    /// See the [trait](Sections#errors); [`OneSidedError::Elsewhere`] for a counter of another rank; a misaligned
    /// counter.
    fn put_vectored_signal<V: Element>(
        &mut self,
        to: &[GlobalSlice<V>],
        values: &[V],
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError> {
        let (rank, ranges) = list(to, counter.rank())?;
        put_and_signal(self.endpoint(), (rank, &Runs::List(&ranges)), values.as_bytes(), counter)
    }

    /// Reads several slices of one rank, one after the other. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_vectored<V: Element>(&mut self, from: &[GlobalSlice<V>], out: &mut [V]) -> Result<(), OneSidedError> {
        let (rank, ranges) = list(from, self.endpoint().rank())?;
        self.endpoint().get_runs(rank, &Runs::List(&ranges), out.as_mut_bytes())
    }

    /// Begins to read several slices of one rank; [`Endpoint::wait`] returns their values, one slice after the
    /// other.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_vectored_nb<V: Element>(
        &mut self,
        from: &[GlobalSlice<V>],
    ) -> Result<Operation<Vec<V>>, OneSidedError> {
        let (rank, ranges) = list(from, self.endpoint().rank())?;
        Ok(self.endpoint().get_runs_nb(rank, &Runs::List(&ranges))?.of())
    }

    /// Begins to read several slices of one rank into a slice of this rank's own segment, one after the other;
    /// waited for by [`Endpoint::quiet`] or the access region that is open. The slices may overlap `into`, which
    /// then gets the values that they held before. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors); [`OneSidedError::Elsewhere`] if `into` is not this rank's.
    fn get_vectored_nbi<V: Element>(
        &mut self,
        from: &[GlobalSlice<V>],
        into: GlobalSlice<V>,
    ) -> Result<(), OneSidedError> {
        own(self.endpoint(), into.rank())?;
        let (rank, ranges) = list(from, self.endpoint().rank())?;
        self.endpoint().get_runs_nbi(rank, &Runs::List(&ranges), &Runs::List(&whole(into)))
    }

    /// Begins to write rows of `row` values each, those that begin at some indices of a slice. The source can be
    /// reused when this returns.
    ///
    /// # Errors
    /// See the [trait](Sections#errors); [`OneSidedError::Row`] for one beyond the slice.
    fn put_indexed_nb<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError> {
        self.endpoint().put_runs_nb(to.rank(), &indexed(to, row, indices)?, values.as_bytes())
    }

    /// As [`put_indexed_nb`](Self::put_indexed_nb), and waits until the values are there.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb).
    fn put_indexed<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<(), OneSidedError> {
        self.endpoint().put_runs(to.rank(), &indexed(to, row, indices)?, values.as_bytes())
    }

    /// As [`put_indexed_nb`](Self::put_indexed_nb), waited for by [`Endpoint::quiet`] or the access region that is
    /// open.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb).
    fn put_indexed_nbi<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<(), OneSidedError> {
        self.endpoint().put_runs_nbi(to.rank(), &indexed(to, row, indices)?, values.as_bytes())
    }

    /// As [`put_indexed`](Self::put_indexed), and begins to add one to a counter as
    /// [`put_vectored_signal`](Self::put_vectored_signal) does.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb) and [`put_vectored_signal`](Self::put_vectored_signal).
    fn put_indexed_signal<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError> {
        let runs = indexed(to, row, indices)?;
        put_and_signal(self.endpoint(), (to.rank(), &runs), values.as_bytes(), counter)
    }

    /// Reads rows of `row` values each, those that begin at some indices of a slice.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb).
    fn get_indexed<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        out: &mut [V],
    ) -> Result<(), OneSidedError> {
        self.endpoint().get_runs(from.rank(), &indexed(from, row, indices)?, out.as_mut_bytes())
    }

    /// Begins to read such rows; [`Endpoint::wait`] returns their values in the order of the indices.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb).
    fn get_indexed_nb<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
    ) -> Result<Operation<Vec<V>>, OneSidedError> {
        Ok(self.endpoint().get_runs_nb(from.rank(), &indexed(from, row, indices)?)?.of())
    }

    /// Begins to read such rows into a slice of this rank's own segment, in the order of the indices; waited for
    /// by [`Endpoint::quiet`] or the access region that is open. The rows may overlap `into`, which then gets the
    /// values that they held before.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb); [`OneSidedError::Elsewhere`] if `into` is not this rank's.
    fn get_indexed_nbi<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        into: GlobalSlice<V>,
    ) -> Result<(), OneSidedError> {
        own(self.endpoint(), into.rank())?;
        self.endpoint().get_runs_nbi(from.rank(), &indexed(from, row, indices)?, &Runs::List(&whole(into)))
    }

    /// Begins to write `counts` values in each dimension, of any number of these, that lie strided on both sides.
    /// The source can be reused when this returns. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_strided_nb<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        values: &[V],
        here: Strided<'_>,
    ) -> Result<Operation<()>, OneSidedError> {
        let shape = Shape::new(to, there, counts, here)?;
        let packed = shape.pack(values, self.endpoint(), to.rank())?;
        self.endpoint().put_runs_nb(to.rank(), &shape.there.runs(), packed.as_slice().as_bytes())
    }

    /// As [`put_strided_nb`](Self::put_strided_nb), and waits until the values are there.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_strided<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        values: &[V],
        here: Strided<'_>,
    ) -> Result<(), OneSidedError> {
        let put = self.put_strided_nb(to, there, counts, values, here)?;
        Ok(self.endpoint().wait(put)?)
    }

    /// As [`put_strided_nb`](Self::put_strided_nb), waited for by [`Endpoint::quiet`] or the access region that is
    /// open.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_strided_nbi<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        values: &[V],
        here: Strided<'_>,
    ) -> Result<(), OneSidedError> {
        let shape = Shape::new(to, there, counts, here)?;
        let packed = shape.pack(values, self.endpoint(), to.rank())?;
        self.endpoint().put_runs_nbi(to.rank(), &shape.there.runs(), packed.as_slice().as_bytes())
    }

    /// As [`put_strided`](Self::put_strided), and begins to add one to a counter as
    /// [`put_vectored_signal`](Self::put_vectored_signal) does.
    ///
    /// # Errors
    /// As [`put_vectored_signal`](Self::put_vectored_signal).
    fn put_strided_signal<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        (values, here): (&[V], Strided<'_>),
        counter: GlobalPtr<u64>,
    ) -> Result<Operation<()>, OneSidedError> {
        let shape = Shape::new(to, there, counts, here)?;
        let packed = shape.pack(values, self.endpoint(), to.rank())?;
        let to = (to.rank(), &shape.there.runs());
        put_and_signal(self.endpoint(), to, packed.as_slice().as_bytes(), counter)
    }

    /// Reads `counts` values in each dimension, of any number of these, that lie strided on both sides. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_strided<V: Element>(
        &mut self,
        from: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        out: &mut [V],
        here: Strided<'_>,
    ) -> Result<(), OneSidedError> {
        let shape = Shape::new(from, there, counts, here)?;
        let ranges = shape.ranges(out.len())?;
        let get = self.endpoint().get_runs_nb(from.rank(), &shape.there.runs())?.of::<V>();
        let packed = self.endpoint().wait(get)?;
        let mut rest = packed.as_slice();
        for (at, len) in ranges.iter().take_while(|_| size_of::<V>() > 0) {
            let (run, others) = rest.split_at(len as usize);
            out[at as usize..(at + len) as usize].copy_from_slice(run);
            rest = others;
        }
        Ok(())
    }

    /// Begins to read `counts` values in each dimension; [`Endpoint::wait`] returns them packed, the last
    /// dimension varying fastest. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_strided_nb<V: Element>(
        &mut self,
        from: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
    ) -> Result<Operation<Vec<V>>, OneSidedError> {
        let side = Side::at(from, there, counts)?;
        Ok(self.endpoint().get_runs_nb(from.rank(), &side.runs())?.of())
    }

    /// Begins to read `counts` values in each dimension into places of this rank's own segment that lie strided
    /// from `into` on; waited for by [`Endpoint::quiet`] or the access region that is open. The two sides may
    /// overlap: the values are those that were there before. Over messages, each row that is contiguous in the own
    /// segment is asked for by itself. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors); [`OneSidedError::Elsewhere`] if `into` is not this rank's.
    fn get_strided_nbi<V: Element>(
        &mut self,
        from: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        into: GlobalPtr<V>,
        here: Strided<'_>,
    ) -> Result<(), OneSidedError> {
        own(self.endpoint(), into.rank())?;
        let (remote, local) = (Side::at(from, there, counts)?, Side::at(into, here, counts)?);
        self.endpoint().get_runs_nbi(from.rank(), &remote.runs(), &local.runs())
    }
}

/// Writes runs, and begins to add one to a counter once they are there. Everything is checked before.
fn put_and_signal<T: Transport, S: HasLayer<OneSided>>(
    endpoint: &mut Endpoint<T, S>,
    (rank, runs): (Rank, &Runs<'_>),
    bytes: &[u8],
    counter: GlobalPtr<u64>,
) -> Result<Operation<()>, OneSidedError> {
    check_counter(endpoint, rank, counter)?;
    endpoint.put_runs(rank, runs, bytes)?;
    signal(endpoint, counter)
}

/// The rank and the ranges of slices of one rank; the first slice says which, or `nowhere` if there is none.
fn list<V>(slices: &[GlobalSlice<V>], nowhere: Rank) -> Result<(Rank, Vec<(u64, u64)>), OneSidedError> {
    let needed = slices.first().map_or(nowhere, |slice| slice.rank());
    let range = |slice: &GlobalSlice<V>| match slice.rank() {
        rank if rank == needed => Ok((slice.offset(), slice.bytes().unwrap_or(u64::MAX))),
        given => Err(OneSidedError::Elsewhere { given, needed }),
    };
    Ok((needed, slices.iter().map(range).collect::<Result<_, _>>()?))
}

/// The rows that begin at some indices of a slice.
fn indexed<'a, V>(slice: GlobalSlice<V>, row: u64, indices: &'a [u32]) -> Result<Runs<'a>, OneSidedError> {
    let unit = size_of::<V>() as u64;
    let len = row.saturating_mul(unit);
    let last = u64::from(indices.iter().max().copied().unwrap_or(0));
    if !indices.is_empty() && last.checked_add(row).is_none_or(|end| end > slice.len()) {
        return Err(OneSidedError::Row { index: last, row, len: slice.len() });
    }
    Ok(Runs::Indexed { base: slice.offset(), unit, len, indices })
}

/// One side of a strided operation, with the innermost dimensions that are contiguous put together.
struct Side {
    /// Where the first value lies, and how long each run is.
    start: u64,
    run: u64,
    dimensions: Vec<Dimension>,
}

impl Side {
    /// The side in units of `size` from `base` on, of runs of `run` values in the first `left` dimensions.
    fn new(strided: Strided<'_>, counts: &[u64], (run, left): (u64, usize), size: u64, base: u64) -> Self {
        let places = counts.iter().zip(strided.strides).take(left);
        let dimensions = places
            .map(|(count, stride)| Dimension { count: *count, stride: stride.saturating_mul(size as i64) })
            .collect();
        let start = strided.start.saturating_mul(size).saturating_add(base);
        Self { start, run: run.saturating_mul(size), dimensions }
    }

    /// One side by itself in a segment, from a pointer on.
    fn at<V>(at: GlobalPtr<V>, strided: Strided<'_>, counts: &[u64]) -> Result<Self, OneSidedError> {
        let rows = contiguous(&[strided], counts)?;
        Ok(Self::new(strided, counts, rows, size_of::<V>() as u64, at.offset()))
    }

    fn runs(&self) -> Runs<'_> {
        Runs::Strided { base: self.start, len: self.run, dimensions: &self.dimensions }
    }
}

/// How many values are contiguous at all sides, and how many dimensions are left outside of these.
fn contiguous(sides: &[Strided<'_>], counts: &[u64]) -> Result<(u64, usize), OneSidedError> {
    if let Some(side) = sides.iter().find(|side| side.strides.len() != counts.len()) {
        let (strides, counts) = (side.strides.len() as u64, counts.len() as u64);
        return Err(OneSidedError::Dimensions { strides, counts });
    }
    let (mut run, mut left) = (1u64, counts.len());
    while left > 0 && sides.iter().all(|side| u64::try_from(side.strides[left - 1]) == Ok(run)) {
        run = run.saturating_mul(counts[left - 1]);
        left -= 1;
    }
    Ok((run, left))
}

/// A strided operation between a segment, in bytes, and a buffer, in values.
struct Shape {
    there: Side,
    here: Side,
}

impl Shape {
    fn new<V>(
        at: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        here: Strided<'_>,
    ) -> Result<Self, OneSidedError> {
        let rows = contiguous(&[there, here], counts)?;
        let remote = Side::new(there, counts, rows, size_of::<V>() as u64, at.offset());
        Ok(Self { there: remote, here: Side::new(here, counts, rows, 1, 0) })
    }

    /// The ranges of a buffer of some values, in order.
    fn ranges(&self, buffer: usize) -> Result<Runs<'_>, OneSidedError> {
        let runs = self.here.runs();
        runs.check(buffer as u64).map(|()| runs).map_err(|outside| {
            let needed = match outside {
                SegmentError::OutOfRange { offset, len, .. } => offset.saturating_add(len),
                _ => u64::MAX,
            };
            OneSidedError::Lengths { given: buffer as u64, needed }
        })
    }

    /// The values of a buffer, packed, if there is a place for them.
    fn pack<V: Element, T: Transport, S: HasLayer<OneSided>>(
        &self,
        values: &[V],
        endpoint: &Endpoint<T, S>,
        to: Rank,
    ) -> Result<Vec<V>, OneSidedError> {
        let ranges = self.ranges(values.len())?;
        endpoint.check_runs(to, &self.there.runs())?;
        let mut packed = Vec::new();
        // Values without bytes can be any number.
        for (at, len) in ranges.iter().take_while(|_| size_of::<V>() > 0) {
            packed.extend_from_slice(&values[at as usize..(at + len) as usize]);
        }
        Ok(packed)
    }
}

/// Checks that a place that a get writes to is this rank's own.
fn own<T: Transport, S>(endpoint: &Endpoint<T, S>, given: Rank) -> Result<(), OneSidedError> {
    let needed = endpoint.rank();
    if given == needed { Ok(()) } else { Err(OneSidedError::Elsewhere { given, needed }) }
}

/// The bytes of a slice as one run.
fn whole<V>(slice: GlobalSlice<V>) -> [(u64, u64); 1] {
    [(slice.offset(), slice.bytes().unwrap_or(u64::MAX))]
}

impl<T: Transport, S: HasLayer<OneSided>> Sections for Endpoint<T, S> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GlobalMemory;
    use crate::on_ranks::{Ranks, on_ranks};

    #[test]
    fn rows_of_all_forms() {
        on_ranks(2, |endpoint| {
            let other = Rank(1 - endpoint.rank().0);
            let all = GlobalPtr::<u32>::new(other, 20).slice(500);
            let mut model: Vec<u32> = (0..500).collect();
            endpoint.put_slice(all, &model).unwrap();
            // Slices.
            let slices: Vec<_> = [3..7, 100..220, 9..9, 50..51].map(|range| all.range(range).unwrap()).into();
            let values: Vec<u32> = (1000..1125).collect();
            endpoint.put_vectored(&slices, &values).unwrap();
            model[3..7].copy_from_slice(&values[..4]);
            model[100..220].copy_from_slice(&values[4..124]);
            model[50] = 1124;
            let mut found = vec![0; 125];
            endpoint.get_vectored(&slices, &mut found).unwrap();
            assert_eq!(found, values);
            let get = endpoint.get_vectored_nb(&slices).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), values);
            // Rows at indices.
            endpoint.put_indexed(all, 3, &[400, 20, 497], &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
            for (at, value) in
                [(400, 1), (401, 2), (402, 3), (20, 4), (21, 5), (22, 6), (497, 7), (498, 8), (499, 9)]
            {
                model[at] = value;
            }
            let mut found = [0; 6];
            endpoint.get_indexed(all, 2, &[21, 0, 498], &mut found).unwrap();
            assert_eq!(found, [5, 6, 0, 1, 8, 9]);
            // A box of three dimensions, backwards in one of them; its last two are contiguous here.
            let source: Vec<u32> = (0..100).map(|value| 5000 + value).collect();
            let there = Strided { start: 290, strides: &[-50, 10, 1] };
            let here = Strided { start: 2, strides: &[24, 4, 1] };
            endpoint.put_strided(all.start(), there, &[3, 2, 4], &source, here).unwrap();
            for (x, y, z) in (0..24).map(|number| (number / 8, number / 4 % 2, number % 4)) {
                model[290 - 50 * x + 10 * y + z] = 5000 + (2 + 24 * x + 4 * y + z) as u32;
            }
            let mut back = vec![0; 100];
            endpoint.get_strided(all.start(), there, &[3, 2, 4], &mut back, here).unwrap();
            for (at, value) in back.into_iter().enumerate() {
                let inside = at >= 2 && (at - 2) / 24 < 3 && (at - 2) % 24 < 8;
                assert_eq!(value, if inside { 5000 + at as u32 } else { 0 });
            }
            let mut found = vec![0; 500];
            endpoint.get_slice(all, &mut found).unwrap();
            assert_eq!(found, model);
        });
    }

    /// The forms without waits write and read what the blocking ones do.
    #[test]
    fn rows_of_all_forms_without_waits() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let all = GlobalPtr::<u32>::new(other, 20).slice(500);
            let own = GlobalPtr::<u32>::new(me, 4000).slice(700);
            let found = |endpoint: &Ranks| endpoint.local(own).unwrap().unwrap().to_vec();
            let mut model: Vec<u32> = (0..500).collect();
            endpoint.put_slice(all, &model).unwrap();
            let slices: Vec<_> = [3..7, 9..9, 100..400].map(|range| all.range(range).unwrap()).into();
            let values: Vec<u32> = (1000..1304).collect();
            let source: Vec<u32> = (0..100).map(|value| 5000 + value).collect();
            let there = Strided { start: 450, strides: &[-10, 2] };
            let here = Strided { start: 2, strides: &[20, 1] };
            endpoint.put_vectored_nbi(&slices, &values).unwrap();
            endpoint.put_indexed_nbi(all, 3, &[480, 20], &[1, 2, 3, 4, 5, 6]).unwrap();
            endpoint.begin_region().unwrap();
            endpoint.put_strided_nbi(all.start(), there, &[4, 5], &source, here).unwrap();
            let region = endpoint.end_region().unwrap();
            endpoint.wait(region).unwrap();
            endpoint.quiet().unwrap();
            model[3..7].copy_from_slice(&values[..4]);
            model[100..400].copy_from_slice(&values[4..]);
            model[480..483].copy_from_slice(&[1, 2, 3]);
            model[20..23].copy_from_slice(&[4, 5, 6]);
            let places: Vec<(usize, usize)> = (0..20).map(|place| (place / 5, place % 5)).collect();
            places.iter().for_each(|(x, y)| model[450 - 10 * x + 2 * y] = 5002 + (20 * x + y) as u32);
            let boxed: Vec<u32> = places.iter().map(|(x, y)| model[450 - 10 * x + 2 * y]).collect();
            let get = endpoint.get_strided_nb(all.start(), there, &[4, 5]).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), boxed);
            endpoint.get_vectored_nbi(&slices, own.range(0..304).unwrap()).unwrap();
            endpoint.get_indexed_nbi(all, 2, &[20, 481], own.range(304..308).unwrap()).unwrap();
            // Columns on one side are rows on the other.
            let turned = Strided { start: 310, strides: &[1, 9] };
            endpoint.get_strided_nbi(all.start(), there, &[4, 5], own.start(), turned).unwrap();
            let rows = Strided { start: 400, strides: &[50, 1] };
            let long = Strided { start: 0, strides: &[100, 1] };
            endpoint.get_strided_nbi(all.start(), long, &[5, 40], own.start(), rows).unwrap();
            endpoint.quiet().unwrap();
            let mut expected = vec![0; 700];
            expected[..304].copy_from_slice(&values);
            expected[304..308].copy_from_slice(&[4, 5, 2, 3]);
            places.iter().zip(&boxed).for_each(|((x, y), value)| expected[310 + x + 9 * y] = *value);
            (0..5).for_each(|row| expected[400 + 50 * row..][..40].copy_from_slice(&model[100 * row..][..40]));
            assert_eq!(found(endpoint), expected);
            let elsewhere = Err(OneSidedError::Elsewhere { given: other, needed: me });
            assert_eq!(endpoint.get_vectored_nbi(&slices, all), elsewhere);
            let lengths = Err(OneSidedError::Lengths { given: 1212, needed: 1216 });
            assert_eq!(endpoint.get_vectored_nbi(&slices, own.range(0..303).unwrap()), lengths);
            let outside = endpoint.get_strided_nbi(
                all.start(),
                there,
                &[4, 5],
                own.start(),
                Strided { start: u64::MAX, ..rows },
            );
            assert!(matches!(outside, Err(OneSidedError::Segment { rank, .. }) if rank == me));
            assert_eq!(found(endpoint), expected, "what is refused changes nothing");
        });
    }

    /// Rows of every form are there when their signal is.
    #[test]
    fn signals_follow_rows() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let all = GlobalPtr::<u32>::new(other, 64).slice(100);
            let counter = GlobalPtr::<u64>::new(other, 8);
            let own = |endpoint: &Ranks| endpoint.local(all.on(me)).unwrap().unwrap().to_vec();
            let slices = [all.range(3..5).unwrap(), all.range(90..91).unwrap()];
            let first = endpoint.put_vectored_signal(&slices, &[1, 2, 3], counter).unwrap();
            endpoint.wait_counter(counter.on(me), 1).unwrap();
            assert_eq!([3, 4, 90].map(|at| own(endpoint)[at]), [1, 2, 3]);
            let second = endpoint.put_indexed_signal(all, 2, &[50, 10], &[4, 5, 6, 7], counter).unwrap();
            endpoint.wait_counter(counter.on(me), 2).unwrap();
            assert_eq!([50, 51, 10, 11].map(|at| own(endpoint)[at]), [4, 5, 6, 7]);
            let (there, here) = (Strided { start: 60, strides: &[10] }, Strided { start: 0, strides: &[2] });
            let third =
                endpoint.put_strided_signal(all.start(), there, &[3], (&[8, 0, 9, 0, 10], here), counter).unwrap();
            assert_eq!(endpoint.wait_counter(counter.on(me), 3), Ok(3));
            assert_eq!([60, 70, 80].map(|at| own(endpoint)[at]), [8, 9, 10]);
            for operation in [first, second, third] {
                endpoint.wait(operation).unwrap();
            }
            // Nothing is written if the counter is wrong.
            let elsewhere = OneSidedError::Elsewhere { given: me, needed: other };
            let found = endpoint.put_indexed_signal(all, 1, &[0], &[1], counter.on(me));
            assert_eq!(found.err(), Some(elsewhere));
            let odd = endpoint.put_vectored_signal(&slices, &[1; 3], GlobalPtr::new(other, 12));
            assert!(matches!(odd, Err(OneSidedError::Segment { source: SegmentError::Misaligned { .. }, .. })));
            endpoint.barrier().unwrap();
            assert_eq!([0, 3].map(|at| own(endpoint)[at]), [0, 1]);
        });
    }

    /// Rows of the own segment that overlap where they are written.
    #[test]
    fn rows_that_overlap() {
        on_ranks(1, |endpoint| {
            let all = GlobalPtr::<u16>::new(endpoint.rank(), 2).slice(9000);
            let mut model: Vec<u16> = (0..9000).collect();
            endpoint.put_slice(all, &model).unwrap();
            let rows = |start| Strided { start, strides: &[1000, 1] };
            endpoint.get_strided_nbi(all.start(), rows(0), &[8, 900], all.start(), rows(1000)).unwrap();
            endpoint.quiet().unwrap();
            let before = model.clone();
            for row in 0..8 {
                model[1000 * (row + 1)..][..900].copy_from_slice(&before[1000 * row..][..900]);
            }
            assert!(endpoint.local(all).unwrap().unwrap().to_vec() == model);
        });
    }

    #[test]
    fn wrong_rows_are_told() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let all = GlobalPtr::<u16>::new(other, 0).slice(10);
            let elsewhere = OneSidedError::Elsewhere { given: me, needed: other };
            assert_eq!(endpoint.put_vectored(&[all, all.on(me)], &[0; 20]), Err(elsewhere));
            let lengths = |given, needed| Err(OneSidedError::Lengths { given, needed });
            let dimensions = Err(OneSidedError::Dimensions { strides: 1, counts: 2 });
            assert_eq!(endpoint.get_vectored(&[all], &mut [0; 9]), lengths(18, 20));
            let row = Err(OneSidedError::Row { index: 9, row: 2, len: 10 });
            assert_eq!(endpoint.put_indexed(all, 2, &[9], &[1; 2]), row);
            let (there, here) = (Strided { start: 0, strides: &[1] }, Strided { start: 3, strides: &[2] });
            assert_eq!(endpoint.get_strided(all.start(), there, &[4], &mut [0; 9], here), lengths(9, 10));
            assert_eq!(endpoint.get_strided(all.start(), there, &[4, 2], &mut [0; 9], here), dimensions);
            let zero = Strided { start: 0, strides: &[0] };
            let most = 1 << 30;
            for (count, bytes) in [(1 << 62, 1 << 63), (most / 2 + 1, most + 2)] {
                let too_large = OneSidedError::TooLarge { bytes, most };
                assert_eq!(endpoint.get_strided_nb(all.start(), zero, &[count]).err(), Some(too_large.clone()));
                let (mut out, counts) = ([0; 1], [count]);
                let got = endpoint.get_strided(all.start(), zero, &counts, &mut out, zero);
                assert_eq!(got, Err(too_large.clone()));
                assert_eq!(endpoint.put_strided(all.start(), zero, &counts, &[7], zero), Err(too_large));
            }
            // Few repetitions are fine.
            endpoint.put_strided(all.start(), zero, &[40], &[7], zero).unwrap();
            let get = endpoint.get_strided_nb(all.start(), zero, &[40]).unwrap();
            assert_eq!(endpoint.wait(get).unwrap(), [7; 40]);
            endpoint.put_value(all.start(), 0).unwrap();
            let far = Strided { start: u64::MAX, strides: &[1] };
            let outside = endpoint.put_strided(all.start(), far, &[2], &[1; 2], Strided { start: 0, ..there });
            assert!(matches!(outside, Err(OneSidedError::Segment { .. })));
            assert_eq!(endpoint.get_value(all.start()), Ok(0));
            endpoint.put_vectored::<u16>(&[], &[]).unwrap();
        });
    }
}
