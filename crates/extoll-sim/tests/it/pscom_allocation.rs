//! After a while of use, active messages over pscom allocate nothing, at neither side nor on the way, over neither
//! plugin.

use am_conformance::Exchange;
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{self, Plugin, PscomConfig};

/// Every kind of request with answers of its kind; returns the most allocations at a rank after warming up.
fn allocated(config: &PscomConfig, bytes: usize) -> u64 {
    let report = pscom::run(&ExtollConfig::pair(), config, move |transport| {
        Exchange::attach(transport).allocations(300, |talk, round| {
            talk.ask(round, bytes);
            talk.settle(0);
        })
    });
    report.unwrap().results.into_iter().flatten().max().unwrap()
}

#[test]
fn nothing_is_allocated_per_message() {
    let ring = PscomConfig { rendezvous: 0, ..PscomConfig::with(Plugin::Rma) };
    for (name, config) in
        [("VELO", PscomConfig::with(Plugin::Velo)), ("rendezvous", PscomConfig::with(Plugin::Rma)), ("ring", ring)]
    {
        for bytes in [300, 5000] {
            let most = allocated(&config, bytes);
            // Queues of the simulation may still grow once or twice.
            assert!(most < 20, "{most} allocations in 300 rounds of {bytes} bytes over {name}");
        }
    }
}
