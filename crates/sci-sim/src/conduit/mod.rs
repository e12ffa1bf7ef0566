//! Active messages on the SISCI interface, after the GASNet core API on SCI.
//!
//! * `transport` has [`Conduit`], the [`Transport`](am_core::Transport), over any [`Sisci`](crate::nic::Sisci)
//!   interface; `send`, `receive` and `reply_path` are its parts, `net` its hold on the interface;
//! * `flags` is the search for messages, `status` the table of slots in use, `work` the queue of what was found,
//!   `turns` its order;
//! * `header` and `layout` say what messages look like and where they lie; `config` has sizes and methods;
//! * `bootstrap` reads the files that say which rank is which node; `start` opens conduits in virtual time and
//!   between processes.
//!
//! # How messages travel
//!
//! Every node exports a *command segment* for each sender, the sender's dedicated channel of four slots of 1024
//! bytes: two for requests, two for their replies. A sender stores header and payload in a free slot, checks that
//! they have arrived, stores the slot's *ready flag* (MRF: Short 10, Medium 11, Long 12, Control 13) and then the
//! receiver's *exist flag* (MEF). The receiver polls one byte, its exist flag; when it is set it clears it first,
//! then searches the ready flags, queues what it finds, and runs handlers from the queue. A reply goes to the slot
//! that belongs to the request's; a handler without a reply sends its flag alone (Control). Either frees the
//! request's slot at the sender, whose table of *message locations* is all the flow control there is: nobody reads
//! remote memory, and no two write to one slot.
//!
//! Payloads of Long messages go to the destination's payload segment, imported when first needed: by stores, or
//! from a size on by DMA from a local queue, whole lines only, the edges by stores.
//!
//! # What the contract asks beyond the paper
//!
//! | the core's contract | here |
//! |---|---|
//! | Medium payloads up to [`Limits`](am_core::Limits) | 944 bytes, either direction, whatever the arguments: what a slot holds. Nothing is fragmented; larger payloads are Long |
//! | room for the largest reply is set aside | the reply slot, which is the request's for as long as it is outstanding |
//! | one-way handlers, bare credits | the Control flag |
//! | messages between cores (barrier, tables) | requests of a kind of their own in the same slots, so that the published barrier segment is not needed; its id stays free |
//! | order | messages carry numbers in bits of the header that were free, and one found before its turn waits in its slot ([`ConduitConfig::ordered`]). Not as published: slot 0 may be filled after slot 1 and found before it |
//! | a request may be answered while its handler runs | a reply to a request whose payload lies in its slot leaves when the handler has returned, or the requester could overwrite what is still being read |
//! | detached requests | keep their slot until they are answered: so many can be pending for each requester, and [`is_quiescent`](am_core::Transport::is_quiescent) waits for them |
//! | lost peers | the interface's status of nodes; and whoever stores what makes no sense is [`Faulty`](am_core::LossCause::Faulty) |
//!
//! # Flags that are lost
//!
//! The published code checks its data, but not its flags: a ready flag that does not arrive is a message that
//! never runs ([`ConduitConfig::paper`]). Checking is not enough, since a flag that counts as failed may have
//! arrived, and stored again would run the handler twice. So by default flags carry a number, the receiver takes a
//! flag only when its number is the next, and never clears it ([`FlagStores::Numbered`]). An exist flag that
//! overtakes its ready flag (nothing orders the two) is a search in vain; the next idling is then short and ends
//! with a search whatever the exist flag says.
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use sci_sim::{SciConfig, conduit::{self, ConduitConfig}};
//!
//! let report = conduit::run(&SciConfig::pair(), &ConduitConfig::paper(), |transport| {
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

#[cfg(not(am_loom))]
mod bootstrap;
#[cfg(not(am_loom))]
mod config;
mod flags;
#[cfg(not(am_loom))]
mod header;
#[cfg(not(am_loom))]
mod layout;
#[cfg(all(test, am_loom))]
mod loom_flags;
#[cfg(not(am_loom))]
mod native;
#[cfg(not(am_loom))]
mod net;
#[cfg(not(am_loom))]
mod receive;
#[cfg(not(am_loom))]
mod reply_path;
#[cfg(not(am_loom))]
mod send;
#[cfg(not(am_loom))]
mod start;
#[cfg(not(am_loom))]
mod status;
#[cfg(not(am_loom))]
mod transport;
#[cfg(not(am_loom))]
mod turns;
#[cfg(not(am_loom))]
mod work;

#[cfg(not(am_loom))]
pub use {
    bootstrap::{BootstrapError, File, MAX_RANKS, NodeMap},
    config::{ConduitConfig, FlagStores, MediumMethod},
    net::OpenError,
    start::{JoinError, MEMORY, MappedJob, run},
    transport::{Conduit, ConduitSlot, Counts},
};

#[cfg(not(am_loom))]
#[doc(hidden)]
pub use config::Mutation;
