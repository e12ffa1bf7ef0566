//! Which of two ways a long message takes between processes of one host: read by the system where it lies, by one
//! copy, or written to the receiver's segment and copied out of it, by two that overlap. Which one is faster
//! depends on the system, on the length, and on how lines pass between the two processors, so that both are tried
//! and timed with the program's own messages. The time of a written message includes what the receiver computes
//! between posting and waiting, so that receivers that post early and wait late have messages read.
//!
//! Trials take [`TRIAL`] messages each and become rare: the more a way has lost by, the later it is tried again.
//! The state machine has no clock otherwise. Nothing is timed where the configuration or the transport decides, so
//! that runs in virtual time repeat.

use super::Machine;
use std::time::{Duration, Instant};

/// Messages of a trial.
const TRIAL: u32 = 4;

/// Times of a way that are remembered, of which the shortest counts: others may be those of late senders.
const TIMES: usize = 4;

/// Messages between two trials, where both ways take as long.
const INTERVAL: u64 = 512;

/// How much longer than the better way the other one counts at most for the interval: it grows with the square, so
/// that trials take less than a hundredth of the time.
const MOST_RATIO: u64 = 64;

/// Bytes after which a time of messages that overlap is taken, though more are under way.
const STRETCH: u64 = 4 << 20;

/// How long messages that may be read come.
#[derive(Debug)]
pub(crate) enum Copies {
    /// Always read.
    Read,
    /// Written wherever there is memory of the segment.
    Written,
    /// As has been faster.
    Timed(Box<Ways>),
}

impl Copies {
    /// By time; reading may take so many percent of the other way.
    pub(crate) fn timed(most: u32) -> Self {
        Self::Timed(Box::new(Ways { most, ..Ways::default() }))
    }
}

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Written,
    Read,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Written => Self::Read,
            Self::Read => Self::Written,
        }
    }
}

/// What is known of messages of similar length.
#[derive(Debug)]
struct Class {
    /// The last times of each way, in nanoseconds for a MiB; 0 for none.
    times: [[u64; TIMES]; 2],
    taken: [usize; 2],
    better: Way,
    trial: Way,
    /// Messages that the trial still takes, and those since it began.
    left: u32,
    since: u64,
}

impl Default for Class {
    fn default() -> Self {
        let (trial, better) = (Way::Written, Way::Read);
        Self { times: [[0; TIMES]; 2], taken: [0; 2], better, trial, left: TRIAL, since: 0 }
    }
}

impl Class {
    fn time(&self, way: Way) -> Option<u64> {
        self.times[way as usize].iter().copied().filter(|time| *time != 0).min()
    }

    /// Messages from the beginning of a trial to the next.
    fn interval(&self) -> u64 {
        let (Some(better), Some(other)) = (self.time(self.better), self.time(self.better.other())) else {
            return u64::from(TRIAL);
        };
        let ratio = (other / better).clamp(1, MOST_RATIO);
        INTERVAL * ratio * ratio
    }

    /// The way of the next message.
    fn choose(&mut self) -> Way {
        self.since += 1;
        if self.left == 0 && self.since > self.interval() {
            // The one that is not taken; at first each of them once.
            let untried = [Way::Written, Way::Read].into_iter().find(|way| self.time(*way).is_none());
            (self.trial, self.left, self.since) = (untried.unwrap_or(self.better.other()), TRIAL, 1);
        }
        if self.left > 0 {
            self.left -= 1;
            return self.trial;
        }
        self.better
    }

    fn note(&mut self, way: Way, time: u64, most: u32) {
        let taken = &mut self.taken[way as usize];
        self.times[way as usize][*taken % TIMES] = time.max(1);
        *taken += 1;
        if let (Some(read), Some(written)) = (self.time(Way::Read), self.time(Way::Written)) {
            let reads = u128::from(read) * 100 <= u128::from(written) * u128::from(most);
            self.better = if reads { Way::Read } else { Way::Written };
        }
    }
}

/// What is known of both ways.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// What reading may take, in percent of the other way.
    most: u32,
    classes: [Class; 3],
    /// Messages that are being written and timed; since when, the bytes of those that are over, and in which
    /// classes there were such.
    under_way: u32,
    since: Option<Instant>,
    bytes: u64,
    over: [bool; 3],
    /// Whether a call waits; if none does, since when, where that is known.
    waits: bool,
    away: Option<Instant>,
}

impl Ways {
    fn index(len: u64) -> usize {
        match len {
            0..0x2_0000 => 0,
            0x2_0000..0x8_0000 => 1,
            _ => 2,
        }
    }

    fn class(&mut self, len: u64) -> &mut Class {
        &mut self.classes[Self::index(len)]
    }

    /// So many bytes of a message of a length have been read.
    fn note_read(&mut self, len: u64, bytes: u64, took: Duration) {
        let most = self.most;
        self.class(len).note(Way::Read, per_mib(bytes, took), most);
    }

    /// A message is to be written.
    fn begin(&mut self, now: Instant) {
        if self.under_way == 0 {
            (self.since, self.over, self.bytes) = (Some(now), [false; 3], 0);
            self.away = (!self.waits).then_some(now);
        }
        self.under_way += 1;
    }

    /// The program is back in a call: what it has done since the last one is not counted.
    fn comes_back(&mut self, now: Instant) {
        if let (Some(away), Some(since)) = (self.away.take(), self.since) {
            self.since = Some(since + (now - away.max(since)));
        }
    }

    /// A message has been written and copied out.
    fn end(&mut self, len: u64, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        (self.over[Self::index(len)], self.bytes) = (true, self.bytes + len);
        // The call that copies it out ends behind this.
        self.away = (!self.waits).then_some(now);
        if self.under_way > 0 && self.bytes < STRETCH {
            return;
        }
        if let Some(since) = self.since.replace(now) {
            // Those that overlap have taken as long for each byte, however long they were.
            let (time, most) = (per_mib(self.bytes, now - since), self.most);
            let classes = self.classes.iter_mut().zip(self.over).filter(|(_, over)| *over);
            classes.for_each(|(class, _)| class.note(Way::Written, time, most));
        }
        (self.over, self.bytes) = ([false; 3], 0);
    }
}

/// The nanoseconds for a MiB, of what was taken for some bytes.
fn per_mib(bytes: u64, took: Duration) -> u64 {
    let time = (took.as_nanos() << 20) / u128::from(bytes.max(1));
    time.try_into().unwrap_or(u64::MAX)
}

impl Machine {
    /// Whether it is to be said how long messages come, before a receive is posted.
    pub(crate) fn wants_copies(&self) -> bool {
        self.copies.is_none()
    }

    /// Learns how long messages that may be read come.
    pub(crate) fn note_copies(&mut self, copies: Copies) {
        self.copies = Some(copies);
    }

    /// Whether a message of so many bytes that may be read is written instead, and whether that is timed.
    pub(super) fn is_better_written(&mut self, len: u64) -> (bool, bool) {
        let has = self.staging.has(len);
        match &mut self.copies {
            Some(Copies::Timed(ways)) if has => {
                let written = ways.class(len).choose() == Way::Written;
                if written {
                    ways.begin(Instant::now());
                }
                (written, written)
            }
            Some(Copies::Written) => (has, false),
            None | Some(Copies::Read | Copies::Timed(_)) => (false, false),
        }
    }

    /// When reading a part of a message begins, if that is to be timed.
    pub(crate) fn reading_begins(&self) -> Option<Instant> {
        matches!(self.copies, Some(Copies::Timed(_))).then(Instant::now)
    }

    /// So many bytes of a message of a length have been read since then.
    pub(crate) fn note_reading(&mut self, since: Option<Instant>, len: u64, bytes: u64) {
        if let (Some(since), Some(Copies::Timed(ways))) = (since, &mut self.copies) {
            ways.note_read(len, bytes, since.elapsed());
        }
    }

    /// A call begins to wait, or to copy out a message whose writing is timed.
    #[inline]
    pub(crate) fn call_begins(&mut self, waits: bool) {
        if let Some(Copies::Timed(ways)) = &mut self.copies {
            ways.waits = waits;
            if ways.away.is_some() {
                ways.comes_back(Instant::now());
            }
        }
    }

    /// A call waits no longer.
    #[inline]
    pub(crate) fn wait_ends(&mut self) {
        if let Some(Copies::Timed(ways)) = &mut self.copies {
            ways.waits = false;
            if ways.under_way > 0 {
                ways.away = Some(Instant::now());
            }
        }
    }

    /// Takes a message to be written; whether time passes that is not counted, and whether a call waits.
    #[cfg(test)]
    pub(crate) fn is_away(&mut self) -> Option<(bool, bool)> {
        let Some(Copies::Timed(ways)) = &mut self.copies else { return None };
        ways.begin(Instant::now());
        Some((ways.away.is_some(), ways.waits))
    }

    /// The shortest time of each way for messages of a length.
    #[cfg(test)]
    pub(super) fn times(&mut self, len: u64) -> [Option<u64>; 2] {
        let Some(Copies::Timed(ways)) = &mut self.copies else { return [None; 2] };
        [Way::Written, Way::Read].map(|way| ways.class(len).time(way))
    }

    /// A message whose writing is timed has been copied out; `None` if it will not be.
    pub(crate) fn note_written(&mut self, len: Option<u64>) {
        if let Some(Copies::Timed(ways)) = &mut self.copies {
            match len {
                Some(len) => ways.end(len, Instant::now()),
                None => ways.under_way = ways.under_way.saturating_sub(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of a length one after the other, by what a way takes for them; how many of the last ones are read.
    fn read_of(ways: &mut Ways, len: u64, count: usize, takes: impl Fn(bool) -> Duration) -> usize {
        let mut now = Instant::now();
        let mut read = 0;
        for _ in 0..count {
            match ways.class(len).choose() {
                Way::Read => {
                    read += 1;
                    ways.note_read(len, len, takes(true));
                }
                Way::Written => {
                    ways.begin(now);
                    now += takes(false);
                    ways.end(len, now);
                }
            }
        }
        read
    }

    const FAST: Duration = Duration::from_micros(5);
    const SLOW: Duration = Duration::from_micros(40);

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_now_and_then() {
        for read_is_faster in [true, false] {
            let mut ways = Ways { most: 100, ..Ways::default() };
            let takes = |read| if read == read_is_faster { FAST } else { SLOW };
            read_of(&mut ways, 1 << 16, 100, takes);
            // Eight times as slow, it is tried for four of 512 x 64 messages.
            let read = read_of(&mut ways, 1 << 16, 1 << 16, takes);
            let rarer = if read_is_faster { (1 << 16) - read } else { read };
            assert!((4..=12).contains(&rarer), "{rarer}");
        }
    }

    #[test]
    fn what_changes_is_found_out() {
        let mut ways = Ways { most: 100, ..Ways::default() };
        read_of(&mut ways, 1 << 20, 5000, |read| if read { FAST } else { FAST * 2 });
        // Reading becomes slower than the other way was: that is noticed at once.
        let read = read_of(&mut ways, 1 << 20, 1000, |read| if read { SLOW } else { FAST });
        assert!(read < 20, "{read}");
        // The other way becomes faster: that is noticed when it is tried again.
        let read = read_of(&mut ways, 1 << 20, 1 << 17, |read| if read { FAST } else { FAST * 2 });
        assert!(read > 60_000, "{read}");
    }

    #[test]
    fn lengths_are_told_apart() {
        let mut ways = Ways { most: 100, ..Ways::default() };
        for _ in 0..100 {
            read_of(&mut ways, 1 << 14, 1, |read| if read { FAST } else { SLOW });
            read_of(&mut ways, 1 << 20, 1, |read| if read { SLOW } else { FAST });
        }
        let [short, _, long] = &ways.classes;
        assert_eq!((short.better, long.better), (Way::Read, Way::Written));
    }

    #[test]
    fn messages_that_overlap_are_timed_together() {
        let mut ways = Ways { most: 100, ..Ways::default() };
        let start = Instant::now();
        (0..4).for_each(|_| ways.begin(start));
        (0..4).for_each(|_| ways.end(1 << 18, start + FAST));
        assert_eq!(ways.class(1 << 18).time(Way::Written), Some(FAST.as_nanos() as u64));
        // A late sender's message does not count beside one that was in time.
        ways.begin(start);
        ways.end(1 << 18, start + Duration::from_secs(1));
        assert_eq!(ways.class(1 << 18).time(Way::Written), Some(FAST.as_nanos() as u64));
    }

    /// What a receiver computes while a message is written, before it waits and between two waits, does not count.
    #[test]
    fn only_calls_count() {
        let (long, start) = (Duration::from_secs(1), Instant::now());
        let mut ways = Ways { most: 100, ..Ways::default() };
        let time = |ways: &mut Ways| ways.class(1 << 20).time(Way::Written).map(Duration::from_nanos);
        // It comes while the receiver computes.
        ways.begin(start);
        ways.comes_back(start + long);
        ways.end(1 << 20, start + long + SLOW);
        assert_eq!(time(&mut ways), Some(SLOW));
        // It comes while another one is waited for; the receiver computes before it waits for this one.
        let mut ways = Ways { most: 100, waits: true, ..Ways::default() };
        ways.begin(start);
        (ways.waits, ways.away) = (false, Some(start + FAST));
        ways.comes_back(start + FAST + long);
        // It is copied out behind the wait.
        (ways.waits, ways.away) = (false, Some(start + FAST * 2 + long));
        ways.end(1 << 20, start + FAST * 3 + long);
        assert_eq!(time(&mut ways), Some(FAST * 3));
        // Of two, the first one has been copied out when the call ends.
        let mut ways = Ways { most: 100, waits: true, ..Ways::default() };
        (0..2).for_each(|_| ways.begin(start));
        (ways.waits, ways.away) = (false, Some(start + FAST));
        ways.end(1 << 19, start + FAST * 2);
        ways.comes_back(start + FAST * 2 + long);
        ways.end(1 << 19, start + FAST * 4 + long);
        assert_eq!(time(&mut ways), Some(FAST * 4));
    }

    /// Short messages that are written only together with longer ones are timed, too.
    #[test]
    fn lengths_that_overlap_are_all_timed() {
        const SHORT: u64 = 1 << 16;
        const LONG: u64 = 1 << 20;
        let mut ways = Ways { most: 100, ..Ways::default() };
        read_of(&mut ways, LONG, 100, |read| if read { SLOW * 10 } else { SLOW });
        let (mut now, mut read) = (Instant::now(), 0);
        for _ in 0..400 {
            let short = ways.class(SHORT).choose();
            assert_eq!(ways.class(LONG).choose(), Way::Written);
            ways.begin(now);
            match short {
                Way::Written => {
                    ways.begin(now);
                    ways.end(SHORT, now + SLOW);
                }
                Way::Read => {
                    read += 1;
                    ways.note_read(SHORT, SHORT, FAST / 10);
                }
            }
            now += SLOW * 2;
            ways.end(LONG, now);
        }
        assert!(read > 380, "{read}");
    }

    #[test]
    fn percent_decide() {
        let mut ways = Ways { most: 300, ..Ways::default() };
        let read = read_of(&mut ways, 1 << 16, 400, |read| if read { FAST * 2 } else { FAST });
        assert!(read > 390, "{read}");
    }
}
