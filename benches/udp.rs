//! The UDP bench: active messages over loopback beside what raw sockets reach in the same run.
//! `cargo bench --bench udp` measures everything and writes `target/summary/udp.json` and `udp.svg`; a filter
//! measures a part and writes nothing; `cargo test --benches` runs everything once.

mod udp_support;

use criterion::Criterion;

use lab::bench::command::CommandLine;
use lab::bench::publish::publish;
use udp_support::cases;
use udp_support::measure::Bench;
use udp_support::picture;

fn main() {
    let command = CommandLine::of_process();
    let mode = command.mode;
    let mut criterion = Criterion::default().configure_from_args();
    let mut bench = Bench::new(&mut criterion, command);
    cases::measure(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    publish(&summary, mode, env!("CARGO_TARGET_TMPDIR").as_ref(), picture::chart);
}
