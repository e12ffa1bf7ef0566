//! Networks with finite buffers beside links that hold everything: how an incast delays what it crosses, who gets
//! how much of a line's last link, and what both models cost in events.
//!
//! The messages are bare packets between nodes; no interface has a part in it.

use super::cli::Cli;
use super::line::{Class, Group, Source, Tolerance};
use super::parts::Parts;
use super::plot::{Axis, Plot, Scale, Series, Style};
use super::report::{Failure, Part, Report};
use active_messages::Span;
use fabric_sim::buffered::{Arbitration, Buffers};
use fabric_sim::{Config, Context, LinkParameters, Mailbox, NetworkModel, Sim, Topology};

type Rank<'a> = Context<'a, Mailbox<u64>>;

/// Bytes of a packet, which takes half a microsecond on a link.
const PACKET: u32 = 500;

/// A machine of nodes alone.
fn machine(topology: Topology, model: NetworkModel, arbitration: Arbitration) -> Result<Config, Failure> {
    let nodes = topology.nodes().map_err(|error| Failure::Usage(error.to_string()))?;
    let mut config = Config { topology, model, ..Config::new(nodes) };
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 50.0 };
    config.buffers = Buffers { channel_bytes: 2 * PACKET, arbitration };
    Ok(config)
}

/// Packets of each sender of an incast.
const ROUNDS: u64 = 60;
/// Senders of the incast into node 0 of a mesh of 4 x 4: all but the two of the victim.
const SENDERS: f64 = 13.0;

/// The mean latency in microseconds of what node 15 sends to node 12, beside an incast of all others into node 0
/// that asks for `load` of the last link; and the run's events.
fn beside_an_incast(model: NetworkModel, load: f64) -> Result<(f64, u64), Failure> {
    let pause = Span((SENDERS * f64::from(PACKET) / load * 1e3) as u64);
    let config = machine(Topology::Mesh { dims: vec![4, 4] }, model, Arbitration::RoundRobin)?;
    let report = Sim::run(&config, move |rank: Rank<'_>| {
        let me = rank.rank();
        if !matches!(me, 0 | 12) {
            for _ in 0..ROUNDS {
                rank.charge(pause);
                rank.send(if me == 15 { 12 } else { 0 }, PACKET, rank.now().0);
            }
        }
        let expected = match me {
            0 => ROUNDS * SENDERS as u64,
            12 => ROUNDS,
            _ => 0,
        };
        (0..expected).map(|_| rank.wait().body).map(|sent| rank.now().0 - sent).sum::<u64>()
    });
    let report = report.map_err(Failure::of("an incast"))?;
    let total = report.results[12].unwrap_or_default();
    Ok((total as f64 * 1e-6 / ROUNDS as f64, report.events))
}

const GROUP: Group = Group {
    class: Class::Model,
    source: Source {
        document: "Pfister and Norton, IEEE Transactions on Computers, 1985",
        place: "tree saturation",
    },
    sentence: "an incast fills the buffers before it up to the senders, and delays packets that only cross them",
    tolerance: Tolerance::Absolute(0.0),
    rule: "this project's bars: five times as late with finite buffers, less than twice without",
};

static SATURATION: Group = GROUP;

static FAIRNESS: Group = Group {
    source: Source { document: "this project", place: "fabric_sim::buffered, arbitration" },
    sentence: "of 15 senders on a line each gets a fifteenth of the last link, if the oldest packet passes first",
    rule: "the bar of 10 %",
    ..GROUP
};

fn saturation(cli: &Cli) -> Result<Part, Failure> {
    let loads: Vec<f64> =
        if cli.quick { vec![0.7, 1.6] } else { (2..=20).map(|part| f64::from(part) / 10.0).collect() };
    let loads: Vec<f64> = loads.into_iter().chain(if cli.quick { None } else { Some(0.7) }).collect();
    let run = |model: NetworkModel| {
        let points = loads.iter().map(|load| Ok((*load, beside_an_incast(model, *load)?)));
        points.collect::<Result<Vec<_>, Failure>>()
    };
    let (queues, buffered) = (run(NetworkModel::Queues)?, run(NetworkModel::Buffered)?);
    let at = |points: &[(f64, (f64, u64))], load: f64| {
        points.iter().find(|point| point.0 == load).map_or((f64::NAN, 0), |point| point.1)
    };
    let ratio = |points: &[(f64, (f64, u64))]| at(points, 1.6).0 / at(points, 0.7).0;
    let events = |load: f64| at(&buffered, load).1 as f64 / at(&queues, load).1 as f64;
    let notes = vec![format!(
        "events of the run, finite buffers / links hold everything: {:.1} at a load of 0.7, {:.1} at 1.6",
        events(0.7),
        events(1.6)
    )];
    let lines = vec![
        SATURATION.at_least("beside an incast of 1.6 / of 0.7, finite buffers", "", 5.0, ratio(&buffered)),
        SATURATION.at_most("beside an incast of 1.6 / of 0.7, links hold all", "", 2.0, ratio(&queues)),
    ];
    let curve = |points: &[(f64, (f64, u64))]| {
        let mut points: Vec<_> = points.iter().map(|(load, (latency, _))| (*load, *latency)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points.dedup();
        points
    };
    let plot = Plot {
        name: "saturation",
        title: "Tree saturation of an incast",
        subtitle: "mesh of 4 x 4, 13 nodes send to node 0; latency of node 15 to node 12, whose links are not overloaded",
        x: Axis { label: "load of the last link", scale: Scale::Linear },
        y: Axis { label: "latency, us", scale: Scale::Decimal },
        series: vec![
            Series { name: "finite buffers", style: Style::Line, colour: 0, points: curve(&buffered) },
            Series { name: "links hold everything", style: Style::Dashed, colour: 2, points: curve(&queues) },
        ],
    };
    Ok(Part { title: "An incast and what it crosses", lines, notes, plots: vec![plot], ..Part::default() })
}

/// Packets that arrive before the count begins, while buffers fill, and packets that are counted: enough for the
/// farthest, of whom arbitration by turns lets one in 2^14 pass.
const WINDOW: (u32, u32) = (2048, 65_536);
const QUICK: (u32, u32) = (2048, 8192);

/// How much of the last link of a line each of 15 senders gets, as a part of a fair share, over its distance. Each
/// sends as much as the whole link carries until all is counted.
fn shares(
    model: NetworkModel,
    arbitration: Arbitration,
    (before, counted): (u32, u32),
) -> Result<Vec<(f64, f64)>, Failure> {
    let config = machine(Topology::Mesh { dims: vec![16] }, model, arbitration)?;
    let report = Sim::run(&config, move |rank: Rank<'_>| {
        if rank.rank() != 0 {
            // The last link carries no more in that time, and the first packets are on their way for a while.
            for _ in 0..before + counted + 64 {
                rank.charge(Span::from_nanos(PACKET.into()));
                rank.send(0, PACKET, 0);
            }
            return (Vec::new(), rank.now());
        }
        (0..before).for_each(|_| assert_eq!(rank.wait().bytes, PACKET));
        let mut counts = vec![0u32; 16];
        (0..counted).for_each(|_| counts[rank.wait().from as usize] += 1);
        (counts, rank.now())
    });
    let report = report.map_err(Failure::of("senders on a line"))?;
    let mut results = report.results.into_iter().flatten();
    let (counts, end) = results.next().unwrap_or_default();
    assert!(
        results.all(|(_, sent)| sent >= end),
        "every sender sends for longer than the last link takes to carry all"
    );
    let share =
        |(distance, count): (usize, &u32)| (distance as f64, 15.0 * f64::from(*count) / f64::from(counted));
    Ok(counts.iter().enumerate().skip(1).map(share).collect())
}

fn fairness(cli: &Cli) -> Result<Part, Failure> {
    let window = if cli.quick { QUICK } else { WINDOW };
    let oldest = shares(NetworkModel::Buffered, Arbitration::Oldest, window)?;
    let turns = shares(NetworkModel::Buffered, Arbitration::RoundRobin, window)?;
    let queues = shares(NetworkModel::Queues, Arbitration::RoundRobin, window)?;
    let off = |shares: &[(f64, f64)]| 100.0 * shares.iter().map(|share| (share.1 - 1.0).abs()).fold(0.0, f64::max);
    let lines = vec![FAIRNESS.at_most("15 senders on a line, off a fair share", "%", 10.0, off(&oldest))];
    let notes = vec![format!(
        "by turns the nearest gets {:.2} fair shares and the farthest {:.4}; where links hold everything {:.2} and {:.2}",
        turns[0].1, turns[14].1, queues[0].1, queues[14].1
    )];
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "fairness",
        title: "15 senders on a line",
        subtitle: "shares of the last link while all send, over the distance to it; 1 is fair",
        x: Axis { label: "links to the receiver", scale: Scale::Linear },
        y: Axis { label: "fair shares", scale: Scale::Linear },
        series: vec![
            line("finite buffers, the oldest first", Style::Line, 0, oldest),
            line("finite buffers, by turns", Style::Line, 1, turns),
            line("links hold everything", Style::Dashed, 2, queues),
        ],
    };
    Ok(Part { title: "Fairness on a line", lines, notes, plots: vec![plot], ..Part::default() })
}

/// A part of the figures.
type Run = fn(&Cli) -> Result<Part, Failure>;

const PARTS: Parts<Run> = Parts(&[
    ("saturation", "an incast and what it crosses", saturation),
    ("fairness", "senders on a line", fairness),
]);

/// Runs all parts, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    PARTS.run(cli, report, |part, _| part(cli))
}
