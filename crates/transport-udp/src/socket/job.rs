//! Jobs within one process: all ranks are threads and talk over a loopback interface.

use super::config::UdpConfig;
use super::peers::Peers;
use super::{Udp, UdpError, bind, segment};
use crate::machine_transport::OwnMemory;
use am_core::{Address, Rank, Segment, Shape};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// A job whose ranks are threads of this process, with a random secret. For tests, examples and measurements.
#[derive(Debug)]
pub struct LocalJob {
    config: UdpConfig,
    peers: Arc<Peers>,
    sockets: Mutex<Vec<Option<UdpSocket>>>,
    segments: Vec<Segment<OwnMemory>>,
}

/// What a local job is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalOptions {
    /// Endpoints of every rank.
    pub endpoints: u16,
    /// Size in bytes of every rank's segment.
    pub segment_bytes: usize,
    /// The interface: 127.0.0.1 unless told otherwise.
    pub interface: IpAddr,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { endpoints: 1, segment_bytes: 1 << 20, interface: Ipv4Addr::LOCALHOST.into() }
    }
}

impl LocalOptions {
    /// Sets the endpoints of every rank.
    #[must_use]
    pub const fn endpoints(mut self, endpoints: u16) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Sets the size in bytes of every rank's segment.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the interface by its address.
    #[must_use]
    pub const fn interface(mut self, interface: IpAddr) -> Self {
        self.interface = interface;
        self
    }
}

impl LocalJob {
    /// A job of `ranks` ranks with one endpoint and a segment of 1 MiB each, encrypted, on 127.0.0.1.
    ///
    /// # Errors
    /// [`UdpError`] from the system.
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn new(ranks: u32) -> Result<Self, UdpError> {
        Self::with(ranks, LocalOptions::default(), UdpConfig::new([]))
    }

    /// A job with other options and settings; the settings' secret is replaced by a random one if it is empty.
    ///
    /// # Errors
    /// [`UdpError`] from the system.
    ///
    /// # Panics
    /// If there are no ranks or no endpoints.
    pub fn with(ranks: u32, options: LocalOptions, mut config: UdpConfig) -> Result<Self, UdpError> {
        let shape = Shape { ranks, endpoints: options.endpoints };
        if config.secret.is_empty() {
            config.secret = vec![0; 32];
            getrandom::fill(&mut config.secret).map_err(|_| UdpError::Randomness)?;
        }
        let address = SocketAddr::new(options.interface, 0);
        let sockets: Vec<UdpSocket> = (0..shape.peers()).map(|_| bind(address)).collect::<Result<_, _>>()?;
        let addresses: Vec<SocketAddr> = sockets.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>()?;
        let bytes = vec![options.segment_bytes as u64; ranks as usize];
        let peers = Peers::new(shape, addresses, bytes).expect("sockets of one job on loopback differ");
        let segments = (0..ranks).map(|_| segment(options.segment_bytes)).collect();
        let sockets = Mutex::new(sockets.into_iter().map(Some).collect());
        Ok(Self { config, peers: Arc::new(peers), sockets, segments })
    }

    /// The table of the job.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Joins as endpoint 0 of a rank.
    ///
    /// # Errors
    /// [`UdpError`].
    ///
    /// # Panics
    /// If the endpoint does not exist or has joined before.
    pub fn join(&self, rank: u32) -> Result<Udp, UdpError> {
        self.join_endpoint(Address::new(Rank(rank), 0))
    }

    /// Joins as any endpoint.
    ///
    /// # Errors
    /// [`UdpError`].
    ///
    /// # Panics
    /// If the endpoint does not exist or has joined before.
    pub fn join_endpoint(&self, me: Address) -> Result<Udp, UdpError> {
        let (socket, segment) = self.take(me);
        Udp::join_with_segment(&self.config, &self.peers, me, socket, segment)
    }

    /// Joins as endpoint 0 of a rank, with a task of the current tokio runtime in place of the helper thread.
    ///
    /// # Errors
    /// [`UdpError`].
    ///
    /// # Panics
    /// As [`LocalJob::join`] and [`Udp::join_tokio`].
    #[cfg(feature = "tokio")]
    pub fn join_tokio(&self, rank: u32) -> Result<Udp, UdpError> {
        let me = Address::new(Rank(rank), 0);
        let (socket, segment) = self.take(me);
        Udp::join_tokio(&self.config, &self.peers, me, socket, segment)
    }

    fn take(&self, me: Address) -> (UdpSocket, Segment<OwnMemory>) {
        let peer = self.peers.shape().peer(me).expect("the endpoint is part of the job");
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = sockets[peer.index()].take().expect("every endpoint joins once");
        (socket, self.segments[me.rank.0 as usize].clone())
    }
}
