//! Portals in both kinds of time. Virtual: blocking puts, and half a round trip on each flow control, 8 B to 1984
//! B, which the parameter table fixes. On one core: how many puts and round trips a second the simulation gets
//! through.

use active_messages::Span;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{ConduitConfig, FlowControl};

use super::measure::{Bench, Counted};
use lab::bench::command::Mode;
use lab::bench::summary::Unit;
use lab_sim::figures::portals::pairs;

/// Operations of each size; they take the same virtual time.
const COUNT: u32 = 4;

/// The flow controls, with their names.
const FLOWS: [(&str, FlowControl); 3] =
    [("static", FlowControl::Static), ("bank", FlowControl::Bank), ("Portals 4", FlowControl::Disable)];

/// All figures of Portals.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let machine = PortalsConfig::pair();
    for bytes in [8, 64, 512, 1984] {
        let name = |layer: &str| format!("virtual/portals/{layer}/{bytes} B");
        let put = name("put");
        bench.virtual_time(&put, None, || pairs::put(&machine, bytes, COUNT).expect("puts end"));
        for (flow, control) in FLOWS {
            let config = ConduitConfig::with(control);
            bench.virtual_time(&name(flow), Some(&put), || {
                let took = pairs::round_trip(&machine, &config, bytes, COUNT).expect("round trips end");
                Span(took.0 / 2)
            });
        }
    }
    let many = if bench.mode() == Mode::Test { 100 } else { 20_000 };
    let figure = |name: &str| Counted {
        name: format!("portals/{name}"),
        unit: Unit::MillionPerSecond,
        amount: many.into(),
        bar: None,
        heap: None,
    };
    bench.one_core(u64::from(many), &[figure("puts")], || {
        pairs::put(&machine, 8, many).expect("puts end");
    });
    for (flow, control) in FLOWS {
        let config = ConduitConfig::with(control);
        bench.one_core(u64::from(many), &[figure(&format!("{flow}, Medium round trips"))], || {
            pairs::round_trip(&machine, &config, 64, many).expect("round trips end");
        });
    }
}
