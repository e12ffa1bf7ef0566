//! A rank's job with its transports: from the launcher's bootstrap to the transport of each endpoint.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use am_core::select::{Select, SelectError};
use am_core::{Address, LossCause, Rank, Segment, Shape, Transport};
use am_launch::{Bootstrap, ExchangeError, Intervals, LocalRendezvousError, RankError};
use transport_shm::{Job, JobConfig, JobError, JoinError, JoinOptions, LargePages, Shm, ShmMemory};
use transport_udp::{Peers, PeersError, Udp, UdpConfig, UdpError};

use crate::transports::{Carrier, TransportChoice, register, rings, told_list, variable};

/// What leads to the ranks that shared memory does not reach: UDP.
#[cfg(not(feature = "ofi"))]
pub type FarTransport = Udp<ShmMemory>;
/// What leads to the ranks that shared memory does not reach: libfabric, UDP, or both, chosen per peer.
#[cfg(feature = "ofi")]
pub type FarTransport = Select<transport_ofi::Ofi<ShmMemory>, Udp<ShmMemory>>;
/// What [`RankJob::attach`] hands a program: shared memory to the ranks that it reaches, another transport to the
/// others, chosen per peer.
pub type JobTransport = Select<Shm, FarTransport>;

/// The job that this process is a rank of: its [`Bootstrap`], which says who and where the ranks are, and the
/// transports that lead to them.
#[derive(Debug)]
pub struct RankJob {
    bootstrap: Bootstrap,
    choice: TransportChoice,
    /// Once the first endpoint has attached.
    prepared: Mutex<Option<Prepared>>,
    #[cfg(feature = "ofi")]
    pub(crate) fabric: crate::libfabric::Fabric,
}

/// What all endpoints of a rank share.
#[derive(Debug)]
struct Prepared {
    segment_bytes: u64,
    /// The shared memory of this host's ranks, and this rank's number in it.
    near: Option<(Arc<Job>, u32)>,
    udp: Option<Sockets>,
    /// Whom this rank has met over libfabric, once its first endpoint has its segment.
    #[cfg(feature = "ofi")]
    fabric: Option<crate::libfabric::Met<ShmMemory>>,
    /// What holds the segment of a rank that shares memory with no other.
    own: Option<Job>,
}

/// What UDP needs to join.
#[derive(Debug)]
struct Sockets {
    /// One per endpoint, until it attaches.
    sockets: Vec<Option<UdpSocket>>,
    peers: Arc<Peers>,
}

/// Why a rank can't attach to its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobAttachError {
    /// The shared memory of this host's ranks can't be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Memory can't be had.
    #[error(transparent)]
    Memory(#[from] JobError),
    /// UDP can't be used.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// libfabric can't be used.
    #[cfg(feature = "ofi")]
    #[error(transparent)]
    Ofi(#[from] transport_ofi::OfiError),
    /// A variable of the environment that changes UDP's settings makes no sense.
    #[error(transparent)]
    Environment(#[from] transport_udp::VariableError),
    /// A variable of the environment that changes shared memory makes no sense.
    #[error("{reason}")]
    Setting {
        /// Which, and why.
        reason: String,
    },
    /// The addresses of the ranks contradict each other.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Transports don't fit together.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The job has no such endpoint.
    #[error("endpoint {endpoint} is not in a job of {endpoints} endpoint(s) per rank")]
    NoSuchEndpoint {
        /// The endpoint asked for.
        endpoint: u16,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// The endpoint has attached before.
    #[error("endpoint {endpoint} of this rank has attached before")]
    Taken {
        /// The endpoint.
        endpoint: u16,
    },
    /// The endpoints of this rank ask for segments of different sizes.
    #[error("endpoints of this rank ask for segments of {first} and {second} bytes")]
    SegmentsDiffer {
        /// The size that counts.
        first: u64,
        /// Another one.
        second: u64,
    },
    /// The ranks could not exchange what their transports need.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The ranks of this host could not share memory.
    #[error(transparent)]
    LocalRendezvous(#[from] LocalRendezvousError),
    /// A rank says what no rank of this program says.
    #[error("rank {rank} attaches with {part:?}, which is not what this program's ranks say")]
    Part {
        /// The rank.
        rank: Rank,
        /// What it says.
        part: String,
    },
    /// Shared memory alone was asked for, and the job needs another transport.
    #[error(
        "shared memory does not lead to all ranks of this job: the program has to attach with RankJob::attach"
    )]
    NotShared,
}

impl RankJob {
    /// Joins the job that the environment describes, or returns `None` if no launcher started this process.
    /// [`Bootstrap::from_environment`] has the details. With `AM_TRANSPORT=list` it says what this machine has,
    /// and ends the process.
    ///
    /// # Errors
    /// As there, and [`RankError::Environment`] if `AM_TRANSPORT` asks for what can't reach all ranks.
    pub fn from_environment() -> Result<Option<Self>, RankError> {
        if told_list() {
            std::process::exit(0);
        }
        register();
        Bootstrap::from_environment()?.map(Self::new).transpose()
    }

    /// A rank's job over this bootstrap, with the transports that `AM_TRANSPORT` names. Where libfabric is among
    /// those between them it is collective: they tell each other which provider they would take.
    ///
    /// # Errors
    /// [`RankError::Environment`] if they can't reach all ranks, a limit forbids an endpoint of libfabric, or
    /// ranks that have nothing else would take different providers.
    pub fn new(bootstrap: Bootstrap) -> Result<Self, RankError> {
        let choice = TransportChoice::read(&variable).map_err(|reason| bootstrap.refuse(reason))?;
        let hosts = bootstrap.hosts().len();
        if hosts > 1 && choice.between(false).is_none() {
            return Err(bootstrap.refuse(format!(
                "{}={choice}, but the ranks are on {hosts} hosts, and shared memory spans one host only: auto uses it there, and UDP \
                 between hosts",
                am_launch::env::TRANSPORT
            )));
        }
        let job = Self {
            bootstrap,
            choice,
            prepared: Mutex::new(None),
            #[cfg(feature = "ofi")]
            fabric: crate::libfabric::Fabric::default(),
        };
        #[cfg(feature = "ofi")]
        if choice.has(Carrier::Ofi) && job.is_far() {
            crate::libfabric::agree(&job.bootstrap, choice.has(Carrier::Udp))?;
        }
        Ok(job)
    }

    /// Attaches an endpoint of this rank: the transport for an [`Endpoint`](crate::Endpoint), whatever the job
    /// spans.
    ///
    /// Shared memory leads to the ranks of the same host, UDP to the others; `--transport` and `AM_TRANSPORT` say
    /// otherwise. With the feature `ofi`, `ofi` and `shm+ofi` choose libfabric in UDP's place, and `shm+ofi+udp`
    /// where two ranks share a fabric; `ofi:tcp` names its provider. The first call of a rank is collective: it
    /// returns when every rank has attached an endpoint or ended. UDP's settings come from the environment
    /// (`AM_UDP_PROTECTION` and the like).
    ///
    /// # Errors
    /// [`JobAttachError`].
    pub fn attach(&self, options: JoinOptions) -> Result<JobTransport, JobAttachError> {
        self.attach_with(options, |udp| udp)
    }

    /// As [`attach`](Self::attach), with other settings for UDP, the same on all ranks.
    ///
    /// # Errors
    /// [`JobAttachError`].
    pub fn attach_with(
        &self,
        options: JoinOptions,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<JobTransport, JobAttachError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.prepare(&mut prepared, options)?;
        let near = prepared.near.as_ref().map(|(job, local)| job.join_with(*local, options)).transpose()?;
        if !self.is_far() {
            return Ok(Select::near(near.ok_or(JobAttachError::NotShared)?));
        }
        let segment = match &near {
            Some(near) => near.segment().clone(),
            None => self.own_segment(&mut prepared.own, options)?,
        };
        let far = self.join_far(prepared, options.endpoint, segment, configure)?;
        match near {
            None => Ok(Select::far(far)),
            Some(near) => Ok(Select::both(near, far, &self.bootstrap.neighbours(), |_| true)?),
        }
    }

    /// Joins as an endpoint over what leads to ranks that do not share memory.
    #[cfg(not(feature = "ofi"))]
    fn join_far(
        &self,
        prepared: &mut Prepared,
        endpoint: u16,
        segment: Segment<ShmMemory>,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<FarTransport, JobAttachError> {
        let sockets = prepared.udp.as_mut().ok_or(JobAttachError::NotShared)?;
        self.join_udp(sockets, endpoint, segment, configure)
    }

    /// Joins as an endpoint over what leads to ranks that do not share memory.
    #[cfg(feature = "ofi")]
    fn join_far(
        &self,
        prepared: &mut Prepared,
        endpoint: u16,
        segment: Segment<ShmMemory>,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<FarTransport, JobAttachError> {
        let mut fabric = None;
        if self.choice.has(Carrier::Ofi) {
            let met = match &mut prepared.fabric {
                Some(met) => met,
                none => none.insert(self.meet_over_fabric(segment.clone(), prepared.udp.is_some())?),
            };
            if met.is_of_use() {
                fabric = Some((self.join_fabric(met, endpoint)?, met.members()));
            }
        }
        let udp = prepared.udp.as_mut();
        let udp = udp.map(|sockets| self.join_udp(sockets, endpoint, segment, configure)).transpose()?;
        match (fabric, udp) {
            (Some((fabric, members)), Some(udp)) => Ok(Select::both(fabric, udp, members, |_| true)?),
            (Some((fabric, _)), None) => Ok(Select::near(fabric)),
            (None, Some(udp)) => Ok(Select::far(udp)),
            (None, None) => Err(JobAttachError::NotShared),
        }
    }

    /// Joins over UDP as an endpoint.
    fn join_udp(
        &self,
        Sockets { sockets, peers }: &mut Sockets,
        endpoint: u16,
        segment: Segment<ShmMemory>,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<Udp<ShmMemory>, JobAttachError> {
        let config = configure(UdpConfig::from_environment(self.bootstrap.secret().bytes())?);
        let socket = sockets[usize::from(endpoint)].take().ok_or(JobAttachError::Taken { endpoint })?;
        let mut udp =
            Udp::join_with_segment(&config, peers, Address::new(self.rank(), endpoint), socket, segment)?;
        let notifier = udp.failure_notifier();
        let leave = self.bootstrap.attach_endpoint()?;
        self.bootstrap.on_failure(move |rank| notifier.lost(rank, LossCause::Died))?;
        udp.when_departed(|| leave.report());
        Ok(udp)
    }

    /// Joins the shared memory of this host's ranks: the transport for an endpoint of a job on one host, as fast
    /// as can be. Collective as [`attach`](Self::attach), which works for every job.
    ///
    /// # Errors
    /// [`JobAttachError`]; [`JobAttachError::NotShared`] if the job has ranks that shared memory does not lead to.
    pub fn shm(&self, options: JoinOptions) -> Result<Shm, JobAttachError> {
        if self.is_far() {
            return Err(JobAttachError::NotShared);
        }
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.prepare(&mut prepared, options)?;
        let (job, local) = prepared.near.as_ref().ok_or(JobAttachError::NotShared)?;
        Ok(job.join_with(*local, options)?)
    }

    /// What carries messages between this rank and another one. Which ranks share a fabric is known once the first
    /// endpoint of this rank has attached; until then libfabric counts as leading to all.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn carrier(&self, to: Rank) -> Carrier {
        let same_host = self.host_of(self.rank()) == self.host_of(to);
        let first = self.choice.between(same_host);
        let first = first.expect("the choice reaches all ranks, or there would be no job");
        #[cfg(feature = "ofi")]
        if first == Carrier::Ofi && self.choice.has(Carrier::Udp) {
            let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            let met = prepared.as_ref().and_then(|prepared| prepared.fabric.as_ref());
            if met.is_some_and(|met| !met.leads_to(to)) {
                return Carrier::Udp;
            }
        }
        first
    }

    /// Why segments of so many bytes are in small pages of memory, where they share memory and the system refuses
    /// them large ones, and what to do about it.
    pub fn small_pages(&self, segment_bytes: usize) -> Option<String> {
        let shared = self.choice.carriers().contains(&Carrier::Shm);
        LargePages::of_system().fallback(segment_bytes).filter(|_| shared)
    }

    /// What was chosen, in one line for people: this rank's host, address and interface, what leads to whom, and
    /// whether segments that have attached had to do with small pages of memory.
    pub fn report(&self) -> String {
        let (rank, ranks) = (self.rank(), self.ranks());
        let host = &self.hosts()[self.host_of(rank) as usize];
        let mut line = format!(
            "rank {rank} of {ranks}, started by {}, on host {} at {} ({})",
            self.started_by(),
            host.name,
            host.address,
            host.interface
        );
        for &carrier in self.choice.carriers() {
            let reached: Vec<u32> = (0..ranks).filter(|&to| self.carrier(Rank(to)) == carrier).collect();
            if !reached.is_empty() {
                line += &format!("; {carrier} to {}", Intervals(reached));
            }
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = prepared.as_ref().map_or(0, |prepared| prepared.segment_bytes);
        if let Some(small) = self.small_pages(bytes as usize) {
            line += &format!("; {small}");
        }
        #[cfg(feature = "ofi")]
        if let Some(reason) = prepared.as_ref().and_then(|prepared| prepared.fabric.as_ref()?.reason()) {
            line += &format!("; no libfabric on this host: {reason}");
        }
        line
    }

    /// Whether there are ranks that do not share memory.
    fn is_far(&self) -> bool {
        self.hosts().len() > 1 || self.choice.between(true) != Some(Carrier::Shm)
    }

    /// What all endpoints of this rank share; the first one that attaches meets the other ranks.
    fn prepare<'a>(
        &self,
        prepared: &'a mut Option<Prepared>,
        options: JoinOptions,
    ) -> Result<&'a mut Prepared, JobAttachError> {
        let JoinOptions { endpoint, segment_bytes, .. } = options;
        let (bytes, endpoints) = (segment_bytes as u64, self.endpoints());
        if endpoint >= endpoints {
            return Err(JobAttachError::NoSuchEndpoint { endpoint, endpoints });
        }
        let prepared = match prepared {
            Some(prepared) => prepared,
            none => none.insert(self.meet(bytes)?),
        };
        match prepared.segment_bytes {
            first if first == bytes => Ok(prepared),
            first => Err(JobAttachError::SegmentsDiffer { first, second: bytes }),
        }
    }

    /// Meets the other ranks: exchanges addresses and the sizes of segments, and shares memory with the ranks of
    /// this host.
    fn meet(&self, segment_bytes: u64) -> Result<Prepared, JobAttachError> {
        let address = self.hosts()[self.host_of(self.rank()) as usize].address;
        let over_udp = self.is_far() && self.choice.has(Carrier::Udp);
        let count = if over_udp { self.endpoints() } else { 0 };
        let sockets =
            (0..count).map(|_| transport_udp::bind((address, 0).into())).collect::<Result<Vec<_>, _>>()?;
        let addresses = sockets.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>();
        let own = Part { segment_bytes, addresses: addresses.map_err(JobError::from)? };
        let said = self.bootstrap.allgather(own.to_string().as_bytes())?;
        let mut parts = Vec::with_capacity(said.len());
        for (rank, part) in (0..).map(Rank).zip(said) {
            parts.push(Part::read(&part, count.into()).map_err(|part| JobAttachError::Part { rank, part })?);
        }
        let near = match self.choice.between(true) {
            Some(Carrier::Shm) => Some(self.share(&parts)?),
            _ => None,
        };
        let sockets = sockets.into_iter().map(Some).collect();
        let udp = over_udp.then(|| self.peers(&parts).map(|peers| Sockets { sockets, peers })).transpose()?;
        Ok(Prepared {
            segment_bytes,
            near,
            udp,
            #[cfg(feature = "ofi")]
            fabric: None,
            own: None,
        })
    }

    /// The memory that the ranks of this host share: the first of them that lives makes it and hands it to the
    /// others.
    fn share(&self, parts: &[Option<Part>]) -> Result<(Arc<Job>, u32), JobAttachError> {
        const LABEL: &str = "shm";
        let me = self.rank();
        let members = self.bootstrap.neighbours();
        let local = |rank: Rank| members.iter().position(|member| *member == rank).map(|place| place as u32);
        let living: Vec<Rank> = members.iter().copied().filter(|rank| parts[rank.0 as usize].is_some()).collect();
        let first = living.first().copied().unwrap_or(me);
        let ranks = members.len() as u32;
        let job = if first == me {
            let config = JobConfig::new(ranks).endpoints(self.endpoints());
            let job =
                Job::create(&rings(config, &variable).map_err(|reason| JobAttachError::Setting { reason })?)?;
            self.bootstrap.hand_out(LABEL, job.fd().as_fd(), &living)?;
            job
        } else {
            let job = Job::open(self.bootstrap.fetch(LABEL, first)?)?;
            match job.shape() {
                Shape { ranks: made, .. } if made == ranks => job,
                shape => {
                    let text = format!("shared memory for {} ranks, where this host has {ranks}", shape.ranks);
                    return Err(JobError::from(io::Error::new(io::ErrorKind::InvalidData, text)).into());
                }
            }
        };
        let job = Arc::new(job);
        let mine = local(me).expect("a rank is on its own host");
        // A rank that has ended before it attached will never be watched by its peers.
        members.iter().filter(|rank| !living.contains(rank)).filter_map(|rank| local(*rank)).for_each(|place| {
            job.mark_dead(place);
        });
        let marked = Arc::clone(&job);
        self.bootstrap.on_failure(move |rank| {
            if let Some(place) = members.iter().position(|member| *member == rank) {
                marked.mark_dead(place as u32);
            }
        })?;
        Ok((job, mine))
    }

    /// The table of all ranks for UDP.
    fn peers(&self, parts: &[Option<Part>]) -> Result<Arc<Peers>, JobAttachError> {
        let taken: Vec<SocketAddr> = parts.iter().flatten().flat_map(|part| part.addresses.clone()).collect();
        let mut ports = 1..=u16::MAX;
        let mut addresses = Vec::with_capacity(self.ranks() as usize * usize::from(self.endpoints()));
        for (rank, part) in (0..).map(Rank).zip(parts) {
            match part {
                Some(part) => addresses.extend(&part.addresses),
                // One that has ended is known to be lost before anything is sent there.
                None => {
                    let host = self.hosts()[self.host_of(rank) as usize].address;
                    let free = ports.by_ref().map(|port| SocketAddr::from((host, port)));
                    addresses
                        .extend(free.filter(|address| !taken.contains(address)).take(self.endpoints().into()));
                }
            }
        }
        let sizes = parts.iter().map(|part| part.as_ref().map_or(0, |part| part.segment_bytes)).collect();
        let shape = Shape { ranks: self.ranks(), endpoints: self.endpoints() };
        Ok(Arc::new(Peers::new(shape, addresses, sizes)?))
    }

    /// The segment of a rank that shares no memory with other ranks, only between its endpoints.
    fn own_segment(
        &self,
        own: &mut Option<Job>,
        options: JoinOptions,
    ) -> Result<Segment<ShmMemory>, JobAttachError> {
        let job = match own.take() {
            Some(job) => job,
            None => Job::create(&JobConfig::smallest(1).endpoints(self.endpoints()))?,
        };
        // The memory outlives the transport that it comes with.
        Ok(own.insert(job).join_with(0, options)?.segment().clone())
    }
}

impl Deref for RankJob {
    type Target = Bootstrap;

    fn deref(&self) -> &Bootstrap {
        &self.bootstrap
    }
}

/// What a rank tells all others when it attaches, as text: the bytes of its segment, and its UDP addresses, one
/// per endpoint.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    segment_bytes: u64,
    addresses: Vec<SocketAddr>,
}

impl Part {
    /// What a rank says that has so many addresses; nothing of one that has ended. An error is what it says.
    fn read(bytes: &[u8], addresses: usize) -> Result<Option<Self>, String> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let wrong = || String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
        let (size, rest) = text.split_once(' ').unwrap_or((text, ""));
        let segment_bytes = size.parse().map_err(|_| wrong())?;
        let found =
            rest.split_terminator(' ').map(str::parse).collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
        if found.len() == addresses { Ok(Some(Self { segment_bytes, addresses: found })) } else { Err(wrong()) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.segment_bytes)?;
        self.addresses.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_said() {
        for addresses in [vec![], vec!["127.0.0.1:4000"], vec!["[::1]:4000", "10.0.0.1:1"]] {
            let addresses: Vec<SocketAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let count = addresses.len();
            let part = Part { segment_bytes: 1 << 40, addresses };
            let said = part.to_string();
            assert_eq!(Part::read(said.as_bytes(), count), Ok(Some(part)));
            assert_eq!(Part::read(said.as_bytes(), count + 1), Err(said));
        }
        assert_eq!(Part::read(b"", 3), Ok(None));
        for wrong in [&b"x"[..], b" ", b"-1", b"8 127.0.0.1", b"8  1", b"8 \xff"] {
            assert!(Part::read(wrong, 1).is_err(), "{wrong:?}");
        }
    }
}
