//! What the design can reach: the published conduit beside one with more and larger slots whose flags cannot be
//! lost.

use super::pairs::{self, Kind};
use super::sources::TUNED;
use super::{Context, curve, points};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use sci_sim::conduit::ConduitConfig;

/// Messages of a stream.
const STREAM: u32 = 200;

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.pair();
    let count = if context.quick { STREAM / 4 } else { STREAM };
    let rate = |config: &ConduitConfig, sizes: &[usize]| {
        let times = curve("streams", sizes, |size| pairs::stream(&machine, config, size, count))?;
        Ok::<_, Failure>(times.into_iter().map(|(size, micros)| (size, size as f64 / micros)).collect::<Vec<_>>())
    };
    let sizes = context.thin([64, 128, 256, 512, 944].to_vec());
    let mut larger = sizes.clone();
    larger.extend(context.thin([1456, 1968, 2992, 4016].to_vec()));
    let checked = ConduitConfig::default();
    let (paper, numbered, tuned) =
        (rate(&ConduitConfig::paper(), &sizes)?, rate(&checked, &sizes)?, rate(&ConduitConfig::tuned(), &larger)?);
    let latency = |config: &ConduitConfig| {
        curve("active messages", &[0], |size| pairs::messages(&machine, config, Kind::Short, size))
            .map(|curve| curve[0].1)
    };
    let later = latency(&ConduitConfig::tuned())? - latency(&ConduitConfig::paper())?;
    let at =
        |curve: &[(usize, f64)]| curve.iter().find(|(size, _)| *size == 944).map_or(f64::NAN, |(_, rate)| *rate);
    let largest = |curve: &[(usize, f64)]| curve.last().map_or(f64::NAN, |(_, rate)| *rate);
    let lines = vec![
        TUNED.at_least("tuned beside published, largest Medium", "times", 1.25, largest(&tuned) / largest(&paper)),
        TUNED.at_least("checked beside unchecked flags, 944 B", "times", 0.9, at(&numbered) / at(&paper)),
        TUNED.at_most("tuned Short behind the published", "us", 0.05, later),
    ];
    let line = |name, colour, curve| Series { name, style: Style::Line, colour, points: points(curve) };
    let plot = Plot {
        name: "tuned",
        title: "SCI: streams over the published conduit and over a tuned one",
        subtitle: "one-way Medium messages between neighbouring nodes; the interface streams 278 MB/s",
        x: Axis { label: "payload, bytes", scale: Scale::Linear },
        y: Axis { label: "MB/s", scale: Scale::Linear },
        series: vec![
            line("published: 2 x 1 KB, flags unchecked", 0, &paper),
            line("2 x 1 KB, flags numbered and checked", 3, &numbered),
            line("tuned: 8 x 4 KB, flags checked", 2, &tuned),
        ],
    };
    let notes = vec![format!(
        "944 B: {:.0} MB/s published, {:.0} with checked flags, {:.0} tuned; 4016 B: {:.0} tuned",
        at(&paper),
        at(&numbered),
        at(&tuned),
        largest(&tuned)
    )];
    Ok(Part { title: "The published conduit and a tuned one", lines, notes, plots: vec![plot], ..Part::default() })
}
