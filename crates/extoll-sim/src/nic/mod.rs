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
