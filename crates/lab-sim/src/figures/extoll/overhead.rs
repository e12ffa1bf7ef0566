//! Ping-pong on the cluster over message size: what the conduit adds to the raw interface, and what two-sided
//! messages add.

use super::Context;
use super::latency::points;
use super::pairs::{self, Kind, Trips};
use super::sources::{PING_PONG_MARGINAL, PING_PONG_NOTABLE, paper};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
use active_messages::Span;
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::GasnetConfig;
use extoll_sim::conduit::pscom::{Plugin, PscomConfig, imb};
use fabric_sim::RunError;

/// Round trips of each size: enough that credits go back in their usual rhythm.
const TRIPS: u32 = 16;

/// The largest message that goes over VELO in this comparison, which is the largest Medium one, in bytes.
const LARGEST_VELO: usize = 8 << 10;

/// A latency in microseconds for each size in bytes.
type Curve = Vec<(usize, f64)>;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let machine = context.machines.cluster_pair();
    let large = context.thin((3..=20).map(|power| 1 << power).collect());
    let small: Vec<usize> = large.iter().copied().filter(|size| *size <= LARGEST_VELO).collect();
    let active = |kind, sizes: &[usize]| {
        let gasnet = GasnetConfig::default();
        halves(&machine, sizes, |machine, trips| pairs::conduit(machine, &gasnet, kind, trips))
    };
    let two_sided = |plugin, sizes: &[usize]| {
        imb::ping_pong(&machine, &PscomConfig::default(), plugin, sizes).map_err(Failure::of("PingPong"))
    };
    // A program takes what is best for its size, in each layer.
    let raw = best(halves(&machine, &large, pairs::raw_rma)?, &halves(&machine, &small, pairs::raw_velo)?);
    let long = best(active(Kind::Long, &large)?, &active(Kind::Medium, &small)?);
    let conduit = best(long, &active(Kind::Short, &[8])?);
    let two_sided = best(two_sided(Plugin::Rma, &large)?, &two_sided(Plugin::Velo, &small)?);

    let smallest = |one: &Curve, other: &Curve| one[0].1 / other[0].1;
    let every = |one: &Curve, other: &Curve| {
        let ratios = one.iter().zip(other).map(|(one, other)| one.1 / other.1);
        ratios.collect::<Vec<f64>>()
    };
    let mean = |one: &Curve, other: &Curve| {
        let ratios = every(one, other);
        (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
    };
    let least = every(&two_sided, &conduit).into_iter().fold(f64::NAN, f64::min);
    let lines = vec![
        PING_PONG_MARGINAL.at_most("ping-pong, 8 B, conduit / raw", "", 1.10, smallest(&conduit, &raw)),
        PING_PONG_MARGINAL.at_most("ping-pong, mean, conduit / raw", "", 1.20, mean(&conduit, &raw)),
        PING_PONG_NOTABLE.at_least(
            "ping-pong, 8 B, two-sided / conduit",
            "",
            1.25,
            smallest(&two_sided, &conduit),
        ),
    ];
    let notes = vec![format!(
        "the largest messages are bound by the link and take as long in all layers: two-sided / conduit is {least:.3} at least"
    )];
    let behind = 100.0 * (mean(&two_sided, &conduit) - 1.0);
    let not_reproduced = vec![NotReproduced {
        source: paper("figure 9, ping-pong"),
        sentence: "MPI is notably behind both, at large sizes too",
        tried: format!(
            "MPI taken to be pscom's two-sided messages; over all sizes they are {behind:.1} % behind the conduit in the mean, where at \
             least 15 % was wanted before the run: the largest messages are bound by the link in every layer"
        ),
    }];
    let overhead = |curve: &Curve| {
        let added = curve.iter().zip(&raw).map(|(found, raw)| (found.0 as f64, 100.0 * (found.1 / raw.1 - 1.0)));
        added.collect::<Vec<_>>()
    };
    let line = |name, colour, points| Series { name, style: Style::Line, colour, points };
    let x = Axis { label: "message size, bytes", scale: Scale::Binary };
    let plots = vec![
        Plot {
            name: "overhead",
            title: "EXTOLL: what conduit and two-sided messages add",
            subtitle: "ping-pong between neighbouring nodes of the cluster, the best way of each for every size",
            x,
            y: Axis { label: "added to the raw latency, %", scale: Scale::Linear },
            series: vec![
                line("conduit (GASNet)", 0, overhead(&conduit)),
                line("two-sided (pscom)", 2, overhead(&two_sided)),
            ],
        },
        Plot {
            name: "ping-pong",
            title: "EXTOLL: ping-pong on the interface, the conduit, two-sided messages",
            subtitle: "neighbouring nodes of the cluster, the best way of each for every size",
            x,
            y: Axis { label: "latency, us", scale: Scale::Decimal },
            series: vec![
                line("raw VELO or RMA", 4, points(raw.clone())),
                line("conduit (GASNet)", 0, points(conduit.clone())),
                line("two-sided (pscom)", 2, points(two_sided.clone())),
            ],
        },
    ];
    Ok(Part { title: "Ping-pong in three layers (cluster)", lines, notes, not_reproduced, plots })
}

/// Half the time of a round trip, for each size.
pub(super) fn halves(
    machine: &ExtollConfig,
    sizes: &[usize],
    ping: impl Fn(&ExtollConfig, &[Trips]) -> Result<Vec<Span>, RunError>,
) -> Result<Curve, Failure> {
    let trips: Vec<Trips> = sizes.iter().map(|bytes| Trips { bytes: *bytes, count: TRIPS }).collect();
    let times = ping(machine, &trips).map_err(Failure::of("the ping-pong"))?;
    let each = times.iter().map(|time| time.0 as f64 / 1e6 / f64::from(2 * TRIPS));
    Ok(sizes.iter().copied().zip(each).collect())
}

/// A curve, with the values of another where they are smaller.
fn best(mut curve: Curve, other: &Curve) -> Curve {
    for (size, value) in &mut curve {
        if let Some((_, found)) = other.iter().find(|(found, _)| found == size) {
            *value = value.min(*found);
        }
    }
    curve
}
