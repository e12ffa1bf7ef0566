//! What the sessions of one machine share: settings, memory, accounts and counters.

use super::OwnSegment;
use super::buffer_pool::Pool;
use super::config::Config;
use std::collections::VecDeque;

/// Why a datagram was dropped without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dropped {
    /// Too short, or not of this protocol, or from an endpoint that the job does not have.
    Stranger,
    /// Longer than any datagram of the job.
    Oversized,
    /// Not protected the way this job protects datagrams.
    WrongMode,
    /// From another session than the current one, for instance a predecessor's.
    WrongEpoch,
    /// From a peer that there is no session with, or that is lost.
    NoSession,
    /// It has been here before, or is too old to tell.
    Replayed,
    /// It was not made with the key.
    Forged,
    /// It breaks the protocol in a mode where anybody may have sent it.
    Malformed,
    /// It follows more in one piece than an interface hands over at once, or a second Hello; it was not looked at.
    Surplus,
}

impl Dropped {
    /// All reasons, in the order of their array indices.
    pub const ALL: [Self; 9] = [
        Self::Stranger,
        Self::Oversized,
        Self::WrongMode,
        Self::WrongEpoch,
        Self::NoSession,
        Self::Replayed,
        Self::Forged,
        Self::Malformed,
        Self::Surplus,
    ];
}

/// Counters of a machine since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams made.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams dropped, by reason, in the order of [`Dropped::ALL`].
    pub dropped: [u64; 9],
    /// Parts of datagrams that were given up as lost and sent again.
    pub lost: u64,
    /// Timeouts without any acknowledgement.
    pub timeouts: u64,
    /// Times that a peer was lent more than its window.
    pub loans: u64,
}

/// Indices of the pools.
pub(super) const IN: usize = 2;
pub(super) const BULK: usize = 4;

/// Shared by all sessions.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) base: u64,
    pub(super) lendable: u64,
    /// Bytes that peers may send beyond their base window.
    pub(super) lent: u64,
    /// Peers that may do so.
    pub(super) borrowers: u64,
    /// Peers that wait for a loan, first come, first served.
    pub(super) waiting: VecDeque<u32>,
    pub(super) segment: OwnSegment,
    /// Memory of outgoing requests and replies, of incoming requests and replies, and of outgoing Long payloads.
    pub(super) pools: [Pool; 5],
    /// Request and reply bytes queued towards all peers.
    pub(super) queued: [u64; 2],
    /// Message and payload bytes that the application has handed over so far.
    pub(super) accepted: u64,
    /// The first peer known to have left the job alone, and how; told when taking leave.
    pub(super) after: Option<(u32, u8)>,
    /// Bytes set aside for replies of all peers.
    pub(super) set_aside: u64,
    pub(super) bare_given: u64,
    pub(super) counters: Counters,
}

impl Context {
    pub(super) fn new(config: Config, segment: OwnSegment) -> Self {
        Self {
            base: config.base_window(),
            lendable: config.lendable(),
            lent: 0,
            borrowers: 0,
            waiting: VecDeque::with_capacity(config.shape.peers() as usize),
            segment,
            pools: Default::default(),
            queued: [0; 2],
            accepted: 0,
            after: None,
            set_aside: 0,
            bare_given: 0,
            counters: Counters::default(),
            config,
        }
    }
}
