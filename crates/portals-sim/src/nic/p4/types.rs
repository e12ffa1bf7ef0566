//! The types of Portals 4: descriptors, list entries, options, events, counters.

use super::atomic::{AtomicOp, Datatype};
use crate::nic::directory::ProcessId;
use crate::nic::memory::HostMemory;
use crate::nic::slots::Key;
use std::fmt;
use std::ops::BitOr;

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

macro_rules! options {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $option:ident = $bit:expr,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// None of them.
            pub const NONE: Self = Self(0);
            $($(#[$inner])* pub const $option: Self = Self(1 << $bit);)*

            /// Whether all of `options` are set.
            #[inline]
            pub const fn has(self, options: Self) -> bool {
                self.0 & options.0 == options.0
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names = [$((Self::$option, stringify!($option))),*];
                let set = names.into_iter().filter(|(option, _)| self.has(*option));
                f.debug_set().entries(set.map(|(_, name)| name)).finish()
            }
        }
    };
}

options! {
    /// Options of a memory descriptor.
    MdOptions {
        /// `PTL_MD_EVENT_SUCCESS_DISABLE`: only failures make events.
        EVENT_SUCCESS_DISABLE = 0,
        /// `PTL_MD_EVENT_SEND_DISABLE`: no send events.
        EVENT_SEND_DISABLE = 1,
        /// `PTL_MD_EVENT_CT_SEND`: the counter counts sends.
        EVENT_CT_SEND = 2,
        /// `PTL_MD_EVENT_CT_REPLY`: the counter counts replies.
        EVENT_CT_REPLY = 3,
        /// `PTL_MD_EVENT_CT_ACK`: the counter counts acknowledgements.
        EVENT_CT_ACK = 4,
        /// `PTL_MD_EVENT_CT_BYTES`: the counter counts bytes, not operations.
        EVENT_CT_BYTES = 5,
    }
}

options! {
    /// Options of a match entry or list entry.
    MeOptions {
        /// `PTL_ME_OP_PUT`: responds to puts and atomic operations.
        OP_PUT = 0,
        /// `PTL_ME_OP_GET`: responds to gets; fetching atomic operations want both.
        OP_GET = 1,
        /// `PTL_ME_MANAGE_LOCAL`: each operation goes behind the one before. Without it the initiator says where.
        MANAGE_LOCAL = 2,
        /// `PTL_ME_NO_TRUNCATE`: what is too long does not match. Without it it is cut off.
        NO_TRUNCATE = 3,
        /// `PTL_ME_MAY_ALIGN`: operations may be put to aligned places: the interface takes multiples of 8.
        MAY_ALIGN = 4,
        /// `PTL_ME_USE_ONCE`: the entry is unlinked when it has matched.
        USE_ONCE = 5,
        /// `PTL_ME_ACK_DISABLE`: success is not acknowledged.
        ACK_DISABLE = 6,
        /// `PTL_ME_EVENT_COMM_DISABLE`: no events of operations.
        EVENT_COMM_DISABLE = 7,
        /// `PTL_ME_EVENT_OVER_DISABLE`: no events of unexpected headers that it matches.
        EVENT_OVER_DISABLE = 8,
        /// `PTL_ME_EVENT_SUCCESS_DISABLE`: only failures make events.
        EVENT_SUCCESS_DISABLE = 9,
        /// `PTL_ME_EVENT_LINK_DISABLE`: no event when it has been linked.
        EVENT_LINK_DISABLE = 10,
        /// `PTL_ME_EVENT_UNLINK_DISABLE`: no events when it unlinks itself.
        EVENT_UNLINK_DISABLE = 11,
        /// `PTL_ME_EVENT_CT_COMM`: the counter counts operations.
        EVENT_CT_COMM = 12,
        /// `PTL_ME_EVENT_CT_OVERFLOW`: the counter counts unexpected headers that it matches.
        EVENT_CT_OVERFLOW = 13,
        /// `PTL_ME_EVENT_CT_BYTES`: the counter counts bytes, not operations.
        EVENT_CT_BYTES = 14,
        /// `PTL_ME_UNEXPECTED_HDR_DISABLE`: in the overflow list: no unexpected headers.
        UNEXPECTED_HDR_DISABLE = 15,
    }
}

options! {
    /// Options of a portal table entry.
    PtOptions {
        /// `PTL_PT_ONLY_USE_ONCE`: takes entries in its priority list only with [`MeOptions::USE_ONCE`].
        ONLY_USE_ONCE = 0,
        /// `PTL_PT_FLOWCTRL`: disables itself when it lacks match entries or room in its event queue.
        FLOWCTRL = 1,
        /// `PTL_PT_ALLOC_DISABLED`: begins disabled.
        ALLOC_DISABLED = 2,
    }
}

/// Whose operations an entry takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// Everyone's.
    #[default]
    Any,
    /// Those of any process of a node.
    Node(u32),
    /// Those of one process.
    Process(ProcessId),
}

impl Source {
    #[inline]
    pub(crate) fn fits(self, id: ProcessId) -> bool {
        match self {
            Self::Any => true,
            Self::Node(nid) => nid == id.nid,
            Self::Process(process) => process == id,
        }
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
    /// `PTL_OVERFLOW_LIST`: for what nothing in the priority list takes. What it takes is kept as an unexpected header, until
    /// an entry that would have matched it comes into the priority list.
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
    /// `PTL_CT_ACK_REQ`: the counter only.
    Count,
    /// `PTL_OC_ACK_REQ`: an event and the counter, without lengths and offsets.
    Completed,
    /// `PTL_NO_ACK_REQ`.
    None,
}

/// Whom an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// A process by its physical identity.
    Physical(ProcessId),
    /// A process by its number in the [map](crate::nic::p4::P4::set_map).
    Logical(u32),
}

impl From<ProcessId> for Process {
    fn from(id: ProcessId) -> Self {
        Self::Physical(id)
    }
}

/// Where an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Whom it is for.
    pub process: Process,
    /// The portal table entry there.
    pub pt_index: u32,
    /// What it is matched by.
    pub match_bits: u64,
    /// Where in the entry, if that lets the initiator say it.
    pub offset: u64,
}

/// Part of a memory descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The descriptor.
    pub md: MdHandle,
    /// First byte in it.
    pub offset: u64,
}

/// `PtlPut`: sends bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Put {
    /// From where.
    pub from: Region,
    /// Bytes.
    pub length: u32,
    /// What to tell the initiator.
    pub ack: Ack,
    /// Where to.
    pub target: Target,
    /// A word for the initiator's events.
    pub user_ptr: u64,
    /// A word for the target's event.
    pub hdr_data: u64,
}

/// `PtlGet`: fetches bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Get {
    /// Where to.
    pub to: Region,
    /// Bytes.
    pub length: u32,
    /// From where.
    pub target: Target,
    /// A word for the initiator's event.
    pub user_ptr: u64,
}

/// `PtlAtomic`: combines bytes with the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// The put that it is otherwise.
    pub put: Put,
    /// What is done.
    pub operation: AtomicOp,
    /// On what.
    pub datatype: Datatype,
}

/// `PtlFetchAtomic`: combines bytes with the target's, and fetches what was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FetchAtomic {
    /// Where what was there goes.
    pub to: Region,
    /// The put that it is otherwise; it is not acknowledged but answered.
    pub put: Put,
    /// What is done.
    pub operation: AtomicOp,
    /// On what.
    pub datatype: Datatype,
}

/// `PtlSwap`: exchanges bytes with the target's, perhaps on a condition or by a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swap {
    /// Where what was there goes.
    pub to: Region,
    /// The put that it is otherwise; it is not acknowledged but answered.
    pub put: Put,
    /// What is done.
    pub operation: AtomicOp,
    /// On what.
    pub datatype: Datatype,
    /// What the target's bytes are compared with, or the mask: its first bytes, little-endian.
    pub operand: [u8; 16],
}

/// What may be triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each has its own type")]
pub enum Command {
    Put(Put),
    Get(Get),
    Atomic(Atomic),
    FetchAtomic(FetchAtomic),
    Swap(Swap),
    /// `PtlCTInc`.
    CtInc(CtHandle, CtEvent),
    /// `PtlCTSet`.
    CtSet(CtHandle, CtEvent),
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
