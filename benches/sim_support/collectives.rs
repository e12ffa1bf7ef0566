//! Collective operations in virtual time: how many events a second one core gets through with a thousand ranks.

use super::measure::{Bench, Counted};
use lab::bench::command::Mode;
use lab::bench::summary::{Bar, Unit};
use lab_sim::figures::collectives::Site;

/// How often each rank takes part in each operation.
const TIMES: u32 = 4;

/// All figures of collective operations.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let ranks = if bench.mode() == Mode::Test { 16 } else { 1024 };
    for (machine, site) in [("extoll", Site::extoll()), ("portals", Site::portals())] {
        let name = format!("{machine}/collectives of 1024 ranks, events");
        if !bench.wants(&name) {
            continue;
        }
        let play = || site.mixed(ranks, TIMES).expect("the operations end");
        let events = play();
        let (unit, bar) = (Unit::MillionPerSecond, Some(Bar::ValueAtLeast(1.0)));
        let figure = Counted { name, unit, amount: events as f64, bar, heap: None };
        bench.one_core(events, &[figure], || assert_eq!(play(), events, "every run is the same"));
    }
}
