//! Active messages on the interface.
//!
//! * `transport` has [`Conduit`], the [`Transport`](am_core::Transport); `send`, `receive`, `reply_path` and
//!   `native` are its parts;
//! * `frame` says what frames look like;
//! * `peers` is what is kept per peer;
//! * `config` has sizes, and what the conduit's own work costs.
//!
//! # How messages travel
//!
//! A frame is one message of the interface: its header is the message's immediate words, its arguments and payload
//! are its bytes. The payload of a Long message goes to the segment before the frame is delivered. The interface
//! keeps the order of a pair.
//!
//! # Room
//!
//! A rank may have so many requests under way to each peer, and so many of them with a reply to come; credits for
//! those that were handled ride on other frames where they can. So nothing that arrives lacks room, and nobody
//! waits for a reply's.
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use machine_sim::conduit::{self, ConduitConfig};
//!
//! let report = conduit::run(&machine_sim::crossbar(2), &ConduitConfig::default(), |transport| {
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
mod native;
mod peers;
mod receive;
mod reply_path;
mod send;
mod transport;

pub use config::ConduitConfig;
pub use send::Admitted;
pub use transport::Conduit;

use crate::MachineConfig;
use fabric_sim::{Processors, Report, RunError};
use std::rc::Rc;
use std::sync::Arc;
use transport::Shared;

/// What a rank takes of the system's memory: at 4096 ranks with 0 and 6 partners 42.5 and 44.8 KiB each, at 16,384
/// with 6 52.1.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 40_000, partner: 400, other: 1, twice: 6_200 };

/// Runs a program on every rank of a machine, each with its transport. Blocks until all have returned.
///
/// # Errors
/// As [`machine_sim::run`](crate::run); and sizes that cannot be.
pub fn run<R, F>(machine: &MachineConfig, config: &ConduitConfig, program: F) -> Result<Report<R>, RunError>
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
    machine: &MachineConfig,
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
fn prepare(machine: &MachineConfig, config: &ConduitConfig) -> Result<Shared, RunError> {
    // A machine that cannot be is refused in its own words, before anything is made for its ranks.
    machine.check()?;
    let [compose, dispatch] = config.compile()?;
    MEMORY.check(machine.ranks)?;
    Ok(Shared { config: config.clone(), native: machine.parameters.native, compose, dispatch })
}
