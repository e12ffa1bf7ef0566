//! After a while of use, active messages, puts and gets of the conduit allocate nothing, at neither side nor on
//! the way.

use am_conformance::Exchange;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, FlowControl, Local};
use portals_sim::nic::HostMemory;

#[test]
fn nothing_is_allocated_per_message() {
    for flow in [FlowControl::Static, FlowControl::Bank, FlowControl::Disable] {
        let report = conduit::run(&PortalsConfig::pair(), &ConduitConfig::with(flow), |transport| {
            let direct = transport.one_sided();
            let memory = HostMemory::new(5000);
            Exchange::attach(transport).allocations(300, |talk, round| {
                talk.ask(round, 300);
                // Longer than a bounce buffer.
                talk.long(round, 4000);
                let other = talk.other();
                let put = direct.put(other, 20_000, Local::Memory(&memory, 100), 4000).unwrap();
                let get = direct.get(other, 20_000, Local::Segment(30_000), 100).unwrap();
                talk.settle(0);
                while !(direct.is_done(put) && direct.is_done(get)) {
                    talk.endpoint().poll().unwrap();
                }
            })
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in 300 rounds with flow control {flow:?}");
    }
}
