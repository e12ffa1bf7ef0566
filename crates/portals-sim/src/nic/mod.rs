//! The network interface: its programming interfaces, and the state machines behind them. It knows nothing of
//! active messages.
//!
//! | file | owns |
//! |---|---|
//! | `p3` | [`p3::P3`]: Portals 3.3; match lists, memory descriptors, event queues |
//! | `p4` | [`p4::P4`]: Portals 4; lists, unexpected headers, counters, triggered and atomic operations, flow control |
//! | `handle` | [`Nic`]: a rank's way to them, and to time |
//! | `device` | [`Portals`]: a node's interface, as the simulation drives it: engines, arrivals, sleepers |
//! | `lookahead` | messages and processes that come late where no process can notice |
//! | `queue` | event queues that can be full |
//! | `wire` | what interfaces send each other |
//! | `directory` | the identities of processes |
//! | `mutation` | defects for tests that must be able to fail |

pub(crate) mod device;
pub(crate) mod directory;
pub(crate) mod handle;
mod lookahead;
#[doc(hidden)]
pub mod mutation;
pub mod p3;
pub mod p4;
pub(crate) mod queue;
pub(crate) mod wire;

pub use device::{Counters, Portals};
pub use directory::ProcessId;
pub use fabric_sim::HostMemory;
pub use handle::Nic;
pub use wire::Wire;
