//! Sections of global arrays: rows of elements that lie together on a rank, which go together to it.

use super::distribution::{ElementLocation, Section};
use super::{ArrayError, GlobalArray, pending};
use crate::local::LocalSlice;
use crate::pointer::Element;
use am_core::one_sided::{OneSided, Operation, Runs};
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Rank, Transport};
use std::cell::RefCell;
use std::ops::Range;

/// Rows of unseen memory that are noted before their ranks are asked.
const AT_ONCE: usize = 1 << 14;

/// Elements that lie together on a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Where the first lies.
    pub(super) place: ElementLocation,
    pub(super) len: u64,
    /// Where the first belongs at the other side.
    pub(super) at: u64,
}

/// Puts rows of one rank and length next to each other.
fn group(rows: &mut [Row]) -> impl Iterator<Item = &[Row]> {
    rows.sort_by_key(|row| (row.place.rank, row.len));
    rows.chunk_by(|a, b| (a.place.rank, a.len) == (b.place.rank, b.len))
}

impl<V: Element, const D: usize> GlobalArray<V, D> {
    /// Checks a section and the length of its buffer.
    fn check(&self, section: &Section<D>, buffer: usize) -> Result<(), ArrayError> {
        let mut needed = 1u64;
        for (dimension, (range, len)) in section.iter().zip(self.distribution.shape()).enumerate() {
            if range.end > len || range.start > range.end {
                return Err(ArrayError::Section { dimension, start: range.start, end: range.end, len });
            }
            needed *= range.end - range.start;
        }
        if needed != buffer as u64 {
            return Err(ArrayError::Lengths { given: buffer as u64, needed });
        }
        Ok(())
    }

    /// Calls `seen` with the rows of a section in memory that this process sees, and `far` with the others, many
    /// at a time, until that fails.
    fn rows<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        section: &Section<D>,
        mut seen: impl FnMut(&LocalSlice<'_, V, T::Memory>, Row),
        mut far: impl FnMut(&mut Endpoint<T, S>, &mut [Row]) -> Result<(), ArrayError>,
    ) -> Result<(), ArrayError> {
        let (mut rows, mut at, mut done) = (Vec::new(), 0, Ok(()));
        self.distribution.runs(section, |place, len| {
            let row = Row { place, len, at };
            at += len;
            if done.is_err() {
                return;
            }
            if let Some(memory) = self.stored(endpoint, place.rank) {
                seen(&memory, row);
                return;
            }
            rows.push(row);
            if rows.len() == AT_ONCE {
                done = far(endpoint, &mut rows);
                rows.clear();
            }
        });
        done?;
        if rows.is_empty() { Ok(()) } else { far(endpoint, &mut rows) }
    }

    fn byte_offset(&self, place: ElementLocation) -> u64 {
        self.memory.offset() + place.offset * size_of::<V>() as u64
    }

    /// The runs of rows of one rank and length: compact where the offsets are small.
    fn runs<R>(&self, rows: &[Row], f: impl FnOnce(&Runs<'_>) -> R) -> R {
        let size = size_of::<V>() as u64;
        let len = rows[0].len * size;
        let indices: Option<Vec<u32>> = rows.iter().map(|row| u32::try_from(row.place.offset).ok()).collect();
        match indices {
            Some(indices) => f(&Runs::Indexed { base: self.memory.offset(), unit: size, len, indices: &indices }),
            None => {
                let list: Vec<_> = rows.iter().map(|row| (self.byte_offset(row.place), len)).collect();
                f(&Runs::List(&list))
            }
        }
    }

    /// Reads rows and hands each to `sink` with where it belongs. The ranks are asked at once.
    pub(super) fn fetch<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        rows: &mut [Row],
        mut sink: impl FnMut(&Endpoint<T, S>, u64, &[V]),
    ) -> Result<(), ArrayError> {
        let first = endpoint.operations_begun();
        let mut begun: Vec<(Operation<Vec<V>>, &[Row])> = Vec::new();
        let mut outcome = Ok(());
        let mut row_buffer: Vec<V> = Vec::new();
        for rows in group(rows) {
            let rank = rows[0].place.rank;
            if let Some(memory) = self.stored(endpoint, rank) {
                let len = rows[0].len as usize;
                row_buffer.resize(len, V::new_zeroed());
                for row in rows {
                    memory.read(row.place.offset, &mut row_buffer);
                    sink(endpoint, row.at, &row_buffer);
                }
                continue;
            }
            match self.runs(rows, |runs| endpoint.get_runs_nb(rank, runs)) {
                Ok(get) => begun.push((get.of(), rows)),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let sink = |endpoint: &Endpoint<T, S>, values: Vec<V>, rows: &[Row]| {
            for (row, values) in rows.iter().zip(values.chunks_exact(rows[0].len as usize)) {
                sink(endpoint, row.at, values);
            }
        };
        Ok(pending::finish(endpoint, first, begun, outcome, sink)?)
    }

    /// Reads the elements of a section, in row-major order: a range of an array of one dimension, a box of others.
    /// Allocates a note for each row of elements that lies together in a segment that is not seen as memory,
    /// for at most 2^14 rows at a time.
    ///
    /// # Errors
    /// [`ArrayError::Section`], [`ArrayError::Lengths`]; as [`Endpoint::get_runs`].
    pub fn get_section<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        section: &Section<D>,
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        self.check(section, out.len())?;
        let out = RefCell::new(out);
        self.rows(
            endpoint,
            section,
            |memory, Row { place, len, at }| {
                memory.read(place.offset, &mut out.borrow_mut()[at as usize..][..len as usize]);
            },
            |endpoint, rows| {
                self.fetch(endpoint, rows, |_, at, values| {
                    out.borrow_mut()[at as usize..][..values.len()].copy_from_slice(values);
                })
            },
        )
    }

    /// Writes the elements of a section, in row-major order, and waits until they are there. Allocates as
    /// [`GlobalArray::get_section`].
    ///
    /// # Errors
    /// As [`GlobalArray::get_section`].
    pub fn put_section<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        section: &Section<D>,
        values: &[V],
    ) -> Result<(), ArrayError> {
        self.check(section, values.len())?;
        let of = |row: &Row| &values[row.at as usize..][..row.len as usize];
        let write = |memory: &LocalSlice<'_, V, T::Memory>, row: Row| memory.write(row.place.offset, of(&row));
        let mut packed = Vec::new();
        self.rows(endpoint, section, write, |endpoint, rows| {
            let first = endpoint.operations_begun();
            let (mut begun, mut outcome) = (Vec::new(), Ok(()));
            for rows in group(rows) {
                let rank: Rank = rows[0].place.rank;
                let put = if let [row] = rows {
                    endpoint.put_nb(rank, self.byte_offset(row.place), of(row).as_bytes())
                } else {
                    packed.clear();
                    rows.iter().for_each(|row| packed.extend_from_slice(of(row)));
                    let bytes = packed.as_slice().as_bytes();
                    self.runs(rows, |runs| endpoint.put_runs_nb(rank, runs, bytes))
                };
                match put {
                    Ok(put) => begun.push((put, ())),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            Ok(pending::finish(endpoint, first, begun, outcome, |_, (), ()| ())?)
        })
    }
}

impl<V: Element> GlobalArray<V, 1> {
    /// Reads a range of elements of an array of one dimension, as [`GlobalArray::get_section`].
    ///
    /// # Errors
    /// As [`GlobalArray::get_section`].
    pub fn get_range<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        range: Range<u64>,
        out: &mut [V],
    ) -> Result<(), ArrayError> {
        self.get_section(endpoint, &[range], out)
    }

    /// Writes a range of elements of an array of one dimension, as [`GlobalArray::put_section`].
    ///
    /// # Errors
    /// As [`GlobalArray::get_section`].
    pub fn put_range<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        range: Range<u64>,
        values: &[V],
    ) -> Result<(), ArrayError> {
        self.put_section(endpoint, &[range], values)
    }
}
