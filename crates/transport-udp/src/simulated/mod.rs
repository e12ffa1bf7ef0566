//! The simulated driver: the same machines on a fabric in virtual time.
//!
//! Each rank is a coroutine of [`fabric_sim`] with a [`SimUdp`], an [`am_core::Transport`] like that over sockets.
//! A host of the fabric holds the machines of its ranks: datagrams are packets, deadlines are the host's timers,
//! so that acknowledgement, retransmission and pacing go on whatever the ranks are doing. A whole job, with loss,
//! damage, doubling, reordering, cuts and narrow paths, is replayed from its seed.
//!
//! | file | owns |
//! |---|---|
//! | `job` | [`EthernetJobConfig`]: the settings, and the run |
//! | `faults` | cuts, partitions, narrow links, mischief drawn from a seed |
//! | `ethernet` | [`Ethernet`], [`HostCosts`]: what links and processors cost |
//! | `node` | [`Node`]: a host and its machines |
//! | `driver` | [`SimDriver`]: a rank's way to its machine |
//!
//! # What costs time
//!
//! A rank pays for system calls when it sends and polls, for every byte that is encrypted and copied, and a little
//! per message. What arrives is taken in at its time by the host, which also sends by itself: acknowledgements,
//! retransmissions, datagrams that pacing held back. The rank pays for all of that at its next poll, as if a
//! service thread had taken the time from it. The kernel's share of every datagram is a FIFO stage of the host,
//! both ways.
//!
//! # How ranks learn of each other's end
//!
//! From the protocol, and for ranks without a session between them from the fabric's membership service, which
//! stands for the job's launcher: it also knows of hosts that stop. [`EthernetJobConfig::launcher`] takes it away,
//! so that silence alone tells.
//!
//! # Example
//!
//! Four ranks on 10 GbE that loses every twentieth datagram add up their numbers at rank 0.
//!
//! ```
//! use am_core::{Address, Endpoint, Handlers, Payload, Rank};
//! use transport_udp::simulated::{Ethernet, EthernetJobConfig, SimUdp};
//!
//! let mut job = EthernetJobConfig::new(4, &Ethernet::ten());
//! job.fabric.faults.loss = 0.05;
//! job.fabric.faults.seed = 7;
//! let program = |transport: SimUdp<'_>| {
//!     let mut handlers = Handlers::<u32>::new();
//!     let add =
//!         handlers.one_way("add", |sum: &mut u32, _: Address, (number,): (u32,), _: Payload<'_>| *sum += number);
//!     let add = add.unwrap();
//!     let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
//!     endpoint.request(Rank(0), add, (endpoint.rank().0,)).unwrap();
//!     if endpoint.rank() == Rank(0) {
//!         endpoint.wait_until(|sum| *sum == 6).unwrap();
//!     }
//!     endpoint.finish().unwrap()
//! };
//! let report = job.run(program)?;
//! assert_eq!(report.results[0], Some(6));
//! assert_eq!(report.hash, job.run(program)?.hash);
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

mod driver;
mod ethernet;
mod faults;
mod job;
mod node;

pub use driver::SimDriver;
pub use ethernet::{Ethernet, HostCosts, STANDARD_DATAGRAM, WIRE_OVERHEAD};
pub use job::EthernetJobConfig;
pub use node::Node;

/// The transport of a simulated rank.
pub type SimUdp<'a> = crate::MachineTransport<SimDriver<'a>, am_core::AnyMemory>;
