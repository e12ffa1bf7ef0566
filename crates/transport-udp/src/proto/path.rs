//! The size of datagrams on one path: starts where every path works and probes upwards (RFC 8899).
//!
//! A probe is a padded datagram. Three lost ones of a size end the search above it; a row of timeouts says that
//! the path has become narrower, and leads back to the start.

use am_core::{Instant, Span};

/// Lost probes that a size gets.
const ATTEMPTS: u32 = 3;
/// The search ends when it is this close, in bytes.
const CLOSE: u16 = 16;
/// Timeouts in a row that mean a narrower path.
const BLACK_HOLE: u32 = 4;
/// When to search again after it has ended below the limit.
const AGAIN: Span = Span::from_secs(600);

/// What is known of one path.
#[derive(Debug)]
pub(super) struct Path {
    start: u16,
    limit: u16,
    current: u16,
    /// No larger than this works, as far as is known.
    ceiling: u16,
    failures: u32,
    in_flight: bool,
    resume: Instant,
}

impl Path {
    pub(super) fn new(start: u16, limit: u16, now: Instant) -> Self {
        Self { start, limit, current: start, ceiling: limit, failures: 0, in_flight: false, resume: now }
    }

    /// The size that is known to work, in bytes of UDP payload.
    pub(super) fn current(&self) -> u16 {
        self.current
    }

    /// The size to probe now, if any.
    pub(super) fn probe(&mut self, now: Instant) -> Option<u16> {
        if self.in_flight || self.current >= self.limit || now < self.resume {
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

    /// Tells of timeouts in a row; returns whether the size has shrunk.
    pub(super) fn on_timeouts(&mut self, now: Instant, count: u32) -> bool {
        let shrunk = count >= BLACK_HOLE && self.current > self.start;
        if shrunk {
            self.current = self.start;
            self.resume = now + Span::from_secs(10);
        }
        shrunk
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
            assert_eq!(path.on_timeouts(Instant(0), BLACK_HOLE), real > 1200);
            assert_eq!(path.current(), 1200);
        }
    }
}
