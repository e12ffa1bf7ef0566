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
