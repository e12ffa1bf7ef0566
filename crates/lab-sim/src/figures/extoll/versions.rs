//! The first and the second implementation of active messages, on RandomAccess as a UPC program does it: how much
//! better the second is, over the number of processes.
//!
//! The paper says that the second is better by up to 53 %, in its figure on RandomAccess in UPC, and nothing of
//! what the first one did. What the first is here is this project's guess ([`Implementation`]): the
//! straightforward way of doing what the paper says of the second. So that it is behind is all that is compared;
//! how far is told and not judged.

use super::Context;
use super::random_access::ratios;
use super::sources::{IMPLEMENTATIONS, paper};
use super::updates::{self, Job, Layer};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
use extoll_sim::conduit::gasnet::Implementation;
use fabric_sim::Topology;

/// Percent that the second implementation is better at most, as published.
const MOST: f64 = 53.0;

const PROCESSES: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// What quick runs keep.
const FEW: [u32; 2] = [16, 64];

pub(super) fn run(context: &Context<'_>) -> Result<Part, Failure> {
    let (processes, updates) = if context.quick { (&FEW[..], 16) } else { (&PROCESSES[..], 64) };
    let curve = |layer| {
        let points = processes.iter().map(|processes| {
            context.progress.detail(format!("RandomAccess in UPC, {layer:?}, {processes} processes"));
            let machine = context.machines.cluster(*processes, Topology::Mesh { dims: vec![4, 4, 4] });
            let time = updates::run(&machine, layer, &Job::new(updates))?;
            Ok((f64::from(*processes), time / f64::from(updates)))
        });
        points.collect::<Result<Vec<_>, Failure>>()
    };
    let upc = |implementation| curve(Layer::Upc(implementation));
    let (upc_first, upc_second) = (upc(Implementation::First)?, upc(Implementation::Second)?);
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let gains: Vec<f64> = ratios(&upc_first, &upc_second).map(percent).collect();
    let least = gains.iter().copied().fold(f64::NAN, f64::min);
    let most = gains.iter().copied().fold(f64::NAN, f64::max);
    let lines = vec![IMPLEMENTATIONS.at_least("second implementation better by, least", "%", 0.0, least)];
    let not_reproduced = vec![NotReproduced {
        source: paper("figure 3, RandomAccess in UPC"),
        sentence: "the second implementation of active messages is better by up to 53 %",
        tried: format!(
            "RandomAccess by a get and a put of each word over active messages, with a first implementation of this \
             project's own making, since the paper does not say what the first one did: up to {most:.0} % better"
        ),
    }];
    let plot = Plot {
        name: "implementations",
        title: "EXTOLL: second implementation of active messages",
        subtitle: "more updates in the same time; RandomAccess by gets and puts of words; what the first did is a guess",
        x: Axis { label: "processes", scale: Scale::Binary },
        y: Axis { label: "more updates in the same time, %", scale: Scale::Linear },
        series: vec![
            Series {
                name: "simulated",
                style: Style::Line,
                colour: 0,
                points: upc_first.iter().map(|point| point.0).zip(gains).collect(),
            },
            Series {
                name: "claim: up to 53 %",
                style: Style::Marks,
                colour: 4,
                points: vec![(upc_first[0].0, MOST)],
            },
        ],
    };
    Ok(Part {
        title: "Two implementations of active messages (cluster, RandomAccess in UPC)",
        lines,
        not_reproduced,
        plots: vec![plot],
        ..Part::default()
    })
}
