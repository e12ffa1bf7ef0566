//! What launcher and agents, and ranks that meet by themselves, tell each other.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::codec::{Wire, take_length, wire};
use crate::control_links::{LONGEST_PART, Word};
use crate::host::local_ranks::LocalRanks;
use crate::manifest::JobManifest;
use crate::notices::Notice;
use crate::outcome::RankEnd;
use crate::secret::Secret;

/// The first bytes that a launcher writes to an agent's standard input; the protocol's version and a length
/// follow.
pub(crate) const ORDERS_MAGIC: [u8; 8] = *b"am-agent";

/// What an agent gets through its standard input.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// The version of the launcher's package, for messages.
    pub(crate) version: String,
    pub(crate) secret: Secret,
    /// Addresses at which the launcher may be reached, the likeliest first.
    pub(crate) launcher_addresses: Vec<SocketAddr>,
    /// How long the launcher may be tried.
    pub(crate) connect_timeout: Duration,
    /// After how long of silence the launcher is given up.
    pub(crate) lost_after: Duration,
    /// The agent's host, as an index and as its user calls it.
    pub(crate) host: u32,
    pub(crate) name: String,
    /// The interface to use, as the user gave it.
    pub(crate) interface: Option<String>,
    /// The address to use, as the host file has it.
    pub(crate) address: Option<IpAddr>,
    pub(crate) grace: Duration,
    pub(crate) local_ranks: LocalRanks,
}
wire!(struct Orders {
    version, secret, launcher_addresses, connect_timeout, lost_after, host, name, interface, address, grace,
    local_ranks,
});

/// From an agent to its launcher.
#[derive(Clone, Debug)]
pub(crate) enum FromAgent {
    /// The agent can start its ranks.
    Ready { host: u32, version: String, address: IpAddr, interface: String },
    /// The agent can't go on: the exit code and the reason.
    Failed { host: u32, code: u8, reason: String },
    /// These ranks have ended since the last report; the first of them, if that is known.
    Ended { ends: Vec<(u32, RankEnd)>, first: Option<u32>, left: Vec<u32> },
    /// What ranks of this host have said beside their ends, in that order.
    Notices(Vec<Notice>),
    /// A rank's part of an exchange.
    Part { rank: u32, part: Vec<u8> },
    /// These ranks take part in no further exchange.
    Done(Vec<u32>),
    /// Every rank has ended, and nothing is left of them.
    Over,
    /// Nothing has happened.
    Alive,
}
wire!(enum FromAgent {
    0 => Ready { host, version, address, interface },
    1 => Failed { host, code, reason },
    2 => Ended { ends, first, left },
    3 => Notices(notices),
    4 => Part { rank, part },
    5 => Done(ranks),
    6 => Over,
    7 => Alive,
});

/// From a launcher to an agent.
#[derive(Clone, Debug)]
pub(crate) enum ToAgent {
    /// Start the ranks.
    Start(JobManifest),
    /// Parts of an exchange, by rank, and whether the next ranks' follow.
    Gathered { parts: Parts, more: bool },
    /// Send every rank that lives this signal.
    Signal(i32),
    /// Ask every rank that can answer what it waits for.
    Report,
    /// These ranks are dead, wherever they were.
    Died(Vec<u32>),
    /// Nothing has happened.
    Alive,
}
wire!(enum ToAgent {
    0 => Start(manifest),
    1 => Gathered { parts, more },
    2 => Signal(number),
    3 => Report,
    4 => Died(ranks),
    5 => Alive,
});

/// From a rank that nobody's agent started to rank 0.
#[derive(Clone, Debug)]
pub(crate) enum FromRank {
    /// The rank is there.
    Arrived(RankArrival),
    /// What it says to whoever serves its job.
    Said(Word),
}
wire!(enum FromRank { 0 => Arrived(arrival), 1 => Said(word) });

/// Who such a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankArrival {
    pub(crate) version: String,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) endpoints: u16,
    /// What `AM_TRANSPORT` says there, if it is set.
    pub(crate) transport: Option<String>,
    /// What tells the rank's machine from every other one.
    pub(crate) machine: String,
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) interface: String,
}
wire!(struct RankArrival { version, rank, ranks, endpoints, transport, machine, name, address, interface });

/// From rank 0 to such a rank.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// All ranks are there. The manifest has no secret: who can read it here has the one that it comes from,
    /// together with the value that is new in this run.
    Table(JobManifest, [u8; 32]),
    /// The job can't start.
    Refused(String),
    /// Parts of an exchange, by rank, and whether the next ranks' follow.
    Gathered { parts: Parts, more: bool },
    /// These ranks have ended without taking leave.
    Failed(Vec<u32>),
    /// These take part in no further exchange.
    Done(Vec<u32>),
    /// Whether rank 0 has taken leave.
    Left(bool),
}
wire!(enum Answer {
    0 => Table(manifest, run),
    1 => Refused(reason),
    2 => Gathered { parts, more },
    3 => Failed(ranks),
    4 => Done(ranks),
    5 => Left(left),
});

/// Parts of an exchange in one message: with each of them as long as one may be, a channel still takes it.
const AT_ONCE: usize = 128;

/// Some parts of an exchange: at most 128 of at most 64 KiB each, so that a message of empty ones takes no more
/// memory than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts(pub(crate) Vec<Vec<u8>>);

impl Wire for Parts {
    fn put(&self, to: &mut dyn FnMut(&[u8])) {
        self.0.put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let count = take_length(from).filter(|count| *count <= AT_ONCE)?;
        Vec::take_all(count, from).map(Self).filter(|parts| parts.0.iter().all(|part| part.len() <= LONGEST_PART))
    }
}

/// Bytes of parts in one message at most, unless it has one part.
const BYTES_AT_ONCE: usize = LONGEST_PART;

/// The parts of an exchange from this rank's on that go in one message, whether more follow, and the first of
/// those.
pub(crate) fn in_message(parts: &[Vec<u8>], from: usize) -> (Parts, bool, usize) {
    let (mut next, mut bytes) = (from, 0);
    while next < parts.len().min(from + AT_ONCE) {
        bytes += parts[next].len();
        if bytes > BYTES_AT_ONCE && next > from {
            break;
        }
        next += 1;
    }
    (Parts(parts[from..next].to_vec()), next < parts.len(), next)
}

/// Everybody's parts of an exchange as messages that a channel takes: some parts, and whether more follow.
pub(crate) fn in_messages(parts: &[Vec<u8>]) -> impl Iterator<Item = (Parts, bool)> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let (parts, more, next) = in_message(parts, from?);
        from = more.then_some(next);
        Some((parts, more))
    })
}
