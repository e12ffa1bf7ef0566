//! What no paper showed: receive memory and throughput of static shares and of lent credits, from 64 to 4096
//! nodes, under four kinds of traffic; and of Portals 4 without credits.
//!
//! *Static*: a share of 64 credits for every sender, which is 16 messages of this traffic. *Static, a quarter*: a
//! share of about as much memory as lending has. *Lent*: 12 credits for every sender, and 3 more in the bank, lent
//! by this project's rules (`ConduitConfig::tuned`); a line has the published ones, the conduit's default. *Static
//! without limit*: more than any sender ever uses, which is as fast as this traffic can be.
//!
//! Shares limit only what they are too small for. Of a burst that fits a share nothing has to wait, and where a
//! hot receiver is the bottleneck no memory makes it faster: up to 24 messages in a burst, even shares without
//! limit gain nothing. A burst of three shares is what lending is for: a hot node's memory goes to the few who
//! send there. So bursts are that long here, and a picture by itself shows what other lengths do.

use super::Context;
use super::sources::CREDITS;
use super::traffic::{self, Load, Outcome, Pattern};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use active_messages::Span;
use fabric_sim::RunError;
use portals_sim::conduit::{ConduitConfig, FlowControl};
use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const NODES: [u32; 6] = [64, 256, 512, 1024, 2048, 4096];
/// The number of nodes that lines are about.
const MEASURED: u32 = 512;

/// Messages of a burst, and what a node computes after it.
const BURST: u32 = 48;
const COMPUTE: Span = Span::from_micros(200);
/// Other lengths, with as many messages of a node in all.
const BURSTS: [u32; 5] = [12, 24, 48, 72, 96];
const IN_ALL: u32 = 288;

/// Credits of a full share.
const FULL: u32 = 64;

/// Simulations at a time: each of 4096 nodes takes up to four gigabytes.
const THREADS: usize = 2;

/// How credits are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Quarter,
    /// By this project's rules.
    Lent,
    Unlimited,
    Portals4,
    /// As [`Kind::Lent`], by the rules of the paper's conduit.
    Published,
}

impl Kind {
    /// Those with curves over the number of nodes.
    const SHOWN: [Self; 5] = [Self::Full, Self::Quarter, Self::Lent, Self::Unlimited, Self::Portals4];

    const fn name(self) -> &'static str {
        match self {
            Self::Full => "static",
            Self::Quarter => "static, a quarter of the memory",
            Self::Lent => "lent, a quarter of the memory",
            Self::Unlimited => "static without limit",
            Self::Portals4 => "Portals 4, no credits",
            Self::Published => "lent by the published rules",
        }
    }

    fn config(self, nodes: u32) -> ConduitConfig {
        let shares = |credits| ConduitConfig { credits, ..ConduitConfig::with(FlowControl::Static) };
        let lent = |rules| ConduitConfig { credits: 12, banked: Some(3 * nodes), ..rules };
        match self {
            Self::Full => shares(FULL),
            Self::Quarter => shares(FULL / 4),
            Self::Lent => lent(ConduitConfig::tuned()),
            Self::Published => lent(ConduitConfig::default()),
            Self::Unlimited => shares(16 * FULL),
            Self::Portals4 => ConduitConfig::with(FlowControl::Disable),
        }
    }

    /// Whether it is simulated on so many nodes. Portals 4 is there for comparison, and takes longest.
    const fn runs_on(self, nodes: u32) -> bool {
        match self {
            Self::Portals4 => nodes <= 256,
            Self::Unlimited => nodes <= 1024,
            Self::Published => nodes == MEASURED,
            Self::Full | Self::Quarter | Self::Lent => true,
        }
    }

    /// Receive memory of a node.
    fn megabytes(self, nodes: u32) -> Result<f64, Failure> {
        let bytes = self.config(nodes).receive_bytes(nodes);
        bytes.map(|bytes| bytes as f64 / 1e6).map_err(|error| Failure::Usage(error.to_string()))
    }

    fn series(self, points: Vec<(f64, f64)>) -> Series {
        let (style, colour) = match self {
            Self::Full => (Style::Dashed, 4),
            Self::Quarter => (Style::Dashed, 2),
            Self::Lent => (Style::Line, 0),
            Self::Unlimited => (Style::Dashed, 5),
            Self::Portals4 | Self::Published => (Style::Dashed, 1),
        };
        Series { name: self.name(), style, colour, points }
    }
}

/// Those with curves over the length of bursts.
const BY_LENGTH: [Kind; 3] = [Kind::Full, Kind::Lent, Kind::Unlimited];

/// One simulation.
#[derive(Clone, Copy, Debug)]
struct Task {
    kind: Kind,
    pattern: Pattern,
    nodes: u32,
    load: Load,
}

/// What came out of all tasks.
struct Results(Vec<(Task, Outcome)>);

impl Results {
    /// Messages a second that a node sends.
    fn rate(&self, pattern: Pattern, kind: Kind) -> f64 {
        let wanted = |task: &Task| (task.nodes, task.pattern, task.kind) == (MEASURED, pattern, kind);
        self.0.iter().find(|(task, _)| wanted(task)).map_or(f64::NAN, |(_, outcome)| outcome.rate)
    }

    fn ratio(&self, pattern: Pattern, kind: Kind, beside: Kind) -> f64 {
        self.rate(pattern, kind) / self.rate(pattern, beside)
    }

    /// A curve of thousands of messages a second; `x` says where a task lies on it, if it does.
    fn curve(&self, kind: Kind, x: impl Fn(&Task) -> Option<u32>) -> Series {
        let points = self.0.iter().filter(|(task, _)| task.kind == kind);
        let points = points.filter_map(|(task, outcome)| Some((f64::from(x(task)?), outcome.rate * 1e-3)));
        kind.series(points.collect())
    }
}

/// Runs the tasks, a few at a time, the largest first; the results are in the order of the tasks.
fn run_all(context: &Context<'_>, tasks: Vec<Task>) -> Result<Results, Failure> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|index| Reverse(tasks[*index].nodes));
    let nothing: Vec<Option<Result<Outcome, RunError>>> = tasks.iter().map(|_| None).collect();
    let (begun, outcomes) = (AtomicUsize::new(0), Mutex::new(nothing));
    let work = || {
        while let Some(index) = order.get(begun.fetch_add(1, Ordering::Relaxed)).copied() {
            let Task { kind, pattern, nodes, load } = tasks[index];
            let (number, all) = (begun.load(Ordering::Relaxed).min(tasks.len()), tasks.len());
            let (name, kind_name) = (pattern.name(), kind.name());
            context.progress.detail(format!("{number} of {all}: {name} traffic of {nodes} nodes, {kind_name}"));
            let outcome = traffic::run(&context.torus(nodes), &kind.config(nodes), pattern, load);
            outcomes.lock().expect("nothing panics while it holds the lock")[index] = Some(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |there| there.get().min(THREADS)) {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner().expect("nothing panics while it holds the lock");
    let pairs = tasks.into_iter().zip(outcomes).map(|(task, outcome)| {
        let outcome = outcome.expect("every task was run");
        Ok((task, outcome.map_err(Failure::of("traffic"))?))
    });
    Ok(Results(pairs.collect::<Result<_, Failure>>()?))
}

/// The load of every machine.
fn load(context: &Context<'_>) -> Load {
    let bursts = if context.quick { 4 } else { 8 };
    Load { bursts, burst: BURST, bytes: 900, compute: COMPUTE }
}

/// What the curves over the number of nodes need, and the published rules at one size.
fn over_nodes(context: &Context<'_>, nodes: &[u32]) -> Vec<Task> {
    let kinds = Kind::SHOWN.into_iter().chain([Kind::Published]);
    let pairs = nodes.iter().flat_map(|nodes| kinds.clone().map(|kind| (kind, *nodes)));
    let pairs = pairs.filter(|(kind, nodes)| kind.runs_on(*nodes));
    let task = |(kind, nodes)| Pattern::ALL.map(|pattern| Task { kind, pattern, nodes, load: load(context) });
    pairs.flat_map(task).collect()
}

/// What the curves over the length of bursts need; none when quick.
fn over_lengths(context: &Context<'_>) -> Vec<Task> {
    let lengths: &[u32] = if context.quick { &[] } else { &BURSTS };
    let task = |burst, kind| {
        let load = Load { burst, bursts: IN_ALL / burst, ..load(context) };
        Task { kind, pattern: Pattern::Hotspot, nodes: MEASURED, load }
    };
    lengths.iter().flat_map(|burst| BY_LENGTH.map(|kind| task(*burst, kind))).collect()
}

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let nodes: Vec<u32> = if context.quick { vec![64, MEASURED] } else { NODES.to_vec() };
    let results = run_all(context, over_nodes(context, &nodes))?;
    let lengths = run_all(context, over_lengths(context))?;
    let mut plots = vec![memory(&nodes)?];
    plots.extend(Pattern::ALL.map(|pattern| throughput(&results, pattern)));
    if !context.quick {
        plots.push(by_length(&lengths));
    }
    Ok(Part {
        title: "Static and lent credits (3D torus)",
        lines: lines(&results)?,
        notes: notes(&results),
        plots,
        ..Part::default()
    })
}

fn lines(results: &Results) -> Result<Vec<Line>, Failure> {
    let parts = Kind::Lent.megabytes(MEASURED)? / Kind::Full.megabytes(MEASURED)?;
    let line = |name, pattern, beside, bound| {
        CREDITS.at_least(name, "", bound, results.ratio(pattern, Kind::Lent, beside))
    };
    Ok(vec![
        CREDITS.at_most("512 nodes: memory, lent / static", "", 0.25, parts),
        line("512 nodes: uniform, lent / static", Pattern::Uniform, Kind::Full, 0.9),
        line("512 nodes: hotspot, lent / static", Pattern::Hotspot, Kind::Full, 1.0),
        line("512 nodes: hotspot, lent / static, same memory", Pattern::Hotspot, Kind::Quarter, 1.0),
    ])
}

fn notes(results: &Results) -> Vec<String> {
    let ratios = Pattern::ALL.map(|pattern| {
        let lent = |beside| results.ratio(pattern, Kind::Lent, beside);
        let (full, quarter, most) = (lent(Kind::Full), lent(Kind::Quarter), lent(Kind::Unlimited));
        let published = results.ratio(pattern, Kind::Published, Kind::Full);
        let name = pattern.name();
        format!(
            "512 nodes, {name}: lent / static {full:.2}, / same memory {quarter:.2}, / without limit {most:.2}; by the \
             published rules / static {published:.2}"
        )
    });
    let eventful = results.0.iter().filter(|(_, outcome)| outcome.revocations + outcome.resent > 0);
    let events = eventful.map(|(Task { kind, pattern, nodes, .. }, Outcome { revocations, resent, .. })| {
        let (name, kind) = (pattern.name(), kind.name());
        format!("{nodes} nodes, {name}, {kind}: {revocations} revocations, {resent} messages sent again")
    });
    ratios.into_iter().chain(events).collect()
}

fn memory(nodes: &[u32]) -> Result<Plot, Failure> {
    let series = [Kind::Full, Kind::Quarter, Kind::Lent, Kind::Portals4].map(|kind| {
        let points = nodes.iter().map(|nodes| Ok((f64::from(*nodes), kind.megabytes(*nodes)?)));
        Ok(kind.series(points.collect::<Result<_, Failure>>()?))
    });
    Ok(Plot {
        name: "credits-memory",
        title: "Portals: receive memory of a node",
        subtitle: "buffers for requests, and their events at 128 bytes each",
        x: Axis { label: "nodes", scale: Scale::Binary },
        y: Axis { label: "memory, MB", scale: Scale::Binary },
        series: series.into_iter().collect::<Result<_, Failure>>()?,
    })
}

const RATE: Axis = Axis { label: "messages of a node, thousand/s", scale: Scale::Linear };

fn throughput(results: &Results, pattern: Pattern) -> Plot {
    let (name, title) = match pattern {
        Pattern::Uniform => ("credits-uniform", "Portals: throughput, uniform traffic"),
        Pattern::Hotspot => ("credits-hotspot", "Portals: throughput, one hot node in four"),
        Pattern::Neighbour => ("credits-neighbour", "Portals: throughput, traffic with neighbours"),
        Pattern::Shifting => ("credits-shifting", "Portals: throughput, shifting partners"),
    };
    let nodes = |task: &Task| (task.pattern == pattern).then_some(task.nodes);
    Plot {
        name,
        title,
        subtitle: "bursts of 48 messages of 900 bytes (192 credits), then 200 us of computing, on a 3D torus",
        x: Axis { label: "nodes", scale: Scale::Binary },
        y: RATE,
        series: Kind::SHOWN.map(|kind| results.curve(kind, nodes)).into(),
    }
}

fn by_length(results: &Results) -> Plot {
    Plot {
        name: "credits-bursts",
        title: "Portals: throughput by the length of bursts",
        subtitle: "512 nodes, one in four hot; then 200 us of computing; a static share is 16 messages",
        x: Axis { label: "messages of a burst", scale: Scale::Linear },
        y: RATE,
        series: BY_LENGTH.map(|kind| results.curve(kind, |task| Some(task.load.burst))).into(),
    }
}
