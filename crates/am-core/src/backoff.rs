//! How long a thread looks again and again for something before it gives its processor away, and before it sleeps:
//! by the clock where it has a processor to itself, by count where it has not.

use std::time::{Duration, Instant};

/// Tries between two looks at the clock, which costs about as much as one try of memory.
const LOOK: u32 = 16;

/// A yield that lasts so long was taken by somebody who computes, and not by others who wait.
const LONG_YIELD: Duration = Duration::from_millis(1);

/// One in so many yields is timed while none has lasted so long: the clock costs a tenth of a yield.
const TIMED: u32 = 8;

/// So many times a thread sleeps instead of yielding after the first such yield, and at most after several in a
/// row.
const FIRST_SLEEPS: u32 = 128;
const MOST_SLEEPS: u32 = 1 << 12;

/// How a thread waits for something that it looks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffPolicy {
    /// He has a processor to himself: tries for so long, then gives the processor away between tries for so long,
    /// then sleeps. Whoever he waits for is usually running, so trying is the fastest way to hear from it. The
    /// time is not a number of tries, since a try takes as long as the processor likes. If the scheduler has put
    /// both on one processor, the other waits for the end of the first part, which is therefore not longer than a
    /// few changes of process; a yield that nobody takes up costs little more than a try.
    Timed {
        /// How long he tries.
        spin: Duration,
        /// How long he yields after that.
        yielding: Duration,
    },
    /// Whoever he waits for may be waiting for his processor: he tries so many times, yields so many times, and
    /// sleeps.
    Counted {
        /// How often he tries.
        spins: u32,
        /// How often he yields after that.
        yields: u32,
    },
}

impl BackoffPolicy {
    /// For tries that look at memory, of one of so many neighbours on so many processors.
    pub const fn at_memory(neighbours: usize, processors: usize) -> Self {
        if neighbours > processors {
            return Self::Counted { spins: 1, yields: 100 };
        }
        Self::Timed { spin: Duration::from_micros(10), yielding: Duration::from_micros(300) }
    }
}

/// What to do after a fruitless try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again at once.
    Spin,
    /// Let another process run, then try again.
    Yield,
    /// Sleep until woken.
    Park,
}

/// Counts fruitless tries since something was achieved or sent, and says what to do next. Does not allocate or
/// block.
#[derive(Clone, Debug)]
pub struct Backoff {
    tries: u32,
    policy: BackoffPolicy,
    /// When the clock was first looked at since something was achieved.
    since: Option<Instant>,
    /// The last answer of the clock.
    stage: Next,
    /// Yields so far.
    yields: u32,
    /// How often sleep takes the place of a yield from now on, and after the next yield that lasts.
    sleeps: u32,
    next_sleeps: u32,
}

impl Backoff {
    /// Nothing was tried yet.
    pub const fn new(policy: BackoffPolicy) -> Self {
        Self { tries: 0, policy, since: None, stage: Next::Spin, yields: 0, sleeps: 0, next_sleeps: FIRST_SLEEPS }
    }

    /// Whether fruitless tries begin with more spinning than a short wait takes.
    #[inline]
    pub const fn spins(&self) -> bool {
        matches!(self.policy, BackoffPolicy::Timed { .. })
    }

    /// Something was achieved, or something new is waited for.
    #[inline]
    pub const fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing was achieved once more. Looks at the clock at times.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: it never ends")]
    pub fn next(&mut self) -> Next {
        let next = self.next_at(Instant::now);
        if next == Next::Yield && self.sleeps > 0 {
            self.sleeps -= 1;
            return Next::Park;
        }
        next
    }

    /// Lets others use this processor once: what [`Next::Yield`] asks for. If somebody takes it who computes, the
    /// next waits sleep where they would yield: the system calls a sleeper back as soon as it is woken, and one
    /// that yields only when the other has had its turn, which takes milliseconds. Only where ranks share
    /// processors: one that has a processor to itself loses it for a moment only.
    pub fn give_way(&mut self) {
        if self.spins() {
            return std::thread::yield_now();
        }
        self.yields = self.yields.wrapping_add(1);
        if self.next_sleeps == FIRST_SLEEPS && !self.yields.is_multiple_of(TIMED) {
            return std::thread::yield_now();
        }
        let began = Instant::now();
        std::thread::yield_now();
        self.yielded(began.elapsed());
    }

    /// A yield has lasted so long.
    fn yielded(&mut self, lasted: Duration) {
        if lasted < LONG_YIELD {
            self.next_sleeps = FIRST_SLEEPS;
            return;
        }
        self.sleeps = self.next_sleeps;
        self.next_sleeps = (self.next_sleeps * 2).min(MOST_SLEEPS);
    }

    #[inline]
    fn next_at(&mut self, now: impl FnOnce() -> Instant) -> Next {
        self.tries = self.tries.saturating_add(1);
        let (spin, yielding) = match self.policy {
            BackoffPolicy::Timed { spin, yielding } => (spin, yielding),
            BackoffPolicy::Counted { spins, .. } if self.tries <= spins => return Next::Spin,
            BackoffPolicy::Counted { spins, yields } if self.tries - spins <= yields => return Next::Yield,
            BackoffPolicy::Counted { .. } => return Next::Park,
        };
        // A yield may take long, so that the clock is looked at after each.
        if self.tries < LOOK || self.stage == Next::Spin && !self.tries.is_multiple_of(LOOK) {
            return Next::Spin;
        }
        self.look(now(), spin, yielding)
    }

    #[cold]
    fn look(&mut self, now: Instant, spin: Duration, yielding: Duration) -> Next {
        if self.tries == LOOK {
            self.since = Some(now);
        }
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        self.stage = if waited < spin {
            Next::Spin
        } else if waited < spin.saturating_add(yielding) {
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
    fn who_computes_is_slept_beside() {
        let mut backoff = Backoff::new(BackoffPolicy::Counted { spins: 0, yields: u32::MAX });
        let wait = |backoff: &mut Backoff| {
            backoff.reset();
            backoff.next()
        };
        backoff.yielded(LONG_YIELD / 2);
        assert_eq!(wait(&mut backoff), Next::Yield, "others that wait take short turns");
        for sleeps in [FIRST_SLEEPS, 2 * FIRST_SLEEPS, 4 * FIRST_SLEEPS] {
            backoff.yielded(LONG_YIELD);
            assert!((0..sleeps).all(|_| wait(&mut backoff) == Next::Park));
            assert_eq!(wait(&mut backoff), Next::Yield, "it may be gone");
        }
        (0..40).for_each(|_| backoff.yielded(LONG_YIELD));
        assert_eq!(backoff.sleeps, MOST_SLEEPS);
        assert!((0..MOST_SLEEPS).all(|_| wait(&mut backoff) == Next::Park));
        backoff.yielded(LONG_YIELD / 2);
        backoff.yielded(LONG_YIELD);
        assert_eq!(backoff.sleeps, FIRST_SLEEPS, "who was gone begins anew");
    }

    #[test]
    fn crowded_ranks_yield_at_once_and_all_park() {
        for (neighbours, processors, second) in [(2, 2, Next::Spin), (8, 2, Next::Yield), (2, 1, Next::Yield)] {
            let mut backoff = Backoff::new(BackoffPolicy::at_memory(neighbours, processors));
            assert_eq!(backoff.next(), Next::Spin);
            assert_eq!(backoff.next(), second);
            while backoff.next() != Next::Park {}
            assert_eq!(backoff.next(), Next::Park);
            backoff.reset();
            assert_ne!(backoff.next(), Next::Park);
        }
        assert_eq!(Backoff::new(BackoffPolicy::Counted { spins: 0, yields: 0 }).next(), Next::Park);
        let mut polled = Backoff::new(BackoffPolicy::Timed { spin: Duration::MAX, yielding: Duration::ZERO });
        assert!((0..1000).all(|_| polled.next() == Next::Spin));
    }

    /// Tries until something else than `stage` is to be done, each of which takes `pace`; returns how long that
    /// was.
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
        let (spin, yielding) = (Duration::from_micros(10), Duration::from_micros(300));
        for nanos in [5, 50, 500] {
            let mut backoff = Backoff::new(BackoffPolicy::Timed { spin, yielding });
            let (mut now, pace) = (Instant::now(), Duration::from_nanos(nanos));
            for _ in 0..2 {
                let spun = lasts(&mut backoff, &mut now, Next::Spin, pace);
                assert!((spin..spin + 3 * LOOK * pace).contains(&spun), "spun {spun:?} at {pace:?} a try");
                let yielded = lasts(&mut backoff, &mut now, Next::Yield, pace);
                let expected = yielding - spin..yielding + 2 * pace;
                assert!(expected.contains(&yielded), "yielded {yielded:?} at {pace:?} a try");
                backoff.reset();
            }
        }
    }
}
