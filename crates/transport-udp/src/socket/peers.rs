//! The table of a job over UDP: where every endpoint listens, and how large every rank's segment is.

use crate::proto::MAX_SEGMENT;
use am_core::{Peer, Rank, Shape};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Where every endpoint of a job listens, and the size of every rank's segment. All ranks of a job have the same
/// table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    shape: Shape,
    addresses: Vec<SocketAddr>,
    segments: Vec<u64>,
}

/// A table that no job can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeersError {
    /// There is not one address for every endpoint.
    #[error("{found} addresses for a job of {ranks} ranks with {endpoints} endpoint(s) each")]
    Addresses {
        /// Addresses given.
        found: usize,
        /// Ranks of the job.
        ranks: u32,
        /// Endpoints of every rank.
        endpoints: u16,
    },
    /// There is not one segment for every rank.
    #[error("{found} segment sizes for a job of {ranks} ranks")]
    Segments {
        /// Sizes given.
        found: usize,
        /// Ranks of the job.
        ranks: u32,
    },
    /// A segment is larger than the protocol can name places in.
    #[error("rank {rank} is said to have a segment of {bytes} bytes; the protocol knows 2^62 - 1 at most")]
    SegmentTooLarge {
        /// The rank.
        rank: Rank,
        /// Bytes given.
        bytes: u64,
    },
    /// Nothing can be sent to an address: it has no port, or it means every interface.
    #[error(
        "rank {rank} is said to listen at {address}, where nothing can be sent to: give a host's own address and a port"
    )]
    Unreachable {
        /// The rank.
        rank: Rank,
        /// Its address.
        address: SocketAddr,
    },
    /// Two endpoints have the same address.
    #[error("ranks {first} and {second} are both said to listen at {address}")]
    Shared {
        /// One of them.
        first: Rank,
        /// The other.
        second: Rank,
        /// The address.
        address: SocketAddr,
    },
    /// One rank is at a loopback address, another is not.
    #[error(
        "rank {rank} is said to listen at {address}, which only its own host can reach, while rank {other} is at \
         {elsewhere}: does the host's name resolve to a loopback address?"
    )]
    Loopback {
        /// The rank at the loopback address.
        rank: Rank,
        /// Its address.
        address: SocketAddr,
        /// A rank elsewhere.
        other: Rank,
        /// Where that is.
        elsewhere: SocketAddr,
    },
}

impl Peers {
    /// A table from the addresses of all endpoints, in the order of their [`Peer`] indices (rank 0's endpoints,
    /// then rank 1's, ...), and the sizes in bytes of the ranks' segments.
    ///
    /// # Errors
    /// [`PeersError`] names the first entry that cannot be.
    pub fn new(shape: Shape, addresses: Vec<SocketAddr>, segments: Vec<u64>) -> Result<Self, PeersError> {
        let Shape { ranks, endpoints } = shape;
        if addresses.is_empty() || addresses.len() != shape.peers() as usize {
            return Err(PeersError::Addresses { found: addresses.len(), ranks, endpoints });
        }
        if segments.len() != ranks as usize {
            return Err(PeersError::Segments { found: segments.len(), ranks });
        }
        let sizes = (0..).map(Rank).zip(&segments);
        if let Some((rank, &bytes)) = sizes.into_iter().find(|(_, bytes)| **bytes > MAX_SEGMENT) {
            return Err(PeersError::SegmentTooLarge { rank, bytes });
        }
        let table = Self { shape, addresses, segments };
        let mut seen = BTreeMap::new();
        for (peer, address) in table.iter() {
            let rank = shape.address(peer).rank;
            if address.port() == 0 || address.ip().is_unspecified() {
                return Err(PeersError::Unreachable { rank, address });
            }
            if let Some(first) = seen.insert(address, rank) {
                return Err(PeersError::Shared { first, second: rank, address });
            }
        }
        let inside = table.iter().find(|(_, address)| is_loopback(address.ip()));
        let outside = table.iter().find(|(_, address)| !is_loopback(address.ip()));
        if let (Some((rank, address)), Some((other, elsewhere))) = (inside, outside) {
            let (rank, other) = (shape.address(rank).rank, shape.address(other).rank);
            return Err(PeersError::Loopback { rank, address, other, elsewhere });
        }
        Ok(table)
    }

    fn iter(&self) -> impl Iterator<Item = (Peer, SocketAddr)> + '_ {
        (0..).map(Peer).zip(self.addresses.iter().copied())
    }

    /// The shape of the job.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where an endpoint listens.
    ///
    /// # Panics
    /// If the job has no such endpoint.
    pub fn address(&self, peer: Peer) -> SocketAddr {
        self.addresses[peer.index()]
    }

    /// Size in bytes of a rank's segment; 0 for a rank that the job does not have.
    pub fn segment_len(&self, rank: Rank) -> u64 {
        self.segments.get(rank.0 as usize).copied().unwrap_or(0)
    }

    /// Whether all endpoints are at loopback addresses, so on one host.
    pub fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| is_loopback(address.ip()))
    }

    /// How many endpoints share this endpoint's IP address, itself included.
    pub(crate) fn neighbours(&self, peer: Peer) -> usize {
        let ip = self.address(peer).ip();
        self.addresses.iter().filter(|address| address.ip() == ip || is_loopback(address.ip())).count()
    }
}

/// Also for IPv4 addresses in IPv6 clothes.
pub(super) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(addresses: &[&str]) -> Result<Peers, PeersError> {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let ranks = addresses.len() as u32;
        Peers::new(Shape::new(ranks), addresses, vec![64; ranks as usize])
    }

    #[test]
    fn impossible_tables_are_named() {
        assert!(table(&["10.0.0.1:5", "10.0.0.1:6"]).is_ok_and(|table| !table.is_loopback()));
        assert!(table(&["[::1]:5", "127.0.0.1:6"]).is_ok_and(|table| table.is_loopback()));
        let text = |addresses: &[&str]| table(addresses).unwrap_err().to_string();
        assert!(text(&["10.0.0.1:5", "10.0.0.2:0"]).starts_with("rank 1 is said to listen at 10.0.0.2:0, where"));
        assert!(text(&["0.0.0.0:5"]).contains("where nothing can be sent to"));
        assert_eq!(text(&["10.0.0.1:5", "10.0.0.1:5"]), "ranks 0 and 1 are both said to listen at 10.0.0.1:5");
        let mixed = text(&["10.0.0.1:5", "127.0.1.1:5"]);
        assert!(mixed.contains("127.0.1.1:5, which only its own host can reach"), "{mixed}");
        assert_eq!(text(&[]), "0 addresses for a job of 0 ranks with 1 endpoint(s) each");
        let addresses = vec!["10.0.0.1:5".parse().unwrap()];
        let error = Peers::new(Shape::new(1), addresses, vec![]).unwrap_err();
        assert_eq!(error.to_string(), "0 segment sizes for a job of 1 ranks");
    }
}
