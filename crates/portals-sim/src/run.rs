//! Running a program on every rank of a Portals machine.

use crate::config::PortalsConfig;
use crate::nic::{Nic, Portals};
use fabric_sim::{Report, RunError, Sim};
use std::rc::Rc;

/// Runs a program on every rank. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(config: &PortalsConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    let (network, shared) = (config.network()?, config.shared()?);
    let interfaces = Rc::clone(&shared);
    Sim::run_with(
        &network,
        move |node, ranks| Portals::new(Rc::clone(&interfaces), node, ranks),
        move |context| program(Nic::new(context, Rc::clone(&shared))),
    )
}
