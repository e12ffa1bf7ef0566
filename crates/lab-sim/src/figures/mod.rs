//! Reproduces published figures on the simulated machines, and says how far off each one is.
//!
//! `cli` reads the command line, `parts` runs what it chooses, `line` has a reference beside the simulated value,
//! `report` the table and the files, `fit` compares parameter tables with the fits that they come from, `plot`
//! draws, `progress` shows how far it is, `settings` are changes to parameters; `extoll` and its fellows run the
//! machines, `collectives` collective operations on several of them, `network` networks without interfaces.

mod cli;
pub mod collectives;
pub mod exanet;
pub mod extoll;
mod fit;
mod line;
mod network;
mod parts;
pub(crate) mod plot;
pub mod portals;
mod progress;
mod report;
pub mod sci;
mod settings;

use clap::Parser;
use cli::{Cli, Machine, Task};
use fit::Fitting;
use report::{Failure, Report};
use std::path::Path;
use std::process::ExitCode;

/// The program.
pub fn main() -> ExitCode {
    lab::pipes::end_with_the_reader();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            let paragraph = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            eprintln!("{}", paragraph.collect::<Vec<_>>().join(" "));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match reproduce(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure::Usage(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a machine's figures and adds them to a report.
type Figures = fn(&Cli, &mut Report) -> Result<(), Failure>;

/// Runs the figures that are asked for; returns whether all are within their tolerances.
fn reproduce(cli: &Cli) -> Result<bool, Failure> {
    let machine = match cli.task {
        Task::Reproduce(machine) => machine,
        Task::Fit { machine } => {
            let fittings = Fitting::of(machine)?;
            fittings.iter().for_each(Fitting::print);
            return Ok(fittings.iter().all(Fitting::is_kept));
        }
    };
    let (name, run): (_, Figures) = match machine {
        Machine::Exanet => ("exanet", exanet::run),
        Machine::Extoll => ("extoll", extoll::run),
        Machine::Sci => ("sci", sci::run),
        Machine::Portals => ("portals", portals::run),
        Machine::Collectives => ("collectives", collectives::run),
        Machine::Network => ("network", network::run),
    };
    let mut report = Report::new(name);
    run(cli, &mut report)?;
    let written = report.write(&cli.out)?;
    if cli.docs {
        report.write_pictures(Path::new("docs"))?;
    }
    println!("\nwritten: {}", written.display());
    report.conclude();
    Ok(report.all_within())
}
