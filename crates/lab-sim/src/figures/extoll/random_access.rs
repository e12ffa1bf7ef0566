//! RandomAccess of the conduit paper: 16 to 1024 processes, sixteen on a node, nodes filled in order, on the 3D and the 2D
//! mesh.
//!
//! Two ways of updating. *One by one*: each update is acknowledged before the next, so that what the layers add shows; with
//! more under way the sixteen processes of a node saturate its interface, and all layers take as long. *Packed*: up to eight
//! updates in a packet and 1024 held back, as the benchmark's rules allow, on the raw interface; that loads the network as
//! much as it can take. The number of updates is fixed per process: then a machine that scales takes the same time at any
//! size, and whatever rises is the network's doing.
//!
//! Why the 3D mesh alone jumps from 256 to 512 processes: 1024 updates held back for 256 owners still fill packets of eight,
//! for 512 owners they do not. The 3D mesh is bound by packets, which an interface takes one by one, and so takes as much longer
//! as there are more. On the 2D mesh a link in the middle carries the traffic of twice as many nodes and is bound by bytes,
//! which hardly change.

use super::Context;
use super::updates::{self, Job, Layer};
use crate::figures::line::Line;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use fabric_sim::Topology;

const PROCESSES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// What quick runs keep: all that lines need.
const FEW: [u32; 2] = [256, 512];

const MESHES: [(&str, &[u32]); 2] = [("3D mesh", &[4, 4, 4]), ("2D mesh", &[8, 8])];

/// Layers, with the names of their curves on either mesh and the colour that they have in all plots.
const LAYERS: [(Layer, [&str; 2], usize); 3] = [
    (Layer::Raw, ["raw VELO, 3D mesh", "raw VELO, 2D mesh"], 4),
    (Layer::Conduit, ["conduit, 3D mesh", "conduit, 2D mesh"], 0),
    (Layer::TwoSided, ["two-sided, 3D mesh", "two-sided, 2D mesh"], 2),
];

const MARGINAL: &str =
    "conduit paper: RandomAccess on the conduit is only marginally behind raw VELO and RMA; read as at most 10 %";
const NOTABLE: &str = "conduit paper: MPI is notably behind both; read as at least 20 %";
const JUMP: &str = "conduit paper: the time jumps from 256 to 512 processes on the 3D mesh, which the 2D mesh does not show; \
                    read as a step at least 1.25 times as large";

/// Microseconds of an update, by number of processes.
type Curve = Vec<(f64, f64)>;

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let (mut lines, mut plots) = (Vec::new(), Vec::new());
    let mut one_by_one = Vec::new();
    for (layer, names, _) in LAYERS {
        let job = Job { updates: if context.quick { 48 } else { 128 } };
        for (mesh, name) in MESHES.iter().zip(names) {
            one_by_one.push((name, curve(context, layer, job, mesh)?));
        }
    }
    let [raw_3d, raw_2d, conduit_3d, conduit_2d, two_sided_3d, two_sided_2d] = &one_by_one[..] else {
        unreachable!("there are three layers and two meshes");
    };
    let meshes = [("3D", raw_3d, conduit_3d, two_sided_3d), ("2D", raw_2d, conduit_2d, two_sided_2d)];
    for (mesh, raw, conduit, two_sided) in meshes {
        let most = ratios(&conduit.1, &raw.1).fold(f64::NAN, f64::max);
        let name = format!("RandomAccess, {mesh}, conduit / raw, largest");
        lines.push(Line::at_most(name, "", 1.10, most).from(MARGINAL).held_out());
        for (other, curve) in [("conduit", conduit), ("raw", raw)] {
            let least = ratios(&two_sided.1, &curve.1).fold(f64::NAN, f64::min);
            let name = format!("RandomAccess, {mesh}, two-sided / {other}, smallest");
            lines.push(Line::at_least(name, "", 1.20, least).from(NOTABLE).held_out());
        }
    }
    plots.push(Plot {
        name: "random-access",
        title: "EXTOLL: RandomAccess, updates one by one",
        subtitle: "16 processes on a node, one update of a process under way, a fixed number for each",
        x: Axis { label: "processes", scale: Scale::Binary },
        y: Axis { label: "time of an update, us", scale: Scale::Linear },
        series: one_by_one
            .iter()
            .enumerate()
            .map(|(number, (name, points))| Series {
                name,
                style: if number % 2 == 0 { Style::Line } else { Style::Dashed },
                colour: LAYERS[number / 2].2,
                points: points.clone(),
            })
            .collect(),
    });

    let job = Job { updates: if context.quick { 2048 } else { 4096 } };
    let packed =
        [curve(context, Layer::Packed, job, &MESHES[0])?, curve(context, Layer::Packed, job, &MESHES[1])?];
    let [step_3d, step_2d] = packed.each_ref().map(|curve| at(curve, 512.0) / at(curve, 256.0));
    let name = "RandomAccess, step 256 to 512, 3D / 2D mesh";
    lines.push(Line::at_least(name, "", 1.25, step_3d / step_2d).from(JUMP).held_out());
    let notes = vec![format!(
        "packed updates: from 256 to 512 processes an update takes {step_3d:.2} times as long on the 3D mesh, {step_2d:.2} times on the 2D mesh"
    )];
    let [of_3d, of_2d] = packed;
    plots.push(Plot {
        name: "random-access-packed",
        title: "EXTOLL: RandomAccess, packed updates on raw VELO",
        subtitle: "16 processes on a node, up to 8 updates in a packet, a fixed number for each process",
        x: Axis { label: "processes", scale: Scale::Binary },
        y: Axis { label: "time of an update, us", scale: Scale::Linear },
        series: vec![
            Series { name: "3D mesh 4x4x4", style: Style::Line, colour: 0, points: of_3d },
            Series { name: "2D mesh 8x8", style: Style::Dashed, colour: 1, points: of_2d },
        ],
    });
    Ok(Part { title: "RandomAccess (cluster, 16 processes on a node)", lines, notes, plots })
}

/// The time of an update over the number of processes.
fn curve(context: &Context<'_>, layer: Layer, job: Job, mesh: &(&str, &[u32])) -> Result<Curve, Failure> {
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
fn ratios<'a>(one: &'a Curve, other: &'a Curve) -> impl Iterator<Item = f64> + 'a {
    one.iter().zip(other).map(|(one, other)| one.1 / other.1)
}

fn at(curve: &Curve, processes: f64) -> f64 {
    curve.iter().find(|point| point.0 == processes).map_or(f64::NAN, |point| point.1)
}
