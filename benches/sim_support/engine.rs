//! What one core does: events and packets a second, seconds for a simulated second, the start of a large job.

use super::measure::{Bench, Counted};
use super::traffic;
use lab::bench::command::Mode;
use lab::bench::summary::{Bar, Unit};

/// Measures all of them.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let test = bench.mode() == Mode::Test;
    for (ranks, dims, times) in [(2, [2, 1, 1], 200_000), (64, [4, 4, 4], 5_000), (1024, [8, 8, 16], 300)] {
        random(bench, ranks, dims, if test { 20 } else { times });
    }
    let ranks = if test { 256 } else { 16_384 };
    let barrier = Counted {
        name: format!("engine/{ranks} ranks, barrier"),
        unit: Unit::Microseconds,
        amount: 1.0,
        bar: Some(Bar::ValueAtMost(30e6)),
        heap: None,
    };
    bench.one_core(u64::from(ranks), &[barrier], || traffic::barrier(ranks));
}

/// Random traffic, packets without contents.
fn random(bench: &mut Bench<'_>, ranks: u32, dims: [u32; 3], times: u32) {
    let config = traffic::machine(dims);
    // Every run is the same to the last event, so that one tells what all of them do.
    let report = traffic::random(&config, times);
    let bar = (ranks == 1024).then_some(Bar::ValueAtLeast(5.0));
    let simulated = report.ended.since(am_core::Instant(0)).picos() as f64 * 1e-12;
    let count = |what: &str, unit, amount, bar, heap| {
        let name = format!("engine/{ranks} ranks, {what}");
        Counted { name, unit, amount, bar, heap }
    };
    let figures = [
        count("events", Unit::MillionPerSecond, report.events as f64, bar, Some(ranks)),
        count("packets", Unit::MillionPerSecond, report.delivered as f64, None, None),
        count("s per simulated s", Unit::SecondsPerSecond, simulated, None, None),
    ];
    bench.one_core(report.events, &figures, || drop(traffic::random(&config, times)));
}
