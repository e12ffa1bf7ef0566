//! Two-sided messages on the interface: how long they take and what they cost by protocol, what goes wrong,
//! collective operations, and random programs on machines with faults.

mod collectives;
mod endings;
mod random;
mod transfers;

use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, Mpi, MpiConfig, MpiError, Protocol};

/// Runs a program on every rank, none of which may fail.
fn run<R: 'static>(
    machine: &ExanetConfig,
    protocol: Protocol,
    program: impl Fn(&mut Mpi<'_>) -> Result<R, MpiError> + 'static,
) -> Vec<R> {
    let report = mpi::run(machine, &MpiConfig::of(protocol), program).unwrap();
    report.results.into_iter().map(|result| result.unwrap().unwrap()).collect()
}
