//! What the bank refuses: messages of faulty or lost peers, and mistakes of the conduit.

use am_core::Peer;
use thiserror::Error;

/// A request that does not respect its sender's credit. Nothing changed; the peer is faulty (or lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArriveError {
    /// No such peer.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The cost is 0 or above the maximum.
    #[error("a request of {cost} credits from peer {} is outside 1..={max_cost}", .peer.0)]
    CostOutOfRange {
        /// The sender.
        peer: Peer,
        /// What the request claims to cost.
        cost: u32,
        /// The configured maximum.
        max_cost: u32,
    },
    /// The ask does not fit its field.
    #[error("peer {} asks for {ask} credits, at most {max_ask} at once are possible", .peer.0)]
    AskOutOfRange {
        /// The sender.
        peer: Peer,
        /// What it asks for.
        ask: u32,
        /// The configured maximum.
        max_ask: u32,
    },
    /// The peer spends more than it can have.
    #[error("a request of {cost} credits from peer {}, which has at most {held}", .peer.0)]
    Overdraft {
        /// The sender.
        peer: Peer,
        /// Cost of the request.
        cost: u32,
        /// What the peer may have at most.
        held: u32,
    },
}

/// More was released than the peer's requests occupy, a mistake of the caller. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// No such peer.
    #[error("peer {} is not one of {peers}", .peer.0)]
    Unknown {
        /// The number given.
        peer: Peer,
        /// Number of peers.
        peers: u32,
    },
    /// The peer's requests occupy less.
    #[error("{cost} credits released for peer {}, whose requests occupy {inside}", .peer.0)]
    Excess {
        /// The sender of the request.
        peer: Peer,
        /// Credits released.
        cost: u32,
        /// Credits that its requests occupy.
        inside: u32,
    },
}

/// A surrender that a correct peer does not send. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SurrenderError {
    /// No such peer, or a lost one's late message.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Nothing was revoked from this peer, or it has answered already.
    #[error("peer {} surrenders {credits} credits that were not revoked", .peer.0)]
    Unasked {
        /// The sender.
        peer: Peer,
        /// Credits that it surrenders.
        credits: u32,
    },
    /// More than the revocation's limit, or than the peer can have.
    #[error("peer {} surrenders {credits} credits, at most {limit} were possible", .peer.0)]
    Excess {
        /// The sender.
        peer: Peer,
        /// Credits that it surrenders.
        credits: u32,
        /// Credits that it could surrender at most.
        limit: u32,
    },
}

/// A peer that one can't deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The number is not below the configured number of peers.
    #[error("peer {} is not one of {peers}", .peer.0)]
    Unknown {
        /// The number given.
        peer: Peer,
        /// Number of peers.
        peers: u32,
    },
    /// The peer was declared lost; its messages no longer count.
    #[error("peer {} is lost", .peer.0)]
    Lost {
        /// The lost peer.
        peer: Peer,
    },
}
