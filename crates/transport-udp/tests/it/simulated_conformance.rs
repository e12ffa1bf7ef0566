//! The conformance suite over the simulated driver, under mischief drawn from seeds.
//!
//! A failure prints the command that repeats it: `AM_UDP_SIM_SEED` runs one seed only, `AM_CONFORMANCE_ONLY` one
//! case.

use am_conformance::{Buffers, Description, Plan, Profile, World, judge, run_part, run_with};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use transport_udp::simulated::{Ethernet, EthernetJobConfig};

/// Bytes of every rank's segment: not a multiple of anything but eight.
const SEGMENT: usize = (1 << 18) + 8;

/// The network of a seed: every fourth is without costs, the others are Ethernets; every second has a switch, the
/// others cables, which differ by direction.
fn network(ranks: u32, seed: u64) -> EthernetJobConfig {
    let ethernet = [Ethernet::ideal, Ethernet::ten, Ethernet::twenty_five, Ethernet::hundred][seed as usize % 4]();
    let mut job = EthernetJobConfig::new(ranks, &ethernet);
    job.segment_bytes = SEGMENT;
    // A run that polls for ever is given up after this many seconds of virtual time.
    job.fabric.deadline_ns = 3600e9;
    if (seed / 4).is_multiple_of(2) { job } else { job.cabled() }
}

/// Plays all ranks of a case; returns what went wrong.
fn play(job: &EthernetJobConfig, case: &Description, world: &World) -> Vec<String> {
    let job = if case.needs.buffers == Buffers::Smallest { job.clone().smallest() } else { job.clone() };
    let (case, world) = (*case, *world);
    let report = job.run(move |transport| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run_part(&case, &world, vec![transport])));
        judge(&case, outcome)
    });
    match report {
        Ok(report) => {
            let problems = report.results.into_iter().enumerate();
            problems.filter_map(|(rank, problem)| Some(format!("rank {rank}: {}", problem??))).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Runs one case in `share` of the suite under one seed; returns what went wrong, with the command that repeats
/// it.
fn run_seed(seed: u64, ranks: &[u32], mischief: bool, share: u64) -> Vec<String> {
    let plan = Plan { seed, ranks: ranks.to_vec(), share, ..Plan::from_environment(Profile::Quick) };
    let report = run_with("UDP in virtual time", &plan, |case, ranks, world| {
        if std::env::var_os("AM_UDP_SIM_TRACE").is_some() {
            println!("seed {seed}, {} with {ranks} ranks", case.name);
        }
        let job = network(ranks, seed);
        play(&if mischief { job.mischief(seed) } else { job }, case, world)
    });
    if std::env::var_os("AM_UDP_SIM_TRACE").is_some() {
        println!("{report}");
    }
    assert!(share > 1 || !report.lines.is_empty(), "no case is called like that");
    let failed = report.lines.iter().filter(|line| !line.problems.is_empty());
    let text = failed.map(|line| {
        let problems = line.problems.join("; ");
        format!(
            "seed {seed}, {} with {} ranks: {problems}\n  AM_UDP_SIM_SEED={seed} AM_CONFORMANCE_ONLY={} cargo test --release \
             --all-features -p active-messages-udp --test it -- --ignored simulated_conformance::one_seed --nocapture",
            line.name, line.ranks, line.name
        )
    });
    text.collect()
}

fn check(problems: &[String]) {
    assert!(problems.is_empty(), "{} failures:\n{}", problems.len(), problems.join("\n"));
}

/// A seed of the full profile runs about one case in so many, drawn from it; `AM_UDP_SIM_SHARE=1` has all of them
/// run.
fn share() -> u64 {
    number("AM_UDP_SIM_SHARE", 4)
}

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => otherwise,
    }
}

/// How many ranks a seed of the full profile has.
fn ranks_of(seed: u64) -> u32 {
    [1, 2, 3, 5, 8][(seed / 8 % 5) as usize]
}

#[test]
fn without_faults() {
    check(&run_seed(1, &[2], false, 3));
}

#[test]
fn with_mischief_1_rank() {
    check(&run_seed(12, &[1], true, 3));
}

#[test]
fn with_mischief_2_ranks() {
    check(&run_seed(7, &[2], true, 2));
}

#[test]
fn with_mischief_3_ranks() {
    check(&run_seed(5, &[3], true, 2));
}

#[test]
fn with_mischief_5_ranks() {
    check(&run_seed(9, &[5], true, 8));
}

#[test]
fn with_mischief_8_ranks() {
    check(&run_seed(2, &[8], true, 16));
}

/// Under 1000 seeds, or as many as `AM_UDP_SIM_SEEDS` says, each of which draws network, faults, number of ranks
/// and a quarter of the cases: every case runs some 250 times, with each number of ranks some 50 times.
///
/// `cargo test --release -p active-messages-udp --test it -- --ignored simulated_conformance::full --nocapture`
#[test]
#[ignore = "the full profile takes long"]
fn full() {
    let (first, count) = (number("AM_UDP_SIM_FIRST", 1000), number("AM_UDP_SIM_SEEDS", 1000));
    let (next, done, problems) = (AtomicU64::new(first), AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    let found = run_seed(seed, &[ranks_of(seed)], true, share());
                    found.iter().for_each(|problem| println!("{problem}"));
                    problems.lock().expect("no thread panics with the lock").extend(found);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(25) || done == count {
                        println!("{done} of {count} seeds");
                    }
                }
            });
        }
    });
    check(&problems.into_inner().expect("no thread panics with the lock"));
}

/// Repeats one seed of the full profile.
#[test]
#[ignore = "needs AM_UDP_SIM_SEED"]
fn one_seed() {
    let Ok(seed) = std::env::var("AM_UDP_SIM_SEED") else {
        println!("skipped: AM_UDP_SIM_SEED is not set");
        return;
    };
    let seed = seed.parse().expect("AM_UDP_SIM_SEED is a number");
    check(&run_seed(seed, &[ranks_of(seed)], true, share()));
}
