//! The same run on a simulated machine: every rank is a coroutine of this process, and time is the machine's.

use crate::cli::{Cli, Conduit};
use crate::error::RunError;
use crate::{conclude, rank};
use active_messages::extoll::ExtollConfig;
use active_messages::extoll::conduit::gasnet::{self, GasnetConfig};
use active_messages::extoll::conduit::pscom::{self, PscomConfig};
use active_messages::fabric::{ConfigError, Report as Run, Topology};
use std::fs::File;
use std::io::BufWriter;
use std::rc::Rc;

/// What a rank brings.
pub(crate) type Outcome = Result<Option<crate::report::Report>, RunError>;

/// Runs all ranks on the machine that the command line describes.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    let program = Rc::new(cli.clone());
    let over_gasnet = |conduit| {
        let program = Rc::clone(&program);
        gasnet::run(&machine, &conduit, move |transport| rank::run(transport, &program))
    };
    let report = match cli.simulation.conduit() {
        Conduit::Gasnet => over_gasnet(GasnetConfig::default()),
        Conduit::GasnetFirst => over_gasnet(GasnetConfig::first()),
        Conduit::Pscom => {
            let program = Rc::clone(&program);
            pscom::run(&machine, &PscomConfig::default(), move |transport| rank::run(transport, &program))
        }
    };
    tell(cli, report.map_err(|error| RunError::Simulation(error.to_string()))?)
}

/// The machine that the command line describes.
fn machine(cli: &Cli) -> Result<ExtollConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => ExtollConfig::new(cli.rank_count(), Topology::Direct { nodes: 1 }),
        Some(path) => ExtollConfig::from_file(path).map_err(impossible)?,
    };
    if wanted.machine.is_none() || cli.ranks.is_some() {
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

/// The error for a machine that there cannot be.
pub(crate) fn impossible(error: ConfigError) -> RunError {
    RunError::Usage(error.to_string())
}

/// Tells what came out of the ranks and of the machine.
pub(crate) fn tell(cli: &Cli, run: Run<Outcome>) -> Result<(), RunError> {
    if let (Some(path), Some(trace)) = (&cli.simulation.trace, &run.trace) {
        let written = File::create(path).and_then(|file| trace.write_chrome(BufWriter::new(file)));
        written.map_err(|error| RunError::Usage(format!("cannot write {}: {error}", path.display())))?;
        eprintln!("random_access: the trace is in {}; open it with Perfetto", path.display());
    }
    if !cli.json {
        println!("{run}\n");
    }
    let (mut of_rank_0, mut failed) = (None, None::<(usize, RunError)>);
    for (index, outcome) in run.results.into_iter().enumerate() {
        match outcome {
            Some(Ok(report)) => of_rank_0 = of_rank_0.or(report),
            // Who failed because another had left did not fail first.
            Some(Err(error)) if failed.as_ref().is_none_or(|(_, first)| first.follows() && !error.follows()) => {
                failed = Some((index, error));
            }
            Some(Err(_)) => {}
            None => {}
        }
    }
    match failed {
        Some((rank, error)) => Err(RunError::Simulation(format!("rank {rank}: {error}"))),
        None => conclude(cli, of_rank_0),
    }
}
