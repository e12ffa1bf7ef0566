//! The same run on a simulated machine with Portals interfaces, in virtual time.

use crate::cli::{Cli, Flow};
use crate::error::RunError;
use crate::{rank, simulated};
use active_messages::portals::PortalsConfig;
use active_messages::portals::conduit::{self, ConduitConfig, FlowControl};
use std::rc::Rc;

/// Runs all ranks on the machine that the command line describes.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    let flow = match cli.simulation.flow {
        Flow::Bank => FlowControl::Bank,
        Flow::Static => FlowControl::Static,
        Flow::Portals4 => FlowControl::Disable,
    };
    let program = Rc::new(cli.clone());
    let report =
        conduit::run(&machine, &ConduitConfig::with(flow), move |transport| rank::run(transport, &program));
    simulated::tell(cli, report.map_err(|error| RunError::Simulation(error.to_string()))?)
}

/// The machine that the command line describes.
fn machine(cli: &Cli) -> Result<PortalsConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => PortalsConfig::xt4(cli.rank_count().div_ceil(wanted.ranks_per_node.unwrap_or(1))),
        Some(path) => {
            let wrong = |error: String| RunError::Usage(format!("{}: {error}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            PortalsConfig::from_toml(&text).map_err(|error| wrong(error.to_string()))?
        }
    };
    if wanted.machine.is_none() || cli.ranks.is_some() {
        machine.ranks = cli.rank_count();
    }
    if let Some(topology) = &wanted.topology {
        machine.topology = topology.clone();
    }
    if let Some(per_node) = wanted.ranks_per_node {
        machine.ranks_per_node = per_node;
    } else if wanted.machine.is_none() {
        let nodes = machine.topology.nodes().map_err(|error| RunError::Usage(error.to_string()))?;
        machine.ranks_per_node = machine.ranks.div_ceil(nodes);
    }
    if let Some(loss) = wanted.loss {
        machine.faults.loss = loss;
    }
    if let Some(seed) = wanted.fault_seed {
        machine.faults.seed = seed;
    }
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(|error| RunError::Usage(error.to_string()))?;
    Ok(machine)
}
