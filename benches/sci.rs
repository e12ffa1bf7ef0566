//! The bench of SCI's conduit over mapped segments, in wall-clock time: two threads on a processor each, beside
//! the same two over `transport-shm` in the same run. `cargo bench --bench sci` measures everything and writes
//! `target/summary/sci.json` and `sci.svg`; `cargo test --benches` runs everything once.
//!
//! The conduit is a published design for another machine, and is expected to lose: a Short message is one line of
//! memory over `transport-shm`, and three here (header, ready flag, exist flag), of which the last two are written
//! by atomic swaps. The bench prints how many lines a message took.

mod sci_support;

use lab::bench::command::{CommandLine, Mode};
use lab::bench::publish::publish;
use sci_support::cases::{self, Plan};
use sci_support::picture;

fn main() {
    let mode = CommandLine::of_process().mode;
    if mode == Mode::CriterionOnly {
        // There is nothing of criterion's here to list or to profile.
        return;
    }
    let plan = if mode == Mode::Test { Plan::tiny() } else { Plan::full() };
    let summary = cases::measure(&plan);
    if mode != Mode::Test {
        publish(&summary, mode, env!("CARGO_TARGET_TMPDIR").as_ref(), picture::chart);
    }
}
