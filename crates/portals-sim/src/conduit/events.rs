//! What the conduit sees of the interface's events, whichever Portals it is.

use super::codec::{Bits, HeaderData};
use crate::nic::p4::NiFail;

/// The descriptor that an operation of this rank began at, told by the descriptor's user pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// RARSRC, the segment.
    Segment,
    /// ReqSB: a request's chunk.
    Request,
    /// RplSB: a reply's slot.
    Reply,
    /// TMPMD: the registration cache's slot.
    Temporary(u32),
}

impl Origin {
    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Segment => 0,
            Self::Request => 1,
            Self::Reply => 2,
            Self::Temporary(slot) => 3 + slot as u64,
        }
    }

    pub(super) const fn of(word: u64) -> Self {
        match word {
            0 => Self::Segment,
            1 => Self::Request,
            2 => Self::Reply,
            slot => Self::Temporary((slot - 3) as u32),
        }
    }
}

/// An event of the SAFE queue: what may be looked at where no handler may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safe {
    /// A put has left its memory.
    Left { origin: Origin, bits: u64 },
    /// A put is in its destination's segment, unless it failed.
    Delivered { origin: Origin, bits: u64, outcome: Result<(), NiFail> },
    /// A get's bytes are here, or what an atomic found, unless it failed.
    Fetched { origin: Origin, bits: u64, outcome: Result<(), NiFail> },
    /// A request was refused, because its receiver is disabled (Portals 4).
    Refused { bits: Bits },
    /// A reply has come into the send-buffer chunk of its request.
    Reply { from: u32, bits: Bits, data: HeaderData, len: u32 },
    /// The payload of a Long reply is in the segment.
    Placed { from: u32, bits: Bits },
    /// Nothing for the conduit.
    Nothing,
}

/// An event of the AM queue: what makes handlers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Am {
    /// A request is in the receive buffers, at an offset from the beginning of all of them.
    Request { from: u32, bits: Bits, data: HeaderData, at: u64, len: u32 },
    /// The payload of a Long request is in the segment.
    Placed { from: u32, bits: Bits },
    /// This receive buffer is full and everything in it has been told of.
    Unlinked(u32),
    /// The receiver is disabled (Portals 4).
    Disabled,
    /// A message that no conduit sends.
    Malformed { from: u32 },
    /// Nothing for the conduit.
    Nothing,
}
