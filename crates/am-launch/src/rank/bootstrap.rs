//! What a job gives a transport to start with: who and where the ranks are, an exchange of bytes, word of
//! failures, the secret.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use am_core::Rank;

use crate::cluster::channel::ChannelError;
use crate::control_links::{
    LONGEST_PART, LauncherMessage, MOST_AHEAD, Presence, Uplink, listen, send_done, send_part, send_watch,
};
use crate::env::error::EnvironmentError;
use crate::manifest::{HostEntry, JobManifest};
use crate::notices;
use crate::rank::error::RankError;
use crate::rank::failures::Failures;
use crate::rank::identity::StartedBy;
use crate::rank::meet::{LocalRendezvous, LocalRendezvousError};
use crate::rank::star::{Spokes, Star};
use crate::secret::Secret;

/// How long ranks let rank 0 say first what is wrong for all of them.
const SAID_FIRST: Duration = Duration::from_secs(3);

/// What leads to the other ranks before any transport does.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// A launcher or agent on this host. Nothing has been said to it yet.
    Launcher(UnixStream),
    /// The other ranks, where no launcher of this family started them; how long they wait for each other in an
    /// exchange.
    Ranks(Spokes, Option<Duration>),
}

/// A rank's job before any transport: who and where its ranks are, and what transports need to find each other.
///
/// A transport learns its peers' addresses by [`allgather`](Self::allgather), hands a file such as shared memory
/// to the other ranks of its host by [`hand_out`](Self::hand_out), and hears of ends that it could not notice
/// itself by [`on_failure`](Self::on_failure). This crate knows none of them.
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
    /// The process that has the rank: what it forks has no part in the job.
    process: u32,
}

/// The rank takes part in no further exchange, and nobody waits for it there.
impl Drop for Bootstrap {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // The other ranks take the end of their connections for that of this process, and rank 0 carries their
        // exchanges.
        if let State::New(Exchange::Ranks(..)) = self.exchange.get_mut().unwrap_or_else(PoisonError::into_inner) {
            drop(self.begun());
        }
        if let State::Begun(link) = self.exchange.get_mut().unwrap_or_else(PoisonError::into_inner) {
            send_done(&*link.uplink);
        }
    }
}

#[derive(Debug)]
enum State {
    /// Before the first exchange.
    New(Exchange),
    Begun(Link),
    /// Taken while it changes; there is no thread if it stays so.
    Broken,
}

/// Why ranks can't exchange what their transports need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The thread that hears from the launcher can't be started.
    #[error("no thread to receive from the launcher: {0}")]
    Thread(io::Error),
    /// A rank's part of an exchange is too long.
    #[error("{bytes} bytes to exchange exceed the limit of {LONGEST_PART}")]
    TooLong {
        /// Bytes given.
        bytes: usize,
    },
    /// The launcher was lost.
    #[error("the launcher was lost before all ranks had attached: {0}")]
    Launcher(io::Error),
    /// The other ranks were lost, or did not take part in time.
    #[error("not all ranks have attached: {0}")]
    Ranks(ChannelError),
    /// This process was forked by the one that has the rank.
    #[error(
        "process {child} was forked by the rank, process {parent}, which alone takes part in the job: join it there"
    )]
    Forked {
        /// This process.
        child: u32,
        /// The process that has the rank.
        parent: u32,
    },
}

impl Bootstrap {
    pub(crate) fn new(
        manifest: JobManifest,
        (rank, local_rank): (Rank, u32),
        started_by: StartedBy,
        exchange: Exchange,
        limit: Duration,
    ) -> Self {
        let (exchange, process) = (Mutex::new(State::New(exchange)), std::process::id());
        Self { rank, local_rank, started_by, manifest, limit, exchange, process }
    }

    /// The most bytes of a rank that an [`allgather`](Self::allgather) takes.
    pub const LONGEST_PART: usize = LONGEST_PART;

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

    /// The secret of this run of the job. Where the ranks met with `AM_SECRET_FILE`, it comes from that file's and
    /// from a value that is new in every run.
    pub fn secret(&self) -> &Secret {
        &self.manifest.secret
    }

    /// Ends the whole job with `code`, at once; [`exit_job`](crate::exit_job) has the details. Does not return.
    pub fn exit_job(&self, code: u8) -> ! {
        notices::exit_job(code)
    }

    /// The error of a rank whose transports can't do what the environment asks for, which is the same on all
    /// ranks: rank 0 says it, the others block for 3 s, in which a launcher ends them.
    pub fn refuse(&self, reason: String) -> RankError {
        after_rank_zero(self.rank);
        EnvironmentError::Setting { reason }.into()
    }

    /// Hands this rank's bytes, at most [`LONGEST_PART`](Self::LONGEST_PART), to all ranks and returns
    /// everybody's, by rank; none of ranks that have ended or have dropped their `Bootstrap`. Collective, and may
    /// be repeated; blocks until all others take part.
    ///
    /// # Errors
    /// More bytes than that, which this rank alone learns; the launcher, or without one another rank, was lost, or
    /// somebody did not take part in time. A rank whose time is up has taken part all the same: the next call is
    /// the next exchange. (Behind 64 exchanges without a result its part goes out with later calls.)
    /// [`ExchangeError::Forked`] in a child process, here and below.
    pub fn allgather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let bytes = own.len();
        if bytes > Self::LONGEST_PART {
            return Err(ExchangeError::TooLong { bytes });
        }
        match &mut *self.begun()? {
            State::Begun(link) => link.allgather(own),
            State::New(_) | State::Broken => Err(ExchangeError::Launcher(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Calls `failed` for every rank that has ended without taking leave, as soon as that is known and also for
    /// those that are known already: for those on this thread, for the others on one that does nothing else. It
    /// must not call this again, and a panic in it is told and goes no further. A rank may be named that has left
    /// in a way of its transport's own.
    ///
    /// Where no launcher of this family started the ranks, rank 0 tells the others, as long as its process
    /// lives; afterwards nobody does. A rank has ended there when its process and all that it forked without
    /// executing another program have: they hold its connection open. One whose host is lost, or the network to
    /// it, is found by transports.
    ///
    /// # Errors
    /// [`ExchangeError::Thread`].
    pub fn on_failure(&self, failed: impl Fn(Rank) + Send + 'static) -> Result<(), ExchangeError> {
        let state = self.begun()?;
        let State::Begun(link) = &*state else { return Ok(()) };
        let failures = Arc::clone(&link.failures);
        // The closure may ask for what waits for the state.
        drop(state);
        failures.listen(Box::new(failed)).map_err(ExchangeError::Thread)
    }

    /// Counts one more endpoint of this rank, whose leave the caller has to report. The launcher takes it that the
    /// rank has left as long as all endpoints have; a rank that has left fails nobody when its process ends well.
    ///
    /// # Errors
    /// [`ExchangeError::Thread`].
    pub fn attach_endpoint(&self) -> Result<DepartureReport, ExchangeError> {
        let state = self.begun()?;
        let State::Begun(link) = &*state else { return Ok(DepartureReport(None)) };
        link.known().presence.attach(&*link.uplink);
        Ok(DepartureReport(Some(Present { known: Arc::clone(&link.known), uplink: Arc::clone(&link.uplink) })))
    }

    /// Hands a file to ranks of this host, which have to [`fetch`](Self::fetch) it; `label` names it, once in a
    /// job. Blocks until all of them have it, have ended or have dropped their `Bootstrap`.
    ///
    /// # Errors
    /// Somebody did not fetch it in time, or the system refused something.
    pub fn hand_out(&self, label: &str, file: BorrowedFd<'_>, to: &[Rank]) -> Result<(), LocalRendezvousError> {
        let _watch = self.watch(label)?;
        let whom = to.iter().map(|rank| rank.0).filter(|rank| *rank != self.rank.0).collect();
        self.meeting(label).serve(whom, file, &|rank| self.is_out(Rank(rank)), |_, _| ())
    }

    /// Fetches what a rank of this host [hands out](Self::hand_out). Blocks until it does.
    ///
    /// # Errors
    /// It has ended or dropped its `Bootstrap`, did not hand it out in time, or the system refused something.
    pub fn fetch(&self, label: &str, from: Rank) -> Result<OwnedFd, LocalRendezvousError> {
        let _watch = self.watch(label)?;
        self.meeting(label).fetch(self.rank, from, &|| self.is_out(from)).map(|(file, _)| file)
    }

    fn meeting(&self, label: &str) -> LocalRendezvous {
        let name = format!("{}-host-{}-{label}", self.job_id(), self.host_of(self.rank));
        LocalRendezvous::new(name, self.ranks(), self.limit)
    }

    /// Those that would be waited for in vain are reported until the return value is dropped.
    fn watch(&self, label: &str) -> Result<Watch, LocalRendezvousError> {
        match self.begun() {
            Ok(state) => match &*state {
                State::Begun(link) => Ok(Watch::begin(&link.uplink)),
                _ => Ok(Watch(None)),
            },
            Err(error) => Err(self.meeting(label).system(io::Error::other(error))),
        }
    }

    /// Whether a rank is known to have ended without taking leave, or to take part in nothing more.
    fn is_out(&self, rank: Rank) -> bool {
        match &*self.exchange.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Begun(link) => link.failures.is_dead(rank) || link.known().done.contains(&rank),
            _ => false,
        }
    }

    /// The exchange, with the thread that hears from a launcher or the other ranks.
    fn begun(&self) -> Result<MutexGuard<'_, State>, ExchangeError> {
        let (child, parent) = (std::process::id(), self.process);
        if child != parent {
            return Err(ExchangeError::Forked { child, parent });
        }
        let mut state = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::New(_))
            && let State::New(exchange) = std::mem::replace(&mut *state, State::Broken)
        {
            *state = State::Begun(Link::begin(exchange, self.ranks()).map_err(ExchangeError::Thread)?);
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

/// The link to a launcher or to other ranks, and the thread that hears from there. The thread sleeps until
/// something is said; it ends with the launcher, and so outlives this, since endpoints do, too.
#[derive(Debug)]
struct Link {
    known: Arc<Mutex<Known>>,
    failures: Arc<Failures>,
    uplink: Arc<dyn Uplink>,
    gathered: Receiver<Vec<Vec<u8>>>,
    /// Exchanges that this rank has taken part in and not had the result of: it has given up on all but the last
    /// one.
    open: usize,
    /// This rank's parts of the exchanges behind those, oldest first. It has given up on all but the last.
    unsent: VecDeque<Vec<u8>>,
    /// How long other ranks are waited for, where they are what is at the other end.
    limit: Option<Duration>,
    launched: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// Those that take part in no further exchange, as far as this rank has asked.
    done: Vec<Rank>,
    presence: Presence,
    /// Where exchanges go, as long as somebody carries them.
    gathered: Option<Sender<Vec<Vec<u8>>>>,
    /// Why nobody does any more.
    over: Option<io::ErrorKind>,
}

/// Takes in what a rank is told.
fn hear(failures: &Failures, known: &Mutex<Known>, told: LauncherMessage) {
    let all = || known.lock().unwrap_or_else(PoisonError::into_inner);
    match told {
        // Nobody exchanges any more where nobody receives; deaths are still news.
        LauncherMessage::Gathered(parts) => drop(all().gathered.as_ref().map(|gathered| gathered.send(parts))),
        LauncherMessage::Failed(ranks) => failures.note(&ranks),
        LauncherMessage::Done(ranks) => all().done.extend_from_slice(&ranks),
        LauncherMessage::Over(reason) => {
            let mut known = all();
            (known.gathered, known.over) = (None, Some(reason));
        }
    }
}

impl Link {
    fn begin(exchange: Exchange, ranks: u32) -> io::Result<Self> {
        let (sender, gathered) = channel();
        let known = Known { gathered: Some(sender), ..Known::default() };
        let (known, failures) = (Arc::new(Mutex::new(known)), Arc::<Failures>::default());
        let told = {
            let (known, failures) = (Arc::clone(&known), Arc::clone(&failures));
            move |told| hear(&failures, &known, told)
        };
        let (uplink, limit, launched): (Arc<dyn Uplink>, _, _) = match exchange {
            Exchange::Ranks(spokes, limit) => (Star::begin(spokes, ranks, told)?, limit, false),
            Exchange::Launcher(link) => {
                let link = Arc::new(link);
                let uplink = Arc::new(Mutex::new(Arc::clone(&link)));
                let hears = move || {
                    listen(&link, ranks, &told);
                    told(LauncherMessage::Over(io::ErrorKind::UnexpectedEof));
                };
                thread::Builder::new().name("am-launcher".into()).stack_size(64 * 1024).spawn(hears)?;
                (uplink, None, true)
            }
        };
        Ok(Self { known, failures, uplink, gathered, open: 0, unsent: VecDeque::new(), limit, launched })
    }

    fn allgather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let since = Instant::now();
        self.unsent.push_back(own.to_vec());
        loop {
            // Whoever carries exchanges takes no more parts of one rank. The others are sent as results come in.
            while self.open < MOST_AHEAD
                && let Some(part) = self.unsent.front()
            {
                send_part(&*self.uplink, part).map_err(|error| self.lost(error.kind()))?;
                self.unsent.pop_front();
                self.open += 1;
            }
            let parts = match self.limit.map(|limit| limit.saturating_sub(since.elapsed())) {
                None => self.gathered.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => self.gathered.recv_timeout(left),
            };
            let parts = parts.map_err(|error| match error {
                RecvTimeoutError::Timeout => ExchangeError::Ranks(ChannelError::TimedOut),
                RecvTimeoutError::Disconnected => {
                    let over = self.known().over;
                    self.lost(over.unwrap_or(io::ErrorKind::UnexpectedEof))
                }
            })?;
            self.open -= 1;
            // Otherwise they are those of an exchange that this rank has given up on.
            if self.open == 0 && self.unsent.is_empty() {
                return Ok(parts);
            }
        }
    }

    /// The error of a rank that nobody carries exchanges for any more, for this reason.
    fn lost(&self, reason: io::ErrorKind) -> ExchangeError {
        if self.launched { ExchangeError::Launcher(reason.into()) } else { ExchangeError::Ranks(reason.into()) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it is there, the launcher tells who takes part in no further exchange.
struct Watch(Option<Arc<dyn Uplink>>);

impl Watch {
    fn begin(uplink: &Arc<dyn Uplink>) -> Self {
        send_watch(&**uplink, true);
        Self(Some(Arc::clone(uplink)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(uplink) = &self.0 {
            send_watch(&**uplink, false);
        }
    }
}

/// An endpoint that has not taken leave.
#[derive(Debug)]
pub struct DepartureReport(Option<Present>);

/// Where its leave goes.
#[derive(Debug)]
struct Present {
    known: Arc<Mutex<Known>>,
    uplink: Arc<dyn Uplink>,
}

impl DepartureReport {
    /// The endpoint has taken leave. A launcher that is gone needs no word.
    pub fn report(self) {
        if let Some(Present { known, uplink }) = self.0 {
            known.lock().unwrap_or_else(PoisonError::into_inner).presence.depart(&*uplink);
        }
    }
}

#[cfg(test)]
mod tests;
