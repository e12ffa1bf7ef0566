//! A rank's part in a job with UDP: its sockets, the manifest, and how large everybody's segment is.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use am_core::select::{Select, SelectError};
use am_core::{Address, LossCause, Rank};
use transport_shm::{Job, JobConfig, JobError, JoinError, JoinOptions, Shm, ShmMemory};
use transport_udp::{Peers, PeersError, Udp, UdpConfig, UdpError};

use crate::rank::bootstrap::{Bootstrap, ExchangeError};

/// What [`RankJob::attach`](crate::RankJob::attach) hands a program: shared memory to the ranks that it reaches, UDP to the
/// others, chosen per peer.
pub type JobTransport = Select<Shm, Udp<ShmMemory>>;

/// A rank's part in a job with UDP.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) bootstrap: Bootstrap,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// One per endpoint, until it attaches.
    sockets: Vec<Option<UdpSocket>>,
    /// Once the first endpoint has attached.
    peers: Option<Arc<Peers>>,
    /// What holds the segment of a rank without shared memory to others.
    own: Option<Job>,
}

/// Why a rank can't attach to its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The shared memory of this host's ranks can't be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Memory for the segment can't be had.
    #[error(transparent)]
    Memory(#[from] JobError),
    /// UDP can't be used.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// A variable of the environment that changes UDP's settings makes no sense.
    #[error(transparent)]
    Environment(#[from] transport_udp::EnvironmentError),
    /// The addresses of the ranks contradict each other.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Shared memory and UDP don't fit together.
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
    /// The ranks could not tell each other the sizes of their segments.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

impl Net {
    pub(crate) fn new(bootstrap: Bootstrap, sockets: Vec<UdpSocket>) -> Self {
        let sockets = sockets.into_iter().map(Some).collect();
        Self { bootstrap, state: Mutex::new(State { sockets, peers: None, own: None }) }
    }

    /// The addresses of a rank's endpoints.
    pub(crate) fn addresses(&self, rank: Rank) -> &[SocketAddr] {
        self.bootstrap.manifest().ranks.get(rank.0 as usize).map_or(&[], |card| &card.udp)
    }

    /// Attaches an endpoint, with shared memory to the ranks of this host if there is any.
    pub(crate) fn attach(
        &self,
        near: Option<&Job>,
        options: JoinOptions,
        configure: impl FnOnce(UdpConfig) -> UdpConfig,
    ) -> Result<JobTransport, AttachError> {
        let config = configure(UdpConfig::from_environment(self.bootstrap.secret().bytes())?);
        let (socket, peers) = self.prepare(options)?;
        let me = Address::new(self.bootstrap.rank(), options.endpoint);
        let Some(job) = near else {
            let segment = self.own_segment(options)?;
            let mut far = Udp::join_with_segment(&config, &peers, me, socket, segment)?;
            self.subscribe_failures(&mut far);
            return Ok(Select::far(far));
        };
        let members = self.bootstrap.manifest().members(self.bootstrap.host_of(self.bootstrap.rank()));
        let local =
            members.iter().position(|&rank| rank == self.bootstrap.rank()).expect("a rank is on its own host");
        let near = job.join_with(local as u32, options)?;
        let segment = am_core::Transport::segment(&near).clone();
        let mut far = Udp::join_with_segment(&config, &peers, me, socket, segment)?;
        self.subscribe_failures(&mut far);
        Ok(Select::both(near, far, &members, |_| true)?)
    }

    /// Lets an endpoint hear of failures, and the launcher of its leave.
    fn subscribe_failures(&self, far: &mut Udp<ShmMemory>) {
        let notifier = far.obituary();
        let leave = self.bootstrap.attach_endpoint(move |rank| notifier.lost(rank, LossCause::Died));
        if let Some(leave) = leave {
            far.when_departed(|| leave.report());
        }
    }

    /// The endpoint's socket and the table of all ranks; the first endpoint waits for it.
    fn prepare(&self, options: JoinOptions) -> Result<(UdpSocket, Arc<Peers>), AttachError> {
        let JoinOptions { endpoint, segment_bytes } = options;
        let bytes = segment_bytes as u64;
        // Endpoints of a rank that attach at the same time wait here for the first one.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoints = self.bootstrap.manifest().endpoints;
        let slot = state.sockets.get_mut(usize::from(endpoint));
        let slot = slot.ok_or(AttachError::NoSuchEndpoint { endpoint, endpoints })?;
        let socket = slot.take().ok_or(AttachError::Taken { endpoint })?;
        if state.peers.is_none() {
            let parts = self.bootstrap.allgather(&bytes.to_le_bytes())?;
            // A rank that has ended has no segment.
            let size = |part: &Vec<u8>| part.first_chunk().map_or(0, |size| u64::from_le_bytes(*size));
            let sizes = parts.iter().map(size).collect();
            let manifest = self.bootstrap.manifest();
            let addresses = manifest.ranks.iter().flat_map(|entry| entry.udp.iter().copied()).collect();
            state.peers = Some(Arc::new(Peers::new(manifest.shape(), addresses, sizes)?));
        }
        let peers = state.peers.clone().ok_or(AttachError::Taken { endpoint })?;
        match peers.segment_len(self.bootstrap.rank()) {
            first if first == bytes => Ok((socket, peers)),
            first => Err(AttachError::SegmentsDiffer { first, second: bytes }),
        }
    }

    /// The segment of a rank that shares no memory with other ranks, only between its endpoints.
    fn own_segment(&self, options: JoinOptions) -> Result<am_core::Segment<ShmMemory>, AttachError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = match state.own.take() {
            Some(job) => job,
            None => {
                let job = Job::create(&JobConfig::smallest(1).endpoints(self.bootstrap.manifest().endpoints))?;
                job.close_on_exec().map_err(JobError::from)?;
                job
            }
        };
        let job = state.own.insert(job);
        // The memory outlives the transport that it comes with.
        Ok(am_core::Transport::segment(&job.join_with(0, options)?).clone())
    }
}
