//! The run on a machine with EXTOLL interfaces.

use super::cli::{Cli, Conduit};
use super::{ended, impossible, tell};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, Gasnet, GasnetConfig};
use extoll_sim::conduit::pscom::{self, Pscom, PscomConfig};
use fabric_sim::Topology;
use lab::random_access::cli::name;
use lab::random_access::error::RunError;
use lab::random_access::rank;
use std::sync::Arc;

/// Runs all ranks on the machine that the command line describes.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let (machine, processors) = (machine(cli)?, cli.simulation.processors());
    let program = Arc::new(cli.clone());
    let over_gasnet = |conduit| {
        let program = Arc::clone(&program);
        let part = move |transport: Gasnet<'_>| rank::run(transport, &program.options, &name(program.backend));
        match processors {
            None => gasnet::run(&machine, &conduit, part),
            Some(some) => gasnet::run_halves(&machine, &conduit, some, part),
        }
    };
    let report = match cli.simulation.conduit() {
        Conduit::Gasnet => over_gasnet(GasnetConfig::default()),
        Conduit::GasnetFirst => over_gasnet(GasnetConfig::first()),
        Conduit::Pscom => {
            let program = Arc::clone(&program);
            let part = move |transport: Pscom<'_>| rank::run(transport, &program.options, &name(program.backend));
            match processors {
                None => pscom::run(&machine, &PscomConfig::default(), part),
                Some(some) => pscom::run_halves(&machine, &PscomConfig::default(), some, part),
            }
        }
    };
    tell(cli, report.map_err(ended)?)
}

/// The machine that the command line describes.
fn machine(cli: &Cli) -> Result<ExtollConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => ExtollConfig::new(cli.rank_count(), Topology::Direct { nodes: 1 }),
        Some(path) => ExtollConfig::from_file(path).map_err(impossible)?,
    };
    if wanted.machine.is_none() || cli.options.ranks.is_some() {
        machine.ranks = cli.rank_count();
    }
    match &wanted.topology {
        Some(topology) => machine.topology = topology.clone(),
        None if wanted.machine.is_none() => {
            let per_node = wanted.ranks_per_node.unwrap_or(1);
            machine.topology = Topology::Crossbar { nodes: machine.ranks.div_ceil(per_node) };
        }
        None => {}
    }
    if let Some(per_node) = wanted.per_node(machine.ranks, &machine.topology).map_err(impossible)? {
        machine.ranks_per_node = per_node;
    }
    wanted.change_faults(&mut machine.faults);
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(impossible)?;
    Ok(machine)
}
