//! What a launcher decides: a state machine from ended ranks, signals and time to orders; no process and no clock
//! in it.

use std::fmt;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::sys::signal::Signal;

use crate::notices::Notice;
use crate::outcome::{Outcome, RankEnd};
use crate::spec::Rules;

/// A repeated request to end counts only after this long: `timeout(1)` and process groups deliver one wish twice.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// How long the launcher waits for the end of a rank whose loss others have failed over: what it has to say counts
/// more than they. Longer than an endpoint over UDP lingers by default (2 s).
const SETTLE: Duration = Duration::from_secs(5);

/// How long ranks get to say what they wait for, when their time is over. A rank that sleeps looks up about once a
/// second.
const REPORTING: Duration = Duration::from_millis(1500);

/// Longer than any job.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What the supervisor has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Print this line on standard error.
    Say(String),
    /// Send the signal to every rank that still lives.
    Deliver(Signal),
    /// Print this line if somebody still reads the job's output: it tells of a rank that noticed that nobody does.
    SayIfRead(String),
    /// Ask every rank that can answer what it waits for.
    Report,
}

/// Where the job stands on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has gone wrong.
    Running,
    /// The time is over, and the ranks say what they wait for; at `at` they are told to leave.
    Reporting { at: Instant },
    /// The ranks should leave by themselves; at `at` the `next` signal tells them again.
    Leaving { next: Signal, at: Instant },
    /// They got a SIGKILL; only the kernel can keep them now.
    Killed,
}

/// The decisions of one job, from its start to the end of its last rank.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Rules,
    /// When the job's time is over, until it is.
    deadline: Option<Instant>,
    ends: Vec<Option<RankEnd>>,
    live: usize,
    phase: Phase,
    /// The first request to end that came from outside, and when.
    asked: Option<(Signal, Instant)>,
    first_failure: Option<Rank>,
    timed_out: bool,
    /// The rank that has ended the whole job by itself, and its code.
    exit: Option<(Rank, u8)>,
    /// Failures of which the first is not known yet, as they came.
    pending: Vec<Failure>,
    /// When the first of them is chosen, come what may.
    judge_at: Option<Instant>,
    /// Who has learned of whose loss.
    told: Vec<(Rank, Rank)>,
    /// Who has left without finishing, in that order.
    left: Vec<Rank>,
}

/// A rank that has failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    rank: Rank,
    end: RankEnd,
    /// How many ranks had left without finishing when it left or ended.
    left_before: usize,
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
            exit: None,
            pending: Vec::new(),
            judge_at: None,
            told: Vec::new(),
            left: Vec::new(),
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
            Phase::Leaving { at, .. } | Phase::Reporting { at } => Some(at),
            Phase::Running | Phase::Killed => None,
        };
        step.into_iter().chain(self.deadline).chain(self.judge_at).min()
    }

    /// These ranks were found ended, all at the same time; `first` is the one that ended first, if that is known.
    ///
    /// Where it isn't, a rank that a signal killed counts as earlier than one that failed with a code: survivors
    /// of a crash often fail right after it, hardly ever the other way round. And a rank that had been told of
    /// another one's loss, or that left after another one, counts as later than that one, even if that one ends
    /// later: until then, but not for longer than [`SETTLE`], nobody is named.
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
            if self.first_failure.is_some() || self.timed_out || self.exit.is_some() {
                if self.is_news(end) {
                    orders.push(about(end, format!("rank {rank} {end}")));
                }
                continue;
            }
            let left_before = self.left.iter().position(|&left| left == rank).unwrap_or(self.left.len());
            self.pending.push(Failure { rank, end, left_before });
        }
        orders.extend(self.judge(now));
        orders
    }

    /// A rank has said something beside its end, before that.
    pub(crate) fn noticed(&mut self, notice: Notice, now: Instant) -> Vec<Order> {
        match notice {
            Notice::Lost { rank, lost } => self.told.push((Rank(rank), Rank(lost))),
            Notice::Left { rank } if !self.left.contains(&Rank(rank)) => self.left.push(Rank(rank)),
            Notice::Left { .. } => {}
            Notice::Exit { rank, code } => return self.exit(Rank(rank), code, now),
        }
        Vec::new()
    }

    /// A rank ends the whole job. A job that ends already keeps its reason, and so does one in which another rank
    /// has failed before, unless that one may have failed because this rank ended.
    fn exit(&mut self, rank: Rank, code: u8, now: Instant) -> Vec<Order> {
        if self.exit.is_some() || self.first_failure.is_some() || self.timed_out || self.is_over() {
            return Vec::new();
        }
        let follows = |failure: &Failure| failure.rank == rank || self.causes(*failure).contains(&rank);
        if !self.pending.iter().all(follows) {
            return self.judge_now(now);
        }
        self.exit = Some((rank, code));
        self.judge_at = None;
        let mut orders = Vec::new();
        if code != 0 {
            orders.push(Order::Say(format!("rank {rank} ended the job with code {code}")));
        }
        for failure in std::mem::take(&mut self.pending) {
            if self.rules.keep_going && self.is_news(failure.end) {
                orders.push(about(failure.end, format!("rank {} {}", failure.rank, failure.end)));
            }
        }
        self.leave(Signal::SIGKILL, now);
        orders.push(Order::Deliver(Signal::SIGTERM));
        orders
    }

    /// Chooses the first of the failures, if it is known or too late to wait for it, and says what follows from
    /// it.
    fn judge(&mut self, now: Instant) -> Vec<Order> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        // A job that ends anyway has no time for others to explain themselves.
        let due = self.live == 0 || self.asked.is_some() || self.phase != Phase::Running;
        let overdue = self.judge_at.is_some_and(|at| now >= at);
        if due || overdue {
            return self.judge_now(now);
        }
        match self.known_first() {
            Some(first) => self.name(first, now),
            None => {
                self.judge_at.get_or_insert(now + SETTLE);
                Vec::new()
            }
        }
    }

    /// Chooses the likeliest of the failures as the first, since it is too late to wait for certainty.
    fn judge_now(&mut self, now: Instant) -> Vec<Order> {
        let failed = |rank: &Rank| self.ends[rank.0 as usize].is_some_and(|end| !end.is_success());
        let independent = |failure: &Failure| !self.causes(*failure).iter().any(failed);
        let first = self.known_first().or_else(|| self.pending.iter().position(independent)).unwrap_or(0);
        self.name(first, now)
    }

    /// Names the failure at this place as the first, and says what follows from it.
    fn name(&mut self, first: usize, now: Instant) -> Vec<Order> {
        self.judge_at = None;
        let first = self.pending.remove(first);
        self.first_failure = Some(first.rank);
        let mut line = format!("rank {} {}{}", first.rank, first.end, self.circumstances(first));
        let mut orders = Vec::new();
        let ends_others = !self.rules.keep_going && self.phase == Phase::Running && self.live > 0;
        // These failed before anybody was told to end, so a signal that killed one of them is not the launcher's.
        let mut others = Vec::new();
        for other in std::mem::take(&mut self.pending) {
            let follows = self.suspects(other).next().is_some();
            let gave_up = ends_others && matches!(other.end, RankEnd::Exited(_));
            if (self.rules.keep_going || !follows) && !gave_up && self.is_news(other.end) {
                others.push(about(other.end, format!("rank {} {}", other.rank, other.end)));
            }
        }
        if ends_others {
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
        orders.push(about(first.end, line));
        orders.extend(others);
        orders
    }

    /// The place of the first failure, if that is known. It is looked for among the causes of the failure that
    /// came first: what failed later for itself is not why that one failed, whatever else is known by then.
    fn known_first(&self) -> Option<usize> {
        let earliest = *self.pending.first()?;
        let at_fault = |rank: &Rank| self.ends[rank.0 as usize].is_none_or(|end| !end.is_success());
        let causes = self.causes(earliest);
        let candidate = |failure: &Failure| failure.rank == earliest.rank || causes.contains(&failure.rank);
        let root = |failure: &Failure| !self.suspects(*failure).any(|rank| at_fault(&rank));
        self.pending.iter().position(|failure| candidate(failure) && root(failure))
    }

    /// The ranks that a failure may follow from, directly or through others that fail or leave.
    fn causes(&self, failure: Failure) -> Vec<Rank> {
        let mut causes: Vec<Rank> = self.suspects(failure).collect();
        let mut looked_at = 0;
        while let Some(&rank) = causes.get(looked_at) {
            looked_at += 1;
            for further in self.suspects_of(rank, self.left_before(rank)) {
                if further != failure.rank && !causes.contains(&further) {
                    causes.push(further);
                }
            }
        }
        causes
    }

    /// The ranks that a failure may follow from.
    fn suspects(&self, failure: Failure) -> impl Iterator<Item = Rank> {
        self.suspects_of(failure.rank, failure.left_before)
    }

    /// The ranks that a rank was told to be lost, and the first `left_before` that left without finishing.
    fn suspects_of(&self, whose: Rank, left_before: usize) -> impl Iterator<Item = Rank> {
        let told = self.told.iter().filter(move |(rank, _)| *rank == whose).map(|&(_, lost)| lost);
        let left = self.left[..left_before].iter().copied();
        let known = self.ends.len();
        told.chain(left).filter(move |&rank| rank != whose && (rank.0 as usize) < known)
    }

    /// How many ranks had left without finishing when this one did; none if it has not.
    fn left_before(&self, rank: Rank) -> usize {
        self.left.iter().position(|&left| left == rank).unwrap_or(0)
    }

    /// What a rank had been told before it failed first.
    fn circumstances(&self, failure: Failure) -> String {
        let mut told = self.told.iter().filter(|(rank, _)| *rank == failure.rank);
        let Some(&(_, lost)) = told.find(|(_, lost)| (lost.0 as usize) < self.ends.len()) else {
            return String::new();
        };
        match self.ends[lost.0 as usize] {
            None => format!(" after it had lost rank {lost}, which still runs"),
            Some(end) if end.is_success() => format!(" after rank {lost} had ended without finishing"),
            Some(_) => String::new(),
        }
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
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.deadline = None;
            // What failed before the time was up is the reason, if it ends the job.
            let mut orders = if self.pending.is_empty() { Vec::new() } else { self.judge_now(now) };
            if self.phase == Phase::Running {
                self.timed_out = true;
                let limit = self.rules.timeout.unwrap_or_default().as_secs_f64();
                orders.push(Order::Say(format!("the job's {limit} s are over; ending {}", Ranks(self.live))));
                orders.push(Order::Report);
                self.phase = Phase::Reporting { at: now + REPORTING };
            }
            return orders;
        }
        if self.judge_at.is_some_and(|at| now >= at) {
            return self.judge(now);
        }
        match self.phase {
            Phase::Reporting { at } if now >= at => self.reported(now),
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

    /// Nobody has more to report: the ranks are told to leave.
    pub(crate) fn reported(&mut self, now: Instant) -> Vec<Order> {
        if !matches!(self.phase, Phase::Reporting { .. }) {
            return Vec::new();
        }
        self.leave(Signal::SIGKILL, now);
        vec![Order::Deliver(Signal::SIGTERM)]
    }

    /// The outcome, once [`is_over`](Self::is_over).
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            ends: self.ends.iter().map(|end| end.expect("every rank has ended")).collect(),
            first_failure: self.first_failure,
            timed_out: self.timed_out,
            exit: self.exit,
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

/// The order to print a line about a rank that ended so.
fn about(end: RankEnd, line: String) -> Order {
    if end.is_broken_pipe() { Order::SayIfRead(line) } else { Order::Say(line) }
}

/// Whether a signal's usual meaning is that the job should end. SIGQUIT asks ranks what they wait for.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP)
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
    fn an_interrupt_is_passed_on_once() {
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
        assert_eq!(policy.tick(late), [say("the job's 60 s are over; ending 2 ranks"), Order::Report]);
        assert_eq!(policy.wake_at(), Some(late + REPORTING));
        let late = late + REPORTING;
        assert_eq!(policy.tick(late), [Order::Deliver(Signal::SIGTERM)]);
        assert_eq!(policy.wake_at(), Some(late + GRACE));
        policy.ended(&[(Rank(0), RankEnd::Exited(0)), (Rank(1), RankEnd::Killed(15))], None, late);
        assert_eq!(policy.outcome().code(), 124);
        assert!(policy.outcome().timed_out());
    }

    #[test]
    fn the_time_limit_does_not_wait_for_stopped_ranks() {
        let (mut policy, now) = policy(1, false);
        let late = now + Duration::from_secs(60);
        policy.tick(late);
        assert_eq!(policy.reported(late), [Order::Deliver(Signal::SIGTERM)]);
        assert_eq!(policy.reported(late), []);
    }

    #[test]
    fn a_failure_over_a_loss_waits_for_the_lost_rank() {
        let (mut policy, now) = policy(3, false);
        policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
        assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(1))], None, now), []);
        assert_eq!(policy.wake_at(), Some(now + SETTLE));
        let orders = policy.ended(&[(Rank(0), RankEnd::Exited(7))], None, now);
        assert_eq!(
            orders,
            [Order::Deliver(Signal::SIGTERM), say("rank 0 exited with code 7; ending the other rank")]
        );
        assert_eq!(policy.ended(&[(Rank(1), RankEnd::Exited(1))], None, now), []);
        assert_eq!((policy.outcome().code(), policy.outcome().first_failure()), (7, Some(Rank(0))));
    }

    #[test]
    fn who_left_first_counts_even_where_nobody_was_told() {
        let (mut policy, now) = policy(3, false);
        policy.noticed(Notice::Left { rank: 0 }, now);
        policy.noticed(Notice::Left { rank: 1 }, now);
        assert_eq!(policy.ended(&[(Rank(1), RankEnd::Exited(101))], None, now), []);
        let orders = policy.ended(&[(Rank(0), RankEnd::Exited(1))], None, now);
        assert_eq!(orders[1], say("rank 0 exited with code 1; ending the other rank"));
    }

    #[test]
    fn chains_of_losses_lead_to_their_beginning() {
        let (mut policy, now) = policy(4, false);
        policy.noticed(Notice::Lost { rank: 3, lost: 2 }, now);
        policy.noticed(Notice::Lost { rank: 2, lost: 1 }, now);
        let batch = [(Rank(3), RankEnd::Killed(6)), (Rank(2), RankEnd::Exited(1)), (Rank(1), RankEnd::Exited(9))];
        let orders = policy.ended(&batch, Some(Rank(3)), now);
        assert_eq!(orders[1], say("rank 1 exited with code 9; ending the other rank"));
        assert_eq!(policy.first_failure, Some(Rank(1)));
    }

    #[test]
    fn a_lost_rank_that_stays_is_not_awaited() {
        let (mut policy, now) = policy(3, false);
        policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
        policy.noticed(Notice::Lost { rank: 0, lost: 2 }, now);
        assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(1))], None, now), []);
        assert_eq!(policy.tick(now + SETTLE / 2), []);
        let line =
            "rank 2 exited with code 1 after it had lost rank 0, which still runs; ending the other 2 ranks";
        assert_eq!(policy.tick(now + SETTLE), [Order::Deliver(Signal::SIGTERM), say(line)]);
    }

    #[test]
    fn a_lost_rank_that_ended_well_is_named_with_the_failure() {
        let (mut policy, now) = policy(3, false);
        assert_eq!(policy.ended(&[(Rank(0), RankEnd::Exited(0))], None, now), []);
        policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
        let orders = policy.ended(&[(Rank(2), RankEnd::Exited(1))], None, now);
        let line = "rank 2 exited with code 1 after rank 0 had ended without finishing; ending the other rank";
        assert_eq!(orders[1], say(line));
    }

    #[test]
    fn a_later_crash_is_not_the_reason_of_an_earlier_failure() {
        let (mut policy, now) = policy(4, false);
        policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
        assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(1))], None, now), []);
        let later = now + Duration::from_secs(1);
        assert_eq!(policy.ended(&[(Rank(3), RankEnd::Killed(9))], None, later), []);
        let orders = policy.ended(&[(Rank(0), RankEnd::Exited(7))], None, later);
        let lines = [
            say("rank 0 exited with code 7; ending the other rank"),
            say("rank 3 was killed by signal 9 (SIGKILL)"),
        ];
        assert_eq!(orders[1..], lines);
        assert_eq!(policy.first_failure, Some(Rank(0)));
    }

    #[test]
    fn a_failure_before_the_job_is_ended_by_a_rank_counts() {
        let (mut policy, now) = policy(4, false);
        policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
        assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(3))], None, now), []);
        let orders = policy.noticed(Notice::Exit { rank: 1, code: 0 }, now);
        let line =
            "rank 2 exited with code 3 after it had lost rank 0, which still runs; ending the other 3 ranks";
        assert_eq!(orders, [Order::Deliver(Signal::SIGTERM), say(line)]);
        let ends = [(Rank(0), RankEnd::Killed(15)), (Rank(1), RankEnd::Exited(0)), (Rank(3), RankEnd::Killed(15))];
        assert_eq!(policy.ended(&ends, None, now), []);
        assert_eq!(policy.outcome().code(), 3);
    }

    #[test]
    fn failures_after_the_end_do_not_count() {
        // Rank 3 has lost rank 2, which has lost rank 1, which ends the job.
        let (mut policy, now) = policy(4, false);
        policy.noticed(Notice::Lost { rank: 2, lost: 1 }, now);
        policy.noticed(Notice::Lost { rank: 3, lost: 2 }, now);
        let batch = [(Rank(3), RankEnd::Exited(1)), (Rank(2), RankEnd::Exited(1))];
        assert_eq!(policy.ended(&batch, None, now), []);
        let orders = policy.noticed(Notice::Exit { rank: 1, code: 5 }, now);
        assert_eq!(orders, [say("rank 1 ended the job with code 5"), Order::Deliver(Signal::SIGTERM)]);
    }

    #[test]
    fn a_failure_before_the_time_was_up_counts() {
        let late = |now: Instant| now + Duration::from_secs(60);
        for keep_going in [false, true] {
            let (mut policy, now) = policy(3, keep_going);
            policy.noticed(Notice::Lost { rank: 2, lost: 0 }, now);
            assert_eq!(policy.ended(&[(Rank(2), RankEnd::Exited(3))], None, late(now) - SETTLE / 2), []);
            let orders = policy.tick(late(now));
            let mut line = "rank 2 exited with code 3 after it had lost rank 0, which still runs".to_owned();
            if keep_going {
                let over = say("the job's 60 s are over; ending 2 ranks");
                assert_eq!(orders, [say(&line), over, Order::Report]);
            } else {
                line += "; ending the other 2 ranks";
                assert_eq!(orders, [Order::Deliver(Signal::SIGTERM), say(&line)]);
                assert_eq!(policy.wake_at(), Some(late(now) + GRACE));
            }
            policy.ended(&[(Rank(0), RankEnd::Killed(15)), (Rank(1), RankEnd::Killed(15))], None, late(now));
            assert_eq!((policy.outcome().code(), policy.outcome().timed_out()), (3, keep_going));
        }
    }

    #[test]
    fn two_ranks_that_blame_each_other_fail_all_the_same() {
        let (mut policy, now) = policy(2, true);
        policy.noticed(Notice::Lost { rank: 0, lost: 1 }, now);
        policy.noticed(Notice::Lost { rank: 1, lost: 0 }, now);
        assert_eq!(policy.ended(&[(Rank(1), RankEnd::Exited(3))], None, now), []);
        let orders = policy.ended(&[(Rank(0), RankEnd::Exited(4))], None, now);
        assert_eq!(orders, [say("rank 1 exited with code 3"), say("rank 0 exited with code 4")]);
    }

    #[test]
    fn the_first_rank_that_ends_the_job_chooses_the_code() {
        let (mut policy, now) = policy(3, true);
        assert_eq!(
            policy.noticed(Notice::Exit { rank: 1, code: 5 }, now),
            [say("rank 1 ended the job with code 5"), Order::Deliver(Signal::SIGTERM)]
        );
        assert_eq!(policy.noticed(Notice::Exit { rank: 2, code: 6 }, now), []);
        let ends = [(Rank(1), RankEnd::Exited(5)), (Rank(2), RankEnd::Exited(6)), (Rank(0), RankEnd::Killed(15))];
        assert_eq!(policy.ended(&ends, None, now), []);
        assert_eq!((policy.outcome().code(), policy.outcome().first_failure()), (5, None));
    }

    #[test]
    fn a_job_may_end_well_before_its_ranks() {
        let (mut policy, now) = policy(2, false);
        assert_eq!(policy.noticed(Notice::Exit { rank: 1, code: 0 }, now), [Order::Deliver(Signal::SIGTERM)]);
        policy.ended(&[(Rank(1), RankEnd::Exited(0)), (Rank(0), RankEnd::Killed(15))], None, now);
        assert!(policy.outcome().is_success());
    }
}
