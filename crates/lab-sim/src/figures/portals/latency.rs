//! The latency of blocking puts over their size, beside MPI.

use super::sources::{AHEAD, LATENCY_AXIS, STAGES, TWICE};
use super::{Context, pairs};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use portals_sim::model::Parameters;

/// The upper end of the paper's axis, in microseconds.
const AXIS: f64 = 30.0;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let sizes = context.sizes(0..=11);
    let puts = sizes.iter().map(|size| {
        let took = pairs::put(&context.pair(), *size, 8).map_err(Failure::of("blocking puts"))?;
        Ok((f64::from(*size), took.0 as f64 * 1e-6))
    });
    let puts: Vec<_> = puts.collect::<Result<_, Failure>>()?;
    let [over_mpi, raw] = [|p: &Parameters| p.mpi.conduit_put_ns, |p: &Parameters| p.mpi.ping_ack_ns].map(|of| {
        let of = of(&context.parameters);
        sizes.iter().map(|size| mpi(&context.parameters, of, *size)).collect::<Vec<_>>()
    });
    let least = |other: &[(f64, f64)]| {
        let ratios = other.iter().zip(&puts).map(|(other, put)| other.1 / put.1);
        ratios.fold(f64::INFINITY, f64::min)
    };
    let largest = puts.iter().map(|put| put.1).fold(0.0, f64::max);
    let lines = vec![
        STAGES.value("put of 1 B", "us", 10.0, puts[0].1),
        TWICE.at_least("put of 1 B, MPI-based / Portals", "", 1.8, over_mpi[0].1 / puts[0].1).trained(true),
        AHEAD.at_least("put, raw MPI ping-ack / Portals, smallest", "", 1.0, least(&raw)).trained(true),
        AHEAD.at_least("put, MPI-based / Portals, smallest", "", 1.0, least(&over_mpi)).trained(true),
        LATENCY_AXIS.at_most("put up to 2 KiB, largest", "us", AXIS, largest),
    ];
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "put-latency",
        title: "Portals: latency of puts",
        subtitle: "blocking puts between neighbouring XT4 nodes; MPI recalled, only its order counts; the paper's axis ends at 30 us",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "latency, us", scale: Scale::Linear },
        series: vec![
            line("conduit over Portals, simulated", Style::Line, 0, puts),
            line("raw MPI ping-ack", Style::Dashed, 2, raw),
            line("conduit over MPI", Style::Dashed, 4, over_mpi),
        ],
    };
    Ok(Part { title: "Latency of puts (XT4)", lines, plots: vec![plot], ..Part::default() })
}

/// A point of an MPI curve: its time without bytes, and the bytes on the link.
pub(super) fn mpi(parameters: &Parameters, nanos: f64, size: u32) -> (f64, f64) {
    let bytes = f64::from(size);
    (bytes, nanos * 1e-3 + bytes / parameters.link.bandwidth_mb_s)
}
