//! What a job gives a transport to start with: who and where the ranks are, an exchange of bytes, word of
//! failures, the secret.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use am_core::Rank;

use crate::cluster::channel::ChannelError;
use crate::cluster::rendezvous_links::RendezvousLinks;
use crate::control_links::{Presence, Told, listen, send_part};
use crate::manifest::{HostEntry, JobManifest};
use crate::notices;
use crate::rank::RankError;
use crate::rank::identity::{EnvironmentError, StartedBy};
use crate::rank::meet::{LocalRendezvous, MeetError};
use crate::secret::Secret;

/// How long ranks let rank 0 say first what is wrong for all of them.
const SAID_FIRST: Duration = Duration::from_secs(3);

/// What leads to the other ranks before any transport does.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// A launcher or agent on this host, or rank 0 in its place. Nothing has been said to it yet.
    Launcher(UnixStream),
    /// The other ranks, where no launcher of this family started them.
    Rendezvous(RendezvousLinks),
}

/// A rank's job before any transport: who and where its ranks are, and what transports need to find each other.
///
/// A transport learns its peers' addresses by [`allgather`](Self::allgather), hands a file such as shared memory to the other ranks
/// of its host by [`hand_out`](Self::hand_out), and hears of ends that it could not notice itself by
/// [`on_failure`](Self::on_failure). This crate knows none of them.
///
/// ```no_run
/// let Some(job) = am_launch::Bootstrap::from_environment()? else { return Ok(()) };
/// let own = format!("rank {} is process {}", job.rank(), std::process::id());
/// for part in job.allgather(own.as_bytes())? {
///     println!("{}", String::from_utf8_lossy(&part));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Bootstrap {
    rank: Rank,
    local_rank: u32,
    started_by: StartedBy,
    manifest: JobManifest,
    /// How long ranks without a launcher wait for each other.
    limit: Duration,
    exchange: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The launcher's link, before the first exchange.
    New(UnixStream),
    Launcher(LauncherLink),
    Rendezvous(RendezvousLinks),
    /// Taken while it changes; the launcher has gone if it stays so.
    Broken,
}

/// Why ranks can't exchange what their transports need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The thread that hears from the launcher can't be started.
    #[error("no thread to hear from the launcher: {0}")]
    Thread(io::Error),
    /// The launcher was lost.
    #[error("the launcher was lost before all ranks had attached: {0}")]
    Launcher(io::Error),
    /// The other ranks were lost, or did not take part in time.
    #[error("not all ranks have attached: {0}")]
    Ranks(ChannelError),
}

impl Bootstrap {
    pub(crate) fn new(
        manifest: JobManifest,
        (rank, local_rank): (Rank, u32),
        started_by: StartedBy,
        exchange: Exchange,
        limit: Duration,
    ) -> Self {
        let state = match exchange {
            Exchange::Launcher(link) => State::New(link),
            Exchange::Rendezvous(links) => State::Rendezvous(links),
        };
        Self { rank, local_rank, started_by, manifest, limit, exchange: Mutex::new(state) }
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.manifest.ranks()
    }

    /// Endpoints of every rank.
    pub fn endpoints(&self) -> u16 {
        self.manifest.endpoints
    }

    /// This process's number among the ranks of its host.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// A text that names the job uniquely on its host.
    pub fn job_id(&self) -> &str {
        &self.manifest.job
    }

    /// How the job's ranks were started.
    pub fn started_by(&self) -> StartedBy {
        self.started_by
    }

    /// The job's hosts, with the address and the interface that each uses.
    pub fn hosts(&self) -> &[HostEntry] {
        &self.manifest.hosts
    }

    /// The index of a rank's host among [`hosts`](Self::hosts).
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn host_of(&self, rank: Rank) -> u32 {
        assert!(rank.0 < self.ranks(), "rank {rank} is not in the job");
        self.manifest.host_of[rank.0 as usize]
    }

    /// The ranks of this process's host, in order.
    pub fn neighbours(&self) -> Vec<Rank> {
        self.manifest.members(self.host_of(self.rank))
    }

    /// The secret of this run of the job. Where the ranks met with `AM_SECRET_FILE`, it comes from that file's and from a value
    /// that is new in every run.
    pub fn secret(&self) -> &Secret {
        &self.manifest.secret
    }

    /// Ends the whole job with `code`, at once; [`exit_job`](crate::exit_job) has the details. Does not return.
    pub fn exit_job(&self, code: u8) -> ! {
        notices::exit_job(code)
    }

    /// The error of a rank whose transports can't do what the environment asks for, which is the same on all ranks: rank 0 says it,
    /// the others block for 3 s, in which a launcher ends them.
    pub fn refuse(&self, reason: String) -> RankError {
        after_rank_zero(self.rank);
        EnvironmentError::Setting { reason }.into()
    }

    /// Hands this rank's bytes, at most 64 KiB, to all ranks and returns everybody's, by rank; none of ranks that have ended.
    /// Collective, and may be repeated; blocks until all ranks that live take part.
    ///
    /// # Errors
    /// The launcher, or without one another rank, was lost, or somebody did not take part in time.
    pub fn allgather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        match &mut *self.begun()? {
            State::Launcher(link) => link.allgather(own).map_err(ExchangeError::Launcher),
            State::Rendezvous(links) => {
                links.allgather(own, self.ranks(), self.limit).map_err(ExchangeError::Ranks)
            }
            State::New(_) | State::Broken => Err(ExchangeError::Launcher(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Calls `failed` for every rank that has ended without taking leave, as soon as that is known and also for those that are known
    /// already; on a thread that does nothing else, or on this one. A rank may be named that has left in a way of its transport's
    /// own. Never called where ranks met at `AM_RENDEZVOUS`: nobody watches them.
    ///
    /// # Errors
    /// [`ExchangeError::Thread`].
    pub fn on_failure(&self, failed: impl Fn(Rank) + Send + 'static) -> Result<(), ExchangeError> {
        if let State::Launcher(link) = &*self.begun()? {
            link.known().add(Box::new(failed));
        }
        Ok(())
    }

    /// Counts one more endpoint of this rank, whose leave the caller has to report. The launcher takes it that the rank has left as
    /// long as all endpoints have; a rank that has left fails nobody when its process ends well.
    ///
    /// # Errors
    /// [`ExchangeError::Thread`].
    pub fn attach_endpoint(&self) -> Result<Leave, ExchangeError> {
        let state = self.begun()?;
        let State::Launcher(link) = &*state else { return Ok(Leave(None)) };
        link.known().presence.attach(&link.link);
        Ok(Leave(Some((Arc::clone(&link.known), Arc::clone(&link.link)))))
    }

    /// Hands a file to ranks of this host, which have to [`fetch`](Self::fetch) it; `label` names it, once in a job. Blocks until all
    /// of them have it or have ended.
    ///
    /// # Errors
    /// Somebody did not fetch it in time, or the system refused something.
    pub fn hand_out(&self, label: &str, file: BorrowedFd<'_>, to: &[Rank]) -> Result<(), MeetError> {
        let whom = to.iter().map(|rank| rank.0).filter(|rank| *rank != self.rank.0).collect();
        self.meeting(label).serve(whom, file, &|rank| self.has_failed(Rank(rank)), |_, _| ())
    }

    /// Fetches what a rank of this host [hands out](Self::hand_out). Blocks until it does.
    ///
    /// # Errors
    /// It has ended, did not hand it out in time, or the system refused something.
    pub fn fetch(&self, label: &str, from: Rank) -> Result<OwnedFd, MeetError> {
        self.meeting(label).fetch(self.rank, from, &|| self.has_failed(from)).map(|(file, _)| file)
    }

    fn meeting(&self, label: &str) -> LocalRendezvous {
        let name = format!("{}-host-{}-{label}", self.job_id(), self.host_of(self.rank));
        LocalRendezvous::new(name, self.ranks(), self.limit)
    }

    /// Whether a rank is known to have ended without taking leave.
    fn has_failed(&self, rank: Rank) -> bool {
        match &*self.exchange.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Launcher(link) => link.known().dead.contains(&rank),
            _ => false,
        }
    }

    /// The exchange, with the thread that hears from a launcher.
    fn begun(&self) -> Result<MutexGuard<'_, State>, ExchangeError> {
        let mut state = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::New(_))
            && let State::New(link) = std::mem::replace(&mut *state, State::Broken)
        {
            *state = State::Launcher(LauncherLink::begin(link, self.ranks()).map_err(ExchangeError::Thread)?);
        }
        Ok(state)
    }
}

/// Lets rank 0 say what is wrong for all ranks before this one does.
pub(crate) fn after_rank_zero(rank: Rank) {
    if rank != Rank(0) {
        thread::sleep(SAID_FIRST);
    }
}

/// The link to a launcher, and the thread that hears from it. The thread sleeps until something is said; it ends
/// with the launcher, and so outlives this, since endpoints do, too.
#[derive(Debug)]
struct LauncherLink {
    known: Arc<Mutex<Known>>,
    link: Arc<UnixStream>,
    gathered: Receiver<Vec<Vec<u8>>>,
}

/// Who wants to know of failures.
type Listener = Box<dyn Fn(Rank) + Send>;

#[derive(Default)]
struct Known {
    listeners: Vec<Listener>,
    dead: Vec<Rank>,
    presence: Presence,
}

impl Known {
    fn add(&mut self, failed: Listener) {
        self.dead.iter().for_each(|&rank| failed(rank));
        self.listeners.push(failed);
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("dead", &self.dead).field("presence", &self.presence).finish_non_exhaustive()
    }
}

impl LauncherLink {
    fn begin(link: UnixStream, ranks: u32) -> io::Result<Self> {
        let known = Arc::new(Mutex::new(Known::default()));
        let (link, (sender, gathered)) = (Arc::new(link), channel());
        let ours = Self { known: Arc::clone(&known), link: Arc::clone(&link), gathered };
        let hear = move || {
            listen(&link, ranks, |told| match told {
                // Nobody exchanges any more; deaths are still news.
                Told::Gathered(parts) => drop(sender.send(parts)),
                Told::Failed(ranks) => {
                    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                    for rank in ranks {
                        known.dead.push(rank);
                        known.listeners.iter().for_each(|failed| failed(rank));
                    }
                }
            });
        };
        thread::Builder::new().name("am-launcher".into()).stack_size(64 * 1024).spawn(hear)?;
        Ok(ours)
    }

    fn allgather(&self, own: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        send_part(&self.link, own)?;
        self.gathered.recv().map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An endpoint that has not taken leave.
#[derive(Debug)]
pub struct Leave(Option<(Arc<Mutex<Known>>, Arc<UnixStream>)>);

impl Leave {
    /// The endpoint has taken leave. A launcher that is gone needs no word.
    pub fn report(self) {
        if let Some((known, link)) = self.0 {
            known.lock().unwrap_or_else(PoisonError::into_inner).presence.depart(&link);
        }
    }
}
