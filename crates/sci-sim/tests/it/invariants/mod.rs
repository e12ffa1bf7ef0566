//! What must always hold for the interface, rule by rule of its sheet. Each test runs on the interface as it is
//! and expects the promise kept, then on one with a defect and expects the same program to notice.

mod dma;
mod failures;
mod order;
mod segments;

use crate::nic_support::{Program, in_virtual_time, mapped};
use fabric_sim::RunError;
use sci_sim::nic::TransferErrors;
use sci_sim::nic::mutation::{Defects, Mutation};
use sci_sim::{SciConfig, Testing};

/// Runs a program that must go well on the simulated interface as it is, and must not with a defect.
#[track_caller]
fn holds(config: &SciConfig, mutation: Mutation, program: impl Program) {
    if let Err(error) = in_virtual_time(config, program.clone()) {
        panic!("the interface as it is: {error}");
    }
    noticed(std::slice::from_ref(config), mutation, program);
}

/// Expects a program to notice a defect on one of some machines at least.
#[track_caller]
fn noticed(configs: &[SciConfig], mutation: Mutation, program: impl Program) {
    let testing = Testing { defects: Defects::of(mutation) };
    for config in configs {
        match in_virtual_time(&SciConfig { testing, ..config.clone() }, program.clone()) {
            Ok(_) => {}
            Err(RunError::Panicked { .. } | RunError::Deadlock(_) | RunError::DeadlineMissed(_)) => return,
            Err(other) => panic!("{mutation:?} ends in {other}, which is no sign of it"),
        }
    }
    panic!("{mutation:?} goes unnoticed");
}

/// The same between processes.
#[track_caller]
fn holds_mapped(nodes: usize, errors: &TransferErrors, mutation: Mutation, program: impl Program) {
    let run = |defects| {
        mapped(
            nodes,
            |config| {
                config.errors = errors.clone();
                config.defects = defects;
            },
            program.clone(),
        )
    };
    if let Err(error) = run(Defects::default()) {
        panic!("the mapped interface as it is: {error}");
    }
    assert!(run(Defects::of(mutation)).is_err(), "{mutation:?} goes unnoticed between processes");
}
