//! The run on a machine with ExaNet interfaces.

use super::cli::Cli;
use super::{ended, impossible, tell};
use exanet_sim::ExanetConfig;
use exanet_sim::conduit::{self, Conduit, ConduitConfig};
use lab::random_access::cli::name;
use lab::random_access::error::RunError;
use lab::random_access::rank;

/// Runs all ranks on the machine that the command line describes.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    let program = cli.clone();
    let part = move |transport: Conduit<'_>| rank::run(transport, &program.options, &name(program.backend));
    let report = match cli.simulation.processors() {
        None => conduit::run(&machine, &ConduitConfig::default(), part),
        Some(some) => conduit::run_halves(&machine, &ConduitConfig::default(), some, part),
    };
    tell(cli, report.map_err(ended)?)
}

/// The machine that the command line describes: the prototype's rack, unless it says otherwise.
fn machine(cli: &Cli) -> Result<ExanetConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => exanet_sim::rack(cli.rank_count()),
        Some(path) => ExanetConfig::from_file(path).map_err(impossible)?,
    };
    if wanted.machine.is_some() && cli.options.ranks.is_some() {
        machine.ranks = cli.rank_count();
    }
    if let Some(topology) = &wanted.topology {
        machine.topology = topology.clone();
    }
    let given = wanted.topology.is_some() || wanted.ranks_per_node.is_some();
    if given && let Some(per_node) = wanted.per_node(machine.ranks, &machine.topology).map_err(impossible)? {
        machine.ranks_per_node = per_node;
    }
    wanted.change_faults(&mut machine.faults);
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(impossible)?;
    Ok(machine)
}
