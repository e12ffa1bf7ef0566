//! What a launcher decides: a state machine from ended ranks, signals and time to orders; no process and no clock
//! in it.

use std::fmt;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::sys::signal::Signal;

use crate::outcome::{Outcome, RankEnd};

/// A repeated request to end counts only after this long: `timeout(1)` and process groups deliver one wish twice.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// Longer than any job.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What the supervisor has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Print this line on standard error.
    Say(String),
    /// Send the signal to every rank that still lives.
    Deliver(Signal),
}

/// Where the job stands on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has gone wrong.
    Running,
    /// The ranks should leave by themselves; at `at` the `next` signal tells them again.
    Leaving { next: Signal, at: Instant },
    /// They got a SIGKILL; only the kernel can keep them now.
    Killed,
}

/// The rules of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) keep_going: bool,
    pub(crate) grace: Duration,
    pub(crate) timeout: Option<Duration>,
}

/// The decisions of one job, from its start to the end of its last rank.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Rules,
    deadline: Option<Instant>,
    ends: Vec<Option<RankEnd>>,
    live: usize,
    phase: Phase,
    /// The first request to end that came from outside, and when.
    asked: Option<(Signal, Instant)>,
    first_failure: Option<Rank>,
    timed_out: bool,
}

impl Policy {
    pub(crate) fn new(ranks: u32, rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            deadline: rules.timeout.and_then(|limit| now.checked_add(limit)),
            ends: vec![None; ranks as usize],
            live: ranks as usize,
            phase: Phase::Running,
            asked: None,
            first_failure: None,
            timed_out: false,
        }
    }

    /// Whether every rank has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.live == 0
    }

    /// Until when nothing has to happen by itself; `None` means for ever.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let step = match self.phase {
            Phase::Leaving { at, .. } => Some(at),
            Phase::Running | Phase::Killed => None,
        };
        let deadline = self.deadline.filter(|_| !self.timed_out);
        step.into_iter().chain(deadline).min()
    }

    /// These ranks were found ended, all at the same time; `first` is the one that ended first, if that is known.
    ///
    /// Where it isn't, a rank that a signal killed counts as earlier than one that failed with a code: survivors
    /// of a crash often fail right after it, hardly ever the other way round.
    pub(crate) fn ended(&mut self, batch: &[(Rank, RankEnd)], first: Option<Rank>, now: Instant) -> Vec<Order> {
        for &(rank, end) in batch {
            let slot = &mut self.ends[rank.0 as usize];
            debug_assert!(slot.is_none(), "a rank ends once");
            *slot = Some(end);
            self.live -= 1;
        }
        let mut failures: Vec<_> = batch.iter().copied().filter(|(_, end)| !end.is_success()).collect();
        failures.sort_by_key(|&(rank, end)| (first != Some(rank), matches!(end, RankEnd::Exited(_)), rank));

        let mut orders = Vec::new();
        for (rank, end) in failures {
            let first = self.first_failure.is_none() && !self.timed_out;
            if first {
                self.first_failure = Some(rank);
            }
            if !first && !self.is_news(end) {
                continue;
            }
            let mut line = format!("rank {rank} {end}");
            if !self.rules.keep_going && self.phase == Phase::Running && self.live > 0 {
                // After a request from outside the ranks have been told already, so they get their time first.
                if self.asked.is_none() {
                    line += &match self.live {
                        1 => "; ending the other rank".into(),
                        others => format!("; ending the other {others} ranks"),
                    };
                    orders.push(Order::Deliver(Signal::SIGTERM));
                    self.leave(Signal::SIGKILL, now);
                } else {
                    self.leave(Signal::SIGTERM, now);
                }
            }
            orders.push(Order::Say(line));
        }
        orders
    }

    /// The launcher got a signal. `delivered` says that the terminal has sent it to the ranks as well.
    pub(crate) fn signalled(&mut self, signal: Signal, delivered: bool, now: Instant) -> Vec<Order> {
        if self.is_over() {
            return Vec::new();
        }
        if asks_to_end(signal) {
            match self.asked {
                None => self.asked = Some((signal, now)),
                Some((_, first)) if now.saturating_duration_since(first) >= REPEAT_AFTER => {
                    return self.kill("asked to end again");
                }
                Some(_) => {}
            }
        }
        if delivered { Vec::new() } else { vec![Order::Deliver(signal)] }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Order> {
        if self.is_over() {
            return Vec::new();
        }
        if !self.timed_out && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.timed_out = true;
            let limit = self.rules.timeout.unwrap_or_default().as_secs_f64();
            let line = format!("the job's {limit} s are over; ending {}", Ranks(self.live));
            self.leave(Signal::SIGKILL, now);
            return vec![Order::Say(line), Order::Deliver(Signal::SIGTERM)];
        }
        match self.phase {
            Phase::Leaving { next: Signal::SIGKILL, at } if now >= at => {
                let grace = self.rules.grace.as_secs_f64();
                self.kill(&format!("still there {grace} s after being told to end"))
            }
            Phase::Leaving { next, at } if now >= at => {
                self.leave(Signal::SIGKILL, now);
                vec![Order::Deliver(next)]
            }
            _ => Vec::new(),
        }
    }

    /// The outcome, once [`is_over`](Self::is_over).
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            ends: self.ends.iter().map(|end| end.expect("every rank has ended")).collect(),
            first_failure: self.first_failure,
            timed_out: self.timed_out,
        }
    }

    fn leave(&mut self, next: Signal, now: Instant) {
        // A grace period beyond the clock's range is one that never ends in practice.
        let at = now.checked_add(self.rules.grace).unwrap_or_else(|| now + FOR_EVER);
        self.phase = Phase::Leaving { next, at };
    }

    fn kill(&mut self, reason: &str) -> Vec<Order> {
        self.phase = Phase::Killed;
        vec![Order::Say(format!("{reason}: killing {}", Ranks(self.live))), Order::Deliver(Signal::SIGKILL)]
    }

    /// Whether a failure after the first one is worth a line: not when the launcher or the user caused it, and not
    /// when the survivors of a lost rank give up.
    fn is_news(&self, end: RankEnd) -> bool {
        match end {
            // Its host was named, and the first of its ranks.
            RankEnd::Lost => false,
            RankEnd::Killed(number) => {
                let ours = self.phase != Phase::Running
                    && [Signal::SIGTERM as u8, Signal::SIGKILL as u8].contains(&number);
                let wanted = self.asked.is_some_and(|(signal, _)| signal as u8 == number);
                !ours && !wanted
            }
            RankEnd::Exited(_) => self.phase == Phase::Running && self.asked.is_none(),
        }
    }
}

/// Whether a signal's usual meaning is that the job should end.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// "1 rank", "2 ranks".
struct Ranks(usize);

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rank{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3);

    fn policy(ranks: u32, keep_going: bool) -> (Policy, Instant) {
        let now = Instant::now();
        let rules = Rules { keep_going, grace: GRACE, timeout: Some(Duration::from_secs(60)) };
        (Policy::new(ranks, rules, now), now)
    }

    fn say(line: &str) -> Order {
        Order::Say(line.into())
    }

    #[test]
    fn a_failure_ends_the_others_with_term_then_kill() {
        let (mut policy, now) = policy(4, false);
        assert_eq!(policy.ended(&[(Rank(0), RankEnd::Exited(0))], None, now), []);
        let orders = policy.ended(&[(Rank(2), RankEnd::Exited(7))], None, now);
        let line = say("rank 2 exited with code 7; ending the other 2 ranks");
        assert_eq!(orders, [Order::Deliver(Signal::SIGTERM), line]);
        assert_eq!(policy.wake_at(), Some(now + GRACE));
        assert_eq!(policy.tick(now + GRACE / 2), []);
        assert_eq!(policy.ended(&[(Rank(1), RankEnd::Killed(15))], None, now), []);
        let orders = policy.tick(now + GRACE);
        assert_eq!(
            orders,
            [say("still there 3 s after being told to end: killing 1 rank"), Order::Deliver(Signal::SIGKILL)]
        );
        assert_eq!(policy.ended(&[(Rank(3), RankEnd::Killed(9))], None, now), []);
        assert!(policy.is_over());
        assert_eq!(policy.wake_at(), None);
        assert_eq!(policy.outcome().code(), 7);
    }

    #[test]
    fn of_a_batch_the_killed_rank_counts_as_the_first() {
        let (mut policy, now) = policy(3, false);
        let batch = [(Rank(0), RankEnd::Exited(1)), (Rank(2), RankEnd::Killed(9)), (Rank(1), RankEnd::Exited(1))];
        let orders = policy.ended(&batch, None, now);
        assert_eq!(orders[0], say("rank 2 was killed by signal 9 (SIGKILL)"));
        assert_eq!(policy.outcome().first_failure(), Some(Rank(2)));
        assert_eq!(policy.outcome().code(), 137);
    }

    #[test]
    fn who_is_known_to_be_first_is_named() {
        let (mut policy, now) = policy(3, false);
        let batch = [(Rank(0), RankEnd::Exited(1)), (Rank(1), RankEnd::Exited(5)), (Rank(2), RankEnd::Killed(9))];
        let orders = policy.ended(&batch, Some(Rank(1)), now);
        assert_eq!(orders[0], say("rank 1 exited with code 5"));
        assert_eq!(policy.outcome().code(), 5);
    }

    #[test]
    fn keep_going_reports_each_failure_and_ends_nobody() {
        let (mut policy, now) = policy(3, true);
        assert_eq!(policy.ended(&[(Rank(1), RankEnd::Exited(4))], None, now), [say("rank 1 exited with code 4")]);
        assert_eq!(policy.ended(&[(Rank(0), RankEnd::Exited(5))], None, now), [say("rank 0 exited with code 5")]);
        assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(0))], None, now), []);
        assert_eq!(policy.outcome().code(), 4);
    }

    #[test]
    fn an_interrupt_is_passed_on_once_and_lets_ranks_leave_by_themselves() {
        let (mut policy, now) = policy(3, false);
        assert_eq!(policy.signalled(Signal::SIGINT, false, now), [Order::Deliver(Signal::SIGINT)]);
        // One rank dies at once; the others get the whole grace period before they are told again.
        let orders = policy.ended(&[(Rank(1), RankEnd::Killed(2))], None, now);
        assert_eq!(orders, [say("rank 1 was killed by signal 2 (SIGINT)")]);
        assert_eq!(policy.tick(now + GRACE), [Order::Deliver(Signal::SIGTERM)]);
        assert!(matches!(policy.tick(now + GRACE * 2)[..], [_, Order::Deliver(Signal::SIGKILL)]));
        policy.ended(&[(Rank(0), RankEnd::Killed(2)), (Rank(2), RankEnd::Killed(9))], None, now);
        assert_eq!(policy.outcome().code(), 130);
    }

    #[test]
    fn what_the_terminal_delivered_is_not_sent_twice() {
        let (mut policy, now) = policy(2, false);
        assert_eq!(policy.signalled(Signal::SIGINT, true, now), []);
        assert_eq!(policy.signalled(Signal::SIGUSR1, false, now), [Order::Deliver(Signal::SIGUSR1)]);
    }

    #[test]
    fn asking_again_later_kills_but_an_echo_does_not() {
        let (mut policy, now) = policy(2, false);
        policy.signalled(Signal::SIGTERM, false, now);
        let echo = policy.signalled(Signal::SIGTERM, false, now + REPEAT_AFTER / 2);
        assert_eq!(echo, [Order::Deliver(Signal::SIGTERM)]);
        let again = policy.signalled(Signal::SIGINT, true, now + REPEAT_AFTER);
        assert_eq!(again, [say("asked to end again: killing 2 ranks"), Order::Deliver(Signal::SIGKILL)]);
    }

    #[test]
    fn the_time_limit_ends_the_job_and_decides_the_code() {
        let (mut policy, now) = policy(2, true);
        let late = now + Duration::from_secs(60);
        assert_eq!(policy.wake_at(), Some(late));
        let orders = policy.tick(late);
        assert_eq!(orders, [say("the job's 60 s are over; ending 2 ranks"), Order::Deliver(Signal::SIGTERM)]);
        assert_eq!(policy.wake_at(), Some(late + GRACE));
        policy.ended(&[(Rank(0), RankEnd::Exited(0)), (Rank(1), RankEnd::Killed(15))], None, late);
        assert_eq!(policy.outcome().code(), 124);
        assert!(policy.outcome().timed_out());
    }
}
