//! The latency of small messages over the number of hops.

use super::sources::PROTOTYPE;
use super::{Context, pairs, published};
use crate::figures::line::Source;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
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
        published("small MPI message, one hop", "us", training.one_hop_us, message(1)),
        published("small MPI message, five hops", "us", training.five_hops_us, message(5)),
        published("interface and library in it", "us", training.interface_us, interface),
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
                "published: MPI",
                Style::Marks,
                0,
                vec![(1.0, training.one_hop_us), (5.0, training.five_hops_us)],
            ),
        ],
    };
    let notes =
        vec!["MPI's software is the fitted rest of a control packet's time; protocols show it in full".into()];
    let missing = |sentence, tried: &str| NotReproduced {
        source: Source { document: PROTOTYPE, place: "abstract, and text on MPI and applications" },
        sentence,
        tried: tried.into(),
    };
    let not_reproduced = vec![
        missing(
            "an accelerator in the interface takes up to 88 % off the latency of allreduce",
            "nothing was tried: the accelerator is not modelled",
        ),
        missing(
            "HPCG, LAMMPS and miniFE reach at least 69 % of parallel efficiency",
            "nothing was tried: there are no such programs here, and no times of theirs are published",
        ),
    ];
    Ok(Part {
        title: "Latency of small messages (ExaNeSt prototype)",
        lines,
        notes,
        not_reproduced,
        plots: vec![plot],
    })
}
