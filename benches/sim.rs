//! The bench of the simulator, in two kinds of time. That of one core: how fast the machine in virtual time runs,
//! beside a bare binary heap with as many pending events. Virtual: what simulated networks take, which is the same
//! on every machine. `cargo bench --bench sim` measures everything and writes `target/summary/sim.json` and
//! `sim.svg`; a filter measures a part and writes nothing; `cargo test --benches` runs everything once.

mod sim_support;

use criterion::Criterion;

use lab::bench::command::CommandLine;
use lab::bench::publish::publish;
use sim_support::measure::Bench;
use sim_support::{collectives, engine, extoll, fabric, many, parallel, picture, portals, sci};

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
    collectives::measure(&mut bench);
    many::measure(&mut bench);
    parallel::measure(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    publish(&summary, mode, env!("CARGO_TARGET_TMPDIR").as_ref(), picture::chart);
}
