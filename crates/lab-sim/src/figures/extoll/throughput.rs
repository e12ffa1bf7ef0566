//! SendRecv: both processes send and receive at the same time; saturation and the way to it.

use super::Context;
use super::latency::points;
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::pscom::{Plugin, PscomConfig, imb};

/// Bytes and MB/s that the model fitted to latency and saturation predicts for VELO, and the tolerance. The model adds a whole
/// latency of 2.8 us to every exchange, of which 0.8 us pass while both sides still send: 6 % of an exchange of 1 KB.
const VELO_PREDICTED: [(usize, f64, f64); 3] =
    [(1 << 10, 131.0, 0.06), (8 << 10, 155.7, 0.03), (64 << 10, 159.5, 0.03)];

/// MB/s at saturation, both directions together.
const SATURATION: [(&str, Plugin, f64); 2] = [("VELO", Plugin::Velo, 160.0), ("RMA", Plugin::Rma, 1760.0)];

const SOURCE: &str = "report on pscom's plugin: SendRecv at saturation";
const PREDICTED: &str = "predicted from latency and saturation";

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let throughput = |plugin, sizes: &[usize]| {
        let machine = context.machines.evaluator();
        imb::send_recv(&machine, &PscomConfig::default(), plugin, sizes).map_err(Failure::of("SendRecv"))
    };
    let (mut lines, mut series) = (Vec::new(), Vec::new());
    let largest = |plugin| if plugin == Plugin::Velo { 20 } else { 22 };
    for (colour, (name, plugin, published)) in SATURATION.into_iter().enumerate() {
        let sizes = context.thin((3..=largest(plugin)).map(|power| 1 << power).collect());
        let curve = throughput(plugin, &sizes)?;
        let most = curve.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let line = Line::value(format!("{name} SendRecv, saturation"), "MB/s", published, most, 0.03 * published);
        lines.push(line.from(SOURCE));
        let name = if plugin == Plugin::Velo { "VELO, simulated" } else { "RMA, simulated" };
        series.push(Series { name, style: Style::Line, colour, points: points(curve) });
    }
    let found = throughput(Plugin::Velo, &VELO_PREDICTED.map(|(size, ..)| size))?;
    for ((size, published, part), (_, simulated)) in VELO_PREDICTED.into_iter().zip(found) {
        let name = format!("VELO SendRecv, {} KB", size >> 10);
        let line = Line::value(name, "MB/s", published, simulated, part * published);
        lines.push(line.from(PREDICTED).held_out());
    }
    let level = |published, plugin| {
        let from = if plugin == Plugin::Velo { 8192.0 } else { f64::from(1 << 20) };
        vec![(from, published), (f64::from(1 << largest(plugin)), published)]
    };
    for (colour, (_, plugin, published)) in SATURATION.into_iter().enumerate() {
        let name = if plugin == Plugin::Velo { "VELO, published saturation" } else { "RMA, published saturation" };
        series.push(Series { name, style: Style::Marks, colour, points: level(published, plugin) });
    }
    let plot = Plot {
        name: "throughput",
        title: "EXTOLL: throughput of messages over VELO and over RMA",
        subtitle: "SendRecv between neighbouring nodes of the DEEP evaluator, both directions together",
        x: Axis { label: "message size, bytes", scale: Scale::Binary },
        y: Axis { label: "throughput, MB/s", scale: Scale::Decimal },
        series,
    };
    Ok(Part { title: "Throughput (DEEP evaluator, SendRecv)", lines, notes: Vec::new(), plots: vec![plot] })
}
