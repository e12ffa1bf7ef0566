//! A job as its launcher describes it, and the way from the description to running ranks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use am_core::Rank;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, getpid};
use transport_shm::{JobConfig, JobError};

use crate::adoption::Adoption;
use crate::attach::Configure;
use crate::contract;
use crate::lifeline::Lifeline;
use crate::outcome::{EXIT_LAUNCHER_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_USAGE, Outcome};
use crate::output::Stream;
use crate::policy::Rules;
use crate::spawn::{Inheritance, tie};
use crate::supervise::{Signals, supervise};

/// The most ranks of one launched job; beyond it a mistyped number is likelier than a wish.
pub const MAX_RANKS: u32 = 4096;
/// How long ranks that were told to end get by default before they are killed.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(3);

/// Starts a program as N ranks on this host and waits for them: what `amrun` does, as a library.
///
/// ```no_run
/// let outcome = am_launch::Launcher::new("./solver").arg("--fast").ranks(4).launch()?;
/// assert!(outcome.is_success(), "rank {:?} failed", outcome.first_failure());
/// # Ok::<(), am_launch::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Launcher {
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    ranks: u32,
    name: String,
    kind: &'static str,
    prefix: bool,
    keep_going: bool,
    timeout: Option<Duration>,
    grace: Duration,
    bind: bool,
    adopt: bool,
    configure: Configure,
}

impl Launcher {
    /// One rank of `program`, which is looked up in `PATH` unless its name has a slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arg0: None,
            args: Vec::new(),
            environment: Vec::new(),
            ranks: 1,
            name: "am-launch".into(),
            kind: contract::LAUNCHER_AMRUN,
            prefix: false,
            keep_going: false,
            timeout: None,
            grace: DEFAULT_GRACE,
            bind: false,
            adopt: false,
            configure: Configure::default(),
        }
    }

    /// Appends one argument for every rank, passed on byte by byte.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends arguments for every rank.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in the environment of every rank, which otherwise is this process's.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// The number of ranks, 1 to [`MAX_RANKS`].
    #[must_use]
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.ranks = ranks;
        self
    }

    /// The name in front of the launcher's own messages on standard error.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether each line of output gets its rank in front, as in `[3] line`, and is never torn by another's.
    /// Without it (the default) ranks write to this process's streams themselves.
    #[must_use]
    pub fn prefix(mut self, prefix: bool) -> Self {
        self.prefix = prefix;
        self
    }

    /// Whether the other ranks go on when one fails. By default they are ended.
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }

    /// Ends the job after this time.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long ranks that were told to end (SIGTERM) get before they are killed; [`DEFAULT_GRACE`] by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Whether each rank is bound to one processor, in turn, of those this process may use. Off by default.
    #[must_use]
    pub fn bind(mut self, bind: bool) -> Self {
        self.bind = bind;
        self
    }

    /// Whether processes that the ranks started and left behind belong to the job and are ended with it.
    ///
    /// For processes whose only purpose is to launch, such as `amrun`: for the time of the job *every* orphan
    /// among this process's descendants becomes its child, and all its other children are ended with the job. Off
    /// by default.
    #[must_use]
    pub fn adopt(mut self, adopt: bool) -> Self {
        self.adopt = adopt;
        self
    }

    /// What the job's shared memory is like (ring sizes, endpoints per rank), starting from the default for its
    /// number of ranks.
    #[must_use]
    pub fn configure(mut self, configure: impl Fn(JobConfig) -> JobConfig + Send + Sync + 'static) -> Self {
        self.configure = Configure::new(configure);
        self
    }

    /// Marks the job as started by the program itself.
    pub(crate) fn itself(mut self, arg0: Option<OsString>, configure: Configure) -> Self {
        self.kind = contract::LAUNCHER_ITSELF;
        self.arg0 = arg0;
        self.configure = configure;
        self
    }

    /// Starts the ranks and waits until the last one has ended.
    ///
    /// Rank 0 inherits standard input, the others read from `/dev/null`. While it runs, the calling thread passes
    /// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the ranks. In a process with other threads
    /// these may get the signals instead, and the end of a rank may be noticed 20 ms late. If the calling thread
    /// or process dies, the ranks die. A message on standard error names the first rank that fails.
    ///
    /// # Errors
    /// A wrong configuration, a program that can't be started, or a refusing operating system. No rank is left
    /// running.
    pub fn launch(&self) -> Result<Outcome, LaunchError> {
        self.check()?;
        let signals = Signals::take().map_err(system("signal handling"))?;
        let job = self.configure.create(self.ranks)?;
        let segment = job.fd().try_clone_to_owned().map_err(system("sharing memory with ranks"))?;
        let lifeline = Lifeline::new().map_err(system("a pipe"))?;
        let adoption =
            if self.adopt { Some(Adoption::begin().map_err(system("adopting orphans"))?) } else { None };
        let started = self.start(&Arc::new(segment), &lifeline, &signals)?;
        supervise(self, started, &job, &signals, adoption.as_ref())
    }

    fn check(&self) -> Result<(), LaunchError> {
        if !(1..=MAX_RANKS).contains(&self.ranks) {
            return Err(LaunchError::RankCount { ranks: self.ranks });
        }
        for (key, _) in &self.environment {
            if contract::SET_BY_LAUNCHER.iter().any(|ours| key == ours) {
                return Err(LaunchError::ReservedVariable { key: key.clone() });
            }
            let bytes = key.as_encoded_bytes();
            if bytes.is_empty() || bytes.contains(&b'=') {
                return Err(LaunchError::MalformedVariable { key: key.clone() });
            }
        }
        Ok(())
    }

    /// Starts every rank, or none.
    fn start(
        &self,
        segment: &Arc<OwnedFd>,
        lifeline: &Lifeline,
        signals: &Signals,
    ) -> Result<Started, LaunchError> {
        let processors = if self.bind { Some(processors().map_err(system("processor binding"))?) } else { None };
        let job = job_id();
        let mut started = Started { ranks: Vec::new(), pipes: Vec::new() };
        for rank in 0..self.ranks {
            let cpus = processors.as_ref().map(|usable| usable[rank as usize % usable.len()]);
            let files = vec![Arc::clone(segment), Arc::clone(lifeline.watched())];
            let mut command = self.command(rank);
            command
                .env(contract::JOB, &job)
                .env(contract::SHM_FD, segment.as_raw_fd().to_string())
                .env(contract::LIFELINE_FD, lifeline.watched().as_raw_fd().to_string());
            tie(&mut command, Inheritance { mask: signals.before(), files, cpus });
            let mut child = command.spawn().map_err(|source| self.not_started(rank, source))?;
            let out = child.stdout.take().map(|pipe| (Rank(rank), Stream::Out, pipe.into()));
            let err = child.stderr.take().map(|pipe| (Rank(rank), Stream::Err, pipe.into()));
            started.pipes.extend(out.into_iter().chain(err));
            started.ranks.push(Some(child));
        }
        Ok(started)
    }

    fn command(&self, rank: u32) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(arg0) = &self.arg0 {
            command.arg0(arg0);
        }
        command
            .args(&self.args)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .env(contract::RANK, rank.to_string())
            .env(contract::RANKS, self.ranks.to_string())
            .env(contract::LOCAL_RANK, rank.to_string())
            .env(contract::LOCAL_RANKS, self.ranks.to_string())
            .env(contract::LAUNCHER, self.kind)
            .env(contract::LAUNCHER_PID, getpid().to_string());
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command
    }

    fn not_started(&self, rank: u32, source: io::Error) -> LaunchError {
        let program = self.program.clone();
        match nix::Error::from_raw(source.raw_os_error().unwrap_or_default()) {
            nix::Error::ENOENT | nix::Error::ENOTDIR => LaunchError::NotFound { program, source },
            nix::Error::EAGAIN | nix::Error::ENOMEM | nix::Error::EMFILE | nix::Error::ENFILE => {
                LaunchError::System { what: format!("starting rank {rank} of {}", self.ranks), source }
            }
            _ => LaunchError::NotExecutable { program, source },
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules { keep_going: self.keep_going, grace: self.grace, timeout: self.timeout }
    }

    /// Prints one of the launcher's own messages; a closed standard error is no reason to stop.
    pub(crate) fn say(&self, line: &str) {
        use std::io::Write;
        let _ = io::stderr().write_all(format!("{}: {line}\n", self.name).as_bytes());
    }
}

/// The running ranks; those that haven't ended when this is dropped are killed and waited for.
#[derive(Debug)]
pub(crate) struct Started {
    /// By rank; `None` once waited for.
    pub(crate) ranks: Vec<Option<Child>>,
    pub(crate) pipes: Vec<(Rank, Stream, OwnedFd)>,
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in self.ranks.iter_mut().flatten() {
            let _ = child.kill();
        }
        for child in self.ranks.iter_mut().flatten() {
            let _ = child.wait();
        }
    }
}

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
    /// The job's shared memory could not be made.
    #[error(transparent)]
    Job(#[from] JobError),
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
            Self::Job(JobError::Config(_)) => EXIT_USAGE,
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            Self::Job(_) | Self::System { .. } => EXIT_LAUNCHER_FAILED,
        }
    }
}

/// Wraps an operating system's refusal of `what`.
pub(crate) fn system<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> LaunchError {
    move |source| LaunchError::System { what: what.into(), source: source.into() }
}

fn quoted(program: &OsStr) -> String {
    format!("'{}'", program.display())
}

/// A text that no other job of this host has: the launcher's process and the time.
fn job_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", getpid(), since.as_nanos())
}

/// One set per processor that this process may run on.
fn processors() -> nix::Result<Vec<CpuSet>> {
    let usable = sched_getaffinity(Pid::from_raw(0))?;
    (0..CpuSet::count())
        .filter(|&cpu| usable.is_set(cpu).unwrap_or(false))
        .map(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu).map(|()| one)
        })
        .collect()
}

/// How many processors this process may run on; at least 1.
pub fn usable_processors() -> u32 {
    processors().ok().and_then(|usable| u32::try_from(usable.len()).ok()).unwrap_or(1).max(1)
}
