//! The interface: a packetizer and a mailbox for control packets, and a user-level RDMA engine with address
//! translation.
//!
//! * `packetizer` holds the channels that send control packets, and the mailbox; `transfer` how transfers are cut
//!   into blocks and known to be complete; `translation` what a process has mapped; `sequence` the numbers by
//!   which a unit takes effect once. All of them are state machines without a clock;
//! * `device` is the interface of a node as the simulation drives it, `sending` and `receiving` its two sides,
//!   `wire` what travels;
//! * `handle` has [`Nic`], what a program calls; `errors` what it can be told.
//!
//! # What programs call
//!
//! | published primitive | here | answers |
//! |---|---|---|
//! | send a control packet of up to 64 bytes | [`Nic::pkt_send`] | OK and NACK in [`Nic::pkt_channels`], FULL at once |
//! | poll the mailbox | [`Nic::mbox_poll`] | a message, or none |
//! | RDMA write | [`Nic::rdma_write`] | OK, or QUEUE_FULL |
//! | emulated RDMA read | [`Nic::rdma_read`] | the same |
//! | poll a transfer | [`Nic::rdma_poll`] | [`Progress`] |
//!
//! # Rules
//!
//! What always holds. A comment "Rule N of the sheet" stands at the lines that keep rule N; `tests/it/invariants`
//! tests them.
//!
//! 1. A control packet is in one mailbox once, or refused; what is refused stays with its sender.
//! 2. A transfer's notification is written after its last byte, in whatever order cells and blocks come and
//!    however often they are sent; it is written once, and never for a transfer that faults at either side's
//!    memory.
//! 3. Every transfer ends: done, or as a fault that says why.
//! 4. A block that meets a page that is not there is sent again once the page is. Memory need not be pinned.
//! 5. Once a transfer is done, nothing that is still under way writes to its destination again.
//! 6. Nobody reads or writes what a process has not mapped for it.
//!
//! Published are the primitives, blocks with selective end-to-end retransmission and multipath, user-level
//! initiation, and translation by the processor's SMMU without pinning (Xirouchakis, "Design and Implementation
//! of the Send Part of an Advanced RDMA Engine"; Ploumidis et al., "The ExaNeSt Prototype"). The numbering of
//! units, the window, and the shape of the calls are this project's.

mod address;
pub(crate) mod device;
mod errors;
mod handle;
pub(crate) mod mutation;
mod packetizer;
mod receiving;
mod sending;
mod sequence;
pub(crate) mod transfer;
mod translation;
mod wire;

pub use address::Address;
pub use device::{Counters, Exanet, Shared};
pub use errors::{Fault, MapError, Nack, PacketError, Progress, RdmaError};
pub use fabric_sim::HostMemory;
pub use handle::Nic;
#[doc(hidden)]
pub use mutation::{Defects, Mutation};
pub use packetizer::{Channels, Message, PACKET};
pub use transfer::{Notify, TransferId};
pub use translation::{Access, Paging};
pub use wire::Wire;
