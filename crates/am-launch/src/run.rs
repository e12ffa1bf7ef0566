//! The one call of a program that is its own launcher: `run`.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

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
#[derive(Clone, Debug)]
pub struct RunOptions {
    ranks: Option<u32>,
    default_ranks: Option<u32>,
    launcher: Launcher,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { ranks: None, default_ranks: None, launcher: Launcher::new(OsString::new()) }
    }
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

    /// Sets up the [`Launcher`] that a plainly started program becomes: time limits, binding, variables of the
    /// ranks. Program, arguments, number of ranks and name are this program's own, whatever the closure says of
    /// them. Ranks that somebody else started keep what they were started with; only
    /// [`endpoints`](Launcher::endpoints) also counts where `mpirun` or `srun` starts them.
    ///
    /// ```
    /// use am_launch::RunOptions;
    /// use std::time::Duration;
    ///
    /// let options = RunOptions::new().default_ranks(4);
    /// let options = options.launcher(|launcher| launcher.bind(true).time_limit(Duration::from_secs(60)));
    /// # drop(options);
    /// ```
    #[must_use]
    pub fn launcher(mut self, set: impl FnOnce(Launcher) -> Launcher) -> Self {
        self.launcher = set(self.launcher);
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
/// The exit code of a rank is 0, or 1 after an error, which is printed once with the rank in front. A panic goes
/// on to `main`, which makes it 101; a line with the rank comes before its message. A rank that fails after it was
/// told of another rank's loss waits up to 3 s with its message (not with [`Launcher::keep_going`]), so that the
/// lost rank's own comes first, and is usually ended meanwhile. A rank that prints to a standard output that
/// nobody reads any more ends quietly with [`EXIT_BROKEN_PIPE`], and the job with it.
/// [`exit_job`](crate::exit_job) ends the whole job from anywhere. A malformed environment is 2; ranks that don't
/// find each other or memory that can't be had are [`EXIT_LAUNCHER_FAILED`]. The exit code of the launcher is that
/// of the rank that failed first ([`Outcome::code`](crate::Outcome::code)), or that of
/// [`LaunchError::code`](crate::LaunchError::code).
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

/// As [`run`], for those who make something else of the bootstrap before the program gets it: `join` does, and its
/// errors are those of the job's start. Returns the exit code.
pub fn run_joined<J, E: Display>(
    options: RunOptions,
    join: impl FnOnce(Bootstrap) -> Result<J, RankError>,
    program: impl FnOnce(J) -> Result<(), E>,
) -> u8 {
    let job =
        Bootstrap::identified(options.launcher.endpoints_of_rank()).and_then(|job| check_size(job, options.ranks));
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

/// Whether an error, or a panic's message, is that nobody reads standard output any more: a program ends quietly
/// then, with [`EXIT_BROKEN_PIPE`].
pub fn tells_of_closed_output(text: &str) -> bool {
    text.contains("Broken pipe") && !is_read()
}

/// Makes a process that starts no others, and runs all ranks of its job itself, behave as the ranks of [`run`] do:
/// its environment is checked, `AM_TIMEOUT` becomes the time-out of waits unless `virtual_time` says that their
/// time is not the clock's, SIGQUIT makes its endpoints print what they wait for, unless the program has a handler
/// of its own, and printing to nobody ends it quietly with [`EXIT_BROKEN_PIPE`].
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
        RankError::Signal(_)
        | RankError::LocalRendezvous(_)
        | RankError::Rendezvous(_)
        | RankError::KeyValueSpace { .. } => false,
    }
}

fn become_launcher(options: &RunOptions) -> u8 {
    let ranks = match options.ranks.map_or_else(default_ranks, |ranks| Ok(Some(ranks))) {
        Ok(ranks) => ranks.or(options.default_ranks).unwrap_or_else(usable_processors),
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    let launcher = options.launcher.clone().of_this_program(program_file()).ranks(ranks).name(own_name());
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
