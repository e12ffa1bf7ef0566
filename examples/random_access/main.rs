//! HPCC RandomAccess over active messages between real processes.
//!
//! ```text
//! cargo run --release --example random_access                        # 2^25 words on two ranks, buckets in Medium messages
//! cargo run --release --example random_access -- --variant short     # one message for each update
//! cargo run --release --example random_access -- --backend extoll --ranks 64 --topology mesh3d:4x4x4 --log2-table 16
//! cargo run --release --example random_access -- --backend sci --ranks 8 --sci mapped --log2-table 20
//! cargo run --release --example random_access -- --help
//! ```
//!
//! `hpcc` has the benchmark's rules, `rank` the run of one rank, `simulated` and `sci` the machines that it may run on, `messages` and `shared` the ways of updating, `table` the
//! memory, `cli` and `report` what a user gives and gets.

mod buckets;
mod cli;
mod error;
mod hpcc;
mod messages;
mod portals;
mod progress;
mod rank;
mod report;
mod sci;
mod shared;
mod simulated;
mod table;

use active_messages::Rank;
use active_messages::launch::{self, Carrier, RunOptions, TransportChoice};
use active_messages::loopback::{self, LoopbackConfig};
use active_messages::shm::JoinOptions;
use clap::Parser;
use cli::{Backend, Cli, Sci};
use error::RunError;
use report::Report;
use std::process::ExitCode;

fn main() -> ExitCode {
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
        Backend::Extoll => exit_code(simulated::run(&cli)),
        Backend::Portals => exit_code(portals::run(&cli)),
        Backend::Sci if cli.simulation.sci() == Sci::Mapped => sci::processes(&cli),
        Backend::Sci => exit_code(sci::run(&cli)),
    }
}

/// Runs as one of several processes, after starting them if no launcher has.
fn processes(cli: &Cli) -> ExitCode {
    let choice = match cli.backend {
        Backend::Shm => Some(TransportChoice::Shm),
        Backend::Udp => Some(TransportChoice::Udp),
        _ => None,
    };
    let options = RunOptions::new().ranks(cli.ranks).default_ranks(cli.rank_count()).transport(choice);
    launch::run(options, |job| {
        cli.check(job.ranks()).map_err(|error| RunError::Usage(cli::one_line(&error)))?;
        let options = JoinOptions { segment_bytes: cli.segment_bytes(job.ranks(), job.rank().0), endpoint: 0 };
        let carriers: Vec<_> = (0..job.ranks()).map(|rank| job.carrier(Rank(rank))).collect();
        // Where all ranks share memory, the transport that has only that is the fastest.
        let mut told = cli.clone();
        let report = if carriers.iter().all(|carrier| *carrier == Carrier::Shm) && cli.backend != Backend::Udp {
            told.backend = Backend::Shm;
            rank::run(job.shm(options)?, &told)?
        } else {
            if cli.backend == Backend::Shm || cli.backend == Backend::Udp && carriers.contains(&Carrier::Shm) {
                let wanted = cli::name(cli.backend);
                let hint =
                    format!("--backend {wanted}, but the job was started otherwise: amrun --transport {wanted}");
                return Err(RunError::Usage(hint));
            }
            if !carriers.contains(&Carrier::Shm) {
                told.backend = Backend::Udp;
            }
            rank::run(job.attach(options)?, &told)?
        };
        conclude(cli, report)
    })
}

/// Runs as the only rank.
fn one_rank(cli: &Cli) -> Result<(), RunError> {
    let config = LoopbackConfig { segment: cli.segment_bytes(1, 0), ..LoopbackConfig::default() };
    let transport = loopback::network(1, config).remove(0);
    conclude(cli, rank::run(transport, cli)?)
}

/// Tells an error, and what it means for whoever started this.
fn exit_code(outcome: Result<(), RunError>) -> ExitCode {
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
fn conclude(cli: &Cli, report: Option<Report>) -> Result<(), RunError> {
    let Some(report) = report else { return Ok(()) };
    if cli.json {
        println!("{}", report.json());
        if let Some(caveat) = report.caveat() {
            eprintln!("random_access: {caveat}");
        }
    } else {
        println!("{report}");
    }
    report.verdict()
}
