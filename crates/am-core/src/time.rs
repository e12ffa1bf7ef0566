//! Time as every transport counts it: integer picoseconds since the transport began.
//!
//! Real transports derive it from the monotonic clock, simulated ones from their event queue.

use std::fmt;
use std::ops::{Add, Sub};

/// A length of time in picoseconds; the longest is 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole nanoseconds, saturating.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos.saturating_mul(1_000))
    }

    /// A span of whole microseconds, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000_000))
    }

    /// A span of whole milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000_000))
    }

    /// A span of whole seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000_000))
    }

    /// The span in picoseconds.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().saturating_mul(1_000)).unwrap_or(u64::MAX))
    }
}

impl From<Span> for std::time::Duration {
    /// Rounds up to whole nanoseconds, so that a wait never ends early.
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0.div_ceil(1_000))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ps", self.0),
            1_000..1_000_000 => write!(f, "{:.3} ns", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.3} us", self.0 as f64 / 1e6),
            1_000_000_000..1_000_000_000_000 => write!(f, "{:.3} ms", self.0 as f64 / 1e9),
            _ => write!(f, "{:.3} s", self.as_secs_f64()),
        }
    }
}

/// A point in a transport's time: picoseconds since its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The point in time so long after the origin, for clocks that count from their start. It saturates after 213
    /// days: from then on such a clock stands still, and does not begin anew.
    #[inline]
    pub const fn after(elapsed: std::time::Duration) -> Self {
        let whole = elapsed.as_secs().saturating_mul(1_000_000_000_000);
        Self(whole.saturating_add(elapsed.subsec_nanos() as u64 * 1_000))
    }

    /// The span since an earlier instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Instant {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

/// The monotonic clock of this process, read from its start on: the time of transports that carry real messages.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// The time since the start; see [`Instant::after`] for its end.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::after(self.0.elapsed())
    }
}

/// Processors that this process may use, by its affinity and quota; 1 if that is unknown. Makes system calls, so
/// it is asked once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well_and_never_end_early() {
        assert_eq!(Span(999).to_string(), "999 ps");
        assert_eq!(Span::from_micros(2).to_string(), "2.000 us");
        assert_eq!(std::time::Duration::from(Span(1)), std::time::Duration::from_nanos(1));
        assert_eq!(Instant(5) - Instant(9), Span::ZERO);
        let end = std::time::Duration::from_nanos(u64::MAX / 1_000);
        let nano = std::time::Duration::from_nanos(1);
        assert_eq!(Instant::after(end - nano), Instant(u64::MAX / 1_000 * 1_000 - 1_000));
        assert_eq!(Instant::after(end), Instant(u64::MAX / 1_000 * 1_000));
        assert_eq!(Instant::after(end + nano), Instant(u64::MAX));
        assert_eq!(Instant::after(std::time::Duration::MAX), Instant(u64::MAX));
        assert_eq!(Instant(5) + Span(u64::MAX), Instant(u64::MAX));
    }
}
