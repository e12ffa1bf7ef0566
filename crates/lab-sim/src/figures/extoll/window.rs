//! The window curve of the RMA plugin: what fewer ring buffers cost.

use super::Context;
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::pscom::{PscomConfig, imb};

/// Buffers and MB/s, derived from a round trip of 15 us and slots of 4088 bytes; then the link is the limit.
const PREDICTED: [(u16, f64); 5] = [(1, 273.0), (2, 545.0), (3, 818.0), (4, 880.0), (16, 880.0)];

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let windows: Vec<u16> =
        if context.quick { PREDICTED.map(|(window, _)| window).to_vec() } else { (1..=16).collect() };
    let bytes = if context.quick { 1 << 19 } else { 1 << 20 };
    let machine = context.machines.evaluator();
    let curve = imb::window(&machine, &PscomConfig::default(), &windows, bytes)
        .map_err(Failure::of("the ring of buffers"))?;
    let mut lines = Vec::new();
    for (window, published) in PREDICTED {
        let found = curve.iter().find(|(found, _)| *found == window).map_or(f64::NAN, |(_, value)| *value);
        let name = format!("RMA ring, {window} buffer{}", if window == 1 { "" } else { "s" });
        let line = Line::value(name, "MB/s", published, found, 0.03 * published);
        lines.push(line.from("derived: round trip 15 us, slots of 4088 B, link 880 MB/s").held_out());
    }
    let points = curve.iter().map(|(window, value)| (f64::from(*window), *value)).collect();
    let marks = PREDICTED.map(|(window, value)| (f64::from(window), value)).to_vec();
    let plot = Plot {
        name: "window",
        title: "EXTOLL: throughput over the number of RMA ring buffers",
        subtitle: "one direction, through rings of 4 KB buffers on the DEEP evaluator",
        x: Axis { label: "send buffers", scale: Scale::Linear },
        y: Axis { label: "throughput, MB/s", scale: Scale::Linear },
        series: vec![
            Series { name: "simulated", style: Style::Line, colour: 1, points },
            Series { name: "derived from the report", style: Style::Marks, colour: 1, points: marks },
        ],
    };
    Ok(Part { title: "Window of the RMA ring (DEEP evaluator)", lines, notes: Vec::new(), plots: vec![plot] })
}
