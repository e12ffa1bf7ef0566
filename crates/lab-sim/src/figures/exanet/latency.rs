//! The latency of small messages over the number of hops.

use super::{Context, PAPER, pairs, published};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use exanet_sim::model::fit::TRAINING_SET;

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.ring();
    let failed = Failure::of("small messages");
    let packets = (1..=8).map(|hops| pairs::packet_us(&machine, hops)).collect::<Result<Vec<_>, _>>();
    let packets = packets.map_err(failed)?;
    let parameters = &context.parameters;
    let software = parameters.mpi.software_ns * 1e-3;
    let message = |hops: usize| packets[hops - 1] + software;
    let wire = f64::from(64 + parameters.cell.header_bytes) / parameters.link.bandwidth_mb_s;
    let interface = packets[0] - parameters.link.latency_ns * 1e-3 - wire;
    let training = TRAINING_SET;
    let lines = vec![
        published("small MPI message, one hop", "us", training.one_hop_us, message(1), 0.001).from(PAPER),
        published("small MPI message, five hops", "us", training.five_hops_us, message(5), 0.001).from(PAPER),
        published("interface and library in it", "us", training.interface_us, interface, 0.001).from(PAPER),
    ];
    let points = |of: &dyn Fn(usize) -> f64| (1..=8).map(|hops| (hops as f64, of(hops))).collect::<Vec<_>>();
    let line = |name, style, colour, points| Series { name, style, colour, points };
    let plot = Plot {
        name: "latency",
        title: "ExaNet: latency of small messages",
        subtitle: "one way over hops of the torus; the published values are those that the table is fitted to",
        x: Axis { label: "hops", scale: Scale::Linear },
        y: Axis { label: "latency, us", scale: Scale::Linear },
        series: vec![
            line("MPI, simulated", Style::Line, 0, points(&message)),
            line("control packet, simulated", Style::Dashed, 2, points(&|hops| packets[hops - 1])),
            line(
                "MPI, published",
                Style::Marks,
                0,
                vec![(1.0, training.one_hop_us), (5.0, training.five_hops_us)],
            ),
        ],
    };
    let notes = vec![
        "MPI's software is the fitted rest, not a library: no two-sided protocol runs here".into(),
        "not reproduced: up to 50 % lower latency of receiver-initiated long messages, up to 10 % less application time, 30 x \
         below MPICH (two-sided protocols on the interface); up to 88 % lower allreduce latency (an accelerator in the \
         interface); at least 69 % parallel efficiency of HPCG, LAMMPS and miniFE"
            .into(),
    ];
    Ok(Part { title: "Latency of small messages (ExaNeSt prototype)", lines, notes, plots: vec![plot] })
}
