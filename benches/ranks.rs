//! What a rank costs by the number of ranks on one host, over each transport: memory, descriptors, and the time
//! that a whole job takes. `cargo bench --bench ranks` starts jobs of 8, 64 and 512 ranks and writes
//! `target/summary/ranks.json`, `.md` and `.svg`; `-- 2000` starts those of 2000, which need some gigabytes. With
//! the feature `ofi`, libfabric over tcp is a transport, too.
//!
//! Each rank attaches, meets the others in a barrier, looks at itself and tells rank 0. Memory is its proportional
//! share of all that is resident (`smaps_rollup`).

use active_messages::prelude::*;
use lab::bench::chart::{Chart, Column, Kind, Panel};
use lab::bench::command::{CommandLine, Mode};
use lab::bench::load::Load;
use lab::bench::publish::publish;
use lab::bench::summary::{Baseline, Figure, Summary, Unit};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

/// How many ranks this program's children are to start.
const RANKS_OF_JOB: &str = "RANKS_BENCH";
/// What stands before the line in which rank 0 tells the bench what it has found.
const FOUND: &str = "ranks: ";
/// A job that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(300);

const TRANSPORTS: [&str; 3] = ["shm", "udp", "ofi:tcp"];
const RANKS: [u32; 4] = [8, 64, 512, 2000];
/// So many are started only when a filter asks for them.
const MANY: u32 = 2000;

/// Sums over the ranks that have told, of kilobytes and of descriptors.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    ranks: u32,
    kilobytes: u64,
    descriptors: u64,
}

fn main() -> ExitCode {
    if let Ok(ranks) = env::var(RANKS_OF_JOB) {
        let ranks: u32 = ranks.parse().expect("the bench wrote a number");
        let options = RunOptions::new().ranks(ranks).launcher(|launcher| launcher.time_limit(LONGEST));
        return active_messages::launch::run(options, rank);
    }
    bench();
    ExitCode::SUCCESS
}

/// One rank of a job.
fn rank(job: RankJob) -> Result<(), Box<dyn Error>> {
    let mut handlers = Handlers::<Found>::new();
    let tell = handlers.one_way("tell", |found, _, (kilobytes, descriptors): (u64, u64), _| {
        found.ranks += 1;
        found.kilobytes += kilobytes;
        found.descriptors += descriptors;
    })?;
    let mut endpoint = Endpoint::attach(job.attach(JoinOptions::default())?, handlers, Found::default())?;
    endpoint.barrier()?;
    let own = (kilobytes()?, fs::read_dir("/proc/self/fd")?.count() as u64);
    endpoint.request(Rank(0), tell, own)?;
    if endpoint.rank() == Rank(0) {
        let ranks = endpoint.ranks();
        endpoint.wait_until(|found| found.ranks == ranks)?;
        println!("{FOUND}{}", serde_json::to_string(endpoint.state())?);
    }
    endpoint.finish()?;
    Ok(())
}

/// This process's proportional share of what is resident.
fn kilobytes() -> Result<u64, Box<dyn Error>> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss in smaps_rollup")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Starts a job; what it has found, and the seconds from its start to its end.
fn job(transport: &str, ranks: u32) -> Result<(Found, f64), String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let output = Command::new(program)
        .env(RANKS_OF_JOB, ranks.to_string())
        .env("AM_TRANSPORT", transport)
        // Thousands of ranks on a few processors come to nothing for seconds.
        .env("AM_UDP_SILENCE", "120")
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| error.to_string())?;
    let seconds = began.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    // The launcher puts the rank before each line.
    let found = text.lines().find_map(|line| line.split_once(FOUND)).map(|(_, found)| serde_json::from_str(found));
    match found {
        Some(Ok(found)) if output.status.success() => Ok((found, seconds)),
        _ => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(error.lines().next().unwrap_or("it said nothing").to_owned())
        }
    }
}

fn bench() {
    let command = CommandLine::of_process();
    let (mut summary, test) = (Summary::new("ranks"), command.mode == Mode::Test);
    let wanted =
        |name: &str, ranks| command.selects("ranks", name) && (ranks < MANY || command.mode == Mode::Partial);
    for transport in TRANSPORTS {
        let mut least = None;
        for ranks in if test { &[3][..] } else { &RANKS } {
            let job_name = format!("{transport}, {ranks} ranks");
            if !wanted(&job_name, *ranks) {
                continue;
            }
            let load = Load::now(&[]);
            let (found, seconds) = match job(transport, *ranks) {
                Ok(found) => found,
                // Not every machine has libfabric, nor every build.
                Err(error) if transport.starts_with("ofi") => {
                    println!("skipped: {job_name}: {error}");
                    break;
                }
                Err(error) => panic!("{job_name}: {error}"),
            };
            assert_eq!(found.ranks, *ranks, "a rank has not told");
            let others = load.others_until(&Load::now(&[]));
            let each = |sum: u64| sum as f64 / f64::from(*ranks);
            let values = [
                ("memory of a rank", Unit::Kilobytes, each(found.kilobytes)),
                ("descriptors of a rank", Unit::Descriptors, each(found.descriptors)),
                ("start to end, for each rank", Unit::Milliseconds, seconds * 1e3 / f64::from(*ranks)),
            ];
            let first = *least.get_or_insert((*ranks, values));
            for (index, (what, unit, value)) in values.into_iter().enumerate() {
                let baseline = Baseline { name: format!("{} ranks", first.0), value: first.1[index].2 };
                summary.push(Figure {
                    name: format!("{job_name}: {what}"),
                    value,
                    unit,
                    spread: 0.0,
                    baseline: (first.0 != *ranks).then_some(baseline),
                    bar: None,
                    placement: "one host".into(),
                    probes: [0.0; 2],
                    attempts: 1,
                    steady: true,
                    others,
                });
            }
        }
    }
    publish(&summary, command.mode, env!("CARGO_TARGET_TMPDIR").as_ref(), chart);
}

fn chart(summary: &Summary) -> Chart {
    let panel = |what: &str, title: &str| {
        let columns = summary.figures().iter().filter_map(|figure| {
            let (label, _) = figure.name.split_once(": ").filter(|(_, figure)| *figure == what)?;
            Some(Column { label: label.into(), value: figure.value, kind: Kind::Ours })
        });
        Panel { title: title.into(), columns: columns.collect() }
    };
    Chart {
        title: "What a rank costs".into(),
        subtitle: "cargo bench --bench ranks; all ranks on one host".into(),
        legend: ["this project".into(), String::new(), String::new()],
        panels: vec![
            panel("memory of a rank", "resident memory of a rank, kB (less is better)"),
            panel("descriptors of a rank", "descriptors of a rank (less is better)"),
            panel("start to end, for each rank", "a job from start to end, ms for each rank (less is better)"),
        ],
    }
}
