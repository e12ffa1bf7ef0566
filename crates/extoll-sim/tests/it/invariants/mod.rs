//! What must always hold for the interface, rule by rule of its sheet. Each test runs on the interface as it is
//! and expects the promise kept, then on one with a defect and expects the same program to notice.

mod mailbox;
mod order;
mod pages;
mod queue;
mod replay;

use extoll_sim::nic::mutation::{Defects, Mutation};
use extoll_sim::{ExtollConfig, Nic, Testing};
use fabric_sim::{Report, RunError};

/// Runs a program that asserts what must hold.
fn run<R: 'static>(
    config: &ExtollConfig,
    program: impl Fn(Nic<'_>) -> R + 'static,
) -> Result<Report<R>, RunError> {
    // Far beyond what any of these programs needs: an interface that is broken may keep a program polling for
    // ever.
    extoll_sim::run(&ExtollConfig { deadline_ns: 3e8, ..config.clone() }, program)
}

/// Runs a program that must go well on the interface as it is, and must not with a defect.
fn holds<R: 'static>(config: &ExtollConfig, mutation: Mutation, program: impl Fn(Nic<'_>) -> R + Clone + 'static) {
    if let Err(error) = run(config, program.clone()) {
        panic!("the interface as it is: {error}");
    }
    let testing = Testing { defects: Defects::of(mutation) };
    let broken = run(&ExtollConfig { testing, ..config.clone() }, program);
    match broken {
        Ok(_) => panic!("{mutation:?} goes unnoticed"),
        Err(RunError::Panicked { .. } | RunError::Deadlock(_) | RunError::DeadlineMissed(_)) => {}
        Err(other) => panic!("{mutation:?} ends in {other}, which is no sign of it"),
    }
}

/// A pattern by which any byte of any message is known.
fn pattern(message: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (message.wrapping_mul(31).wrapping_add(index * 7) % 251) as u8).collect()
}
