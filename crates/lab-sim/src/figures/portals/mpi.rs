//! Two-sided messages over the conduit in place of the MPI that the paper compares with: simulated, where the
//! other parts recall what MPI took.
//!
//! The messages are `am_p2p`'s over the conduit's active messages. So each is copied twice, to a bounce buffer by
//! its sender and out of a receive buffer by its receiver, and what an MPI library's own matching costs is not in
//! it. A put of the conduit over MPI is a message that is answered, with the conduit's own overhead at either end.

use super::sources::{BESIDE_MPI, OVER_MESSAGES};
use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use active_messages::{Endpoint, Handlers, Span, Transport};
use am_p2p::{Communicator, MessageError, P2p};
use fabric_sim::RunError;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig};

/// Exchanges before those that are timed, and timed ones.
const WARM_UP: u32 = 2;
const TIMED: u32 = 8;

/// What a rank's processor does besides the conduit's own work.
#[derive(Clone, Copy)]
struct Work {
    /// For each message that is sent or received.
    overhead: Span,
    /// Copying a byte out of a receive buffer, in nanoseconds.
    copy_ns: f64,
}

/// A message and its answer without bytes.
fn answered<T: Transport>(transport: T, bytes: usize, work: Work) -> Result<Span, MessageError> {
    let mut handlers = Handlers::<P2p>::new();
    let p2p = P2p::register(&mut handlers).expect("the table has room");
    let mut endpoint = Endpoint::attach(transport, handlers, p2p).expect("both ranks attach");
    let world = Communicator::world(&mut endpoint)?;
    let (mut payload, mut took) = (vec![7_u8; bytes], Span::ZERO);
    let copy = Span((bytes as f64 * work.copy_ns * 1e3) as u64);
    for round in 0..WARM_UP + TIMED {
        let began = endpoint.now();
        if world.rank() == 0 {
            endpoint.charge(work.overhead);
            world.send(&mut endpoint, 1, 7, &payload)?;
            world.receive_into(&mut endpoint, 1, 8, &mut payload[..0])?;
            endpoint.charge(work.overhead);
        } else {
            world.receive_into(&mut endpoint, 0, 7, &mut payload)?;
            endpoint.charge(Span(copy.0 + 2 * work.overhead.0));
            world.send(&mut endpoint, 0, 8, &payload[..0])?;
        }
        if round >= WARM_UP {
            took = Span(took.0 + endpoint.now().since(began).0);
        }
    }
    endpoint.finish().expect("both ranks end");
    Ok(Span(took.0 / u64::from(TIMED)))
}

/// Microseconds of a message and its answer on two neighbouring nodes.
fn ping_ack(machine: &PortalsConfig, bytes: usize, work: Work) -> Result<f64, RunError> {
    let report = conduit::run(machine, &ConduitConfig::default(), move |transport| {
        answered(transport, bytes, work).unwrap_or_else(|error| panic!("a rank of the ping-pong: {error}"))
    })?;
    Ok(report.results[0].unwrap_or_default().0 as f64 * 1e-6)
}

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let (sizes, software) = (context.sizes(0..=11), &context.parameters.software);
    let raw = Work { overhead: Span::ZERO, copy_ns: software.copy_ns_per_byte };
    let over = Work { overhead: Span((software.gasnet_ns * 1e3) as u64), ..raw };
    let curve = |work: Work| {
        let points = sizes.iter().map(|size| {
            let took = ping_ack(&context.pair(), *size as usize, work).map_err(Failure::of("messages"))?;
            Ok((f64::from(*size), took))
        });
        points.collect::<Result<Vec<_>, Failure>>()
    };
    let (messages, puts_over) = (curve(raw)?, curve(over)?);
    let puts = sizes.iter().map(|size| {
        let took = pairs::put(&context.pair(), *size, TIMED).map_err(Failure::of("blocking puts"))?;
        Ok((f64::from(*size), took.0 as f64 * 1e-6))
    });
    let puts: Vec<_> = puts.collect::<Result<_, Failure>>()?;
    let least = |other: &[(f64, f64)]| {
        let ratios = other.iter().zip(&puts).map(|(other, put)| other.1 / put.1);
        ratios.fold(f64::INFINITY, f64::min)
    };
    let lines = vec![
        OVER_MESSAGES.at_least("put of 1 B, over two-sided / Portals", "", 1.8, puts_over[0].1 / puts[0].1),
        BESIDE_MPI.at_least("put, two-sided with answer / Portals, smallest", "", 1.0, least(&messages)),
        OVER_MESSAGES.at_least("put, over two-sided / Portals, smallest", "", 1.0, least(&puts_over)),
    ];
    let notes = vec![format!(
        "a message of 1 B and its answer take {:.1} us: the conduit answers each by itself, and the interface has a gap \
         behind that, in which the overhead of a put over messages goes on",
        messages[0].1
    )];
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "two-sided",
        title: "Portals: puts beside two-sided messages",
        subtitle: "between neighbouring XT4 nodes; messages of am-p2p over the conduit, copied at either end",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "latency, us", scale: Scale::Linear },
        series: vec![
            line("put over Portals", Style::Line, 0, puts),
            line("message and its answer", Style::Line, 2, messages),
            line("put over two-sided messages", Style::Dashed, 4, puts_over),
        ],
    };
    let title = "Puts beside two-sided messages, simulated (XT4)";
    Ok(Part { title, lines, notes, plots: vec![plot], ..Part::default() })
}
