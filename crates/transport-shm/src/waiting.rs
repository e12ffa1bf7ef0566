//! How patient an endpoint spins before it gives its processor away: by how many endpoints share how many processors.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Counts fruitless tries and says what to do next.
#[derive(Debug)]
pub(crate) struct Patience {
    tries: u32,
    spins: u32,
    yields: u32,
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

/// Processors that this process may use.
fn processors() -> usize {
    let set = sched_getaffinity(Pid::from_raw(0));
    let count = |set: CpuSet| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).count();
    set.map_or(1, count).max(1)
}

impl Patience {
    /// The patience of one of `endpoints` endpoints on this host.
    pub(crate) fn new(endpoints: usize) -> Self {
        Self::with(endpoints, processors())
    }

    fn with(endpoints: usize, processors: usize) -> Self {
        // With a processor each, whoever we wait for is running: spinning for some 50 us is the fastest way to hear from it.
        // With fewer, it may be waiting for our processor: yield at once, and sleep soon.
        let (spins, yields) = if endpoints <= processors { (4000, 20) } else { (1, 100) };
        Self { tries: 0, spins, yields }
    }

    /// Something was achieved.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing was achieved once more.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        self.tries = self.tries.saturating_add(1);
        if self.tries <= self.spins {
            Next::Spin
        } else if self.tries <= self.spins + self.yields {
            Next::Yield
        } else {
            Next::Park
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_endpoints_yield_at_once_and_everyone_parks_in_the_end() {
        for (endpoints, processors, first) in [(2, 2, Next::Spin), (8, 2, Next::Yield), (2, 1, Next::Yield)] {
            let mut patience = Patience::with(endpoints, processors);
            patience.next();
            assert_eq!(patience.next(), first);
            assert!((0..10_000).any(|_| patience.next() == Next::Park));
            patience.reset();
            assert_ne!(patience.next(), Next::Park);
        }
    }
}
