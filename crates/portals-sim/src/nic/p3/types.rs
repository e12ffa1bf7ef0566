//! The types of Portals 3.3: descriptors, options, events, handles.

use crate::nic::HostMemory;
use crate::nic::directory::{ProcessId, Source};
use am_core::slab::Key;
use std::fmt;
use std::ops::BitOr;

/// A match entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeHandle(pub(crate) Key);

/// A memory descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MdHandle(pub(crate) Key);

/// An event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EqHandle(pub(crate) Key);

/// Options of a memory descriptor.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Options(u32);

impl Options {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// `PTL_MD_OP_PUT`: responds to puts.
    pub const OP_PUT: Self = Self(1);
    /// `PTL_MD_OP_GET`: responds to gets.
    pub const OP_GET: Self = Self(2);
    /// `PTL_MD_MANAGE_REMOTE`: the initiator says where in the descriptor an operation goes. Without it each goes
    /// behind the one before.
    pub const MANAGE_REMOTE: Self = Self(4);
    /// `PTL_MD_TRUNCATE`: an operation that is too long is cut off. Without it the descriptor does not accept it.
    pub const TRUNCATE: Self = Self(8);
    /// `PTL_MD_ACK_DISABLE`: puts are not acknowledged, even if their initiators ask for it.
    pub const ACK_DISABLE: Self = Self(16);
    /// `PTL_MD_EVENT_START_DISABLE`: no events for starts of operations.
    pub const EVENT_START_DISABLE: Self = Self(32);
    /// `PTL_MD_MAX_SIZE`: with less than `max_size` left after an operation, the descriptor accepts no more.
    pub const MAX_SIZE: Self = Self(64);

    const NAMES: [&'static str; 7] =
        ["OP_PUT", "OP_GET", "MANAGE_REMOTE", "TRUNCATE", "ACK_DISABLE", "EVENT_START_DISABLE", "MAX_SIZE"];

    /// Whether all of `options` are set.
    #[inline]
    pub const fn has(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }
}

impl BitOr for Options {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// How many operations a memory descriptor takes. A put that its process starts counts once and its
/// acknowledgement once more, a get once and its reply once more, an operation of a peer once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// `PTL_MD_THRESH_INF`.
    #[default]
    Infinite,
    /// So many; with none left it is inactive.
    Count(u32),
}

/// What becomes of a match entry when its memory descriptor is unlinked, or of a memory descriptor when it has
/// become inactive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unlink {
    /// `PTL_UNLINK`: it is unlinked too, at once.
    Unlink,
    /// `PTL_RETAIN`: it stays.
    #[default]
    Retain,
}

/// Where in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// `PTL_INS_BEFORE`: before a given entry, or all.
    Before,
    /// `PTL_INS_AFTER`: behind a given entry, or all.
    After,
}

/// Which messages a match entry takes: `(bits ^ match_bits) & !ignore_bits == 0`, from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Criteria {
    /// Whose.
    pub source: Source,
    /// The bits that a message must have.
    pub match_bits: u64,
    /// Those that do not matter.
    pub ignore_bits: u64,
}

impl Criteria {
    /// Messages with these bits from anyone, whatever their bits in `ignore_bits` are.
    pub const fn bits(match_bits: u64, ignore_bits: u64) -> Self {
        Self { source: Source::Any, match_bits, ignore_bits }
    }

    #[inline]
    pub(crate) fn fit(&self, source: ProcessId, bits: u64) -> bool {
        (bits ^ self.match_bits) & !self.ignore_bits == 0 && self.source.fits(source)
    }
}

/// A memory descriptor (`ptl_md_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Md {
    /// The memory that it lies in.
    pub memory: HostMemory,
    /// Its first byte there.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
    /// How many operations it takes.
    pub threshold: Threshold,
    /// With [`Options::MAX_SIZE`]: the room that must be left for it to stay active.
    pub max_size: usize,
    /// What it does.
    pub options: Options,
    /// A word of the program's, repeated in events.
    pub user_ptr: u64,
    /// Where its events go.
    pub eq: Option<EqHandle>,
}

impl Md {
    /// All of some memory, for any number of operations, without events.
    pub fn new(memory: &HostMemory, options: Options) -> Self {
        Self {
            memory: memory.clone(),
            start: 0,
            length: memory.len(),
            threshold: Threshold::Infinite,
            max_size: 0,
            options,
            user_ptr: 0,
            eq: None,
        }
    }
}

/// Whether the initiator of a put wants to know of its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// `PTL_ACK_REQ`.
    Request,
    /// `PTL_NO_ACK_REQ`.
    None,
}

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A put of this process has begun to leave. Not with [`Options::EVENT_START_DISABLE`], as all starts.
    SendStart,
    /// A put of this process has left: its memory may change. Local completion.
    SendEnd,
    /// A put of this process has been delivered. Remote completion.
    Ack,
    /// A peer's put has begun to arrive.
    PutStart,
    /// A peer's put is in memory.
    PutEnd,
    /// A peer's get has begun to be answered.
    GetStart,
    /// A peer's get has been answered.
    GetEnd,
    /// The answer to a get of this process has begun to arrive.
    ReplyStart,
    /// The answer to a get of this process is in memory.
    ReplyEnd,
    /// The memory descriptor has been unlinked by itself; nothing more comes of it.
    Unlink,
}

/// An event (`ptl_event_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// Who started the operation.
    pub initiator: ProcessId,
    /// The portal table entry that it was for.
    pub pt_index: u32,
    /// The bytes that were asked for.
    pub rlength: u32,
    /// The bytes that were moved: fewer if the operation was truncated.
    pub mlength: u32,
    /// The match bits that the initiator gave.
    pub match_bits: u64,
    /// Where in the target's memory descriptor.
    pub offset: u64,
    /// This process's memory descriptor.
    pub md: MdHandle,
    /// Its word.
    pub user_ptr: u64,
    /// The word that the initiator of a put gave along.
    pub hdr_data: u64,
}

/// What an interface has counted for a process (`PtlNIStatus`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `PTL_SR_DROP_COUNT`: messages that nothing matched, and acknowledgements and replies for what is gone.
    pub dropped: u64,
    /// Events that found their queue full.
    pub events_lost: u64,
    /// Entries that have been looked at to match messages.
    pub walked: u64,
    /// Match entries, memory descriptors and event queues that there are.
    pub in_use: [u32; 3],
}
