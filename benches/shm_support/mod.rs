//! Everything behind the benches over shared memory: the processes, the raw baselines, the tasks, and the figures
//! of both.

pub(crate) mod am;
pub(crate) mod bells;
pub(crate) mod calls;
pub(crate) mod calls_cases;
pub(crate) mod case;
pub(crate) mod cases;
pub(crate) mod crew;
pub(crate) mod far;
pub(crate) mod far_calls;
#[cfg(feature = "p2p-udp")]
pub(crate) mod far_p2p;
pub(crate) mod mapping;
pub(crate) mod measure;
pub(crate) mod p2p;
pub(crate) mod p2p_cases;
pub(crate) mod pass;
pub(crate) mod pgas;
pub(crate) mod pgas_cases;
pub(crate) mod picture;
pub(crate) mod placed;
pub(crate) mod placement;
pub(crate) mod random_access;
pub(crate) mod raw;
pub(crate) mod ring;
pub(crate) mod table;
#[cfg(feature = "tarpc")]
pub(crate) mod tarpc_calls;
pub(crate) mod tokio_calls;
pub(crate) mod world;

use criterion::Criterion;
use lab::bench::chart::Chart;
use lab::bench::command::{CommandLine, Mode};
use lab::bench::publish::publish;
use lab::bench::summary::Summary;

use case::Case;
use cases::TABLE_WORDS;
use crew::{Crew, serve_as_peer};
use measure::Bench;
use world::WorldPlan;

/// A bench: its name, the crews with their figures, and its picture.
struct Figures {
    name: &'static str,
    measure: fn(&mut Bench<'_>),
    chart: fn(&Summary) -> Chart,
}

/// The benches over shared memory. Each program holds all, and runs one.
const BENCHES: [Figures; 4] = [
    Figures { name: "shm", measure: measure_active_messages, chart: picture::chart },
    Figures { name: "pgas", measure: measure_pgas, chart: pgas_cases::chart },
    Figures { name: "p2p", measure: measure_p2p, chart: p2p_cases::chart },
    Figures { name: "calls", measure: measure_calls, chart: calls_cases::chart },
];

/// Runs the bench of a name, or serves as one of its ranks.
pub(crate) fn run(name: &str) {
    if serve_as_peer() {
        return;
    }
    let figures = BENCHES.iter().find(|bench| bench.name == name).expect("a bench of this name");
    let command = CommandLine::of_process();
    let mode = command.mode;
    let mut criterion = Criterion::default().configure_from_args();
    let mut bench = Bench::new(&mut criterion, figures.name, command);
    (figures.measure)(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    publish(&summary, mode, env!("CARGO_TARGET_TMPDIR").as_ref(), figures.chart);
}

fn table_words(mode: Mode) -> u64 {
    if mode == Mode::Test { 1 << 12 } else { TABLE_WORDS }
}

/// Measures every figure, crew by crew.
fn measure_active_messages(bench: &mut Bench<'_>) {
    let mode = bench.mode();
    let mut pair = Crew::start(WorldPlan::new(2).with_table(table_words(mode)));
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

fn measure_pgas(bench: &mut Bench<'_>) {
    let words = table_words(bench.mode());
    all(bench, &mut Crew::start(WorldPlan::new(2).with_table(words).with_pgas()), &pgas_cases::pair());
    for (ranks, cases) in [(4, pgas_cases::four()), (8, pgas_cases::eight())] {
        let few = WorldPlan::new(ranks).with_table(1 << 12).with_pgas();
        all(bench, &mut Crew::start(few), &cases);
    }
    all(bench, &mut Crew::start(WorldPlan::new(2)), &pgas_cases::far());
    far::end();
}

/// Measures typed calls.
fn measure_calls(bench: &mut Bench<'_>) {
    let cases = [calls_cases::pair(), calls_cases::beside_tarpc()].into_iter().flatten().collect::<Vec<_>>();
    all(bench, &mut Crew::start(WorldPlan::new(2).with_calls()), &cases);
    all(bench, &mut Crew::start(WorldPlan::new(2)), &calls_cases::far());
    far_calls::end();
}

fn measure_p2p(bench: &mut Bench<'_>) {
    all(bench, &mut Crew::start(WorldPlan::new(2).with_p2p()), &p2p_cases::pair());
    all(bench, &mut Crew::start(WorldPlan::new(2).with_p2p_on_either()), &p2p_cases::either());
    all(bench, &mut Crew::start(WorldPlan::new(2)), &p2p_cases::far());
    #[cfg(feature = "p2p-udp")]
    far_p2p::end();
}

fn all(bench: &mut Bench<'_>, crew: &mut Crew, cases: &[Case]) {
    for case in cases {
        bench.measure(crew, case);
    }
}
