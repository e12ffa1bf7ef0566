//! What a job gives a transport to start with: who and where the ranks are, an exchange of bytes, word of
//! failures, the secret.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use am_core::Rank;

use crate::cluster::channel::ChannelError;
use crate::cluster::rendezvous_links::RendezvousLinks;
use crate::control_links::{Presence, Told, listen, send_part};
use crate::manifest::{HostEntry, JobManifest};
use crate::secret::Secret;

/// What leads to the other ranks before any transport does.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// A launcher or agent on this host. Nothing has been said to it yet.
    Launcher(OwnedFd),
    /// The other ranks, where no launcher of this family started them.
    Rendezvous(RendezvousLinks),
}

/// What a job with several hosts, or without shared memory, gives every transport alike.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    manifest: JobManifest,
    rank: Rank,
    /// How long ranks without a launcher wait for each other.
    limit: Duration,
    exchange: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The launcher's link, before the first exchange.
    New(OwnedFd),
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
    pub(crate) fn new(manifest: JobManifest, rank: Rank, exchange: Exchange, limit: Duration) -> Self {
        let state = match exchange {
            Exchange::Launcher(link) => State::New(link),
            Exchange::Rendezvous(links) => State::Rendezvous(links),
        };
        Self { manifest, rank, limit, exchange: Mutex::new(state) }
    }

    /// This process's rank.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.manifest.shape().ranks
    }

    /// The job's hosts.
    pub(crate) fn hosts(&self) -> &[HostEntry] {
        &self.manifest.hosts
    }

    /// The index of a rank's host.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub(crate) fn host_of(&self, rank: Rank) -> u32 {
        self.manifest.ranks[rank.0 as usize].host
    }

    /// The secret of this run of the job.
    pub(crate) fn secret(&self) -> &Secret {
        &self.manifest.secret
    }

    pub(crate) fn manifest(&self) -> &JobManifest {
        &self.manifest
    }

    /// Hands this rank's bytes, at most 64 KiB, to all ranks and returns everybody's, by rank; none of ranks that
    /// have ended. Collective; blocks until all ranks that live take part.
    ///
    /// # Errors
    /// The launcher, or without one another rank, was lost, or somebody did not take part in time.
    pub(crate) fn allgather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut state = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::New(_))
            && let State::New(link) = std::mem::replace(&mut *state, State::Broken)
        {
            let link = LauncherLink::begin(link.into(), self.ranks()).map_err(ExchangeError::Thread)?;
            *state = State::Launcher(link);
        }
        match &mut *state {
            State::Launcher(link) => link.allgather(own).map_err(ExchangeError::Launcher),
            State::Rendezvous(links) => {
                links.allgather(own, self.ranks(), self.limit).map_err(ExchangeError::Ranks)
            }
            State::New(_) | State::Broken => Err(ExchangeError::Launcher(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Calls `failed` for every rank that has ended without taking leave, as soon as the launcher says so and also
    /// for those that are known already; never where there is no launcher of this family, or before the first
    /// exchange. Counts one more endpoint of this rank, whose leave the caller has to report.
    pub(crate) fn attach_endpoint(&self, failed: impl Fn(Rank) + Send + 'static) -> Option<Leave> {
        let state = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Launcher(link) = &*state else { return None };
        Some(link.attach_endpoint(Box::new(failed)))
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

    fn attach_endpoint(&self, failed: Listener) -> Leave {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.presence.attach(&self.link);
        known.dead.iter().for_each(|&rank| failed(rank));
        known.listeners.push(failed);
        Leave { known: Arc::clone(&self.known), link: Arc::clone(&self.link) }
    }
}

/// An endpoint that has not taken leave. As long as all endpoints of a rank have, the launcher takes it that the
/// rank has.
#[derive(Debug)]
pub(crate) struct Leave {
    known: Arc<Mutex<Known>>,
    link: Arc<UnixStream>,
}

impl Leave {
    /// The endpoint has taken leave.
    pub(crate) fn report(self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).presence.depart(&self.link);
    }
}
