//! The shared-memory bench: active messages between processes of one host beside what the same two processes reach with a
//! mapping and nothing else. `cargo bench --bench shm` measures everything and writes `target/summary/shm.json` and
//! `shm.svg`; a filter measures a part and writes nothing; `cargo test --benches` runs everything once.

mod shm_support;

use criterion::Criterion;

use lab::bench::command::{CommandLine, Mode};
use lab::bench::publish::publish;
use shm_support::case::Case;
use shm_support::cases::{self, TABLE_WORDS};
use shm_support::crew::{Crew, serve_as_peer};
use shm_support::measure::Bench;
use shm_support::picture;
use shm_support::world::WorldPlan;

fn main() {
    if serve_as_peer() {
        return;
    }
    let command = CommandLine::of_process();
    let mode = command.mode;
    let mut criterion = Criterion::default().configure_from_args();
    let mut bench = Bench::new(&mut criterion, "shm", command);
    measure(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    publish(&summary, mode, env!("CARGO_TARGET_TMPDIR").as_ref(), picture::chart);
}

/// Measures every figure, crew by crew.
fn measure(bench: &mut Bench<'_>) {
    let mode = bench.mode();
    let words = if mode == Mode::Test { 1 << 12 } else { TABLE_WORDS };
    let mut pair = Crew::start(WorldPlan::new(2).with_table(words));
    let trips = cases::trips(pair.largest_medium());
    for cases in [cases::raw(), trips, cases::streams(), cases::random_access(mode)] {
        all(bench, &mut pair, &cases);
    }
    drop(pair);
    let crews = [
        (WorldPlan::new(8), cases::eight(mode)),
        (WorldPlan::new(2).with_silent_ranks(64), cases::sixty_four()),
        (WorldPlan::new(2).on_cpu(0), cases::one_cpu()),
    ];
    for (plan, cases) in crews {
        all(bench, &mut Crew::start(plan), &cases);
    }
}

fn all(bench: &mut Bench<'_>, crew: &mut Crew, cases: &[Case]) {
    for case in cases {
        bench.measure(crew, case);
    }
}
