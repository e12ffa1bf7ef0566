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

#[derive(Debug)]
struct Sent {
    at: Instant,
    size: u32,
    /// Wants an acknowledgement and counts as in flight.
    eliciting: bool,
    /// Neither acknowledged nor given up.
    open: bool,
    load: FrameList,
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
    /// When the newest datagram was sent that the peer has acknowledged.
    answered: Instant,
    in_flight: u64,
    last_eliciting: Instant,
    loss_at: Option<Instant>,
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
    /// Bandwidth in bytes per picosecond, and its sample in the making.
    bandwidth: f64,
    sample_since: Instant,
    sample_bytes: u64,
    tokens: f64,
    tokens_at: Instant,
}

/// Fewest bytes of the window, in datagrams.
const LEAST_WINDOW: u64 = 4;

impl Recovery {
    pub(super) fn new(now: Instant, datagram: u64, peer_delay: Span) -> Self {
        Self {
            sent: VecDeque::new(),
            base: 0,
            largest_acked: None,
            answered: now,
            in_flight: 0,
            last_eliciting: now,
            loss_at: None,
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
            bandwidth: 0.0,
            sample_since: now,
            sample_bytes: 0,
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
        self.sent.len() < limit && (self.probes > 0 || self.in_flight + self.datagram <= self.window)
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

    pub(super) fn on_sent(&mut self, now: Instant, size: usize, eliciting: bool, load: FrameList) {
        if eliciting {
            self.in_flight += size as u64;
            self.last_eliciting = now;
            self.probes = self.probes.saturating_sub(1);
            self.tokens -= size as f64;
        }
        self.sent.push_back(Sent { at: now, size: size as u32, eliciting, open: eliciting, load });
        self.trim();
    }

    fn trim(&mut self) {
        while self.sent.front().is_some_and(|sent| !sent.open) {
            self.sent.pop_front();
            self.base += 1;
        }
    }

    fn pto(&self) -> Span {
        let rtt = self.smoothed.unwrap_or(FIRST_RTT);
        let variation = Span(4 * self.variation.0).max(GRANULARITY);
        let once = rtt.0 + variation.0 + self.peer_delay.0;
        Span(once.saturating_mul(1 << self.backoff.min(16))).min(MAX_PTO)
    }

    /// When [`Recovery::on_timer`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let probe = (self.in_flight > 0).then(|| self.last_eliciting + self.pto());
        match (self.loss_at, probe) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes an acknowledgement in; reports what became of datagrams' loads, each at most once.
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
    ) -> Result<(), Impossible> {
        let largest = ranges.clone().map(|(_, last)| last).max().ok_or(Impossible)?;
        if largest >= self.next_number() {
            return Err(Impossible);
        }
        if let Some(sent) = largest.checked_sub(self.base).and_then(|index| self.sent.get(index as usize)) {
            self.answered = self.answered.max(sent.at);
        }
        let mut bytes = 0;
        let window_full = self.in_flight + self.datagram * 2 > self.window;
        for (first, last) in ranges {
            for number in first.max(self.base)..(last + 1).max(self.base) {
                let sent = &mut self.sent[(number - self.base) as usize];
                if !sent.open {
                    continue;
                }
                sent.open = false;
                bytes += u64::from(sent.size);
                if number == largest && sent.eliciting {
                    self.latest = now.since(sent.at);
                    let sample = Span(self.latest.0.saturating_sub(delay.min(self.peer_delay).0));
                    let sample = if sample < self.least { self.latest } else { sample };
                    self.least = self.least.min(self.latest);
                    let smoothed = self.smoothed.unwrap_or(sample);
                    let error = if self.smoothed.is_some() { smoothed.0.abs_diff(sample.0) } else { sample.0 * 2 };
                    self.variation = Span((3 * self.variation.0 + error) / 4);
                    self.smoothed = Some(Span((7 * smoothed.0 + sample.0) / 8));
                }
                sent.load.iter().for_each(|carried| report(Outcome::Acked, carried));
            }
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if bytes > 0 {
            self.backoff = 0;
            self.measure(now, bytes);
            if window_full {
                self.grow(bytes);
            }
        }
        self.find_losses(now, report);
        self.trim();
        Ok(())
    }

    /// One bandwidth sample per round trip, smoothed.
    fn measure(&mut self, now: Instant, bytes: u64) {
        self.sample_bytes += bytes;
        let elapsed = now.since(self.sample_since);
        if elapsed >= self.smoothed.unwrap_or(FIRST_RTT).max(GRANULARITY) {
            let sample = self.sample_bytes as f64 / elapsed.0 as f64;
            self.bandwidth = if self.bandwidth == 0.0 { sample } else { self.bandwidth * 0.875 + sample * 0.125 };
            (self.sample_since, self.sample_bytes) = (now, 0);
        }
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
        let fair = self.bandwidth * self.least.0.saturating_add(SLACK.0) as f64;
        self.threshold = (fair as u64).clamp(LEAST_WINDOW * self.datagram, MAX_IN_FLIGHT as u64 * self.datagram);
        self.window = self.window.min(self.threshold);
    }

    fn find_losses(&mut self, now: Instant, mut report: impl FnMut(Outcome, Carried)) {
        self.loss_at = None;
        let Some(largest) = self.largest_acked else { return };
        let loss_delay = self.latest.max(self.smoothed.unwrap_or(FIRST_RTT));
        let loss_delay = Span(loss_delay.0 / 8 * 9).max(GRANULARITY);
        let mut newest_loss = None;
        for index in 0..self.sent.len() {
            let number = self.base + index as u64;
            if number >= largest {
                break;
            }
            let sent = &mut self.sent[index];
            if !sent.open {
                continue;
            }
            if largest - number >= PACKET_THRESHOLD || sent.at + loss_delay <= now {
                sent.open = false;
                self.in_flight = self.in_flight.saturating_sub(u64::from(sent.size));
                // The loss of an exploring datagram says something of its size, not of congestion.
                if !sent.load.is_probe() {
                    newest_loss = Some(sent.at);
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
        let oldest = self.sent.iter().filter(|sent| sent.open && !sent.load.is_probe()).take(2);
        oldest.flat_map(|sent| sent.load.iter()).for_each(|carried| report(Outcome::Lost, carried));
        if self.backoff >= 3 {
            // Persistent congestion, RFC 9002 section 7.6.
            self.threshold = (self.window / 2).max(LEAST_WINDOW * self.datagram);
            self.window = LEAST_WINDOW * self.datagram;
        }
        true
    }

    /// Timeouts in a row without any acknowledgement.
    pub(super) fn timeouts(&self) -> u32 {
        self.backoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_millis(1);

    fn load(offset: u64) -> FrameList {
        let mut load = FrameList::EMPTY;
        load.push(Carried::Stream { stream: 0, offset, len: 1 });
        load
    }

    fn send(recovery: &mut Recovery, now: Instant, count: u64) {
        for _ in 0..count {
            recovery.on_sent(now, 1000, true, load(recovery.next_number()));
        }
    }

    #[test]
    fn round_trips_are_estimated_as_the_rfc_says() {
        let mut recovery = Recovery::new(Instant(0), 1000, MS);
        send(&mut recovery, Instant(0), 1);
        recovery.on_ack(Instant(0) + Span::from_millis(80), Span::ZERO, [(0, 0)].into_iter(), |_, _| {}).unwrap();
        assert_eq!(recovery.round_trip(), Some(Span::from_millis(80)));
        assert_eq!(recovery.variation, Span::from_millis(40));
        assert_eq!(recovery.pto(), Span::from_millis(80 + 160 + 1));
    }

    #[test]
    fn three_later_datagrams_make_a_loss() {
        let mut recovery = Recovery::new(Instant(0), 1000, MS);
        send(&mut recovery, Instant(0), 5);
        let mut outcomes = Vec::new();
        let now = Instant(0) + MS;
        recovery.on_ack(now, Span::ZERO, [(4, 4)].into_iter(), |outcome, _| outcomes.push(outcome)).unwrap();
        assert_eq!(outcomes, [Outcome::Acked, Outcome::Lost, Outcome::Lost]);
        let at = recovery.deadline().unwrap();
        assert!(at > now && at < now + MS);
        let mut later = 0;
        assert!(!recovery.on_timer(at, |_, _| later += 1));
        assert_eq!((later, recovery.in_flight, recovery.deadline()), (2, 0, None));
        assert_eq!(recovery.on_ack(at, MS, [(9, 9)].into_iter(), |_, _| {}), Err(Impossible));
    }

    #[test]
    fn silence_brings_probes_at_doubling_distances() {
        let mut recovery = Recovery::new(Instant(0), 1000, MS);
        send(&mut recovery, Instant(0), 9);
        let mut last = Instant(0);
        let mut gaps = Vec::new();
        for _ in 0..3 {
            let at = recovery.deadline().unwrap();
            let mut again = 0;
            assert!(recovery.on_timer(at, |_, _| again += 1));
            assert_eq!((again, recovery.probes), (2, 2));
            gaps.push(at.since(last).0);
            last = at;
        }
        assert_eq!((gaps[1], gaps[2]), (2 * gaps[0], 4 * gaps[0]));
        assert_eq!(recovery.window, LEAST_WINDOW * 1000);
    }

    #[test]
    fn random_loss_keeps_the_window_near_the_path() {
        let mut recovery = Recovery::new(Instant(0), 1000, MS);
        let mut now = Instant(0);
        for round in 0..300u64 {
            let first = recovery.next_number();
            let count = (recovery.window / 1000).min(100);
            send(&mut recovery, now, count);
            now = now + Span::from_millis(10);
            let skip = first + round % 3;
            let ranges = [(skip + 1, first + count - 1), (first, skip.max(first + 1) - 1)];
            recovery.on_ack(now, Span::ZERO, ranges.into_iter().filter(|(a, b)| a <= b), |_, _| {}).unwrap();
        }
        // NewReno would be at a handful of datagrams, with one loss in every round trip.
        assert!(recovery.window > 8_000, "{}", recovery.window);
    }
}
