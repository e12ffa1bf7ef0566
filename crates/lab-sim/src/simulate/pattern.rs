//! Who sends to whom.

use super::Failure;
use clap::ValueEnum;
use fabric_sim::splitmix64;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Each message to a rank drawn from all others
    Uniform,
    /// Every rank to one other, drawn so that each gets from one
    Permutation,
    /// Ranks as a square: row and column change places; the diagonal is silent
    Transpose,
    /// The rank with the reverse bits; palindromes are silent
    BitReversal,
    /// The rank with the opposite bits
    BitComplement,
    /// By turns to the next rank and to the one before
    Neighbour,
    /// One message in ten to rank 0, the others as in uniform
    Hotspot,
    /// All to rank 0
    Incast,
    /// Each to all others, one after the other
    AllToAll,
    /// Bursts to a rank drawn anew for each, back to back, and silence between them (--burst)
    Bursts,
}

impl Pattern {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Permutation => "permutation",
            Self::Transpose => "transpose",
            Self::BitReversal => "bit-reversal",
            Self::BitComplement => "bit-complement",
            Self::Neighbour => "neighbour",
            Self::Hotspot => "hotspot",
            Self::Incast => "incast",
            Self::AllToAll => "all-to-all",
            Self::Bursts => "bursts",
        }
    }

    /// Whether so many ranks can do it.
    pub(crate) fn check(self, ranks: u32) -> Result<(), Failure> {
        let root = ranks.isqrt();
        let limit = match self {
            _ if ranks < 2 => "at least 2",
            Self::Transpose if root * root != ranks => "a square",
            Self::BitReversal | Self::BitComplement if !ranks.is_power_of_two() => "a power of two",
            _ => return Ok(()),
        };
        Err(Failure::Usage(format!("{ranks} ranks, but --pattern {} asks for {limit}: set --ranks", self.name())))
    }
}

/// Draws from a stream of its own.
#[derive(Clone, Debug)]
pub(crate) struct Draws(u64);

impl Draws {
    /// The stream of a rank.
    pub(crate) fn of(seed: u64, rank: u32) -> Self {
        Self(splitmix64(&mut (seed ^ (u64::from(rank) + 1).rotate_left(32))))
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(splitmix64(&mut self.0)) * u128::from(limit)) >> 64) as u32
    }

    /// A time drawn so that events come at random at a mean distance (exponentially distributed).
    pub(crate) fn pause(&mut self, mean: f64) -> f64 {
        let unit = (splitmix64(&mut self.0) >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - unit).ln() * mean
    }
}

/// The destinations of one rank's messages, and the times between them.
#[derive(Clone, Debug)]
pub(crate) struct Destinations {
    pattern: Pattern,
    me: u32,
    ranks: u32,
    /// Of a permutation, or of a burst.
    partner: u32,
    sent: u32,
    /// The mean length of a burst, in messages.
    burst: u32,
    /// Messages that are left of one.
    left: u32,
}

impl Destinations {
    /// Of a rank; a permutation is drawn from the seed, the same for all. Bursts have `burst` messages in the
    /// mean.
    pub(crate) fn of(pattern: Pattern, (me, ranks): (u32, u32), seed: u64, burst: u32) -> Self {
        let partner = if pattern == Pattern::Permutation { circle(ranks, seed)[me as usize] } else { me };
        Self { pattern, me, ranks, partner, sent: 0, burst, left: 0 }
    }

    /// The time before the next message, whose mean is `mean`: exponentially distributed, or within a burst
    /// `least`, the shortest that the interface can take, and before a burst whatever makes up for it.
    pub(crate) fn pause(&self, mean: f64, least: f64, draws: &mut Draws) -> f64 {
        let least = least.min(mean);
        match self.pattern {
            Pattern::Bursts if self.left > 0 => least,
            Pattern::Bursts => least + draws.pause(f64::from(self.burst) * (mean - least)),
            _ => draws.pause(mean),
        }
    }

    /// Draws a burst's destination and its length, which is geometrically distributed as that of sources with the
    /// two states on and off.
    fn begin_burst(&mut self, draws: &mut Draws) {
        self.partner = other(self.me, self.ranks, draws);
        let end = -(-1.0 / f64::from(self.burst)).ln_1p();
        self.left = 1 + draws.pause(1.0 / end) as u32;
    }

    /// Where the next message goes; `None` from ranks that are silent.
    pub(crate) fn next(&mut self, draws: &mut Draws) -> Option<u32> {
        let Self { pattern, me, ranks, .. } = *self;
        let number = self.sent;
        self.sent += 1;
        if pattern == Pattern::Bursts {
            if self.left == 0 {
                self.begin_burst(draws);
            }
            self.left -= 1;
        }
        let to = match pattern {
            Pattern::Uniform => other(me, ranks, draws),
            Pattern::Permutation | Pattern::Bursts => self.partner,
            Pattern::Transpose => {
                let edge = ranks.isqrt();
                me % edge * edge + me / edge
            }
            Pattern::BitReversal => me.reverse_bits() >> (32 - ranks.trailing_zeros()),
            Pattern::BitComplement => ranks - 1 - me,
            Pattern::Neighbour if number.is_multiple_of(2) => (me + 1) % ranks,
            Pattern::Neighbour => (me + ranks - 1) % ranks,
            Pattern::Hotspot if draws.below(10) == 0 => 0,
            Pattern::Hotspot => other(me, ranks, draws),
            Pattern::Incast => 0,
            Pattern::AllToAll => (me + 1 + number % (ranks - 1)) % ranks,
        };
        (to != me).then_some(to)
    }
}

fn other(me: u32, ranks: u32, draws: &mut Draws) -> u32 {
    (me + 1 + draws.below(ranks - 1)) % ranks
}

/// A permutation of one circle (Sattolo, 1986), in which nobody stays where he is.
fn circle(ranks: u32, seed: u64) -> Vec<u32> {
    let (mut to, mut draws) = ((0..ranks).collect::<Vec<_>>(), Draws::of(seed, u32::MAX - 1));
    for last in (1..ranks).rev() {
        to.swap(last as usize, draws.below(last) as usize);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(pattern: Pattern, ranks: u32, messages: u32) -> Vec<Vec<u32>> {
        let of = |me| {
            let (mut all, mut draws) = (Destinations::of(pattern, (me, ranks), 5, 16), Draws::of(5, me));
            (0..messages).filter_map(|_| all.next(&mut draws)).collect()
        };
        (0..ranks).map(of).collect()
    }

    #[test]
    fn nobody_sends_to_himself_or_outside() {
        for pattern in Pattern::value_variants() {
            for (me, to) in targets(*pattern, 16, 100).into_iter().enumerate() {
                assert!(to.iter().all(|to| *to < 16 && *to != me as u32), "{pattern:?}: {me} to {to:?}");
            }
        }
    }

    #[test]
    fn permutations_give_to_each_once() {
        for pattern in [Pattern::Permutation, Pattern::BitComplement] {
            for ranks in [2, 4, 64] {
                let mut all = targets(pattern, ranks, 1).concat();
                all.sort_unstable();
                assert_eq!(all, (0..ranks).collect::<Vec<_>>(), "{pattern:?}");
            }
        }
        let mut all: Vec<u32> = targets(Pattern::Permutation, 7, 1).concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn fixed_patterns_are_what_they_are_called() {
        let first = |pattern, me: usize| targets(pattern, 16, 1)[me].first().copied();
        assert_eq!((first(Pattern::Transpose, 1), first(Pattern::Transpose, 5)), (Some(4), None));
        assert_eq!((first(Pattern::BitReversal, 1), first(Pattern::BitReversal, 9)), (Some(8), None));
        assert_eq!(first(Pattern::BitComplement, 3), Some(12));
        assert_eq!(targets(Pattern::Neighbour, 16, 2)[0], [1, 15]);
        assert_eq!(targets(Pattern::AllToAll, 4, 4)[2], [3, 0, 1, 3]);
        assert_eq!((first(Pattern::Incast, 7), first(Pattern::Incast, 0)), (Some(0), None));
        let hot = targets(Pattern::Hotspot, 16, 1000)[3].iter().filter(|to| **to == 0).count();
        // A tenth, and a fifteenth of the rest.
        assert!((130..190).contains(&hot), "{hot}");
    }

    /// Bursts of one message are single messages. Longer ones have as many messages in the mean, to one rank, back
    /// to back; in the long run as many are sent as without bursts.
    #[test]
    fn bursts_keep_length_and_rate() {
        let (mean, least) = (5.0, 1.0);
        for length in [1, 2, 16] {
            let (mut to, mut draws) = (Destinations::of(Pattern::Bursts, (3, 64), 5, length), Draws::of(5, 3));
            let (mut bursts, mut time, mut last) = (0, 0.0, None);
            for _ in 0..200_000 {
                let pause = to.pause(mean, least, &mut draws);
                let next = to.next(&mut draws);
                assert!(next.is_some_and(|to| to < 64 && to != 3) && pause >= least);
                assert!(pause > least || next == last, "a burst goes to one rank");
                bursts += u32::from(pause > least);
                (time, last) = (time + pause, next);
            }
            let (in_each, apart) = (200_000.0 / f64::from(bursts), time / 200_000.0);
            assert!((in_each / f64::from(length) - 1.0).abs() < 0.03, "{in_each} messages in a burst of {length}");
            assert!((apart / mean - 1.0).abs() < 0.03, "{apart} from message to message in bursts of {length}");
            // More than the interface takes is sent without pauses.
            assert_eq!((to.pause(0.5, least, &mut draws), to.left), (0.5, to.left));
        }
    }

    #[test]
    fn patterns_that_do_not_fit_are_refused() {
        for (pattern, ranks, part) in [
            (Pattern::Transpose, 8, "a square"),
            (Pattern::BitReversal, 12, "a power of two"),
            (Pattern::Uniform, 1, "at least 2"),
        ] {
            let error = pattern.check(ranks).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("set --ranks"), "{error}");
            assert!(pattern.check(16).is_ok());
        }
    }
}
