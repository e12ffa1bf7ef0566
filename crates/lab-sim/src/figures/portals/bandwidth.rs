//! The bandwidth of a flood of puts over their size, beside a flood over MPI.

use super::{Context, PAPER, pairs};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};

/// The upper end of the paper's axis, in MB/s.
const AXIS: f64 = 1800.0;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let sizes = context.sizes(8..=21);
    let puts = sizes.iter().map(|size| {
        let count = (1 << 24 >> size.ilog2()).clamp(16, 512);
        let rate = pairs::flood(&context.pair(), *size, count).map_err(Failure::of("a flood of puts"))?;
        Ok((f64::from(*size), rate * 1e-6))
    });
    let puts: Vec<_> = puts.collect::<Result<_, Failure>>()?;
    let (link, half) =
        (context.parameters.link.bandwidth_mb_s, f64::from(context.parameters.mpi.flood_half_bytes));
    let mpi: Vec<_> = puts.iter().map(|(size, _)| (*size, link * size / (size + half))).collect();
    let least = puts.iter().zip(&mpi).map(|(put, mpi)| put.1 / mpi.1).fold(f64::INFINITY, f64::min);
    let most = puts.iter().map(|put| put.1).fold(0.0, f64::max);
    let lines = vec![
        Line::at_least("flood of puts, Portals / raw MPI, smallest", "", 1.0, least).from(PAPER),
        Line::at_most("flood of puts, largest", "MB/s", AXIS, most).from("the axis of the paper's plot"),
        Line::at_least("flood of puts of 2 MiB", "MB/s", 1600.0, puts.last().map_or(0.0, |put| put.1))
            .from("sheet: 1650 S / (S + n), assumed; read as at least 1600"),
    ];
    let plot = Plot {
        name: "put-bandwidth",
        title: "Portals: bandwidth of puts",
        subtitle: "floods of puts between neighbouring XT4 nodes; MPI recalled; the paper's axis ends at 1800 MB/s",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "bandwidth, MB/s", scale: Scale::Linear },
        series: vec![
            Series { name: "conduit over Portals, simulated", style: Style::Line, colour: 0, points: puts },
            Series { name: "raw MPI flood", style: Style::Dashed, colour: 2, points: mpi },
        ],
    };
    Ok(Part { title: "Bandwidth of puts (XT4)", lines, notes: Vec::new(), plots: vec![plot] })
}
