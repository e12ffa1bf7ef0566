//! The transport over a real socket: the machine of `proto` driven by the program's thread and a helper.
//!
//! | module | owns |
//! |---|---|
//! | `config`, `peers` | settings, the environment, the table of the job |
//! | `wire` | the socket: rows of datagrams out and in |
//! | `driver` | the program's thread at the machine |
//! | `engine` | machine and socket together: taking in, sending out |
//! | `service` | the helper thread |
//! | `stage` | messages that wait outside the lock |
//! | `process` | whose endpoint it is: a fork may not use it |
//! | `asynchronous` | the tokio mode (feature `tokio`) |
//! | `failures` | what others know of the ends of ranks |
//! | `waiting` | how long to ask, when to sleep |
//! | `job` | jobs within one process |

#[cfg(feature = "tokio")]
mod asynchronous;
mod config;
mod driver;
mod engine;
mod failures;
mod job;
mod peers;
mod process;
mod service;
mod stage;
mod waiting;
mod wire;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncEndpoint;
pub use config::{LOOPBACK_DATAGRAM, UdpConfig, VariableError, WaitMode};
pub use driver::SocketDriver;
pub use failures::FailureNotifier;
pub use job::{LocalJob, LocalOptions};
pub use peers::{Peers, PeersError};

use crate::machine_transport::{MachineTransport, OwnMemory};
use crate::proto::{ConfigError, Counters, Machine};
use am_core::backoff::Backoff;
use am_core::time::Clock;
use am_core::transport::LossCause;
use am_core::{Address, Memory, Peer, Rank, Segment, Shape};
use driver::Helper;
use engine::Engine;
use nix::errno::Errno;
use process::Process;
use service::{Service, Shared};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::Wire;

/// Jobs of up to this many endpoints open all sessions at the start; in larger ones the first message does.
const CONNECT_AHEAD: u32 = 32;

/// Active messages over UDP: the transport of one endpoint.
///
/// Every endpoint has a socket of its own. It can be sent to the thread that uses it.
pub type Udp<M = OwnMemory> = MachineTransport<SocketDriver, M>;

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
    /// Joins a job as one endpoint, over a bound socket whose port is the one in the table, with a segment of its
    /// own of the size that the table says. Starts the helper thread. Sessions with peers open when first needed,
    /// or at once in a small job; a peer that is not there yet is waited for, for
    /// [`ProtocolConfig::silence`](crate::proto::ProtocolConfig::silence) from the first attempt on.
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
    /// [`Udp::join`] with memory that already exists: endpoints of one rank share theirs, and a segment may lie in
    /// memory that other transports reach, too.
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
            if shape.peers() <= CONNECT_AHEAD {
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
        let backoff_policy =
            waiting::backoff_policy(config.waiting, peers.neighbours(my), am_core::time::processors());
        let driver =
            SocketDriver::new(shared, service, Arc::clone(peers), Backoff::new(backoff_policy), config.linger);
        Ok(Self::new(driver, &settings, segment))
    }
}

impl<M: Memory> Udp<M> {
    /// A handle for whoever learns of the ends of ranks from another source than the protocol, such as a thread
    /// that listens to the job's launcher. It can be cloned and sent to any thread, and does not keep the endpoint
    /// alive.
    pub fn failure_notifier(&self) -> FailureNotifier {
        FailureNotifier::new(Arc::downgrade(self.driver().shared()))
    }

    /// Takes note that a rank is lost, for this reason, as [`FailureNotifier::lost`] does from other threads. The
    /// next poll tells.
    pub fn declare_lost(&mut self, rank: Rank, cause: LossCause) {
        self.failure_notifier().lost(rank, cause);
    }

    /// Calls `call` once, on the thread that uses this endpoint, as soon as it has taken leave: its peers have
    /// been told, and have confirmed it unless they took too long. For those who have to tell an endpoint that
    /// left from one whose process just ended. Replaces what an earlier call of this set; does nothing more once
    /// the endpoint has left.
    pub fn when_departed(&mut self, call: impl FnOnce() + Send + 'static) {
        self.driver_mut().when_departed(Box::new(call));
    }

    /// What the protocol has counted since the endpoint joined: datagrams, their bytes, losses.
    pub fn counters(&self) -> Counters {
        self.driver().shared().engine().machine.counters().clone()
    }

    /// Where this endpoint's socket listens.
    ///
    /// # Errors
    /// From the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.driver().shared().socket.local_addr()
    }
}

#[cfg(test)]
mod tests;
