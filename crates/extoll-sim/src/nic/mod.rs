//! The network interface: its programming interface, and the state machines behind it. It knows nothing of active
//! messages.
//!
//! | file | owns |
//! |---|---|
//! | `velo` | [`velo::Velo`]: small messages; the mailbox ring, the status word |
//! | `rma` | [`rma::Rma`]: remote memory access; address translation, notifications, the pace of transfers |
//! | `handle` | [`Nic`]: a rank's way to both, and to time |
//! | `device` | [`Extoll`]: a node's interface, as the simulation drives it |
//! | `channel` | what interfaces send each other, and how it is repaired when it is lost |
//! | `replay` | the state machines of that: sequence, replay ring, retry flag |
//! | `memory`, `sparse` | what the interface can read and write; buffers that take room only while in use |
//! | `address`, `pairs` | addresses; partners by number |
//! | `mutation` | defects for tests that must be able to fail |
//!
//! # Rules
//!
//! What must always hold of the interface and of the conduits on it. A comment "Rule N of the sheet" stands at the
//! lines that keep rule N, and `tests/it/invariants` tests the rules by these numbers.
//!
//! 1. VELO keeps the order of each pair of processes; nothing orders VELO and RMA.
//! 2. A mailbox slot is not overwritten before its read pointer commits; a send without room is told to try again.
//! 3. A slot's status is visible after its data; the mark of a message's end is in its last slot alone.
//! 4. Once the tail of a put is visible, all of its bytes are.
//! 5. Of a ring connection, tokens held, slots under way, slots waiting at the receiver and tokens owed are the
//!    number of slots. Since the last token is kept for returning tokens, two idle programs do not block each
//!    other.
//! 6. Whatever packets are lost, spoilt or doubled, each message arrives once and in order, also where the 8-bit
//!    sequence wraps.
//! 7. A bad address, another process's page or the wrong rights set the error bit and leave memory unchanged.
//! 8. A full notification queue stalls its process and loses nothing.

pub(crate) mod address;
mod channel;
pub(crate) mod device;
pub(crate) mod handle;
mod memory;
#[doc(hidden)]
pub mod mutation;
pub(crate) mod pairs;
pub mod replay;
pub mod rma;
pub(crate) mod sparse;
pub mod velo;

pub use address::Address;
pub use channel::Wire;
pub use device::{Counters, Extoll};
pub use fabric_sim::HostMemory;
pub use handle::Nic;
