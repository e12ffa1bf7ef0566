//! What must always hold for the interface, rule by rule of its sheet. Each test runs on the interface as it is
//! and expects the promise kept, then on one with a defect and expects the same program to notice.

mod flow;
mod lists;
mod queues;
mod triggered;
mod unexpected;

use fabric_sim::{Report, RunError};
use portals_sim::nic::mutation::{Defects, Mutation};
use portals_sim::{Nic, PortalsConfig, Testing};

/// Runs a program that asserts what must hold.
fn run<R: 'static>(
    config: &PortalsConfig,
    program: impl Fn(Nic<'_>) -> R + 'static,
) -> Result<Report<R>, RunError> {
    // Far beyond what any of these programs needs: an interface that is broken may keep a program polling for
    // ever.
    portals_sim::run(&PortalsConfig { deadline_ns: 3e8, ..config.clone() }, program)
}

/// Runs a program that must go well on the interface as it is, and must not with a defect.
fn holds<R: 'static>(
    config: &PortalsConfig,
    mutation: Mutation,
    program: impl Fn(Nic<'_>) -> R + Clone + 'static,
) {
    if let Err(error) = run(config, program.clone()) {
        panic!("the interface as it is: {error}");
    }
    let testing = Testing { defects: Defects::of(mutation), ..Testing::default() };
    let broken = run(&PortalsConfig { testing, ..config.clone() }, program);
    match broken {
        Ok(_) => panic!("{mutation:?} goes unnoticed"),
        Err(RunError::Panicked { .. } | RunError::Deadlock(_) | RunError::DeadlineMissed(_)) => {}
        Err(other) => panic!("{mutation:?} ends in {other}, which is no sign of it"),
    }
}
