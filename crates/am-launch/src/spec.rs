//! A job as its launcher describes it: plain data that everything which starts or watches ranks reads.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::getpid;

use crate::env;
use crate::interface::InterfaceWish;

/// The most ranks of one launched job; beyond it a mistyped number is likelier than a wish.
pub const MAX_RANKS: u32 = 4096;
/// How long ranks that were told to end get by default before they are killed.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(3);

/// One job, from its program to how it ends. [`Launcher`](crate::Launcher) has a setter for each part.
#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) ranks: u32,
    /// What stands in front of the launcher's own messages.
    pub(crate) name: String,
    /// The value of `AM_LAUNCHER`.
    pub(crate) kind: &'static str,
    pub(crate) prefix: bool,
    pub(crate) keep_going: bool,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) bind: bool,
    pub(crate) adopt: bool,
    pub(crate) endpoints: u16,
    pub(crate) interface: Option<InterfaceWish>,
    pub(crate) verbose: bool,
}

impl JobSpec {
    /// One rank of a program, with the defaults of [`Launcher`](crate::Launcher).
    pub(crate) fn new(program: OsString) -> Self {
        Self {
            program,
            arg0: None,
            args: Vec::new(),
            environment: Vec::new(),
            ranks: 1,
            name: "am-launch".into(),
            kind: env::LAUNCHER_AMRUN,
            prefix: false,
            keep_going: false,
            time_limit: None,
            grace: DEFAULT_GRACE,
            bind: false,
            adopt: false,
            endpoints: 1,
            interface: None,
            verbose: false,
        }
    }

    /// What the policy goes by.
    pub(crate) fn rules(&self) -> Rules {
        Rules { keep_going: self.keep_going, grace: self.grace, timeout: self.time_limit }
    }

    /// Prints one of the launcher's own messages; a closed standard error is no reason to stop.
    pub(crate) fn say(&self, line: &str) {
        let _ = io::stderr().write_all(format!("{}: {line}\n", self.name).as_bytes());
    }

    /// Prints a message for those who want to know more.
    pub(crate) fn log_verbose(&self, line: &str) {
        if self.verbose {
            self.say(line);
        }
    }
}

/// How one job may end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) keep_going: bool,
    pub(crate) grace: Duration,
    pub(crate) timeout: Option<Duration>,
}

/// A text that no other job of this host has: the launcher's process and the time.
pub(crate) fn job_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", getpid(), since.as_nanos())
}
