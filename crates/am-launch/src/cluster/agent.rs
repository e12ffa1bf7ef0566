//! The agent: `amrun` on one of a job's hosts. It gets its orders through its standard input, tells its launcher
//! what it has prepared, starts the ranks of its host, reports their ends, passes signals on, and dies with the
//! launcher.

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{read, setsid};
use zeroize::Zeroizing;

use crate::cluster::channel::{Channel, PROTOCOL};
use crate::cluster::listener::{ConnectError, connect};
use crate::cluster::message::{FromAgent, ORDERS_MAGIC, Orders, ToAgent};
use crate::codec::decode;
use crate::error::{LaunchError, system};
use crate::host::lifeline::Lifeline;
use crate::host::local_ranks::{Shared, Started};
use crate::host::output::{Merger, Source};
use crate::host::policy::asks_to_end;
use crate::host::signals::Signals;
use crate::host::spawn::restore_signals;
use crate::host::subreaper::Subreaper;
use crate::host::supervise::{ask_for_reports, deliver, place_of, reap};
use crate::interface::{Chosen, InterfaceWish, choose, interface_of};
use crate::outcome::{EXIT_LAUNCHER_FAILED, EXIT_USAGE};

/// The terminal's signals, which a launcher keeps from the commands that start its agents.
pub(crate) const TERMINAL_SIGNALS: &[Signal] = &[Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];
/// The longest orders: arguments and environment of a program together are at most a few megabytes.
const LONGEST_ORDERS: usize = 64 << 20;
/// How often a rank that does not take what it is told is tried again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs this process as the agent of a launcher on another host, until the host's ranks have ended or the launcher
/// is gone. For `amrun`, as which it is started there; returns the exit code.
///
/// What goes wrong before the launcher can be told is said in one line on standard error.
pub fn serve_as_agent() -> ExitCode {
    let orders = match read_orders() {
        Ok(orders) => orders,
        Err(reason) => {
            say(&format!("amrun --agent is what amrun starts on other hosts: {reason}"));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    // Of another launcher's process group, if it is on this host, too: only the launcher decides what the terminal
    // means.
    let _ = setsid();
    let outcome = restore_signals(TERMINAL_SIGNALS).and_then(|()| Signals::take());
    let run = outcome.map_err(system("signal handling")).and_then(|signals| Agent::run(&orders, &signals));
    ExitCode::from(run.unwrap_or_else(|error| {
        say(&format!("host {}: {error}", orders.name));
        error.code()
    }))
}

fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Reads the orders and not a byte more: what follows is rank 0's standard input.
fn read_orders() -> Result<Orders, String> {
    let mut head = [0; ORDERS_MAGIC.len() + 6];
    read_exactly(&mut head).map_err(|error| format!("no orders on its standard input ({error})"))?;
    let (magic, rest) = head.split_at(ORDERS_MAGIC.len());
    if magic != ORDERS_MAGIC {
        return Err("what its standard input has are no orders".into());
    }
    let (version, length) = rest.split_at(2);
    let version = u16::from_le_bytes([version[0], version[1]]);
    if version != PROTOCOL {
        let ours = env!("CARGO_PKG_VERSION");
        return Err(format!(
            "its orders are of version {version}, but amrun {ours} here is of version {PROTOCOL}: install one version on \
             every host, or name the right file with --remote-amrun"
        ));
    }
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > LONGEST_ORDERS {
        return Err(format!("orders of {length} bytes"));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    read_exactly(&mut bytes).map_err(|error| format!("its orders are cut off ({error})"))?;
    decode(&bytes).ok_or_else(|| "its orders make no sense".into())
}

/// Reads past the standard library's buffer, which would take more than was asked for.
fn read_exactly(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match read(io::stdin().as_fd(), bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => bytes = &mut bytes[length..],
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A running agent.
struct Agent<'a> {
    orders: &'a Orders,
    signals: &'a Signals,
    channel: Channel,
    spoke: Instant,
    /// When this agent last looked around.
    awake: Instant,
    /// What the launcher has said together with the permission to start.
    early: Vec<ToAgent>,
}

/// Why an agent stops before its ranks have ended.
enum Stop {
    /// The launcher is gone, or wants no more of it.
    Abandoned,
    /// This is what the launcher has to know.
    Failed(LaunchError),
}

impl From<LaunchError> for Stop {
    fn from(error: LaunchError) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Agent<'a> {
    fn run(orders: &'a Orders, signals: &'a Signals) -> Result<u8, LaunchError> {
        let channel =
            connect(&orders.launcher_addresses, &orders.secret, orders.connect_timeout).map_err(unreachable)?;
        let now = Instant::now();
        let mut agent = Self { orders, signals, channel, spoke: now, awake: now, early: Vec::new() };
        match agent.work() {
            Ok(()) => Ok(0),
            Err(Stop::Abandoned) => Ok(EXIT_LAUNCHER_FAILED),
            Err(Stop::Failed(error)) => {
                let (code, reason) = (error.code(), error.to_string());
                agent.tell(&FromAgent::Failed { host: orders.host, code, reason });
                agent.part();
                Ok(code)
            }
        }
    }

    /// Everything between the first and the last word.
    fn work(&mut self) -> Result<(), Stop> {
        let orders = self.orders;
        let Chosen { address, interface } = self.address()?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.tell(&FromAgent::Ready { host: orders.host, version, address, interface });

        let manifest = self.permission()?;
        let lifeline = Lifeline::new().map_err(system("a pipe"))?;
        let subreaper = Subreaper::begin().map_err(system("adopting orphans"))?;
        let shared = Shared { manifest: &manifest, lifeline: &lifeline, signals: self.signals };
        let mut started = orders.local_ranks.start(shared)?;
        let merger = match std::mem::take(&mut started.pipes) {
            pipes if pipes.is_empty() => None,
            pipes => {
                let sources = pipes.into_iter().map(Source::of_rank).collect();
                Some(Merger::start(sources).map_err(system("the output thread"))?)
            }
        };
        self.supervise(&mut started, &subreaper)?;
        // Nothing is said meanwhile, so that this must not take until the launcher gives this host up.
        subreaper.end(self.signals, orders.grace.min(orders.lost_after / 2));
        if let Some(mut merger) = merger {
            merger.drain();
            // A reader far away may take its time; the launcher has to know meanwhile that this host is well.
            while !merger.is_finished() {
                self.receive([merger.finished()], None)?;
                while self.signals.next().is_some() {}
            }
            merger.join();
        }
        self.tell(&FromAgent::Over);
        self.part();
        Ok(())
    }

    /// The address for traffic to other hosts.
    fn address(&self) -> Result<Chosen, LaunchError> {
        if let Some(wish) = &self.orders.interface {
            let wish: InterfaceWish = wish.parse().map_err(|reason| LaunchError::Interface { reason })?;
            return choose(&wish).map_err(|error| LaunchError::Interface { reason: error.to_string() });
        }
        let address: IpAddr = match self.orders.address {
            Some(address) => address,
            // The one by which this host reaches the launcher.
            None => self.channel.local_address().map_err(system("the connection's address"))?.ip().to_canonical(),
        };
        Ok(Chosen { address, interface: interface_of(address) })
    }

    /// Waits until all hosts are ready and the launcher says so.
    fn permission(&mut self) -> Result<crate::manifest::JobManifest, Stop> {
        loop {
            let mut messages = self.receive([], None)?.into_iter();
            while let Some(message) = messages.next() {
                if let ToAgent::Start(mut manifest) = message {
                    // A job may end as soon as the first of its ranks runs, on another host.
                    self.early = messages.collect();
                    // The launcher leaves it out, since both ends have it.
                    manifest.secret = self.orders.secret.clone();
                    return Ok(manifest);
                }
            }
            while let Some(arrival) = self.signals.next() {
                if asks_to_end(arrival.signal) {
                    return Err(Stop::Abandoned);
                }
            }
        }
    }

    /// Watches the ranks until the last one has ended.
    fn supervise(&mut self, started: &mut Started, subreaper: &Subreaper) -> Result<(), Stop> {
        let (rank_of, all) = (started.members.clone(), self.orders.local_ranks.ranks as usize);
        let Started { ranks, places, links, notices, .. } = started;
        // What has come so far of an exchange's parts.
        let mut gathered = Vec::new();
        while ranks.iter().any(Option::is_some) {
            let mut first = None;
            let messages = match std::mem::take(&mut self.early) {
                early if early.is_empty() => {
                    let again = links.is_behind().then_some(LOOK_EVERY);
                    self.receive(links.ends().chain([notices.arrivals()]), again)
                }
                early => Ok(early),
            };
            while let Some(arrival) = self.signals.next() {
                if arrival.signal == Signal::SIGCHLD {
                    first = first.or(place_of(ranks, places, arrival.sender));
                } else {
                    deliver(ranks, arrival.signal);
                }
            }
            let ended = reap(ranks, places, self.signals.is_alone());
            // After that: what a rank said last is there once it has ended.
            for (place, part) in links.poll() {
                self.tell(&FromAgent::Part { rank: rank_of[place], part });
            }
            let done: Vec<u32> = links.take_done().into_iter().map(|place| rank_of[place]).collect();
            if !done.is_empty() {
                links.announce_done(&done);
                self.tell(&FromAgent::Done(done));
            }
            // After the ranks were reaped, so that the notices of those that have ended are told before their
            // ends.
            let said = notices.receive(&rank_of);
            if !said.is_empty() {
                self.tell(&FromAgent::Notices(said));
            }
            if !ended.is_empty() {
                let ends = ended.iter().map(|&(place, end)| (rank_of[place], end)).collect();
                let left =
                    ended.iter().filter(|(place, _)| links.has_left(*place)).map(|(place, _)| rank_of[*place]);
                let (first, left) = (first.map(|place| rank_of[place]), left.collect());
                self.tell(&FromAgent::Ended { ends, first, left });
            }
            subreaper.reap(ranks);
            // Dropping the ranks, as an error does, kills them; what they left behind goes the same way.
            let messages = messages.inspect_err(|_| {
                deliver(ranks, Signal::SIGKILL);
                while reap_all(ranks) {}
                subreaper.end(self.signals, Duration::ZERO);
            })?;
            for message in messages {
                match message {
                    ToAgent::Gathered { parts, more } => {
                        gathered.extend(parts.0);
                        if gathered.len() > all {
                            return Err(
                                system("an exchange")(io::Error::other("it has more parts than ranks")).into()
                            );
                        }
                        if !more {
                            links.answer(&std::mem::take(&mut gathered));
                        }
                    }
                    ToAgent::Died(ranks) => links.announce_failures(&ranks),
                    ToAgent::Signal(number) => {
                        if let Ok(signal) = Signal::try_from(number) {
                            deliver(ranks, signal);
                        }
                    }
                    ToAgent::Report => drop(ask_for_reports(ranks)),
                    ToAgent::Start(_) | ToAgent::Alive => {}
                }
            }
        }
        Ok(())
    }

    /// Sleeps until the launcher says something, a signal arrives, one of the `others` is ready, it is time for a
    /// word of one's own, or to look `again`; returns what the launcher has said.
    fn receive<'b>(
        &mut self,
        others: impl IntoIterator<Item = BorrowedFd<'b>>,
        again: Option<Duration>,
    ) -> Result<Vec<ToAgent>, Stop> {
        let interval = heartbeat(self.orders.lost_after);
        let lost_at = self.channel.last_received() + self.orders.lost_after;
        let wake = lost_at.min(self.spoke + interval);
        let left = wake.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let left = again.map_or(left, |again| again.min(left));
        let mut ends = vec![
            PollFd::new(self.signals.arrivals(), PollFlags::POLLIN),
            PollFd::new(self.channel.as_fd(), self.channel.interest()),
        ];
        ends.extend(others.into_iter().map(|end| PollFd::new(end, PollFlags::POLLIN)));
        let _ = poll(&mut ends, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        // Who was stopped for so long, alone or with the launcher, can't tell whether the launcher is lost.
        if held_up(&mut self.awake, self.orders.lost_after) {
            self.channel.excuse();
        }
        if self.spoke.elapsed() >= interval {
            self.tell(&FromAgent::Alive);
        }
        let messages = self.channel.pump().map_err(|_| Stop::Abandoned)?;
        if self.channel.last_received().elapsed() > self.orders.lost_after {
            // Nor can who was stopped since.
            if !held_up(&mut self.awake, self.orders.lost_after) {
                return Err(Stop::Abandoned);
            }
            self.channel.excuse();
        }
        Ok(messages)
    }

    fn tell(&mut self, message: &FromAgent) {
        self.spoke = Instant::now();
        self.channel.send(message);
    }

    /// Waits until the launcher has taken the last words, as long as a launcher may be silent.
    fn part(&mut self) {
        self.channel.part::<ToAgent>(Instant::now() + self.orders.lost_after);
    }
}

/// How often each end says that it is there.
pub(crate) fn heartbeat(lost_after: Duration) -> Duration {
    (lost_after / 4).min(Duration::from_secs(2))
}

/// Whether this process was kept from looking around, which it does at every heartbeat, since it last did.
pub(crate) fn held_up(awake: &mut Instant, lost_after: Duration) -> bool {
    std::mem::replace(awake, Instant::now()).elapsed() > lost_after / 2
}

/// Waits for killed ranks; returns whether one is left.
fn reap_all(ranks: &mut [Option<std::process::Child>]) -> bool {
    if let Some(slot) = ranks.iter_mut().find(|slot| slot.is_some()) {
        let _ = slot.as_mut().map(std::process::Child::wait);
        *slot = None;
        return true;
    }
    false
}

fn unreachable(error: ConnectError) -> LaunchError {
    let remedy = match error {
        ConnectError::Unreachable { .. } => {
            "; is there a firewall between the hosts? --interface chooses another address, --port a port that is open"
        }
        ConnectError::Refused { .. } => "",
    };
    LaunchError::NoLauncher { reason: format!("{error}{remedy}") }
}
