//! Item 17, one-sided operations whose sizes lie on both sides of limits: of messages to the target and back, of
//! the network's own operations, and of the target's segment.

use super::native::capability;
use super::one_sided::attach;
use super::right;
use crate::random::{Random, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::one_sided::{AtomicBatch, AtomicCode, AtomicOp, OneSided, OneSidedError};
use am_core::{Category, Endpoint, Lane, Rank, SegmentError, SendError, Transport};

type Ranks<T> = Endpoint<T, OneSided>;

/// Bytes at the beginning of every segment for counters.
const COUNTERS: u64 = 64;
/// Bytes of the largest operation.
const MOST: u64 = 1 << 20;
/// A get into a segment asks for so many at once.
const PIECE: u64 = 16 << 10;

/// Limits of operations on the segment of a rank, in bytes, none of them above what is there for the case.
fn of_target<T: Transport>(endpoint: &Ranks<T>, to: Rank, native: [u64; 4], room: u64) -> Vec<u64> {
    let largest = |(category, lane, words)| endpoint.max_payload(to, category, lane, words);
    let mut messages = vec![(Category::Long, Lane::Request, 2), (Category::Long, Lane::Request, 4)];
    messages.extend((2..=10).map(|words| (Category::Medium, Lane::Request, words)));
    messages.extend((2..=10).map(|words| (Category::Medium, Lane::Reply, words)));
    let mut limits: Vec<u64> = messages.into_iter().filter_map(largest).chain(native).chain([PIECE]).collect();
    limits.extend(endpoint.limits(to).map(|limits| limits.medium_reply as u64));
    limits.retain(|limit| (1..room.min(MOST)).contains(limit));
    limits.sort_unstable();
    limits.dedup();
    limits
}

/// Puts and gets of so many bytes, in all forms.
fn bytes<T: Transport>(endpoint: &mut Ranks<T>, to: Rank, salt: u64, (at, len): (u64, u64)) -> Verdict {
    let (given, size) = (pattern(salt, len as usize), len as usize);
    match salt % 3 {
        0 => endpoint.put(to, at, &given)?,
        1 => {
            let put = endpoint.put_nb(to, at, &given)?;
            endpoint.wait(put)?;
        }
        _ => {
            endpoint.put_nbi(to, at, &given)?;
            endpoint.quiet()?;
        }
    }
    let mut found = vec![0; size];
    endpoint.get(to, at, &mut found)?;
    equal("bytes of a get", found == given, true)?;
    let get = endpoint.get_nb(to, at, size)?;
    equal("bytes of a get with a handle", endpoint.wait(get)? == given, true)
}

/// Atomics on as many values as fit so many bytes, or one more or less.
fn atomics<T: Transport>(
    endpoint: &mut Ranks<T>,
    to: Rank,
    (limit, room): (u64, u64),
    random: &mut Random,
) -> Verdict {
    // With operands of each, or one for all, a message has 8 to 12 bytes for a value.
    let (width, more) = (1 + random.below(12), random.below(3));
    let count = (limit / width + more).saturating_sub(1).min(room / 8).min(20_000) as u32;
    let places: Vec<u32> = (0..count).collect();
    let each: Vec<u64> = places.iter().map(|place| u64::from(*place) * 3).collect();
    let set = AtomicBatch { code: AtomicCode::Swap, operands: &each[..], expected: &[] };
    let set = endpoint.updates_nb(to, COUNTERS, &places, &set)?;
    endpoint.wait(set)?;
    let add = AtomicBatch { code: AtomicCode::Add, operands: &[5u64], expected: &[] };
    let before = endpoint.atomics(to, COUNTERS, &places, &add)?;
    let expected: Vec<u8> = each.iter().flat_map(|value| value.to_le_bytes()).collect();
    ensure(before == expected, || format!("{count} atomics around {limit} bytes brought something else"))?;
    if let Some(last) = places.last() {
        let at = COUNTERS + 8 * u64::from(*last);
        equal("the last value", endpoint.atomic(to, at, AtomicOp::<u64>::Get)?, u64::from(*last) * 3 + 5)?;
    }
    Ok(())
}

/// A put that tells its target has as many bytes as one Long message carries, and no more.
fn signals<T: Transport>(endpoint: &mut Ranks<T>, to: Rank, (signal, room): (u64, u64)) -> Verdict {
    let Some(limit) = endpoint.max_payload(to, Category::Long, Lane::Request, 4) else { return Ok(()) };
    if limit >= room.min(MOST) {
        return Ok(());
    }
    let given = pattern(limit, limit as usize + 1);
    let put = endpoint.put_signal(to, COUNTERS, &given[..limit as usize], 16)?;
    endpoint.wait(put)?;
    // Where the network does it, or the segment is memory, more may be carried.
    if endpoint.remote_segment(to).is_some() || signal > limit {
        let put = endpoint.put_signal(to, COUNTERS, &given, 16)?;
        return Ok(endpoint.wait(put)?);
    }
    let refused = endpoint.put_signal(to, COUNTERS, &given, 16).map(drop);
    let (len, category) = (given.len(), Category::Long);
    let too_large = SendError::PayloadTooLarge { len, limit, category, to: to.into() };
    equal("a signal with too many bytes", refused, Err(OneSidedError::Send(too_large)))
}

/// The last bytes of a segment, and what reaches beyond.
fn end<T: Transport>(endpoint: &mut Ranks<T>, to: Rank, segment: u64) -> Verdict {
    let outside = |offset, len| {
        let source = SegmentError::OutOfRange { offset, len, segment };
        Err(OneSidedError::Segment { rank: to, source })
    };
    for len in [1, 8, 100, PIECE + 1].into_iter().filter(|len| *len < segment - COUNTERS) {
        let at = segment - len;
        bytes(endpoint, to, at, (at, len))?;
        let given = vec![0; len as usize];
        equal("a put beyond the end", endpoint.put(to, at + 1, &given), outside(at + 1, len))?;
        equal("a get beyond the end", endpoint.get_nb(to, at + 1, len as usize).map(drop), outside(at + 1, len))?;
    }
    let last = segment / 8 * 8 - 8;
    endpoint.atomic(to, last, AtomicOp::Swap(9u64))?;
    equal("the last word", endpoint.atomic(to, last, AtomicOp::<u64>::Get)?, 9)?;
    let beyond = endpoint.atomic(to, last + 8, AtomicOp::<u64>::Inc).map(drop);
    equal("an atomic beyond the end", beyond, outside(last + 8, 8))
}

/// Operations a byte below, at and above limits, once and twice. Which ones depends on the seed. Each rank works
/// on the segment of its right neighbour alone.
pub(super) fn limits<T: Transport>(world: &World, mut transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.local_peer());
    let me = shape.address(me).rank;
    let to = right(shape, me);
    let network = capability(&mut transport, to);
    let signal = if network.signal { network.put } else { 0 };
    let native = [network.put, network.get, network.longest_get, network.get_into];
    let mut endpoint = attach(world, transport)?;
    let segment = endpoint.segment_len(to).unwrap_or(0);
    let room = segment.checked_sub(COUNTERS + 8).ok_or_else(|| Failure::Check("no segment".into()))?;
    endpoint.barrier()?;
    let limits = of_target(&endpoint, to, native, room);
    let mut random = world.random(1710 + u64::from(me.0));
    for round in 0..u64::from(world.count(6, 200)) {
        let Some(limit) = limits.get(random.below(limits.len() as u64) as usize).copied() else { break };
        let times = 1 + random.below(2);
        for len in [limit * times - 1, limit * times, limit * times + 1] {
            let len = len.min(room);
            let at = COUNTERS + random.below((room - len).min(8) + 1);
            bytes(&mut endpoint, to, world.salt(&[round, len]), (at, len))?;
        }
        atomics(&mut endpoint, to, (limit, room), &mut random)?;
    }
    signals(&mut endpoint, to, (signal, room))?;
    end(&mut endpoint, to, segment)?;
    into_own_segment(&mut endpoint, to)?;
    endpoint.finish()?;
    Ok(())
}

/// Gets into this rank's own segment: from the first half of another one into the second half of this.
fn into_own_segment<T: Transport>(endpoint: &mut Ranks<T>, from: Rank) -> Verdict {
    let me = endpoint.rank();
    endpoint.barrier()?;
    let half = |endpoint: &Ranks<T>, rank| endpoint.segment_len(rank).unwrap_or(0) / 2;
    let (source, own) = (half(endpoint, from), half(endpoint, me));
    for len in [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 1] {
        if len > source.min(own) {
            break;
        }
        let mut expected = vec![0; len as usize];
        endpoint.get(from, 0, &mut expected)?;
        endpoint.get_nbi(from, 0, len as usize, own)?;
        endpoint.quiet()?;
        let found = endpoint.segment().view(own, len as usize)?.to_vec();
        ensure(found == expected, || format!("{len} bytes got into the own segment differ"))?;
    }
    Ok(())
}
