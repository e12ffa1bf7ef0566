//! The first and the second implementation of active messages: how much better the second is, over message size.

use super::Context;
use super::latency::points;
use super::overhead::halves;
use super::pairs::{self, Kind};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use extoll_sim::conduit::gasnet::GasnetConfig;

/// Percent that the second implementation is better at most, and how far off the simulation may be: what the conduit's own
/// work costs is assumed, not published.
const MOST: f64 = 53.0;
const TOLERANCE: f64 = 12.0;

const SOURCE: &str =
    "conduit paper: the second implementation is up to 53 % better; read as round trips in the same time";

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let machine = context.machines.cluster_pair();
    let sizes = context.thin((3..=13).map(|power| 1 << power).collect());
    let ping = |gasnet: GasnetConfig, kind, sizes: &[usize]| {
        halves(&machine, sizes, |machine, trips| pairs::conduit(machine, &gasnet, kind, trips))
    };
    let better = |kind, sizes: &[usize]| {
        let (first, second) =
            (ping(GasnetConfig::first(), kind, sizes)?, ping(GasnetConfig::default(), kind, sizes)?);
        let gains = first.iter().zip(&second).map(|(first, second)| (first.0, 100.0 * (first.1 / second.1 - 1.0)));
        Ok::<Vec<_>, Failure>(gains.collect())
    };
    let (short, medium, long) =
        (better(Kind::Short, &[8])?, better(Kind::Medium, &sizes)?, better(Kind::Long, &sizes)?);
    let all = short.iter().chain(&medium).chain(&long);
    let most = all.clone().map(|(_, gain)| *gain).fold(f64::NAN, f64::max);
    let least = all.map(|(_, gain)| *gain).fold(f64::NAN, f64::min);
    let lines = vec![
        Line::value("second implementation better by, at most", "%", MOST, most, TOLERANCE)
            .from(SOURCE)
            .held_out(),
        Line::at_least("second implementation better by, at least", "%", 0.0, least).from(SOURCE).held_out(),
    ];
    let line = |name, colour, points| Series { name, style: Style::Line, colour, points };
    let plot = Plot {
        name: "implementations",
        title: "EXTOLL: second implementation of active messages",
        subtitle: "how much better than the first; ping-pong between neighbouring nodes of the cluster",
        x: Axis { label: "payload, bytes", scale: Scale::Binary },
        y: Axis { label: "more round trips in the same time, %", scale: Scale::Linear },
        series: vec![
            line("Medium messages", 0, points(medium)),
            line("Long messages", 1, points(long)),
            Series { name: "published: up to 53 %", style: Style::Marks, colour: 4, points: vec![(8.0, MOST)] },
        ],
    };
    Ok(Part {
        title: "Two implementations of active messages (cluster)",
        lines,
        notes: Vec::new(),
        plots: vec![plot],
    })
}
