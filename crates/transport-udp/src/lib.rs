//! Active messages over UDP, between the ranks of many hosts: authenticated, congestion-controlled, loss-tolerant,
//! fast.
//!
//! Small messages share datagrams, large ones are cut to the path's size, Long payloads go straight to the
//! destination's segment; everything arrives exactly once and in order per lane ([Order](am_core::Endpoint#order):
//! requests of one endpoint to another are handled as they were sent, and replies likewise), whatever the network
//! loses, doubles, reorders or damages. Every datagram is authenticated with keys of the job before anything in it
//! is believed, and encrypted unless told otherwise.
//!
//! The protocol is **a state machine with neither socket nor clock** ([`proto`]). [`Udp`] drives it over a socket
//! of its own per endpoint; the same machine runs on simulated networks in virtual time, with faults from a seed.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`proto`] | the protocol: [`proto::Machine`], its settings, events and counters |
//! | [`Udp`], [`UdpConfig`], [`Peers`] | the transport over sockets, its settings, the table of the job |
//! | [`FailureNotifier`] | death notices from other sources, such as the job's launcher |
//! | [`LocalJob`] | jobs whose ranks are threads of one process |
//! | `AsyncEndpoint` | waiting with `await` on tokio (feature `tokio`) |
//! | [`MachineTransport`], [`Driver`] | the transport over a machine, and what it needs from the world |
//! | `simulated` | the transport in virtual time, over `fabric-sim` (feature `sim`) |
//!
//! # Example
//!
//! Two ranks as threads of one process; ranks of several hosts differ in how they come by the table of addresses:
//! each binds a socket with [`bind`], tells the others where it listens, and calls [`Udp::join`].
//!
//! ```
//! use am_core::{Endpoint, HandlerResult, Handlers, Rank};
//! use transport_udp::LocalJob;
//!
//! let job = LocalJob::new(2)?;
//! std::thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let job = &job;
//!         scope.spawn(move || {
//!             let mut handlers = Handlers::<u64>::new();
//!             let sum = handlers.reply("sum", |total, _, value: u64, _| *total += value).unwrap();
//!             let add = handlers.request("add", move |_, token, (a, b): (u64, u64), _| -> HandlerResult {
//!                 token.reply(sum, a + b)?;
//!                 Ok(())
//!             });
//!             let add = add.unwrap();
//!             let mut endpoint = Endpoint::attach(job.join(rank).unwrap(), handlers, 0).unwrap();
//!             endpoint.request(Rank(1 - rank), add, (20, 22)).unwrap();
//!             endpoint.wait_until(|total| *total == 42).unwrap();
//!             endpoint.finish().unwrap();
//!         });
//!     }
//! });
//! # Ok::<(), transport_udp::UdpError>(())
//! ```
//!
//! # Who does the work
//!
//! The program's thread does, whenever it polls, sends much or waits: one system call per direction and datagram
//! (or per row of datagrams) and nothing else. Small messages leave with the next poll, flush or wait, or when 24
//! KiB of them have gathered. While the program does none of this, a helper thread per endpoint acknowledges,
//! retransmits and keeps sessions alive; it looks every 2 ms whether the program is at work
//! ([`UdpConfig::absence`]), which costs the program one plain store per call, an uncontended lock per poll, and
//! one more for every 32 messages of a peer that the poll delivers. Handlers run without that lock, so the helper
//! does its work while one runs for long.
//!
//! # Failures of this side
//!
//! A panic of the helper thread, or a call in a process that was forked from the endpoint's own, makes every rank
//! count as lost with [`LossCause::Broken`](am_core::LossCause::Broken) or [`Forked`](am_core::LossCause::Forked):
//! the next poll or wait is that error, and sending is refused. In a fork, nothing is sent or received, since the
//! child has the parent's keys and counters and no nonce may be used twice; the endpoint may be dropped there,
//! which its peers do not notice. The parent goes on unharmed, and the child may join with endpoints of its own.
//! Forks are counted by the C library; one made by a bare system call is not noticed.
//!
//! # Limits
//!
//! Time is counted in picoseconds from the process's first endpoint of a job, and [stands
//! still](am_core::Instant::after) after 213 days. From then on nobody's silence is noticed, datagrams that are
//! lost are not sent again, waits with a time-out fail at once, and the helper thread spins. A job ends before
//! that.
//!
//! # Environment
//!
//! [`UdpConfig::from_environment`] reads these; a value that makes no sense is an error that names it.
//!
//! | variable | what |
//! |---|---|
//! | `AM_UDP_PROTECTION` | `encrypted`, `plain-text` (authenticated) or `unauthenticated` (measurements on loopback) |
//! | `AM_UDP_WAITING` | `adaptive`, `polled` or `blocking`, see [`WaitMode`] |
//! | `AM_UDP_DATAGRAM` | largest UDP payload to probe for, in bytes |
//! | `AM_UDP_SILENCE` | seconds until a peer that acknowledges nothing is lost |
//! | `AM_UDP_LINGER` | seconds that leaving may take |

#![forbid(unsafe_code)]

mod driver;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod machine_transport;
pub mod proto;
#[doc(hidden)]
pub mod random;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod sim;
#[cfg(feature = "sim")]
pub mod simulated;
mod socket;

pub use driver::Driver;
pub use machine_transport::{Claim, MachineTransport, OwnMemory};
#[cfg(feature = "tokio")]
pub use socket::AsyncEndpoint;
pub use socket::{
    FailureNotifier, LOOPBACK_DATAGRAM, LocalJob, LocalOptions, Peers, PeersError, SocketDriver, Udp, UdpConfig,
    UdpError, VariableError, WaitMode, bind, segment,
};
