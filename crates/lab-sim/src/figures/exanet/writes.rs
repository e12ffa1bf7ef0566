//! Writes over their size: when the receiver has noticed them and when their sender has, and what part of the link
//! they use.

use super::sources::BOUND;
use super::{Context, pairs, published};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use exanet_sim::model::fit::TRAINING_SET;

/// Bytes of a write whose set-up does not show.
const LARGE: u32 = 4 << 20;

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.ring();
    let write = |bytes| pairs::write_us(&machine, bytes).map_err(Failure::of("writes"));
    let sizes = context.sizes(3..=16);
    let ends = sizes.iter().map(|size| Ok((*size, write(*size)?))).collect::<Result<Vec<_>, Failure>>()?;
    let link = context.parameters.link.bandwidth_mb_s;
    let large = f64::from(LARGE) / write(LARGE)?.0;
    let lines = vec![
        published("large writes, part of the link", "", TRAINING_SET.utilisation, large / link),
        BOUND.at_most("large writes", "MB/s", 1250.0, large),
    ];
    let points = |of: &dyn Fn(&(f64, f64)) -> f64| {
        ends.iter().map(|(size, ends)| (f64::from(*size), of(ends))).collect::<Vec<_>>()
    };
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "writes",
        title: "ExaNet: writes",
        subtitle: "between neighbours, from the call on; the set-up of 0.6 us is assumed, the bandwidth fitted",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "us", scale: Scale::Decimal },
        series: vec![
            line("receiver has noticed, simulated", Style::Line, 0, points(&|ends| ends.0)),
            line("sender knows the end, simulated", Style::Dashed, 2, points(&|ends| ends.1)),
        ],
    };
    let notes = vec![
        "a sender knows the end once the last block is answered: until then a page fault may have it sent again"
            .into(),
    ];
    Ok(Part { title: "Writes (ExaNeSt prototype)", lines, notes, plots: vec![plot], ..Part::default() })
}
