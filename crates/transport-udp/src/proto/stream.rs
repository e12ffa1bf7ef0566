//! The four byte streams of a session, both ends: two lanes of messages, two of payloads that go straight to a
//! segment.

use super::OwnSegment;
use super::buffer_pool::{Fifo, Pool};
use super::ranges::RangeSet;
use std::collections::VecDeque;

/// Gaps in a stream that a receiver keeps book of; what would make more waits for its retransmission.
const MAX_GAPS: usize = 256;
/// Streams end here, long after the largest job.
const MAX_OFFSET: u64 = 1 << 61;

/// The sending end of a stream: bytes stay until they are acknowledged.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) fifo: Fifo,
    acked: RangeSet,
    lost: RangeSet,
    /// First byte that was never sent.
    next: u64,
}

impl Outgoing {
    /// Bytes that wait for their acknowledgement.
    pub(super) fn queued(&self) -> u64 {
        self.fifo.end() - self.fifo.start()
    }

    /// Where the bytes end that have been sent at least once.
    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    /// Whether all bytes have been sent, and none of them is to be sent again, as nearly always.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.next == self.fifo.end() && self.lost.is_empty()
    }

    /// Whether there is a byte to send now.
    #[inline]
    pub(super) fn has_next(&self, limit: u64) -> bool {
        self.next < self.fifo.end().min(limit) || !self.lost.is_empty()
    }

    /// What to send next, at most `most` bytes and not beyond `limit`: lost bytes first.
    #[inline]
    pub(super) fn next_range(&self, most: u64, limit: u64) -> Option<(u64, u64)> {
        let (start, end) = match self.lost.first() {
            Some(range) => range,
            None => (self.next, self.fifo.end().min(limit)),
        };
        let len = end.saturating_sub(start).min(most);
        (len > 0).then_some((start, len))
    }

    pub(super) fn on_sent(&mut self, offset: u64, len: u64) {
        if offset == self.next {
            self.next += len;
        } else {
            self.lost.remove(offset, offset + len);
        }
    }

    pub(super) fn on_acked(&mut self, pool: &mut Pool, offset: u64, len: u64) {
        let start = self.fifo.start();
        let end = offset + len;
        if offset <= start && self.acked.is_empty() && self.lost.is_empty() {
            // Everything in order, as nearly always.
            if end > start {
                self.fifo.release(pool, end);
            }
            return;
        }
        self.lost.remove(offset, end);
        self.acked.insert(offset.max(start), end);
        let to = self.acked.advance(start);
        if to > start {
            self.fifo.release(pool, to);
        }
    }

    pub(super) fn on_lost(&mut self, offset: u64, len: u64) {
        let Self { acked, lost, fifo, .. } = self;
        acked.for_each_gap(offset.max(fifo.start()), offset + len, |start, end| lost.insert(start, end));
    }
}

/// The sending end of a stream of payloads: knows where in the peer's segment each belongs.
///
/// A payload is either handed over piece by piece, or lent: then it is sent from where it is, and what remains
/// unacknowledged when its owner wants it back is copied.
#[derive(Debug, Default)]
pub(super) struct OutgoingBulk {
    pub(super) bytes: Outgoing,
    /// End in the stream, and segment offset of the end, of every payload in the queue.
    places: VecDeque<(u64, u64)>,
    /// Where the last payload ends. The queue ends before as long as it is not here as a whole.
    announced: u64,
}

impl OutgoingBulk {
    /// Announces a payload; returns where it ends in the stream.
    pub(super) fn begin(&mut self, len: u64, at: u64) -> u64 {
        self.announced = self.bytes.fifo.end() + len;
        if len > 0 {
            self.places.push_back((self.announced, at + len));
        }
        self.announced
    }

    /// Bytes of the last payload that the application has yet to hand over.
    pub(super) fn missing(&self) -> u64 {
        self.announced - self.bytes.fifo.end()
    }

    /// Takes payload bytes of the announced payload; `bytes` must not exceed what is missing.
    pub(super) fn push(&mut self, pool: &mut Pool, bytes: &[u8]) {
        self.bytes.fifo.append(pool, bytes);
    }

    /// Copies what is not acknowledged of the announced payload, if all that waits for acknowledgement fits `room`
    /// bytes. Returns whether it did, so that the payload is needed no more.
    pub(super) fn buffer_tail(&mut self, pool: &mut Pool, payload: &[u8], room: u64) -> bool {
        let Outgoing { fifo, acked, .. } = &mut self.bytes;
        if self.announced - fifo.start() > room {
            return false;
        }
        let begin = self.announced - payload.len() as u64;
        let from = fifo.end().max(begin);
        acked.for_each_gap(from, self.announced, |start, end| {
            let bytes = payload.get((start - begin) as usize..(end - begin) as usize);
            fifo.write(pool, start, bytes.expect("gaps lie inside the payload"));
        });
        fifo.extend(self.announced);
        true
    }

    /// Whether there is nothing to send, as nearly always.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.bytes.next == self.announced && self.bytes.lost.is_empty()
    }

    /// Whether there is a range to send now.
    #[inline]
    pub(super) fn has_next(&self, lent: bool) -> bool {
        !self.is_idle() && self.next_range(1, lent).is_some()
    }

    /// As [`Outgoing::next_range`], within one payload, with its place in the segment. What is not in the queue
    /// can be sent only while it is `lent`; no range lies on both sides.
    pub(super) fn next_range(&self, most: u64, lent: bool) -> Option<(u64, u64, u64)> {
        let stored = self.bytes.fifo.end();
        let (offset, end) = self.bytes.lost.first().unwrap_or((self.bytes.next, self.announced));
        let end = match offset < stored {
            true => end.min(stored),
            false if lent => end,
            false => return None,
        };
        let index = self.places.partition_point(|(end, _)| *end <= offset);
        let (last, at_end) = *self.places.get(index)?;
        let len = end.min(last).saturating_sub(offset).min(most);
        (len > 0).then_some((offset, len, at_end - (last - offset)))
    }

    /// Whether the next range of at most `most` bytes is all that there is to send, and the end of more.
    #[inline]
    pub(super) fn ends_within(&self, most: u64, lent: bool) -> bool {
        self.announced - self.bytes.fifo.start() > most && self.ends_behind(most, lent)
    }

    fn ends_behind(&self, most: u64, lent: bool) -> bool {
        let Self { bytes, announced, .. } = self;
        let Some((offset, len, _)) = self.next_range(most, lent) else { return false };
        match bytes.lost.first() {
            None => offset + len == *announced,
            Some((_, end)) => bytes.lost.len() == 1 && offset + len == end && bytes.next == *announced,
        }
    }

    /// Where in the payload that is lent bytes are, if they are there.
    pub(super) fn place_in(&self, lent: Option<&[u8]>, offset: u64) -> Option<usize> {
        let payload = lent.filter(|_| offset >= self.bytes.fifo.end())?;
        Some((offset + payload.len() as u64 - self.announced) as usize)
    }

    /// Copies bytes out: of the queue, or of the payload that is lent.
    pub(super) fn read(&self, pool: &Pool, lent: Option<&[u8]>, offset: u64, out: &mut [u8]) {
        match (lent, self.place_in(lent, offset)) {
            (Some(payload), Some(at)) => out.copy_from_slice(&payload[at..at + out.len()]),
            _ => self.bytes.fifo.read(pool, offset, out),
        }
    }

    pub(super) fn on_acked(&mut self, pool: &mut Pool, offset: u64, len: u64) {
        self.bytes.on_acked(pool, offset, len);
        while self.places.front().is_some_and(|(end, _)| *end <= self.bytes.fifo.start()) {
            self.places.pop_front();
        }
    }
}

/// Why received bytes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untaken {
    /// They lie where the peer has no right to write.
    Forbidden,
    /// There are too many gaps before them; their retransmission will do.
    Scattered,
}

fn check(received: &RangeSet, ready: u64, offset: u64, len: usize, limit: u64) -> Result<u64, Untaken> {
    let end =
        offset.checked_add(len as u64).filter(|end| *end <= limit.min(MAX_OFFSET)).ok_or(Untaken::Forbidden)?;
    if offset > ready && received.len() >= MAX_GAPS {
        return Err(Untaken::Scattered);
    }
    Ok(end)
}

/// The receiving end of a lane.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// From what was consumed to the furthest byte received.
    pub(super) fifo: Fifo,
    received: RangeSet,
    /// Received without gaps up to here.
    pub(super) ready: u64,
}

impl Incoming {
    /// Takes bytes in; returns whether more can be read than before.
    pub(super) fn accept(
        &mut self,
        pool: &mut Pool,
        offset: u64,
        data: &[u8],
        limit: u64,
    ) -> Result<bool, Untaken> {
        let end = check(&self.received, self.ready, offset, data.len(), limit)?;
        let known = self.ready.saturating_sub(offset).min(data.len() as u64);
        if known == data.len() as u64 {
            return Ok(false);
        }
        let from = offset + known;
        self.fifo.write(pool, from, data.get(known as usize..).unwrap_or(&[]));
        if from == self.ready && self.received.is_empty() {
            self.ready = end;
            return Ok(true);
        }
        self.received.insert(from, end);
        let before = self.ready;
        self.ready = self.received.advance(before);
        Ok(self.ready > before)
    }
}

/// The receiving end of a stream of payloads; keeps no bytes.
#[derive(Debug, Default)]
pub(super) struct IncomingBulk {
    received: RangeSet,
    pub(super) ready: u64,
}

impl IncomingBulk {
    /// Places what is new into the segment; returns whether the stream is complete further than before.
    ///
    /// Bytes that have been received already are not written again: the handler may have changed them since.
    pub(super) fn accept(
        &mut self,
        segment: &OwnSegment,
        offset: u64,
        at: u64,
        data: &[u8],
    ) -> Result<bool, Untaken> {
        let end = check(&self.received, self.ready, offset, data.len(), u64::MAX)?;
        segment.view(at, data.len()).map_err(|_| Untaken::Forbidden)?;
        self.received.for_each_gap(offset.max(self.ready), end, |from, to| {
            let (skip, stop) = ((from - offset) as usize, (to - offset) as usize);
            segment.write(at + skip as u64, &data[skip..stop]).expect("the whole range was checked");
        });
        self.received.insert(offset.max(self.ready), end);
        let before = self.ready;
        self.ready = self.received.advance(before);
        Ok(self.ready > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Segment;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    proptest! {
        /// Pieces that are lost, repeated and reordered put the stream together once.
        #[test]
        fn any_order_of_pieces_arrives_once(actions in prop::collection::vec((0u8..4, 1u64..2500), 1..80)) {
            let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 253) as u8).collect();
            let (mut out_pool, mut in_pool) = (Pool::default(), Pool::default());
            let (mut out, mut incoming) = (Outgoing::default(), Incoming::default());
            out.fifo.append(&mut out_pool, &bytes);
            let mut actions = actions.into_iter();
            while out.queued() > 0 {
                let (action, most) = actions.next().unwrap_or((3, 1400));
                let Some((offset, len)) = out.next_range(most, u64::MAX) else { break };
                out.on_sent(offset, len);
                let mut data = vec![0; len as usize];
                out.fifo.read(&out_pool, offset, &mut data);
                if action != 0 {
                    prop_assert!(incoming.accept(&mut in_pool, offset, &data, 20_000).is_ok());
                }
                if action == 3 { out.on_acked(&mut out_pool, offset, len) } else { out.on_lost(offset, len) }
            }
            prop_assert_eq!(incoming.ready, 20_000);
            prop_assert_eq!(out_pool.used(), 0);
            let mut all = vec![0; 20_000];
            incoming.fifo.read(&in_pool, 0, &mut all);
            prop_assert_eq!(all, bytes);
            prop_assert_eq!(incoming.accept(&mut in_pool, 19_999, &[0, 0], 20_000), Err(Untaken::Forbidden));
        }
    }

    proptest! {
        /// Payloads that are lent, sent, lost and acknowledged in pieces, and taken back in the middle of that,
        /// arrive whole; a row of them shares the stream.
        #[test]
        fn lent_payloads_arrive_whole(
            lens in prop::collection::vec(0usize..20_000, 1..4), room in 1u64..30_000,
            actions in prop::collection::vec((0u8..3, 1u64..9000), 1..60),
        ) {
            let mut pool = Pool::default();
            let (mut out, mut incoming) = (OutgoingBulk::default(), IncomingBulk::default());
            let size: usize = lens.iter().sum();
            let words: Arc<[AtomicU64]> = (0..size.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
            let segment = Segment::new(words, size).erase();
            let (mut actions, mut waiting, mut at) = (actions.into_iter(), VecDeque::new(), 0);
            // Sends one piece; every third at most stays unacknowledged for a while.
            let mut send = |out: &mut OutgoingBulk, pool: &mut Pool, lent: Option<&[u8]>| {
                let (action, most) = actions.next().unwrap_or((2, 5000));
                let Some((offset, len, place)) = out.next_range(most, lent.is_some()) else { return false };
                let mut data = vec![0; len as usize];
                out.read(pool, lent, offset, &mut data);
                out.bytes.on_sent(offset, len);
                if action > 0 {
                    incoming.accept(&segment, offset, place, &data).unwrap();
                }
                match action {
                    0 => out.bytes.on_lost(offset, len),
                    1 => waiting.push_back((offset, len)),
                    _ => out.on_acked(pool, offset, len),
                }
                if waiting.len() > 2 && let Some((offset, len)) = waiting.pop_front() {
                    out.on_acked(pool, offset, len);
                }
                true
            };
            for len in lens {
                let payload: Vec<u8> = (at..at + len).map(|i| (i % 251) as u8).collect();
                prop_assert_eq!(out.missing(), 0);
                out.begin(len as u64, at as u64);
                while !out.buffer_tail(&mut pool, &payload, room) {
                    if !send(&mut out, &mut pool, Some(&payload)) {
                        // Nothing to send and nothing to keep: what is under way is acknowledged at last.
                        prop_assert!(out.next_range(1, false).is_none());
                        break;
                    }
                }
                if out.missing() > 0 {
                    prop_assert!(out.buffer_tail(&mut pool, &payload, u64::MAX));
                }
                at += len;
            }
            while send(&mut out, &mut pool, None) {}
            prop_assert_eq!(incoming.ready, size as u64);
            let expected: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            prop_assert_eq!(segment.view(0, size).unwrap().to_vec(), expected);
        }
    }

    #[test]
    fn late_copies_do_not_touch_the_segment_again() {
        let words: Arc<[AtomicU64]> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let segment = Segment::new(words, 32).erase();
        let mut bulk = IncomingBulk::default();
        assert_eq!(bulk.accept(&segment, 4, 12, &[2; 4]), Ok(false));
        assert_eq!(bulk.accept(&segment, 0, 8, &[1; 6]), Ok(true));
        assert_eq!(bulk.ready, 8);
        segment.write(8, &[9; 8]).unwrap();
        assert_eq!(bulk.accept(&segment, 0, 8, &[1; 8]), Ok(false));
        assert_eq!(segment.view(8, 8).unwrap().to_vec(), [9; 8]);
        assert_eq!(bulk.accept(&segment, 8, 30, &[1; 8]), Err(Untaken::Forbidden));
    }

    #[test]
    fn scattered_bytes_wait_for_their_turn() {
        let (mut pool, mut incoming) = (Pool::default(), Incoming::default());
        for i in 0..MAX_GAPS as u64 {
            assert_eq!(incoming.accept(&mut pool, 2 * i + 1, &[1], 1 << 20), Ok(false));
        }
        assert_eq!(incoming.accept(&mut pool, 5000, &[1], 1 << 20), Err(Untaken::Scattered));
        assert_eq!(incoming.accept(&mut pool, 0, &[1], 1 << 20), Ok(true));
    }
}
