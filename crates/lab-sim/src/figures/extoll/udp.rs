//! A conduit over UDP beside raw UDP, on a model of the way through the kernel: the baseline that the conduit
//! paper begins with.
//!
//! No document at hand says what those system calls cost on its cluster, so the machine is one of assumed costs
//! ([`KERNEL`]). What the comparison rests on is not: UDP loses datagrams, so a conduit over it has every request
//! answered, and a message that costs raw UDP a call at either end costs the conduit two. So it takes at most
//! twice as long wherever the processors are the limit, whatever the calls cost; how near that comes depends on
//! how alike the two calls are.

use super::Context;
use super::sources::{UDP_MODEL, UDP_TWICE};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Token, Transport};
use fabric_sim::RunError;
use machine_sim::conduit::{self, ConduitConfig};
use machine_sim::{MachineConfig, Nic};

/// Two hosts on Gigabit Ethernet, all costs assumed: a system call and the kernel's path, a copy at 2 GB/s and the
/// kernel's on top at either end, 66 bytes of frames and headers around a datagram of up to 1472.
const KERNEL: &str = "
    ranks = 2
    topology = { kind = 'crossbar', nodes = 2 }
    [parameters]
    name = 'UDP through the kernel, assumed'
    latency_ns = 15000
    link = { bandwidth_mb_s = 125 }
    header_bytes = 66
    packet_bytes = 1472
    empty_poll_ns = 500
    native = { put = false, get = false, atomics = false }
    sizes = [{ send_ns = 5000, receive_ns = 6000, overhead_per_byte_ns = 0.5 }]
";

/// What the model says of a flood that the processors limit: both calls for each message, beside the slower one.
const FLOOD: f64 = (5000.0 + 6000.0) / 6000.0;

/// Messages of a flood, and round trips.
const COUNT: u32 = 400;

/// What a rank does.
#[derive(Clone, Copy)]
enum Load {
    PingPong,
    Flood,
}

/// Microseconds of a message on bare datagrams.
fn raw(machine: &MachineConfig, load: Load, bytes: u32) -> Result<f64, RunError> {
    let report = machine_sim::run(machine, move |nic: Nic<'_>| {
        for _ in 0..COUNT {
            match (load, nic.rank()) {
                (Load::PingPong, 0) => {
                    nic.send(1, [0; 2], bytes, |_| ());
                    nic.wait();
                }
                (Load::PingPong, _) => {
                    nic.wait();
                    nic.send(0, [0; 2], bytes, |_| ());
                }
                (Load::Flood, 0) => nic.send(1, [0; 2], bytes, |_| ()),
                (Load::Flood, _) => drop(nic.wait()),
            }
        }
        nic.now().0
    })?;
    Ok(each(load, report.results.into_iter().flatten().max()))
}

/// The time of a message, of the time of all in picoseconds.
fn each(load: Load, all: Option<u64>) -> f64 {
    let messages = match load {
        Load::PingPong => 2 * COUNT,
        Load::Flood => COUNT,
    };
    all.unwrap_or_default() as f64 * 1e-6 / f64::from(messages)
}

/// Requests that have come, and answers.
#[derive(Default)]
struct State {
    come: u32,
    answered: u32,
}

fn over(transport: impl Transport, load: Load, bytes: u32) -> u64 {
    let mut handlers = Handlers::<State>::new();
    let done: Reply<()> = handlers
        .reply("done", |state: &mut State, _: Address, (): (), _: Payload<'_>| state.answered += 1)
        .expect("the table has room");
    let take = move |state: &mut State, token: Token<'_>, (): (), _: Payload<'_>| {
        state.come += 1;
        token.reply(done, ()).expect("room for the reply was set aside");
    };
    let take: Request<()> = handlers.request_bounded("take", 0, take).expect("the table has room");
    let mut endpoint = Endpoint::attach(transport, handlers, State::default()).expect("both ranks attach");
    endpoint.barrier().expect("nobody is lost");
    let (me, payload, began) = (endpoint.rank().0, vec![1; bytes as usize], endpoint.now());
    let send = |endpoint: &mut Endpoint<_, State>| {
        endpoint.request_medium(Rank(1 - me), take, (), &payload).expect("nobody is lost");
    };
    for number in 1..=COUNT {
        match (load, me) {
            (Load::PingPong, 0) => {
                send(&mut endpoint);
                endpoint.wait_until(|state| state.come == number).expect("nobody is lost");
            }
            (Load::PingPong, _) => {
                endpoint.wait_until(|state| state.come == number).expect("nobody is lost");
                send(&mut endpoint);
            }
            (Load::Flood, 0) => send(&mut endpoint),
            (Load::Flood, _) => {}
        }
    }
    let answers = if matches!((load, me), (Load::Flood, 1)) { 0 } else { COUNT };
    endpoint.wait_until(|state| state.answered == answers).expect("nobody is lost");
    let took = endpoint.now().since(began).0;
    endpoint.finish().expect("nobody is lost");
    if answers == 0 { 0 } else { took }
}

/// Microseconds of a message over the conduit, each of which is answered.
fn conduit(machine: &MachineConfig, load: Load, bytes: u32) -> Result<f64, RunError> {
    let report = conduit::run(machine, &ConduitConfig::default(), move |transport| over(transport, load, bytes))?;
    Ok(each(load, report.results.into_iter().flatten().max()))
}

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let machine = MachineConfig::from_toml(KERNEL).map_err(|error| Failure::Usage(error.to_string()))?;
    let sizes = context.thin((3..=10).map(|power| 1 << power).collect());
    let curve = |load| {
        let points = sizes.iter().map(|size| {
            let (bytes, failed) = (*size as u32, Failure::of("datagrams"));
            let (raw, over) = (raw(&machine, load, bytes), conduit(&machine, load, bytes));
            Ok((*size as f64, 100.0 * (over.map_err(&failed)? / raw.map_err(&failed)? - 1.0)))
        });
        points.collect::<Result<Vec<(f64, f64)>, Failure>>()
    };
    let (trips, flood) = (curve(Load::PingPong)?, curve(Load::Flood)?);
    let most = trips.iter().chain(&flood).map(|point| point.1).fold(f64::NAN, f64::max);
    let lines = vec![
        // No test of the model: the bound holds for any costs, once each request is answered.
        UDP_TWICE.at_most("conduit over UDP, added to raw UDP, largest", "%", 100.0, most),
        UDP_MODEL.value("conduit over UDP, flood of 8 B, / raw UDP", "", FLOOD, 1.0 + flood[0].1 / 100.0),
    ];
    let line = |name, colour, points| Series { name, style: Style::Line, colour, points };
    let plot = Plot {
        name: "udp",
        title: "EXTOLL: a conduit over UDP beside raw UDP",
        subtitle: "two hosts on Gigabit Ethernet through the kernel, all costs assumed; each request is answered",
        x: Axis { label: "message size, bytes", scale: Scale::Binary },
        y: Axis { label: "added to raw UDP, %", scale: Scale::Linear },
        series: vec![line("ping-pong", 0, trips), line("flood", 1, flood)],
    };
    Ok(Part { title: "A conduit over UDP (kernel's path, assumed)", lines, plots: vec![plot], ..Part::default() })
}
