//! A rank's own view of its job: who it is, where the others are, and the transport that it attaches with.

pub(crate) mod attach;
pub(crate) mod bootstrap;
pub(crate) mod identity;
pub(crate) mod meet;
pub(crate) mod net;

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use am_core::Rank;
use am_core::select::Select;
use am_core::stall;
use nix::fcntl::SealFlag;
use nix::unistd::getppid;
use transport_shm::{Job, JobError, JoinError, JoinOptions, Shm};
use transport_udp::UdpConfig;

use crate::cluster::interface::InterfaceWish;
use crate::cluster::rendezvous::{Met, RendezvousClient, RendezvousError};
use crate::env;
use crate::env::check::{self, check_own};
use crate::intervals::Intervals;
use crate::launcher::lifeline;
use crate::launcher::spawn::{FileKind, claim, report_on_quit, unclaimed};
use crate::manifest::{HostEntry, JobManifest};
use crate::notices;
use crate::rank::attach::{Configure, OpenError, open};
use crate::rank::bootstrap::{Bootstrap, Exchange};
use crate::rank::identity::{EnvironmentError, Identity, NetIdentity, StartedBy, identify};
use crate::rank::meet::{LocalRendezvous, MeetError, launcher_name, reopen};
use crate::rank::net::{AttachError, JobTransport, Net};
use crate::secret::{Secret, SecretError};
use crate::transport::{Carrier, TransportChoice};

/// How long the ranks of an `mpirun` or `srun` job wait for each other at the start, unless `AM_MEET_TIMEOUT` says
/// otherwise.
pub const DEFAULT_MEET_TIMEOUT: Duration = Duration::from_secs(60);

/// The job that this process is a rank of.
#[derive(Debug)]
pub struct RankJob {
    rank: Rank,
    ranks: u32,
    local_rank: u32,
    job_id: String,
    started_by: StartedBy,
    /// The shared memory of this host's ranks.
    near: Option<Job>,
    /// What leads to ranks that share no memory with this one.
    net: Option<Net>,
}

impl RankJob {
    /// Joins the job that the environment describes, or returns `None` if no launcher started this process.
    ///
    /// The environment of `amrun` and of [`run`](crate::run) comes first, then that of `mpirun` (Open MPI, MPICH
    /// and its relatives, PMIx), then that of `srun`. Within a Slurm allocation only a process of a job step with
    /// several tasks is a rank: a batch script has `SLURM_PROCID` too, but no `SLURM_STEP_ID`.
    ///
    /// SIGQUIT makes this process print what its endpoints wait for from now on, unless it has a handler of its own, and
    /// `AM_TIMEOUT` becomes the time-out of waits.
    ///
    /// Under `mpirun` and `srun`, and when the variables were set by hand, this call waits for the other ranks: on one
    /// host by the job's name, on several at `AM_RENDEZVOUS`.
    ///
    /// # Errors
    /// A malformed environment, ranks on several hosts without a rendezvous address, or ranks that don't turn up
    /// within `AM_MEET_TIMEOUT` seconds.
    pub fn from_environment() -> Result<Option<Self>, RankError> {
        Self::identified(&Configure::default())
    }

    /// As [`from_environment`](Self::from_environment); if this rank has to make the shared memory, it is made so.
    pub(crate) fn identified(configure: &Configure) -> Result<Option<Self>, RankError> {
        let Some(identity) = identify(&|name| std::env::var_os(name))? else { return Ok(None) };
        follow_launcher(&identity)?;
        // A launcher of this family has checked the rest of the environment.
        if identity.launcher_pid.is_none() && identity.rank == Rank(0) {
            check_own(&[])?;
        }
        if let Some(timeout) = check::timeout()? {
            stall::set_default_timeout(Some(timeout.into()));
        }
        report_on_quit().map_err(RankError::Signal)?;
        if let Some(file) = identity.notice_fd {
            let (variable, number) = (env::NOTICE_FD, file.number);
            let begun = notices::begin(identity.rank, file);
            begun.map_err(|source| RankError::Descriptor { variable, number, source })?;
        }
        let Identity { rank, ranks, local_rank, started_by, shm_fd, .. } = identity;
        let unnamed = Self { rank, ranks, local_rank, job_id: String::new(), started_by, near: None, net: None };
        if let Some(address) = &identity.rendezvous {
            return unnamed.met_everywhere(address, configure).map(Some);
        }
        let job_id = identity.job.unwrap_or_else(|| launcher_name(identity.rank_variable));
        let net = identity.net.map(|net| inherited_net(&net, rank, ranks)).transpose()?;
        let near = match (shm_fd, &net) {
            (Some(number), Some(net)) => Some(inherited(
                number,
                net.bootstrap.manifest().members(net.bootstrap.host_of(rank)).len() as u32,
            )?),
            (Some(number), None) => Some(inherited(number, ranks)?),
            (None, Some(_)) => None,
            (None, None) if TransportChoice::from_environment()? == Some(TransportChoice::Udp) => {
                return Err(RankError::NoRendezvous { started_by });
            }
            (None, None) => Some(met(&job_id, rank, ranks, configure)?),
        };
        Ok(Some(Self { job_id, near, net, ..unnamed }))
    }

    /// Meets the ranks of all hosts, then those of this one.
    fn met_everywhere(self, address: &str, configure: &Configure) -> Result<Self, RankError> {
        let (rank, ranks) = (self.rank, self.ranks);
        let Some(file) = std::env::var_os(env::SECRET_FILE) else {
            return Err(RendezvousError::from(SecretError::Missing { rendezvous: address.into() }).into());
        };
        let made = |source| RankError::Create { job: address.to_owned(), source };
        let limit = meet_timeout()?;
        let client = RendezvousClient {
            address,
            rank,
            ranks,
            endpoints: configure.create(1).map_err(made)?.shape().endpoints,
            choice: TransportChoice::from_environment()?.unwrap_or_default(),
            interface: interface_wish()?,
            secret: Secret::from_file(file.as_ref()).map_err(RendezvousError::from)?,
            limit,
        };
        let Met { manifest, host, sockets, links } = client.meet()?;
        let members = manifest.members(host);
        let local = members.iter().position(|&member| member == rank).unwrap_or_default() as u32;
        let near = match manifest.choice {
            TransportChoice::Udp => None,
            TransportChoice::Auto | TransportChoice::Shm => {
                let meeting = format!("{}-host-{host}", manifest.job);
                Some(met(&meeting, Rank(local), members.len() as u32, configure)?)
            }
        };
        let job_id = manifest.job.clone();
        let net = manifest
            .needs_udp()
            .then(|| Net::new(Bootstrap::new(manifest, rank, Exchange::Rendezvous(links), limit), sockets));
        Ok(Self { local_rank: local, job_id, near, net, ..self })
    }

    /// Attaches an endpoint of this rank: the transport for an [`Endpoint`](am_core::Endpoint), whatever the job spans.
    ///
    /// Shared memory leads to the ranks of the same host, UDP to the others; `--transport` and `AM_TRANSPORT` say
    /// otherwise. Where the job has UDP, this call is collective: it returns when every rank has attached or ended. UDP's
    /// settings come from the environment (`AM_UDP_PROTECTION` and the like).
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(&self, options: JoinOptions) -> Result<JobTransport, AttachError> {
        self.attach_with(options, |udp| udp)
    }

    /// As [`attach`](Self::attach), with other settings for UDP, the same on all ranks.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_with(
        &self,
        options: JoinOptions,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<JobTransport, AttachError> {
        match (&self.net, &self.near) {
            (Some(net), near) => net.attach(near.as_ref(), options, configure),
            (None, Some(near)) => Ok(Select::near(near.join_with(self.local_rank_in(near), options)?)),
            (None, None) => unreachable!("a job has shared memory, UDP or both"),
        }
    }

    /// Joins the job's shared memory as this rank: the transport for an endpoint of a job on one host.
    ///
    /// Not collective; it returns at once. Each endpoint of the rank joins once. [`attach`](Self::attach) works for every
    /// job.
    ///
    /// # Errors
    /// As [`Job::join_with`], and if the job has ranks that shared memory does not lead to.
    pub fn shm(&self, options: JoinOptions) -> Result<Shm, JoinError> {
        match (&self.near, &self.net) {
            (Some(job), None) => job.join_with(self.rank.0, options),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "shared memory does not lead to all ranks of this job: the program has to attach with RankJob::attach",
            )
            .into()),
        }
    }

    /// The rank's number in the shared memory of its host.
    fn local_rank_in(&self, near: &Job) -> u32 {
        if near.shape().ranks == self.ranks { self.rank.0 } else { self.local_rank }
    }

    /// The shared memory of this host's ranks, if they have any.
    pub fn job(&self) -> Option<&Job> {
        self.near.as_ref()
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// This process's number among the ranks of its host.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// A text that names the job uniquely on its host.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// Ends the whole job with `code`, at once; [`exit_job`](crate::exit_job) has the details. Does not return.
    pub fn exit_job(&self, code: u8) -> ! {
        notices::exit_job(code)
    }

    /// How the job's ranks were started.
    pub fn started_by(&self) -> StartedBy {
        self.started_by
    }

    /// What carries messages between this rank and another one.
    pub fn carrier(&self, to: Rank) -> Carrier {
        self.net.as_ref().map_or(Carrier::Shm, |net| net.bootstrap.manifest().carrier(self.rank, to))
    }

    /// The hosts of a job with UDP, with the address and the interface that each uses; none in a job over shared memory
    /// alone.
    pub fn hosts(&self) -> &[HostEntry] {
        self.net.as_ref().map_or(&[], |net| net.bootstrap.hosts())
    }

    /// The index of a rank's host among [`hosts`](Self::hosts); 0 in a job on one host.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn host_of(&self, rank: Rank) -> u32 {
        assert!(rank.0 < self.ranks, "rank {rank} is not in the job");
        self.net.as_ref().map_or(0, |net| net.bootstrap.host_of(rank))
    }

    /// The UDP addresses of a rank's endpoints; none in a job over shared memory alone.
    pub fn addresses(&self, rank: Rank) -> &[SocketAddr] {
        self.net.as_ref().map_or(&[], |net| net.addresses(rank))
    }

    /// The secret of this run of the job, where it has one: in a job with UDP. Where the ranks met with `AM_SECRET_FILE`, it comes
    /// from that file's and from a value that is new in every run.
    pub fn secret(&self) -> Option<&Secret> {
        self.net.as_ref().map(|net| net.bootstrap.secret())
    }

    /// What was chosen, in one line for people: this rank's host, address and interface, and what leads to whom.
    pub fn report(&self) -> String {
        let (rank, ranks, by) = (self.rank, self.ranks, self.started_by);
        let mut line = format!("rank {rank} of {ranks}, started by {by}");
        if let Some(host) = self.hosts().get(self.host_of(rank) as usize) {
            line += &format!(", on host {} at {} ({})", host.name, host.address, host.interface);
        }
        for carrier in [Carrier::Shm, Carrier::Udp] {
            let reached = (0..ranks).filter(|&to| self.carrier(Rank(to)) == carrier);
            let listed = Intervals(reached.collect());
            if !listed.0.is_empty() {
                line += &format!("; {carrier} to {listed}");
            }
        }
        line
    }
}

/// Why a rank could not join its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// The environment is malformed or contradicts itself.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// An inherited descriptor is not there or not what it should be.
    #[error("{variable}={number} in the environment is no descriptor of this job: {source}")]
    Descriptor {
        /// The variable that names it.
        variable: &'static str,
        /// The descriptor's number.
        number: u32,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The handler for SIGQUIT can't be set.
    #[error("no handler for SIGQUIT: {0}")]
    Signal(nix::Error),
    /// The ranks of this host did not find each other.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The ranks of several hosts did not find each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// UDP was asked for, and nobody has said where the ranks meet.
    #[error(
        "{}=udp under {started_by} needs a place to meet: set AM_RENDEZVOUS=HOST:PORT (rank 0's host, a free port) and \
         AM_SECRET_FILE=FILE for every rank",
        env::TRANSPORT
    )]
    NoRendezvous {
        /// Who started the ranks.
        started_by: StartedBy,
    },
    /// The interface that was asked for makes no sense.
    #[error("{}={value} in the environment: {reason}", env::INTERFACE)]
    Interface {
        /// Its value.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest that the launcher left is another job's.
    #[error(
        "{}={number} in the environment is the manifest of a job of {found} ranks, but this is one of {ranks}",
        env::MANIFEST_FD
    )]
    Manifest {
        /// The descriptor's number.
        number: u32,
        /// Ranks of its job.
        found: u32,
        /// Ranks according to the environment.
        ranks: u32,
    },
    /// The sockets are another rank's.
    #[error(
        "{} in the environment names {found} socket(s), but this rank has {addresses} address(es)",
        env::UDP_FDS
    )]
    Sockets {
        /// Sockets that were named.
        found: usize,
        /// Addresses of this rank in the manifest.
        addresses: usize,
    },
    /// The job's shared memory could not be made.
    #[error("job {job}: {source}")]
    Create {
        /// The job's name.
        job: String,
        /// The reason.
        source: JobError,
    },
    /// The job's shared memory can't be used.
    #[error("job {job}: {source}")]
    Open {
        /// The job's name.
        job: String,
        /// The reason.
        source: OpenError,
    },
    /// The descriptor that should be the job's shared memory is something else.
    #[error("{variable}={number} in the environment is no descriptor of this job: {source}")]
    Segment {
        /// The variable that names it.
        variable: &'static str,
        /// The descriptor's number.
        number: u32,
        /// The reason.
        source: OpenError,
    },
    /// The program wants another number of ranks than its launcher started.
    #[error("the program asks for {asked} ranks, but {by} started {started}", by = started_by)]
    OtherSize {
        /// The number that the program asked for.
        asked: u32,
        /// The number of ranks that were started.
        started: u32,
        /// Who started them.
        started_by: StartedBy,
    },
}

/// Makes sure that this process doesn't outlive its launcher.
///
/// A direct child was tied to it by the kernel before it was executed. Below a wrapper (a shell, a debugger) the
/// lifeline has to be watched.
fn follow_launcher(identity: &Identity) -> Result<(), RankError> {
    let (Some(launcher), Some(file)) = (identity.launcher_pid, identity.lifeline_fd) else { return Ok(()) };
    let (variable, number) = (env::LIFELINE_FD, file.number);
    let line = claim(number, FileKind::Lifeline(file)).and_then(|line| {
        if getppid().as_raw() as u32 == launcher { Ok(()) } else { lifeline::watch(File::from(line)) }
    });
    line.map_err(|source| RankError::Descriptor { variable, number, source })
}

fn inherited(number: u32, ranks: u32) -> Result<Job, RankError> {
    let variable = env::SHM_FD;
    let descriptor = |source| RankError::Descriptor { variable, number, source };
    let file = unclaimed(number).and_then(|()| reopen(number)).map_err(descriptor)?;
    let job = open(file, ranks).map_err(|source| RankError::Segment { variable, number, source })?;
    // What was inherited is closed here; programs that this one starts get neither.
    claim(number, FileKind::Memory(SealFlag::F_SEAL_SHRINK)).map_err(descriptor)?;
    Ok(job)
}

/// What a launcher left for a job with UDP.
fn inherited_net(net: &NetIdentity, rank: Rank, ranks: u32) -> Result<Net, RankError> {
    let missing = |variable, number| move |source| RankError::Descriptor { variable, number, source };
    let manifest = JobManifest::inherited(net.manifest).map_err(missing(env::MANIFEST_FD, net.manifest))?;
    let found = manifest.shape().ranks;
    let entry = manifest.ranks.get(rank.0 as usize).filter(|_| found == ranks);
    let entry = entry.ok_or(RankError::Manifest { number: net.manifest, found, ranks })?;
    let addresses = &entry.udp;
    if addresses.len() != net.sockets.len() {
        let (found, addresses) = (net.sockets.len(), addresses.len());
        return Err(RankError::Sockets { found, addresses });
    }
    let socket = |(&number, &address): (&u32, &SocketAddr)| {
        let socket = claim(number, FileKind::Udp(address)).map(UdpSocket::from);
        socket.map_err(missing(env::UDP_FDS, number))
    };
    let sockets = net.sockets.iter().zip(addresses).map(socket).collect::<Result<_, _>>()?;
    let link = claim(net.control.number, FileKind::Control(net.control))
        .map_err(missing(env::CONTROL_FD, net.control.number))?;
    Ok(Net::new(Bootstrap::new(manifest, rank, Exchange::Launcher(link), DEFAULT_MEET_TIMEOUT), sockets))
}

fn interface_wish() -> Result<Option<InterfaceWish>, RankError> {
    let Some(value) = std::env::var_os(env::INTERFACE) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    value.parse().map(Some).map_err(|reason| RankError::Interface { value, reason })
}

fn met(name: &str, rank: Rank, ranks: u32, configure: &Configure) -> Result<Job, RankError> {
    let meeting = LocalRendezvous::new(name.to_owned(), ranks, meet_timeout()?);
    if rank == Rank(0) {
        let job = configure.create(ranks).map_err(|source| RankError::Create { job: name.to_owned(), source })?;
        meeting.serve(job.fd())?;
        return Ok(job);
    }
    open(meeting.fetch(rank)?, ranks).map_err(|source| RankError::Open { job: name.to_owned(), source })
}

fn meet_timeout() -> Result<Duration, EnvironmentError> {
    let variable = env::MEET_TIMEOUT;
    let Some(value) = std::env::var_os(variable) else { return Ok(DEFAULT_MEET_TIMEOUT) };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or(EnvironmentError::NotANumber {
        variable,
        value,
        expected: "a number of seconds",
    })
}
