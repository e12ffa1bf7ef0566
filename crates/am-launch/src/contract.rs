//! The environment contract: the names of the variables through which a launcher and its ranks agree.

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
/// The number of the inherited file descriptor of the job's shared memory.
pub const SHM_FD: &str = "AM_SHM_FD";
/// Who started the job: [`LAUNCHER_AMRUN`] or [`LAUNCHER_ITSELF`].
pub const LAUNCHER: &str = "AM_LAUNCHER";
/// The process id of the launcher.
pub const LAUNCHER_PID: &str = "AM_LAUNCHER_PID";
/// The number of an inherited pipe end that hangs up when the launcher is gone.
pub const LIFELINE_FD: &str = "AM_LIFELINE_FD";

/// Read by [`run`](crate::run): how many ranks a plainly started program becomes.
pub const DEFAULT_RANKS: &str = "AM_DEFAULT_RANKS";
/// Read by [`run`](crate::run) under `mpirun` and `srun`: seconds that ranks wait for each other at the start.
pub const MEET_TIMEOUT: &str = "AM_MEET_TIMEOUT";

/// The value of [`LAUNCHER`] for a job started by `amrun`.
pub const LAUNCHER_AMRUN: &str = "amrun";
/// The value of [`LAUNCHER`] for a job that the program itself started.
pub const LAUNCHER_ITSELF: &str = "self";

/// The variables that a launcher sets for every rank and that nobody else may set for it.
pub const SET_BY_LAUNCHER: [&str; 9] =
    [RANK, RANKS, LOCAL_RANK, LOCAL_RANKS, JOB, SHM_FD, LAUNCHER, LAUNCHER_PID, LIFELINE_FD];
