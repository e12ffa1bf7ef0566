//! The network interface: SISCI's programming interface, and the two state machines behind it. It knows nothing of
//! active messages.
//!
//! | file | owns |
//! |---|---|
//! | `sisci` | [`Sisci`]: the interface as a trait |
//! | `code`, `kinds` | [`Code`] and [`RefusedObject`]: what calls come to; numbers, states, events, flags |
//! | `virtual_time` | [`Virtual`]: in virtual time |
//! | `mapped` | [`Mapped`]: between processes |
//! | `sequence` | the state machine of a map sequence, which both use |
//! | `errors` | [`TransferErrors`]: lines that fail on purpose |
//! | `mutation` | defects for tests that must be able to fail |
//! | [`flag`] | a flag byte in shared memory, which loom can check |
//!
//! # Rules
//!
//! What must always hold of the interface and of the conduits on it. A comment "Rule N of the sheet" stands at the
//! lines that keep rule N, and `tests/it/invariants` tests the rules by these numbers.
//!
//! 1. Data are stored and checked before the ready flag, and that before the exist flag.
//! 2. The exist flag is cleared before the search for ready flags; clearing it afterwards loses a wake-up.
//! 3. A slot has a single writer; a pair has at most as many requests outstanding as it has slots, two as
//!    published; a reply never waits.
//! 4. Whatever store fails for a while, a handler runs once, with the bytes that were sent.
//! 5. What failed as a whole is sent again in full; a lost node is an error that says so.
//! 6. Messages that fit their slots are sent and received without remote reads, which are counted.
//! 7. DMA moves whole lines of 64 bytes and nothing else, for all beginnings and ends of a message.
//! 8. Segments beyond the limit are refused; what others are connected to is not removed or unmapped; nobody is
//!    connected to a segment before it is available.

#[cfg(not(am_loom))]
mod code;
#[cfg(not(am_loom))]
mod errors;
pub mod flag;
#[cfg(not(am_loom))]
mod kinds;
#[cfg(not(am_loom))]
pub mod mapped;
#[cfg(not(am_loom))]
#[doc(hidden)]
pub mod mutation;
#[cfg(not(am_loom))]
mod sequence;
#[cfg(not(am_loom))]
mod sisci;
#[cfg(not(am_loom))]
pub mod virtual_time;

#[cfg(not(am_loom))]
pub use {
    code::{Code, RefusedObject},
    errors::{PlannedError, PlannedStatus, TransferErrors},
    kinds::{
        ALIGNMENT, Callback, CallbackSegment, Counters, DmaState, Flags, LINE, Limits, MAP_ALIGNMENT, NodeId,
        RemoteAddress, SegmentId, SegmentReason, SequenceStatus,
    },
    mapped::{Mapped, MappedConfig, MappedError},
    sisci::Sisci,
    virtual_time::Virtual,
};
