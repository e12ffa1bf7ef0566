//! Segments that peers access directly, where the transport has that: loads, stores and atomics without a handler.

use super::{left, right};
use crate::random::pattern;
use crate::world::{Verdict, World, equal};
use am_core::{Handlers, Peer, Rank, SegmentError, Transport};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of each rank's own part of its neighbour's segment.
const PART: usize = 1000;

/// Puts, gets and atomics; nothing to show where the transport has no direct access.
pub(super) fn direct_access<T: Transport>(world: &World, transport: T) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let mut endpoint = world.attach(transport, Handlers::<()>::new(), ())?;
    equal("a segment outside the job", endpoint.remote_segment(Rank(shape.ranks)).is_some(), false)?;
    // Direct access is mutual, but a rank may have it to some of the others only.
    let theirs = endpoint.remote_segment(right(shape, me)).cloned();
    let has_left = endpoint.remote_segment(left(shape, me)).is_some();
    let sharers = (0..shape.ranks).filter(|rank| endpoint.remote_segment(Rank(*rank)).is_some()).count() as u64;
    if let Some(theirs) = &theirs {
        equal("size of the segment", Some(theirs.len() as u64), endpoint.segment_len(right(shape, me)))?;
    }
    let additions = u64::from(world.count(2000, 100_000));
    for round in 0..3 {
        let salt = |rank: Rank| world.salt(&[round, u64::from(rank.0)]);
        if let Some(theirs) = &theirs {
            theirs.write(3, &pattern(salt(me), PART))?;
            let mut back = vec![0; PART];
            theirs.read(3, &mut back)?;
            equal("bytes got back", back == pattern(salt(me), PART), true)?;
        }
        endpoint.barrier()?;
        if has_left {
            let own = endpoint.segment().view(3, PART)?.to_vec();
            equal("bytes put by the left neighbour", own == pattern(salt(left(shape, me)), PART), true)?;
        }
        if let Some(counter) = endpoint.remote_segment(Rank(0)).cloned() {
            let word = counter.word(2048)?;
            for _ in 0..additions {
                word.fetch_add(1, Relaxed);
                // An exclusive or of everyone twice leaves nothing.
                counter.word(2056)?.fetch_xor(salt(me), Relaxed);
                counter.word(2056)?.fetch_xor(salt(me), Relaxed);
            }
        }
        endpoint.barrier()?;
        if me == Rank(0) {
            let total = additions * sharers * (round + 1);
            equal("central counter", endpoint.segment().word(2048)?.load(Relaxed), total)?;
            equal("exclusive or", endpoint.segment().word(2056)?.load(Relaxed), 0)?;
        }
        endpoint.barrier()?;
    }
    if let Some(theirs) = &theirs {
        let (len, segment) = (8, theirs.len() as u64);
        let expected = SegmentError::OutOfRange { offset: segment - 7, len, segment };
        equal("a put outside the segment", theirs.write(segment - 7, &[0; 8]), Err(expected))?;
    }
    Ok(endpoint.finish()?)
}

/// Every endpoint has an auxiliary segment of its own, beside the segment of its rank, and those who see it see
/// the same.
pub(super) fn auxiliary<T: Transport>(world: &World, transport: T) -> Verdict {
    let me = transport.local_peer();
    let mut endpoint = world.attach(transport, Handlers::<()>::new(), ())?;
    let shape = endpoint.shape();
    endpoint.segment().words().iter().for_each(|word| word.store(7, Relaxed));
    let own = endpoint.auxiliary(shape.address(me));
    if let Some(own) = &own {
        equal(
            "words that are not zero at first",
            own.words().iter().filter(|word| word.load(Relaxed) != 0).count(),
            0,
        )?;
    }
    endpoint.barrier()?;
    if let Some(own) = &own {
        own.words().iter().for_each(|word| word.store(u64::from(me.0) + 100, Relaxed));
    }
    endpoint.barrier()?;
    for peer in (0..shape.peers()).map(Peer) {
        let Some(theirs) = endpoint.auxiliary(shape.address(peer)) else { continue };
        let others = theirs.words().iter().filter(|word| word.load(Relaxed) != u64::from(peer.0) + 100);
        equal("words of another endpoint", others.count(), 0)?;
        endpoint.wake_peer(shape.address(peer));
    }
    let changed = endpoint.segment().words().iter().filter(|word| word.load(Relaxed) != 7).count();
    equal("words of the segment that changed", changed, 0)?;
    endpoint.barrier()?;
    Ok(endpoint.finish()?)
}
