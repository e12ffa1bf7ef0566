//! The one call of a program that is its own launcher: `run`.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use am_core::{Rank, stall};

use crate::cluster::rendezvous::RendezvousError;
use crate::env;
use crate::env::check::{self, check_own};
use crate::env::error::EnvironmentError;
use crate::host::local_ranks::usable_processors;
use crate::host::output::is_read;
use crate::host::spawn::report_on_quit;
use crate::launcher::Launcher;
use crate::notices;
use crate::outcome::{EXIT_BROKEN_PIPE, EXIT_LAUNCHER_FAILED, EXIT_USAGE};
use crate::rank::bootstrap::Bootstrap;
use crate::rank::error::RankError;

/// What [`run`] needs to know before it decides whether this process is a rank or the launcher of ranks.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    ranks: Option<u32>,
    default_ranks: Option<u32>,
    prefix: bool,
    keep_going: bool,
    time_limit: Option<Duration>,
    wait_timeout: Option<Duration>,
    grace: Option<Duration>,
    bind: bool,
    environment: Vec<(OsString, OsString)>,
    endpoints: Option<u16>,
}

impl RunOptions {
    /// As many ranks as there are processors, unless somebody says otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of ranks that the user asked the program for, say with a flag of its own. It wins over
    /// everything else, and it is an error if another launcher started another number.
    #[must_use]
    pub fn ranks(mut self, ranks: impl Into<Option<u32>>) -> Self {
        self.ranks = ranks.into();
        self
    }

    /// The number of ranks when neither the user nor `AM_DEFAULT_RANKS` asks for one; by default as many as this
    /// process may use processors.
    #[must_use]
    pub fn default_ranks(mut self, ranks: u32) -> Self {
        self.default_ranks = Some(ranks);
        self
    }

    /// Sets a variable in the environment of the ranks that the program starts by itself; wins over this process's. Ranks that
    /// somebody else started keep what they were started with.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Endpoints of every rank (threads that communicate), 1 by default. It counts where this program starts its ranks, or `mpirun` or
    /// `srun` does; `amrun` has a flag of its own.
    #[must_use]
    pub fn endpoints(mut self, endpoints: u16) -> Self {
        self.endpoints = Some(endpoints);
        self
    }

    /// As [`Launcher::prefix`].
    #[must_use]
    pub fn prefix(mut self, prefix: bool) -> Self {
        self.prefix = prefix;
        self
    }

    /// As [`Launcher::keep_going`].
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }

    /// As [`Launcher::time_limit`].
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// As [`Launcher::wait_timeout`].
    #[must_use]
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.wait_timeout = Some(timeout);
        self
    }

    /// As [`Launcher::grace`].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// As [`Launcher::bind`].
    #[must_use]
    pub fn bind(mut self, bind: bool) -> Self {
        self.bind = bind;
        self
    }
}

/// Runs `program` as one rank of a job, however this process was started.
///
/// - Started by `amrun`, `mpirun` or `srun`, the process is a rank and calls `program`
///   (see [`Bootstrap::from_environment`] for how it knows).
/// - Started plainly, it becomes a launcher: it executes itself once per rank, with the same arguments and
///   environment, and waits for the ranks as [`Launcher::launch`] does. `program` then runs in the ranks only.
///
/// Call it early in `main`, before starting threads, since all that comes before it happens in the launcher and in
/// every rank. Parse the command line before it, too: wrong flags are then reported once, before there is any
/// rank.
///
/// The exit code of a rank is 0, or 1 after an error, which is printed once with the rank in front. A panic goes on to
/// `main`, which makes it 101; a line with the rank comes before its message. A rank that fails after it was told of another
/// rank's loss waits up to 3 s with its message (not with `keep_going`), so that the lost rank's own comes first, and is
/// usually ended meanwhile. A rank that prints to a standard output that nobody reads any more ends quietly with
/// [`EXIT_BROKEN_PIPE`], and the job with it. [`exit_job`](crate::exit_job) ends the whole job from anywhere. A malformed environment is 2; ranks that don't find each other or memory that can't be
/// had are [`EXIT_LAUNCHER_FAILED`]. The exit code of the launcher is that of the rank that failed first
/// ([`Outcome::code`](crate::Outcome::code)), or that of [`LaunchError::code`](crate::LaunchError::code).
///
/// ```no_run
/// use std::process::{self, ExitCode};
/// use am_launch::{Bootstrap, RunOptions};
///
/// fn main() -> ExitCode {
///     am_launch::run(RunOptions::new().default_ranks(2), |job: Bootstrap| -> Result<(), String> {
///         println!("rank {} of {}", job.rank(), job.ranks());
///         Ok(())
///     })
/// }
/// ```
pub fn run<E: Display>(options: RunOptions, program: impl FnOnce(Bootstrap) -> Result<(), E>) -> ExitCode {
    ExitCode::from(run_joined(options, Ok, program))
}

/// As [`run`], for those who make something else of the bootstrap before the program gets it: `join` does, and its errors are those
/// of the job's start. Returns the exit code.
pub fn run_joined<J, E: Display>(
    options: RunOptions,
    join: impl FnOnce(Bootstrap) -> Result<J, RankError>,
    program: impl FnOnce(J) -> Result<(), E>,
) -> u8 {
    let job = Bootstrap::identified(options.endpoints.unwrap_or(1)).and_then(|job| check_size(job, options.ranks));
    let joined = match job {
        Ok(Some(job)) => {
            let rank = job.rank();
            join(job).map(|joined| (rank, joined))
        }
        Ok(None) => return become_launcher(&options),
        Err(error) => Err(error),
    };
    let (rank, job) = match joined {
        Ok(joined) => joined,
        Err(error) => return fail(&error, if is_usage(&error) { EXIT_USAGE } else { EXIT_LAUNCHER_FAILED }),
    };
    name_rank_in_panics(rank);
    match program(job) {
        Ok(()) => 0,
        Err(error) => {
            let text = format!("rank {rank}: {error:#}");
            if tells_of_closed_output(&text) {
                return EXIT_BROKEN_PIPE;
            }
            notices::hold_back();
            fail(&text, 1)
        }
    }
}

/// Puts the rank in front of panics' messages, and makes printing to nobody end the process quietly.
fn name_rank_in_panics(rank: Rank) {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        end_quietly(info);
        notices::hold_back();
        let _ = io::stderr().write_all(format!("{}: rank {rank} panicked:\n", own_name()).as_bytes());
        previous(info);
    }));
}

/// Whether an error, or a panic's message, is that nobody reads standard output any more: a program ends quietly then, with
/// [`EXIT_BROKEN_PIPE`].
pub fn tells_of_closed_output(text: &str) -> bool {
    text.contains("Broken pipe") && !is_read()
}

/// Makes a process that starts no others, and runs all ranks of its job itself, behave as the ranks of [`run`] do: its environment is
/// checked, `AM_TIMEOUT` becomes the time-out of waits unless `virtual_time` says that their time is not the clock's, SIGQUIT makes
/// its endpoints print what they wait for, unless the program has a handler of its own, and printing to nobody ends it
/// quietly with [`EXIT_BROKEN_PIPE`].
///
/// # Errors
/// A malformed environment, which is [`EXIT_USAGE`]; a signal that cannot be handled.
pub fn prepare_alone(virtual_time: bool) -> Result<(), RankError> {
    check_own(&[])?;
    match check::timeout()? {
        Some(timeout) if !virtual_time => stall::set_default_timeout(Some(timeout.into())),
        _ => {}
    }
    report_on_quit().map_err(RankError::Signal)?;
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        end_quietly(info);
        previous(info);
    }));
    Ok(())
}

/// Ends this process if a panic is that nobody reads standard output any more.
fn end_quietly(info: &panic::PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    if text.is_some_and(tells_of_closed_output) {
        process::exit(EXIT_BROKEN_PIPE.into());
    }
}

/// Refuses a job of another size than the user asked the program for.
fn check_size(job: Option<Bootstrap>, asked: Option<u32>) -> Result<Option<Bootstrap>, RankError> {
    match (&job, asked) {
        (Some(job), Some(asked)) if job.ranks() != asked => {
            Err(RankError::OtherSize { asked, started: job.ranks(), started_by: job.started_by() })
        }
        _ => Ok(job),
    }
}

fn is_usage(error: &RankError) -> bool {
    match error {
        RankError::Environment(_) | RankError::OtherSize { .. } => true,
        RankError::Descriptor { .. } | RankError::Interface { .. } | RankError::Manifest { .. } => true,
        RankError::Rendezvous(RendezvousError::Address { .. } | RendezvousError::Secret(_)) => true,
        RankError::Signal(_) | RankError::Meet(_) | RankError::Rendezvous(_) => false,
    }
}

fn become_launcher(options: &RunOptions) -> u8 {
    let ranks = match options.ranks.map_or_else(default_ranks, |ranks| Ok(Some(ranks))) {
        Ok(ranks) => ranks.or(options.default_ranks).unwrap_or_else(usable_processors),
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    let mut launcher = Launcher::new(program_file())
        .itself(std::env::args_os().next())
        .endpoints(options.endpoints.unwrap_or(1))
        .args(std::env::args_os().skip(1))
        .ranks(ranks)
        .name(own_name())
        .prefix(options.prefix)
        .keep_going(options.keep_going)
        .bind(options.bind);
    for (key, value) in &options.environment {
        launcher = launcher.env(key, value);
    }
    if let Some(limit) = options.time_limit {
        launcher = launcher.time_limit(limit);
    }
    if let Some(timeout) = options.wait_timeout {
        launcher = launcher.wait_timeout(timeout);
    }
    if let Some(grace) = options.grace {
        launcher = launcher.grace(grace);
    }
    match launcher.launch() {
        Ok(outcome) => outcome.code(),
        Err(error) => fail(&error, error.code()),
    }
}

/// The number of ranks in `AM_DEFAULT_RANKS`, if it is set.
///
/// # Errors
/// Its value is not a number from 1.
pub fn default_ranks() -> Result<Option<u32>, EnvironmentError> {
    let variable = env::DEFAULT_RANKS;
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    match value.to_str().map(str::parse) {
        Some(Ok(ranks)) if ranks > 0 => Ok(Some(ranks)),
        _ => Err(EnvironmentError::Malformed { variable, value, expected: "a number of ranks" }),
    }
}

/// The file to execute for a rank: this program's own, under its name, or through the kernel's link if the file
/// has been replaced or removed since.
fn program_file() -> PathBuf {
    std::env::current_exe().ok().filter(|file| file.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

/// How this program is called in messages.
fn own_name() -> String {
    let name = std::env::args_os().next().unwrap_or_else(|| OsString::from("am-launch"));
    Path::new(&name).file_name().unwrap_or(&name).to_string_lossy().into_owned()
}

/// Prints an error under this program's name.
fn fail(error: &dyn Display, code: u8) -> u8 {
    let _ = io::stderr().write_all(format!("{}: {error}\n", own_name()).as_bytes());
    code
}
