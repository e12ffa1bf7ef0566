//! Active messages over UDP: an authenticated, congestion-controlled, loss-tolerant protocol, **as a state machine with
//! neither socket nor clock**, and a seeded network that drives it in virtual time.
//!
//! Small messages share datagrams, large ones are cut to the path's size, Long payloads go straight to the destination's
//! segment; everything arrives exactly once and in order per lane, whatever the network loses, doubles, reorders or
//! damages. Every datagram is authenticated with keys of the job before anything in it is believed.
//!
//! # Modules
//!
//! | module | owns |
//! |---|---|
//! | [`proto`] | the protocol: [`proto::Machine`], its settings, events and counters |
//! | [`sim`] | machines on a simulated network with faults from a seed |
//! | `simulated` | the transport in virtual time, over `fabric-sim` (feature `sim`) |
//! | [`Carrier`], [`Driver`] | the transport over a machine, and what it needs from the world |
//!
//! # Example
//!
//! Rank 0 asks rank 1 to add, over a network that loses every third datagram.
//!
//! ```
//! use am_core::arguments::Words;
//! use am_core::transport::{Arrival, Head, Port, ReplyBound, Sink};
//! use am_core::{Instant, Payload, Peer, Shape, Span};
//! use transport_udp::proto::{Config, Secrets};
//! use transport_udp::sim::{self, Network};
//!
//! struct Adder(Option<u32>);
//!
//! impl Sink for Adder {
//!     fn request(&mut self, arrival: Arrival<'_>, port: &mut dyn Port) {
//!         let sum = arrival.args.iter().sum();
//!         port.short(0, &Words::from_slice(&[sum]).unwrap()).unwrap();
//!     }
//!     fn reply(&mut self, arrival: Arrival<'_>) {
//!         self.0 = arrival.args.word(0);
//!     }
//!     fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
//! }
//!
//! let machines = (0..2u8).map(|rank| {
//!     // A real job takes both from a cryptographic random source.
//!     let secrets = Secrets { job: vec![7; 32], incarnation: [rank; 32] };
//!     sim::machine(Config::new(Shape::new(2), Peer(rank.into()), secrets), 4096).unwrap().0
//! });
//! let mut network = Network::new(42, machines.collect());
//! network.each_link(|_, _, link| link.loss = 333);
//!
//! let head = Head { handler: 0, reply: ReplyBound::UpTo(0) };
//! let args = Words::from_slice(&[20, 22])?;
//! let mut asker = Adder(None);
//! let mut asked = false;
//! while asker.0.is_none() {
//!     let now = network.now();
//!     let rank0 = network.machine(Peer(0)).unwrap();
//!     // The first attempts are refused: they open the session.
//!     asked = asked || rank0.request(now, Peer(1), head, &args, None).is_ok();
//!     rank0.poll(now, 10, &mut asker);
//!     network.machine(Peer(1)).unwrap().poll(now, 10, &mut Adder(None));
//!     network.step(now + Span::from_millis(1));
//!     assert!(now < Instant(0) + Span::from_secs(5));
//! }
//! assert_eq!(asker.0, Some(42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod carrier;
mod driver;
pub mod proto;
pub mod sim;
#[cfg(feature = "sim")]
pub mod simulated;
mod socket;

pub use carrier::{Carrier, Claim, OwnMemory};
pub use driver::Driver;
#[cfg(feature = "tokio")]
pub use socket::AsyncEndpoint;
pub use socket::{
    EnvironmentError, LOOPBACK_DATAGRAM, LocalJob, LocalOptions, Peers, PeersError, SocketDriver, Udp, UdpConfig,
    UdpError, Waiting, bind, segment,
};
