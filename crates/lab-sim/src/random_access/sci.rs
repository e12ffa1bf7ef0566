//! The same run over SCI's shared segments: on a simulated machine, or between processes that map the segments'
//! files.

use super::cli::Cli;
use super::{ended, impossible, tell};
use active_messages::launch::{self, RunOptions, TransportChoice, TransportOptions};
use lab::random_access::cli::{name, one_line};
use lab::random_access::error::RunError;
use lab::random_access::{conclude, rank};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig, MappedJob};
use std::process::ExitCode;
use std::rc::Rc;

/// Runs all ranks on the machine that the command line describes, in virtual time.
///
/// # Errors
/// [`RunError`]: an impossible machine, the first rank that failed, or a failed verification.
pub(crate) fn run(cli: &Cli) -> Result<(), RunError> {
    let machine = machine(cli)?;
    let program = Rc::new(cli.clone());
    let report = conduit::run(&machine, &config(cli, machine.ranks), move |transport| {
        rank::run(transport, &program.options, &name(program.backend))
    });
    tell(cli, report.map_err(ended)?)
}

/// The conduit for this run.
fn config(cli: &Cli, ranks: u32) -> ConduitConfig {
    let segments = (0..ranks).map(|rank| cli.options.segment_bytes(ranks, rank) as u64);
    let default = ConduitConfig::default();
    ConduitConfig { segment: segments.max().unwrap_or(0).max(default.segment), ..default }
}

/// The machine that the command line describes.
fn machine(cli: &Cli) -> Result<SciConfig, RunError> {
    let wanted = &cli.simulation;
    let mut machine = match &wanted.machine {
        None => sci_sim::fitting(cli.rank_count()),
        Some(path) => SciConfig::from_file(path).map_err(impossible)?,
    };
    if let Some(ranks) = cli.options.ranks {
        machine.ranks = ranks;
    }
    if let Some(topology) = &wanted.topology {
        machine.topology = topology.clone();
    }
    wanted.change_faults(&mut machine.faults);
    machine.trace = wanted.trace.is_some();
    machine.check().map_err(impossible)?;
    Ok(machine)
}

/// Runs as one of several processes, after starting them if no launcher has.
pub(crate) fn processes(cli: &Cli) -> ExitCode {
    let options =
        RunOptions::new().ranks(cli.options.ranks).default_ranks(cli.rank_count()).transport(TransportChoice::Shm);
    launch::run(options, |job| {
        cli.check(job.ranks()).map_err(|error| RunError::Usage(one_line(&error)))?;
        // What the launcher knows the job by names the directory of the segments.
        let segments = MappedJob::named(job.job_id(), job.ranks(), config(cli, job.ranks()));
        let joined = segments.join(job.rank().0).map_err(|error| RunError::Usage(error.to_string()))?;
        conclude(&cli.options, rank::run(joined, &cli.options, &name(cli.backend))?)
    })
}
