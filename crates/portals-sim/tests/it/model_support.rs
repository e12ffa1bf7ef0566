//! What the comparisons of both interfaces with their models have in common: the machine of a run, whose turn it
//! is, and that a comparison would notice defects.

use am_core::{Instant, Span};
use portals_sim::nic::mutation::{Defects, Mutation};
use portals_sim::{Nic, PortalsConfig, Testing, model::Parameters};
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// Two ranks, whose interfaces have these defects.
pub(crate) fn machine(parameters: Parameters, defects: Defects) -> PortalsConfig {
    PortalsConfig { parameters, testing: Testing { defects, ..Testing::default() }, ..PortalsConfig::pair() }
}

/// Waits for a step's slot of time. One step is made in each, so that both ranks agree on their order.
pub(crate) fn slot(nic: &Nic<'_>, number: usize) {
    let at = Instant(0) + Span::from_micros(1_000 + 100 * number as u64);
    while nic.now() < at {
        nic.idle(Some(at), fabric_sim::WaitFor::Named("its turn"));
    }
}

/// Checks that a comparison notices each of these defects.
pub(crate) fn notices<S: Strategy>(
    mutations: &[Mutation],
    step: impl Fn() -> S,
    run: impl Fn(&[S::Value], Parameters, Defects) -> Result<(), TestCaseError>,
) {
    for mutation in mutations {
        let config = Config { cases: 300, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let found =
            runner.run(&vec(step(), 40..60), |steps| run(&steps, Parameters::free(), Defects::of(*mutation)));
        assert!(found.is_err(), "{mutation:?} goes unnoticed");
    }
}
