//! The interface: messages of any length in the order in which they were sent, and one-sided operations on
//! registered memory. It knows nothing of active messages.
//!
//! * `handle` has [`Nic`], what programs call;
//! * `device` is the interface of a node: it occupies the processors' and interfaces' time as the table says;
//! * `stream` brings packets of a pair back in order, and sends again what was lost;
//! * [`stats`] counts what ranks sent and received.
//!
//! ```
//! use machine_sim::{crossbar, nic::Message};
//!
//! let report = machine_sim::run(&crossbar(2), |nic| {
//!     if nic.rank() == 0 {
//!         nic.send(1, [7, 0], 1000, |bytes| bytes.fill(1));
//!         return 0;
//!     }
//!     let Message { immediate, data, .. } = nic.wait();
//!     assert_eq!((immediate[0], data.len()), (7, 1000));
//!     nic.now().0
//! })?;
//! // o_s + L + 999 G + o_r.
//! assert_eq!(report.results[1], Some(250_000 + 500_000 + 99_900 + 250_000));
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

pub(crate) mod device;
mod handle;
pub mod stats;
mod stream;
pub(crate) mod wire;

pub use handle::{Fault, Finished, Nic};
pub use wire::Message;
