//! The commands of Portals 4: what a process asks its interface to do, at once or when a counter says so.

use super::atomic::{AtomicOp, Datatype};
use super::types::{Ack, CtEvent, CtHandle, MdHandle};
use crate::nic::directory::ProcessId;

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
