//! Stencil: heat spreads in a cube whose layers are spread over all ranks, which exchange their outermost layers
//! by puts that signal.
//!
//! `cargo run --release --example stencil -- --ranks 4`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use active_messages::zerocopy::IntoBytes;
use std::f64::consts::PI;

struct Stencil {
    /// Points of an edge of the cube; it is cold around.
    edge: usize,
    steps: u64,
    json: bool,
}

/// How far heat gets in a step: at most a sixth.
const SPREAD: f64 = 0.125;

struct State {
    pgas: Pgas,
    /// Errors, and the squares of the last step's changes.
    sums: [f64; 2],
}
pgas_state!(State, pgas);

impl Stencil {
    /// The state that keeps its form, at a point.
    fn wave(&self, place: [usize; 3]) -> f64 {
        place.iter().map(|x| (PI * (x + 1) as f64 / (self.edge + 1) as f64).sin()).product()
    }

    /// Bytes of a layer.
    fn layer(&self) -> usize {
        8 * self.edge * self.edge
    }

    /// Where a layer from below (0) or above (1) is put in the segment, of even and odd steps. Two counters lie
    /// before them.
    fn ghost(&self, side: usize, step: u64) -> u64 {
        (16 + (2 * side + step as usize % 2) * self.layer()) as u64
    }
}

impl Program for Stencil {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let sum = |state: &mut State, sums: &[[f64; 2]]| {
            sums.iter()
                .for_each(|[errors, changes]| state.sums = [state.sums[0] + errors, state.sums[1] + changes]);
        };
        let sum =
            Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", AggregatorConfig::new(), sum)?;
        let mut endpoint = rank.attach(handlers, State { pgas, sums: [0.0; 2] })?;
        let (me, ranks, edge) = (endpoint.rank().0 as usize, endpoint.ranks() as usize, self.edge);
        let layers = me * edge / ranks..(me + 1) * edge / ranks;
        // A layer from each neighbour around this rank's own; the outermost of all stay cold.
        let (area, count) = (edge * edge, layers.len());
        let mut heat = vec![0.0; (count + 2) * area];
        for (index, point) in heat[area..(count + 1) * area].iter_mut().enumerate() {
            *point = self.wave([layers.start + index / area, index / edge % edge, index % edge]);
        }
        let (mut next, mut changes) = (heat.clone(), 0.0);
        endpoint.barrier()?;
        let start = endpoint.now();
        for step in 0..self.steps {
            // Where this rank is the one above, its lowest layer is put; where it is the one below, its highest.
            let neighbours = [(me > 0).then(|| (me - 1, 1, 1)), (me + 1 < ranks).then(|| (me + 1, 0, count))];
            for (to, side, layer) in neighbours.into_iter().flatten() {
                let bytes = heat[layer * area..][..area].as_bytes();
                let put = endpoint.put_signal(Rank(to as u32), self.ghost(side, step), bytes, 8 * side as u64)?;
                endpoint.wait(put)?;
            }
            for (side, (_, _, layer)) in
                neighbours.into_iter().enumerate().filter_map(|(side, to)| Some((side, to?)))
            {
                endpoint.wait_signal(8 * side as u64, step + 1)?;
                let ghost = &mut heat[if layer == 1 { 0 } else { (count + 1) * area }..][..area];
                endpoint.segment().read(self.ghost(side, step), ghost.as_mut_bytes())?;
            }
            changes = 0.0;
            for index in area..(count + 1) * area {
                let (y, x) = (index / edge % edge, index % edge);
                let mut around = heat[index - area] + heat[index + area];
                around += if y > 0 { heat[index - edge] } else { 0.0 }
                    + if y + 1 < edge { heat[index + edge] } else { 0.0 };
                around +=
                    if x > 0 { heat[index - 1] } else { 0.0 } + if x + 1 < edge { heat[index + 1] } else { 0.0 };
                let change = SPREAD * (around - 6.0 * heat[index]);
                next[index] = heat[index] + change;
                changes += change * change;
            }
            std::mem::swap(&mut heat, &mut next);
            endpoint.charge(Span::from_nanos(10 * (count * area) as u64));
        }
        endpoint.barrier()?;
        let time = endpoint.now() - start;

        // Each step shrinks the wave by the same factor.
        let shrink = 1.0 - 6.0 * SPREAD * (1.0 - (PI / (edge + 1) as f64).cos());
        let left = shrink.powi(self.steps as i32);
        let points = heat[area..(count + 1) * area].iter().enumerate();
        let wrong = points.filter(|(index, heat)| {
            let due = left * self.wave([layers.start + index / area, index / edge % edge, index % edge]);
            (*heat - due).abs() > 1e-10
        });
        let wrong = wrong.count() as f64;
        endpoint.push(sum, Rank(0), [wrong, changes])?;
        endpoint.done(sum)?;
        let [errors, changes] = endpoint.finish()?.sums;
        if me != 0 {
            return Ok(());
        }
        let points = (area * edge) as f64 * self.steps as f64;
        let report = Report::new("stencil", ranks as u32, time).work(points, "points/s").errors(errors as u64);
        report
            .with("edge", edge as f64)
            .with("steps", self.steps as f64)
            .with("residual", changes.sqrt())
            .print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Spreads heat in a cube.", Options::new());
    let edge = flags.value("--edge", "N", 64usize, "points of an edge of the cube");
    let steps = flags.value("--steps", "N", 100, "steps in time");
    flags.require(
        edge >= flags.ranks() as usize && edge <= 4096,
        "--edge is at most 4096, with a layer for each rank",
    );
    // This state and the next, and two layers from each neighbour.
    let layers = 2 * (edge as u64).div_ceil(flags.ranks().into()) + 8;
    flags.memory("--edge", edge as u64, layers.saturating_mul(8).saturating_mul((edge as u64).saturating_pow(2)));
    flags.segment_bytes(16 + 32 * edge * edge);
    let json = flags.json();
    flags.run(Stencil { edge, steps, json })
}
