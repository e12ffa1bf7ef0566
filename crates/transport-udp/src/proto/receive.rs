//! Takes the authentic datagrams of a session apart. Work is bounded by the datagram's length and what is in
//! flight.

use super::bytes::Reader;
use super::config::Protection;
use super::context::{Context, IN};
use super::recovery::MAX_CARRIED;
use super::session::{Fault, Session};
use super::stream::Untaken;
use super::wire::{Frame, lane_bytes};
use am_core::{Instant, Span};

/// Whether what remains is a row of frames.
fn is_sound(mut reader: Reader<'_>) -> bool {
    while reader.remaining() > 0 {
        if lane_bytes(&mut reader).is_none() && Frame::parse(&mut reader).is_none() {
            return false;
        }
    }
    true
}

impl Session {
    /// Applies the frames of datagram `number`. Returns whether a message may have become whole.
    ///
    /// # Errors
    /// [`Fault`] if they break the protocol; frames before the offending one may have taken effect.
    pub(super) fn receive(
        &mut self,
        shared: &mut Context,
        now: Instant,
        number: u64,
        frames: &[u8],
    ) -> Result<bool, Fault> {
        // Anybody may have sent it: it must be sound as a whole before any of it counts.
        if shared.config.protection == Protection::Unauthenticated && !is_sound(Reader::new(frames)) {
            return Err(Fault);
        }
        let (mut eliciting, mut question, mut news, mut kept) = (false, false, false, true);
        let (mut acks, mut carried) = (0, 0);
        let mut reader = Reader::new(frames);
        while reader.remaining() > 0 {
            // No sender puts more into a datagram, and each costs as much as is in flight at most.
            let too_many = |acks: u32, carried: usize| acks > 1 || carried > MAX_CARRIED;
            let taken = if let Some((lane, offset, data)) = lane_bytes(&mut reader) {
                (eliciting, carried) = (true, carried + 1);
                if too_many(acks, carried) {
                    return Err(Fault);
                }
                self.take_bytes(shared, lane, offset, data)
            } else {
                let frame = Frame::parse(&mut reader).ok_or(Fault)?;
                match frame {
                    Frame::Ack { .. } => acks += 1,
                    Frame::Padding | Frame::Ping => {}
                    _ => carried += 1,
                }
                eliciting |= !matches!(frame, Frame::Ack { .. } | Frame::Padding);
                question |= matches!(frame, Frame::Ping);
                if too_many(acks, carried) {
                    return Err(Fault);
                }
                self.apply(shared, now, &frame)
            };
            match taken {
                Ok(more) => news |= more,
                Err(Untaken::Forbidden) => return Err(Fault),
                Err(Untaken::Scattered) => kept = false,
            }
        }
        self.confirmed = true;
        // A datagram that was not taken whole is not acknowledged. Taking part of it twice does no harm.
        if kept {
            let in_order = self.replay.insert(number);
            if eliciting {
                self.newest_at = now;
                self.ack_pending += 1;
                self.ack_bytes += frames.len() as u64;
                self.ack_at.get_or_insert(now + shared.config.ack_delay);
                if question || !in_order {
                    // A gap, or its end, or the sender says so: it should know soon.
                    self.ack_at = Some(now);
                }
            }
        }
        Ok(news)
    }

    /// Takes bytes of a lane in.
    #[inline]
    fn take_bytes(
        &mut self,
        shared: &mut Context,
        lane: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Untaken> {
        // What comes after a farewell is nobody's.
        if self.traffic.retired {
            return Ok(false);
        }
        let incoming = &mut self.traffic.incoming[lane];
        // Requests may come up to the granted limit, replies as far as room was set aside.
        let limit = if lane == 0 { self.granted.limit } else { incoming.fifo.start() + self.set_aside };
        // What was consumed already is beyond suspicion, and a late copy of it may exceed today's limit.
        let limit = limit.max(incoming.ready);
        incoming.accept(&mut shared.pools[IN + lane], offset, data, limit)
    }

    fn apply(&mut self, shared: &mut Context, now: Instant, frame: &Frame<'_>) -> Result<bool, Untaken> {
        let forbidden = |_| Untaken::Forbidden;
        match *frame {
            Frame::Padding | Frame::Ping => Ok(false),
            Frame::Ack { delay_micros, ranges } => {
                let Self { recovery, traffic, path, .. } = self;
                let delay = Span::from_micros(delay_micros);
                let done = recovery.on_ack(now, delay, ranges.iter(), |outcome, carried| {
                    traffic.settle(shared, path, outcome, carried);
                });
                // A sign of life is as old as what it answers: what somebody held back says nothing of the time
                // since.
                self.last_heard = self.last_heard.max(recovery.answered());
                if matches!(done, Ok(Some(_))) {
                    self.asked_at = recovery.oldest();
                }
                let widest = done.map_err(|_| Untaken::Forbidden)?;
                let narrower = widest.is_some_and(|widest| path.on_answer(now, widest, recovery.wide_lost()));
                if std::mem::take(&mut traffic.path_grew) || narrower {
                    recovery.set_datagram(path.current().into());
                }
                Ok(false)
            }
            Frame::Credit(credit) => self.on_credit(shared, credit).map(|()| false).map_err(forbidden),
            Frame::Want(target) => {
                self.wanted = self.wanted.max(target);
                Ok(false)
            }
            Frame::Leave(leave) => {
                self.leave_in.get_or_insert(leave);
                // The peer waits for nothing else.
                self.ack_at = Some(now);
                Ok(true)
            }
            Frame::Stream { stream, offset, at, data } => {
                let lane = usize::from(stream & 1);
                // What comes after a farewell is nobody's: neither kept nor placed.
                if self.traffic.retired {
                    return Ok(false);
                }
                if stream >= 2 {
                    return self.traffic.bulk_in[lane].accept(&shared.segment, offset, at, data);
                }
                self.take_bytes(shared, lane, offset, data)
            }
        }
    }
}
