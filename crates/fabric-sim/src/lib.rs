//! A network in virtual time: the ranks of a job are coroutines of one thread, packets travel through a simulated
//! machine, and every run with the same program, configuration and seed is the same to the last event.
//!
//! # Modules
//!
//! | file | owns |
//! |---|---|
//! | `run`, `report` | [`Sim::run`]: ranks as coroutines; the [`Report`] |
//! | `context` | [`Context`]: a rank's clock, sending, receiving, waiting |
//! | `device`, `device_context` | [`Device`]: what takes packets at a node, and what it can do ([`DeviceContext`]); [`Mailbox`] |
//! | `handle`, `memory` | [`Handle`]: a process's way to its node's device; [`HostMemory`]: what the device can read and write |
//! | [`bytes`] | what packets carry: buffers that go round |
//! | [`conduit`] | what the conduits of simulated interfaces have in common |
//! | `engine`, `queue` | the discrete-event engine and its queue |
//! | `ranks`, `in_flight`, `path` | what ranks are doing; the packets under way; their path through stages and links |
//! | `transmit_queue`, `port` | what packets pass at a rate, one by one or long messages in turns; what a node puts out and takes in |
//! | `lane_order` | what two ranks send each other on a channel is handed over in order |
//! | `config` | [`Config`]: ranks, machine, placement, faults |
//! | `machine` | [`Machine`]: the description that the machines of all simulated [`Interface`]s share |
//! | `nic`, `stage` | [`NicParameters`]: the costs of an interface as a table; FIFO servers |
//! | [`parameters`], `places` | reading tables from files; refusing what is not possible by line, field and limit |
//! | `topology`, `topology_text`, `network` | [`Topology`]: which links there are, and the ways through them |
//! | [`buffered`], `buffered_run` | a network with finite buffers, virtual channels and arbitration; programs on it |
//! | `routing` | [`Routing`]: which way packets take, and the virtual channels that it needs |
//! | `faults`, `fault_rng` | [`Faults`]: scheduled and drawn from a seed |
//! | `lookahead` | ranks that are resumed late where no rank can notice |
//! | `halved_run`, `meeting`, `away`, `split` | [`Sim::run_halves`]: two halves of a machine on one processor or two; what they tell each other |
//! | [`halves`] | what a run on two processors could gain, measured |
//! | `random` | [`splitmix64`]: the streams of ranks, nodes and injectors |
//! | `members` | who has left, and when the others know |
//! | `defects` | [`Defects`]: devices that are wrong on purpose, for tests |
//! | `available` | how much memory a run may take |
//! | `limits` | whether the system has stacks and memory for so many ranks |
//! | `trace` | the run's hash, histogram, use of links, spans and their export |
//!
//! # Model
//!
//! Time is in integer picoseconds. A packet passes the sender's stages, then link by link: each link is a FIFO in
//! the order in which heads reach it, busy for the packet's length; the head goes on after the latency while the
//! tail follows (cut-through), and the receiver's stages begin with the tail. Buffers at switches are unlimited,
//! so there is no back-pressure and no routing deadlock; [`buffered`] is the model that has them
//! ([`Config::model`]). Packets between
//! ranks of one node take the interface's stages but no link.
//!
//! A node's interface may have a rate of its own ([`PortParameters`]), which all of its links share, into the node
//! and out of it. With [`NicParameters::packet_bytes`] a longer message is a train of packets: on links and at
//! ports others cut in between them, a short message waits for a packet and not for a megabyte, and long ones
//! share the rate, while a message takes as few events as before. Where the interface keeps order, what a rank
//! sends behind a train of its own waits for the train's end, channel by channel ([`Outgoing::channel`]). What
//! trains share is kept link by link: a link further on counts a train's bytes as if they came at full rate.
//!
//! A rank runs ahead of the machine as long as it computes, sends and [posts](Context::post); before it looks at
//! what has arrived, everything earlier happens. It waits with [`Context::idle`], which says what for: a run in
//! which nothing can happen any more ends with a report of [who waits for what](Deadlock), and
//! [`Config::deadline_ns`] ends one that polls for ever. An interface that knows when something will concern its
//! rank, or that nobody can notice the rank for some time, spares resumptions: [`Context::skip_to`],
//! [`Device::lookahead`].
//!
//! # Modelling a machine
//!
//! A [`Config`] is plain data that TOML files can hold; `examples/my_machine.toml` shows every part of it, and
//! `cargo run -p active-messages-sim --example my_machine -- FILE.toml TRACE.json` runs an exchange on it, prints
//! the use of links and stages and the latencies, and writes a trace for Perfetto. Whatever is not possible is
//! refused by field and limit:
//!
//! ```
//! let error = fabric_sim::Config::from_toml("
//!     ranks = 100
//!     topology = { kind = 'torus', dims = [4, 4, 4] }
//! ").unwrap_err();
//! assert_eq!(error.to_string(), "ranks is 100, but must be at most 64 nodes times 1 ranks per node");
//! ```
//!
//! An interface with units, queues and rules of its own is a [`Device`]: one per node, called when packets arrive,
//! when what it [set aside](DeviceContext::defer) or a rank [posted](Context::post) comes to its time, and
//! when its timers run out. Its own FIFO units show in traces and reports like those of the table.
//!
//! # Size and speed
//!
//! Everything runs on the calling thread, unless [`Sim::run_halves`] is asked for two. With packets sent on at
//! random and no contents, one core of a small virtual machine that others use too executes 8 to 14 million
//! events a second at 1024 ranks, about half of what a bare binary heap does there, and 25 million at two
//! (`cargo bench --bench sim`). A rank takes a stack of [`Config::stack_bytes`], of which only what it uses
//! takes memory, typically 8 to 16 KiB; a job may have [`MAX_RANKS`] ranks as far as the system grants the
//! memory mappings, which a run checks first. Without a trace nothing is recorded but counters.
//!
//! # Example
//!
//! Four ranks in a ring pass a token around.
//!
//! ```
//! use fabric_sim::{Config, LinkParameters, Sim, Topology};
//!
//! let mut config = Config::new(4);
//! config.topology = Topology::Ring { nodes: 4 };
//! config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 300.0 };
//!
//! let report = Sim::run(&config, |rank| {
//!     let next = (rank.rank() + 1) % rank.ranks();
//!     if rank.rank() == 0 {
//!         rank.send(next, 100, "token");
//!     }
//!     let token = rank.wait();
//!     if rank.rank() != 0 {
//!         rank.send(next, token.bytes, token.body);
//!     }
//!     rank.now()
//! })?;
//! // Four hops of 300 ns, and 100 ns for 100 bytes each time.
//! assert_eq!(report.ended.0, 4 * 400_000);
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

#![forbid(unsafe_code)]

mod available;
mod away;
pub mod buffered;
mod buffered_run;
pub mod bytes;
pub mod conduit;
mod config;
mod context;
mod defects;
mod device;
mod device_context;
mod directory;
mod engine;
mod error;
mod fault_rng;
mod faults;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod halved_run;
pub mod halves;
mod handle;
#[doc(hidden)]
pub mod impossible;
mod in_flight;
mod lane_order;
mod limits;
mod lookahead;
mod machine;
mod meeting;
mod members;
mod memory;
mod network;
mod nic;
pub mod parameters;
mod path;
mod peers;
mod places;
mod port;
mod queue;
mod random;
mod ranks;
mod report;
mod routing;
mod run;
mod split;
mod stage;
mod topology;
mod topology_text;
mod trace;
mod transmit_queue;

pub use away::Crossing;
pub use config::{Config, MAX_RANKS, MIN_STACK, NetworkModel, Placement};
pub use context::Context;
pub use defects::Defects;
pub use device::{Device, Mailbox, Packet};
pub use device_context::{DeviceContext, Outgoing, PacketId, StageTimes};
pub use directory::{Directory, ProcessAddress};
pub use error::{ConfigError, DeadlineMissed, Deadlock, RunError, WaitFor, Waiting};
pub use faults::{Drawn, DrawnKind, FaultEvent, Faults, LinkFaults, Scheduled};
pub use halved_run::Processors;
pub use handle::Handle;
pub use limits::{RankMemory, assume_memory};
pub use machine::{Interface, Machine, NoErrors};
pub use memory::HostMemory;
pub use nic::{EmptyPoll, LinkParameters, NicParameters, PortParameters};
pub use peers::PagedPeers;
pub use random::splitmix64;
pub use report::Report;
pub use routing::{Algorithm, Routing};
pub use run::Sim;
pub use stage::Stage;
pub use topology::Topology;
pub use trace::{Histogram, LinkUse, StageKind, StageUse, Trace, TraceSpan};
