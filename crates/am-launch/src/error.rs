//! Everything that can keep a launcher or an agent from starting or watching its ranks, with the exit code that
//! goes with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::env::error::EnvironmentError;
use crate::outcome::{EXIT_LAUNCHER_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_USAGE, code_of};
use crate::spec::MAX_RANKS;

/// Why a job could not be started or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is out of range.
    #[error("{ranks} ranks asked for, but a job has 1 to {MAX_RANKS}")]
    RankCount {
        /// The number asked for.
        ranks: u32,
    },
    /// A variable of the environment contract can't be chosen.
    #[error("the launcher itself sets {} for every rank", key.display())]
    ReservedVariable {
        /// The variable's name.
        key: OsString,
    },
    /// A variable's name is empty or has an equals sign in it.
    #[error("{key:?} is no name for an environment variable")]
    MalformedVariable {
        /// The name.
        key: OsString,
    },
    /// A variable of this family is unknown or makes no sense.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The program does not exist.
    #[error("program {} not found: {source}", quoted(program))]
    NotFound {
        /// The program as given.
        program: OsString,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The program exists but can't be executed.
    #[error("program {} can't be executed: {source}", quoted(program))]
    NotExecutable {
        /// The program as given.
        program: OsString,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The working directory for the ranks is missing.
    #[error("the working directory {} does not exist here: name one with --wdir", directory.display())]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The hosts are too few for the ranks.
    #[error(transparent)]
    Slots(#[from] TooFewSlots),
    /// The rendezvous address can't be used.
    #[error(transparent)]
    Listener(#[from] ListenError),
    /// No address of a host is the one that was asked for.
    #[error("{reason}")]
    Interface {
        /// What was asked for and what there is.
        reason: String,
    },
    /// The remote command can't be started.
    #[error("the remote command `{command}` can't be started: {source}; --remote names another one")]
    Remote {
        /// The command with the host's name.
        command: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A host could not do its part.
    #[error("host {host}: {reason}")]
    Host {
        /// The host's name.
        host: String,
        /// What went wrong, and what may help.
        reason: String,
        /// The exit code that goes with it.
        code: u8,
    },
    /// Hosts did not report in time.
    #[error(
        "no report within {seconds} s from {hosts}{note}; `{command} true` shows whether the remote command works, \
         --start-limit gives it more time"
    )]
    Overdue {
        /// The hosts' names.
        hosts: String,
        /// The time that they had.
        seconds: f64,
        /// What is known besides.
        note: String,
        /// The remote command of the first of them.
        command: String,
    },
    /// A host's address makes sense on that host only.
    #[error(
        "host {host} would be reached at {address} ({interface}), an address that {other} at {other_address} can't reach: \
         give its address= in the host file, or choose with --interface"
    )]
    Loopback {
        /// The host's name.
        host: String,
        /// Its address.
        address: IpAddr,
        /// The interface of that address.
        interface: String,
        /// Another host.
        other: String,
        /// That one's address.
        other_address: IpAddr,
    },
    /// Hosts have addresses of different families.
    #[error(
        "host {host} would be reached at {address} and {other} at {other_address}, which are of different families: give their \
         address= in the host file, or choose a network with --interface"
    )]
    Families {
        /// A host with an IPv4 address.
        host: String,
        /// Its address.
        address: IpAddr,
        /// A host with an IPv6 address.
        other: String,
        /// That one's address.
        other_address: IpAddr,
    },
    /// The launcher can't be reached from the host of an agent.
    #[error("the launcher {reason}")]
    NoLauncher {
        /// Where it was looked for and what may help.
        reason: String,
    },
    /// A signal ended the start.
    #[error("ended by {signal} before the ranks were started")]
    Interrupted {
        /// The signal.
        signal: Signal,
    },
    /// The operating system refused something that the launcher needs.
    #[error("{what} failed: {source}")]
    System {
        /// What it was needed for.
        what: String,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code that a launcher ends with after this error.
    pub fn code(&self) -> u8 {
        match self {
            Self::RankCount { .. } | Self::ReservedVariable { .. } | Self::MalformedVariable { .. } => EXIT_USAGE,
            Self::Environment(_) | Self::Slots(_) => EXIT_USAGE,
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            Self::Host { code, .. } => *code,
            Self::Interrupted { signal } => code_of(*signal),
            _ => EXIT_LAUNCHER_FAILED,
        }
    }
}

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Someone listens there already.
    #[error("the rendezvous port {0} is in use on this host: choose another one")]
    InUse(SocketAddr),
    /// The address is another host's.
    #[error(
        "the rendezvous address {0} is not one of this host's: it has to be an address of the host that serves it \
         (with AM_RENDEZVOUS, the one of rank 0)"
    )]
    Elsewhere(SocketAddr),
    /// The port is reserved.
    #[error("the rendezvous address {0} may not be listened at: choose a port from 1024")]
    Forbidden(SocketAddr),
    /// The system refused it.
    #[error("listening at the rendezvous address {0} failed: {1}")]
    System(SocketAddr, io::Error),
}

/// More ranks than the hosts take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ranks} ranks asked for, but the hosts have {slots} slots together ({each}): raise a host's slots or add hosts"
)]
#[non_exhaustive]
pub struct TooFewSlots {
    /// Ranks asked for.
    pub ranks: u32,
    /// Slots of all hosts.
    pub slots: u32,
    /// The slots of each host.
    pub each: String,
}

/// Wraps an operating system's refusal of `what`.
pub(crate) fn system<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> LaunchError {
    move |source| LaunchError::System { what: what.into(), source: source.into() }
}

/// A program's name in a message.
pub(crate) fn quoted(program: &OsStr) -> String {
    format!("'{}'", program.display())
}
