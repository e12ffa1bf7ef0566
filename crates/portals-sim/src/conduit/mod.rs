//! Active messages on Portals, after GASNet's conduit for it.
//!
//! * `transport` has [`Conduit`], the [`Transport`](am_core::Transport); `send`, `receive` and `reply_path` are
//!   its parts; `one_sided` has puts and gets;
//! * `wire` is the interface below, `p3` and `p4` the conduit's use of Portals 3.3 and Portals 4, `events` what it
//!   sees of events;
//! * `codec` says what match bits and header data carry; `joins` brings the parts of a Long message together;
//!   `order` keeps the order of requests that are sent again;
//! * `send slots`, `space`, `peers` bound what is under way: send slots, receive buffers, credits;
//! * `registered`, `firehose`: memory outside the segment; `departures`: when a peer's end may be believed;
//! * `config` has flow control and sizes, with the published table of credits.
//!
//! # How messages travel
//!
//! A request is written to a chunk of its sender's send buffer and put into a receive buffer of its target, which
//! the interface fills one message behind the other. All that is not arguments or payload travels in match bits
//! and header data. The reply is put into that same chunk, so it needs no room but what the request brought. The
//! payload of a Long message that does not fit a chunk is put into the segment by itself, before its header; the
//! handler runs when both are there.
//!
//! [Order](am_core::Endpoint#order): requests of one rank to another are handled as they were sent, those that are
//! sent again included, and replies likewise.
//!
//! Every request is answered: by its handler, or by an automatic reply without bytes. What returns credits, tells
//! of the end of requests and frees the chunk is one message. Events that may run handlers have a queue of their
//! own, so that code that must not run any can look at the other.
//!
//! # Flow control
//!
//! [`FlowControl`] chooses: static shares; a bank that lends ([`credit`](crate::credit)); none, on Portals 4. An
//! overflow that credits should have prevented is a panic that prints the receiver's ledger.
//!
//! By default the bank follows the published rules. They were found to be behind static shares wherever a sender
//! turns to a new target, so [`ConduitConfig::tuned`] departs from them in three points. Published are asks for
//! what is missing, at most 7 credits each, after a sender has stalled: a receiver that computes answers late, and
//! a sender that needs hundreds of credits asks for a long time. Tuned, it asks one request earlier and for as
//! much as it has ([`Extra::Doubling`]). Published are 32 credits for a peer in an epoch of 1024 requests; tuned,
//! only the largest loan of 400 limits. And a revocation, which costs two messages, must hope for a large
//! message's worth of credits.
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use portals_sim::{PortalsConfig, conduit::{self, ConduitConfig}};
//!
//! let report = conduit::run(&PortalsConfig::pair(), &ConduitConfig::default(), |transport| {
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

mod codec;
mod config;
mod departures;
mod events;
mod firehose;
mod joins;
mod native;
mod one_sided;
mod order;
mod p3;
mod p4;
mod peers;
mod receive;
mod registered;
mod reply_path;
mod send;
mod send_slots;
mod space;
mod transport;
mod wire;

#[doc(hidden)]
pub use config::Testing;
pub use config::{ConduitConfig, Extra, FlowControl};
pub use firehose::FirehoseCounters;
pub use one_sided::{Local, OneSided, OneSidedError, Operation};
pub use transport::{Conduit, ConduitCounters, ConduitSlot};

use crate::PortalsConfig;
use am_core::Span;
use fabric_sim::{Processors, Report, RunError};
use std::rc::Rc;
use std::sync::Arc;
use transport::Shared;

/// What a rank takes of the system's memory: at 4096 ranks with 0 and 6 partners 89.8 and 106.2 KiB each, at
/// 16,384 with 6 123.4.
pub const MEMORY: fabric_sim::RankMemory =
    fabric_sim::RankMemory { rank: 86_300, partner: 2_800, other: 1, twice: 4_100 };

/// Runs a program on every rank of a machine, each with its transport. Blocks until all have returned.
///
/// # Errors
/// As [`portals_sim::run`](crate::run); and sizes that cannot be.
pub fn run<R, F>(machine: &PortalsConfig, conduit: &ConduitConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Conduit<'_>) -> R + 'static,
{
    let (machine, shared) = prepare(machine, conduit)?;
    let shared = Rc::new(shared);
    crate::run(&machine, move |nic| program(Conduit::new(nic, Rc::clone(&shared))))
}

/// [`run`] in two halves, on one processor or on two: the same on both, but not the order of events of [`run`];
/// see [`Sim::run_halves`](fabric_sim::Sim::run_halves).
///
/// # Errors
/// As [`run`], and what [`Sim::run_halves`](fabric_sim::Sim::run_halves) refuses.
pub fn run_halves<R, F>(
    machine: &PortalsConfig,
    conduit: &ConduitConfig,
    processors: Processors,
    program: F,
) -> Result<Report<R>, RunError>
where
    R: Send + 'static,
    F: Fn(Conduit<'_>) -> R + Send + Sync + 'static,
{
    let (machine, shared) = prepare(machine, conduit)?;
    MEMORY.in_halves().check(machine.ranks)?;
    let program = Arc::new(program);
    machine.run_halves(processors, || {
        let (program, shared) = (Arc::clone(&program), Rc::new(shared.clone()));
        move |nic: crate::Nic<'_>| program(Conduit::new(nic, Rc::clone(&shared)))
    })
}

/// The machine with queues as long as the conduit needs them, and what its ranks share.
fn prepare(machine: &PortalsConfig, conduit: &ConduitConfig) -> Result<(PortalsConfig, Shared), RunError> {
    machine.check()?;
    let sizes = conduit.compile(machine.ranks)?;
    MEMORY.check(machine.ranks)?;
    let mut machine = machine.clone();
    let limits = &mut machine.parameters.limits;
    limits.eq_entries = limits.eq_entries.max(sizes.am_events).max(sizes.safe_events);
    let (nic, software) = (&machine.parameters.nic, &machine.parameters.software);
    let lag = nic.complete_ns + nic.event_ns.max(nic.ack_event_ns) + machine.adversary.jitter_ns;
    let shared = Shared {
        config: conduit.clone(),
        sizes,
        overhead: Span((software.gasnet_ns * 1e3) as u64),
        femtos_per_byte: (software.copy_ns_per_byte * 1e6) as u64,
        pin: Span((software.pin_page_ns * 1e3) as u64),
        pause: Span((conduit.resend_ns * 1e3) as u64),
        lag: Span((lag * 1e3) as u64),
    };
    Ok((machine, shared))
}
