//! Runs the RandomAccess example itself, on a transport of the bench: what is measured is the
//! program that users run.

use std::time::Duration;

use active_messages::shm::{Job, JoinOptions};
use clap::Parser;
use lab::random_access::cli::Cli;
use lab::random_access::rank;

/// Runs `rank` of a job of its own with the example's command line; rank 0 returns the time from barrier to
/// barrier.
///
/// # Panics
/// If the run fails or its verification does.
pub(crate) fn run(job: &Job, rank: u32, arguments: &[String]) -> Duration {
    let cli = Cli::parse_from(std::iter::once("random_access").chain(arguments.iter().map(String::as_str)));
    let ranks = u64::from(cli.rank_count());
    let words = (1_u64 << cli.options.log2_table).div_ceil(ranks);
    let segment_bytes = if cli.options.variant.is_message() { 0 } else { 8 * words as usize };
    let options = JoinOptions::default().segment_bytes(segment_bytes);
    let shm = job.join_with(rank, options).expect("the rank is free");
    let report = rank::run(shm, &cli.options, "shm").expect("the example runs");
    let Some(report) = report else { return Duration::ZERO };
    report.verdict().expect("the updates are right");
    report.time()
}
