//! Running a program on every rank of an EXTOLL machine.

use crate::config::ExtollConfig;
use crate::nic::{Extoll, Nic};
use fabric_sim::{Report, RunError, Sim};
use std::rc::Rc;

/// Runs a program on every rank. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(config: &ExtollConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    let (network, shared) = (config.network()?, config.shared()?);
    let interfaces = Rc::clone(&shared);
    Sim::run_with(
        &network,
        move |node, ranks| Extoll::new(Rc::clone(&interfaces), node, ranks),
        move |context| program(Nic::new(context, Rc::clone(&shared))),
    )
}
