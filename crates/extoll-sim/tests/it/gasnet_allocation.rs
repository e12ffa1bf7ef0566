//! After a while of use, active messages of the conduit allocate nothing, at neither side nor on the way.

use am_conformance::Exchange;
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig, Implementation};

#[test]
fn nothing_is_allocated_per_message() {
    for implementation in [Implementation::First, Implementation::Second] {
        let gasnet = GasnetConfig { implementation, ..GasnetConfig::default() };
        let report = gasnet::run(&ExtollConfig::pair(), &gasnet, |transport| {
            Exchange::attach(transport).allocations(300, |talk, round| {
                // What follows a Long message is held back until its payload has come.
                talk.ask(round, 300);
                talk.ask(round, 300);
                talk.settle(0);
            })
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in 300 rounds of the {implementation:?} implementation");
    }
}
