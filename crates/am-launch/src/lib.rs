//! Job control for active messages: how the ranks of a job are started, found and ended on one host.
//!
//! - [`run`] is all that most programs need: started plainly, the program becomes N ranks of itself; started by
//!   `amrun`, `mpirun` or `srun`, it is one of theirs.
//! - [`Launcher`] starts any program as N ranks and returns how each ended; the `amrun` command is a thin shell
//!   over it.
//! - [`RankJob`] is what a rank knows about its job.
//!
//! # Environment of a rank
//!
//! | variable | meaning |
//! |---|---|
//! | `AM_RANK`, `AM_RANKS` | this rank, from 0, and the number of ranks |
//! | `AM_LOCAL_RANK`, `AM_LOCAL_RANKS` | the same among the ranks of this host |
//! | `AM_JOB` | a text that names the job uniquely on its host |
//! | `AM_SHM_FD` | the inherited descriptor of the job's shared memory |
//! | `AM_LAUNCHER`, `AM_LAUNCHER_PID` | `amrun` or `self`, and its process id |
//! | `AM_LIFELINE_FD` | an inherited pipe end that hangs up when the launcher is gone |
//!
//! A process with `AM_RANK`, `AM_RANKS` and `AM_JOB` but without `AM_LAUNCHER` and `AM_SHM_FD` was started by
//! hand, say in a debugger; such ranks meet each other as those of `mpirun` do. Under `mpirun` and `srun`,
//! `AM_JOB` overrides the name that the ranks meet under; without it and without a name from the launcher, the
//! ranks of one parent belong together.
//!
//! Two more are read: `AM_DEFAULT_RANKS`, the number of ranks when nobody asks for one, and `AM_MEET_TIMEOUT`, how
//! many seconds ranks under `mpirun` and `srun` wait for each other.
//!
//! # What is left behind
//!
//! Nothing: the shared memory is an anonymous file, the meeting point an abstract socket, and ranks die with their
//! launcher, even with one that was killed.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("am-launch needs Linux: memory files, signal descriptors and parent-death signals");

mod adoption;
mod attach;
mod book;
pub mod contract;
mod crew;
mod hosts;
mod identity;
mod launcher;
mod lifeline;
mod limits;
mod lines;
mod meet;
mod net;
mod outcome;
mod output;
mod policy;
mod rank;
mod run;
mod secret;
mod spawn;
mod supervise;
mod transport;

pub use attach::OpenError;
pub use book::HostCard;
pub use crew::usable_processors;
pub use hosts::agent::serve_as_agent;
pub use hosts::channel::ChannelError;
pub use hosts::door::{DoorError, KnockError};
pub use hosts::interface::{InterfaceError, InterfaceWish};
pub use hosts::list::{HostListError, HostSpec, parse_hosts, read_host_file};
pub use hosts::options::{DEFAULT_LOST_AFTER, DEFAULT_START_LIMIT, Hosts};
pub use hosts::place::{Placement, TooFewSlots};
pub use hosts::remote::{Remote, RemoteError};
pub use hosts::rendezvous::RendezvousError;
pub use identity::{EnvironmentError, StartedBy};
pub use launcher::{DEFAULT_GRACE, LaunchError, Launcher, MAX_RANKS};
pub use meet::MeetError;
pub use net::{AttachError, JobTransport};
pub use outcome::{
    EXIT_LAUNCHER_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIMED_OUT, EXIT_USAGE, Outcome, RankEnd,
};
pub use rank::{DEFAULT_MEET_TIMEOUT, RankError, RankJob};
pub use run::{RunOptions, default_ranks, run};
pub use secret::{Secret, SecretError};
pub use transport::{Carrier, TransportChoice};
