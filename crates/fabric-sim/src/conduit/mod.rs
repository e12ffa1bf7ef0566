//! What the conduits of simulated interfaces have in common: a conduit is an [`am_core::Transport`] of ranks in
//! virtual time, on the interface's own programming interface.
//!
//! * [`Kind`]: what a frame is;
//! * [`Presence`] and the macros [`presence!`](crate::presence) and [`membership!`](crate::membership): who a rank
//!   is, and who is still there; [`transport_items!`](crate::transport_items): what follows for the transport;
//! * [`StagedSlot`]: a reserved request whose payload is written to a buffer of the conduit;
//! * [`CreditFlush`]: when credits that no frame takes along travel by themselves.

mod credit_flush;
mod kind;
mod presence;
mod slot;

pub use credit_flush::CreditFlush;
pub use kind::Kind;
pub use presence::Presence;
pub use slot::{SpareBuffers, StagedRequests, StagedSlot};
