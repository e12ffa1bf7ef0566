//! The run on a machine of one's own.

use super::cli::Cli;
use super::{ended, impossible, tell};
use lab::random_access::cli::name;
use lab::random_access::error::RunError;
use lab::random_access::rank;
use machine_sim::conduit::{self, Conduit, ConduitConfig};
use machine_sim::{MachineConfig, presets};

/// Runs all ranks on the machine that the command line names.
///
/// # Errors
/// [`RunError`]: no machine or an impossible one, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    // Rank 0 has the largest part of the table.
    let part = cli.options.segment_bytes(machine.ranks, 0) as u64;
    let config = ConduitConfig::default();
    let config = ConduitConfig { segment: config.segment.max(part), ..config };
    let program = cli.clone();
    let part = move |transport: Conduit<'_>| rank::run(transport, &program.options, &name(program.backend));
    let report = match cli.simulation.processors() {
        None => conduit::run(&machine, &config, part),
        Some(some) => conduit::run_halves(&machine, &config, some, part),
    };
    tell(cli, report.map_err(ended)?)
}

/// The machine that the command line names, with what the flags change.
fn machine(cli: &Cli) -> Result<MachineConfig, RunError> {
    let wanted = &cli.simulation;
    let Some(place) = &wanted.machine else {
        return Err(RunError::Usage(format!(
            "--backend sim needs a machine: add --machine FILE.toml or --machine NAME, where NAME is one of {}",
            presets::names()
        )));
    };
    let mut machine = presets::open(place).map_err(impossible)?;
    if cli.options.ranks.is_some() {
        machine.ranks = cli.rank_count();
    }
    if let Some(topology) = &wanted.topology {
        machine.topology = topology.clone();
    }
    if let Some(per_node) = wanted.ranks_per_node {
        machine.ranks_per_node = per_node;
    }
    wanted.change_faults(&mut machine.faults);
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(impossible)?;
    cli.options.check(machine.ranks).map_err(RunError::Usage)?;
    Ok(machine)
}
