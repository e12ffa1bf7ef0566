//! How a program's ranks are started or start themselves ([`am_launch`]), and how they attach: [`run`] hands every
//! rank a [`RankJob`], whose [`attach`](RankJob::attach) is the way into the job.
//!
//! What the ranks talk over is chosen here, from a list by priority ([`TransportChoice`]): [`am_launch`] knows no
//! transport. The variables `AM_SHM_RING_CELLS` and `AM_SHM_RING_BYTES` set the sizes of all rings between two
//! endpoints in shared memory, in messages and payload bytes, each a power of two; without them they follow from
//! the number of ranks. [`UdpConfig::VARIABLES`](crate::udp::UdpConfig::VARIABLES) has those of UDP. With
//! `AM_TRANSPORT=list` a program says what its machine has and what would be taken, and ends.

use std::fmt::Display;
use std::process::ExitCode;

pub use am_launch::{
    Bootstrap, ChannelError, ConnectError, DEFAULT_GRACE, DEFAULT_LOST_AFTER, DEFAULT_MEET_TIMEOUT,
    DEFAULT_START_LIMIT, DepartureReport, EXIT_BROKEN_PIPE, EXIT_LAUNCHER_FAILED, EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND, EXIT_TIMED_OUT, EXIT_USAGE, EnvironmentError, ExchangeError, HostEntry, HostListError,
    HostSpec, Hosts, InterfaceError, InterfaceWish, LaunchError, Launcher, ListenError, LocalRendezvousError,
    MAX_RANKS, Outcome, Placement, RankEnd, RankError, Remote, RemoteError, RendezvousError, RunOptions, Secret,
    SecretError, StartedBy, TooFewSlots, default_meet_timeout, default_ranks, default_start_limit, env, exit_job,
    parse_hosts, parse_time, read_host_file, serve_as_agent, started_as, usable_processors,
};

pub use crate::job::{FarTransport, JobAttachError, JobTransport, RankJob};
pub use crate::transports::{Carrier, TransportChoice, TransportOptions};

/// Runs `program` as one rank of a job, however this process was started: [`am_launch::run`] has all about that,
/// and about exit codes.
///
/// ```no_run
/// use active_messages::prelude::*;
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     launch::run(RunOptions::new().default_ranks(2), |job: RankJob| -> Result<(), String> {
///         println!("rank {} of {}", job.rank(), job.ranks());
///         Ok(())
///     })
/// }
/// ```
pub fn run<E: Display>(options: RunOptions, program: impl FnOnce(RankJob) -> Result<(), E>) -> ExitCode {
    ExitCode::from(status(options, program))
}

/// As [`run`], with the exit code as a number from 0 to 255, for programs whose `main` is not Rust's.
pub fn run_status<E: Display>(options: RunOptions, program: impl FnOnce(RankJob) -> Result<(), E>) -> i32 {
    status(options, program).into()
}

fn status<E: Display>(options: RunOptions, program: impl FnOnce(RankJob) -> Result<(), E>) -> u8 {
    if crate::transports::told_list() {
        return 0;
    }
    crate::transports::register();
    am_launch::run_joined(options, RankJob::new, program)
}
