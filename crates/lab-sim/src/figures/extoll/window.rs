//! The window curve of the RMA plugin: what fewer ring buffers cost.

use super::Context;
use super::sources::{WINDOW_FEWER, WINDOW_MODEL, WINDOW_MORE};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::pscom::{PscomConfig, RingConfig, imb};

/// Buffers and MB/s: the model of a round trip of 15 us (assumed) and slots of 4088 bytes; then the link is the
/// limit.
const PREDICTED: [(u16, f64); 5] = [(1, 273.0), (2, 545.0), (3, 818.0), (4, 880.0), (16, 880.0)];

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let windows: Vec<u16> =
        if context.quick { PREDICTED.map(|(window, _)| window).to_vec() } else { (1..=16).collect() };
    let bytes = if context.quick { 1 << 19 } else { 1 << 20 };
    let machine = context.machines.evaluator();
    let curve = imb::window(&machine, &PscomConfig::default(), &windows, bytes)
        .map_err(Failure::of("the ring of buffers"))?;
    let mut lines = Vec::new();
    let at = |window| curve.iter().find(|(found, _)| *found == window).map_or(f64::NAN, |(_, value)| *value);
    for (window, expected) in PREDICTED {
        let name = format!("RMA ring, {window} buffer{}", if window == 1 { "" } else { "s" });
        lines.push(WINDOW_MODEL.value(name, "MB/s", expected, at(window)));
    }
    let ring = PscomConfig::default().ring;
    let with = |ring: RingConfig| {
        let pscom = PscomConfig { ring, ..PscomConfig::default() };
        let found = imb::window(&machine, &pscom, &[ring.send_buffers], bytes);
        found.map(|found| found[0].1).map_err(Failure::of("the ring of buffers"))
    };
    let more = with(RingConfig { send_buffers: 32, receive_buffers: 32, ..ring })?;
    let larger = with(RingConfig { buffer_bytes: 8192, ..ring })?;
    lines.push(WINDOW_MORE.at_most("RMA ring, 32 / 16 buffers", "", 1.05, more / at(16)));
    lines.push(WINDOW_MORE.at_most("RMA ring, buffers of 8 / 4 KB", "", 1.05, larger / at(16)));
    let fewest = curve.iter().filter(|(window, _)| *window < 16).map(|(_, value)| *value).fold(f64::NAN, f64::min);
    lines.push(WINDOW_FEWER.at_most("RMA ring, fewer / 16 buffers, smallest", "", 0.9, fewest / at(16)));
    let notes = vec![
        "fewer buffers cost something below four only, since the round trip is assumed; the report names no number".into(),
    ];
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
            Series { name: "model: 15 us a window", style: Style::Marks, colour: 1, points: marks },
        ],
    };
    Ok(Part {
        title: "Window of the RMA ring (DEEP evaluator)",
        lines,
        notes,
        plots: vec![plot],
        ..Part::default()
    })
}
