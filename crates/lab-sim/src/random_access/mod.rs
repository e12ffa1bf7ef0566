//! HPCC RandomAccess on simulated machines: every rank is a coroutine of this process, and time is the machine's.

mod cli;
mod exanet;
mod extoll;
mod machine;
mod portals;
mod sci;

use clap::Parser;
use cli::{Backend, Cli, Sci};
use fabric_sim::{ConfigError, Report as Run};
use lab::random_access::cli::one_line;
use lab::random_access::error::RunError;
use lab::random_access::report::Report;
use lab::random_access::{conclude, exit_code};
use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;

/// The program.
pub fn main() -> ExitCode {
    lab::pipes::end_with_the_reader();
    let parsed = Cli::try_parse().and_then(|cli| cli.check(cli.rank_count()).map(|()| cli));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            eprintln!("{}", one_line(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match cli.backend {
        Backend::Exanet => exit_code(exanet::run(&cli)),
        Backend::Extoll => exit_code(extoll::run(&cli)),
        Backend::Sim => exit_code(machine::run(&cli)),
        Backend::Portals => exit_code(portals::run(&cli)),
        Backend::Sci if cli.simulation.sci() == Sci::Mapped => sci::processes(&cli),
        Backend::Sci => exit_code(sci::run(&cli)),
    }
}

/// What a rank brings.
type Outcome = Result<Option<Report>, RunError>;

/// The error for a machine that there cannot be.
fn impossible(error: ConfigError) -> RunError {
    RunError::Usage(error.to_string())
}

/// The error for a run that did not come to its end.
fn ended(error: fabric_sim::RunError) -> RunError {
    match error {
        fabric_sim::RunError::Config(error) => impossible(error),
        error => RunError::Simulation(error.to_string()),
    }
}

/// Tells what came out of the ranks and of the machine.
fn tell(cli: &Cli, run: Run<Outcome>) -> Result<(), RunError> {
    if let (Some(path), Some(trace)) = (&cli.simulation.trace, &run.trace) {
        let written = File::create(path).and_then(|file| trace.write_chrome(BufWriter::new(file)));
        written.map_err(|error| RunError::Usage(format!("cannot write {}: {error}", path.display())))?;
        eprintln!("random_access: the trace is in {}; open it with Perfetto", path.display());
    }
    if !cli.options.json {
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
        None => conclude(&cli.options, of_rank_0),
    }
}
