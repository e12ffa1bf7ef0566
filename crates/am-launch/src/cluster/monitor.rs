//! The launcher's loop of a job on several hosts: receives signals and agents, and carries out what the policy
//! orders.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::cluster::agent::{heartbeat, held_up};
use crate::cluster::channel::Channel;
use crate::cluster::host_state::HostState;
use crate::cluster::message::{FromAgent, ToAgent, in_messages};
use crate::cluster::options::Hosts;
use crate::cluster::place::place;
use crate::cluster::start::ClusterStart;
use crate::control_links::{Allgather, LONGEST_PART};
use crate::error::{LaunchError, system};
use crate::host::output::{Merger, Source, Stream, is_read};
use crate::host::policy::{Order, Policy, asks_to_end};
use crate::host::signals::Signals;
use crate::host::supervise::finish_output;
use crate::outcome::{Outcome, RankEnd};
use crate::spec::JobSpec;

/// How long a host may take to report the ends of killed ranks, and an agent to follow its last word.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Starts a launcher's ranks on several hosts and waits until the last one has ended.
pub(crate) fn launch(spec: &JobSpec, hosts: &Hosts) -> Result<Outcome, LaunchError> {
    let ranks = spec.ranks;
    let places = place(&hosts.list, ranks, hosts.placement)?;
    let signals = Signals::take().map_err(system("signal handling"))?;
    let mut states = ClusterStart::begin(spec, hosts, &places, &signals)?.complete()?;
    let merger = Merger::start(sources(&mut states)).map_err(system("the output thread"))?;
    let now = Instant::now();
    let policy = Policy::new(ranks, spec.rules(), now);
    let monitors = states.into_iter().map(|state| HostMonitor::new(state, now)).collect();
    let exchange = Allgather::new(ranks);
    let signals = &signals;
    let mut watch = ClusterMonitor {
        spec,
        hosts,
        signals,
        policy,
        exchange,
        monitors,
        killed: None,
        spoke: now,
        awake: now,
        failed: None,
    };
    watch.run(&merger);
    watch.part(&merger);
    let ClusterMonitor { monitors, policy, failed, .. } = watch;
    // Whatever is left of an agent or a remote command ends here, and with it what holds its output open.
    drop(monitors);
    finish_output(merger, signals);
    match failed {
        Some(error) => Err(error),
        None => Ok(policy.outcome()),
    }
}

/// The output of all hosts.
fn sources(states: &mut [HostState]) -> Vec<Source> {
    let of_site = |state: &mut HostState| {
        let said = std::mem::take(&mut state.said);
        let out = state.out.take().map(|pipe| Source::of_host(Stream::Out, pipe, Vec::new()));
        let err = state.err.take().map(|pipe| Source::of_host(Stream::Err, pipe.into(), said));
        out.into_iter().chain(err)
    };
    states.iter_mut().flat_map(of_site).collect()
}

/// One host while its ranks run.
struct HostMonitor {
    state: HostState,
    /// The ranks whose end is not known.
    live: Vec<u32>,
    over: bool,
    last_received: Instant,
}

impl HostMonitor {
    fn new(state: HostState, now: Instant) -> Self {
        Self { live: state.ranks.clone(), state, over: false, last_received: now }
    }

    /// Whether there is nothing more to receive from it.
    fn is_done(&self) -> bool {
        self.over || self.state.channel.is_none()
    }
}

struct ClusterMonitor<'a> {
    spec: &'a JobSpec,
    hosts: &'a Hosts,
    signals: &'a Signals,
    policy: Policy,
    exchange: Allgather,
    monitors: Vec<HostMonitor>,
    /// When every rank was told to die.
    killed: Option<Instant>,
    spoke: Instant,
    /// When this launcher last looked around.
    awake: Instant,
    /// A host could not start its ranks.
    failed: Option<LaunchError>,
}

impl ClusterMonitor<'_> {
    fn run(&mut self, merger: &Merger) {
        let mut over_since = None;
        while !(self.policy.is_over() && self.monitors.iter().all(HostMonitor::is_done)) {
            self.sleep();
            while let Some(arrival) = self.signals.next() {
                if arrival.signal != Signal::SIGCHLD {
                    // The agents are out of the terminal's reach, so they need every signal from here.
                    let orders = self.policy.signalled(arrival.signal, false, Instant::now());
                    self.obey(orders);
                }
            }
            let excused = held_up(&mut self.awake, self.hosts.lost_after);
            self.receive();
            if excused {
                self.excuse();
            }
            self.miss();
            while let Some(parts) = self.exchange.complete() {
                for (parts, more) in in_messages(&parts) {
                    self.tell(&ToAgent::Gathered { parts, more });
                }
            }
            let now = Instant::now();
            let orders = self.policy.tick(now);
            self.obey(orders);
            if self.spoke.elapsed() >= heartbeat(self.hosts.lost_after) {
                self.tell(&ToAgent::Alive);
            }
            if self.failed.is_some() {
                return;
            }
            if self.policy.is_over() {
                // Agents still end what their ranks left behind; that takes a grace period at most. Output takes
                // as long as its reader.
                if merger.is_writing() {
                    over_since = None;
                }
                let since = *over_since.get_or_insert(now);
                if now.saturating_duration_since(since) > self.spec.rules().grace.saturating_add(KILL_GRACE) {
                    return;
                }
            }
        }
    }

    /// Lets the remote commands of hosts that are done bring what is left of the output, as long as its reader
    /// takes it and the user doesn't mind.
    fn part(&mut self, merger: &Merger) {
        self.monitors.iter_mut().for_each(|monitor| monitor.state.channel = None);
        let mut stuck_since = Instant::now();
        loop {
            self.monitors.iter_mut().for_each(|monitor| monitor.state.look());
            let waiting = self.monitors.iter().any(|monitor| monitor.over && monitor.state.ended.is_none());
            if merger.is_writing() {
                stuck_since = Instant::now();
            }
            if !waiting || self.failed.is_some() || stuck_since.elapsed() > KILL_GRACE {
                return;
            }
            self.signals.wait(Instant::now() + Duration::from_millis(100));
            while let Some(arrival) = self.signals.next() {
                if asks_to_end(arrival.signal) {
                    return;
                }
            }
        }
    }

    /// Receives what agents report.
    fn receive(&mut self) {
        for index in 0..self.monitors.len() {
            let monitor = &mut self.monitors[index];
            let Some(channel) = &mut monitor.state.channel else { continue };
            match channel.pump::<FromAgent>() {
                Ok(words) => {
                    monitor.last_received = channel.last_received();
                    words.into_iter().for_each(|word| self.take(index, word));
                }
                Err(_) if monitor.over => monitor.state.channel = None,
                Err(error) => self.lose(index, &error.to_string()),
            }
        }
    }

    fn take(&mut self, index: usize, word: FromAgent) {
        let monitor = &mut self.monitors[index];
        match word {
            FromAgent::Ended { ends, first, left } => {
                // An agent speaks for its own ranks, and for each of them once.
                let mut known: Vec<(Rank, RankEnd)> = Vec::new();
                for (rank, end) in ends {
                    if let Some(place) = monitor.live.iter().position(|&live| live == rank) {
                        monitor.live.remove(place);
                        known.push((Rank(rank), end));
                    }
                }
                // Nobody has to wait for the dead: that they are lost shows later.
                known.iter().for_each(|(rank, _)| {
                    self.exchange.lose(rank.0);
                });
                for (rank, end) in &known {
                    self.spec.log_verbose(&format!("rank {rank} {end}"));
                }
                self.announce_failures(&known, &left);
                let orders = self.policy.ended(&known, first.map(Rank), Instant::now());
                self.obey(orders);
            }
            FromAgent::Notices(notices) => {
                let ours = notices.into_iter().filter(|notice| monitor.state.ranks.contains(&notice.rank()));
                for notice in ours.collect::<Vec<_>>() {
                    let orders = self.policy.noticed(notice, Instant::now());
                    self.obey(orders);
                }
            }
            FromAgent::Part { rank, part } => {
                if monitor.state.ranks.contains(&rank) && part.len() <= LONGEST_PART {
                    self.exchange.note(rank, part);
                }
            }
            FromAgent::Done(ranks) => {
                // Nobody has to wait for those that take no part any more.
                let ours = ranks.into_iter().filter(|rank| monitor.state.ranks.contains(rank));
                ours.for_each(|rank| {
                    self.exchange.lose(rank);
                });
            }
            FromAgent::Over => {
                monitor.over = true;
                if monitor.live.is_empty() {
                    // The agent waits for that: then it knows that its last word is here.
                    monitor.state.channel = None;
                } else {
                    self.lose(index, "its agent ended without a word about them");
                }
            }
            FromAgent::Failed { code, reason, .. } => {
                let host = monitor.state.name.clone();
                self.failed.get_or_insert(LaunchError::Host { host, reason, code });
            }
            FromAgent::Alive | FromAgent::Ready { .. } => {}
        }
    }

    /// Gives up hosts that are silent, whose remote command has ended, or that don't obey.
    fn miss(&mut self) {
        for index in 0..self.monitors.len() {
            let monitor = &mut self.monitors[index];
            monitor.state.look();
            if monitor.is_done() {
                continue;
            }
            let late = monitor.last_received.elapsed() > self.hosts.lost_after;
            // Who was stopped a moment ago may have missed what was said.
            if late && held_up(&mut self.awake, self.hosts.lost_after) {
                self.excuse();
                return;
            }
            let ended = monitor.state.ended.filter(|(_, at)| at.elapsed() > Duration::from_secs(1));
            if late {
                let seconds = self.hosts.lost_after.as_secs_f64();
                self.lose(index, &format!("nothing was heard of it for {seconds} s; is the network up?"));
            } else if let Some((status, _)) = ended {
                self.lose(index, &format!("its remote command {}", RankEnd::from(status)));
            } else if self.killed.is_some_and(|at| at.elapsed() > KILL_GRACE) {
                self.lose(index, "it does not answer");
            }
        }
    }

    /// This launcher was held up: that time is nobody's silence.
    fn excuse(&mut self) {
        let channels = self.monitors.iter_mut().filter_map(|monitor| monitor.state.channel.as_mut());
        channels.for_each(Channel::excuse);
        self.monitors.iter_mut().for_each(|monitor| monitor.last_received = Instant::now());
    }

    /// A host is lost, and with it those of its ranks that had not ended. They die there when the agent misses its
    /// launcher.
    fn lose(&mut self, index: usize, reason: &str) {
        let monitor = &mut self.monitors[index];
        monitor.state.channel = None;
        let ends: Vec<_> =
            std::mem::take(&mut monitor.live).into_iter().map(|rank| (Rank(rank), RankEnd::Lost)).collect();
        ends.iter().for_each(|(rank, _): &(Rank, RankEnd)| {
            self.exchange.lose(rank.0);
        });
        self.announce_failures(&ends, &[]);
        let line = format!("host {} was lost: {reason}", self.monitors[index].state.name);
        self.spec.say(&line);
        let orders = self.policy.ended(&ends, None, Instant::now());
        self.obey(orders);
    }

    /// Tells all hosts who has died, so that nobody has to find it out by silence: whoever failed, or did not take
    /// leave.
    fn announce_failures(&mut self, ends: &[(Rank, RankEnd)], left: &[u32]) {
        let proper = |rank: Rank, end: RankEnd| end.is_success() && left.contains(&rank.0);
        let dead: Vec<u32> =
            ends.iter().filter(|&&(rank, end)| !proper(rank, end)).map(|(rank, _)| rank.0).collect();
        if !dead.is_empty() {
            self.tell(&ToAgent::Died(dead));
        }
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Say(line) => self.spec.say(&line),
                Order::SayIfRead(line) if is_read() => self.spec.say(&line),
                Order::SayIfRead(_) => {}
                Order::Report => self.tell(&ToAgent::Report),
                Order::Deliver(signal) => {
                    if signal == Signal::SIGKILL {
                        self.killed.get_or_insert_with(Instant::now);
                    }
                    self.tell(&ToAgent::Signal(signal as i32));
                }
            }
        }
    }

    fn tell(&mut self, message: &ToAgent) {
        self.spoke = Instant::now();
        for channel in self.monitors.iter_mut().filter_map(|monitor| monitor.state.channel.as_mut()) {
            channel.send(message);
        }
    }

    /// Sleeps until something has happened or is due.
    fn sleep(&self) {
        let now = Instant::now();
        let mut wake = self.spoke + heartbeat(self.hosts.lost_after);
        wake = self.policy.wake_at().map_or(wake, |at| at.min(wake));
        for monitor in self.monitors.iter().filter(|monitor| !monitor.is_done()) {
            wake = wake.min(monitor.last_received + self.hosts.lost_after);
            // What is due soon after such an event needs no exact time.
            if monitor.state.ended.is_some() || self.killed.is_some() || self.policy.is_over() {
                wake = wake.min(now + Duration::from_millis(100));
            }
        }
        let mut ends = vec![PollFd::new(self.signals.arrivals(), PollFlags::POLLIN)];
        let channels = self.monitors.iter().filter_map(|monitor| monitor.state.channel.as_ref());
        ends.extend(channels.map(|channel| PollFd::new(channel.as_fd(), channel.interest())));
        let left = wake.saturating_duration_since(now) + Duration::from_millis(1);
        let _ = poll(&mut ends, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    }
}
