//! Running a program on every rank of a simulated SCI machine.

use crate::config::SciConfig;
use crate::nic::Virtual;
use crate::nic::virtual_time::Adapter;
use fabric_sim::{Report, RunError, Sim};
use std::rc::Rc;

/// Runs a program on every rank. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(config: &SciConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Virtual<'_>) -> R + 'static,
{
    let (network, shared) = (config.network()?, config.shared()?);
    let adapters = Rc::clone(&shared);
    Sim::run_with(
        &network,
        move |node, ranks| Adapter::new(Rc::clone(&adapters), node, ranks),
        move |context| program(Virtual::initialize(context, Rc::clone(&shared))),
    )
}
