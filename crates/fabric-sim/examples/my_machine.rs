//! Runs an exchange between all ranks on a machine that a TOML file describes, and tells what the network did:
//! `cargo run -p active-messages-sim --example my_machine [-- MACHINE.toml [TRACE.json]]`. With a second file the
//! run is traced; open it in Perfetto. Without any, the machine is `my_machine.toml` beside this file.

use fabric_sim::{Config, Context, Mailbox, Sim};
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;

/// Bytes that every rank has for every other.
const BYTES: u32 = 4096;

/// Every rank sends to all others, each rank beginning with its neighbour, and takes what comes meanwhile.
fn exchange(rank: Context<'_, Mailbox<()>>) -> u64 {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let mut taken = 0;
    for distance in 1..ranks {
        rank.send((me + distance) % ranks, BYTES, ());
        while rank.receive().is_some() {
            taken += 1;
        }
    }
    while taken < ranks - 1 {
        rank.wait();
        taken += 1;
    }
    rank.now().0
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut config = match arguments.next() {
        Some(path) => Config::from_file(path)?,
        None => Config::from_toml(include_str!("my_machine.toml"))?,
    };
    let trace = arguments.next();
    config.trace |= trace.is_some();
    let report = Sim::run(&config, exchange)?;

    let name = if config.nic.name.is_empty() { "a machine without a name" } else { &config.nic.name };
    println!("{} ranks on {name}, {}: everyone sends {BYTES} bytes to everyone", config.ranks, config.topology);
    println!("{report:#}");
    let ended = report.results.iter().flatten();
    if let (Some(first), Some(last)) = (ended.clone().min(), ended.max()) {
        println!(
            "the first rank was done after {:.3} us, the last after {:.3} us",
            *first as f64 / 1e6,
            *last as f64 / 1e6
        );
    }
    if let (Some(path), Some(spans)) = (trace, &report.trace) {
        spans.write_chrome(BufWriter::new(File::create(&path)?))?;
        println!("written: {path}, with {} spans", spans.spans.len());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
