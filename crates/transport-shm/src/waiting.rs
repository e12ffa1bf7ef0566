//! How long an endpoint spins before it gives its processor away: by how many endpoints share how many processors, and by
//! the clock.

use am_core::time::processors;
use std::time::{Duration, Instant};

/// How long an endpoint with a processor of its own spins. Whoever it waits for is usually running, so spinning is the
/// fastest way to hear from it. If the scheduler has put both on one processor, the other waits for this to end, so it is
/// not longer than a few changes of process.
const SPIN: Duration = Duration::from_micros(10);

/// How long it gives the processor away after that, whenever another process wants it, before it sleeps. A yield that nobody
/// takes up costs little more than a spin.
const YIELD: Duration = Duration::from_micros(300);

/// Tries between two looks at the clock, which costs about as much as one try.
const LOOK: u32 = 16;

/// How often an endpoint that shares its processor yields before it sleeps.
const CROWDED_YIELDS: u32 = 100;

/// Counts fruitless tries since something was achieved or sent, and says what to do next.
#[derive(Debug)]
pub(crate) struct Backoff {
    tries: u32,
    /// More endpoints than processors: whoever this one waits for may be waiting for its processor.
    crowded: bool,
    /// When the clock was first looked at since something was achieved.
    since: Option<Instant>,
    /// The last answer of the clock.
    stage: Next,
}

/// What to do after a fruitless try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try again at once.
    Spin,
    /// Let another process run, then try again.
    Yield,
    /// Sleep until woken.
    Park,
}

impl Backoff {
    /// The back-off of one of `endpoints` endpoints on this host.
    pub(crate) fn new(endpoints: usize) -> Self {
        Self::with(endpoints, processors())
    }

    fn with(endpoints: usize, processors: usize) -> Self {
        Self { tries: 0, crowded: endpoints > processors, since: None, stage: Next::Spin }
    }

    /// Whether fruitless tries begin with more spinning than a short wait takes.
    #[inline]
    pub(crate) fn spins(&self) -> bool {
        !self.crowded
    }

    /// Something was achieved, or something new is waited for.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing was achieved once more.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        self.next_at(Instant::now)
    }

    #[inline]
    fn next_at(&mut self, now: impl FnOnce() -> Instant) -> Next {
        self.tries = self.tries.saturating_add(1);
        if self.crowded {
            return match self.tries {
                ..=1 => Next::Spin,
                tries if tries <= 1 + CROWDED_YIELDS => Next::Yield,
                _ => Next::Park,
            };
        }
        if self.tries < LOOK {
            return Next::Spin;
        }
        // A yield may take long, so that the clock is looked at after each.
        if self.stage == Next::Spin && !self.tries.is_multiple_of(LOOK) {
            return Next::Spin;
        }
        self.look(now())
    }

    #[cold]
    fn look(&mut self, now: Instant) -> Next {
        if self.tries == LOOK {
            self.since = Some(now);
        }
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        self.stage = if waited < SPIN {
            Next::Spin
        } else if waited < SPIN + YIELD {
            Next::Yield
        } else {
            Next::Park
        };
        self.stage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_endpoints_yield_at_once_and_everyone_parks_in_the_end() {
        for (endpoints, processors, first) in [(2, 2, Next::Spin), (8, 2, Next::Yield), (2, 1, Next::Yield)] {
            let mut backoff = Backoff::with(endpoints, processors);
            backoff.next();
            assert_eq!(backoff.next(), first);
            while backoff.next() != Next::Park {}
            backoff.reset();
            assert_ne!(backoff.next(), Next::Park);
        }
    }

    /// Tries until something else than `stage` is to be done, each of which takes `pace`; returns how long that was.
    fn lasts(backoff: &mut Backoff, now: &mut Instant, stage: Next, pace: Duration) -> Duration {
        let begin = *now;
        loop {
            *now += pace;
            if backoff.next_at(|| *now) != stage {
                return *now - begin;
            }
        }
    }

    #[test]
    fn spinning_is_bounded_by_time() {
        for nanos in [5, 50, 500] {
            let (mut backoff, mut now) = (Backoff::with(2, 2), Instant::now());
            let pace = Duration::from_nanos(nanos);
            for _ in 0..2 {
                let spun = lasts(&mut backoff, &mut now, Next::Spin, pace);
                assert!((SPIN..SPIN + 3 * LOOK * pace).contains(&spun), "spun {spun:?} at {pace:?} a try");
                let yielded = lasts(&mut backoff, &mut now, Next::Yield, pace);
                assert!(
                    (YIELD - SPIN..YIELD + 2 * pace).contains(&yielded),
                    "yielded {yielded:?} at {pace:?} a try"
                );
                backoff.reset();
            }
        }
    }
}
