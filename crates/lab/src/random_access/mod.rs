//! HPCC RandomAccess over active messages, on any transport.
//!
//! `hpcc` has the benchmark's rules, `rank` the run of one rank, `messages` and `shared` the ways of updating,
//! `table` the memory, `cli` and `report` what a user gives and gets. [`main`] is the program that runs between
//! processes.

pub mod cli;
pub mod error;
pub mod hpcc;
pub mod messages;
pub mod progress;
pub mod rank;
pub mod report;
pub mod shared;
pub mod table;

use active_messages::Rank;
use active_messages::launch::{self, Carrier, RunOptions, TransportChoice, TransportOptions};
use active_messages::loopback::{self, LoopbackConfig};
use active_messages::shm::JoinOptions;
use clap::Parser;
use cli::{Backend, Cli, Options, name};
use error::RunError;
use report::Report;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The program that runs between processes, or as one of them; becomes the one for simulated machines where that
/// is asked for and lies beside it.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    if cli::asks_for_simulation(arguments) {
        return simulated();
    }
    let parsed = Cli::try_parse().and_then(|cli| cli.check(cli.rank_count()).map(|()| cli));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            eprintln!("{}", cli::one_line(&error));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match cli.backend {
        Backend::Auto | Backend::Shm | Backend::Udp => processes(&cli),
        Backend::Loopback => exit_code(one_rank(&cli)),
        Backend::Simulated => unreachable!("the check of the command line refuses it"),
    }
}

/// Becomes the program that runs simulated machines, with the same arguments.
fn simulated() -> ExitCode {
    if let Ok(Some((rank, ranks @ 2.., by))) = launch::started_as() {
        eprintln!(
            "error: {by} has started this as rank {rank} of {ranks}, but a simulation runs all ranks: start it alone"
        );
        return ExitCode::from(2);
    }
    let refused = match std::env::current_exe().map(|own| own.with_file_name("random_access_sim")) {
        Ok(program) if program.exists() => {
            let failed = Command::new(&program).args(std::env::args_os().skip(1)).exec();
            format!("error: {} does not start: {failed}", program.display())
        }
        _ => {
            let asked = Cli::parse_from(["random_access", "--backend", "sim"]);
            cli::one_line(&asked.check(1).expect_err("this program runs no simulation"))
        }
    };
    eprintln!("{refused}");
    ExitCode::from(2)
}

/// Runs as one of several processes, after starting them if no launcher has.
fn processes(cli: &Cli) -> ExitCode {
    let choice = match cli.backend {
        Backend::Shm => Some(TransportChoice::Shm),
        Backend::Udp => Some(TransportChoice::Udp),
        _ => None,
    };
    let options = RunOptions::new().ranks(cli.options.ranks).default_ranks(cli.rank_count()).transport(choice);
    launch::run(options, |job| {
        cli.check(job.ranks()).map_err(|error| RunError::Usage(cli::one_line(&error)))?;
        let segment_bytes = cli.options.segment_bytes(job.ranks(), job.rank().0);
        let options = JoinOptions::default().segment_bytes(segment_bytes);
        let carriers: Vec<_> = (0..job.ranks()).map(|rank| job.carrier(Rank(rank))).collect();
        // Where all ranks share memory, the transport that has only that is the fastest.
        let report = if carriers.iter().all(|carrier| *carrier == Carrier::Shm) && cli.backend != Backend::Udp {
            rank::run(job.shm(options)?, &cli.options, &name(Backend::Shm))?
        } else {
            if cli.backend == Backend::Shm || cli.backend == Backend::Udp && carriers.contains(&Carrier::Shm) {
                let wanted = name(cli.backend);
                let hint =
                    format!("--backend {wanted}, but the job was started otherwise: amrun --transport {wanted}");
                return Err(RunError::Usage(hint));
            }
            rank::run(job.attach(options)?, &cli.options, &carried_by(&carriers, cli.backend))?
        };
        if let Some(small) = job.small_pages(segment_bytes).filter(|_| report.is_some()) {
            eprintln!("random_access: {small}");
        }
        conclude(&cli.options, report)
    })
}

/// What a report calls libfabric.
const OFI: &str = "ofi";

/// What a report calls carriers that are not all shared memory: those of a job with some of that by its backend.
fn carried_by(carriers: &[Carrier], backend: Backend) -> String {
    if carriers.contains(&Carrier::Shm) {
        name(backend)
    } else if carriers.iter().all(|carrier| *carrier == Carrier::Udp) {
        name(Backend::Udp)
    } else {
        OFI.into()
    }
}

/// Runs as the only rank.
fn one_rank(cli: &Cli) -> Result<(), RunError> {
    let config = LoopbackConfig::default().segment(cli.options.segment_bytes(1, 0));
    let transport = loopback::network(1, config).remove(0);
    conclude(&cli.options, rank::run(transport, &cli.options, &name(cli.backend))?)
}

/// Prints an error, and returns the exit code that it means: 2 where the command line was wrong.
pub fn exit_code(outcome: Result<(), RunError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(RunError::Usage(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("random_access: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the report, where there is one, and judges it.
///
/// # Errors
/// The run failed its verification.
pub fn conclude(options: &Options, report: Option<Report>) -> Result<(), RunError> {
    let Some(report) = report else { return Ok(()) };
    if options.json {
        println!("{}", report.json());
        if let Some(caveat) = report.caveat() {
            eprintln!("random_access: {caveat}");
        }
    } else {
        println!("{report}");
    }
    report.verdict()
}
