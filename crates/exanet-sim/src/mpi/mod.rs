//! Two-sided messages straight on the interface's primitives, as "Design and Implementation of a Write Based
//! version of the Exanet MPI" has them: a packetizer and a mailbox for control messages and eager data, an RDMA
//! engine for long messages, and five ways to bring these together ([`Protocol`]).
//!
//! | module | owns |
//! |---|---|
//! | `rank` | [`Mpi`]: what a rank's program calls |
//! | `collectives` | barrier, broadcast, reduction and gathering to all, as trees and rings of messages |
//! | `config` | [`MpiConfig`], [`Protocol`] |
//! | `machine` | the protocols, without interface and clock |
//! | `packet` | the control packets |
//!
//! This is the library that was published, beside the active messages of [`conduit`](crate::conduit): it uses no
//! slots, no credits and no segment. Programs that want messages on every transport use the package
//! `active-messages-p2p` on the conduit. Both have protocols of the same names. The machines are two: that one
//! counts on a transport that keeps order, on credit for unexpected messages and on teams, sends up to sixteen
//! words of arguments beside a message, and stands above the core; this one has what fits into a packet of 64
//! bytes, and knows nothing of active messages.
//!
//! # What a call costs
//!
//! Every control message costs half of [`software_ns`](crate::model::MpiParameters) at each side, besides what the
//! interface charges; so does an eager message, and the start of a read. Writes and their notifications cost what
//! the interface charges. So a small message between neighbours takes the fitted 1.293 us, and a long one by RTR
//! the 0.6 us of a write and its bytes' time.
//!
//! # Rules
//!
//! What always holds, numbered behind the rules of [`nic`](crate::nic):
//!
//! 7. Messages of a pair do not overtake each other under one selector, wildcards or not.
//! 8. Every advertisement is used once: by its message, by the eager message of its number, or by its revocation.
//! 9. A receive is cancelled, or gets its message; never both.
//! 10. A buffer is written before its receive has ended, never afterwards.
//!
//! # Limits
//!
//! Messages that nobody has asked for take memory without bound, as the publication says nothing of credit; what
//! refuses is the interface ([`Counts::most_unexpected`] tells how many there were). Finding a receive or a
//! message takes time in proportion to how many wait, which the simulation does not charge. All communicators have
//! all ranks. Tags that were used once keep eight bytes for each peer.
//!
//! # Example
//!
//! ```
//! use exanet_sim::mpi::{self, MpiConfig, Protocol, WORLD};
//!
//! let config = MpiConfig::of(Protocol::Elided);
//! let report = mpi::run(&exanet_sim::rack(8), &config, |mpi| {
//!     let buffer = mpi.buffer(1 << 16);
//!     if mpi.rank() == 0 {
//!         buffer.write(mpi, 0, &[7; 1 << 16]);
//!         mpi.send(WORLD, 5, 1, &buffer, 0..1 << 16)?;
//!     }
//!     if mpi.rank() == 5 {
//!         let status = mpi.receive(WORLD, Some(0), Some(1), &buffer, 0..1 << 16)?;
//!         assert_eq!((status.len, buffer.read(mpi, 65_535, 1)[0]), (1 << 16, 7));
//!     }
//!     Ok(mpi.counts())
//! })?;
//! let counts = report.results[5].as_ref().unwrap().as_ref().unwrap();
//! assert_eq!((counts.rtr, counts.cts), (1, 0));
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

mod collectives;
mod config;
mod machine;
mod packet;
mod rank;

pub use config::{MpiConfig, Protocol};
pub use rank::{Buffer, Communicator, Mpi, Request, WORLD};

use crate::ExanetConfig;
use fabric_sim::{Report, RunError};
use packet::Kind;
use thiserror::Error;

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// Why a message was not sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MpiError {
    /// There is no such rank.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    NoRank {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The range is not inside the buffer.
    #[error("bytes {start}..{end} are outside a buffer of {len} bytes")]
    OutsideBuffer {
        /// Where the range begins.
        start: u64,
        /// Where it ends.
        end: u64,
        /// Bytes of the buffer.
        len: u64,
    },
    /// The message is longer than its receive, which has taken nothing of it.
    #[error(
        "the message of {len} bytes from rank {rank} with tag {tag} exceeds the {capacity} bytes of its receive"
    )]
    Truncated {
        /// Who sent it.
        rank: u32,
        /// Its tag.
        tag: u32,
        /// Its length in bytes.
        len: u64,
        /// What the receive has room for, in bytes.
        capacity: u64,
    },
    /// The other rank has left, or cannot be reached.
    #[error("rank {rank} is lost")]
    Lost {
        /// The rank.
        rank: u32,
    },
    /// The receive was cancelled.
    #[error("the receive was cancelled")]
    Cancelled,
    /// As many receives of long messages as the configuration allows have not ended.
    #[error("{limit} receives of long messages are under way; MpiConfig::receives limits them")]
    TooManyReceives {
        /// The limit.
        limit: u32,
    },
}

/// What a rank has sent, by kind, and how its messages travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Eager messages, each of one packet or several.
    pub eager: u64,
    /// Announcements.
    pub rts: u64,
    /// Answers to them.
    pub cts: u64,
    /// Advertisements.
    pub rtr: u64,
    /// Revocations, retirements of advertisements, and answers to both.
    pub revoke: u64,
    /// Ends of writes that were told.
    pub fin: u64,
    /// Ends of reads that were told.
    pub ack: u64,
    /// Reads begun, each of which is a request to the other interface.
    pub reads: u64,
    /// Writes begun.
    pub writes: u64,
    /// Writes to a receive that had been advertised before; whose announcement an advertisement has crossed;
    /// advertisements that an eager message retired by its number.
    pub advertised: u64,
    /// See [`advertised`](Self::advertised).
    pub crossed: u64,
    /// See [`advertised`](Self::advertised).
    pub retired_by_number: u64,
    /// The most messages that waited for a receive.
    pub most_unexpected: u64,
}

impl Counts {
    fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::Eager | Kind::More => &mut self.eager,
            Kind::Rts => &mut self.rts,
            Kind::Cts => &mut self.cts,
            Kind::Rtr => &mut self.rtr,
            Kind::Revoke | Kind::Revoked | Kind::Retire | Kind::Retired => &mut self.revoke,
            Kind::Fin => &mut self.fin,
            Kind::Ack => &mut self.ack,
        } += 1;
    }

    /// Control messages without eager data: those of the table of [`Protocol`], reads counted as requests.
    pub fn control(&self) -> u64 {
        self.rts + self.cts + self.rtr + self.revoke + self.fin + self.ack + self.reads
    }

    /// The sum of two.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            eager: self.eager + other.eager,
            rts: self.rts + other.rts,
            cts: self.cts + other.cts,
            rtr: self.rtr + other.rtr,
            revoke: self.revoke + other.revoke,
            fin: self.fin + other.fin,
            ack: self.ack + other.ack,
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            advertised: self.advertised + other.advertised,
            crossed: self.crossed + other.crossed,
            retired_by_number: self.retired_by_number + other.retired_by_number,
            most_unexpected: self.most_unexpected.max(other.most_unexpected),
        }
    }
}

/// Runs a program on every rank of a machine. Ranks end together: behind the program comes a barrier, unless it
/// failed or a rank is lost. Blocks until all have returned.
///
/// # Errors
/// As [`exanet_sim::run`](crate::run); and settings that are not possible.
pub fn run<R, F>(
    machine: &ExanetConfig,
    config: &MpiConfig,
    program: F,
) -> Result<Report<Result<R, MpiError>>, RunError>
where
    R: 'static,
    F: Fn(&mut Mpi<'_>) -> Result<R, MpiError> + 'static,
{
    machine.check()?;
    config.check()?;
    let config = *config;
    let busy_wait = machine.parameters.compile()?.busy_wait;
    crate::run(machine, move |nic| {
        let mut mpi = Mpi::new(nic, config, busy_wait);
        let result = program(&mut mpi);
        mpi.finish(result.is_ok());
        result
    })
}

/// Whether these bytes are a packet.
#[cfg(feature = "fuzzing")]
pub(crate) fn reads_as_packet(bytes: &[u8]) -> bool {
    let packet = packet::Control::decode(bytes);
    packet.is_some_and(|(_, _, start)| bytes.get(start..).is_some())
}
