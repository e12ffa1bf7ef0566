//! Active messages over their size: this project's own, so a picture without lines.

use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use active_messages::Category;

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.ring();
    let one_way = |category, bytes| pairs::one_way_us(&machine, category, bytes).map_err(Failure::of("messages"));
    let curve = |category, powers| {
        let sizes = context.sizes(powers).into_iter();
        sizes.map(|size| Ok((f64::from(size), one_way(category, size)?))).collect::<Result<Vec<_>, Failure>>()
    };
    let short = one_way(Category::Short, 0)?;
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "messages",
        title: "ExaNet: active messages",
        subtitle: "half a round trip between neighbours; the conduit is this project's, nothing of it was published",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "us", scale: Scale::Decimal },
        series: vec![
            line("Medium, simulated", Style::Line, 0, curve(Category::Medium, 3..=12)?),
            line("Long, simulated", Style::Line, 2, curve(Category::Long, 3..=16)?),
        ],
    };
    let notes = vec![format!("Short, half a round trip: {short:.2} us")];
    Ok(Part { title: "Active messages (model)", notes, plots: vec![plot], ..Part::default() })
}
