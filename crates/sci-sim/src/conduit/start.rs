//! Opening conduits: on every rank of a simulated machine, and on the ranks of a job of processes or threads.

use super::{Conduit, ConduitConfig};
use crate::SciConfig;
use crate::nic::Virtual;
use fabric_sim::{Report, RunError};

/// Runs a program on every rank of a simulated machine, each with its conduit. Blocks until all have returned. What the conduit's
/// own work costs is the machine's [`ConduitParameters`](crate::model::ConduitParameters).
///
/// # Errors
/// As [`sci_sim::run`](crate::run); sizes that are not possible; and a panic of a rank whose segments cannot be exported or
/// imported.
pub fn run<R, F>(config: &SciConfig, conduit: &ConduitConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Conduit<Virtual<'_>>) -> R + 'static,
{
    conduit.check(config.ranks)?;
    let conduit = conduit.clone();
    crate::run(config, move |nic| {
        let (nodes, costs, rank) = (nic.nodes(), nic.parameters().conduit.clone(), nic.rank());
        let opened = Conduit::open(nic, &nodes, &conduit, &costs);
        program(opened.unwrap_or_else(|error| panic!("the conduit of rank {rank} cannot be opened: {error}")))
    })
}
