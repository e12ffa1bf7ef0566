//! The environment contract: the names of the variables through which a launcher and its ranks agree, and the
//! registration of those that transports read ([`register`]).

pub(crate) mod check;
pub(crate) mod error;

pub use check::{Lookup, Settings, Trial, register};

use std::ffi::OsStr;

/// The rank of this process, counted from 0.
pub const RANK: &str = "AM_RANK";
/// The number of ranks of the job.
pub const RANKS: &str = "AM_RANKS";
/// The rank of this process among those on its host, counted from 0.
pub const LOCAL_RANK: &str = "AM_LOCAL_RANK";
/// The number of ranks on this host.
pub const LOCAL_RANKS: &str = "AM_LOCAL_RANKS";
/// A text that names the job uniquely on its host.
pub const JOB: &str = "AM_JOB";
/// Who started the job: [`LAUNCHER_AMRUN`] or [`LAUNCHER_ITSELF`].
pub const LAUNCHER: &str = "AM_LAUNCHER";
/// The process id of the launcher.
pub const LAUNCHER_PID: &str = "AM_LAUNCHER_PID";
/// An inherited pipe end that hangs up when the launcher is gone, as `NUMBER:DEVICE:INODE`.
pub const LIFELINE_FD: &str = "AM_LIFELINE_FD";

/// The inherited descriptor of the job's manifest (hosts, the host of every rank, and the secret), as
/// `NUMBER:DEVICE:INODE`.
pub const MANIFEST_FD: &str = "AM_MANIFEST_FD";
/// The inherited descriptor of this rank's control link to its launcher, as `NUMBER:DEVICE:INODE`.
pub const CONTROL_FD: &str = "AM_CONTROL_FD";

/// `host:port` at which ranks that were started by hand, by `mpirun` or by `srun` on several hosts meet; rank 0
/// listens there.
pub const RENDEZVOUS: &str = "AM_RENDEZVOUS";
/// A file with the job's secret, for jobs that meet at [`RENDEZVOUS`].
pub const SECRET_FILE: &str = "AM_SECRET_FILE";
/// What the ranks talk over. Its values are those of the program that attaches them (`auto`, `shm` and `udp` for
/// `active-messages`); here it is only passed on, and has to be the same on all ranks.
pub const TRANSPORT: &str = "AM_TRANSPORT";
/// The value of [`TRANSPORT`] with which a program says what its machine has, and ends.
pub const LIST: &str = "list";
/// The interface for traffic between hosts: its name, a network as `10.1.0.0/16`, or an address.
pub const INTERFACE: &str = "AM_INTERFACE";
/// Read by `amrun`: the command that starts a program on another host.
pub const REMOTE: &str = "AM_REMOTE";

/// Read by [`run`](crate::run): how many ranks a plainly started program becomes.
pub const DEFAULT_RANKS: &str = "AM_DEFAULT_RANKS";
/// The backend that a program runs on; the facade's entry point for all of them reads it.
pub const BACKEND: &str = "AM_BACKEND";
/// The machine that the backend `sim` simulates: a file, or the name of one that is built in.
pub const MACHINE: &str = "AM_MACHINE";
/// Read by [`run`](crate::run) under `mpirun` and `srun`: seconds that ranks wait for each other at the start.
pub const MEET_TIMEOUT: &str = "AM_MEET_TIMEOUT";

/// The time-out of every wait of every rank: `500ms`, `10s`, `2m`.
pub const TIMEOUT: &str = "AM_TIMEOUT";
/// Names of variables, with commas between them, that begin as this family's do but belong to other programs; a
/// final `*` stands for any rest.
pub const IGNORE: &str = "AM_IGNORE";

/// The inherited pipe end through which ranks tell their launcher what their exit codes don't, as
/// `NUMBER:DEVICE:INODE`.
pub const NOTICE_FD: &str = "AM_NOTICE_FD";
/// Set to 1 where the other ranks go on when one fails.
pub const KEEP_GOING: &str = "AM_KEEP_GOING";

/// The value of [`LAUNCHER`] for a job started by `amrun`.
pub const LAUNCHER_AMRUN: &str = "amrun";
/// The value of [`LAUNCHER`] for a job that the program itself started.
pub const LAUNCHER_ITSELF: &str = "self";

/// The variables that a launcher sets for every rank and that nobody else may set for it.
pub const SET_BY_LAUNCHER: [&str; 12] = [
    RANK,
    RANKS,
    LOCAL_RANK,
    LOCAL_RANKS,
    JOB,
    MANIFEST_FD,
    CONTROL_FD,
    LAUNCHER,
    LAUNCHER_PID,
    LIFELINE_FD,
    NOTICE_FD,
    KEEP_GOING,
];

/// The variables that users set.
pub const SETTINGS: [&str; 11] = [
    DEFAULT_RANKS,
    BACKEND,
    MACHINE,
    MEET_TIMEOUT,
    RENDEZVOUS,
    SECRET_FILE,
    TRANSPORT,
    INTERFACE,
    REMOTE,
    TIMEOUT,
    IGNORE,
];

/// Whether a variable of this family is for ranks on other hosts as well, rather than for one process or its
/// launcher.
pub(crate) fn is_forwarded(key: &OsStr) -> bool {
    let kept = [DEFAULT_RANKS, REMOTE, RENDEZVOUS, SECRET_FILE, INTERFACE];
    key.as_encoded_bytes().starts_with(b"AM_") && !SET_BY_LAUNCHER.iter().chain(&kept).any(|ours| key == *ours)
}
