//! Ping-pong between two processes, on the raw interface and on any transport of active messages: what conduits
//! are compared by. Each function runs a simulation and tells the virtual time of all round trips of a size; none
//! is timed before two that are not.

use active_messages::{
    Address, Endpoint, Handlers, Payload, Rank, RegisterError, Reply, Request, Span, Token, Transport,
};
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use extoll_sim::nic::rma::{Access, Notify, Rma};
use extoll_sim::nic::velo::{Connection, Velo, VeloError};
use extoll_sim::nic::{HostMemory, Nic};
use extoll_sim::{self, ExtollConfig};
use fabric_sim::{Report, RunError, WaitFor};
use std::error::Error;

/// Round trips of messages of one size.
#[derive(Clone, Copy, Debug)]
pub struct Trips {
    /// Bytes of a message, in either direction.
    pub bytes: usize,
    /// How many.
    pub count: u32,
}

/// Round trips before those that are timed.
const WARM_UP: u32 = 2;

/// Packets of the raw interface are as large as it takes.
const PACKET: usize = 64;

/// Which kind of active message carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up to eight bytes, as an argument.
    Short,
    /// A payload in the message.
    Medium,
    /// A payload in the segment.
    Long,
}

/// The times of the first rank that has any.
fn times(report: Report<Vec<Span>>) -> Vec<Span> {
    report.results.into_iter().flatten().next().unwrap_or_default()
}

/// Times round trips: `exchange` makes one.
fn time(now: impl Fn() -> active_messages::Instant, trips: Trips, mut exchange: impl FnMut()) -> Span {
    (0..WARM_UP).for_each(|_| exchange());
    let began = now();
    (0..trips.count).for_each(|_| exchange());
    now().since(began)
}

/// Raw VELO: a message is as many packets of 64 bytes as it needs.
///
/// # Errors
/// As [`extoll_sim::run`].
pub fn raw_velo(machine: &ExtollConfig, trips: &[Trips]) -> Result<Vec<Span>, RunError> {
    let trips = trips.to_vec();
    let report = extoll_sim::run(machine, move |nic| {
        let velo = nic.velo();
        velo.open().expect("the port is free");
        let peer = nic.address(1 - nic.rank()).expect("there are two ranks");
        let peer = velo.connect(peer).expect("there are two ranks");
        let times = trips.iter().map(|trips| {
            let there = |velo: &Velo<'_>| send(&nic, velo, peer, trips.bytes);
            let back = |velo: &Velo<'_>| receive(velo, trips.bytes);
            time(
                || nic.now(),
                *trips,
                || {
                    if nic.rank() == 0 {
                        there(&velo);
                        back(&velo);
                    } else {
                        back(&velo);
                        there(&velo);
                    }
                },
            )
        });
        times.collect()
    })?;
    Ok(times(report))
}

/// Sends a message packet by packet, waiting for room where the interface has none.
fn send(nic: &Nic<'_>, velo: &Velo<'_>, to: Connection, bytes: usize) {
    let mut left = bytes;
    loop {
        let packet = left.min(PACKET);
        match velo.send(to, &[0x5a; PACKET][..packet], 0, 0) {
            Ok(()) if left <= PACKET => return,
            Ok(()) => left -= packet,
            Err(VeloError::TryAgain { .. }) => nic.idle(None, WaitFor::Named("room for a packet")),
            Err(error) => panic!("the packet and its connection are right: {error}"),
        }
    }
}

fn receive(velo: &Velo<'_>, bytes: usize) {
    for _ in 0..bytes.div_ceil(PACKET).max(1) {
        velo.recv(None).expect("the port is open");
    }
}

/// Raw RMA: a message is a put into registered memory, noticed by its completer notification.
///
/// # Errors
/// As [`extoll_sim::run`].
pub fn raw_rma(machine: &ExtollConfig, trips: &[Trips]) -> Result<Vec<Span>, RunError> {
    let trips = trips.to_vec();
    let report = extoll_sim::run(machine, move |nic| {
        let largest = trips.iter().map(|trips| trips.bytes).max().unwrap_or(0).max(1);
        let (rma, memory) = (nic.rma(), HostMemory::new(largest));
        rma.open().expect("the port is free");
        let region = rma.register(&memory, 0, largest as u64, Access::ReadWrite);
        let region = region.expect("the translation table has room for both ranks");
        let peer = nic.address(1 - nic.rank()).expect("there are two ranks");
        let peer = rma.connect(peer).expect("there are two ranks");
        // Both ranks register alike, so that their addresses are the same.
        let to = rma.nla(region, 0).expect("a region begins with its first byte");
        let notice = |rma: &Rma<'_>| {
            let came = rma.noti_get_block(None).expect("the port is open");
            rma.noti_free(came).expect("the port is open");
        };
        let put = |rma: &Rma<'_>, bytes: usize| {
            let put = rma.post_put_bt(peer, region, 0, bytes.max(1) as u32, to, Notify::COMPLETER);
            put.expect("a single put fits the descriptors and the region");
        };
        let times = trips.iter().map(|trips| {
            time(
                || nic.now(),
                *trips,
                || {
                    if nic.rank() == 0 {
                        put(&rma, trips.bytes);
                        notice(&rma);
                    } else {
                        notice(&rma);
                        put(&rma, trips.bytes);
                    }
                },
            )
        });
        times.collect()
    })?;
    Ok(times(report))
}

/// The conduit: requests of one kind, answered in kind.
///
/// # Errors
/// As [`gasnet::run`].
pub fn conduit(
    machine: &ExtollConfig,
    config: &GasnetConfig,
    kind: Kind,
    trips: &[Trips],
) -> Result<Vec<Span>, RunError> {
    let largest = trips.iter().map(|trips| trips.bytes).max().unwrap_or(0);
    let config = GasnetConfig { segment: config.segment.max(largest as u64), ..config.clone() };
    let trips = trips.to_vec();
    let report = gasnet::run(machine, &config, move |transport| answered(transport, kind, &trips))?;
    Ok(times(report))
}

/// What the handlers work on.
struct State {
    replies: u64,
    payload: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Pings {
    short: Request<u64>,
    medium: Request<()>,
    long: Request<()>,
}

impl Pings {
    fn register(handlers: &mut Handlers<State>, largest_reply: u32) -> Result<Self, RegisterError> {
        let count = |state: &mut State| state.replies += 1;
        let pong: Reply<u64> =
            handlers.reply("pong", move |state, _: Address, _: u64, _: Payload<'_>| count(state))?;
        let filled: Reply<()> =
            handlers.reply("filled", move |state, _: Address, (): (), _: Payload<'_>| count(state))?;
        let short = move |_: &mut State, token: Token<'_>, word: u64, _: Payload<'_>| {
            token.reply(pong, word).expect("the asker waits");
        };
        let medium = move |state: &mut State, token: Token<'_>, (): (), payload: Payload<'_>| {
            let back = &state.payload[..payload.len()];
            token.reply_medium(filled, (), back).expect("replies may be as large as requests");
        };
        let long = move |state: &mut State, token: Token<'_>, (): (), payload: Payload<'_>| {
            let back = &state.payload[..payload.len()];
            token.reply_long(filled, (), back, 0).expect("all segments are as large");
        };
        Ok(Self {
            short: handlers.request_bounded("short", 0, short)?,
            medium: handlers.request_bounded("medium", largest_reply, medium)?,
            long: handlers.request_bounded("long", 0, long)?,
        })
    }
}

/// One rank of a ping-pong on any transport; the times at rank 0, nothing at the other.
///
/// # Panics
/// If the transport refuses what fits its limits: the simulation ends, naming the rank.
pub fn answered<T: Transport>(transport: T, kind: Kind, trips: &[Trips]) -> Vec<Span> {
    let rank = transport.local_peer().0;
    try_answered(transport, kind, trips).unwrap_or_else(|error| panic!("rank {rank} of the ping-pong: {error}"))
}

fn try_answered<T: Transport>(transport: T, kind: Kind, trips: &[Trips]) -> Result<Vec<Span>, Box<dyn Error>> {
    let largest = trips.iter().map(|trips| trips.bytes).max().unwrap_or(0);
    let mut handlers = Handlers::new();
    let pings = Pings::register(&mut handlers, if kind == Kind::Medium { largest as u32 } else { 0 })?;
    let payload = vec![0x5a; largest];
    let mut endpoint = Endpoint::attach(transport, handlers, State { replies: 0, payload: payload.clone() })?;
    let mut times = Vec::new();
    if endpoint.rank() == Rank(0) {
        for trips in trips {
            let message = &payload[..trips.bytes];
            let mut began = endpoint.now();
            for trip in 0..WARM_UP + trips.count {
                if trip == WARM_UP {
                    began = endpoint.now();
                }
                let next = endpoint.state().replies + 1;
                match kind {
                    Kind::Short => endpoint.request(Rank(1), pings.short, next)?,
                    Kind::Medium => endpoint.request_medium(Rank(1), pings.medium, (), message)?,
                    Kind::Long => endpoint.request_long(Rank(1), pings.long, (), message, 0)?,
                }
                endpoint.wait_until(|state| state.replies == next)?;
            }
            times.push(endpoint.now().since(began));
        }
    }
    endpoint.finish()?;
    Ok(times)
}
