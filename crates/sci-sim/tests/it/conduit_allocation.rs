//! After a while of use, active messages of the conduit allocate nothing, at neither side nor on the way.

use am_conformance::Exchange;
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig, MediumMethod};

#[test]
fn nothing_is_allocated_per_message() {
    let one_copy = ConduitConfig { medium: MediumMethod::OneCopy, ..ConduitConfig::default() };
    for conduit in [ConduitConfig::default(), ConduitConfig::paper(), one_copy] {
        let report = conduit::run(&SciConfig::pair(), &conduit, |transport| {
            Exchange::attach(transport).allocations(500, |talk, round| {
                talk.ask(round, 300);
                // Long enough for DMA.
                talk.long(round, 3000);
                talk.settle(0);
            })
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in 500 rounds of {conduit:?}");
    }
}
