//! Vectored, indexed and strided access: many rows of values of a rank's segment in one operation.
//!
//! [`Sections`] is the typed form of [`am_core::one_sided::Runs`] (GASNet-EX API, "Vector-Indexed-Strided"). Where
//! the segment is memory of this process the rows are copied one by one; else the library packs as many as fit
//! into each message, with a short description of where they belong. All rows are checked before anything is sent.
//! Where rows of a put overlap, it is unspecified which is seen.
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
//! assert_eq!(endpoint.get_indexed_nb(matrix.slice(30), 1, &[0, 3, 29]).map(|get| endpoint.wait(get))??, [8, 7, 29]);
//! # endpoint.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::pointer::{Element, GlobalPtr, GlobalSlice};
use am_core::one_sided::{Dimension, OneSided, OneSidedError, Operation, Runs};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, SegmentError, Transport};

/// How the values of a strided operation lie at one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided<'a> {
    /// The first value, counted in values from the pointer, or from the start of the buffer.
    pub start: u64,
    /// Values from one place to the next in each dimension, the last of which varies fastest.
    pub strides: &'a [i64],
}

mod sealed {
    pub trait Sealed {}

    impl<T: am_core::Transport, S> Sealed for am_core::Endpoint<T, S> {}
}

/// Vectored, indexed and strided access; see the [module](self).
///
/// # Errors
/// Every operation fails with an [`OneSidedError`]: a row outside the job or the segment, which is found before
/// anything is sent; a buffer of another length than the rows ([`OneSidedError::Lengths`], in bytes; of strided
/// forms, in values, if a place is outside the buffer, and the number of strides if it differs from that of the
/// counts); rows of several ranks ([`OneSidedError::Elsewhere`]); a target that is gone; an error of sending or
/// waiting. The endpoint can be used afterwards.
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
    ) -> Result<Operation<()>, OneSidedError>;

    /// As [`put_vectored_nb`](Self::put_vectored_nb), and waits until the values are there.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn put_vectored<V: Element>(&mut self, to: &[GlobalSlice<V>], values: &[V]) -> Result<(), OneSidedError>;

    /// Reads several slices of one rank, one after the other. Allocates.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_vectored<V: Element>(&mut self, from: &[GlobalSlice<V>], out: &mut [V]) -> Result<(), OneSidedError>;

    /// Begins to read several slices of one rank; [`Endpoint::wait`] returns their values, one slice after the
    /// other.
    ///
    /// # Errors
    /// See the [trait](Sections#errors).
    fn get_vectored_nb<V: Element>(&mut self, from: &[GlobalSlice<V>])
    -> Result<Operation<Vec<V>>, OneSidedError>;

    /// Begins to write rows of `row` values each, those that begin at some indices of a slice. The source can be
    /// reused when this returns.
    ///
    /// # Errors
    /// See the [trait](Sections#errors); a row beyond the slice.
    fn put_indexed_nb<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError>;

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
    ) -> Result<(), OneSidedError>;

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
    ) -> Result<(), OneSidedError>;

    /// Begins to read such rows; [`Endpoint::wait`] returns their values in the order of the indices.
    ///
    /// # Errors
    /// As [`put_indexed_nb`](Self::put_indexed_nb).
    fn get_indexed_nb<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
    ) -> Result<Operation<Vec<V>>, OneSidedError>;

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
    ) -> Result<Operation<()>, OneSidedError>;

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
    ) -> Result<(), OneSidedError>;

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
    ) -> Result<(), OneSidedError>;
}

/// The ranges of slices of one rank; the first slice says which.
fn list<V>(slices: &[GlobalSlice<V>]) -> Result<Vec<(u64, u64)>, OneSidedError> {
    let needed = slices.first().map_or(am_core::Rank(0), |slice| slice.rank());
    let range = |slice: &GlobalSlice<V>| match slice.rank() {
        rank if rank == needed => Ok((slice.offset(), slice.bytes().unwrap_or(u64::MAX))),
        given => Err(OneSidedError::Elsewhere { given, needed }),
    };
    slices.iter().map(range).collect()
}

/// The rows that begin at some indices of a slice.
fn indexed<'a, V>(slice: GlobalSlice<V>, row: u64, indices: &'a [u32]) -> Result<Runs<'a>, OneSidedError> {
    let unit = size_of::<V>() as u64;
    let len = row.saturating_mul(unit);
    let last = u64::from(indices.iter().max().copied().unwrap_or(0));
    if !indices.is_empty() && last.checked_add(row).is_none_or(|end| end > slice.len()) {
        let (offset, segment) = (slice.offset().saturating_add(last * unit), slice.bytes().unwrap_or(u64::MAX));
        let source = SegmentError::OutOfRange { offset, len, segment };
        return Err(OneSidedError::Segment { rank: slice.rank(), source });
    }
    Ok(Runs::Indexed { base: slice.offset(), unit, len, indices })
}

/// A strided operation with the dimensions that are contiguous on both sides put together.
struct Shape {
    /// Values of each run.
    run: u64,
    /// The dimensions there, in bytes.
    there: Vec<Dimension>,
    /// The dimensions here, in values.
    here: Vec<Dimension>,
    base: u64,
    start: u64,
}

impl Shape {
    fn new<V>(
        at: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        here: Strided<'_>,
    ) -> Result<Self, OneSidedError> {
        for strides in [there.strides, here.strides] {
            if strides.len() != counts.len() {
                let (given, needed) = (strides.len() as u64, counts.len() as u64);
                return Err(OneSidedError::Lengths { given, needed });
            }
        }
        let size = size_of::<V>() as u64;
        let (mut run, mut left) = (1u64, counts.len());
        while left > 0 && [there, here].iter().all(|side| u64::try_from(side.strides[left - 1]) == Ok(run)) {
            run = run.saturating_mul(counts[left - 1]);
            left -= 1;
        }
        let dimensions = |strides: &[i64], size: u64| {
            let places = counts.iter().zip(strides).take(left);
            places
                .map(|(count, stride)| Dimension { count: *count, stride: stride.saturating_mul(size as i64) })
                .collect()
        };
        let base = there.start.saturating_mul(size).saturating_add(at.offset());
        let (remote, local) = (dimensions(there.strides, size), dimensions(here.strides, 1));
        Ok(Self { run, there: remote, here: local, base, start: here.start })
    }

    fn runs<V>(&self) -> Runs<'_> {
        let len = self.run.saturating_mul(size_of::<V>() as u64);
        Runs::Strided { base: self.base, len, dimensions: &self.there }
    }

    /// The ranges of a buffer of some values, in order.
    fn ranges(&self, buffer: usize) -> Result<Runs<'_>, OneSidedError> {
        let runs = Runs::Strided { base: self.start, len: self.run, dimensions: &self.here };
        runs.check(buffer as u64).map(|()| runs).map_err(|outside| {
            let needed = match outside {
                SegmentError::OutOfRange { offset, len, .. } => offset.saturating_add(len),
                _ => u64::MAX,
            };
            OneSidedError::Lengths { given: buffer as u64, needed }
        })
    }
}

impl<T: Transport, S: HasLayer<OneSided>> Sections for Endpoint<T, S> {
    fn put_vectored_nb<V: Element>(
        &mut self,
        to: &[GlobalSlice<V>],
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError> {
        let rank = to.first().map_or(self.rank(), |slice| slice.rank());
        self.put_runs_nb(rank, &Runs::List(&list(to)?), values.as_bytes())
    }

    fn put_vectored<V: Element>(&mut self, to: &[GlobalSlice<V>], values: &[V]) -> Result<(), OneSidedError> {
        let put = self.put_vectored_nb(to, values)?;
        Ok(self.wait(put)?)
    }

    fn get_vectored<V: Element>(&mut self, from: &[GlobalSlice<V>], out: &mut [V]) -> Result<(), OneSidedError> {
        let rank = from.first().map_or(self.rank(), |slice| slice.rank());
        self.get_runs(rank, &Runs::List(&list(from)?), out.as_mut_bytes())
    }

    fn get_vectored_nb<V: Element>(
        &mut self,
        from: &[GlobalSlice<V>],
    ) -> Result<Operation<Vec<V>>, OneSidedError> {
        let rank = from.first().map_or(self.rank(), |slice| slice.rank());
        Ok(self.get_runs_nb(rank, &Runs::List(&list(from)?))?.of())
    }

    fn put_indexed_nb<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<Operation<()>, OneSidedError> {
        self.put_runs_nb(to.rank(), &indexed(to, row, indices)?, values.as_bytes())
    }

    fn put_indexed<V: Element>(
        &mut self,
        to: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        values: &[V],
    ) -> Result<(), OneSidedError> {
        self.put_runs(to.rank(), &indexed(to, row, indices)?, values.as_bytes())
    }

    fn get_indexed<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
        out: &mut [V],
    ) -> Result<(), OneSidedError> {
        self.get_runs(from.rank(), &indexed(from, row, indices)?, out.as_mut_bytes())
    }

    fn get_indexed_nb<V: Element>(
        &mut self,
        from: GlobalSlice<V>,
        row: u64,
        indices: &[u32],
    ) -> Result<Operation<Vec<V>>, OneSidedError> {
        Ok(self.get_runs_nb(from.rank(), &indexed(from, row, indices)?)?.of())
    }

    fn put_strided_nb<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        values: &[V],
        here: Strided<'_>,
    ) -> Result<Operation<()>, OneSidedError> {
        let shape = Shape::new(to, there, counts, here)?;
        let mut packed: Vec<V> = Vec::new();
        for (at, len) in shape.ranges(values.len())?.iter() {
            packed.extend_from_slice(&values[at as usize..(at + len) as usize]);
        }
        self.put_runs_nb(to.rank(), &shape.runs::<V>(), packed.as_slice().as_bytes())
    }

    fn put_strided<V: Element>(
        &mut self,
        to: GlobalPtr<V>,
        there: Strided<'_>,
        counts: &[u64],
        values: &[V],
        here: Strided<'_>,
    ) -> Result<(), OneSidedError> {
        let put = self.put_strided_nb(to, there, counts, values, here)?;
        Ok(self.wait(put)?)
    }

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
        let get = self.get_runs_nb(from.rank(), &shape.runs::<V>())?.of::<V>();
        let packed = self.wait(get)?;
        let mut rest = packed.as_slice();
        for (at, len) in ranges.iter() {
            let (run, others) = rest.split_at(len as usize);
            out[at as usize..(at + len) as usize].copy_from_slice(run);
            rest = others;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GlobalMemory;
    use crate::on_ranks::on_ranks;
    use am_core::Rank;

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

    #[test]
    fn wrong_rows_are_told() {
        on_ranks(2, |endpoint| {
            let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
            let all = GlobalPtr::<u16>::new(other, 0).slice(10);
            let elsewhere = OneSidedError::Elsewhere { given: me, needed: other };
            assert_eq!(endpoint.put_vectored(&[all, all.on(me)], &[0; 20]), Err(elsewhere));
            let lengths = |given, needed| Err(OneSidedError::Lengths { given, needed });
            assert_eq!(endpoint.get_vectored(&[all], &mut [0; 9]), lengths(18, 20));
            assert!(matches!(endpoint.put_indexed(all, 2, &[9], &[1; 2]), Err(OneSidedError::Segment { .. })));
            let (there, here) = (Strided { start: 0, strides: &[1] }, Strided { start: 3, strides: &[2] });
            assert_eq!(endpoint.get_strided(all.start(), there, &[4], &mut [0; 9], here), lengths(9, 10));
            assert_eq!(endpoint.get_strided(all.start(), there, &[4, 2], &mut [0; 9], here), lengths(1, 2));
            let far = Strided { start: u64::MAX, strides: &[1] };
            let outside = endpoint.put_strided(all.start(), far, &[2], &[1; 2], Strided { start: 0, ..there });
            assert!(matches!(outside, Err(OneSidedError::Segment { .. })));
            assert_eq!(endpoint.get_value(all.start()), Ok(0));
            endpoint.put_vectored::<u16>(&[], &[]).unwrap();
        });
    }
}
