//! The two ways to send a Medium message: one copy and one transfer, or no copy and two transfers.

use super::pairs::{self, Kind};
use super::sources::{METHODS, SOFTWARE};
use super::{Context, curve, points};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use sci_sim::conduit::{ConduitConfig, MediumMethod};

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.pair();
    let ping = |medium, sizes: &[usize]| {
        let config = ConduitConfig { medium, ..ConduitConfig::paper() };
        curve("Medium messages", sizes, |size| pairs::messages(&machine, &config, Kind::Medium, size))
    };
    let sizes = context.thin([1, 8, 32, 64, 128, 192, 256, 384, 512, 640, 768, 944].to_vec());
    let (one_copy, two_transfers) =
        (ping(MediumMethod::OneCopy, &sizes)?, ping(MediumMethod::TwoTransfers, &sizes)?);
    let gain = |(one, two): (&(usize, f64), &(usize, f64))| one.1 - two.1;
    let gains: Vec<f64> = one_copy.iter().zip(&two_transfers).map(gain).collect();
    let least = gains.iter().copied().fold(f64::NAN, f64::min);
    let last = gains.last().copied().unwrap_or(f64::NAN);
    let lines = vec![
        METHODS.at_least("two transfers ahead of a copy, any size", "us", 0.0, least),
        SOFTWARE.value("two transfers ahead of a copy, 944 B", "us", 2.66, last),
    ];
    let line = |name, colour, curve| Series { name, style: Style::Line, colour, points: points(curve) };
    let plot = Plot {
        name: "methods",
        title: "SCI: two ways to send a Medium message",
        subtitle: "one-way, sixteen arguments, between neighbouring nodes; the cost of a copy is assumed",
        x: Axis { label: "payload, bytes", scale: Scale::Linear },
        y: Axis { label: "time, us", scale: Scale::Linear },
        series: vec![
            line("one copy, one transfer", 1, &one_copy),
            line("no copy, two transfers", 0, &two_transfers),
        ],
    };
    Ok(Part { title: "Medium messages by two methods", lines, plots: vec![plot], ..Part::default() })
}
