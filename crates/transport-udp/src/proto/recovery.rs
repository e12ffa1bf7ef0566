//! Loss recovery and congestion control of one session: what is in flight, how long the way takes, how much may be
//! sent.
//!
//! Round-trip times are estimated as in RFC 6298 with the refinements of RFC 9002 (acknowledgement delay,
//! minimum); losses are found by RFC 9002's thresholds, three datagrams or 9/8 of a round trip, and by its probe
//! timeout.
//!
//! The window is TCP Westwood+ (Grieco and Mascolo, "Performance evaluation and comparison of Westwood+, New Reno
//! and Vegas", CCR 2004): slow start and linear growth as in NewReno, but a loss sets the window to the measured
//! bandwidth times the least round-trip time (and a little, see `SLACK`) instead of halving it. Halving would hold
//! 1 % of random loss to about twelve datagrams a round trip whatever the link could carry; Westwood+ keeps the
//! link filled and still gives way where a queue has built up, because there the bandwidth no longer grows with
//! the window. CUBIC has NewReno's weakness.
//!
//! The bandwidth is the largest of the last round trips, each measured as BBR does (Cardwell et al., "BBR:
//! congestion-based congestion control", CACM 2017): what was delivered between the sending of a datagram and its
//! acknowledgement. An average would be of pauses, time-outs and the share that random loss takes, and would lower
//! the window with every loss. A round trip that loses more than a fifth of what it sent has met a way that
//! carries less than before: the bandwidth of earlier ones is forgotten at its end. RFC 8085 section 3.1 asks for
//! a response within about a round trip, and BBR's second version limits the share of losses for the same reason.

use super::config::DATAGRAM_START;
use am_core::{Instant, Span};
use std::collections::VecDeque;

/// What a datagram carried, so that it can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    Stream {
        stream: u8,
        offset: u64,
        len: u16,
    },
    Credit,
    Want,
    Leave,
    /// A padded datagram of this size that explores the path.
    Probe(u16),
}

/// What became of something that was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Acked,
    /// Lost, or so late that it had better be sent once more.
    Lost,
}

/// Most entries of one datagram.
pub(super) const MAX_CARRIED: usize = 5;

/// A list of at most [`MAX_CARRIED`] entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameList {
    entries: [Carried; MAX_CARRIED],
    len: usize,
}

impl FrameList {
    pub(super) const EMPTY: Self = Self { entries: [Carried::Credit; MAX_CARRIED], len: 0 };

    pub(super) fn has_room(&self) -> bool {
        self.len < MAX_CARRIED
    }

    pub(super) fn push(&mut self, entry: Carried) {
        if let Some(place) = self.entries.get_mut(self.len) {
            *place = entry;
            self.len += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Carried> + '_ {
        self.entries.iter().take(self.len).copied()
    }

    fn is_probe(&self) -> bool {
        matches!(self.iter().next(), Some(Carried::Probe(_)))
    }
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It wants an acknowledgement and counts as in flight.
    Open,
    Acked,
    Lost,
    /// It wants none.
    Unasked,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    size: u32,
    state: State,
    /// Bytes that had been acknowledged when it was sent, and since when there were so many.
    delivered: u64,
    delivered_at: Instant,
    load: FrameList,
}

/// Datagrams larger than [`DATAGRAM_START`] that have been lost since one of these was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WideLost {
    pub(super) datagrams: u32,
    /// In how many round trips they were sent: a buffer that is full for a moment takes a row of them.
    pub(super) rounds: u32,
    round: Instant,
}

impl WideLost {
    #[cfg(test)]
    pub(super) fn row(datagrams: u32, rounds: u32) -> Self {
        Self { datagrams, rounds, round: Instant(0) }
    }

    fn add(&mut self, at: Instant, round: Span) {
        self.datagrams += 1;
        if self.rounds == 0 || at.since(self.round) > round {
            (self.rounds, self.round) = (self.rounds + 1, at);
        }
    }
}

/// Most datagrams in flight; below the replay window, so that nothing sent is ever too old to be accepted.
const MAX_IN_FLIGHT: usize = 2048;
/// Most numbers between the oldest datagram in flight and the newest of any kind.
const MAX_NUMBERS: usize = 3900;
const PACKET_THRESHOLD: u64 = 3;
const GRANULARITY: Span = Span::from_micros(100);
const FIRST_RTT: Span = Span::from_millis(50);
/// How long the window lasts beyond the least round-trip time, after a loss. On a path of ten microseconds
/// bandwidth times round trip is a dozen datagrams: fewer than may wait for one acknowledgement, so that each lost
/// acknowledgement or last datagram would stop the flow until a timer. The price is a queue of this length, less
/// than switches have; on a long path it makes no difference.
const SLACK: Span = Span::from_micros(100);
/// Timeouts are this far apart at most, or a round trip and a quarter.
const MAX_PTO: Span = Span::from_secs(1);
/// Datagrams that may leave back to back.
const BURST: u64 = 16;

/// The peer acknowledged what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impossible;

#[derive(Debug)]
pub(super) struct Recovery {
    sent: VecDeque<Sent>,
    /// Number of the first entry of `sent`.
    base: u64,
    largest_acked: Option<u64>,
    /// The largest number whose acknowledgement has told a round-trip time.
    sampled: Option<u64>,
    /// When the newest datagram was sent that the peer has acknowledged.
    answered: Instant,
    in_flight: u64,
    /// Bytes of these that only explore the path. They take neither window nor pacer from messages: one of them is
    /// as large as many datagrams, of which a path that does not carry it would stop all else for several round
    /// trips. Exploring is slow by itself, one datagram a round trip.
    exploring: u64,
    last_eliciting: Instant,
    loss_at: Option<Instant>,
    wide_lost: WideLost,
    backoff: u32,
    /// Datagrams that may leave regardless of the window, after a timeout.
    pub(super) probes: u32,
    latest: Span,
    smoothed: Option<Span>,
    variation: Span,
    least: Span,
    peer_delay: Span,
    datagram: u64,
    window: u64,
    threshold: u64,
    /// Losses of datagrams sent before this moment belong to a reduction already made.
    recovery_since: Option<Instant>,
    bandwidth: Bandwidth,
    round: Round,
    /// Bytes that have been acknowledged, and since when there are so many.
    delivered: u64,
    delivered_at: Instant,
    /// Since when there are round-trip times.
    measured_at: Option<Instant>,
    tokens: f64,
    tokens_at: Instant,
}

/// Round trips whose bandwidth counts.
const ROUNDS: usize = 10;

/// The largest bandwidths of the last round trips in which the window was in use, in bytes per picosecond.
#[derive(Debug, Default)]
struct Bandwidth {
    rounds: [f64; ROUNDS],
    current: usize,
    /// When the current round trip began.
    since: Instant,
}

impl Bandwidth {
    /// A round trip of the length `round` begins anew when it is over. What was measured while there was little to
    /// send counts if it is more than before.
    fn sample(&mut self, now: Instant, round: Span, rate: f64, full: bool) {
        if full && now.since(self.since) >= round.max(GRANULARITY) {
            self.current = (self.current + 1) % ROUNDS;
            self.rounds[self.current] = 0.0;
            self.since = now;
        }
        let current = &mut self.rounds[self.current];
        *current = current.max(rate);
    }

    fn largest(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }

    /// The way carries so much now, whatever it carried before.
    fn forget(&mut self, rate: f64) {
        self.rounds = [0.0; ROUNDS];
        self.rounds[self.current] = rate;
    }
}

/// A round trip that loses more than one datagram of so many, and [`FEW`] at least, has met congestion: with every
/// tenth lost by chance, hardly any of a window worth keeping does.
const HEAVY: u64 = 5;
const FEW: u64 = 4;

/// What has become of what one round trip sent.
#[derive(Debug, Default)]
struct Round {
    /// It ends when a datagram from this number on is acknowledged.
    until: u64,
    delivered: u64,
    /// The largest bandwidth of the round trip.
    rate: f64,
    lost: u64,
    losses: u64,
}

/// Datagrams that were sent over more than so many probe timeouts and all lost are persistent congestion.
const PERSISTENT: u64 = 3;

/// Fewest bytes of the window, in datagrams.
const LEAST_WINDOW: u64 = 4;

impl Recovery {
    pub(super) fn new(now: Instant, datagram: u64, peer_delay: Span) -> Self {
        Self {
            sent: VecDeque::new(),
            base: 0,
            largest_acked: None,
            sampled: None,
            answered: now,
            in_flight: 0,
            exploring: 0,
            last_eliciting: now,
            loss_at: None,
            wide_lost: WideLost::default(),
            backoff: 0,
            probes: 0,
            latest: Span::ZERO,
            smoothed: None,
            variation: Span::ZERO,
            least: Span(u64::MAX),
            peer_delay,
            datagram,
            window: 10 * datagram,
            threshold: u64::MAX,
            recovery_since: None,
            bandwidth: Bandwidth::default(),
            round: Round::default(),
            delivered: 0,
            delivered_at: now,
            measured_at: None,
            tokens: (BURST * datagram) as f64,
            tokens_at: now,
        }
    }

    /// The number of the next datagram.
    pub(super) fn next_number(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// When the newest datagram was sent that the peer has acknowledged: at that moment or later it was there,
    /// however long its acknowledgement took.
    pub(super) fn answered(&self) -> Instant {
        self.answered
    }

    pub(super) fn round_trip(&self) -> Option<Span> {
        self.smoothed
    }

    pub(super) fn set_datagram(&mut self, datagram: u64) {
        self.datagram = datagram;
        self.window = self.window.max(LEAST_WINDOW * datagram);
    }

    /// Whether the window lets a datagram go, pacing aside.
    pub(super) fn has_window(&self) -> bool {
        let limit = if self.probes > 0 { MAX_NUMBERS } else { MAX_IN_FLIGHT };
        let taken = self.in_flight - self.exploring;
        self.sent.len() < limit && (self.probes > 0 || taken + self.datagram <= self.window)
    }

    /// Whether a datagram that is not in flight, a bare acknowledgement, may take a number.
    pub(super) fn has_number(&self) -> bool {
        self.sent.len() < MAX_NUMBERS
    }

    /// When the pacer lets the next datagram go: 5/4 of the window per round trip, in bursts of [`BURST`].
    pub(super) fn paced(&mut self, now: Instant) -> Option<Instant> {
        let smoothed = self.smoothed?;
        let rate = 1.25 * self.window as f64 / smoothed.0.max(1) as f64;
        let most = (BURST * self.datagram) as f64;
        self.tokens = (self.tokens + rate * now.since(self.tokens_at).0 as f64).min(most);
        self.tokens_at = now;
        let missing = self.datagram as f64 - self.tokens;
        // A little more than needed, so that rounding cannot make the timer fire in vain.
        (missing > 0.0 && self.probes == 0).then(|| now + Span((missing / rate) as u64 + 1000))
    }

    /// A datagram has been made. It counts as in flight if it carries something, be it only a question.
    pub(super) fn on_sent(&mut self, now: Instant, size: usize, load: Option<&FrameList>) {
        let state = if load.is_some() { State::Open } else { State::Unasked };
        if let Some(load) = load {
            if self.in_flight == 0 {
                // Before, there was nothing to deliver.
                self.delivered_at = now;
            }
            self.in_flight += size as u64;
            self.last_eliciting = now;
            self.probes = self.probes.saturating_sub(1);
            if load.is_probe() {
                self.exploring += size as u64;
            } else {
                // What leaves regardless of the pacer, after a timeout, leaves no debt: a row of these would be
                // paid off over seconds, in which nothing could leave, not even a sign of life.
                self.tokens = (self.tokens - size as f64).max(0.0);
            }
        }
        let Self { delivered, delivered_at, .. } = *self;
        let load = *load.unwrap_or(&FrameList::EMPTY);
        self.sent.push_back(Sent { at: now, size: size as u32, state, delivered, delivered_at, load });
        self.trim();
    }

    fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.state != State::Open) {
            self.sent.pop_front();
            self.base += 1;
        }
    }

    /// The probe timeout of RFC 9002 section 6.2.1, without backoff.
    fn pto_once(&self) -> Span {
        let rtt = self.smoothed.unwrap_or(FIRST_RTT);
        let variation = Span(4 * self.variation.0).max(GRANULARITY);
        Span(rtt.0 + variation.0 + self.peer_delay.0)
    }

    fn pto(&self) -> Span {
        let once = self.pto_once().0;
        // One round trip that took long, because somebody had no processor, must not put off what follows for as
        // long as a peer may be silent; but no answer can be there before a usual one is over.
        let limit = MAX_PTO.0.max(self.smoothed.map_or(0, |rtt| rtt.0 / 4 * 5));
        Span(once.saturating_mul(1 << self.backoff.min(16)).min(limit))
    }

    /// When [`Recovery::on_timer`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let probe = (self.in_flight > 0).then(|| self.last_eliciting + self.pto());
        match (self.loss_at, probe) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes an acknowledgement in; reports what became of datagrams' loads, each at most once. Returns the size
    /// of the largest datagram that it is the first to name, if there is one.
    ///
    /// Work is bounded by the datagrams in flight.
    ///
    /// # Errors
    /// [`Impossible`] if it names a datagram that was never sent; nothing has changed then.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        delay: Span,
        ranges: impl Iterator<Item = (u64, u64)> + Clone,
        mut report: impl FnMut(Outcome, Carried),
    ) -> Result<Option<u32>, Impossible> {
        let largest = ranges.clone().map(|(_, last)| last).max().ok_or(Impossible)?;
        if largest >= self.next_number() {
            return Err(Impossible);
        }
        if let Some(sent) = largest.checked_sub(self.base).and_then(|index| self.sent.get(index as usize)) {
            self.answered = self.answered.max(sent.at);
        }
        let (mut bytes, mut explored, mut widest, mut newest) = (0, 0, None, None);
        let window_full = self.in_flight - self.exploring + self.datagram * 2 > self.window;
        for (first, last) in ranges {
            for number in first.max(self.base)..(last + 1).max(self.base) {
                let sent = &mut self.sent[(number - self.base) as usize];
                if sent.state != State::Open {
                    continue;
                }
                sent.state = State::Acked;
                bytes += u64::from(sent.size);
                explored += if sent.load.is_probe() { u64::from(sent.size) } else { 0 };
                widest = widest.max(Some(sent.size));
                newest = newest.max(Some((number, sent.at, sent.delivered, sent.delivered_at)));
                sent.load.iter().for_each(|carried| report(Outcome::Acked, carried));
            }
        }
        // Not of the largest number: it may be that of an acknowledgement, which nobody answers.
        if let Some((number, at, ..)) = newest.filter(|(number, ..)| Some(*number) > self.sampled) {
            self.sampled = Some(number);
            self.sample(now.since(at), delay);
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        (self.in_flight, self.exploring) = (self.in_flight - bytes, self.exploring - explored);
        if bytes > 0 {
            (self.backoff, self.probes) = (0, 0);
            (self.delivered, self.delivered_at) = (self.delivered + bytes, now);
            if let Some((.., before, since)) = newest {
                let rate = (self.delivered - before) as f64 / now.since(since).0.max(1) as f64;
                self.bandwidth.sample(now, self.smoothed.unwrap_or(FIRST_RTT), rate, window_full);
                self.round.delivered += bytes;
                self.round.rate = self.round.rate.max(rate);
            }
            if window_full {
                self.grow(bytes - explored);
            }
        }
        self.find_losses(now, report);
        if widest > Some(DATAGRAM_START.into()) {
            self.wide_lost = WideLost::default();
        }
        if newest.is_some_and(|(number, ..)| number >= self.round.until) {
            self.end_round();
        }
        self.measured_at = self.measured_at.or(self.smoothed.map(|_| now));
        self.trim();
        Ok(widest)
    }

    /// An answer took so long, of which the peer says that it waited for `delay`.
    fn sample(&mut self, latest: Span, delay: Span) {
        self.latest = latest;
        let sample = Span(latest.0.saturating_sub(delay.min(self.peer_delay).0));
        let sample = if sample < self.least { latest } else { sample };
        self.least = self.least.min(latest);
        let smoothed = self.smoothed.unwrap_or(sample);
        let error = if self.smoothed.is_some() { smoothed.0.abs_diff(sample.0) } else { sample.0 * 2 };
        self.variation = Span((3 * self.variation.0 + error) / 4);
        self.smoothed = Some(Span((7 * smoothed.0 + sample.0) / 8));
    }

    fn grow(&mut self, bytes: u64) {
        if self.window < self.threshold {
            self.window += bytes;
        } else {
            self.window += (self.datagram * bytes / self.window).max(1);
        }
        self.window = self.window.min(MAX_IN_FLIGHT as u64 * self.datagram);
    }

    fn shrink(&mut self, now: Instant, sent_at: Instant) {
        if self.recovery_since.is_some_and(|since| sent_at <= since) {
            return;
        }
        self.recovery_since = Some(now);
        self.shrink_to_bandwidth();
    }

    fn shrink_to_bandwidth(&mut self) {
        let fair = self.bandwidth.largest() * self.least.0.saturating_add(SLACK.0) as f64;
        self.threshold = (fair as u64).clamp(LEAST_WINDOW * self.datagram, MAX_IN_FLIGHT as u64 * self.datagram);
        self.window = self.window.min(self.threshold);
    }

    /// What a round trip sent has arrived or been given up.
    fn end_round(&mut self) {
        let Round { delivered, rate, lost, losses, .. } = self.round;
        if losses >= FEW && lost * HEAVY > lost + delivered {
            self.bandwidth.forget(rate);
            self.shrink_to_bandwidth();
        }
        self.round = Round { until: self.next_number(), ..Round::default() };
    }

    fn find_losses(&mut self, now: Instant, mut report: impl FnMut(Outcome, Carried)) {
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let round = self.latest.max(self.smoothed.unwrap_or(FIRST_RTT));
        let loss_delay = Span(round.0 / 8 * 9).max(GRANULARITY);
        let persistent = Span(PERSISTENT * self.pto_once().0);
        // Before there were round-trip times, nothing is known of how long is long.
        let measured_at = self.measured_at.or(Some(now));
        let (mut newest_loss, mut run, mut longest) = (None, None, Span::ZERO);
        for index in 0..self.sent.len() {
            let number = self.base + index as u64;
            if number >= largest {
                break;
            }
            let sent = &mut self.sent[index];
            match sent.state {
                State::Acked => run = None,
                State::Lost => run = run.or(Some(sent.at).filter(|at| Some(*at) > measured_at)),
                State::Open | State::Unasked => {}
            }
            if sent.state != State::Open {
                continue;
            }
            if largest - number >= PACKET_THRESHOLD || sent.at + loss_delay <= now {
                sent.state = State::Lost;
                self.in_flight -= u64::from(sent.size);
                // The loss of an exploring datagram says something of its size, not of congestion.
                if sent.load.is_probe() {
                    self.exploring -= u64::from(sent.size);
                } else {
                    newest_loss = Some(sent.at);
                    self.round.lost += u64::from(sent.size);
                    self.round.losses += 1;
                    if sent.size > DATAGRAM_START.into() {
                        self.wide_lost.add(sent.at, round);
                    }
                    run = run.or(Some(sent.at).filter(|at| Some(*at) > measured_at));
                    longest = longest.max(run.map_or(Span::ZERO, |since| sent.at.since(since)));
                }
                sent.load.iter().for_each(|carried| report(Outcome::Lost, carried));
            } else {
                let at = sent.at + loss_delay;
                self.loss_at = Some(self.loss_at.map_or(at, |other| other.min(at)));
            }
        }
        if let Some(sent_at) = newest_loss {
            self.shrink(now, sent_at);
        }
        if longest > persistent {
            // RFC 9002 section 7.6: nothing arrived of all that was sent for so long.
            self.window = LEAST_WINDOW * self.datagram;
        }
    }

    /// The deadline has come: gives up what is overdue, or asks for two datagrams that make the peer answer, for
    /// which what the oldest two datagrams in flight carried is reported as lost. Returns whether the probe
    /// timeout has run out.
    pub(super) fn on_timer(&mut self, now: Instant, mut report: impl FnMut(Outcome, Carried)) -> bool {
        if self.loss_at.is_some_and(|at| at <= now) {
            self.find_losses(now, report);
            self.trim();
            return false;
        }
        if self.in_flight == 0 || self.last_eliciting + self.pto() > now {
            return false;
        }
        self.backoff += 1;
        self.probes = 2;
        self.last_eliciting = now;
        let open = |sent: &&Sent| sent.state == State::Open && !sent.load.is_probe();
        let oldest = self.sent.iter().filter(open).take(2);
        oldest.flat_map(|sent| sent.load.iter()).for_each(|carried| report(Outcome::Lost, carried));
        true
    }

    /// Something that asks whether the peer is there leaves regardless of window and pacer.
    pub(super) fn let_one_go(&mut self) {
        self.probes = self.probes.max(1);
    }

    /// When the oldest datagram in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.at)
    }

    /// Timeouts in a row without any acknowledgement.
    pub(super) fn timeouts(&self) -> u32 {
        self.backoff
    }

    /// The large datagrams that have been lost since one was acknowledged.
    pub(super) fn wide_lost(&self) -> WideLost {
        self.wide_lost
    }
}

#[cfg(test)]
mod tests;
