//! The start of a job on several hosts: an agent on each, all of them at the launcher's listener, and then the
//! ranks.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cluster::agent::{TERMINAL_SIGNALS, heartbeat};
use crate::cluster::channel::{Channel, PROTOCOL};
use crate::cluster::host_state::HostState;
use crate::cluster::launcher_addresses::{Meaning, addresses_for, check_addresses, is_here, meaning};
use crate::cluster::list::HostSpec;
use crate::cluster::listener::Listener;
use crate::cluster::message::{FromAgent, ORDERS_MAGIC, Orders, ToAgent};
use crate::cluster::options::{Hosts, default_start_limit};
use crate::codec::encode;
use crate::error::{LaunchError, ListenError, system};
use crate::host::local_ranks::LocalRanks;
use crate::host::policy::asks_to_end;
use crate::host::signals::Signals;
use crate::host::spawn::shield;
use crate::manifest::{HostEntry, JobManifest};
use crate::outcome::EXIT_LAUNCHER_FAILED;
use crate::secret::Secret;
use crate::spec::{JobSpec, job_id};

/// The argument that makes `amrun` an agent.
pub(crate) const AGENT_FLAG: &str = "--agent";
/// How long an agent's report may be under way when its remote command has ended.
const LAG: Duration = Duration::from_millis(500);

/// All hosts of a job that is being started.
pub(crate) struct ClusterStart<'a> {
    spec: &'a JobSpec,
    hosts: &'a Hosts,
    signals: &'a Signals,
    secret: Secret,
    listener: Listener,
    pub(crate) states: Vec<HostState>,
    /// The state of each rank.
    places: Vec<u32>,
    /// Agents that have not said which host they are on.
    unidentified: Vec<Channel>,
    /// When the agents that are ready were last told that the launcher is there.
    spoke: Instant,
}

impl<'a> ClusterStart<'a> {
    /// Starts an agent on every host that gets a rank.
    pub(crate) fn begin(
        spec: &'a JobSpec,
        hosts: &'a Hosts,
        places: &[u32],
        signals: &'a Signals,
    ) -> Result<Self, LaunchError> {
        // Hosts without ranks take no part.
        let used: Vec<u32> = (0..hosts.list.len() as u32).filter(|host| places.contains(host)).collect();
        let specs: Vec<&HostSpec> = used.iter().map(|&host| &hosts.list[host as usize]).collect();
        let looked_up: Vec<(&HostSpec, Meaning)> = specs.iter().map(|&host| (host, meaning(host))).collect();
        let launcher_addresses = addresses_for(&looked_up, hosts.interface.as_ref());
        let secret = Secret::random().map_err(system("the job's secret"))?;
        let listener =
            Listener::open((listen_at(&launcher_addresses), hosts.port).into(), &secret).or_else(|error| {
                match error {
                    // A host without IPv6.
                    ListenError::System(address, _) if address.is_ipv6() => {
                        Listener::open(([0; 4], hosts.port).into(), &secret)
                    }
                    error => Err(error),
                }
            })?;
        let port = listener.port().map_err(system("the rendezvous port"))?;
        launcher_addresses.iter().filter_map(|(_, note)| note.as_ref()).for_each(|note| spec.say(note));

        let place_of = |host: u32| used.iter().position(|&other| other == host).expect("used hosts only") as u32;
        let places: Vec<u32> = places.iter().map(|&host| place_of(host)).collect();
        let mut start = Self {
            spec,
            hosts,
            signals,
            secret,
            listener,
            states: Vec::new(),
            places,
            unidentified: Vec::new(),
            spoke: Instant::now(),
        };
        for (host, ((spec, meaning), (addresses, _))) in looked_up.iter().zip(launcher_addresses).enumerate() {
            let here = hosts.remote.is_default() && is_here(*meaning);
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
            let state = start.start_agent(host as u32, spec, addresses, here)?;
            start.states.push(state);
        }
        Ok(start)
    }

    fn start_agent(
        &self,
        host: u32,
        spec: &HostSpec,
        launcher_addresses: Vec<SocketAddr>,
        here: bool,
    ) -> Result<HostState, LaunchError> {
        let ranks: Vec<u32> =
            (0..).zip(&self.places).filter(|&(_, &place)| place == host).map(|(rank, _)| rank).collect();
        let (hosts, job) = (self.hosts, self.spec);
        let orders = Orders {
            version: env!("CARGO_PKG_VERSION").into(),
            secret: self.secret.clone(),
            launcher_addresses,
            // The launcher is there: where it can't be reached at once, waiting seldom helps, but for those of
            // many others.
            connect_timeout: (hosts.start_limit / 2).min(default_start_limit(hosts.list.len()) / 4),
            lost_after: hosts.lost_after,
            host,
            name: spec.name.clone(),
            interface: hosts.interface.as_ref().map(ToString::to_string),
            address: spec.address,
            grace: job.rules().grace,
            local_ranks: LocalRanks { members: ranks.clone(), ..self.local_ranks()? },
        };
        let mut command = if here {
            let mut command = Command::new(&hosts.agent);
            command.arg(AGENT_FLAG);
            command
        } else {
            hosts.remote.command(&spec.name, &hosts.agent, AGENT_FLAG)
        };
        let shown = if here { hosts.agent.display().to_string() } else { hosts.remote.shown(&spec.name) };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shield(&mut command, self.signals.before(), TERMINAL_SIGNALS);
        let mut child =
            command.spawn().map_err(|source| LaunchError::Remote { command: shown.clone(), source })?;
        let input = child.stdin.take().expect("standard input is a pipe");
        let err = File::from(OwnedFd::from(child.stderr.take().expect("standard error is a pipe")));
        fcntl(&err, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(system("a pipe"))?;
        let out = child.stdout.take().map(OwnedFd::from);
        let state = HostState {
            name: spec.name.clone(),
            out,
            err: Some(err),
            said: Vec::new(),
            channel: None,
            ended: None,
            card: None,
            shown,
            child,
            ranks,
        };
        let feeds = state.ranks.first() == Some(&0);
        feed(input, &orders, feeds).map_err(system("a thread for an agent's orders"))?;
        Ok(state)
    }

    /// What is the same on all hosts.
    fn local_ranks(&self) -> Result<LocalRanks, LaunchError> {
        let directory = match &self.hosts.directory {
            Some(directory) => directory.clone(),
            None => std::env::current_dir().map_err(system("the working directory's name"))?,
        };
        let mut local_ranks = LocalRanks::of(self.spec);
        local_ranks.directory = Some(directory);
        // What the user has set for this family reaches the ranks of other hosts, too; the rest of the environment
        // is theirs.
        let forwarded = std::env::vars_os().filter(|(key, _)| crate::env::is_forwarded(key));
        local_ranks.environment = forwarded.chain(std::mem::take(&mut local_ranks.environment)).collect();
        Ok(local_ranks)
    }

    /// Waits until every agent is ready, then lets them start their ranks.
    pub(crate) fn complete(mut self) -> Result<Vec<HostState>, LaunchError> {
        let until = Instant::now() + self.hosts.start_limit;
        while self.states.iter().any(|state| state.card.is_none()) {
            self.sleep(until);
            while let Some(arrival) = self.signals.next() {
                if asks_to_end(arrival.signal) {
                    return Err(LaunchError::Interrupted { signal: arrival.signal });
                }
            }
            self.unidentified.extend(self.listener.serve().into_iter().map(|(channel, _)| channel));
            self.welcome()?;
            self.keep_company();
            for state in &mut self.states {
                state.look();
                state.listen();
            }
            let now = Instant::now();
            for state in self.states.iter().filter(|state| state.card.is_none()) {
                if let Some((status, _)) = state.ended.filter(|(_, at)| now.saturating_duration_since(*at) > LAG) {
                    return Err(state.startup_error(self.hosts, status));
                }
            }
            if now >= until {
                return Err(self.overdue());
            }
        }
        let manifest = self.manifest()?;
        for (host, state) in manifest.hosts.iter().zip(&self.states) {
            let ranks: Vec<String> = state.ranks.iter().map(u32::to_string).collect();
            self.spec.log_verbose(&format!(
                "host {}: ranks {} at {} ({})",
                host.name,
                ranks.join(" "),
                host.address,
                host.interface
            ));
        }
        let told = ToAgent::Start(JobManifest { secret: Secret::none(), ..manifest });
        for state in &mut self.states {
            state.channel.as_mut().expect("a card came through it").send(&told);
        }
        Ok(self.states)
    }

    /// Agents that are ready must not think that the launcher is lost, however long others take.
    fn keep_company(&mut self) {
        if self.spoke.elapsed() < heartbeat(self.hosts.lost_after) {
            return;
        }
        self.spoke = Instant::now();
        self.states
            .iter_mut()
            .filter_map(|state| state.channel.as_mut())
            .for_each(|channel| channel.send(&ToAgent::Alive));
    }

    /// Hears the first words of agents.
    fn welcome(&mut self) -> Result<(), LaunchError> {
        let mut waiting = Vec::new();
        for mut caller in std::mem::take(&mut self.unidentified) {
            let Ok(mut words) = caller.pump::<FromAgent>() else { continue };
            if words.is_empty() {
                waiting.push(caller);
                continue;
            }
            match words.remove(0) {
                FromAgent::Ready { host, version, address, interface } => {
                    let Some(state) = self.states.get_mut(host as usize).filter(|state| state.channel.is_none())
                    else {
                        continue;
                    };
                    if version != env!("CARGO_PKG_VERSION") {
                        let ours = env!("CARGO_PKG_VERSION");
                        let reason = format!(
                            "amrun there is version {version}, this one is {ours}: install one version on every host, or \
                             name the right file with --remote-amrun"
                        );
                        let code = EXIT_LAUNCHER_FAILED;
                        return Err(LaunchError::Host { host: state.name.clone(), reason, code });
                    }
                    state.card = Some(HostEntry { name: state.name.clone(), address, interface });
                    state.channel = Some(caller);
                }
                FromAgent::Failed { host, code, reason } => {
                    let host =
                        self.states.get(host as usize).map_or_else(|| "?".into(), |state| state.name.clone());
                    return Err(LaunchError::Host { host, reason, code });
                }
                _ => {}
            }
        }
        self.unidentified = waiting;
        // An agent may fail after it was ready, too, while others are not.
        for state in &mut self.states {
            let Some(channel) = &mut state.channel else { continue };
            match channel.pump::<FromAgent>() {
                Ok(words) => {
                    for word in words {
                        if let FromAgent::Failed { code, reason, .. } = word {
                            return Err(LaunchError::Host { host: state.name.clone(), reason, code });
                        }
                    }
                }
                Err(error) => {
                    let (reason, code) = (format!("its agent was lost: {error}"), EXIT_LAUNCHER_FAILED);
                    return Err(LaunchError::Host { host: state.name.clone(), reason, code });
                }
            }
        }
        Ok(())
    }

    fn overdue(&self) -> LaunchError {
        let late: Vec<&HostState> = self.states.iter().filter(|state| state.card.is_none()).collect();
        let names: Vec<&str> = late.iter().map(|state| &*state.name).collect();
        let said =
            late.iter().find_map(|state| state.stderr_tail()).map(|said| format!(" ({said})")).unwrap_or_default();
        LaunchError::Overdue {
            hosts: names.join(", "),
            seconds: self.hosts.start_limit.as_secs_f64(),
            note: format!("{said}{}", self.listener.refused().note()),
            command: late.first().map(|state| state.shown.clone()).unwrap_or_default(),
        }
    }

    /// The manifest of a job whose agents are all ready.
    fn manifest(&self) -> Result<JobManifest, LaunchError> {
        let hosts: Vec<HostEntry> =
            self.states.iter().map(|state| state.card.clone().expect("all are ready")).collect();
        check_addresses(hosts.iter())?;
        Ok(JobManifest {
            job: job_id(),
            secret: self.secret.clone(),
            endpoints: self.spec.endpoints,
            hosts,
            host_of: self.places.clone(),
        })
    }

    /// Sleeps until something may have happened.
    fn sleep(&self, until: Instant) {
        let mut ends: Vec<PollFd<'_>> = vec![PollFd::new(self.signals.arrivals(), PollFlags::POLLIN)];
        ends.extend(self.listener.interests().map(|(end, flags)| PollFd::new(end, flags)));
        let channels =
            self.unidentified.iter().chain(self.states.iter().filter_map(|state| state.channel.as_ref()));
        ends.extend(channels.map(|channel| PollFd::new(channel.as_fd(), channel.interest())));
        let errs = self.states.iter().filter_map(|state| state.err.as_ref());
        ends.extend(errs.map(|err| PollFd::new(err.as_fd(), PollFlags::POLLIN)));
        // Pending callers and commands that have ended are given up in time.
        let nap = Duration::from_millis(100).min(until.saturating_duration_since(Instant::now()));
        let _ = poll(&mut ends, PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO));
    }
}

/// The address to listen at: that of the loopback interface if nobody comes from elsewhere.
fn listen_at(launcher_addresses: &[(Vec<IpAddr>, Option<String>)]) -> IpAddr {
    let mut all = launcher_addresses.iter().flat_map(|(addresses, _)| addresses);
    match all.next() {
        Some(&first) if first.is_loopback() && all.all(|&other| other == first) => first,
        _ => [0u16; 8].into(),
    }
}

/// Writes an agent's orders to its standard input and, if rank 0 is there, what comes through this process's own
/// after them.
fn feed(mut input: ChildStdin, orders: &Orders, with_own: bool) -> io::Result<()> {
    let body = encode(orders);
    let mut head = ORDERS_MAGIC.to_vec();
    head.extend_from_slice(&PROTOCOL.to_le_bytes());
    head.extend_from_slice(&(body.len() as u32).to_le_bytes());
    // A thread of its own: a remote command that hangs takes nothing in, and nobody knows when our own input
    // comes.
    thread::Builder::new().name("am-orders".into()).spawn(move || {
        let said = input.write_all(&head).and_then(|()| input.write_all(&body));
        drop(body);
        if said.is_ok() && with_own {
            pass_input_on(&mut input);
        }
    })?;
    Ok(())
}

/// Copies this process's standard input until its end, or until nobody reads it any more.
fn pass_input_on(input: &mut ChildStdin) {
    let own = io::stdin();
    let mut buffer = [0; 16 << 10];
    loop {
        let mut ends =
            [PollFd::new(own.as_fd(), PollFlags::POLLIN), PollFd::new(input.as_fd(), PollFlags::empty())];
        if poll(&mut ends, PollTimeout::NONE).is_err() {
            continue;
        }
        if ends[1].any().unwrap_or(true) {
            return;
        }
        match nix::unistd::read(own.as_fd(), &mut buffer) {
            Ok(length) if length > 0 => {
                if input.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_job_listens_to_no_other_host() {
        let launcher_addresses = |addresses: &[&str]| -> Vec<_> {
            addresses.iter().map(|address| (vec![address.parse().unwrap()], None)).collect()
        };
        assert_eq!(listen_at(&launcher_addresses(&["127.0.0.1", "127.0.0.1"])), IpAddr::from([127, 0, 0, 1]));
        assert!(listen_at(&launcher_addresses(&["127.0.0.1", "10.0.0.1"])).is_unspecified());
        assert!(listen_at(&launcher_addresses(&["10.0.0.1"])).is_unspecified());
    }
}
