//! The UDP bench: active messages over loopback beside what raw sockets reach in the same run. `cargo bench --bench udp`
//! measures everything and writes `target/summary/udp.json` and `udp.svg`; a filter measures a part and writes nothing;
//! `cargo test --benches` runs everything once.

#[allow(dead_code, reason = "what all benches share; this one needs a part")]
mod support;
#[path = "udp_support/mod.rs"]
mod udp_support;

use std::path::Path;

use criterion::Criterion;

use support::command::{CommandLine, Mode};
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
    // Single iterations, as a test run makes them, are no figures.
    if summary.figures().is_empty() {
        return;
    }
    println!("\n{}", summary.table());
    match mode {
        Mode::Test | Mode::CriterionOnly => {}
        Mode::Partial => println!("part of the bench: target/summary/udp.json is left as it is"),
        Mode::Full => {
            // Cargo gives benches a folder of their own inside the target directory.
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("that folder has a parent");
            let json = summary.write_json(target).expect("the target directory is writable");
            let svg = summary
                .write(target, "svg", &picture::chart(&summary).svg())
                .expect("the target directory is writable");
            println!("written: {} and {}", json.display(), svg.display());
        }
    }
}
