//! The network interface: SISCI's programming interface, and the two state machines behind it. It knows nothing of active
//! messages.
//!
//! | file | owns |
//! |---|---|
//! | `sisci` | [`Sisci`]: the interface as a trait |
//! | `code`, `kinds` | [`Code`] and [`Kept`]: what calls come to; numbers, states, events, flags |
//! | [`flag`] | a flag byte in shared memory, which loom can check |

#[cfg(not(am_loom))]
mod code;
pub mod flag;
#[cfg(not(am_loom))]
mod kinds;
#[cfg(not(am_loom))]
mod sisci;

#[cfg(not(am_loom))]
pub use {
    code::{Code, Kept},
    kinds::{
        ALIGNMENT, Callback, Concerned, Counters, DmaState, Flags, LINE, Limits, NodeId, RemoteAddress, SegmentId,
        SegmentReason, SequenceStatus,
    },
    sisci::Sisci,
};
