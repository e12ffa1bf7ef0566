//! How patiently an endpoint asks its socket before it gives its processor away, and how it sleeps.

use super::config::WaitMode;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Fruitless questions in a row before giving the processor away: each takes some 0.3 us.
const SPINS: u32 = 200;
const YIELDS: u32 = 20;
const CROWDED_YIELDS: u32 = 30;

/// Counts fruitless tries and says what to do next.
#[derive(Debug)]
pub(super) struct Backoff {
    tries: u32,
    spins: u32,
    yields: u32,
}

/// What to do after a fruitless try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again at once.
    Spin,
    /// Let another process run, then try again.
    Yield,
    /// Sleep until something arrives.
    Park,
}

impl Backoff {
    /// The back-off of one of `neighbours` endpoints on this host.
    pub(super) fn new(waiting: WaitMode, neighbours: usize) -> Self {
        Self::with(waiting, neighbours, am_core::time::processors())
    }

    fn with(waiting: WaitMode, neighbours: usize, processors: usize) -> Self {
        let (spins, yields) = match waiting {
            WaitMode::Polled => (u32::MAX, 0),
            WaitMode::Blocking => (0, 0),
            WaitMode::Adaptive if neighbours <= processors => (SPINS, YIELDS),
            // Whoever we wait for may be waiting for our processor.
            WaitMode::Adaptive => (0, CROWDED_YIELDS),
        };
        Self { tries: 0, spins, yields }
    }

    /// Whether fruitless tries begin with more spinning than a short wait takes.
    pub(super) fn spins(&self) -> bool {
        self.spins >= SPINS
    }

    /// Something was achieved.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing was achieved once more.
    pub(super) fn next(&mut self) -> Next {
        self.tries = self.tries.saturating_add(1);
        if self.tries <= self.spins {
            Next::Spin
        } else if self.tries - self.spins <= self.yields {
            Next::Yield
        } else {
            Next::Park
        }
    }
}

/// Sleeps until one of the descriptors is ready or time is up; may return early.
pub(super) fn sleep(descriptors: &[(BorrowedFd<'_>, PollFlags)], timeout: Option<Duration>) {
    let mut two: [PollFd<'_>; 2];
    let mut one: [PollFd<'_>; 1];
    let fds: &mut [PollFd<'_>] = match descriptors {
        [a, b] => {
            two = [PollFd::new(a.0, a.1), PollFd::new(b.0, b.1)];
            &mut two
        }
        [a] => {
            one = [PollFd::new(a.0, a.1)];
            &mut one
        }
        _ => &mut [],
    };
    match ppoll(fds, timeout.map(TimeSpec::from_duration), None) {
        // Whoever waits looks again in any case.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => panic!("waiting for open descriptors cannot fail: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_crowded_yields_at_once_and_who_may_sleep_does() {
        for (waiting, neighbours, first, last) in [
            (WaitMode::Adaptive, 2, Next::Spin, Next::Park),
            (WaitMode::Adaptive, 8, Next::Yield, Next::Park),
            (WaitMode::Polled, 8, Next::Spin, Next::Spin),
            (WaitMode::Blocking, 2, Next::Park, Next::Park),
        ] {
            let mut backoff = Backoff::with(waiting, neighbours, 2);
            assert_eq!(backoff.next(), first);
            let steps: Vec<_> = (0..1000).map(|_| backoff.next()).collect();
            assert_eq!(steps.last(), Some(&last));
            backoff.reset();
            assert_eq!(backoff.next(), first);
        }
    }
}
