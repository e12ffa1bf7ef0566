//! Which way long payloads are written into the byte ring of a lane: through this processor's caches, or past them
//! to memory.
//!
//! The reader has the lines of the ring in its caches when the writer comes round again. Where both processors
//! share a cache, a line soon changes hands, and the reader finds there what was written. Where they do not, each
//! line crosses between them twice, once to be written and once to be read; stores past the caches ask the reader
//! for no line, and it reads from memory. Which of both it is may change while the program runs, since the host of
//! a virtual machine moves its processors: so the ways are timed with the program's own payloads.

/// The least payload of which the way is chosen, in bytes: shorter ones are hardly worth two looks at the clock.
pub(crate) const LEAST: usize = 16 << 10;

/// Payloads before the first that is timed: they are the first to touch the ring's pages.
const FIRST: u32 = 16;

/// Payloads from one pair that is timed to the next.
const ROUND: u32 = 64;

/// Times of each way that are kept; the median counts, so that a time in which the writer lost its processor does
/// not.
const SAMPLES: usize = 3;

/// How many times as long the way through the caches has to take to be left: of the way past them the writer sees
/// only its own part, and the reader's takes longer there if both share a cache.
const MARGIN: u64 = 2;

/// A way into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Cached,
    Past,
}

/// The choice for one lane, without a clock.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Payloads so far, up to the first that is timed; then the place in a round.
    count: u32,
    usual: Way,
    /// Picoseconds for a byte, of the last payloads that were timed, by way.
    samples: [[u64; SAMPLES]; 2],
    taken: [usize; 2],
}

impl Ways {
    pub(crate) const fn new() -> Self {
        Self { count: 0, usual: Way::Cached, samples: [[0; SAMPLES]; 2], taken: [0; 2] }
    }

    /// The way of the next payload, and whether it is to be timed.
    pub(crate) fn next(&mut self) -> (Way, bool) {
        const PAIRS: u32 = FIRST + 2 * SAMPLES as u32;
        let count = self.count;
        // Behind the first pairs, rounds that begin with one.
        self.count = if count == PAIRS + ROUND - 1 { PAIRS } else { count + 1 };
        match count {
            0..FIRST => (Way::Cached, false),
            _ if count < PAIRS + 2 => (if count.is_multiple_of(2) { Way::Cached } else { Way::Past }, true),
            _ => (self.usual, false),
        }
    }

    /// A payload of so many bytes took so many nanoseconds this way.
    pub(crate) fn took(&mut self, way: Way, bytes: usize, nanos: u64) {
        let of = way as usize;
        self.samples[of][self.taken[of] % SAMPLES] = nanos.saturating_mul(1000) / bytes.max(1) as u64;
        self.taken[of] += 1;
        if self.taken.iter().all(|taken| *taken >= SAMPLES) {
            let [cached, past] = self.samples.map(|mut samples| {
                samples.sort_unstable();
                samples[SAMPLES / 2]
            });
            self.usual = if past.saturating_mul(MARGIN) <= cached { Way::Past } else { Way::Cached };
        }
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;

    /// Writes so many payloads, of which each takes so long by its way; how many went past the caches.
    fn write(ways: &mut Ways, count: u32, nanos: impl Fn(u32, Way) -> u64) -> u32 {
        let mut past = 0;
        for number in 0..count {
            let (way, timed) = ways.next();
            past += u32::from(way == Way::Past);
            if timed {
                ways.took(way, LEAST, nanos(number, way));
            }
        }
        past
    }

    const fn near(_: u32, way: Way) -> u64 {
        if matches!(way, Way::Cached) { 1000 } else { 1200 }
    }

    const fn far(_: u32, way: Way) -> u64 {
        if matches!(way, Way::Cached) { 5000 } else { 1400 }
    }

    #[test]
    fn payloads_go_the_faster_way() {
        let mut ways = Ways::new();
        // Pages are touched first, by the way that needs no choice.
        assert_eq!(write(&mut ways, FIRST, |_, _| unreachable!("it is not timed")), 0);
        assert_eq!(write(&mut ways, 10 * ROUND, near), 3 + 10);
        // Processors are moved apart, and together again: two of three times tell.
        let apart = write(&mut ways, 10 * ROUND, far);
        assert!((7 * ROUND..9 * ROUND).contains(&apart), "{apart}");
        assert_eq!(write(&mut ways, 10 * ROUND, far), 10 * ROUND - 10);
        write(&mut ways, 3 * ROUND, near);
        assert_eq!(write(&mut ways, 10 * ROUND, near), 10);
    }

    #[test]
    fn a_gain_below_the_margin_is_none() {
        for (cached, past) in [(1900, 10), (2000, 10 * ROUND - 10)] {
            let mut ways = Ways::new();
            let nanos = |_, way| if way == Way::Cached { cached } else { 1000 };
            write(&mut ways, FIRST + ROUND, nanos);
            assert_eq!(write(&mut ways, 10 * ROUND, nanos), past, "{cached}");
        }
    }

    /// A writer that lost its processor amid a payload is no slow way.
    #[test]
    fn one_long_time_changes_nothing() {
        let mut ways = Ways::new();
        write(&mut ways, FIRST + 2 * ROUND, near);
        let late = |number, way| if number / ROUND == 3 { 1_000_000 } else { near(number, way) };
        assert_eq!(write(&mut ways, 10 * ROUND, late), 10);
    }
}
