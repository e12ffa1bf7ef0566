//! A rank's own view of its job: who it is, where the others are, and what its transports start with.

pub(crate) mod bootstrap;
pub(crate) mod error;
pub(crate) mod failures;
pub(crate) mod identity;
pub(crate) mod kvs;
pub(crate) mod meet;
pub(crate) mod star;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use am_core::Rank;
use am_core::stall;
use nix::unistd::getppid;

use crate::cluster::listener::Listener;
use crate::cluster::rendezvous::{Met, RendezvousClient, RendezvousError};
use crate::descriptors::{FileKind, claim};
use crate::env;
use crate::env::check::{self, check_own};
use crate::env::error::EnvironmentError;
use crate::host::spawn::report_on_quit;
use crate::host::{lifeline, limits};
use crate::interface::{InterfaceWish, choose, interface_of};
use crate::manifest::{HostEntry, JobManifest};
use crate::notices;
use crate::rank::bootstrap::{Bootstrap, Exchange, after_rank_zero};
use crate::rank::error::RankError;
use crate::rank::identity::{Identity, Inherited, StartedBy, identify};
use crate::rank::kvs::pmi::Member;
use crate::rank::kvs::{KeyValueSpace, Meeting};
use crate::rank::meet::{LocalRendezvous, LocalRendezvousError, launcher_name};
use crate::rank::star::Spokes;
use crate::secret::{Secret, SecretError};

/// How long the ranks of an `mpirun` or `srun` job wait for each other at the start, beside what
/// [`default_meet_timeout`] adds for each of them, unless `AM_MEET_TIMEOUT` says otherwise.
pub const DEFAULT_MEET_TIMEOUT: Duration = Duration::from_secs(60);
/// What every rank adds: its process is started, and meets rank 0, after those of the others.
const MEET_PER_RANK: Duration = Duration::from_millis(100);

/// How long so many ranks wait for each other where nobody says otherwise: [`DEFAULT_MEET_TIMEOUT`] and a tenth of
/// a second for each.
pub fn default_meet_timeout(ranks: u32) -> Duration {
    DEFAULT_MEET_TIMEOUT + MEET_PER_RANK.saturating_mul(ranks)
}

impl Bootstrap {
    /// The job that the environment describes, or `None` if no launcher started this process.
    ///
    /// The environment of `amrun` and of [`run`](crate::run) comes first, then that of `mpirun` (Open MPI, MPICH
    /// and its relatives, PMIx), then that of `srun`. Within a Slurm allocation only a process of a job step with
    /// several tasks is a rank: a batch script has `SLURM_PROCID` too, but no `SLURM_STEP_ID`.
    ///
    /// SIGQUIT makes this process print what its endpoints wait for from now on, unless it has a handler of its
    /// own, and `AM_TIMEOUT` becomes the time-out of waits.
    ///
    /// Under `mpirun` and `srun`, and when the variables were set by hand, this call blocks until the other ranks
    /// are there: on one host by the job's name, on several at `AM_RENDEZVOUS`.
    ///
    /// # Errors
    /// A malformed environment, ranks on several hosts without a rendezvous address, or ranks that don't turn up
    /// within `AM_MEET_TIMEOUT` seconds, [`default_meet_timeout`] unless it is set.
    pub fn from_environment() -> Result<Option<Self>, RankError> {
        Self::identified(1)
    }

    /// As [`from_environment`](Self::from_environment); where no launcher says how many endpoints a rank has, it
    /// has these.
    pub(crate) fn identified(endpoints: u16) -> Result<Option<Self>, RankError> {
        let Some(identity) = identify(&|name| std::env::var_os(name))? else { return Ok(None) };
        follow_launcher(&identity)?;
        // A program that started itself has checked all of it. `amrun` knows no variables of transports.
        if identity.started_by != StartedBy::Itself {
            check_own(&[]).inspect_err(|_| after_rank_zero(identity.rank))?;
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
        let (rank, ranks) = (identity.rank, identity.ranks);
        let place = (rank, identity.local_rank);
        let limit = meet_timeout(identity.ranks)?;
        if let Some(address) = &identity.rendezvous {
            return met_everywhere(&identity, address, endpoints, limit).map(Some);
        }
        if let Some(space) = identity.space {
            return met_over(space, &identity, endpoints, limit).map(Some);
        }
        let (manifest, exchange) = match identity.inherited {
            Some(files) => {
                let (manifest, link) = inherited(files, ranks)?;
                (manifest, Exchange::Launcher(link))
            }
            None => {
                let job = identity.job.unwrap_or_else(|| launcher_name(identity.rank_variable));
                let (manifest, spokes) = met_here(job, rank, ranks, endpoints, limit)?;
                // Beyond the start nobody is waited for in vain: whoever ends is noticed.
                (manifest, Exchange::Ranks(spokes, None))
            }
        };
        Ok(Some(Self::new(manifest, place, identity.started_by, exchange, limit)))
    }
}

/// The rank that this process was started as, of how many, and by whom; `None` if no launcher started it. Goes by
/// what [`Bootstrap::from_environment`] goes by, and joins nothing.
///
/// # Errors
/// A malformed environment.
pub fn started_as() -> Result<Option<(Rank, u32, StartedBy)>, EnvironmentError> {
    let identity = identify(&|name| std::env::var_os(name))?;
    Ok(identity.map(|identity| (identity.rank, identity.ranks, identity.started_by)))
}

/// Meets the ranks of all hosts.
fn met_everywhere(
    identity: &Identity,
    address: &str,
    endpoints: u16,
    limit: Duration,
) -> Result<Bootstrap, RankError> {
    let Some(file) = std::env::var_os(env::SECRET_FILE) else {
        return Err(RendezvousError::from(SecretError::Missing { rendezvous: address.into() }).into());
    };
    let secret = Secret::from_file(file.as_ref()).map_err(RendezvousError::from)?;
    let met = client(identity, address, secret, endpoints, limit)?.meet()?;
    Ok(joined(met, identity, limit))
}

/// Meets the ranks of all hosts where rank 0 says so over the launcher's key-value space.
fn met_over(
    space: KeyValueSpace,
    identity: &Identity,
    endpoints: u16,
    limit: Duration,
) -> Result<Bootstrap, RankError> {
    let place = |meeting: &Meeting| {
        let all: Vec<String> = meeting.addresses.iter().map(SocketAddr::to_string).collect();
        format!("{} (told by {})", all.join(" or "), space.name())
    };
    let job = identity.job.as_deref().unwrap_or("0");
    let me = Member { rank: identity.rank.0, ranks: identity.ranks, job };
    if identity.rank != Rank(0) {
        let meeting = space.share(me, None, limit)?;
        let place = place(&meeting);
        let client = client(identity, &place, meeting.secret.clone(), endpoints, limit)?;
        return Ok(joined(client.visit(&meeting.addresses)?, identity, limit));
    }
    let system = |source| RankError::from(RendezvousError::System { address: "a free port".into(), source });
    let secret = Secret::random().map_err(system)?;
    let wish = interface_wish()?;
    let ends = match &wish {
        Some(wish) => vec![(choose(wish).map_err(RendezvousError::from)?.address, 0).into()],
        None => Meeting::any().to_vec(),
    };
    let mut opened =
        ends.into_iter().map(|end: SocketAddr| Listener::open(end, &secret).map(|listener| (listener, end.ip())));
    let first = opened.next().expect("there is an address");
    let (listener, address) =
        first.or_else(|error| opened.next().unwrap_or(Err(error))).map_err(RendezvousError::from)?;
    let port = listener.port().map_err(system)?;
    let meeting = Meeting::here(wish.as_ref(), port, secret.clone()).map_err(RendezvousError::from)?;
    space.share(me, Some(&meeting), limit)?;
    let met = client(identity, &place(&meeting), secret, endpoints, limit)?.gather(listener, address)?;
    Ok(joined(met, identity, limit))
}

/// What a rank brings to the others.
fn client<'a>(
    identity: &Identity,
    address: &'a str,
    secret: Secret,
    endpoints: u16,
    limit: Duration,
) -> Result<RendezvousClient<'a>, RankError> {
    Ok(RendezvousClient {
        address,
        rank: identity.rank,
        ranks: identity.ranks,
        endpoints,
        transport: std::env::var_os(env::TRANSPORT).map(|value| value.to_string_lossy().into_owned()),
        interface: interface_wish()?,
        secret,
        limit,
    })
}

/// A rank that has met the others.
fn joined(met: Met, identity: &Identity, limit: Duration) -> Bootstrap {
    let (rank, Met { manifest, spokes }) = (identity.rank, met);
    let members = manifest.members(manifest.host_of[rank.0 as usize]);
    let local = members.iter().position(|&member| member == rank).expect("a rank is on its own host") as u32;
    let exchange = Exchange::Ranks(spokes, Some(limit));
    Bootstrap::new(manifest, (rank, local), identity.started_by, exchange, limit)
}

/// Meets the ranks of a job on this host alone, by its name: rank 0 makes the manifest and serves the others in a
/// launcher's place.
fn met_here(
    job: String,
    rank: Rank,
    ranks: u32,
    endpoints: u16,
    limit: Duration,
) -> Result<(JobManifest, Spokes), RankError> {
    let meeting = LocalRendezvous::new(job.clone(), ranks, limit);
    let system = |source: io::Error| LocalRendezvousError::System { job: job.clone(), source };
    if rank != Rank(0) {
        let (file, link) = meeting.fetch(rank, Rank(0), &|| false)?;
        let manifest = JobManifest::read(file.into()).map_err(system)?;
        let found = manifest.ranks();
        if found != ranks {
            return Err(RankError::Manifest { found, ranks });
        }
        let mut spokes = Spokes::leaf(link, &manifest.secret).map_err(system)?;
        meeting.open(rank, &mut spokes)?;
        return Ok((manifest, spokes));
    }
    let address = IpAddr::from([127, 0, 0, 1]);
    let manifest = JobManifest {
        job: job.clone(),
        secret: Secret::random().map_err(system)?,
        endpoints,
        hosts: vec![HostEntry { name: "localhost".into(), address, interface: interface_of(address) }],
        host_of: vec![0; ranks as usize],
    };
    let file = manifest.file().map_err(system)?;
    limits::make_room(64 + ranks as usize);
    let mut streams = BTreeMap::new();
    let serve = |rank, stream| drop(streams.insert(rank, stream));
    meeting.serve((1..ranks).collect(), file.as_fd(), &|_| false, serve)?;
    let mut spokes = Spokes::root(streams, &manifest.secret).map_err(system)?;
    meeting.open(rank, &mut spokes)?;
    Ok((manifest, spokes))
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

/// What a launcher left: the manifest, and the link to it.
fn inherited(files: Inherited, ranks: u32) -> Result<(JobManifest, UnixStream), RankError> {
    let missing = |variable, number| move |source| RankError::Descriptor { variable, number, source };
    let manifest =
        JobManifest::inherited(files.manifest).map_err(missing(env::MANIFEST_FD, files.manifest.number))?;
    let found = manifest.ranks();
    if found != ranks {
        return Err(RankError::Manifest { found, ranks });
    }
    let number = files.control.number;
    let link = claim(number, FileKind::Control(files.control)).map_err(missing(env::CONTROL_FD, number))?;
    Ok((manifest, link.into()))
}

fn interface_wish() -> Result<Option<InterfaceWish>, RankError> {
    let Some(value) = std::env::var_os(env::INTERFACE) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    value.parse().map(Some).map_err(|reason| RankError::Interface { value, reason })
}

fn meet_timeout(ranks: u32) -> Result<Duration, EnvironmentError> {
    let variable = env::MEET_TIMEOUT;
    let Some(value) = std::env::var_os(variable) else { return Ok(default_meet_timeout(ranks)) };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // No clock tells the end of more.
    let limit = limit.map(|limit| limit.min(Duration::from_secs(u32::MAX.into())));
    limit.ok_or(EnvironmentError::Malformed { variable, value, expected: "a number of seconds" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranks_get_more_time_to_meet() {
        assert_eq!(
            [1, 600, 4096].map(default_meet_timeout),
            [60_100, 120_000, 469_600].map(Duration::from_millis)
        );
        assert!(default_meet_timeout(u32::MAX) > Duration::from_secs(1 << 28));
    }
}
