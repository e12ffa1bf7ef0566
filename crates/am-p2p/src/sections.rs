//! Sections of arrays as messages: strided boxes and rows at indices, packed by the sender and unpacked by the
//! receiver.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::MessageError;
use am_core::{Endpoint, HasLayer, Transport};
use am_pgas::pointer::Element;
use am_pgas::sections::Strided;

/// Calls `each` with where each run of contiguous values begins and how long it is, in values of a slice of `len`,
/// each of `size` bytes.
fn runs(
    (len, size): (usize, usize),
    counts: &[u64],
    at: Strided<'_>,
    mut each: impl FnMut(usize, usize),
) -> Result<u64, MessageError> {
    if counts.len() != at.strides.len() {
        let (given, needed) = (at.strides.len() as u64, counts.len() as u64);
        return Err(MessageError::Length { given, needed });
    }
    let total = counts.iter().fold(1u64, |total, count| total.saturating_mul(*count));
    if counts.contains(&0) {
        return Ok(0);
    }
    // Strides of 0 name a value over and over.
    let most = isize::MAX as u64 / (size as u64).max(1);
    if total > most {
        return Err(MessageError::Length { given: most, needed: total });
    }
    // The extremes of a box are those of its corners.
    let (mut lowest, mut highest) = (i128::from(at.start), i128::from(at.start));
    for (count, stride) in counts.iter().zip(at.strides) {
        let reach = i128::from(*count - 1) * i128::from(*stride);
        (lowest, highest) = (lowest + reach.min(0), highest + reach.max(0));
    }
    if lowest < 0 || highest >= len as i128 {
        let told = |index: i128| index.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        return Err(MessageError::Outside { lowest: told(lowest), highest: told(highest), len: len as u64 });
    }
    let contiguous = at.strides.last() == Some(&1);
    let run = if contiguous { counts[counts.len() - 1] } else { 1 };
    let outer = if contiguous { counts.len() - 1 } else { counts.len() };
    let mut place = vec![0u64; outer];
    loop {
        let offsets = place.iter().zip(at.strides).map(|(index, stride)| *index as i64 * stride);
        each((at.start as i64 + offsets.sum::<i64>()) as usize, run as usize);
        let Some(dimension) = (0..outer).rev().find(|dimension| place[*dimension] + 1 < counts[*dimension]) else {
            return Ok(total);
        };
        place[dimension] += 1;
        place[dimension + 1..].fill(0);
    }
}

/// The values of rows that begin at indices, checked.
fn rows(len: usize, row: usize, indices: &[u32]) -> Result<usize, MessageError> {
    let needed = indices.iter().map(|index| u64::from(*index) + row as u64).max().unwrap_or(0);
    if needed > len as u64 {
        let lowest = indices.iter().min().map_or(0, |index| i64::from(*index));
        let highest = i64::try_from(needed - 1).unwrap_or(i64::MAX);
        return Err(MessageError::Outside { lowest, highest, len: len as u64 });
    }
    Ok(row * indices.len())
}

impl Communicator {
    /// Sends `counts` values in each dimension that lie strided in a slice. Blocks; allocates.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`MessageError::Outside`] for a box that is not inside the slice.
    pub fn send_strided<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        values: &[V],
        counts: &[u64],
        at: Strided<'_>,
    ) -> Result<(), MessageError> {
        let mut packed = Vec::new();
        runs((values.len(), size_of::<V>()), counts, at, |from, len| {
            packed.extend_from_slice(&values[from..from + len])
        })?;
        self.send(endpoint, to, tag, &packed)
    }

    /// Receives `counts` values in each dimension to where they lie strided in a slice. Blocks; allocates.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into); [`MessageError::Outside`] for a box that is not inside the slice,
    /// before anything is received; [`MessageError::Truncated`] and [`MessageError::ShortMessage`] for a message
    /// of another number of values.
    pub fn receive_strided<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (source, tag): (impl Into<Source>, impl Into<Tag>),
        values: &mut [V],
        counts: &[u64],
        at: Strided<'_>,
    ) -> Result<Status, MessageError> {
        let needed = runs((values.len(), size_of::<V>()), counts, at, |_, _| ())?;
        let (packed, status) = self.receive_exactly::<_, _, V>(endpoint, (source, tag), needed)?;
        let mut rest = packed.as_slice();
        runs((values.len(), size_of::<V>()), counts, at, |from, len| {
            let (run, others) = rest.split_at(len);
            values[from..from + len].copy_from_slice(run);
            rest = others;
        })?;
        Ok(status)
    }

    /// Sends rows of `row` values each, those that begin at some indices of a slice. Blocks; allocates.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`MessageError::Outside`] for a row beyond the slice.
    pub fn send_indexed<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        values: &[V],
        row: usize,
        indices: &[u32],
    ) -> Result<(), MessageError> {
        let mut packed = Vec::with_capacity(rows(values.len(), row, indices)?);
        indices.iter().for_each(|index| packed.extend_from_slice(&values[*index as usize..][..row]));
        self.send(endpoint, to, tag, &packed)
    }

    /// Receives rows of `row` values each to some indices of a slice. Blocks; allocates.
    ///
    /// # Errors
    /// As [`receive_strided`](Self::receive_strided).
    pub fn receive_indexed<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (source, tag): (impl Into<Source>, impl Into<Tag>),
        values: &mut [V],
        row: usize,
        indices: &[u32],
    ) -> Result<Status, MessageError> {
        let needed = rows(values.len(), row, indices)?;
        let (packed, status) = self.receive_exactly::<_, _, V>(endpoint, (source, tag), needed as u64)?;
        for (index, packed) in indices.iter().zip(packed.chunks(row.max(1))) {
            values[*index as usize..][..row].copy_from_slice(packed);
        }
        Ok(status)
    }

    fn receive_exactly<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (source, tag): (impl Into<Source>, impl Into<Tag>),
        needed: u64,
    ) -> Result<(Vec<V>, Status), MessageError> {
        let request = self.immediate_receive(endpoint, source, tag, needed as usize)?;
        let (packed, status) = request.wait(endpoint)?;
        if packed.len() as u64 != needed {
            return Err(self.too_short(&status, needed * size_of::<V>() as u64));
        }
        Ok((packed, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_boxes() {
        let of = |len, counts: &[u64], start, strides: &[i64]| {
            let mut all = Vec::new();
            runs((len, 8), counts, Strided { start, strides }, |from, len| all.push((from, len)))
                .map(|total| (total, all))
        };
        assert_eq!(of(10, &[2, 3], 1, &[4, 1]), Ok((6, vec![(1, 3), (5, 3)])));
        assert_eq!(of(10, &[2, 2], 9, &[-4, -1]), Ok((4, vec![(9, 1), (8, 1), (5, 1), (4, 1)])));
        assert_eq!(of(10, &[], 3, &[]), Ok((1, vec![(3, 1)])));
        assert_eq!(of(0, &[3, 0], 9, &[1, 1]), Ok((0, vec![])));
        let outside = |lowest, highest| MessageError::Outside { lowest, highest, len: 10 };
        assert_eq!(of(10, &[2, 3], 4, &[4, 1]), Err(outside(4, 10)));
        assert_eq!(of(10, &[2], 0, &[-1]), Err(outside(-1, 0)));
        assert_eq!(of(10, &[2], 0, &[]), Err(MessageError::Length { given: 0, needed: 1 }));
        // More than any memory, though all of it is inside the slice.
        let most = isize::MAX as u64 / 8;
        let too_many = MessageError::Length { given: most, needed: u64::MAX };
        assert_eq!(of(10, &[u64::MAX, 2], 0, &[0, 0]), Err(too_many));
        assert_eq!(rows(10, 3, &[7, 0]), Ok(6));
        assert_eq!(rows(10, 3, &[8]), Err(outside(8, 10)));
    }
}
