//! Job control for active messages: how the ranks of a job are started, found and ended, on one host or on many.
//!
//! - [`run`] is all that most programs need: started plainly, the program becomes N ranks of itself; started by
//!   `amrun`, `mpirun` or `srun`, it is one of theirs.
//! - [`Launcher`] starts any program as N ranks and returns how each ended; the `amrun` command is a thin shell
//!   over it. With [`Hosts`] it starts them on other hosts.
//! - [`Bootstrap`] is what a rank knows about its job before any transport: rank, ranks and hosts, an exchange of
//!   bytes, failures as they become known, the job's secret. This crate knows no transport; those who do
//!   (`active-messages`) start them with it and [register](env::register) the variables that they read.
//!
//! ```
//! use am_launch::{Hosts, Launcher, parse_hosts};
//!
//! // An agent on each host starts and watches its ranks; here both hosts are this one, so that no ssh is needed.
//! let launcher = Launcher::new("./solver").ranks(4).hosts(Hosts::new(parse_hosts("127.0.0.1,127.0.0.2")?));
//! # drop(launcher);
//! # Ok::<(), am_launch::HostListError>(())
//! ```
//!
//! # Several hosts
//!
//! `amrun --hosts a,b -n 8 ./program` runs the remote command (ssh unless told otherwise) once per host, which
//! starts `amrun` there as an *agent*. The job's secret and all orders go through the agent's standard input,
//! never through arguments, which every user of a host can list. Agents report at one TCP port of the launcher,
//! over connections that both ends authenticate and encrypt with the secret; nobody else gets an answer there.
//! They start the ranks, report their ends, pass signals on, and end everything when the launcher is silent for
//! too long or gone. Ranks inherit two descriptors: of a sealed memory file, the *manifest*, with the hosts, the
//! host of every rank and the secret, and of a link to their launcher or agent, over which they exchange bytes and
//! hear of failures. So neither connections nor descriptors grow with the pairs of ranks; a launcher or agent has
//! one for each rank of its host.
//!
//! Ranks that `mpirun` or `srun` started on several hosts meet where rank 0 says, over PMI (the socket `PMI_FD`)
//! or PMIx (its library is loaded at run time); the job's secret goes the same way. Otherwise, and by hand, they
//! meet at `AM_RENDEZVOUS=HOST:PORT`, where rank 0 listens; `AM_SECRET_FILE` names a file with their secret,
//! readable by its owner alone. Three variables and that file are enough: `AM_RANK`, `AM_RANKS` and
//! `AM_RENDEZVOUS`. The connections stay: rank 0 tells the others of ranks that end.
//!
//! From the bottom up; each uses only what stands above it in this table:
//!
//! | file or folder | owns |
//! |---|---|
//! | `outcome`, `intervals`, `codec`, `descriptors`, `interface` | ends of ranks, lists of numbers, the code of messages, inherited descriptors, addresses of this host |
//! | `env/`, `error`, `spec` | the variables of all that and their check, why a job can't be launched, a job's description |
//! | `secret`, `manifest`, `notices`, `control_links` | what launchers and ranks tell each other |
//! | `host/` | the ranks of one host: their start, their supervision, their output |
//! | `cluster/` | jobs on several hosts: agents, their monitor, the rendezvous |
//! | `launcher`, `rank/` | the builder of a job; a rank's side: who it is, whom it meets, what its transports start with |
//! | `run` | a program that is its own launcher |
//!
//! # Environment of a rank
//!
//! | variable | meaning |
//! |---|---|
//! | `AM_RANK`, `AM_RANKS` | this rank, from 0, and the number of ranks |
//! | `AM_LOCAL_RANK`, `AM_LOCAL_RANKS` | the same among the ranks of this host |
//! | `AM_JOB` | a text that names the job uniquely on its host |
//! | `AM_MANIFEST_FD`, `AM_CONTROL_FD` | the inherited manifest, and the link to the launcher |
//! | `AM_LAUNCHER`, `AM_LAUNCHER_PID` | `amrun` or `self`, and the process id of the launcher or agent |
//! | `AM_LIFELINE_FD` | an inherited pipe end that hangs up when the launcher is gone |
//! | `AM_NOTICE_FD` | an inherited pipe end through which ranks tell the launcher what their exit codes don't |
//! | `AM_KEEP_GOING` | 1 if the other ranks go on when one fails |
//!
//! `AM_MANIFEST_FD`, `AM_CONTROL_FD`, `AM_LIFELINE_FD` and `AM_NOTICE_FD` have the form `NUMBER:DEVICE:INODE`,
//! which says which file the descriptor is. A rank takes its descriptors over once, and programs that it starts
//! do not inherit them. Such a program that is linked to this library and was started with the variables above
//! gets [`RankError::Descriptor`]; it has to be started without them.
//!
//! A process with `AM_RANK`, `AM_RANKS` and `AM_JOB` but without `AM_LAUNCHER` was started by
//! hand, say in a debugger; such ranks meet each other on one host as those of `mpirun` do. Under `mpirun` and
//! `srun`, `AM_JOB` overrides the name that the ranks meet under; without it and without a name from the launcher,
//! the ranks of one parent belong together. With `AM_RENDEZVOUS` they meet there instead, whatever their hosts.
//!
//! More are read: `AM_DEFAULT_RANKS`, the number of ranks when nobody asks for one; `AM_MEET_TIMEOUT`, how
//! many seconds ranks of one host wait for each other, and those of several that no launcher of this family
//! started (by default 60 and a tenth for each rank); `AM_TRANSPORT`, which is passed on; `AM_INTERFACE`, the
//! interface for traffic between hosts; `AM_TIMEOUT`, the time-out of every wait; by `amrun` `AM_REMOTE`, the
//! remote command; and those that transports [register](env::register). Any other variable whose name begins with
//! `AM_` is an error that names the nearest known one, unless `AM_IGNORE` lists it. The launcher checks all of
//! them before it starts a rank. `amrun` knows no transport: it refuses names that look like one of the above,
//! misspelt, and leaves the others to the ranks.
//!
//! # A job that does not get on
//!
//! SIGQUIT to a rank, or to its launcher for all of them, makes ranks print what they wait for and go on. When a
//! job's time limit is over (`amrun -t`), the ranks do so before they are ended. `AM_TIMEOUT=10s` or
//! `amrun --timeout 10s` makes waits that take longer fail with the same report. A program's own handler for
//! SIGQUIT stays.
//!
//! # Which rank is named
//!
//! A rank that fails because another one was lost is not the reason. Ranks tell the launcher of whose loss they
//! have learned; before it names such a rank it waits up to 5 s for the end of the lost one, and exits with that
//! one's code.
//!
//! # What is left behind
//!
//! Nothing: the manifest is an anonymous file, every meeting point an abstract socket, and ranks die with their
//! launcher, even with one that was killed, on every host.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("am-launch needs Linux: memory files, signal descriptors and parent-death signals");

mod cluster;
mod codec;
mod control_links;
mod descriptors;
pub mod env;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod golden;
mod host;
mod interface;
mod intervals;
mod launcher;
mod manifest;
mod notices;
mod outcome;
mod rank;
mod run;
mod secret;
mod spec;

pub use cluster::agent::serve_as_agent;
pub use cluster::channel::ChannelError;
pub use cluster::list::{HostListError, HostSpec, parse_hosts, read_host_file};
pub use cluster::listener::ConnectError;
pub use cluster::options::{DEFAULT_LOST_AFTER, DEFAULT_START_LIMIT, Hosts, default_start_limit};
pub use cluster::place::Placement;
pub use cluster::remote::{Remote, RemoteError};
pub use cluster::rendezvous::RendezvousError;
pub use env::check::parse_time;
pub use env::error::EnvironmentError;
pub use error::{LaunchError, ListenError, TooFewSlots};
pub use host::local_ranks::usable_processors;
pub use interface::{InterfaceError, InterfaceWish};
pub use intervals::Intervals;
pub use launcher::Launcher;
pub use manifest::HostEntry;
pub use notices::exit_job;
pub use outcome::{
    EXIT_BROKEN_PIPE, EXIT_LAUNCHER_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIMED_OUT, EXIT_USAGE,
    Outcome, RankEnd,
};
pub use rank::bootstrap::{Bootstrap, DepartureReport, ExchangeError};
pub use rank::error::RankError;
pub use rank::identity::StartedBy;
pub use rank::meet::LocalRendezvousError;
pub use rank::{DEFAULT_MEET_TIMEOUT, default_meet_timeout, started_as};
pub use run::{RunOptions, default_ranks, prepare_alone, run, run_joined, tells_of_closed_output};
pub use secret::{Secret, SecretError};
pub use spec::{DEFAULT_GRACE, MAX_RANKS};
