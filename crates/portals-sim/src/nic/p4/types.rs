//! The types of Portals 4: descriptors, list entries, options, events, counters.

use super::atomic::{AtomicOp, Datatype};
use super::options::{MdOptions, MeOptions};
use crate::nic::HostMemory;
use crate::nic::directory::{ProcessId, Source};
use am_core::slab::Key;

/// A memory descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MdHandle(pub(crate) Key);

/// A match entry or list entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeHandle(pub(crate) Key);

/// An event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EqHandle(pub(crate) Key);

/// A counting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CtHandle(pub(crate) Key);

/// A memory descriptor (`ptl_md_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Md {
    /// The memory that it lies in.
    pub memory: HostMemory,
    /// Its first byte there.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What it does.
    pub options: MdOptions,
    /// Where its events go.
    pub eq: Option<EqHandle>,
    /// What counts.
    pub ct: Option<CtHandle>,
}

impl Md {
    /// All of some memory, without events.
    pub fn new(memory: &HostMemory) -> Self {
        let (memory, length) = (memory.clone(), memory.len());
        Self { memory, start: 0, length, options: MdOptions::NONE, eq: None, ct: None }
    }
}

/// A match entry (`ptl_me_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The memory that it lies in. A part outside it is found out by the operation that touches it.
    pub memory: HostMemory,
    /// Its first byte there.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What it does.
    pub options: MeOptions,
    /// With [`MeOptions::MANAGE_LOCAL`]: with less than this left it unlinks itself.
    pub min_free: usize,
    /// What counts.
    pub ct: Option<CtHandle>,
    /// Whose operations are permitted: those of a user, or everyone's.
    pub uid: Option<u32>,
    /// Whose operations match.
    pub source: Source,
    /// The bits that a message must have.
    pub match_bits: u64,
    /// Those that do not matter.
    pub ignore_bits: u64,
}

impl Me {
    /// All of some memory, for messages with these bits from anyone.
    pub fn new(memory: &HostMemory, options: MeOptions, match_bits: u64, ignore_bits: u64) -> Self {
        Self {
            memory: memory.clone(),
            start: 0,
            length: memory.len(),
            options,
            min_free: 0,
            ct: None,
            uid: None,
            source: Source::Any,
            match_bits,
            ignore_bits,
        }
    }
}

/// A list entry (`ptl_le_t`): a match entry that matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Le {
    /// The memory that it lies in.
    pub memory: HostMemory,
    /// Its first byte there.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
    /// What it does; no [`MeOptions::MANAGE_LOCAL`] nor [`MeOptions::NO_TRUNCATE`].
    pub options: MeOptions,
    /// What counts.
    pub ct: Option<CtHandle>,
    /// Whose operations are permitted: those of a user, or everyone's.
    pub uid: Option<u32>,
}

/// Which list of a portal table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// `PTL_PRIORITY_LIST`: searched first.
    Priority,
    /// `PTL_OVERFLOW_LIST`: for what nothing in the priority list takes. What it takes is kept as an unexpected
    /// header, until an entry that would have matched it comes into the priority list.
    Overflow,
}

/// What to do with unexpected headers that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Search {
    /// `PTL_SEARCH_ONLY`: they stay.
    Only,
    /// `PTL_SEARCH_DELETE`: they are taken, as by an entry that is appended.
    Delete,
}

/// Whether the initiator wants to know of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// `PTL_ACK_REQ`: an event, and the counter.
    Request,
    /// `PTL_CT_ACK_REQ`: the counter only, unless the operation fails.
    Count,
    /// `PTL_OC_ACK_REQ`: an event and the counter, without lengths and offsets.
    Completed,
    /// `PTL_NO_ACK_REQ`.
    None,
}

/// The value of a counting event, or what is added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CtEvent {
    /// Operations, or bytes, that went well.
    pub success: u64,
    /// Operations that did not.
    pub failure: u64,
}

impl CtEvent {
    /// So many that went well.
    pub const fn success(count: u64) -> Self {
        Self { success: count, failure: 0 }
    }
}

/// How an operation ended (`ptl_ni_fail_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NiFail {
    /// `PTL_NI_OK`.
    #[default]
    Ok,
    /// `PTL_NI_UNDELIVERABLE`: the target is known to be lost.
    Undeliverable,
    /// `PTL_NI_DROPPED`: there is no such portal table entry, or no room for an unexpected header.
    Dropped,
    /// `PTL_NI_PT_DISABLED`: the portal table entry is disabled. The message may be sent again once it is enabled.
    PtDisabled,
    /// `PTL_NI_PERM_VIOLATION`: the entry belongs to another user.
    PermViolation,
    /// `PTL_NI_OP_VIOLATION`: the entry does not take such operations.
    OpViolation,
    /// `PTL_NI_NO_MATCH`: nothing matched, or nothing was found.
    NoMatch,
    /// `PTL_NI_SEGV`: the entry lies outside its memory.
    Segv,
}

impl NiFail {
    /// The name in the interface's header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "PTL_NI_OK",
            Self::Undeliverable => "PTL_NI_UNDELIVERABLE",
            Self::Dropped => "PTL_NI_DROPPED",
            Self::PtDisabled => "PTL_NI_PT_DISABLED",
            Self::PermViolation => "PTL_NI_PERM_VIOLATION",
            Self::OpViolation => "PTL_NI_OP_VIOLATION",
            Self::NoMatch => "PTL_NI_NO_MATCH",
            Self::Segv => "PTL_NI_SEGV",
        }
    }
}

/// What an event tells (`ptl_event_kind_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A peer's get has been answered.
    Get,
    /// An entry has matched the unexpected header of a get.
    GetOverflow,
    /// A peer's put is in memory.
    Put,
    /// An entry has matched the unexpected header of a put: its bytes lie in the overflow entry.
    PutOverflow,
    /// A peer's atomic operation is done.
    Atomic,
    /// An entry has matched the unexpected header of an atomic operation.
    AtomicOverflow,
    /// A peer's fetching atomic operation is done.
    FetchAtomic,
    /// An entry has matched the unexpected header of a fetching atomic operation.
    FetchAtomicOverflow,
    /// The answer to an operation of this process is in memory.
    Reply,
    /// An operation of this process has left: its memory may change. Local completion.
    Send,
    /// An operation of this process has been delivered, or has failed. Remote completion.
    Ack,
    /// The portal table entry has disabled itself.
    PtDisabled,
    /// An entry has unlinked itself.
    AutoUnlink,
    /// An overflow entry that has unlinked itself has no unexpected headers any more: its memory is free.
    AutoFree,
    /// An entry has been linked.
    Link,
    /// A search has ended.
    Search,
}

/// An event (`ptl_event_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub kind: EventKind,
    /// How it ended.
    pub ni_fail: NiFail,
    /// Who started the operation.
    pub initiator: ProcessId,
    /// The user that the initiator belongs to.
    pub uid: u32,
    /// The portal table entry.
    pub pt_index: u32,
    /// The list that it matched in.
    pub list: List,
    /// The match bits that the initiator gave.
    pub match_bits: u64,
    /// The bytes that were asked for.
    pub rlength: u32,
    /// The bytes that were moved: fewer if the operation was truncated.
    pub mlength: u32,
    /// Where in the target's entry.
    pub remote_offset: u64,
    /// Where in the entry's memory the operation's bytes begin.
    pub start: u64,
    /// The word of the entry, or of this process's operation.
    pub user_ptr: u64,
    /// The word of the entry in whose memory the bytes lie: of an unexpected header, that of the overflow entry.
    pub overflow_ptr: u64,
    /// The word that the initiator gave along.
    pub hdr_data: u64,
    /// What was done and on what, if it was an atomic operation.
    pub atomic: Option<(AtomicOp, Datatype)>,
}

/// What an interface has counted for a process (`PtlNIStatus`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `PTL_SR_DROP_COUNT`: messages that were not taken, and what has come for what is gone.
    pub dropped: u64,
    /// `PTL_SR_PERMISSION_VIOLATIONS`.
    pub permission_violations: u64,
    /// `PTL_SR_OPERATION_VIOLATIONS`.
    pub operation_violations: u64,
    /// Messages refused because their portal table entry was disabled.
    pub refused: u64,
    /// Events that were written over.
    pub events_lost: u64,
    /// Unexpected headers that there are.
    pub unexpected: u32,
    /// Triggered operations that have fired.
    pub triggered: u64,
}
