//! The transport over a real socket: the machine of `proto` driven by the program's thread and a helper.
//!
//! | module | owns |
//! |---|---|
//! | `config`, `peers` | settings, the environment, the table of the job |
//! | `wire` | the socket: rows of datagrams out and in |
//! | `engine` | machine and socket together: taking in, sending out |
//! | `service` | the helper thread |
//! | `process` | whose endpoint it is: a fork may not use it |
//! | `asynchronous` | the tokio mode (feature `tokio`) |
//! | `obituary` | what others know of the ends of ranks |
//! | `vitals` | signs of life while a handler runs for long |
//! | `waiting` | how long to ask, when to sleep |
//! | `job` | jobs within one process |

#[cfg(feature = "tokio")]
mod asynchronous;
mod config;
mod engine;
mod job;
mod obituary;
mod peers;
mod process;
mod service;
mod vitals;
mod waiting;
mod wire;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncEndpoint;
pub use config::{EnvironmentError, LOOPBACK_DATAGRAM, UdpConfig, Waiting};
pub use job::{LocalJob, LocalOptions};
pub use obituary::Obituary;
pub use peers::{Peers, PeersError};

use crate::carrier::{Carrier, OwnMemory};
use crate::driver::Driver;
use crate::proto::{BorrowedPayload, ConfigError, Machine};
use am_core::transport::{Departure, LossCause, Notify, WaitReason};
use am_core::{Address, Instant, Memory, Peer, Rank, Segment, Shape, Span};
use engine::Engine;
use nix::errno::Errno;
use nix::poll::PollFlags;
use process::Process;
use service::{Clock, Service, Shared};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::task::Waker;
use std::time::Duration;
use waiting::{Next, Patience, sleep};
use wire::Wire;

/// Active messages over UDP: the transport of one endpoint.
///
/// Every endpoint has a socket of its own. It can be sent to the thread that uses it.
pub type Udp<M = OwnMemory> = Carrier<SocketDriver, M>;

/// So many bytes are handed to the system while a program keeps sending without polling.
const EAGER: u64 = 24 << 10;

/// So many fruitless looks at the socket alone follow a whole round.
const GLANCES: u32 = 8;

/// The longest sleep of an endpoint that waits: rare enough to cost nothing.
const LONGEST_SLEEP: Span = Span::from_secs(1);

/// An endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// The settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The job has no such endpoint.
    #[error("endpoint {me} is not in a job of {ranks} ranks with {endpoints} endpoint(s) each")]
    NoSuchEndpoint {
        /// The endpoint asked for.
        me: Address,
        /// Ranks of the job.
        ranks: u32,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// The socket is bound to another port than the job was told.
    #[error("endpoint {me} is bound to {bound}, but the job was told {told}")]
    WrongPort {
        /// This endpoint.
        me: Address,
        /// Where its socket listens.
        bound: SocketAddr,
        /// What the table of peers says.
        told: SocketAddr,
    },
    /// An IPv4 socket cannot send to an IPv6 address.
    #[error(
        "rank {rank} is at {address}, which the socket bound to {bound} cannot send to: bind to an IPv6 address"
    )]
    Family {
        /// A rank.
        rank: Rank,
        /// Its address.
        address: SocketAddr,
        /// Where this endpoint's socket is bound.
        bound: SocketAddr,
    },
    /// The segment is not as large as the job was told.
    #[error("the segment has {found} bytes, but the job was told {told}")]
    Segment {
        /// Bytes of the segment given.
        found: u64,
        /// What the table of peers says.
        told: u64,
    },
    /// The address cannot be listened at.
    #[error(
        "cannot listen at {address}: {cause}; {}",
        no_files(cause).unwrap_or("is the port in use, or the address another host's? port 0 takes a free one")
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// The system refused a socket option, a descriptor or a thread.
    #[error("setting up a UDP endpoint: {}{}{}", .0, if no_files(.0).is_some() { "; " } else { "" }, no_files(.0).unwrap_or(""))]
    System(#[from] io::Error),
    /// The system's source of randomness failed.
    #[error("the system has no randomness for keys")]
    Randomness,
}

/// What to do if there are too many open files.
fn no_files(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => Some("this process may open no more files: raise `ulimit -n`"),
        Some(Errno::ENFILE) => Some("this host may open no more files: raise the sysctl fs.file-max"),
        _ => None,
    }
}

/// Opens a socket for one endpoint. Port 0 takes a free one; an unspecified IPv6 address takes IPv4 as well.
///
/// # Errors
/// [`UdpError::Bind`].
pub fn bind(address: SocketAddr) -> Result<UdpSocket, UdpError> {
    wire::bind(address).map_err(|cause| UdpError::Bind { address, cause })
}

/// Zeroed memory for a rank's segment, to be shared by the rank's endpoints.
pub fn segment(bytes: usize) -> Segment<OwnMemory> {
    let words: OwnMemory = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
    Segment::new(words, bytes)
}

impl Udp {
    /// Joins a job as one endpoint, over a bound socket whose port is the one in the table, with a segment of its own of the
    /// size that the table says. Starts the helper thread. Sessions with peers open when first needed, or at once in a
    /// small job; peers that are not there yet are waited for.
    ///
    /// # Errors
    /// [`UdpError`] if table, settings and socket do not fit together, or from the system.
    pub fn join(config: &UdpConfig, peers: &Arc<Peers>, me: Address, socket: UdpSocket) -> Result<Self, UdpError> {
        let len = peers.segment_len(me.rank);
        let bytes = usize::try_from(len).map_err(|_| UdpError::Segment { found: 0, told: len })?;
        Self::join_with_segment(config, peers, me, socket, segment(bytes))
    }
}

impl<M: Memory + Clone + Send + Sync + 'static> Udp<M> {
    /// [`Udp::join`] with memory that already exists: endpoints of one rank share theirs, and a segment may lie in memory
    /// that other transports reach, too.
    ///
    /// # Errors
    /// As [`Udp::join`].
    pub fn join_with_segment(
        config: &UdpConfig,
        peers: &Arc<Peers>,
        me: Address,
        socket: UdpSocket,
        segment: Segment<M>,
    ) -> Result<Self, UdpError> {
        Self::assemble(config, peers, me, socket, segment, |shared| match config.helper {
            true => Service::start(shared, config.absence).map(Helper::Thread),
            false => Ok(Helper::Nobody),
        })
    }

    fn assemble(
        config: &UdpConfig,
        peers: &Arc<Peers>,
        me: Address,
        socket: UdpSocket,
        segment: Segment<M>,
        helper: impl FnOnce(&Arc<Shared>) -> io::Result<Helper>,
    ) -> Result<Self, UdpError> {
        let shape = peers.shape();
        let Shape { ranks, endpoints } = shape;
        let my = shape.peer(me).ok_or(UdpError::NoSuchEndpoint { me, ranks, endpoints })?;
        let (found, told) = (segment.len() as u64, peers.segment_len(me.rank));
        if found != told {
            return Err(UdpError::Segment { found, told });
        }
        let (bound, told) = (socket.local_addr()?, peers.address(my));
        if bound.port() != told.port() {
            return Err(UdpError::WrongPort { me, bound, told });
        }
        let wire = Wire::new(socket, config.socket_buffer, config.offload)?;
        let all = (0..shape.peers()).map(Peer);
        let addresses: Result<Arc<[_]>, _> = all
            .clone()
            .map(|peer| {
                let address = peers.address(peer);
                let rank = shape.address(peer).rank;
                wire::in_family(address, wire.ipv6).ok_or(UdpError::Family { rank, address, bound })
            })
            .collect();
        let settings = config.machine(peers, my).map_err(|_| UdpError::Randomness)?;
        let mut machine = Machine::new(settings.clone(), segment.erase())?;
        let clock = Clock::start();
        for peer in all {
            machine.promise_segment(peer, peers.segment_len(shape.address(peer).rank));
            if shape.peers() <= config.connect_ahead {
                machine.connect(clock.now(), peer);
            }
        }
        let mut engine = Engine::new(machine, wire, addresses?, Process::current()?);
        if let Some((permille, seed)) = config.loss {
            engine.lose(permille, seed);
        }
        engine.send_out(clock.now(), None);
        let shared = Arc::new(Shared::new(engine, clock)?);
        let service = helper(&shared)?;
        let driver = SocketDriver {
            patience: Patience::new(config.waiting, peers.neighbours(my)),
            linger: config.linger,
            peers: Arc::clone(peers),
            now: clock.now(),
            drives: 0,
            news: 0,
            stirred: false,
            accepted: 0,
            sent: 0,
            told: 0,
            losses: 0,
            dirty: false,
            spinning: false,
            fruitless: 0,
            buffer: Vec::new(),
            early: 0,
            arrived: false,
            service: Some(service),
            left: false,
            departed: OnDeparture::default(),
            shared,
        };
        Ok(Self::new(driver, &settings, segment))
    }
}

impl<M: Memory> Udp<M> {
    /// The last failure that the system told of sending to a peer since this was last asked, and which peer it was; the
    /// protocol treats it as a lost datagram.
    pub fn take_failure(&mut self) -> Option<(Peer, ErrorKind)> {
        if self.driver().shared.failure().is_some() {
            return None;
        }
        self.driver_mut().shared.engine().failure.take()
    }

    /// A handle for whoever learns of the ends of ranks from another source than the protocol, such as a thread that listens
    /// to the job's launcher. It can be cloned and sent to any thread, and does not keep the endpoint alive.
    pub fn obituary(&self) -> Obituary {
        Obituary::new(Arc::downgrade(&self.driver().shared))
    }

    /// Takes note that a rank is lost, for this reason, as [`Obituary::lost`] does from other threads. The next poll tells.
    pub fn declare_lost(&mut self, rank: Rank, cause: LossCause) {
        self.obituary().lost(rank, cause);
    }

    /// Calls `call` once, on the thread that uses this endpoint, as soon as it has taken leave: its peers have been told, and
    /// have confirmed it unless they took too long. For those who have to tell an endpoint that left from one whose process
    /// just ended. Replaces what an earlier call of this set; does nothing more once the endpoint has left.
    pub fn when_departed(&mut self, call: impl FnOnce() + Send + 'static) {
        self.driver_mut().departed.0 = Some(Box::new(call));
    }

    /// Where this endpoint's socket listens.
    ///
    /// # Errors
    /// From the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.driver().shared.socket.local_addr()
    }
}

/// Who does the program's work while it does not.
#[derive(Debug)]
enum Helper {
    /// The program has said that it is never absent.
    Nobody,
    Thread(#[expect(dead_code, reason = "it is held to be dropped")] Service),
    #[cfg(feature = "tokio")]
    Task(#[expect(dead_code, reason = "it is held to be dropped")] asynchronous::Tender),
}

/// What is called when the endpoint has taken leave.
#[derive(Default)]
struct OnDeparture(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for OnDeparture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDeparture").field(&self.0.is_some()).finish()
    }
}

/// The [`Driver`] of a real socket; made by [`Udp::join`].
#[derive(Debug)]
pub struct SocketDriver {
    shared: Arc<Shared>,
    /// Taken when the endpoint has left.
    service: Option<Helper>,
    peers: Arc<Peers>,
    patience: Patience,
    linger: Duration,
    /// When the clock was last read: reading it for every message would cost as much as sending one.
    now: Instant,
    drives: u64,
    /// What the helper had taken in when this side last looked.
    news: u64,
    /// Something has come since the last `idle`.
    stirred: bool,
    /// Bytes accepted of the program, and how many of them when the system was last handed some.
    accepted: u64,
    sent: u64,
    /// Bytes accepted at the last call of `accepted`.
    told: u64,
    losses: u32,
    /// The program has used the machine since everything was last sent out.
    dirty: bool,
    /// The program is back from an `idle` that took no time, and how often in a row only the socket was looked at.
    spinning: bool,
    fruitless: u32,
    /// What such a look brings, and how much of it waits for the next round.
    buffer: Vec<u8>,
    early: usize,
    /// The last round has left messages for the next one.
    arrived: bool,
    /// The helper drives the endpoint, as the program has asked it to.
    left: bool,
    departed: OnDeparture,
}

impl SocketDriver {
    #[cfg(feature = "tokio")]
    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Tells the helper that the program is at work.
    fn drive(&mut self) {
        self.drives += 1;
        // Relaxed: the helper only wants to see it change some time.
        self.shared.drives.store(self.drives, Relaxed);
        if std::mem::take(&mut self.left) {
            self.shared.return_to();
        }
    }

    /// Sleeps until something arrives or is due.
    fn park(&mut self, until: Option<Instant>) {
        let (timeout, events) = {
            let engine = self.shared.engine();
            if engine.news != std::mem::replace(&mut self.news, engine.news) {
                return;
            }
            self.shared.park();
            let now = self.shared.clock.now();
            // Who sleeps looks up now and then, for what no descriptor tells: a request for a stall report.
            let next = engine.deadline.into_iter().chain(until).fold(now + LONGEST_SLEEP, Instant::min);
            let out = if engine.is_blocked() { PollFlags::POLLOUT } else { PollFlags::empty() };
            (next.since(now).into(), PollFlags::POLLIN | out)
        };
        // A notice that came before is not missed: the bell stays rung until the next round has heard it.
        sleep(
            &[(self.shared.socket.as_fd(), events), (self.shared.bell.as_fd(), PollFlags::POLLIN)],
            Some(timeout),
        );
        self.shared.unpark();
    }
}

impl Driver for SocketDriver {
    fn with<R>(&mut self, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        let mut engine = self.shared.engine();
        let result = work(&mut engine.machine, self.now);
        self.accepted = engine.machine.accepted_bytes();
        self.dirty = true;
        result
    }

    #[inline]
    fn failure(&self) -> Option<LossCause> {
        self.shared.failure()
    }

    fn look<R>(&self, work: impl FnOnce(&Machine) -> R) -> R {
        // The parent may have held the lock at that moment.
        assert!(!self.shared.process.is_other(), "an endpoint cannot be looked at in a fork of its process");
        work(&self.shared.engine().machine)
    }

    fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.peers.segment_len(rank)
    }

    fn accepted(&mut self) {
        self.drive();
        // A refusal drives nothing: who is refused will poll, and may first want to know why.
        let some = self.accepted != std::mem::replace(&mut self.told, self.accepted);
        if some && self.accepted - self.sent >= EAGER {
            self.take_in();
            self.send_out(None);
        }
    }

    fn take_in(&mut self) {
        self.round(None, |_, _| ());
    }

    /// Who asks again and again need not look at more than the socket each time.
    fn is_still(&mut self) -> bool {
        // What is not in the socket any more has to be delivered, too.
        let elsewhere = self.arrived || self.shared.unseen.load(Acquire);
        if !std::mem::take(&mut self.spinning) || self.dirty || elsewhere || self.fruitless >= GLANCES {
            self.fruitless = 0;
            return false;
        }
        self.drive();
        if self.buffer.is_empty() {
            self.buffer.resize(wire::LARGEST, 0);
        }
        // Failures are left to the rounds that follow.
        self.early = wire::glance(&self.shared.socket, &mut self.buffer);
        self.fruitless = if self.early == 0 { self.fruitless + 1 } else { 0 };
        self.early == 0
    }

    /// One lock for all three steps, and the clock is read when something happens.
    fn round<R>(&mut self, lent: Option<BorrowedPayload<'_>>, work: impl FnOnce(&mut Machine, Instant) -> R) -> R {
        self.drive();
        let mut engine = self.shared.engine();
        self.shared.unseen.store(false, Relaxed);
        let early = std::mem::take(&mut self.early);
        // What has come is told the time anyway.
        if early == 0 || engine.machine.has_ready() {
            self.now = self.shared.clock.now();
        }
        // What the program has just asked for goes first: the answer cannot be here before.
        if engine.machine.has_ready() {
            engine.send_out(self.now, lent);
        }
        let news = engine.news != std::mem::replace(&mut self.news, engine.news);
        self.shared.hear(&mut engine);
        let clock = self.shared.clock;
        if engine.take_in(&mut self.now, || clock.now(), &mut self.buffer[..early]) || news {
            self.stirred = true;
            self.patience.reset();
        }
        let result = work(&mut engine.machine, self.now);
        if engine.machine.has_ready() || engine.is_blocked() {
            engine.send_out(self.now, lent);
        }
        self.losses = engine.machine.losses();
        self.accepted = engine.machine.accepted_bytes();
        self.sent = self.accepted;
        self.dirty = engine.is_blocked();
        self.arrived = engine.machine.has_arrived();
        result
    }

    fn send_out(&mut self, lent: Option<BorrowedPayload<'_>>) {
        if !self.dirty {
            return;
        }
        let mut engine = self.shared.engine();
        if engine.machine.has_ready() || engine.is_blocked() {
            self.now = self.shared.clock.now();
            engine.send_out(self.now, lent);
        }
        self.losses = engine.machine.losses();
        self.sent = self.accepted;
        self.dirty = engine.is_blocked();
    }

    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        if std::mem::take(&mut self.stirred) {
            return;
        }
        match self.patience.next() {
            Next::Spin => self.spinning = true,
            Next::Yield => std::thread::yield_now(),
            Next::Park => self.park(until),
        }
    }

    fn spins(&self) -> bool {
        self.patience.spins()
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        if matches!(self.service, Some(Helper::Nobody)) {
            return Notify::Never;
        }
        if std::mem::take(&mut self.stirred) {
            return Notify::Ready;
        }
        {
            let mut engine = self.shared.engine();
            // A helper that fails later finds the waker here: it says that it has failed before it takes this
            // lock.
            if self.shared.failure().is_some() || engine.news != std::mem::replace(&mut self.news, engine.news) {
                return Notify::Ready;
            }
            engine.watcher = Some(waker.clone());
        }
        if !std::mem::replace(&mut self.left, true) {
            self.shared.leave();
        }
        Notify::Armed
    }

    fn losses(&self) -> u32 {
        self.losses
    }

    fn depart(&mut self) {
        if self.service.is_none() {
            return;
        }
        let limit = self.shared.clock.now() + self.linger.into();
        self.with(|machine, now| {
            if machine.departing() != Some(Departure::Finished) {
                machine.connect_to_say_farewell(now);
            }
        });
        loop {
            self.take_in();
            self.send_out(None);
            if self.look(Machine::settled) || self.now >= limit {
                break;
            }
            if !std::mem::take(&mut self.stirred) {
                self.park(Some(limit));
            }
        }
        self.service = None;
        if let Some(call) = self.departed.0.take() {
            call();
        }
    }
}

impl Drop for SocketDriver {
    /// An endpoint that nobody took leave with tells its peers nevertheless.
    fn drop(&mut self) {
        if self.shared.process.is_other() {
            // Threads and tasks are the parent's.
            std::mem::forget(self.service.take());
        } else if self.service.is_some() && self.shared.failure().is_none() {
            self.with(|machine, _| machine.depart(Departure::of_drop()));
            self.depart();
        }
    }
}

#[cfg(test)]
mod tests;
