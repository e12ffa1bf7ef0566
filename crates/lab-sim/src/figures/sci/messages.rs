//! Active messages beside the interface that carries them, and beside the same on an MPI library.

use super::pairs::{self, Kind, Way};
use super::{Context, Curve, curve, points};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use sci_sim::conduit::ConduitConfig;

const SHORT: &str = "the paper: a Short message takes 5 us [S]; one-way, since two raw transfers take 6.3 us [D]";
const MEDIUM: &str = "the sheet's prediction: 16 lines and the same 1.84 us of software as a Short message [D]";
const MPI: &str = "the paper: about 15 us on MPI [S]; what MPI adds is a parameter, 10 us [A]";
const TIMES: &str = "the paper: three times as fast as on MPI [S]";
const LONG: &str = "by the parameters: construction 0.35, copy S/400, DMA t0 + S/300 and its notice, header and flags as Short [A]";

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.pair();
    let ping = |config: &ConduitConfig, kind, sizes: &[usize]| {
        curve("active messages", sizes, |size| pairs::messages(&machine, config, kind, size))
    };
    let paper = ConduitConfig {
        dma_from: u64::from(context.parameters.dma.crossover_bytes),
        segment: 1 << 18,
        ..ConduitConfig::paper()
    };
    let mpi = ConduitConfig { through_mpi: true, ..paper.clone() };
    let short = ping(&paper, Kind::Short, &[0])?[0].1;
    let short_mpi = ping(&mpi, Kind::Short, &[0])?[0].1;
    let medium = ping(&paper, Kind::Medium, &[944])?[0].1;
    let raw = curve("raw transfers", &[80], |size| pairs::raw(&machine, Way::Stores, size))?[0].1;
    let large = 64 << 10;
    let long = ping(&paper, Kind::Long, &[large])?[0].1;
    let bytes = large as f64;
    let expected = short + bytes / 400.0 + 3.2 + bytes / 300.0;
    let lines = vec![
        Line::value("Short, two lines, one-way", "us", 5.0, short, 0.1).from(SHORT),
        Line::value("Short behind raw stores of 80 B", "us", 1.84, short - raw, 0.1).from(SHORT),
        Line::value("Medium, 944 B, one-way", "us", 8.2, medium, 0.15).from(MEDIUM).held_out(),
        Line::value("Short on MPI, one-way", "us", 15.0, short_mpi, 0.3).from(MPI),
        Line::value("Short ahead of the same on MPI", "times", 3.0, short_mpi / short, 0.1).from(TIMES),
        Line::value("Long, 64 KB by DMA, one-way", "us", expected, long, 0.02 * expected).from(LONG).held_out(),
    ];

    let sizes = context.thin((3..=16).map(|power| 1 << power).collect());
    let small: Vec<usize> = context.thin([8, 16, 32, 64, 128, 256, 512, 944].to_vec());
    let raw = curve("raw transfers", &sizes, |size| pairs::raw(&machine, Way::Stores, size))?;
    let mediums = ping(&paper, Kind::Medium, &small)?;
    let longs = ping(&paper, Kind::Long, &sizes)?;
    let mut over_mpi = ping(&mpi, Kind::Medium, &small)?;
    over_mpi.extend(ping(&mpi, Kind::Long, &sizes)?.into_iter().filter(|(size, _)| *size > 944));
    let shorts = vec![(8, short), (64, short)];
    let series = |name, style, colour, curve: &Curve| Series { name, style, colour, points: points(curve) };
    let plot = Plot {
        name: "messages",
        title: "SCI: active messages against the interface and against MPI",
        subtitle: "one-way, sixteen arguments, between neighbouring nodes; Long by DMA from 2 KB on",
        x: Axis { label: "payload, bytes", scale: Scale::Binary },
        y: Axis { label: "time, us", scale: Scale::Decimal },
        series: vec![
            series("Short (no payload)", Style::Dashed, 3, &shorts),
            series("Medium", Style::Line, 0, &mediums),
            series("Long", Style::Line, 1, &longs),
            series("the same on MPI [A]", Style::Line, 2, &over_mpi),
            series("raw stores", Style::Line, 4, &raw),
            Series {
                name: "published: Short; on MPI",
                style: Style::Marks,
                colour: 3,
                points: vec![(8.0, 5.0), (8.0, 15.0)],
            },
        ],
    };
    let notes = vec![
        "a Short message with sixteen arguments fills two lines, as 80 bytes do; one without arguments takes one line".into(),
        "what MPI adds is assumed, so the line \"on MPI\" shows the arithmetic, not a machine".into(),
    ];
    Ok(Part { title: "Active messages", lines, notes, plots: vec![plot] })
}
