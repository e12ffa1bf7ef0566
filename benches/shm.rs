//! The shared-memory bench: active messages between two processes of one host beside what the same two processes reach
//! with a mapping and nothing else. `cargo bench --bench shm` measures everything and writes `target/summary/shm.json` and
//! `shm.svg`; a filter measures a part and writes nothing; `cargo test --benches` runs everything once.

#[path = "shm_support/mod.rs"]
mod shm_support;
mod support;

use std::path::Path;

use criterion::Criterion;

use shm_support::crew::{Crew, serve_as_peer};
use shm_support::measure::{Bench, Case};
use shm_support::picture;
use shm_support::raw::Announce;
use shm_support::world::{TABLE_WORDS_PER_RANK, Task, WorldPlan};
use support::summary::{Mode, Summary, Unit};

fn main() {
    if serve_as_peer() {
        return;
    }
    let mode = Mode::of_process();
    let mut criterion = Criterion::default().configure_from_args();
    let mut bench = Bench::new(&mut criterion, "shm", mode);
    raw(&mut bench);
    let summary = bench.into_summary();
    criterion.final_summary();
    report(&summary, mode);
}

/// The baselines as figures of their own.
fn raw(bench: &mut Bench<'_>) {
    let mut crew = Crew::start(WorldPlan::new(2).with_table(table_words(bench.mode())));
    for case in raw_cases() {
        bench.measure(&mut crew, &case);
    }
}

fn raw_cases() -> Vec<Case> {
    let ring = |name, announce| Case::new(name, Unit::MillionPerSecond, Task::RawRing(announce), 1.0);
    let copy = |name, bytes: usize, span, out| {
        Case::new(name, Unit::GigabytesPerSecond, Task::RawCopy { bytes, span, out }, bytes as f64)
    };
    vec![
        Case::new("raw one-line ping-pong", Unit::Microseconds, Task::RawWord, 1.0),
        Case::new("raw payload ping-pong", Unit::Microseconds, Task::RawPayload, 1.0),
        ring("raw ring, flag per slot", Announce::Flag),
        ring("raw ring, lap per slot", Announce::Lap),
        ring("raw ring, batched index", Announce::Index),
        copy("raw memcpy 8 KB in", 8 << 10, 256 << 10, false),
        copy("raw memcpy 8 KB in and out", 8 << 10, 256 << 10, true),
        copy("raw memcpy 1 MiB in", 1 << 20, 4 << 20, false),
        copy("raw memcpy 1 MiB in and out", 1 << 20, 4 << 20, true),
        Case::new("raw table", Unit::Gups, Task::RawTable, 2.0),
    ]
}

fn table_words(mode: Mode) -> u64 {
    if mode == Mode::Test { 1 << 12 } else { TABLE_WORDS_PER_RANK }
}

fn report(summary: &Summary, mode: Mode) {
    if summary.figures().is_empty() {
        return;
    }
    println!("\n{}", summary.table());
    match mode {
        // A test run measures nothing: single iterations say nothing about speed.
        Mode::Test => {}
        Mode::Partial => println!("part of the bench: target/summary/shm.json is left as it is"),
        Mode::Full => {
            // Cargo gives benches a folder of their own inside the target directory.
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("that folder has a parent");
            let json = summary.write_json(target).expect("the target directory is writable");
            let svg = summary
                .write(target, "svg", &picture::chart(summary).svg())
                .expect("the target directory is writable");
            println!("written: {} and {}", json.display(), svg.display());
        }
    }
}
