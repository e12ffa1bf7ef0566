//! The size of datagrams on one path: starts where every path works and probes upwards (RFC 8899).
//!
//! A probe is a padded datagram. Three lost ones of a size end the search above it. That the path has become
//! narrower is told by small datagrams that get through where large ones do not, never by silence alone: after a
//! row of timeouts, or of lost large datagrams, the next ones are small, and if the peer acknowledges these
//! and nothing larger, the search begins anew. It begins soon: full buffers, which take small datagrams sooner
//! than large ones, look the same.

use super::recovery::WideLost;
use am_core::{Instant, Span};

/// Lost probes that a size gets.
const ATTEMPTS: u32 = 3;
/// The search ends when it is this close, in bytes.
const CLOSE: u16 = 16;
/// Timeouts in a row after which small datagrams are tried.
const DOUBT: u32 = 3;
/// Lost datagrams in a row, and the round trips in which they were sent, that are no chance: with three out of ten
/// lost, one row of so many in fifteen thousand. A full buffer takes many of one round trip.
const LOST: u32 = 8;
const ROUNDS: u32 = 3;
/// When to search again after the path has become narrower; and after the search has ended below the limit.
const SOON: Span = Span::from_millis(10);
const AGAIN: Span = Span::from_secs(600);

/// What is known of one path.
#[derive(Debug)]
pub(super) struct Path {
    start: u16,
    limit: u16,
    current: u16,
    /// Datagrams are small until the next acknowledgement, which tells whether larger ones get through.
    doubtful: bool,
    /// No larger than this works, as far as is known.
    ceiling: u16,
    failures: u32,
    in_flight: bool,
    resume: Instant,
}

impl Path {
    pub(super) fn new(start: u16, limit: u16, now: Instant) -> Self {
        let (current, ceiling) = (start, limit);
        Self { start, limit, current, doubtful: false, ceiling, failures: 0, in_flight: false, resume: now }
    }

    /// The size that is known to work, in bytes of UDP payload.
    pub(super) fn current(&self) -> u16 {
        if self.doubtful { self.start } else { self.current }
    }

    /// Whether there may be a size to probe now.
    #[inline]
    pub(super) fn may_explore(&self, now: Instant) -> bool {
        self.current < self.limit && !self.in_flight && !self.doubtful && now >= self.resume
    }

    /// The size to probe now, if any.
    pub(super) fn probe(&mut self, now: Instant) -> Option<u16> {
        if !self.may_explore(now) {
            return None;
        }
        if self.ceiling - self.current < CLOSE && self.ceiling != self.limit {
            (self.ceiling, self.failures, self.resume) = (self.limit, 0, now + AGAIN);
            return None;
        }
        // The limit first: it is the likeliest answer.
        let untried = self.ceiling == self.limit;
        Some(if untried { self.limit } else { self.current + (self.ceiling - self.current).div_ceil(2) })
    }

    pub(super) fn on_sent(&mut self) {
        self.in_flight = true;
    }

    /// Returns whether the size has grown.
    pub(super) fn on_acked(&mut self, size: u16) -> bool {
        self.in_flight = false;
        self.failures = 0;
        let grown = size > self.current;
        self.current = self.current.max(size);
        self.ceiling = self.ceiling.max(self.current);
        grown
    }

    pub(super) fn on_lost(&mut self, size: u16) {
        self.in_flight = false;
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            self.failures = 0;
            self.ceiling = size.saturating_sub(1).max(self.current);
        }
    }

    /// Tells of timeouts in a row.
    pub(super) fn on_timeouts(&mut self, count: u32) {
        self.doubtful |= count >= DOUBT && self.current > self.start;
    }

    /// Tells the size of the largest datagram that an acknowledgement was the first to name, and which larger ones
    /// than those of the start have been lost since one of these was acknowledged; returns whether the path has
    /// turned out to be narrower.
    pub(super) fn on_answer(&mut self, now: Instant, largest: u32, lost: WideLost) -> bool {
        let row = lost.datagrams >= LOST && lost.rounds >= ROUNDS;
        let small = largest <= self.start.into() && self.current > self.start && row;
        let narrower = std::mem::replace(&mut self.doubtful, small) && small;
        if narrower {
            (self.current, self.doubtful) = (self.start, false);
            self.resume = now + SOON;
        }
        narrower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_what_the_path_carries() {
        for (real, most) in [(1200, 8952), (1472, 1472), (4000, 8952), (8952, 8952)] {
            let mut path = Path::new(1200, most, Instant(0));
            let mut probes = 0;
            while let Some(size) = path.probe(Instant(0)) {
                path.on_sent();
                assert_eq!(path.probe(Instant(0)), None);
                if size <= real {
                    assert!(path.on_acked(size))
                } else {
                    path.on_lost(size)
                }
                probes += 1;
            }
            assert!(path.current() <= real && real - path.current() < CLOSE, "{real}: {}", path.current());
            assert!(probes < 60);
            let found = path.current();
            let wide = found > 1200;
            let row = WideLost::row(LOST, ROUNDS);
            // Silence, and small datagrams that get through, say nothing of large ones; nor do some that one round
            // trip has lost.
            for lost in [WideLost::row(LOST - 1, ROUNDS), WideLost::row(9 * LOST, ROUNDS - 1)] {
                path.on_timeouts(DOUBT);
                assert_eq!(path.current(), 1200);
                assert_eq!((path.on_answer(Instant(0), 1200, lost), path.current()), (false, found));
            }
            // They are tried when many large ones were lost, and again large ones if one of these is there.
            assert!(!path.on_answer(Instant(0), 1200, row));
            assert_eq!(path.current(), 1200);
            assert!(!path.on_answer(Instant(0), found.into(), if wide { WideLost::default() } else { row }));
            assert_eq!(path.current(), found);
            assert!(!path.on_answer(Instant(0), 1200, row));
            assert_eq!(path.on_answer(Instant(0), 1200, row), wide);
            assert_eq!((path.current(), path.probe(Instant(0))), (1200, None));
            // What was a full buffer is found out soon.
            if wide {
                while let Some(size) = path.probe(Instant(0) + SOON) {
                    path.on_sent();
                    if size <= real { assert!(path.on_acked(size)) } else { path.on_lost(size) }
                }
                assert_eq!(path.current(), found);
            }
        }
    }
}
