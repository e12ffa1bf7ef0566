//! Active messages over the packetizer and the RDMA engine.
//!
//! * `transport` has [`Conduit`], the [`Transport`](am_core::Transport); `send`, `receive`, `reply_path` and
//!   `native` are its parts;
//! * `frame` says what frames look like, how they fall into control packets, and how they become frames again, in
//!   the order of their source;
//! * `peers` is what is kept per peer; `stages` the memory that writes leave from, and the transfers under way;
//! * `losses` has the peers that could not be reached, or broke the protocol;
//! * `config` has sizes and costs, and divides the receive buffers.
//!
//! # How messages travel
//!
//! Short messages and small Medium ones are control packets. A larger Medium payload is written into a receive
//! buffer of its own at the destination, and a Long one into the segment; a control packet carries the rest, and
//! the write's notification tells that the payload is there. Packet and write overtake each other as they like: a
//! handler runs when both have come. Long payloads are cut into parts of a stage's size; since transfers are not
//! ordered among themselves, the last part, which is notified, is written once the others have arrived.
//!
//! The interface gives no order, so packets carry a turn, and the receiver handles the messages of a pair in the
//! order in which they were sent ([`Limits::ordered`](am_core::Limits)).
//!
//! # Room
//!
//! Every message has a slot at its receiver, which has a buffer and a word for notifications: of the requests of
//! each peer, of its replies, and a few for small messages between cores. A request takes its slot at the
//! receiver and the slot of its reply here; credits name the slots that are free again, and ride on other
//! messages where they can. The mailbox has no part in this: it may be smaller than all slots together, and then
//! refuses packets, which are sent again. Everybody empties its mailbox whenever it waits, so that ends; only
//! what a rank that leaves has sent to one that looks at nothing for milliseconds, and has a full mailbox, may be
//! given up.
//!
//! # Losses
//!
//! A packet or a part of a payload that the interface gives up, since the other node gives no sign, ends the
//! connection: the peer counts as lost, and is told so once it can be reached, because what was sent to it is
//! missing.
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use exanet_sim::{ExanetConfig, conduit::{self, ConduitConfig}};
//!
//! let report = conduit::run(&ExanetConfig::pair(), &ConduitConfig::default(), |transport| {
//!     let mut handlers = Handlers::<u64>::new();
//!     let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value)?;
//!     let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
//!         token.reply(sum, a + b)?;
//!         Ok(())
//!     })?;
//!     let mut endpoint = Endpoint::attach(transport, handlers, 0)?;
//!     if endpoint.rank() == Rank(0) {
//!         endpoint.request(Rank(1), add, (20, 22))?;
//!         endpoint.wait_until(|total| *total == 42)?;
//!     }
//!     Ok::<u64, Box<dyn std::error::Error>>(endpoint.finish()?)
//! })?;
//! assert_eq!(report.results.into_iter().flatten().map(Result::unwrap).collect::<Vec<_>>(), [42, 0]);
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

mod config;
mod frame;
mod losses;
mod native;
mod peers;
mod receive;
mod reply_path;
mod send;
mod stages;
mod transport;

pub use config::{ConduitConfig, HostCosts};
pub use send::Admitted;
pub use transport::Conduit;

use crate::ExanetConfig;
use fabric_sim::{Processors, Report, RunError};
use std::rc::Rc;
use std::sync::Arc;
use transport::Shared;

/// What a rank takes of the system's memory: at 4096 ranks with 0 and 6 partners 142.0 and 253.2 KiB each, at
/// 16,384 with 6 375.0.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 104_400, partner: 19_000, other: 10, twice: 9_200 };

/// Runs a program on every rank of a machine, each with its transport. Blocks until all have returned.
///
/// # Errors
/// As [`exanet_sim::run`](crate::run); and sizes that do not fit the number of ranks.
pub fn run<R, F>(machine: &ExanetConfig, config: &ConduitConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Conduit<'_>) -> R + 'static,
{
    let shared = Rc::new(prepare(machine, config)?);
    crate::run(machine, move |nic| program(Conduit::new(nic, Rc::clone(&shared))))
}

/// [`run`] in two halves, on one processor or on two: the same on both, but not the order of events of [`run`];
/// see [`Sim::run_halves`](fabric_sim::Sim::run_halves).
///
/// # Errors
/// As [`run`], and what [`Sim::run_halves`](fabric_sim::Sim::run_halves) refuses.
pub fn run_halves<R, F>(
    machine: &ExanetConfig,
    config: &ConduitConfig,
    processors: Processors,
    program: F,
) -> Result<Report<R>, RunError>
where
    R: Send + 'static,
    F: Fn(Conduit<'_>) -> R + Send + Sync + 'static,
{
    let shared = prepare(machine, config)?;
    MEMORY.in_halves().check(machine.ranks)?;
    let program = Arc::new(program);
    machine.run_halves(processors, || {
        let (program, shared) = (Arc::clone(&program), Rc::new(shared.clone()));
        move |nic: crate::Nic<'_>| program(Conduit::new(nic, Rc::clone(&shared)))
    })
}

/// What the ranks of a machine share.
fn prepare(machine: &ExanetConfig, config: &ConduitConfig) -> Result<Shared, RunError> {
    // A machine that cannot be is refused in its own words, before anything is divided among its ranks.
    machine.check()?;
    let (sizes, costs) = config.compile(machine.ranks)?;
    MEMORY.check(machine.ranks)?;
    let retry_wait = machine.parameters.compile()?.busy_wait;
    Ok(Shared { config: config.clone(), sizes, costs, retry_wait })
}

/// Whether these bytes are a frame.
#[cfg(feature = "fuzzing")]
pub(crate) fn reads_as_frame(bytes: &[u8]) -> bool {
    let frame = frame::parse(bytes.to_vec());
    frame.is_ok_and(|frame| frame.payload().len() <= bytes.len())
}
