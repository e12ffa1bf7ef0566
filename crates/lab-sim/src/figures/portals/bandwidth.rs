//! The bandwidth of a flood of puts over their size, beside a flood over MPI.

use super::sources::{BANDWIDTH_AXIS, FLOOD, LARGE};
use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};

/// The upper end of the paper's axis, in MB/s.
const AXIS: f64 = 1800.0;

/// The largest puts, and the size at which half of the link is reached, in bytes.
const TWO_MIB: f64 = 2_097_152.0;
const HALF: f64 = 4096.0;

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
    let large = puts.last().map_or(f64::NAN, |put| put.1);
    let lines = vec![
        FLOOD.at_least("flood of puts, Portals / raw MPI, smallest", "", 1.0, least).trained(true),
        BANDWIDTH_AXIS.at_most("flood of puts, largest", "MB/s", AXIS, most),
        LARGE.value("flood of puts of 2 MiB", "MB/s", link * TWO_MIB / (TWO_MIB + HALF), large),
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
    Ok(Part { title: "Bandwidth of puts (XT4)", lines, plots: vec![plot], ..Part::default() })
}
