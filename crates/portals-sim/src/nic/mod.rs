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
//!
//! # Rules
//!
//! What must always hold of the interface and of the conduits on it. A comment "Rule N of the sheet" stands at the
//! lines that keep rule N, and `tests/it/invariants` tests the rules by these numbers.
//!
//! 1. The first entry that matches takes a message; on Portals 4 the priority list comes before the overflow list.
//! 2. The local offset only grows and messages do not overlap; an entry unlinks itself when less than its least
//!    room is left, and says so after its last message.
//! 3. A message that is cut off is reported with the length that was asked for and the length that was delivered.
//! 4. What X has lent Y is what Y holds for X and what is under way; all loans and the bank together are the
//!    total.
//! 5. The receive space does not overflow, whatever the schedule.
//! 6. Requests are polled only where what their replies need is set aside; without that a mutual flood blocks.
//! 7. A lost event is reported, and ends the conduit.
//! 8. While a portal table entry is disabled, messages are refused; after they are sent again nothing is lost,
//!    nothing was handled twice, and each pair's order is kept.
//! 9. Triggered operations fire once, in the order of their thresholds.

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
