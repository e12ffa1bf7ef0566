//! SISCI in virtual time, over `fabric-sim`.
//!
//! * `handle` has [`Virtual`], the interface itself; `segments`, `pio`, `transfer` are its parts;
//! * `device` is the adapter as the simulation drives it, `wire` what adapters send each other;
//! * `process` is what an adapter keeps for its process.
//!
//! # A line's way
//!
//! The processor's write-combining buffer gives it up ([`line_ns`](crate::model::PioParameters::line_ns)); it
//! passes the sending adapter, the links, and reaches the receiving adapter, which answers and lets it land in
//! memory a while later, in the order of the answers. So what is stored after an answer lands after what was
//! answered. Sender and line part when the answer does not come: after
//! [`timeout_ns`](crate::model::ErrorParameters::timeout_ns) the sender gives the line up, and from then on the
//! receiver takes it no more, so that what is stored again later cannot be overtaken by what was given up.

mod device;
mod handle;
mod pio;
mod process;
mod segments;
mod transfer;
mod wire;

pub use device::Adapter;
pub(crate) use device::Shared;
pub use fabric_sim::HostMemory;
pub use handle::{
    Descriptor, DmaQueue, Interrupt, LocalMap, LocalSegment, RemoteInterrupt, RemoteMap, RemoteSegment, Sequence,
    Virtual,
};
pub use wire::Wire;
