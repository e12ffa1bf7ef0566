//! Round trips of Medium messages over their size, on both Portals, beside the conduit over MPI.

use super::latency::mpi;
use super::sources::{MEDIUM, STAGES};
use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use portals_sim::conduit::{ConduitConfig, FlowControl};

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let sizes: Vec<u32> = context.sizes(0..=10).into_iter().chain([1984]).collect();
    let curve = |flow: FlowControl| {
        let points = sizes.iter().map(|size| {
            let took = pairs::round_trip(&context.pair(), &ConduitConfig::with(flow), *size, 8);
            let took = took.map_err(Failure::of("round trips"))?;
            Ok((f64::from(*size), took.0 as f64 * 1e-6))
        });
        points.collect::<Result<Vec<_>, Failure>>()
    };
    let (credits, disable) = (curve(FlowControl::Bank)?, curve(FlowControl::Disable)?);
    let over_mpi: Vec<_> = sizes
        .iter()
        .map(|size| {
            let (x, one) = mpi(&context.parameters, context.parameters.mpi.conduit_round_trip_ns, *size);
            // The bytes go both ways.
            (x, one + x / context.parameters.link.bandwidth_mb_s)
        })
        .collect();
    let most = credits.iter().zip(&over_mpi).map(|(one, mpi)| one.1 / mpi.1).fold(0.0, f64::max);
    let lines = vec![
        STAGES.value("Medium round trip of 1 B", "us", 13.0, credits[0].1),
        MEDIUM.at_most("Medium round trip, Portals / MPI-based, largest", "", 1.0, most).trained(true),
    ];
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "medium",
        title: "Portals: round trips of Medium messages",
        subtitle: "as many bytes there as back, between neighbouring XT4 nodes; MPI recalled",
        x: Axis { label: "payload, bytes", scale: Scale::Binary },
        y: Axis { label: "round trip, us", scale: Scale::Linear },
        series: vec![
            line("credits on Portals 3.3, simulated", Style::Line, 0, credits),
            line("disabled portals on Portals 4, simulated", Style::Line, 1, disable),
            line("conduit over MPI", Style::Dashed, 4, over_mpi),
        ],
    };
    Ok(Part { title: "Round trips of Medium messages (XT4)", lines, plots: vec![plot], ..Part::default() })
}
