//! Sections of arrays as messages: strided boxes and rows at indices, packed by the sender and unpacked by the
//! receiver.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedTag, MessageError};
use crate::request::{ReceiveRequest, SendRequest};
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

/// The values of a box, one after the other.
fn packed<V: Element>(values: &[V], counts: &[u64], at: Strided<'_>) -> Result<Vec<V>, MessageError> {
    let mut packed = Vec::new();
    runs((values.len(), size_of::<V>()), counts, at, |from, len| {
        packed.extend_from_slice(&values[from..from + len])
    })?;
    Ok(packed)
}

/// The values of rows, one after the other.
fn packed_rows<V: Element>(values: &[V], row: usize, indices: &[u32]) -> Result<Vec<V>, MessageError> {
    let mut packed = Vec::with_capacity(rows(values.len(), row, indices)?);
    indices.iter().for_each(|index| packed.extend_from_slice(&values[*index as usize..][..row]));
    Ok(packed)
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
        self.send(endpoint, to, tag, &packed(values, counts, at)?)
    }

    /// Begins to send `counts` values in each dimension that lie strided in a slice, which are copied. Does not
    /// block; allocates.
    ///
    /// # Errors
    /// As [`immediate_send`](Self::immediate_send); [`MessageError::Outside`] for a box that is not inside the
    /// slice.
    pub fn immediate_send_strided<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        values: &[V],
        counts: &[u64],
        at: Strided<'_>,
    ) -> Result<SendRequest, MessageError> {
        self.immediate_send(endpoint, to, tag, &packed(values, counts, at)?)
    }

    /// Receives `counts` values in each dimension to where they lie strided in a slice. Blocks; allocates. An
    /// [`immediate_receive`](Self::immediate_receive) of as many values is waited for by
    /// [`ReceiveRequest::wait_strided`].
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
        let request = self.immediate_receive(endpoint, source, tag, needed as usize)?;
        request.wait_strided(endpoint, values, counts, at)
    }

    /// Sends the values at one place of a slice to a member and receives as many from one to another place, both
    /// at once: never waits for itself. What is sent is what was there before. Blocks; allocates.
    ///
    /// # Errors
    /// As [`send_strided`](Self::send_strided) and [`receive_strided`](Self::receive_strided).
    pub fn send_receive_strided<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        ((to, send_tag), from): ((u32, i32), Strided<'_>),
        ((source, receive_tag), into): ((impl Into<Source>, impl Into<Tag>), Strided<'_>),
        values: &mut [V],
        counts: &[u64],
    ) -> Result<Status, MessageError> {
        let out = packed(values, counts, from)?;
        runs((values.len(), size_of::<V>()), counts, into, |_, _| ())?;
        let receive = self.immediate_receive(endpoint, source, receive_tag, out.len())?;
        let send = self.immediate_send(endpoint, to, send_tag, &out)?;
        let status = receive.wait_strided(endpoint, values, counts, into)?;
        send.wait(endpoint)?;
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
        self.send(endpoint, to, tag, &packed_rows(values, row, indices)?)
    }

    /// Begins to send rows of `row` values each, those that begin at some indices of a slice, which are copied.
    /// Does not block; allocates.
    ///
    /// # Errors
    /// As [`immediate_send`](Self::immediate_send); [`MessageError::Outside`] for a row beyond the slice.
    pub fn immediate_send_indexed<T: Transport, S: HasLayer<crate::Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        values: &[V],
        row: usize,
        indices: &[u32],
    ) -> Result<SendRequest, MessageError> {
        self.immediate_send(endpoint, to, tag, &packed_rows(values, row, indices)?)
    }

    /// Receives rows of `row` values each to some indices of a slice. Blocks; allocates. An
    /// [`immediate_receive`](Self::immediate_receive) of as many values is waited for by
    /// [`ReceiveRequest::wait_indexed`].
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
        let request = self.immediate_receive(endpoint, source, tag, needed)?;
        request.wait_indexed(endpoint, values, row, indices)
    }
}

impl<V: Element> ReceiveRequest<V> {
    /// As [`wait`](Self::wait), for `counts` values in each dimension, to where they lie strided in a slice.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`MessageError::Outside`] for a box that is not inside the slice, which cancels
    /// the receive; [`MessageError::Truncated`] and [`MessageError::ShortMessage`] for a message of another number
    /// of values, which is lost then.
    pub fn wait_strided<T: Transport, S: HasLayer<crate::Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
        values: &mut [V],
        counts: &[u64],
        at: Strided<'_>,
    ) -> Result<Status, MessageError> {
        let needed = runs((values.len(), size_of::<V>()), counts, at, |_, _| ())?;
        let (packed, status) = self.wait_exactly(endpoint, needed)?;
        let mut rest = packed.as_slice();
        runs((values.len(), size_of::<V>()), counts, at, |from, len| {
            let (run, others) = rest.split_at(len);
            values[from..from + len].copy_from_slice(run);
            rest = others;
        })?;
        Ok(status)
    }

    /// As [`wait`](Self::wait), for rows of `row` values each, to some indices of a slice.
    ///
    /// # Errors
    /// As [`wait_strided`](Self::wait_strided).
    pub fn wait_indexed<T: Transport, S: HasLayer<crate::Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
        values: &mut [V],
        row: usize,
        indices: &[u32],
    ) -> Result<Status, MessageError> {
        let needed = rows(values.len(), row, indices)?;
        let (packed, status) = self.wait_exactly(endpoint, needed as u64)?;
        for (index, packed) in indices.iter().zip(packed.chunks(row.max(1))) {
            values[*index as usize..][..row].copy_from_slice(packed);
        }
        Ok(status)
    }

    fn wait_exactly<T: Transport, S: HasLayer<crate::Messages>>(
        self,
        endpoint: &mut Endpoint<T, S>,
        needed: u64,
    ) -> Result<(Vec<V>, Status), MessageError> {
        let communicator = self.handle().clone();
        let (packed, status) = self.wait(endpoint)?;
        let (found, capacity) = (packed.len() as u64, needed * size_of::<V>() as u64);
        if found < needed {
            return Err(communicator.too_short(&status, capacity));
        }
        if found > needed {
            let (bytes, tag) = (status.bytes(), AskedTag(Some(status.tag())));
            let rank = communicator.member(status.source_rank(), status.tag())?;
            return Err(MessageError::Truncated { rank, tag, bytes, capacity });
        }
        Ok((packed, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::wait_all;
    use crate::tests::everywhere;

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

    const ROWS: usize = 5000;
    const COLUMN: u64 = ROWS as u64;

    fn column(start: u64) -> Strided<'static> {
        Strided { start, strides: &[3] }
    }

    /// Of three columns that are longer than what goes eagerly, ranks send each other the first one at once, which
    /// comes to the last one.
    #[test]
    fn long_columns_go_both_ways() {
        everywhere(2, |endpoint, world| {
            let (me, other) = (world.rank(), 1 - world.rank());
            let value = |rank: u32, place: usize| rank * 100_000 + place as u32;
            let fresh = || (0..3 * ROWS).map(|place| value(me, place)).collect::<Vec<_>>();
            let expected = |at: usize| {
                (0..3 * ROWS)
                    .map(|place| if place % 3 == at { value(other, place - at) } else { value(me, place) })
                    .collect::<Vec<_>>()
            };
            let mut all = fresh();
            let ways = (((other, 1), column(0)), ((other, 1), column(2)));
            world.send_receive_strided(endpoint, ways.0, ways.1, &mut all, &[COLUMN]).unwrap();
            assert_eq!(all, expected(2));
            // What is sent is what was there, also where what is received goes.
            let mut all = fresh();
            world.send_receive_strided(endpoint, ways.0, ((other, 1), column(0)), &mut all, &[COLUMN]).unwrap();
            assert_eq!(all, expected(0));
            let mut all = fresh();
            let receive = world.immediate_receive::<_, _, u32>(endpoint, other, 2, ROWS).unwrap();
            let send = world.immediate_send_strided(endpoint, (other, 2), &all, &[COLUMN], column(0)).unwrap();
            wait_all(endpoint, &[&send, &receive]).unwrap();
            receive.wait_strided(endpoint, &mut all, &[COLUMN], column(2)).unwrap();
            send.wait(endpoint).unwrap();
            assert_eq!(all, expected(2));
            let (out, into): (Vec<u32>, Vec<u32>) = (0..COLUMN as u32).map(|row| (3 * row, 3 * row + 1)).unzip();
            let mut all = fresh();
            let receive = world.immediate_receive::<_, _, u32>(endpoint, other, 3, ROWS).unwrap();
            let send = world.immediate_send_indexed(endpoint, (other, 3), &all, 1, &out).unwrap();
            receive.wait_indexed(endpoint, &mut all, 1, &into).unwrap();
            send.wait(endpoint).unwrap();
            assert_eq!(all, expected(1));
        });
    }

    /// What does not fit is told before anything waits, or when the message has come.
    #[test]
    fn sections_that_do_not_fit_are_told() {
        everywhere(1, |endpoint, world| {
            let mut all = [0u32; 6];
            let (rank, tag) = (am_core::Rank(0), AskedTag(Some(1)));
            for (sent, error) in [
                (1u64, MessageError::ShortMessage { rank, tag, bytes: 4, needed: 8 }),
                (3, MessageError::Truncated { rank, tag, bytes: 12, capacity: 8 }),
            ] {
                let every_other = Strided { start: 0, strides: &[2] };
                drop(world.immediate_send_strided(endpoint, (0, 1), &all, &[sent], every_other).unwrap());
                let receive = world.immediate_receive::<_, _, u32>(endpoint, 0, 1, 6).unwrap();
                assert_eq!(receive.wait_strided(endpoint, &mut all, &[2], column(0)), Err(error.clone()));
                let rows = &[0, 1, 2][..sent as usize];
                drop(world.immediate_send_indexed(endpoint, (0, 1), &all, 1, rows).unwrap());
                let receive = world.immediate_receive::<_, _, u32>(endpoint, 0, 1, 6).unwrap();
                assert_eq!(receive.wait_indexed(endpoint, &mut all, 2, &[3]), Err(error));
            }
            let outside = MessageError::Outside { lowest: 5, highest: 8, len: 6 };
            let receive = world.immediate_receive::<_, _, u32>(endpoint, 0, 1, 6).unwrap();
            assert_eq!(receive.wait_strided(endpoint, &mut all, &[2], column(5)), Err(outside.clone()));
            for (out, into) in [(column(5), column(0)), (column(0), column(5))] {
                let sent = world.send_receive_strided(endpoint, ((0, 1), out), ((0, 1), into), &mut all, &[2]);
                assert_eq!(sent, Err(outside.clone()));
            }
            // Nothing of them is left.
            assert_eq!(world.immediate_probe(endpoint, 0, 1).unwrap(), None);
            let sent = world.immediate_send(endpoint, 0, 1, &[7u32]).unwrap();
            assert_eq!(world.receive::<_, _, u32>(endpoint, 0, 1).unwrap().0, 7);
            sent.wait(endpoint).unwrap();
        });
    }
}
