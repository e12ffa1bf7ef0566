//! A small seeded network that drives machines in virtual time: loss, duplication, reordering, corruption, delay,
//! bandwidth, narrow paths, partitions, and links that differ by direction. The same seed gives the same run. For
//! this crate's own tests, benches and fuzzers; programs in virtual time use `simulated`.
//!
//! Rank 0 asks rank 1 to add, over a network that loses every third datagram.
//!
//! ```
//! use am_core::arguments::Words;
//! use am_core::transport::{Arrival, Body, RequestHeader, ReplyPath, ReplyBound, Sink};
//! use am_core::{Instant, Payload, Peer, Shape, Span};
//! use transport_udp::proto::{Config, Secrets};
//! use transport_udp::sim::{self, Network};
//!
//! struct Adder(Option<u32>);
//!
//! impl Sink for Adder {
//!     fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
//!         let sum = arrival.args.iter().sum();
//!         path.send(0, &Words::from_slice(&[sum]).unwrap(), Body::None).unwrap();
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
//! let head = RequestHeader::new(0, ReplyBound::UpTo(0));
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

use crate::proto::{Config, ConfigError, Machine, OwnSegment};
pub use crate::random::SplitMix64;
use am_core::{Instant, Peer, Segment, Span};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// One direction between two endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Time that every datagram takes.
    pub delay: Span,
    /// Random time on top, which reorders.
    pub jitter: Span,
    /// Lost, doubled and corrupted datagrams, of 1000 each.
    pub loss: u32,
    /// See `loss`.
    pub duplication: u32,
    /// See `loss`. A corrupted datagram has one bit flipped or its end cut off.
    pub corruption: u32,
    /// Larger datagrams vanish.
    pub largest: usize,
    /// Bytes per second, and how long a queue before the link may be; 0 means no limit.
    pub bandwidth: u64,
    /// See `bandwidth`.
    pub queue: Span,
    /// Cut.
    pub down: bool,
}

impl Default for Link {
    /// A perfect link of 20 us.
    fn default() -> Self {
        Self {
            delay: Span::from_micros(20),
            jitter: Span::ZERO,
            loss: 0,
            duplication: 0,
            corruption: 0,
            largest: 65507,
            bandwidth: 0,
            queue: Span::from_millis(10),
            down: false,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    sequence: u64,
    to: u32,
    bytes: Vec<u8>,
}

/// An endpoint's processor and socket.
#[derive(Debug, Default)]
struct Seat {
    /// Others have the processor until then.
    away: Option<Instant>,
    /// What has come meanwhile.
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// What the system counts for a datagram in a socket's buffer beside its bytes.
const SOCKET_OVERHEAD: usize = 768;

/// Machines and the network between them.
#[derive(Debug)]
pub struct Network {
    now: Instant,
    rng: SplitMix64,
    machines: Vec<Option<Machine>>,
    seats: Vec<Seat>,
    /// Bytes that the socket of an endpoint without a processor holds; more are lost.
    pub socket_buffer: usize,
    links: Vec<Link>,
    busy_until: Vec<Instant>,
    flights: BinaryHeap<Reverse<Flight>>,
    sequence: u64,
    buffer: Vec<u8>,
    /// When set, copies of all datagrams are kept here with their receivers.
    pub recording: Option<Vec<(Peer, Vec<u8>)>>,
    trace: u64,
}

/// A machine with a segment of `segment` zero bytes.
///
/// # Errors
/// As [`Machine::new`].
pub fn machine(config: Config, segment: usize) -> Result<(Machine, OwnSegment), ConfigError> {
    let words: Arc<[AtomicU64]> = (0..segment.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
    let segment = Segment::new(words, segment).erase();
    Ok((Machine::new(config, segment.clone())?, segment))
}

impl Network {
    /// A network of these machines, in the order of their [`Peer`] indices, joined by perfect links.
    pub fn new(seed: u64, machines: Vec<Machine>) -> Self {
        let count = machines.len();
        Self {
            now: Instant(0),
            rng: SplitMix64(seed),
            machines: machines.into_iter().map(Some).collect(),
            seats: (0..count).map(|_| Seat::default()).collect(),
            socket_buffer: 4 << 20,
            links: vec![Link::default(); count * count],
            busy_until: vec![Instant(0); count * count],
            flights: BinaryHeap::new(),
            sequence: 0,
            buffer: vec![0; 65535],
            recording: None,
            trace: 0,
        }
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A hash of all that has happened; equal for equal runs.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// The generator, for the application's own decisions.
    pub fn rng(&mut self) -> &mut SplitMix64 {
        &mut self.rng
    }

    /// One direction between two endpoints.
    ///
    /// # Panics
    /// If there are no such endpoints.
    pub fn link(&mut self, from: Peer, to: Peer) -> &mut Link {
        let count = self.machines.len();
        &mut self.links[from.index() * count + to.index()]
    }

    /// Changes every direction between different endpoints.
    pub fn each_link(&mut self, mut change: impl FnMut(Peer, Peer, &mut Link)) {
        let count = self.machines.len() as u32;
        for from in (0..count).map(Peer) {
            for to in (0..count).map(Peer).filter(|to| *to != from) {
                change(from, to, self.link(from, to));
            }
        }
    }

    /// An endpoint's machine, if it runs.
    pub fn machine(&mut self, peer: Peer) -> Option<&mut Machine> {
        self.machines.get_mut(peer.index())?.as_mut()
    }

    /// Stops an endpoint without a word, or puts a new machine in its place. Datagrams under way stay under way.
    ///
    /// # Panics
    /// If there is no such endpoint.
    pub fn replace(&mut self, peer: Peer, machine: Option<Machine>) {
        self.machines[peer.index()] = machine;
    }

    /// Takes the processor away from an endpoint: until then it neither sends, nor looks at its socket or at time.
    ///
    /// # Panics
    /// If there is no such endpoint.
    pub fn take_processor(&mut self, from: Peer, until: Instant) {
        self.seats[from.index()].away = Some(until);
    }

    /// Whether an endpoint has a processor.
    ///
    /// # Panics
    /// If there is no such endpoint.
    pub fn has_processor(&self, peer: Peer) -> bool {
        self.seats[peer.index()].away.is_none()
    }

    /// Puts a datagram on the wire as a stranger would; it arrives at once.
    pub fn inject(&mut self, to: Peer, bytes: Vec<u8>) {
        self.sequence += 1;
        self.flights.push(Reverse(Flight { at: self.now, sequence: self.sequence, to: to.0, bytes }));
    }

    fn mix(&mut self, value: u64) {
        self.trace = SplitMix64(self.trace ^ value).next_u64();
    }

    /// Lets all machines send what they can at this moment.
    pub fn flush(&mut self) {
        for from in 0..self.machines.len() {
            if self.seats[from].away.is_some() {
                continue;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            while let Some(machine) = &mut self.machines[from] {
                let Some((to, len)) = machine.transmit(self.now, &mut buffer) else { break };
                self.carry(Peer(from as u32), to, &buffer[..len]);
            }
            self.buffer = buffer;
        }
    }

    fn carry(&mut self, from: Peer, to: Peer, bytes: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.push((to, bytes.to_vec()));
        }
        let index = from.index() * self.machines.len() + to.index();
        let Some(link) = self.links.get(index).copied() else { return };
        self.mix(self.now.0 ^ (bytes.len() as u64) << 40 ^ (index as u64) << 56);
        let mut start = self.now;
        if let Some(time) = (bytes.len() as u64 * 1_000_000_000_000).checked_div(link.bandwidth) {
            start = start.max(self.busy_until[index]);
            if start.since(self.now) > link.queue {
                return;
            }
            start = start + Span(time);
            self.busy_until[index] = start;
        }
        let copies = 1 + u32::from(self.rng.chance(link.duplication));
        for _ in 0..copies {
            if link.down || bytes.len() > link.largest || self.rng.chance(link.loss) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            if self.rng.chance(link.corruption) && !bytes.is_empty() {
                let at = self.rng.below(bytes.len() as u64) as usize;
                if self.rng.chance(500) {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 1 << self.rng.below(8);
                }
            }
            let at = start + link.delay + Span(self.rng.below(link.jitter.0));
            self.sequence += 1;
            self.flights.push(Reverse(Flight { at, sequence: self.sequence, to: to.0, bytes }));
        }
    }

    /// Sends what is to be sent, goes to the next moment at which something happens, at most to `until`, and lets
    /// it happen. Returns whether anything did.
    pub fn step(&mut self, until: Instant) -> bool {
        self.flush();
        let timers = self
            .machines
            .iter()
            .zip(&self.seats)
            .filter_map(|(machine, seat)| seat.away.or_else(|| machine.as_ref().and_then(Machine::deadline)));
        let arrivals = self.flights.peek().map(|Reverse(flight)| flight.at);
        let next = timers.chain(arrivals).min().filter(|at| *at <= until);
        let Some(next) = next else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        for to in 0..self.seats.len() {
            let seat = &mut self.seats[to];
            if seat.away.is_some_and(|until| until <= self.now) {
                (seat.away, seat.bytes) = (None, 0);
                while let Some(bytes) = self.seats[to].waiting.pop_front() {
                    self.arrive(to, bytes);
                }
            }
        }
        while self.flights.peek().is_some_and(|Reverse(flight)| flight.at <= self.now) {
            let Some(Reverse(flight)) = self.flights.pop() else { break };
            let Some(seat) = self.seats.get_mut(flight.to as usize) else { continue };
            if seat.away.is_none() {
                self.arrive(flight.to as usize, flight.bytes);
            } else if seat.bytes < self.socket_buffer {
                seat.bytes += flight.bytes.len() + SOCKET_OVERHEAD;
                seat.waiting.push_back(flight.bytes);
            }
        }
        let now = self.now;
        for (machine, seat) in self.machines.iter_mut().zip(&self.seats) {
            if let Some(machine) = machine.as_mut().filter(|_| seat.away.is_none()) {
                machine.tick(now);
            }
        }
        true
    }

    fn arrive(&mut self, to: usize, mut bytes: Vec<u8>) {
        if let Some(machine) = &mut self.machines[to] {
            let result = machine.handle(self.now, &mut bytes);
            self.mix(u64::from(result.is_ok()));
        }
    }
}
