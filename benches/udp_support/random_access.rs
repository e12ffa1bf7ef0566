//! Runs the RandomAccess example itself, between two threads over UDP: what is measured is the program that users
//! run.

use super::am::Plan;
use clap::Parser;
use lab::random_access::cli::Cli;
use lab::random_access::rank;
use std::thread;
use std::time::Duration;
use transport_udp::{LocalJob, LocalOptions};

/// A whole run with the example's command line, of two ranks; the time from barrier to barrier.
///
/// # Panics
/// If the run fails.
pub(crate) fn run(plan: Plan, arguments: &str) -> Duration {
    let cli =
        Cli::parse_from(["random_access", "--ranks=2", "--verify=false"].into_iter().chain(arguments.split(' ')));
    let job = LocalJob::with(2, LocalOptions::default(), plan.config()).expect("loopback has free ports");
    let play = |number| {
        let transport = job.join(number).expect("every rank joins once");
        rank::run(transport, &cli.options, "udp").expect("the example runs")
    };
    let report = thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        let report = play(0);
        other.join().expect("rank 1 ends well");
        report
    });
    report.expect("rank 0 has a report").time()
}
