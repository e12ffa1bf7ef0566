//! One atomic operation on many values of a rank's segment: a loop where the segment is memory, else messages of
//! many values.

use super::atomic::{Atomic, AtomicCode, AtomicOp, AtomicValue, Number};
use super::operation::{Operation, Owner};
use super::{Done, Got, OneSided, OneSidedError, PIECE, take_in};
use crate::address::Rank;
use crate::endpoint::Endpoint;
use crate::error::{HandlerFault, RegisterError};
use crate::handlers::Request;
use crate::layer::{HasLayer, LayerHandlers};
use crate::outcome::HandlerResult;
use crate::payload::Payload;
use crate::segment::{Memory, MemoryRef, Segment, SegmentError};
use crate::token::Token;
use crate::transport::Transport;
use std::sync::atomic::AtomicU64;

/// Values that are fetched ahead of the one being worked on.
const AHEAD: usize = 16;

/// Where messages say how many bytes an index has, less one: as few as the largest of a batch needs.
const WIDTH: u32 = 28;

/// Marks messages whose values have an operand each.
const EACH_OPERAND: u32 = 1 << 30;

/// Marks messages whose values have an expected value each.
const EACH_EXPECTED: u32 = 1 << 31;

/// An atomic operation on many values. Operands are one for all values, or one for each.
#[derive(Clone, Copy, Debug)]
pub struct AtomicBatch<'a, V> {
    /// The operation.
    pub code: AtomicCode,
    /// The operands; none of [`AtomicCode::Get`]. What a compare-and-swap stores.
    pub operands: &'a [V],
    /// What a compare-and-swap compares with; none of others.
    pub expected: &'a [V],
}

impl<V: AtomicValue + Number> AtomicBatch<'_, V> {
    /// Checks that there are as many operands as the operation needs for so many places.
    fn check(&self, places: usize) -> Result<(), OneSidedError> {
        let fits = |given: usize, needed: bool| {
            let fits = if needed { given == 1 || given == places } else { given == 0 };
            let needed = if needed { places as u64 } else { 0 };
            if fits { Ok(()) } else { Err(OneSidedError::Lengths { given: given as u64, needed }) }
        };
        fits(self.operands.len(), self.code != AtomicCode::Get)?;
        fits(self.expected.len(), self.code == AtomicCode::CompareSwap)?;
        let atomic = self.at(0);
        if !atomic.is_supported() {
            return Err(OneSidedError::Unsupported { code: atomic.code, kind: atomic.kind });
        }
        Ok(())
    }

    /// The operation on value number `index`.
    #[inline]
    pub fn at(&self, index: usize) -> Atomic {
        let bits = |values: &[V]| values.get(index).or(values.first()).map_or(0, |value| value.to_bits());
        Atomic { kind: V::KIND, code: self.code, operand: bits(self.operands), expected: bits(self.expected) }
    }

    fn number(&self, width: usize) -> u32 {
        let each = |values: &[V], flag| if values.len() > 1 { flag } else { 0 };
        let number = Atomic { code: self.code, ..Atomic::new(AtomicOp::<V>::Get) }.number();
        let width = (width as u32 - 1) << WIDTH;
        number | width | each(self.operands, EACH_OPERAND) | each(self.expected, EACH_EXPECTED)
    }
}

/// The handlers that batches travel to: the operation, where in the answer's buffer the values belong, the byte
/// offset of index 0, what to do, and how many values. The payload is the indices, of 8 to 32 bits, the operands,
/// and the expected values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    update: Request<(u64, u64, u64, u32, u32)>,
    fetch: Request<(u64, u64, u64, u32, u32)>,
}

impl Requests {
    pub(super) fn register<S: HasLayer<OneSided>>(
        layer: &mut LayerHandlers<'_, S, OneSided>,
        done: Done,
        got: Got,
    ) -> Result<Self, RegisterError> {
        let update = layer.request_bounded(
            "atomics",
            0,
            move |layer: &mut OneSided,
                  token: Token<'_>,
                  (operation, _, base, number, count): (u64, u64, u64, u32, u32),
                  payload: Payload<'_>|
                  -> HandlerResult {
                let message = take_in(&payload, &mut layer.scratch)?;
                let arrived = Arrived::parse(base, number, count, message)?;
                arrived.carry_out(&token.segment(), |_| ())?;
                Ok(token.reply(done, (operation, 0))?)
            },
        )?;
        let fetch = layer.request_largest(
            "fetch-atomics",
            move |layer: &mut OneSided,
                  token: Token<'_>,
                  (operation, into, base, number, count): (u64, u64, u64, u32, u32),
                  payload: Payload<'_>|
                  -> HandlerResult {
                let message = take_in(&payload, &mut layer.scratch)?;
                let arrived = Arrived::parse(base, number, count, message)?;
                let answer = &mut layer.answer;
                answer.clear();
                let size = arrived.size;
                arrived.carry_out(&token.segment(), |old| answer.extend_from_slice(&old.to_le_bytes()[..size]))?;
                Ok(token.reply_medium(got, (operation, into), answer)?)
            },
        )?;
        Ok(Self { update, fetch })
    }
}

/// A batch as a message brings it.
struct Arrived<'a> {
    base: u64,
    /// The operation with the first operands.
    atomic: Atomic,
    size: usize,
    /// Bytes of an index, from 1 to 4.
    width: usize,
    indices: &'a [u8],
    /// Operands of each value; empty where all share one.
    operands: &'a [u8],
    expected: &'a [u8],
}

#[inline]
fn bits(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

impl<'a> Arrived<'a> {
    fn parse(base: u64, number: u32, count: u32, bytes: &'a [u8]) -> Result<Self, HandlerFault> {
        let bad = HandlerFault("the values of a batch do not fit its message");
        let (code, width) =
            (number & !(EACH_OPERAND | EACH_EXPECTED | 3 << WIDTH), (number >> WIDTH & 3) as usize + 1);
        let atomic = Atomic::from_number(code, 0, 0);
        let atomic = atomic.ok_or(HandlerFault("no such atomic operation"))?;
        let (size, count) = (atomic.kind.size() as usize, count as usize);
        let len = |each: bool, any: bool| if each { count } else { usize::from(any) }.checked_mul(size);
        let operands = len(number & EACH_OPERAND != 0, atomic.code != AtomicCode::Get);
        let expected = len(number & EACH_EXPECTED != 0, atomic.code == AtomicCode::CompareSwap);
        let take = |bytes: &'a [u8], len: Option<usize>| bytes.split_at_checked(len.ok_or(bad)?).ok_or(bad);
        let (indices, rest) = take(bytes, count.checked_mul(width))?;
        let (operands, rest) = take(rest, operands)?;
        let (expected, rest) = take(rest, expected)?;
        if !rest.is_empty() || size * count > PIECE {
            return Err(bad);
        }
        let first = |values: &[u8]| values.get(..size).map_or(0, bits);
        let atomic = Atomic { operand: first(operands), expected: first(expected), ..atomic };
        let each = |values: &'a [u8], flag| if number & flag != 0 { values } else { &[] };
        let (operands, expected) = (each(operands, EACH_OPERAND), each(expected, EACH_EXPECTED));
        Ok(Self { base, atomic, size, width, indices, operands, expected })
    }

    fn place(&self, index: u64) -> u64 {
        self.base.wrapping_add(index.wrapping_mul(self.size as u64))
    }

    /// Does the operation on all values and tells what was there.
    fn carry_out(&self, segment: &Segment<MemoryRef<'_>>, tell: impl FnMut(u64)) -> Result<(), SegmentError> {
        match self.width {
            1 => self.carry_out_at::<1>(segment, tell),
            2 => self.carry_out_at::<2>(segment, tell),
            3 => self.carry_out_at::<3>(segment, tell),
            _ => self.carry_out_at::<4>(segment, tell),
        }
    }

    fn carry_out_at<const WIDTH: usize>(
        &self,
        segment: &Segment<MemoryRef<'_>>,
        mut tell: impl FnMut(u64),
    ) -> Result<(), SegmentError> {
        let words = Words { words: segment.memory().words(), memory: *segment.memory() };
        let segment = Segment::new(words, segment.len());
        let indices = self.indices.as_chunks::<WIDTH>().0;
        let place = |index: &[u8; WIDTH]| self.place(bits(index));
        let ahead = |index: &[u8; WIDTH]| segment.prefetch(place(index));
        indices.iter().take(AHEAD).for_each(ahead);
        let mut next = indices.iter().skip(AHEAD);
        let mut operands = self.operands.chunks_exact(self.size);
        let mut expected = self.expected.chunks_exact(self.size);
        let mut atomic = self.atomic;
        for index in indices {
            next.next().into_iter().for_each(ahead);
            atomic.operand = operands.next().map_or(atomic.operand, bits);
            atomic.expected = expected.next().map_or(atomic.expected, bits);
            tell(segment.atomic(place(index), &atomic)?);
        }
        Ok(())
    }
}

/// Memory of any kind whose words are known, so that finding one costs no indirect call.
struct Words<'a> {
    words: &'a [AtomicU64],
    memory: MemoryRef<'a>,
}

impl Memory for Words<'_> {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.memory.prefetch(at);
    }
}

/// Bytes that an index needs.
fn width(index: u32) -> usize {
    index.checked_ilog2().map_or(1, |bit| bit as usize / 8 + 1)
}

/// Appends indices to a message, each with so many bytes.
fn pack(indices: &[u32], width: usize, message: &mut Vec<u8>) {
    fn pack_at<const WIDTH: usize>(indices: &[u32], message: &mut [u8]) {
        for (bytes, index) in message.as_chunks_mut::<WIDTH>().0.iter_mut().zip(indices) {
            bytes.copy_from_slice(&index.to_le_bytes()[..WIDTH]);
        }
    }
    let at = message.len();
    message.resize(at + width * indices.len(), 0);
    let bytes = &mut message[at..];
    match width {
        1 => pack_at::<1>(indices, bytes),
        2 => pack_at::<2>(indices, bytes),
        3 => pack_at::<3>(indices, bytes),
        _ => pack_at::<4>(indices, bytes),
    }
}

/// Does a batch on memory and tells what was there.
fn carry_out<M: Memory, V: AtomicValue + Number>(
    memory: &Segment<M>,
    base: u64,
    indices: &[u32],
    batch: &AtomicBatch<'_, V>,
    mut tell: impl FnMut(u64),
) -> Result<(), SegmentError> {
    let place = |index: u32| base + V::KIND.size() * u64::from(index);
    indices.iter().take(AHEAD).for_each(|index| memory.prefetch(place(*index)));
    for (number, index) in indices.iter().enumerate() {
        if let Some(ahead) = indices.get(number + AHEAD) {
            memory.prefetch(place(*ahead));
        }
        tell(memory.atomic(place(*index), &batch.at(number))?);
    }
    Ok(())
}

impl<T: Transport, S: HasLayer<OneSided>> Endpoint<T, S> {
    fn atomics_as<V: AtomicValue + Number, R>(
        &mut self,
        rank: Rank,
        base: u64,
        indices: &[u32],
        batch: &AtomicBatch<'_, V>,
        (owner, fetch): (Owner, bool),
    ) -> Result<Operation<R>, OneSidedError> {
        let size = V::KIND.size();
        batch.check(indices.len())?;
        self.aligned(rank, base, 0, size)?;
        let last = indices.iter().max().copied().unwrap_or(0);
        let (width, last) = (width(last), u64::from(last));
        if !indices.is_empty() {
            self.place(rank, base.saturating_add(last * size), size)?;
        }
        let mut values = Vec::new();
        if let Some(memory) = self.mapped_segment(rank) {
            let tell = |old: u64| {
                if fetch {
                    values.extend_from_slice(&old.to_le_bytes()[..size as usize]);
                }
            };
            let done = carry_out(memory, base, indices, batch, tell);
            done.map_err(|source| OneSidedError::Segment { rank, source })?;
            return Ok(Operation::done(0, values));
        }
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, if fetch { indices.len() * size as usize } else { 0 }, owner);
        let sent = self.with_outgoing(id, |endpoint, message| {
            let (room, brought) = endpoint.room(to, 8, endpoint.reply_bound(requests.batch.fetch).unwrap_or(0));
            let (operands, expected) = (batch.operands.len() > 1, batch.expected.len() > 1);
            let own = width as u64 + size * (u64::from(operands) + u64::from(expected));
            let most = room.saturating_sub(2 * size) / own;
            let most = if fetch { most.min(brought / size) } else { most };
            // Even the smallest buffers hold a value.
            let most = most.clamp(1, (PIECE / 8) as u64) as usize;
            let mut at = 0;
            for indices in indices.chunks(most) {
                message.clear();
                pack(indices, width, message);
                for values in [batch.operands, batch.expected] {
                    let range = if values.len() > 1 { at..at + indices.len() } else { 0..values.len() };
                    for value in &values[range] {
                        message.extend_from_slice(&value.to_bits().to_le_bytes()[..size as usize]);
                    }
                }
                endpoint.expect_more(id);
                let args = (id, at as u64 * size, base, batch.number(width), indices.len() as u32);
                if fetch {
                    let request = requests.batch.fetch.reply_up_to(indices.len() as u32 * size as u32);
                    endpoint.request_medium(to, request, args, message)?;
                } else {
                    endpoint.request_medium(to, requests.batch.update, args, message)?;
                }
                at += indices.len();
            }
            Ok(())
        });
        self.started(id, owner, sent)
    }

    /// Does an atomic operation on many values of a rank's segment, those at `base` and an index in values from
    /// there; returns the bytes of what was there, in the order of the indices. The operations are not ordered,
    /// even on one value.
    ///
    /// # Errors
    /// As [`Endpoint::atomic`]; [`OneSidedError::Lengths`] if operands are neither one nor as many as the indices.
    pub fn atomics<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        base: u64,
        indices: &[u32],
        batch: &AtomicBatch<'_, V>,
    ) -> Result<Vec<u8>, OneSidedError> {
        let operation = self.atomics_nb(rank, base, indices, batch)?;
        Ok(self.wait(operation)?)
    }

    /// Begins what [`Endpoint::atomics`] does; [`Endpoint::wait`] returns the bytes of what was there. Allocates
    /// their buffer.
    ///
    /// # Errors
    /// As [`Endpoint::atomics`].
    pub fn atomics_nb<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        base: u64,
        indices: &[u32],
        batch: &AtomicBatch<'_, V>,
    ) -> Result<Operation<Vec<u8>>, OneSidedError> {
        self.atomics_as(rank, base, indices, batch, (Owner::Handle, true))
    }

    /// Begins what [`Endpoint::atomics`] does where nobody needs the old values. Does not allocate.
    ///
    /// # Errors
    /// As [`Endpoint::atomics`].
    pub fn updates_nb<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        base: u64,
        indices: &[u32],
        batch: &AtomicBatch<'_, V>,
    ) -> Result<Operation<()>, OneSidedError> {
        self.atomics_as(rank, base, indices, batch, (Owner::Handle, false))
    }

    /// As [`Endpoint::updates_nb`], waited for by [`Endpoint::quiet`] or the
    /// access region that is open.
    ///
    /// # Errors
    /// As [`Endpoint::atomics`].
    pub fn updates_nbi<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        base: u64,
        indices: &[u32],
        batch: &AtomicBatch<'_, V>,
    ) -> Result<(), OneSidedError> {
        self.atomics_as::<V, ()>(rank, base, indices, batch, (Owner::Quiet, false)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_have_as_few_bytes_as_the_largest_needs() {
        for (last, bytes) in
            [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3), ((1 << 24) - 1, 3), (1 << 24, 4)]
        {
            let (indices, mut message) = ([last, 0, last / 3, 7.min(last)], Vec::new());
            let batch = AtomicBatch { code: AtomicCode::Add, operands: &[5u32], expected: &[] };
            assert_eq!(width(last), bytes);
            pack(&indices, bytes, &mut message);
            assert_eq!(message.len(), 4 * bytes);
            message.extend_from_slice(&5u32.to_le_bytes());
            let arrived = Arrived::parse(40, batch.number(bytes), 4, &message).expect("it is a batch");
            assert_eq!((arrived.atomic.operand, arrived.width), (5, bytes));
            let places = arrived.indices.chunks_exact(bytes).map(|index| arrived.place(bits(index)));
            assert!(places.eq(indices.map(|index| 40 + 4 * u64::from(index))), "{last}");
            assert!(Arrived::parse(40, batch.number(bytes), 5, &message).is_err(), "an index is missing");
        }
        assert_eq!(width(u32::MAX), 4);
    }
}
