//! Active messages over VELO and RMA, after GASNet's conduit for EXTOLL.
//!
//! * `transport` has [`Gasnet`], the [`Transport`](am_core::Transport); `send`, `receive` and `reply_path` are its
//!   parts;
//! * `header`, `layout` say what frames look like and how they fall into packets, `assembly` makes frames of
//!   packets again;
//! * `joins` brings the two halves of a Long message together, `lines` keeps the order of a pair meanwhile;
//!   `bounce` allocates the memory that it is put from; `native` has one-sided operations;
//! * `rooms` divides the mailbox rings; `peers` is what is kept per peer;
//! * `config` has sizes and costs.
//!
//! # How messages travel
//!
//! Short and Medium messages go over VELO: a header of eight bytes, up to sixteen arguments of four, the payload,
//! cut into packets. The packet's type (MTT) tells a beginning from a continuation with arguments, from payload,
//! and from messages between the transports themselves. The receiver's mailbox is one ring for all senders;
//! packets of different sources interleave in it, and become frames again source by source. A Long message sends
//! header, place and arguments over VELO, and its payload by puts into the destination's segment. Neither waits
//! for the other: its handler runs when both have come.
//!
//! VELO keeps the order of a pair, but what is sent behind a Long message may come before its payload. The
//! receiver holds that back until the payload is there, so that requests of a pair are handled in the order in
//! which they were sent, and replies likewise ([`Limits::ordered`](am_core::Limits)). What is held back keeps its
//! slots, which bounds it, and is copied out of the ring, which is what order costs. [`GasnetConfig::ordered`]
//! turns that off.
//!
//! Every message has its room in the receiver's ring before it is sent, and every request the room for its reply
//! in its sender's; see the `rooms` file for the division. So no reply ever waits for a program, only for the
//! interface.
//!
//! # The two implementations
//!
//! The conduit paper tells of two implementations of active messages, of which the second is up to 53 % better.
//! Both are here, chosen by [`GasnetConfig::implementation`]; [`Implementation`] lists what they do differently.
//! Nothing in the second is faster by decree: it sends fewer packets, copies less, writes fewer registers and
//! looks at fewer queues, and each of those has its price in [`Parameters`](crate::model::Parameters) or
//! [`HostCosts`].
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use extoll_sim::{ExtollConfig, conduit::gasnet::{self, GasnetConfig}};
//!
//! let report = gasnet::run(&ExtollConfig::pair(), &GasnetConfig::default(), |transport| {
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

mod assembly;
mod bounce;
mod config;
mod header;
mod joins;
mod layout;
mod lines;
mod native;
mod peers;
mod receive;
mod reply_path;
mod rooms;
mod send;
mod transport;

pub use config::{GasnetConfig, HostCosts};
pub use layout::Implementation;
pub use transport::Gasnet;

use crate::ExtollConfig;
use fabric_sim::{ConfigError, Processors, Report, RunError};
use std::rc::Rc;
use std::sync::Arc;
use transport::Shared;

/// What a rank takes of the system's memory: at 4096 ranks with 0 and 6 partners 76.8 and 92.8 KiB each, at 16,384
/// with 6 106.8.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 73_800, partner: 2_700, other: 1, twice: 13_300 };

/// Runs a program on every rank of a machine, each with its transport. Blocks until all have returned. The mailbox
/// rings are as large as the conduit needs them, whatever
/// [`VeloParameters::segments`](crate::model::VeloParameters) says.
///
/// # Errors
/// As [`extoll_sim::run`](crate::run); and sizes that do not fit the interface or the number of ranks.
pub fn run<R, F>(config: &ExtollConfig, gasnet: &GasnetConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Gasnet<'_>) -> R + 'static,
{
    let (machine, shared) = prepare(config, gasnet)?;
    let shared = Rc::new(shared);
    crate::run(&machine, move |nic| program(Gasnet::new(nic, Rc::clone(&shared))))
}

/// [`run`] in two halves, on one processor or on two: the same on both, but not the order of events of [`run`];
/// see [`Sim::run_halves`](fabric_sim::Sim::run_halves).
///
/// # Errors
/// As [`run`], and what [`Sim::run_halves`](fabric_sim::Sim::run_halves) refuses.
pub fn run_halves<R, F>(
    config: &ExtollConfig,
    gasnet: &GasnetConfig,
    processors: Processors,
    program: F,
) -> Result<Report<R>, RunError>
where
    R: Send + 'static,
    F: Fn(Gasnet<'_>) -> R + Send + Sync + 'static,
{
    let (machine, shared) = prepare(config, gasnet)?;
    MEMORY.in_halves().check(machine.ranks)?;
    let program = Arc::new(program);
    machine.run_halves(processors, || {
        let (program, shared) = (Arc::clone(&program), Rc::new(shared.clone()));
        move |nic: crate::Nic<'_>| program(Gasnet::new(nic, Rc::clone(&shared)))
    })
}

/// The machine with room for the conduit, and what its ranks share.
fn prepare(config: &ExtollConfig, gasnet: &GasnetConfig) -> Result<(ExtollConfig, Shared), RunError> {
    // A machine that cannot be is refused in its own words, before anything is divided among its ranks.
    config.check()?;
    MEMORY.check(config.ranks)?;
    let mut machine = config.clone();
    let rooms = gasnet.compile(config.ranks, config.parameters.velo.mtu)?;
    machine.parameters.velo.segments = rooms.segments;
    let (ports, per_node) = (config.parameters.rma.ports, config.ranks_per_node.min(config.ranks));
    if ports < per_node {
        let limit = format!("at least {per_node}, one for each rank of a node");
        return Err(ConfigError::range("parameters.rma.ports", ports, limit).into());
    }
    let shared = Shared { config: gasnet.clone(), rooms, costs: gasnet.costs.compile()? };
    Ok((machine, shared))
}
