//! The bench of the simulator, in two kinds of time. That of one core: how fast the machine in virtual time runs, beside
//! a bare binary heap with as many pending events. Virtual: what simulated networks take, which is the same on every machine.
//! `cargo bench --bench sim` measures everything and writes `target/summary/sim.json` and `sim.svg`; a filter measures a part
//! and writes nothing; `cargo test --benches` runs everything once.

/// The ping-pongs that the reproduction of EXTOLL's figures runs.
#[path = "../examples/figures/extoll/pairs.rs"]
mod pairs;
/// The pairs of ranks that the figures of Portals run.
#[path = "../examples/figures/portals/pairs.rs"]
#[allow(dead_code, reason = "floods are for the figures alone")]
mod portals_pairs;
/// Those of the reproduction of SCI's figures.
#[path = "../examples/figures/sci/pairs.rs"]
#[allow(dead_code, reason = "the reproduction times reads and streams, too")]
mod sci_pairs;
#[path = "sim_support/mod.rs"]
mod sim_support;
#[allow(dead_code, reason = "what all benches share; this one needs a part")]
mod support;

use criterion::Criterion;

use sim_support::measure::Bench;
use sim_support::{engine, extoll, fabric, picture, portals, sci};
use support::command::CommandLine;
use support::publish::publish;

fn main() {
    let command = CommandLine::of_process();
    let mode = command.mode;
    let mut criterion = Criterion::default().configure_from_args();
    let mut bench = Bench::new(&mut criterion, "sim", command);
    engine::measure(&mut bench);
    fabric::measure(&mut bench);
    extoll::measure(&mut bench);
    portals::measure(&mut bench);
    sci::measure(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    publish(&summary, mode, picture::chart);
}
