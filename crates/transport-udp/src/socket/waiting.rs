//! How patiently an endpoint asks its socket before it gives its processor away, and how it sleeps.

use super::config::WaitMode;
use am_core::backoff::BackoffPolicy;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long an endpoint with a processor to itself asks: some 200 times.
const SPIN: Duration = Duration::from_micros(60);
/// How long it gives the processor away between questions after that.
const YIELD: Duration = Duration::from_micros(20);
/// How often one that shares its processor does before it sleeps.
const CROWDED_YIELDS: u32 = 30;

/// The policy of one of `neighbours` endpoints on this host, which has so many processors.
pub(super) fn backoff_policy(waiting: WaitMode, neighbours: usize, processors: usize) -> BackoffPolicy {
    match waiting {
        WaitMode::Polled => BackoffPolicy::Timed { spin: Duration::MAX, yielding: Duration::ZERO },
        WaitMode::Blocking => BackoffPolicy::Counted { spins: 0, yields: 0 },
        WaitMode::Adaptive if neighbours <= processors => BackoffPolicy::Timed { spin: SPIN, yielding: YIELD },
        // Whoever we wait for may be waiting for our processor.
        WaitMode::Adaptive => BackoffPolicy::Counted { spins: 0, yields: CROWDED_YIELDS },
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
    use am_core::backoff::{Backoff, Next};

    #[test]
    fn who_is_crowded_yields_at_once_and_who_may_sleep_does() {
        for (waiting, neighbours, first, last) in [
            (WaitMode::Adaptive, 2, Next::Spin, Next::Park),
            (WaitMode::Adaptive, 8, Next::Yield, Next::Park),
            (WaitMode::Polled, 8, Next::Spin, Next::Spin),
            (WaitMode::Blocking, 2, Next::Park, Next::Park),
        ] {
            let mut backoff = Backoff::new(backoff_policy(waiting, neighbours, 2));
            assert_eq!(backoff.next(), first);
            match last {
                Next::Park => while backoff.next() != Next::Park {},
                last => assert!((0..1000).all(|_| backoff.next() == last)),
            }
            backoff.reset();
            assert_eq!(backoff.next(), first);
        }
    }
}
