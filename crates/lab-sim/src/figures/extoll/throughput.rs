//! SendRecv: both processes send and receive at the same time; saturation and the way to it.

use super::Context;
use super::latency::{is_training, points};
use super::sources::{CROSSOVER, SATURATION, SENDRECV_MODEL};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::pscom::{Plugin, PscomConfig, imb};
use extoll_sim::model::fit::{Given, TRAINING_SET, fit, packets};

/// Sizes at which the model's bounds are looked at.
const BOUNDED: [usize; 3] = [1 << 10, 8 << 10, 64 << 10];

/// MB/s at saturation, both directions together.
const SATURATED: [(&str, Plugin, f64); 2] = [("VELO", Plugin::Velo, 160.0), ("RMA", Plugin::Rma, 1760.0)];

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let throughput = |plugin, sizes: &[usize]| {
        let machine = context.machines.evaluator();
        imb::send_recv(&machine, &PscomConfig::default(), plugin, sizes).map_err(Failure::of("SendRecv"))
    };
    let (mut lines, mut series) = (Vec::new(), Vec::new());
    let largest = |plugin| if plugin == Plugin::Velo { 20 } else { 22 };
    for (colour, (name, plugin, published)) in SATURATED.into_iter().enumerate() {
        let sizes = context.thin((3..=largest(plugin)).map(|power| 1 << power).collect());
        let curve = throughput(plugin, &sizes)?;
        let most = curve.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let name_of_line = format!("{name} SendRecv, saturation");
        let training = is_training(&name_of_line);
        lines.push(SATURATION.value(name_of_line, "MB/s", published, most).trained(training));
        let name = if plugin == Plugin::Velo { "VELO, simulated" } else { "RMA, simulated" };
        series.push(Series { name, style: Style::Line, colour, points: points(curve) });
    }
    let above: Vec<usize> = (576..=4032).step_by(if context.quick { 576 } else { 64 }).collect();
    let (velo, rma) = (throughput(Plugin::Velo, &above)?, throughput(Plugin::Rma, &above)?);
    let least = rma.iter().zip(&velo).map(|(rma, velo)| rma.1 / velo.1).fold(f64::NAN, f64::min);
    lines.push(CROSSOVER.at_least("SendRecv above 512 B, RMA / VELO, smallest", "", 1.0, least));
    let fitted = fit(&TRAINING_SET, &Given::evaluator());
    let pair = (fitted.velo_send_ns + fitted.velo_receive_ns) * 1e-3;
    for (size, found) in throughput(Plugin::Velo, &BOUNDED)? {
        let (bytes, work) = (2.0 * size as f64, pair * packets(size as u64) as f64);
        let name = |bound| format!("VELO SendRecv, {} KB, {bound}", size >> 10);
        lines.push(SENDRECV_MODEL.at_most(name("work alone"), "MB/s", bytes / work, found));
        let slowest = bytes / (work + TRAINING_SET.velo_64_us);
        lines.push(SENDRECV_MODEL.at_least(name("a latency more"), "MB/s", slowest, found));
    }
    let level = |published, plugin| {
        let from = if plugin == Plugin::Velo { 8192.0 } else { f64::from(1 << 20) };
        vec![(from, published), (f64::from(1 << largest(plugin)), published)]
    };
    for (colour, (_, plugin, published)) in SATURATED.into_iter().enumerate() {
        let name =
            if plugin == Plugin::Velo { "published: VELO at saturation" } else { "published: RMA at saturation" };
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
    Ok(Part { title: "Throughput (DEEP evaluator, SendRecv)", lines, plots: vec![plot], ..Part::default() })
}
