//! Who takes part in a job: ranks, the endpoints of a rank, and the flat index that transports use.

use std::fmt;

/// A process (or simulated process) of the job, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One endpoint of one rank: where a message goes to or comes from.
///
/// A rank with several threads has one endpoint per thread; a plain [`Rank`] converts to its endpoint 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The process.
    pub rank: Rank,
    /// The endpoint within that process, numbered from 0.
    pub endpoint: u16,
}

impl Address {
    /// The given endpoint of a rank.
    pub const fn new(rank: Rank, endpoint: u16) -> Self {
        Self { rank, endpoint }
    }
}

impl From<Rank> for Address {
    #[inline]
    fn from(rank: Rank) -> Self {
        Self { rank, endpoint: 0 }
    }
}

/// What names an endpoint: an [`Address`], or a [`Rank`] for its endpoint 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name an endpoint",
    label = "a rank is written `Rank(0)`",
    note = "endpoint 2 of rank 0 is `Address::new(Rank(0), 2)`"
)]
pub trait Destination {
    /// The endpoint's address.
    fn address(self) -> Address;
}

impl Destination for Rank {
    #[inline]
    fn address(self) -> Address {
        self.into()
    }
}

impl Destination for Address {
    #[inline]
    fn address(self) -> Address {
        self
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.endpoint == 0 { write!(f, "{}", self.rank) } else { write!(f, "{}.{}", self.rank, self.endpoint) }
    }
}

/// The flat index of an endpoint in its job: `rank * endpoints_per_rank + endpoint`.
///
/// Transports keep their per-peer state in arrays of this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

impl Peer {
    /// The index as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The shape of a job: how many ranks, and how many endpoints each of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of ranks, at least 1.
    pub ranks: u32,
    /// Number of endpoints of every rank, at least 1.
    pub endpoints: u16,
}

impl Shape {
    /// A job of `ranks` ranks with one endpoint each.
    pub const fn new(ranks: u32) -> Self {
        Self { ranks, endpoints: 1 }
    }

    /// Number of endpoints in the whole job.
    #[inline]
    pub const fn peers(&self) -> u32 {
        self.ranks * self.endpoints as u32
    }

    /// The flat index of an address, or `None` outside the job.
    #[inline]
    pub fn peer(&self, address: Address) -> Option<Peer> {
        let inside = address.rank.0 < self.ranks && address.endpoint < self.endpoints;
        inside.then(|| Peer(address.rank.0 * u32::from(self.endpoints) + u32::from(address.endpoint)))
    }

    /// The address that a flat index stands for.
    #[inline]
    pub fn address(&self, peer: Peer) -> Address {
        if self.endpoints == 1 {
            return Address { rank: Rank(peer.0), endpoint: 0 };
        }
        let endpoints = u32::from(self.endpoints);
        Address { rank: Rank(peer.0 / endpoints), endpoint: (peer.0 % endpoints) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_indices_are_inverse() {
        let shape = Shape { ranks: 5, endpoints: 3 };
        for index in 0..shape.peers() {
            let address = shape.address(Peer(index));
            assert_eq!(shape.peer(address), Some(Peer(index)));
        }
        assert_eq!(shape.peer(Address::new(Rank(5), 0)), None);
        assert_eq!(shape.peer(Address::new(Rank(0), 3)), None);
    }
}
