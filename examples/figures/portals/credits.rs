//! What no paper showed: receive memory and throughput of static shares and of lent credits, from 64 to 4096 nodes, under four
//! kinds of traffic; and of Portals 4 without credits.
//!
//! Three receivers are compared. *Static, full*: a share of 64 credits for every sender, 16 messages of this traffic: what a
//! pair of nodes needs to keep going while the receiver computes. *Static, small*: a share of as much memory as the third has.
//! *Lent*: 8 credits for every sender, and about as many in the bank: a quarter of the full memory.
//!
//! Where traffic is concentrated, lent credits are ahead of static ones of the same memory. They are not ahead of full shares,
//! which have four times the memory: there the receiver bounds the throughput, and what is lent has to be asked for first.

use super::Context;
use super::traffic::{self, Load, Outcome, Pattern};
use crate::line::Line;
use crate::plot::{Axis, Plot, Scale, Series, Style};
use crate::report::{Failure, Part};
use active_messages::Span;
use active_messages::portals::conduit::{ConduitConfig, FlowControl};

const NODES: [u32; 4] = [64, 256, 512, 1024];
/// What only full runs have.
const LARGE: [u32; 2] = [2048, 4096];
/// The most nodes that Portals 4 is simulated on here.
const LARGEST_OF_4: u32 = 256;
/// The number of nodes that lines are about.
const MEASURED: u32 = 512;

/// Credits of a sender: of a full share, and of the smallest that carries the largest message.
const FULL: u32 = 64;
const LEAST: u32 = 8;

fn full() -> ConduitConfig {
    ConduitConfig { credits: FULL, ..ConduitConfig::with(FlowControl::Static) }
}

fn small() -> ConduitConfig {
    ConduitConfig { credits: 2 * LEAST, ..ConduitConfig::with(FlowControl::Static) }
}

fn lent(nodes: u32) -> ConduitConfig {
    ConduitConfig {
        credits: LEAST,
        banked: Some(7 * nodes),
        // Runs are short: epochs are, too, and more is lent in one.
        epoch: 128,
        lend_limit: 128,
        ..ConduitConfig::default()
    }
}

fn load(context: &Context<'_>, nodes: u32) -> Load {
    let bursts = match (context.quick, nodes) {
        (true, _) => 4,
        (false, 0..=1024) => 16,
        (false, _) => 8,
    };
    Load { bursts, burst: 24, bytes: 900, compute: Span::from_micros(100) }
}

/// The receivers, with the names of their curves.
const KINDS: [&str; 4] = ["static, full", "static, small", "lent", "Portals 4, no credits"];

/// The curves of a kind under each pattern.
type Curves = Vec<Vec<(f64, f64)>>;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let nodes: Vec<u32> = match context.quick {
        true => vec![64, MEASURED],
        false => NODES.into_iter().chain(LARGE).collect(),
    };
    let failed = Failure::of("traffic");
    let mut rates: Vec<Curves> = vec![vec![Vec::new(); KINDS.len()]; Pattern::ALL.len()];
    let mut memory: Curves = vec![Vec::new(); KINDS.len()];
    let (mut notes, mut lines) = (Vec::new(), Vec::new());
    for count in nodes {
        let configs = [full(), small(), lent(count), ConduitConfig::with(FlowControl::Disable)];
        let x = f64::from(count);
        for (kind, config) in configs.iter().enumerate() {
            let bytes = config.receive_bytes(count).map_err(|error| Failure::Usage(error.to_string()))?;
            memory[kind].push((x, bytes as f64 / 1e6));
            // Portals 4 is there for comparison; its simulation takes longest.
            if kind == 3 && count > LARGEST_OF_4 {
                continue;
            }
            for (index, (pattern, name)) in Pattern::ALL.into_iter().enumerate() {
                context.progress.detail(format!("{name} traffic of {count} nodes, {}", KINDS[kind]));
                let outcome = traffic::run(&context.torus(count), config, pattern, load(context, count));
                let Outcome { rate, revocations, resent } = outcome.map_err(&failed)?;
                rates[index][kind].push((x, rate * 1e-3));
                if count == MEASURED && (revocations > 0 || resent > 0) {
                    let kind = KINDS[kind];
                    notes.push(format!("{name}, {kind}: {revocations} revocations, {resent} messages sent again"));
                }
            }
        }
    }
    let at = |curve: &[(f64, f64)]| {
        let found = curve.iter().find(|point| point.0 == f64::from(MEASURED));
        found.map_or(f64::NAN, |point| point.1)
    };
    let ratio = |index: usize, kind: usize| at(&rates[index][2]) / at(&rates[index][kind]);
    let parts = at(&memory[2]) / at(&memory[0]);
    lines.push(Line::at_most("512 nodes: memory, lent / static", "", 0.25, parts).from("the project's bound"));
    lines.push(
        Line::at_least("512 nodes: uniform, lent / static", "", 0.9, ratio(0, 0)).from("the project's bound"),
    );
    lines.push(
        Line::at_least("512 nodes: hotspot, lent / static of the same memory", "", 1.0, ratio(1, 1))
            .from("the project's bound"),
    );
    for (index, (_, name)) in Pattern::ALL.into_iter().enumerate() {
        let (full, small) = (ratio(index, 0), ratio(index, 1));
        notes.push(format!("512 nodes, {name}: lent / static {full:.2}; / static of the same memory {small:.2}"));
    }
    let names = ["uniform", "hotspot", "neighbour", "shifting"].map(|name| match name {
        "uniform" => ("credits-uniform", "Portals: throughput, uniform traffic"),
        "hotspot" => ("credits-hotspot", "Portals: throughput, one hot node in four"),
        "neighbour" => ("credits-neighbour", "Portals: throughput, traffic with neighbours"),
        _ => ("credits-shifting", "Portals: throughput, shifting partners"),
    });
    let x = Axis { label: "nodes", scale: Scale::Binary };
    let series = |curves: Curves| {
        let each = curves.into_iter().enumerate();
        let each = each.map(|(kind, points)| {
            let style = if kind == 2 { Style::Line } else { Style::Dashed };
            Series { name: KINDS[kind], style, colour: [4, 2, 0, 1][kind], points }
        });
        each.collect()
    };
    let mut plots = vec![Plot {
        name: "credits-memory",
        title: "Portals: receive memory of a node",
        subtitle: "buffers for requests, and their events at 128 bytes each",
        x,
        y: Axis { label: "memory, MB", scale: Scale::Binary },
        series: series(memory),
    }];
    for (curves, (name, title)) in rates.into_iter().zip(names) {
        plots.push(Plot {
            name,
            title,
            subtitle: "bursts of 24 messages of 900 bytes, then 100 us of computing, on a 3D torus",
            x,
            y: Axis { label: "messages of a node, thousand/s", scale: Scale::Linear },
            series: series(curves),
        });
    }
    Ok(Part { title: "Static and lent credits (3D torus)", lines, notes, plots })
}
