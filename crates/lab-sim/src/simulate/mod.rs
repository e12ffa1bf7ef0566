//! A machine of one's own measured and loaded: latency, bandwidth and rate of messages between two ranks, traffic
//! of all ranks, and schedules in GOAL's format.
//!
//! `cli` reads the command line, `pair` measures two ranks, `traffic` loads all of them along a `pattern`,
//! `sweep` makes the runs of a sweep, `output` has the table, the JSON, the CSV and the pictures.

mod cli;
mod output;
mod pair;
mod pattern;
mod sweep;
mod traffic;

use active_messages::Instant;
use clap::Parser;
use cli::{Cli, Measure, Task};
use fabric_sim::{ConfigError, LinkUse, Report, RunError, Trace};
use lab::random_access::cli::one_line;
use machine_sim::MachineConfig;
use machine_sim::goal::{self, Schedule};
use machine_sim::presets::PRESETS;
use output::Output;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use sweep::sweep;
use traffic::Traffic;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, or a file that it names, asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// A simulation came to no good end.
    #[error("{0}")]
    Simulation(String),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Config(error) => error.into(),
            error => Self::Simulation(error.to_string()),
        }
    }
}

/// The program. Exits with 0 when all runs ended, with 1 when one did not, and with 2 when the command line or the
/// machine is wrong.
pub fn main() -> ExitCode {
    lab::pipes::end_with_the_reader();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            eprintln!("{}", one_line(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    if cli.list {
        PRESETS.iter().for_each(|preset| println!("{:<20} {}", preset.name, preset.about));
        return ExitCode::SUCCESS;
    }
    match simulate(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(Failure::Simulation(error)) => {
            eprintln!("simulate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for and tells what came out.
fn simulate(cli: &Cli) -> Result<(), Failure> {
    let machine = cli.machine()?;
    let output = match cli.task()? {
        Task::Measure(measure, pair) => measured(cli, &machine, measure, pair)?,
        Task::Traffic(pattern) => traffic(cli, &machine, &Traffic::of(cli, pattern))?,
        Task::Schedule(file) => scheduled(cli, &machine, file)?,
    };
    output.write(cli)
}

fn measured(cli: &Cli, machine: &MachineConfig, measure: Measure, pair: (u32, u32)) -> Result<Output, Failure> {
    let mut output = Output::of_pair(machine, measure, pair);
    let runs = sweep(machine, &cli.sizes()?, cli.jobs(), |machine, &bytes, last| {
        let (value, report) = match measure {
            Measure::Latency => pair::latency(machine, pair, bytes)?,
            Measure::Bandwidth | Measure::Rate => pair::stream(machine, pair, bytes, cli.messages())?,
        };
        let value = match measure {
            Measure::Latency => value,
            Measure::Bandwidth => f64::from(bytes) * value / 1e6,
            Measure::Rate => value / 1e6,
        };
        if !value.is_finite() {
            return Err(Failure::Usage(format!(
                "{} messages of {bytes} bytes take no time on this machine, so they have no rate: give it costs",
                cli.messages()
            )));
        }
        Ok((vec![f64::from(bytes), value], last.then(|| Remains::of(report))))
    })?;
    for (row, last) in runs {
        output.add(row);
        finish(cli, last, &mut output)?;
    }
    Ok(output)
}

fn traffic(cli: &Cli, machine: &MachineConfig, traffic: &Traffic) -> Result<Output, Failure> {
    traffic.pattern.check(machine.ranks)?;
    let mut output = Output::of_traffic(machine, traffic, cli.sweeps_load());
    let runs = sweep(machine, &cli.loads()?, cli.jobs(), |machine, &(bytes, load), last| {
        let (point, report) = traffic::run(machine, traffic, bytes, load)?;
        Ok(((bytes, load), point, last.then(|| Remains::of(report))))
    })?;
    for ((bytes, load), point, last) in runs {
        output.add(point.row(bytes, load));
        output.add_details((bytes, load), point);
        finish(cli, last, &mut output)?;
    }
    Ok(output)
}

fn scheduled(cli: &Cli, machine: &MachineConfig, file: &Path) -> Result<Output, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("--goal {}: {error}", file.display())))?;
    let schedule: Schedule =
        text.parse().map_err(|error| Failure::Usage(format!("--goal {}: {error}", file.display())))?;
    let played = goal::run(machine, &schedule)?;
    let mut output = Output::of_schedule(machine, schedule.ranks.len());
    let last = |times: &[Instant]| times.iter().map(|time| time.0).max().unwrap_or(0) as f64 / 1e3;
    output.add(vec![schedule.ranks.len() as f64, last(&played.ended), last(&played.quiet)]);
    output.ended(&played.ended);
    finish(cli, Some(Remains::of(played.report)), &mut output)?;
    Ok(output)
}

/// What of the last run is told besides the table.
struct Remains {
    links: Vec<LinkUse>,
    trace: Option<Trace>,
}

impl Remains {
    fn of<R>(report: Report<R>) -> Self {
        Self { links: report.links, trace: report.trace }
    }
}

/// Keeps what the last run tells of the links, and its trace where that is wanted.
fn finish(cli: &Cli, last: Option<Remains>, output: &mut Output) -> Result<(), Failure> {
    let Some(Remains { links, trace }) = last else { return Ok(()) };
    output.links(&links);
    if let (Some(path), Some(trace)) = (&cli.trace, &trace) {
        let written = File::create(path).and_then(|file| trace.write_chrome(BufWriter::new(file)));
        written.map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// The busiest link and the mean of all that carried anything, as parts of the run.
pub(crate) fn utilisation(links: &[LinkUse]) -> (f64, f64) {
    let most = links.iter().map(|link| link.utilisation).fold(0.0, f64::max);
    let mean = links.iter().map(|link| link.utilisation).sum::<f64>() / links.len().max(1) as f64;
    (most, mean)
}
