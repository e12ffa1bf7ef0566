//! Active messages beside the interface that carries them, and beside the same on an MPI library.

use super::pairs::{self, Kind, Way};
use super::sources::{BEHIND, ON_MPI, SHORT, SOFTWARE, TIMES};
use super::{Context, Curve, curve, is_training, points};
use crate::figures::line::Group;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use sci_sim::conduit::ConduitConfig;

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
    let published = |group: &'static Group, name: &'static str, value, found| {
        group.value(name, "us", value, found).trained(is_training(name))
    };
    let lines = vec![
        published(&SHORT, "Short, two lines, one-way", 5.0, short),
        BEHIND.value("Short behind raw stores of 80 B", "us", 1.84, short - raw),
        SOFTWARE.value("Medium, 944 B, one-way", "us", 8.22, medium),
        published(&ON_MPI, "Short on MPI, one-way", 15.0, short_mpi),
        TIMES.value("Short ahead of the same on MPI", "times", 3.0, short_mpi / short),
        SOFTWARE.value("Long, 64 KB by DMA, one-way", "us", expected, long),
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
            series("the same on MPI, assumed", Style::Line, 2, &over_mpi),
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
    Ok(Part { title: "Active messages", lines, notes, plots: vec![plot], ..Part::default() })
}
