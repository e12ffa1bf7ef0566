//! The launcher's loop: receives signals, reaps ranks and carries out what the policy orders, sleeping in between.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::errno::Errno;
use nix::sched::sched_getaffinity;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::control_links::Allgather;
use crate::error::{LaunchError, system};
use crate::host::local_ranks::{Places, Started};
use crate::host::output::{Merger, Source, is_read};
use crate::host::policy::{Order, Policy, asks_to_end};
use crate::host::signals::{Arrival, Signals, wait};
use crate::host::subreaper::Subreaper;
use crate::intervals::Intervals;
use crate::outcome::{EXIT_LAUNCHER_FAILED, Outcome, RankEnd};
use crate::spec::JobSpec;

/// How often a launcher looks after its ranks where other threads of its process may swallow the SIGCHLD meant for
/// it, or while a rank does not take what it is told.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Watches started ranks until the last one has ended and its output is passed on.
pub(crate) fn supervise(
    spec: &JobSpec,
    mut started: Started,
    signals: &Signals,
    subreaper: Option<&Subreaper>,
) -> Result<Outcome, LaunchError> {
    let merger = match std::mem::take(&mut started.pipes) {
        pipes if pipes.is_empty() => None,
        pipes => {
            let sources = pipes.into_iter().map(Source::of_rank).collect();
            Some(Merger::start(sources).map_err(system("the output thread"))?)
        }
    };
    describe(spec, &started);
    let began = Instant::now();
    let Started { members, ranks, places, links, notices, .. } = &mut started;
    let mut exchange = Allgather::new(ranks.len() as u32);
    let mut policy = Policy::new(ranks.len() as u32, spec.rules(), Instant::now());
    while !policy.is_over() {
        // SIGCHLD is blocked since before the first rank started, so no end can slip through before this wait.
        let look_at = (!signals.is_alone() || links.is_behind()).then(|| Instant::now() + LOOK_EVERY);
        let ends = links.ends().chain([notices.arrivals()]);
        wait(signals, ends, policy.wake_at().into_iter().chain(look_at).min());
        let mut first = None;
        while let Some(Arrival { signal, sender, from_terminal }) = signals.next() {
            if signal == Signal::SIGCHLD {
                // While a SIGCHLD is pending others are dropped: it is the first since the last look that names
                // its child.
                first = first.or(place_of(ranks, places, sender).map(|rank| Rank(rank as u32)));
            } else {
                let orders = policy.signalled(signal, from_terminal, Instant::now());
                obey(spec, ranks, &mut policy, orders);
            }
        }
        let ended =
            reap(ranks, places, signals.is_alone()).into_iter().map(|(place, end)| (Rank(place as u32), end));
        let ended: Vec<_> = ended.collect();
        links.poll().into_iter().for_each(|(rank, part)| exchange.note(rank as u32, part));
        // Nobody has to wait for the dead, nor for those that are done: that they are lost shows later.
        let done: Vec<u32> = links.take_done().into_iter().map(|place| place as u32).collect();
        links.announce_done(&done);
        for rank in ended.iter().map(|(rank, _)| rank.0).chain(done) {
            exchange.lose(rank);
        }
        while let Some(parts) = exchange.complete() {
            links.answer(&parts);
        }
        // Also those that exit with 0: whoever has not taken leave before is lost.
        let lost = ended.iter().filter(|(rank, end)| !(end.is_success() && links.has_left(rank.0 as usize)));
        let lost: Vec<u32> = lost.map(|(rank, _)| rank.0).collect();
        links.announce_failures(&lost);
        for (rank, end) in &ended {
            spec.log_verbose(&format!("rank {rank} {end} after {:.3} s", began.elapsed().as_secs_f64()));
        }
        // After the ranks were reaped, so that the notices of those that have ended are all there.
        for notice in notices.receive(members) {
            let orders = policy.noticed(notice, Instant::now());
            obey(spec, ranks, &mut policy, orders);
        }
        let orders = policy.ended(&ended, first, Instant::now());
        obey(spec, ranks, &mut policy, orders);
        let orders = policy.tick(Instant::now());
        obey(spec, ranks, &mut policy, orders);
        if let Some(subreaper) = subreaper {
            subreaper.reap(ranks);
        }
    }
    if let Some(subreaper) = subreaper {
        subreaper.end(signals, spec.rules().grace);
    }
    if let Some(merger) = merger {
        finish_output(merger, signals);
    }
    Ok(policy.outcome())
}

/// Says who was started, for those who want to know more.
fn describe(spec: &JobSpec, started: &Started) {
    for (rank, child) in started.members.iter().zip(&started.ranks) {
        let Some(child) = child else { continue };
        let processors = sched_getaffinity(pid(child)).map(|set| Intervals::of_processors(&set).to_string());
        let processors = processors.unwrap_or_else(|_| "unknown".into());
        spec.log_verbose(&format!("rank {rank} is process {}, processors {processors}", child.id()));
    }
}

/// The place among the ranks of the process with this number.
pub(crate) fn place_of(ranks: &[Option<Child>], places: &Places, process: u32) -> Option<usize> {
    places.get(&process).copied().filter(|&place| ranks[place].is_some())
}

/// The places of the ranks that have ended since the last call, in order, and how.
///
/// The system names the children that have ended, so this takes as long as their number. Each rank is asked only
/// where that does not do: `alone` is false, so other threads may collect children, or a child that is no rank has
/// ended, behind which the system does not look.
pub(crate) fn reap(ranks: &mut [Option<Child>], places: &Places, alone: bool) -> Vec<(usize, RankEnd)> {
    let mut ended = Vec::new();
    let named = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut ask_all = !alone;
    while !ask_all {
        match waitid(Id::All, named).map(|status| status.pid()) {
            Ok(None) => break,
            Ok(Some(process)) => {
                let place = place_of(ranks, places, process.as_raw() as u32);
                let end = place.and_then(|place| Some((place, end_of(&mut ranks[place])?)));
                ask_all = end.is_none();
                ended.extend(end);
            }
            Err(Errno::EINTR) => {}
            // There is no child.
            Err(_) => ask_all = true,
        }
    }
    if ask_all {
        let asked = ranks.iter_mut().enumerate();
        ended.extend(asked.filter_map(|(place, slot)| Some((place, end_of(slot)?))));
    }
    ended.sort_unstable_by_key(|&(place, _)| place);
    ended
}

/// How a rank has ended, once, if it has.
fn end_of(slot: &mut Option<Child>) -> Option<RankEnd> {
    let end = match slot.as_mut()?.try_wait() {
        Ok(None) => return None,
        Ok(Some(status)) => RankEnd::from(status),
        // Somebody else in this process waited for it; its end is known, its code is not.
        Err(_) => RankEnd::Exited(EXIT_LAUNCHER_FAILED),
    };
    *slot = None;
    Some(end)
}

fn obey(spec: &JobSpec, ranks: &[Option<Child>], policy: &mut Policy, orders: Vec<Order>) {
    for order in orders {
        match order {
            Order::Say(line) => spec.say(&line),
            Order::SayIfRead(line) if is_read() => spec.say(&line),
            Order::SayIfRead(_) => {}
            Order::Deliver(signal) => deliver(ranks, signal),
            Order::Report => {
                if ask_for_reports(ranks) == 0 {
                    let orders = policy.reported(Instant::now());
                    obey(spec, ranks, policy, orders);
                }
            }
        }
    }
}

/// Sends SIGQUIT to the ranks that have a handler for it, and would not be killed; returns how many have.
pub(crate) fn ask_for_reports(ranks: &[Option<Child>]) -> usize {
    let able = ranks.iter().flatten().filter(|child| handles(child.id(), Signal::SIGQUIT));
    able.filter(|child| kill(pid(child), Signal::SIGQUIT).is_ok()).count()
}

/// Whether a process has a handler for a signal.
fn handles(process: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & 1 << (signal as u64 - 1) != 0)
}

/// Sends a signal to every rank that lives.
pub(crate) fn deliver(ranks: &[Option<Child>], signal: Signal) {
    // A rank that hasn't been waited for keeps its process id, so the signal can't reach a stranger.
    ranks.iter().flatten().for_each(|child| {
        let _ = kill(pid(child), signal);
    });
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Lets the output thread pass on what the ranks left, unless the user has had enough of a reader that is stuck.
pub(crate) fn finish_output(mut merger: Merger, signals: &Signals) {
    merger.drain();
    loop {
        if wait(signals, [merger.finished()], None) {
            return merger.join();
        }
        while let Some(arrival) = signals.next() {
            if asks_to_end(arrival.signal) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Children of this process that are no ranks, those of other tests among them, hide no rank.
    #[test]
    fn each_rank_is_reaped_once() {
        for alone in [true, false] {
            let start = |code: usize| Command::new("sh").args(["-c", &format!("exit {code}")]).spawn().unwrap();
            let mut other = start(9);
            let mut ranks: Vec<_> = (0..4).map(|code| Some(start(code))).collect();
            let running = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            ranks.push(Some(running));
            let places: Places =
                (0..).zip(&ranks).map(|(place, child)| (child.as_ref().unwrap().id(), place)).collect();
            let mut ended = Vec::new();
            while ended.len() < 4 {
                ended.extend(reap(&mut ranks, &places, alone));
            }
            ended.sort_unstable_by_key(|&(place, _)| place);
            let expected: Vec<_> = (0..4).map(|code| (code, RankEnd::Exited(code as u8))).collect();
            assert_eq!(ended, expected);
            assert_eq!(reap(&mut ranks, &places, alone), []);
            let mut running = ranks.pop().flatten().expect("it has not ended");
            assert!(place_of(&ranks, &places, 0).is_none());
            drop(running.stdin.take());
            running.wait().unwrap();
            assert_eq!(other.wait().unwrap().code(), Some(9), "it was left alone");
        }
    }
}
