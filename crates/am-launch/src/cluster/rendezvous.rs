//! How ranks on several hosts find each other that `mpirun`, `srun` or a hand started: rank 0 listens at
//! `AM_RENDEZVOUS`, or where it has told the others, everybody tells it where they are, and gets the manifest of
//! the job. The connections stay ([`star`](crate::rank::star)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use am_core::Rank;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::unistd::geteuid;

use crate::cluster::channel::{Channel, ChannelError};
use crate::cluster::launcher_addresses::check_addresses;
use crate::cluster::listener::{ConnectError, Listener, connect};
use crate::cluster::message::{Answer, FromRank, RankArrival};
use crate::env;
use crate::error::ListenError;
use crate::host::limits;
use crate::interface::{Chosen, InterfaceError, InterfaceWish, choose, interface_of, outward};
use crate::manifest::{HostEntry, JobManifest};
use crate::rank::star::Spokes;
use crate::secret::{Secret, SecretError};
use crate::spec::job_id;

/// What one rank brings to the rendezvous.
pub(crate) struct RendezvousClient<'a> {
    pub(crate) address: &'a str,
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    pub(crate) endpoints: u16,
    /// What `AM_TRANSPORT` says here, if it is set.
    pub(crate) transport: Option<String>,
    pub(crate) interface: Option<InterfaceWish>,
    pub(crate) secret: Secret,
    pub(crate) limit: Duration,
}

/// What a rank takes away from it.
pub(crate) struct Met {
    pub(crate) manifest: JobManifest,
    pub(crate) spokes: Spokes,
}

/// Why ranks on several hosts did not find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The address makes no sense.
    #[error("AM_RENDEZVOUS={address} in the environment is not HOST:PORT: {reason}")]
    Address {
        /// Its value.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Rank 0 can't listen there.
    #[error(transparent)]
    Listener(#[from] ListenError),
    /// Rank 0 can't be reached.
    #[error("rank 0 at AM_RENDEZVOUS={address}: {source}")]
    Connect {
        /// The address as given.
        address: String,
        /// Why.
        source: ConnectError,
    },
    /// Rank 0 was lost during the conversation.
    #[error("rank 0 at AM_RENDEZVOUS={address} was lost: {source}")]
    Lost {
        /// The address as given.
        address: String,
        /// Why.
        source: ChannelError,
    },
    /// Rank 0 says that the job can't start.
    #[error("{0}")]
    Refused(String),
    /// Ranks did not turn up at rank 0.
    #[error(
        "{missing} of {ranks} ranks, the first of them rank {first}, did not report at AM_RENDEZVOUS={address} within \
         {seconds} s{note}; can their hosts reach this address and port?"
    )]
    Missing {
        /// How many.
        missing: usize,
        /// Of how many.
        ranks: u32,
        /// The first of them.
        first: u32,
        /// The address as given.
        address: String,
        /// How long rank 0 waited.
        seconds: f64,
        /// Who was refused.
        note: String,
    },
    /// No interface is the one asked for.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The operating system refused something.
    #[error("meeting the other ranks at AM_RENDEZVOUS={address} failed: {source}")]
    System {
        /// The address as given.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl RendezvousClient<'_> {
    /// Meets the other ranks. Blocks until all are there.
    pub(crate) fn meet(&self) -> Result<Met, RendezvousError> {
        let found: Vec<SocketAddr> =
            self.address.to_socket_addrs().map_err(|error| self.no_address(error.to_string()))?.collect();
        let addresses = match found.iter().filter(|address| address.is_ipv4()).copied().collect::<Vec<_>>() {
            v4 if v4.is_empty() => found,
            v4 => v4,
        };
        let &first = addresses.first().ok_or_else(|| self.no_address("its host has no address".into()))?;
        if first.port() == 0 {
            return Err(self.no_address("its port is 0".into()));
        }
        if self.rank == Rank(0) { self.host(first) } else { self.visit(&addresses) }
    }

    /// Rank 0's part.
    fn host(&self, address: SocketAddr) -> Result<Met, RendezvousError> {
        self.gather(Listener::open(address, &self.secret)?, address.ip())
    }

    /// Rank 0's part, once it listens at an address, or at all that it has.
    pub(crate) fn gather(&self, mut listener: Listener, address: IpAddr) -> Result<Met, RendezvousError> {
        limits::make_room(64 + self.ranks as usize);
        let until = Instant::now() + self.limit;
        let mut unidentified: Vec<Channel> = Vec::new();
        let mut arrived: BTreeMap<u32, (RankArrival, Channel)> = BTreeMap::new();
        while (arrived.len() as u32) + 1 < self.ranks {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.missing(&arrived, &listener));
            }
            let mut ends: Vec<PollFd<'_>> =
                listener.interests().map(|(end, flags)| PollFd::new(end, flags)).collect();
            ends.extend(unidentified.iter().map(|caller| PollFd::new(caller.as_fd(), caller.interest())));
            let nap = left.min(Duration::from_millis(200));
            let _ = poll(&mut ends, PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO));
            unidentified.extend(listener.serve().into_iter().map(|(channel, _)| channel));
            let mut silent = Vec::new();
            for mut caller in std::mem::take(&mut unidentified) {
                // Whoever hangs up half-way is no reason to give up on the others: it may come back.
                let Ok(mut words) = caller.pump::<FromRank>() else { continue };
                let Some(FromRank::Arrived(arrival)) = words.pop() else {
                    silent.push(caller);
                    continue;
                };
                if let Some(reason) = self.objection(&arrival, &arrived) {
                    arrived.insert(self.ranks, (arrival, caller));
                    return Err(refuse(arrived, reason));
                }
                arrived.insert(arrival.rank, (arrival, caller));
            }
            unidentified = silent;
        }
        self.conclude(address, arrived)
    }

    /// Makes the manifest when everybody is there.
    fn conclude(
        &self,
        address: IpAddr,
        arrived: BTreeMap<u32, (RankArrival, Channel)>,
    ) -> Result<Met, RendezvousError> {
        // Where this host's name means a loopback address here, the address that reaches the others is the right
        // one.
        let elsewhere = arrived.values().map(|(arrival, _)| arrival.address).find(|other| !other.is_loopback());
        let own = match elsewhere {
            Some(other) if address.is_loopback() || address.is_unspecified() => outward(other).unwrap_or(address),
            None if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            _ => address,
        };
        let mine = self.arrival(own)?;
        let mut all: Vec<&RankArrival> = vec![&mine];
        all.extend(arrived.values().map(|(arrival, _)| arrival));
        let mut hosts: Vec<HostEntry> = Vec::new();
        let mut machines: BTreeMap<&str, u32> = BTreeMap::new();
        let mut host_of = Vec::with_capacity(all.len());
        for arrival in &all {
            let host = *machines.entry(&arrival.machine).or_insert_with(|| {
                let RankArrival { name, address, interface, .. } = (*arrival).clone();
                hosts.push(HostEntry { name, address, interface });
                hosts.len() as u32 - 1
            });
            host_of.push(host);
        }
        // Every rank's address counts, not only the first one's of each host.
        let every = all.iter().map(|arrival| {
            let RankArrival { rank, name, address, interface, .. } = (*arrival).clone();
            HostEntry { name: format!("{name} (rank {rank})"), address, interface }
        });
        let every: Vec<HostEntry> = every.collect();
        if let Err(error) = check_addresses(every.iter()) {
            let reason = format!("{error}, by hand with AM_INTERFACE, or by a numeric address in AM_RENDEZVOUS");
            return Err(refuse(arrived, reason));
        }
        let mut run = [0; 32];
        getrandom::fill(&mut run).map_err(|_| self.system(io::Error::other("no random bytes from the system")))?;
        let (secret, endpoints) = (Secret::none(), self.endpoints);
        let mut manifest = JobManifest { job: job_id(), secret, endpoints, hosts, host_of };
        let mut channels = Vec::with_capacity(arrived.len());
        for (rank, (_, mut channel)) in arrived {
            channel.send(&Answer::Table(manifest.clone(), run));
            channels.push((rank, channel));
        }
        manifest.secret = self.secret.of_run(&run);
        let mut met = Met { manifest, spokes: Spokes::Root(channels) };
        met.spokes.flush(Instant::now() + self.limit);
        Ok(met)
    }

    /// The part of every other rank.
    pub(crate) fn visit(&self, addresses: &[SocketAddr]) -> Result<Met, RendezvousError> {
        let until = Instant::now() + self.limit;
        let connected = connect(addresses, &self.secret, self.limit);
        let mut channel =
            connected.map_err(|source| RendezvousError::Connect { address: self.address.into(), source })?;
        let own = channel.local_address().map_err(|source| self.system(source))?.ip().to_canonical();
        let mine = self.arrival(own)?;
        channel.send(&FromRank::Arrived(mine));
        let mut words = channel.wait::<Answer>(until).map_err(|source| self.lost(source))?;
        match words.remove(0) {
            Answer::Table(mut manifest, run) => {
                manifest.secret = self.secret.of_run(&run);
                if manifest.ranks() != self.ranks || !manifest.is_sound() {
                    return Err(self.lost(ChannelError::Damaged));
                }
                Ok(Met { manifest, spokes: Spokes::Leaf(Box::new(channel), words) })
            }
            Answer::Refused(reason) => Err(RendezvousError::Refused(reason)),
            _ => Err(self.lost(ChannelError::Damaged)),
        }
    }

    /// Who and where this rank is.
    fn arrival(&self, reached_at: IpAddr) -> Result<RankArrival, RendezvousError> {
        let Chosen { address, interface } = match &self.interface {
            Some(wish) => choose(wish)?,
            None => Chosen { address: reached_at, interface: interface_of(reached_at) },
        };
        Ok(RankArrival {
            version: env!("CARGO_PKG_VERSION").into(),
            rank: self.rank.0,
            ranks: self.ranks,
            endpoints: self.endpoints,
            transport: self.transport.clone(),
            machine: machine(),
            name: host_name(),
            address,
            interface,
        })
    }

    /// What is wrong with a rank that has turned up, if anything.
    fn objection(&self, arrival: &RankArrival, others: &BTreeMap<u32, (RankArrival, Channel)>) -> Option<String> {
        let RankArrival { rank, name, .. } = arrival;
        let ours = env!("CARGO_PKG_VERSION");
        if arrival.version != ours {
            let theirs = &arrival.version;
            return Some(format!(
                "rank {rank} on {name} has version {theirs} of am-launch, rank 0 has {ours}: build all alike"
            ));
        }
        if arrival.ranks != self.ranks || *rank >= self.ranks {
            let (theirs, ours) = (arrival.ranks, self.ranks);
            return Some(format!(
                "a process on {name} claims to be rank {rank} of {theirs}, but the job has {ours} ranks"
            ));
        }
        if *rank == 0 || others.contains_key(rank) {
            return Some(format!("two processes claim to be rank {rank}, one of them on {name}"));
        }
        if arrival.transport != self.transport {
            let said = |value: &Option<String>| {
                value.as_ref().map_or_else(|| "none".into(), |value| format!("{}={value}", env::TRANSPORT))
            };
            let (theirs, ours) = (said(&arrival.transport), said(&self.transport));
            return Some(format!(
                "rank {rank} on {name} has {theirs}, but rank 0 has {ours}: set it alike everywhere"
            ));
        }
        if arrival.endpoints != self.endpoints {
            let (theirs, ours) = (arrival.endpoints, self.endpoints);
            return Some(format!("rank {rank} on {name} has {theirs} endpoints, but rank 0 has {ours}"));
        }
        None
    }

    fn missing(&self, arrived: &BTreeMap<u32, (RankArrival, Channel)>, listener: &Listener) -> RendezvousError {
        let missing: BTreeSet<u32> = (1..self.ranks).filter(|rank| !arrived.contains_key(rank)).collect();
        RendezvousError::Missing {
            missing: missing.len(),
            ranks: self.ranks,
            first: missing.first().copied().unwrap_or_default(),
            address: self.address.into(),
            seconds: self.limit.as_secs_f64(),
            note: listener.refused().note(),
        }
    }

    fn no_address(&self, reason: String) -> RendezvousError {
        RendezvousError::Address { address: self.address.into(), reason }
    }

    fn lost(&self, source: ChannelError) -> RendezvousError {
        RendezvousError::Lost { address: self.address.into(), source }
    }

    fn system(&self, source: io::Error) -> RendezvousError {
        RendezvousError::System { address: self.address.into(), source }
    }
}

/// Tells everyone who has turned up why the job can't start.
fn refuse(arrived: BTreeMap<u32, (RankArrival, Channel)>, reason: String) -> RendezvousError {
    let mut links = Vec::new();
    for (rank, (_, mut channel)) in arrived {
        channel.send(&Answer::Refused(reason.clone()));
        links.push((rank, channel));
    }
    Spokes::Root(links).flush(Instant::now() + Duration::from_secs(2));
    RendezvousError::Refused(reason)
}

/// What tells this machine from every other one as far as sharing memory goes: its boot, the namespaces that
/// processes find each other in, and the user.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |name: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        link.to_string_lossy().into_owned()
    };
    format!("{} {} {} {} {}", boot.trim(), host_name(), namespace("net"), namespace("pid"), geteuid())
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "?".into(), |name| name.trim().to_owned())
}
