//! Puts the datagrams of a session together: acknowledgements and counts first, then as many messages as fit.

use super::bytes::Writer;
use super::config::Protection;
use super::context::{BULK, Context};
use super::recovery::{Carried, FrameList};
use super::session::{Session, Traffic};
use super::wire::{Frame, HEADER, Header, Leave, STREAM_OVERHEAD, TAG, encode_ack, stream_header};
use am_core::{Instant, Span};
use std::ops::Range;

/// How many datagrams may wait for one acknowledgement.
const ACK_EVERY: u32 = 4;
/// A fragment of this size is worth a place in a datagram that is nearly full.
const LEAST_FRAGMENT: usize = 24;

/// Acknowledgements and counts that have waited for a quarter of their time go along with messages. Not with every
/// one: a datagram is made and read sooner without them, and a conversation of small messages consists of little
/// else.
fn company(shared: &Context) -> Span {
    Span(shared.config.ack_delay.0 / 4 * 3)
}

/// The payload of the Long request that is under way, while its owner has time.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    pub(super) payload: &'a [u8],
    /// Whether what a datagram takes of it may stay there, if it comes last.
    pub(super) stays: bool,
    /// What has stayed there.
    pub(super) tail: Range<usize>,
}

/// Datagrams of so many bytes are handed to the system one by one, so that their parts need not lie together.
const ALONE: u16 = 32 << 10;

impl Session {
    /// The next datagram, if one should go now. Returns its length, of which all but the loan's tail is in `out`.
    ///
    /// # Panics
    /// If `out` is shorter than the largest datagram of the settings.
    pub(super) fn build(
        &mut self,
        shared: &mut Context,
        now: Instant,
        out: &mut [u8],
        mut lent: Option<&mut Loan<'_>>,
    ) -> Option<usize> {
        self.wake = None;
        // Each of the datagrams that follow a timeout asks for its acknowledgement.
        self.ping |= self.recovery.probes > 0;
        let waits = self.has_work(now, lent.is_some());
        let ack_due = self.is_ack_due(shared, now);
        let explores = self.path.may_explore(now) && self.recovery.round_trip().is_some();
        if !waits && !ack_due && !explores {
            return None;
        }
        let mut open = self.recovery.has_window();
        if open && waits {
            self.wake = self.recovery.paced(now);
            open = self.wake.is_none();
        }
        let pending = self.ack_pending > 0;
        let ack_due = ack_due && self.recovery.has_number();
        let tag = if shared.config.protection == Protection::Unauthenticated { 0 } else { TAG };
        if open
            && explores
            && let Some(size) = self.path.probe(now)
        {
            let body = usize::from(size) - HEADER - tag;
            let frames = &mut out[HEADER..HEADER + body];
            frames.fill(0);
            Frame::Ping.encode(&mut Writer::new(frames))?;
            let mut load = FrameList::EMPTY;
            load.push(Carried::Probe(size));
            self.path.on_sent();
            return Some(self.finish(shared, now, out, body, Some(&load)));
        }
        let work = open && waits;
        if !work && !ack_due {
            return None;
        }
        let body = usize::from(self.path.current()) - HEADER - tag;
        if let Some(lent) = &mut lent {
            // What is sealed is written anew anyway.
            let alone = self.path.current() >= ALONE && shared.config.protection == Protection::Unauthenticated;
            (lent.stays, lent.tail) = (lent.stays && alone, 0..0);
        }
        let mut writer = Writer::new(&mut out[HEADER..HEADER + body]);
        let mut load = FrameList::EMPTY;
        // In company sooner than alone, or a conversation would need datagrams for nothing else.
        let ripe = self.ack_pending >= ACK_EVERY.div_ceil(2)
            || self.ack_bytes >= u64::from(shared.config.send_queue) / 4
            || self.ack_at.is_some_and(|at| at <= now + company(shared));
        if pending && (ack_due || ripe) {
            let delay_micros = now.since(self.newest_at).picos() / 1_000_000;
            encode_ack(&mut writer, delay_micros, self.replay.ranges().iter())?;
            (self.ack_pending, self.ack_bytes, self.ack_at) = (0, 0, None);
        }
        // The end of a large payload asks for its acknowledgement, too: nothing that follows would bring it about.
        let room = writer.remaining() as u64;
        self.ping |= work && self.traffic.bulk_out.iter().any(|bulk| bulk.ends_within(room, lent.is_some()));
        if work {
            self.fill(shared, now, &mut writer, &mut load, lent.as_deref_mut())?;
        }
        let len = writer.len() + lent.map_or(0, |lent| lent.tail.len());
        Some(self.finish(shared, now, out, len, work.then_some(&load)))
    }

    fn finish(
        &mut self,
        shared: &mut Context,
        now: Instant,
        out: &mut [u8],
        body: usize,
        load: Option<&FrameList>,
    ) -> usize {
        let protection = shared.config.protection;
        let number = self.recovery.next_number();
        let tag = if protection == Protection::Unauthenticated { 0 } else { TAG };
        let (epoch, sender, length) = (self.seal.epoch, shared.config.me.0, (HEADER + body + tag) as u16);
        let header = Header { mode: protection as u8, epoch, sender, number, length };
        out[..HEADER].copy_from_slice(&header.encode());
        let len = self.seal.seal(protection, number, out, HEADER + body);
        if load.is_some() {
            self.last_sent = now;
            self.asked_at.get_or_insert(now);
        }
        self.recovery.on_sent(now, len, load);
        shared.counters.sent += 1;
        shared.counters.sent_bytes += len as u64;
        len
    }

    /// An acknowledgement is due when so many datagrams wait for it, when the next large one, or the largest
    /// message, would not find room in its sender's queue before, or when they have waited for long enough.
    fn is_ack_due(&self, shared: &Context, now: Instant) -> bool {
        let next = || u64::from(self.path.current()).max(shared.config.largest_message());
        let full = || self.ack_bytes + next() > shared.config.send_queue.into();
        self.ack_pending > 0
            && (self.ack_pending >= ACK_EVERY || self.ack_at.is_some_and(|at| at <= now) || full())
    }

    /// Whether there is nothing to send at this moment, whatever window and pacer permit.
    #[inline]
    pub(super) fn is_done(&self, shared: &Context, now: Instant, lent: bool) -> bool {
        let probes = self.recovery.probes > 0;
        !probes && !self.has_work(now, lent) && !self.is_ack_due(shared, now) && !self.path.may_explore(now)
    }

    /// Whether there is something to send that wants an acknowledgement.
    #[inline]
    fn has_work(&self, now: Instant, lent: bool) -> bool {
        let traffic = &self.traffic;
        let credit =
            traffic.credit_dirty && (traffic.credit_urgent || traffic.credit_at.is_none_or(|at| at <= now));
        self.ping
            || credit
            || traffic.leave_due
            || self.want().is_some()
            || traffic.out[0].has_next(self.told.limit)
            || traffic.out[1].has_next(u64::MAX)
            || traffic.bulk_out[0].has_next(lent)
            || traffic.bulk_out[1].has_next(false)
    }

    /// The limit to ask the peer for: one question at a time.
    fn want(&self) -> Option<u64> {
        let end = self.traffic.out[0].fifo.end();
        (end > self.told.limit && self.traffic.want_sent <= self.told.limit).then_some(end)
    }

    fn fill(
        &mut self,
        shared: &Context,
        now: Instant,
        writer: &mut Writer<'_>,
        load: &mut FrameList,
        mut lent: Option<&mut Loan<'_>>,
    ) -> Option<()> {
        let want = self.want();
        let traffic = &mut self.traffic;
        if self.ping {
            self.ping = false;
            Frame::Ping.encode(writer)?;
        }
        let ripe = traffic.credit_urgent || traffic.credit_at.is_none_or(|at| at <= now + company(shared));
        if traffic.credit_dirty && ripe {
            (traffic.credit_dirty, traffic.credit_urgent, traffic.credit_at) = (false, false, None);
            (self.granted.replies, self.granted.payloads) =
                (traffic.out[1].fifo.end(), traffic.bulk_out[1].bytes.fifo.end());
            self.reported = self.granted;
            Frame::Credit(self.granted).encode(writer)?;
            load.push(Carried::Credit);
        }
        if let Some(target) = want {
            traffic.want_sent = target;
            Frame::Want(target).encode(writer)?;
            load.push(Carried::Want);
        }
        if traffic.leave_due
            && let Some(how) = traffic.leave
        {
            traffic.leave_due = false;
            let [requests, replies] = [&traffic.out[0], &traffic.out[1]].map(|out| out.fifo.end());
            let payloads = [0, 1].map(|lane| traffic.bulk_out[lane].bytes.fifo.end());
            Frame::Leave(Leave { how, requests, replies, payloads, after: shared.after }).encode(writer)?;
            load.push(Carried::Leave);
        }
        // Replies before requests; payloads of Long messages behind both, but first in every fourth datagram.
        let order = if self.recovery.next_number() % 4 == 3 { [3, 2, 1, 0] } else { [1, 0, 3, 2] };
        for stream in order {
            let Traffic { out, bulk_out, .. } = &self.traffic;
            let lane = usize::from(stream & 1);
            if if stream < 2 { out[lane].is_idle() } else { bulk_out[lane].is_idle() } {
                continue;
            }
            let lent = lent.as_deref_mut().filter(|_| stream == 2);
            if self.fill_stream(shared, stream, writer, load, lent)? {
                break;
            }
        }
        Some(())
    }

    /// Returns whether nothing may follow.
    fn fill_stream(
        &mut self,
        shared: &Context,
        stream: u8,
        writer: &mut Writer<'_>,
        load: &mut FrameList,
        mut lent: Option<&mut Loan<'_>>,
    ) -> Option<bool> {
        let lane = usize::from(stream & 1);
        let limit = if stream == 0 { self.told.limit } else { u64::MAX };
        while load.has_room() {
            let Some(space) = writer.remaining().checked_sub(STREAM_OVERHEAD + 1) else { break };
            let next = if stream >= 2 {
                self.traffic.bulk_out[lane].next_range(space as u64, lent.is_some())
            } else {
                self.traffic.out[lane].next_range(space as u64, limit).map(|(offset, len)| (offset, len, 0))
            };
            let Some((offset, len, at)) = next else { break };
            if space < LEAST_FRAGMENT && len == space as u64 {
                break;
            }
            stream_header(writer, stream, offset, at, len as usize)?;
            if stream >= 2 {
                let bulk = &mut self.traffic.bulk_out[lane];
                let payload = lent.as_deref().map(|lent| lent.payload);
                let at = bulk.place_in(payload, offset);
                bulk.bytes.on_sent(offset, len);
                if let (Some(lent), Some(at)) = (lent.as_deref_mut().filter(|lent| lent.stays), at) {
                    lent.tail = at..at + len as usize;
                    load.push(Carried::Stream { stream, offset, len: len as u16 });
                    return Some(true);
                }
                bulk.read(&shared.pools[BULK], payload, offset, writer.space(len as usize)?);
            } else {
                let data = writer.space(len as usize)?;
                let out = &mut self.traffic.out[lane];
                out.fifo.read(&shared.pools[lane], offset, data);
                out.on_sent(offset, len);
            }
            load.push(Carried::Stream { stream, offset, len: len as u16 });
        }
        Some(false)
    }
}
