//! Table 1 of the report on pscom's plugin, the RMA plugin's latency, and where the two cross.

use super::Context;
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::pscom::{Plugin, PscomConfig, imb};

/// Bytes and microseconds, and whether the fit knew the value.
const TABLE_1: [(usize, f64, bool); 5] =
    [(32, 2.8, true), (64, 3.5, true), (128, 3.9, false), (256, 4.9, false), (512, 6.7, true)];

/// What the fitted model of the RMA plugin gives for larger messages, up to what fits a buffer of its ring: 4096 bytes need two,
/// which the model does not know.
const RMA_MODEL: [(usize, f64); 6] =
    [(64, 4.60), (128, 4.90), (256, 5.50), (512, 6.70), (1024, 7.28), (4032, 10.70)];

/// What the fitted model of VELO gives beyond the table.
const VELO_MODEL: [(usize, f64); 2] = [(1024, 10.40), (4096, 32.5)];

/// From one size to the next in the search for the crossover, in bytes: half a fragment.
const STEP: usize = 32;

const MESSAGES: &str = "report on pscom's plugin, table 1 (PingPong)";
const MODEL: &str = "the model fitted to the report's figures";

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let latency = |plugin, sizes: &[usize]| {
        // The published curve has no step where a rendezvous would begin.
        let eager = PscomConfig { rendezvous: 0, ..PscomConfig::default() };
        let machine = context.machines.evaluator();
        imb::ping_pong(&machine, &eager, plugin, sizes).map_err(Failure::of("PingPong"))
    };
    let mut lines = Vec::new();
    let found = latency(Plugin::Velo, &TABLE_1.map(|(size, ..)| size))?;
    for ((size, published, fitted), (_, simulated)) in TABLE_1.into_iter().zip(found) {
        let line = Line::value(format!("VELO latency, {size} B"), "us", published, simulated, 0.05);
        lines.push(line.from(MESSAGES).held_out_if(!fitted));
    }
    for (size, simulated) in latency(Plugin::Rma, &[1, 32])? {
        let line = Line::value(format!("RMA latency, {size} B"), "us", 4.3, simulated, 0.1);
        lines.push(line.from("report on pscom's plugin: 4.3 us up to 32 bytes"));
    }
    let models = [("VELO", Plugin::Velo, &VELO_MODEL[..]), ("RMA", Plugin::Rma, &RMA_MODEL[..])];
    for (name, plugin, model) in models {
        let sizes: Vec<usize> = model.iter().map(|(size, _)| *size).collect();
        for ((size, published), (_, simulated)) in model.iter().zip(latency(plugin, &sizes)?) {
            let line = Line::value(format!("{name} latency, {size} B, model"), "us", *published, simulated, 0.1);
            lines.push(line.from(MODEL));
        }
    }
    lines.push(crossover(&latency)?);

    let sizes = context.thin((0..=12).map(|power| 1 << power).collect());
    let curve = |plugin| latency(plugin, &sizes).map(points);
    let marks = TABLE_1.map(|(size, latency, _)| (size as f64, latency)).to_vec();
    let series = vec![
        Series { name: "VELO, simulated", style: Style::Line, colour: 0, points: curve(Plugin::Velo)? },
        Series { name: "RMA, simulated", style: Style::Line, colour: 1, points: curve(Plugin::Rma)? },
        Series { name: "VELO, published", style: Style::Marks, colour: 0, points: marks },
        Series { name: "RMA, published", style: Style::Marks, colour: 1, points: vec![(32.0, 4.3)] },
    ];
    let plot = Plot {
        name: "latency",
        title: "EXTOLL: latency of messages over VELO and over RMA",
        subtitle: "PingPong between neighbouring nodes of the DEEP evaluator",
        x: Axis { label: "message size, bytes", scale: Scale::Binary },
        y: Axis { label: "latency, us", scale: Scale::Binary },
        series,
    };
    Ok(Part { title: "Latency (DEEP evaluator, PingPong)", lines, notes: Vec::new(), plots: vec![plot] })
}

/// Where RMA begins to be faster, for good.
fn crossover(latency: &impl Fn(Plugin, &[usize]) -> Result<Vec<(usize, f64)>, Failure>) -> Result<Line, Failure> {
    let sizes: Vec<usize> = (STEP..=2048).step_by(STEP).collect();
    let (velo, rma) = (latency(Plugin::Velo, &sizes)?, latency(Plugin::Rma, &sizes)?);
    let slower = velo.iter().zip(&rma).rposition(|(velo, rma)| rma.1 >= velo.1);
    // Of no size at all, if RMA is slower even at the last.
    let faster = slower.map_or(0, |last| last + 1);
    let from = sizes.get(faster).map_or(f64::NAN, |size| *size as f64);
    // In (512, 1024]: a step below 512 would already be outside.
    let line = Line::value("RMA is faster than VELO from, B", "", 768.0 + 0.5, from, 255.5);
    Ok(line.from("report on pscom's plugin: the curves cross above 512 and up to 1024 bytes"))
}

/// A curve as points of a plot.
pub(super) fn points(curve: Vec<(usize, f64)>) -> Vec<(f64, f64)> {
    curve.into_iter().map(|(size, value)| (size as f64, value)).collect()
}
