//! RandomAccess of the conduit paper: 16 to 1024 processes, sixteen on a node, on the 3D and the 2D mesh.
//!
//! Two ways of updating. *One by one*: each update is acknowledged before the next, so that what the layers add
//! shows; with more under way the sixteen processes of a node saturate its interface, and all layers take as long.
//! *As many as the network takes*: each update in a packet of its own and none acknowledged, on the raw interface;
//! what all processes together reach is the performance whose jump from 256 to 512 processes the paper lays to the
//! topology. It gives no values and no placement, so nodes are filled in order, by blocks, or drawn at random, and
//! a crossbar, which has no topology to speak of, stands beside the meshes. The number of updates is fixed per
//! process.

use super::Context;
use super::machines::PER_NODE;
use super::sources::{CROSSBAR, UPDATES_MARGINAL, UPDATES_NOTABLE, paper};
use super::updates::{self, Job, Layer};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
use fabric_sim::Topology;
use lab::random_access::hpcc::Stream;

const PROCESSES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// What quick runs keep: all that lines need.
const FEW: [u32; 2] = [256, 512];

const MESHES: [(&str, &[u32]); 2] = [("3D mesh", &[4, 4, 4]), ("2D mesh", &[8, 8])];

/// Nodes of the cluster.
const NODES: u32 = 64;

/// Layers, with the names of their curves on either mesh and the colour that they have in all plots.
const LAYERS: [(Layer, [&str; 2], usize); 3] = [
    (Layer::Raw, ["raw VELO, 3D mesh", "raw VELO, 2D mesh"], 4),
    (Layer::Conduit, ["conduit, 3D mesh", "conduit, 2D mesh"], 0),
    (Layer::TwoSided, ["two-sided, 3D mesh", "two-sided, 2D mesh"], 2),
];

/// Microseconds of an update, by number of processes.
type Curve = Vec<(f64, f64)>;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let (lines, plot) = one_by_one(context)?;
    let together = together(context)?;
    Ok(Part {
        title: "RandomAccess (cluster, 16 processes on a node)",
        lines: lines.into_iter().chain(together.lines).collect(),
        plots: [plot].into_iter().chain(together.plots).collect(),
        ..together
    })
}

fn one_by_one(context: &Context<'_>) -> Result<(Vec<Line>, Plot), Failure> {
    let job = Job::new(if context.quick { 48 } else { 128 });
    let mut curves = Vec::new();
    for (layer, names, _) in LAYERS {
        for (mesh, name) in MESHES.iter().zip(names) {
            curves.push((name, curve(context, layer, &job, mesh)?));
        }
    }
    let [raw_3d, raw_2d, conduit_3d, conduit_2d, two_sided_3d, two_sided_2d] = &curves[..] else {
        unreachable!("there are three layers and two meshes");
    };
    let mut lines = Vec::new();
    let meshes = [("3D", raw_3d, conduit_3d, two_sided_3d), ("2D", raw_2d, conduit_2d, two_sided_2d)];
    for (mesh, raw, conduit, two_sided) in meshes {
        let most = ratios(&conduit.1, &raw.1).fold(f64::NAN, f64::max);
        let name = format!("RandomAccess, {mesh}, conduit / raw, largest");
        lines.push(UPDATES_MARGINAL.at_most(name, "", 1.10, most));
        for (other, curve) in [("conduit", conduit), ("raw", raw)] {
            let least = ratios(&two_sided.1, &curve.1).fold(f64::NAN, f64::min);
            let name = format!("RandomAccess, {mesh}, two-sided / {other}, smallest");
            lines.push(UPDATES_NOTABLE.at_least(name, "", 1.20, least));
        }
    }
    let plot = Plot {
        name: "random-access",
        title: "EXTOLL: RandomAccess, updates one by one",
        subtitle: "16 processes on a node, one update of a process under way, a fixed number for each",
        x: Axis { label: "processes", scale: Scale::Binary },
        y: Axis { label: "time of an update, us", scale: Scale::Linear },
        series: curves
            .iter()
            .enumerate()
            .map(|(number, (name, points))| Series {
                name,
                style: if number % 2 == 0 { Style::Line } else { Style::Dashed },
                colour: LAYERS[number / 2].2,
                points: points.clone(),
            })
            .collect(),
    };
    Ok((lines, plot))
}

/// Which nodes a job of some nodes gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// The first ones.
    Linear,
    /// A block as near to a cube or square as there is.
    Block,
    /// Any, drawn by a seed.
    Random,
}

impl Placement {
    const ALL: [Self; 3] = [Self::Linear, Self::Block, Self::Random];

    const fn name(self) -> &'static str {
        match self {
            Self::Linear => "in order",
            Self::Block => "blocks",
            Self::Random => "at random",
        }
    }

    /// The nodes of a job on a machine of these extents.
    fn nodes(self, count: u32, dims: &[u32]) -> Vec<u32> {
        match self {
            Self::Linear => (0..count).collect(),
            Self::Block => {
                // The smallest extent is doubled, of equal ones the first.
                let mut block = vec![1; dims.len()];
                while block.iter().product::<u32>() < count {
                    let grows = (0..dims.len()).filter(|dim| block[*dim] < dims[*dim]);
                    let grows = grows.min_by_key(|dim| block[*dim]).expect("the machine holds the job");
                    block[grows] *= 2;
                }
                let inside = |node: &u32| {
                    let mut rest = *node;
                    dims.iter().zip(&block).all(|(extent, part)| {
                        let at = rest % extent;
                        rest /= extent;
                        at < *part
                    })
                };
                (0..NODES).filter(inside).collect()
            }
            Self::Random => {
                let mut nodes: Vec<u32> = (0..NODES).collect();
                let draws = Stream::new(1 << 40, 0..u64::from(NODES));
                for (last, draw) in (1..nodes.len()).rev().zip(draws) {
                    nodes.swap(last, (draw % (last as u64 + 1)) as usize);
                }
                nodes.truncate(count as usize);
                nodes
            }
        }
    }
}

/// What the performance of all processes together does from 256 to 512 processes, beyond doubling, and whether
/// that is a jump: a quarter, either way.
fn step(curve: &Curve) -> f64 {
    at(curve, 512.0) / at(curve, 256.0) / 2.0
}

const JUMP: f64 = 1.25;

fn together(context: &Context<'_>) -> Result<Part, Failure> {
    let grid = |dims: &[u32]| Topology::Mesh { dims: dims.to_vec() };
    let machines = [
        ("3D mesh 4x4x4", &[4, 4, 4][..], grid(&[4, 4, 4])),
        ("2D mesh 8x8", &[8, 8], grid(&[8, 8])),
        ("crossbar", &[64], Topology::Crossbar { nodes: NODES }),
    ];
    let processes = if context.quick { &FEW[..] } else { &PROCESSES[..] };
    let updates = if context.quick { 32 } else { 256 };
    let (mut series, mut steps) = (Vec::new(), Vec::new());
    for (colour, (name, dims, topology)) in machines.iter().enumerate() {
        for placement in Placement::ALL {
            // One place of a crossbar is as good as another.
            if *name == "crossbar" && placement != Placement::Linear
                || context.quick && placement == Placement::Block
            {
                continue;
            }
            let points = processes.iter().map(|processes| {
                let how = placement.name();
                context.progress.detail(format!("RandomAccess, {processes} processes on the {name}, {how}"));
                let nodes = placement.nodes(processes / PER_NODE, dims);
                let ranks = nodes.iter().flat_map(|node| node * PER_NODE..(node + 1) * PER_NODE).collect();
                let machine = context.machines.cluster(NODES * PER_NODE, topology.clone());
                let time = updates::run(&machine, Layer::Stream, &Job { updates, ranks: Some(ranks) })?;
                Ok((f64::from(*processes), f64::from(*processes) * f64::from(updates) / time))
            });
            let points: Curve = points.collect::<Result<_, Failure>>()?;
            steps.push((*name, placement, step(&points)));
            if placement == Placement::Linear {
                series.push(Series { name, style: Style::Line, colour, points });
            }
        }
    }
    let told: Vec<_> =
        steps.iter().map(|(name, how, step)| format!("{name}, {}: {step:.2}", how.name())).collect();
    let told = told.join("; ");
    let crossbar = steps.iter().find(|(name, ..)| *name == "crossbar").map_or(f64::NAN, |(.., step)| *step);
    let lines = vec![CROSSBAR.value("RandomAccess, 256 to 512, crossbar, / doubling", "", 1.0, crossbar)];
    let jumps = |mesh: &str| {
        let found = steps.iter().filter(|(name, ..)| name.starts_with(mesh));
        found.filter(|(.., step)| *step >= JUMP || *step <= 1.0 / JUMP).count()
    };
    let tried = format!(
        "total updates per second with one update in a packet, from 256 to 512 processes, divided by two: {told}; read as a jump \
         from {JUMP} on, or below the reciprocal: {} of the placements on the 3D mesh, {} on the 2D mesh",
        jumps("3D"),
        jumps("2D")
    );
    let not_reproduced = vec![NotReproduced {
        source: paper("figure 15, RandomAccess"),
        sentence: "the performance jumps from 256 to 512 processes on the 3D mesh, by its topology, and not on the 2D mesh",
        tried,
    }];
    let plot = Plot {
        name: "random-access-total",
        title: "EXTOLL: RandomAccess, as many updates as the network takes",
        subtitle: "raw VELO, one update in a packet, 16 processes on a node, nodes filled in order",
        x: Axis { label: "processes", scale: Scale::Binary },
        y: Axis { label: "updates of all processes, million/s", scale: Scale::Decimal },
        series,
    };
    Ok(Part { lines, not_reproduced, plots: vec![plot], ..Part::default() })
}

/// The time of an update over the number of processes.
fn curve(context: &Context<'_>, layer: Layer, job: &Job, mesh: &(&str, &[u32])) -> Result<Curve, Failure> {
    let (name, dims) = mesh;
    let processes = if context.quick { &FEW[..] } else { &PROCESSES[..] };
    let each = processes.iter().map(|processes| {
        context.progress.detail(format!("RandomAccess, {layer:?}, {processes} processes on the {name}"));
        let machine = context.machines.cluster(*processes, Topology::Mesh { dims: dims.to_vec() });
        let time = updates::run(&machine, layer, job)?;
        Ok((f64::from(*processes), time / f64::from(job.updates)))
    });
    each.collect()
}

/// How much longer one takes than another, for every number of processes.
pub(super) fn ratios<'a>(one: &'a Curve, other: &'a Curve) -> impl Iterator<Item = f64> + 'a {
    one.iter().zip(other).map(|(one, other)| one.1 / other.1)
}

fn at(curve: &Curve, processes: f64) -> f64 {
    curve.iter().find(|point| point.0 == processes).map_or(f64::NAN, |point| point.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_give_different_nodes() {
        for count in [1, 2, 4, 8, 16, 32, 64] {
            for placement in Placement::ALL {
                let mut nodes = placement.nodes(count, &[4, 4, 4]);
                nodes.sort_unstable();
                nodes.dedup();
                assert!(nodes.len() == count as usize && nodes.iter().all(|node| *node < NODES), "{placement:?}");
            }
        }
        assert_eq!(Placement::Block.nodes(8, &[4, 4, 4]), [0, 1, 4, 5, 16, 17, 20, 21]);
        assert_eq!(Placement::Block.nodes(4, &[8, 8]), [0, 1, 8, 9]);
    }
}
