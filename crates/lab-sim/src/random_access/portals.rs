//! The same run on a simulated machine with Portals interfaces, in virtual time.

use super::cli::{Cli, Flow};
use super::{ended, impossible, tell};
use lab::random_access::cli::name;
use lab::random_access::error::RunError;
use lab::random_access::rank;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, Conduit, ConduitConfig, FlowControl};

/// Runs all ranks on the machine that the command line describes.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    let config = match cli.simulation.flow() {
        Flow::Bank => ConduitConfig::with(FlowControl::Bank),
        Flow::TunedBank => ConduitConfig::tuned(),
        Flow::Static => ConduitConfig::with(FlowControl::Static),
        Flow::Portals4 => ConduitConfig::with(FlowControl::Disable),
    };
    let program = cli.clone();
    let part = move |transport: Conduit<'_>| rank::run(transport, &program.options, &name(program.backend));
    let report = match cli.simulation.processors() {
        None => conduit::run(&machine, &config, part),
        Some(some) => conduit::run_halves(&machine, &config, some, part),
    };
    tell(cli, report.map_err(ended)?)
}

/// The machine that the command line describes.
fn machine(cli: &Cli) -> Result<PortalsConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => portals_sim::xt4(cli.rank_count().div_ceil(wanted.ranks_per_node.unwrap_or(1))),
        Some(path) => PortalsConfig::from_file(path).map_err(impossible)?,
    };
    if wanted.machine.is_none() || cli.options.ranks.is_some() {
        machine.ranks = cli.rank_count();
    }
    if let Some(topology) = &wanted.topology {
        machine.topology = topology.clone();
    }
    if let Some(per_node) = wanted.per_node(machine.ranks, &machine.topology).map_err(impossible)? {
        machine.ranks_per_node = per_node;
    }
    wanted.change_faults(&mut machine.faults);
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(impossible)?;
    Ok(machine)
}
