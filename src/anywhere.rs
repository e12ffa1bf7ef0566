//! One entry point for every backend: the same program between processes, in threads of one process, and on
//! simulated machines, chosen by a flag or by `AM_BACKEND`.
//!
//! A rank's part is a generic function, so that each backend runs it at its own speed. It gets a [`Joining`]: the
//! limits are known, the handlers are registered then.
//!
//! ```no_run
//! use active_messages::anywhere::{self, Part, Program};
//! use active_messages::prelude::*;
//!
//! struct Sum;
//!
//! impl Program for Sum {
//!     fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
//!         let mut handlers = Handlers::<u64>::new();
//!         let add = handlers.one_way("add", |sum, _, value: u64, _| *sum += value)?;
//!         let mut endpoint = rank.attach(handlers, 0)?;
//!         endpoint.request(Rank(0), add, u64::from(endpoint.rank().0))?;
//!         let (me, sum) = (endpoint.rank(), endpoint.finish()?);
//!         if me == Rank(0) {
//!             println!("the ranks' numbers add up to {sum}");
//!         }
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     anywhere::main(Sum)
//! }
//! ```

mod flags;
mod report;

pub use flags::Flags;
pub use report::Report;

use crate::launch::{self, RankJob, RunOptions, TransportChoice, TransportOptions};
use crate::loopback::{self, LoopbackConfig};
use crate::shm::JoinOptions;
use crate::{Endpoint, Joining, Transport};
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;

/// What a rank's part of a program returns. An error makes the program end with 1, and the other ranks learn of
/// it.
pub type Part = Result<(), Box<dyn Error>>;

/// A program for any backend. Every rank runs [`Program::rank`]; ranks of processes have a value each, ranks of
/// threads and of simulations share one.
pub trait Program: Sync + 'static {
    /// Runs one rank.
    ///
    /// # Errors
    /// Whatever the program finds wrong.
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part;
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Processes: shared memory within a host, UDP between hosts.
    #[default]
    Processes,
    /// Processes of one host over shared memory alone.
    Shm,
    /// Processes over UDP alone.
    Udp,
    /// Threads of this process.
    Loopback,
    /// EXTOLL in virtual time, its GASNet conduit; needs the feature `sim`.
    Extoll,
    /// EXTOLL in virtual time, its pscom plugins; needs the feature `sim`.
    Pscom,
    /// SCI in virtual time; needs the feature `sim`.
    Sci,
    /// Portals in virtual time; needs the feature `sim`.
    Portals,
    /// ExaNet in virtual time, the ExaNeSt prototype's rack; needs the feature `sim`.
    Exanet,
    /// A machine of one's own in virtual time, see [`Options::machine`]; needs the feature `sim`.
    Sim,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 10] = [
        Self::Processes,
        Self::Shm,
        Self::Udp,
        Self::Loopback,
        Self::Extoll,
        Self::Pscom,
        Self::Sci,
        Self::Portals,
        Self::Exanet,
        Self::Sim,
    ];

    /// The name that a user writes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Shm => "shm",
            Self::Udp => "udp",
            Self::Loopback => "loopback",
            Self::Extoll => "extoll",
            Self::Pscom => "pscom",
            Self::Sci => "sci",
            Self::Portals => "portals",
            Self::Exanet => "exanet",
            Self::Sim => "sim",
        }
    }

    /// The backend that `AM_BACKEND` names, if it is set.
    ///
    /// # Errors
    /// There is no such backend.
    pub fn from_environment() -> Result<Option<Self>, Usage> {
        let Some(value) = std::env::var_os("AM_BACKEND") else { return Ok(None) };
        value.to_string_lossy().parse().map(Some).map_err(|Usage(text)| Usage(format!("AM_BACKEND: {text}")))
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a user asked for cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

impl FromStr for Backend {
    type Err = Usage;

    fn from_str(name: &str) -> Result<Self, Usage> {
        Self::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Usage(format!("there is no backend '{name}'; backends are {names}"))
        })
    }
}

/// How a program runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The backend; without one, what `AM_BACKEND` says, else [`Backend::Processes`].
    pub backend: Option<Backend>,
    /// Number of ranks; without one, `default_ranks`, or what a launcher decided.
    pub ranks: Option<u32>,
    /// Number of ranks where nobody asks for one; 0 stands for the number of processors.
    pub default_ranks: u32,
    /// Size in bytes of every rank's segment; 0 on a simulated machine stands for its conduit's own.
    pub segment_bytes: usize,
    /// The machine of [`Backend::Sim`]: a TOML file, or the name of a machine that is built in; without one, what
    /// `AM_MACHINE` says. Without `ranks` it has as many as it says itself.
    pub machine: Option<PathBuf>,
    /// Whether ranks that are processes go on when one of them has died; else they are ended soon after.
    pub keep_going: bool,
}

const HELP: &str = "\
Options:
  --backend NAME  where to run: processes (shared memory and UDP), shm, udp, loopback, extoll, pscom, sci, portals,
                  exanet, sim
                  [default: AM_BACKEND, else processes]
  --machine FILE  the machine that sim simulates: a TOML file, or the name of one that is built in
                  [default: AM_MACHINE]
  --ranks N       number of ranks [default: the program's; of sim, the machine's]
  --help          this text
";

impl Options {
    /// The usual options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of ranks where nobody asks for one.
    #[must_use]
    pub fn default_ranks(mut self, ranks: u32) -> Self {
        self.default_ranks = ranks;
        self
    }

    /// Sets the size in bytes of every rank's segment.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: usize) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the machine of [`Backend::Sim`].
    #[must_use]
    pub fn machine(mut self, machine: impl Into<PathBuf>) -> Self {
        self.machine = Some(machine.into());
        self
    }

    /// Sets whether ranks that are processes go on when one of them has died.
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }

    /// Takes `--backend NAME`, `--machine FILE` and `--ranks N` out of a program's arguments, the first of which
    /// is the program itself; returns the others. `--help` is left to the program, and so is `--` with all that
    /// follows it.
    ///
    /// # Errors
    /// A flag without its value, or a value that there cannot be.
    pub fn take_args(&mut self, args: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, Usage> {
        let (mut rest, mut args) = (Vec::new(), args.into_iter());
        rest.extend(args.next());
        while let Some(arg) = args.next() {
            if arg == "--" {
                rest.push(arg);
                rest.extend(args);
                break;
            }
            let text = arg.to_string_lossy().into_owned();
            let (flag, inline) = match text.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (text.as_str(), None),
            };
            if !["--backend", "--machine", "--ranks"].contains(&flag) {
                rest.push(arg);
                continue;
            }
            let value = inline.or_else(|| args.next().map(|value| value.to_string_lossy().into_owned()));
            let value = value.ok_or_else(|| Usage(format!("{flag} needs a value")))?;
            if flag == "--backend" {
                self.backend = Some(value.parse()?);
            } else if flag == "--machine" {
                self.machine = Some(value.into());
            } else {
                let ranks = value.parse().ok().filter(|ranks| *ranks > 0);
                self.ranks = Some(ranks.ok_or_else(|| Usage(format!("--ranks {value}: not a number from 1")))?);
            }
        }
        Ok(rest)
    }

    /// Ranks of a backend that starts them itself.
    fn count(&self) -> u32 {
        let processors = || thread::available_parallelism().map_or(1, |count| count.get() as u32);
        self.ranks.unwrap_or_else(|| if self.default_ranks == 0 { processors() } else { self.default_ranks })
    }

    /// The backend that was asked for, or the default; a machine goes with one backend only.
    fn backend(&self) -> Result<Backend, Usage> {
        let backend = match self.backend {
            Some(backend) => backend,
            None => Backend::from_environment()?.unwrap_or_default(),
        };
        match &self.machine {
            Some(machine) if backend != Backend::Sim => Err(Usage(format!(
                "--machine {} means nothing to the backend '{backend}': add --backend sim",
                machine.display()
            ))),
            _ => Ok(backend),
        }
    }

    /// Ranks that the program will have where it starts them itself; those of a machine that there cannot be are
    /// told when the program is to run.
    fn expected(&self) -> u32 {
        #[cfg(feature = "sim")]
        if self.ranks.is_none()
            && let Ok(Backend::Sim) = self.backend()
            && let Ok(machine) = self.simulated_machine()
        {
            return machine.ranks;
        }
        self.count()
    }

    /// The machine of [`Backend::Sim`], with as many ranks as were asked for.
    #[cfg(feature = "sim")]
    fn simulated_machine(&self) -> Result<crate::machine::MachineConfig, Usage> {
        let named = || std::env::var_os(am_launch::env::MACHINE).map(PathBuf::from);
        let Some(place) = self.machine.clone().or_else(named) else {
            let names = crate::machine::presets::names();
            return Err(Usage(format!(
                "the backend 'sim' needs a machine: add --machine FILE.toml or --machine NAME, where NAME is one of {names}"
            )));
        };
        let place = place.display();
        let mut machine = crate::machine::presets::open(place.to_string())
            .map_err(|error| Usage(format!("--machine {place}: {error}")))?;
        if let Some(ranks) = self.ranks {
            machine.ranks = ranks;
            machine.check().map_err(|error| {
                Usage(format!(
                    "--ranks {ranks} does not go with --machine {place}: {error}; ask for fewer ranks, or give the machine a \
                     larger topology or more ranks_per_node"
                ))
            })?;
        }
        Ok(machine)
    }
}

/// Runs a program whose only flags are `--backend`, `--machine` and `--ranks`. Returns its exit code: 0, 1 if a
/// rank failed, 2 for wrong arguments; between processes, the code of the rank that failed first.
pub fn main(program: impl Program) -> ExitCode {
    main_with(Options::new(), program)
}

/// As [`main`], with options that the arguments override.
pub fn main_with(mut options: Options, program: impl Program) -> ExitCode {
    let rest = match options.take_args(std::env::args_os()) {
        Ok(rest) => rest,
        Err(usage) => return refuse(&usage),
    };
    match rest.get(1) {
        None => run(options, program),
        Some(help) if help == "--help" || help == "-h" => {
            let name = rest[0].to_string_lossy();
            // Whoever has read enough may close the pipe.
            let _ = write!(io::stdout(), "Usage: {name} [OPTIONS]\n\n{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            refuse(&Usage(format!("unexpected argument '{}'; --help lists the options", other.to_string_lossy())))
        }
    }
}

/// Tells what is wrong with what the user asked for.
fn refuse(usage: &Usage) -> ExitCode {
    eprintln!("error: {usage}");
    ExitCode::from(2)
}

/// Runs a program; see [`main`] for the exit code.
pub fn run(options: Options, program: impl Program) -> ExitCode {
    let backend = match options.backend() {
        Ok(backend) => backend,
        Err(usage) => return refuse(&usage),
    };
    match backend {
        Backend::Processes => processes(&options, None, program),
        Backend::Shm => processes(&options, Some(TransportChoice::Shm), program),
        Backend::Udp => processes(&options, Some(TransportChoice::Udp), program),
        _ => match alone(backend).and_then(|()| prepare(backend)) {
            Err(usage) => refuse(&usage),
            Ok(()) if backend == Backend::Loopback => threads(&options, &program),
            Ok(()) => simulate(&options, backend, program),
        },
    }
}

/// What the ranks between processes have from [`launch::run`]: the check of the environment, `AM_TIMEOUT` where
/// time is the clock's, reports on SIGQUIT, a quiet end when nobody reads the output.
fn prepare(backend: Backend) -> Result<(), Usage> {
    crate::transports::register();
    am_launch::prepare_alone(backend != Backend::Loopback).map_err(|error| Usage(error.to_string()))
}

/// Refuses a backend that runs all ranks in one process where a launcher has started several: each would run all
/// of them.
fn alone(backend: Backend) -> Result<(), Usage> {
    match launch::started_as() {
        Ok(Some((rank, ranks @ 2.., by))) => Err(Usage(format!(
            "the backend '{backend}' runs all ranks in one process, and {by} has started this one as rank {rank} of {ranks}: start \
             the program by itself, with --ranks {ranks}"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(Usage(error.to_string())),
    }
}

fn processes(options: &Options, transport: Option<TransportChoice>, program: impl Program) -> ExitCode {
    let keep_going = options.keep_going;
    let launcher = move |launcher: launch::Launcher| launcher.keep_going(keep_going);
    let mut run = RunOptions::new().ranks(options.ranks).transport(transport).launcher(launcher);
    if options.default_ranks != 0 {
        run = run.default_ranks(options.default_ranks);
    }
    let segment = options.segment_bytes;
    launch::run(run, move |job: RankJob| {
        let transport = job.attach(JoinOptions::default().segment_bytes(segment))?;
        program.rank(Endpoint::builder(transport))
    })
}

/// The exit code of ranks that ran in this process.
fn conclude(outcomes: impl Iterator<Item = Result<(), String>>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (rank, outcome) in outcomes.enumerate() {
        if let Err(error) = outcome {
            if am_launch::tells_of_closed_output(&error) {
                return ExitCode::from(launch::EXIT_BROKEN_PIPE);
            }
            eprintln!("rank {rank}: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn threads(options: &Options, program: &impl Program) -> ExitCode {
    let config = LoopbackConfig::default().segment(options.segment_bytes);
    let ranks = loopback::network(options.count(), config);
    thread::scope(|scope| {
        let part =
            |transport| move || program.rank(Endpoint::builder(transport)).map_err(|error| error.to_string());
        let ranks: Vec<_> = ranks.into_iter().map(|transport| scope.spawn(part(transport))).collect();
        conclude(ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("it panicked".into()))))
    })
}

#[cfg(not(feature = "sim"))]
fn simulate(_: &Options, backend: Backend, _: impl Program) -> ExitCode {
    refuse(&Usage(format!(
        "the backend '{backend}' is a simulation: build the program with the feature 'sim' of active-messages"
    )))
}

/// Runs all ranks as coroutines of this thread. What the simulation tells at its end goes to the standard error.
#[cfg(feature = "sim")]
fn simulate(options: &Options, backend: Backend, program: impl Program) -> ExitCode {
    use crate::{exanet, extoll, machine, portals, sci};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// One rank's part; a panic of one is no panic of all.
    fn part<T: Transport>(program: &impl Program, transport: T) -> Result<(), String> {
        let outcome = catch_unwind(AssertUnwindSafe(|| program.rank(Endpoint::builder(transport))));
        outcome.map_or_else(|_| Err("it panicked".into()), |outcome| outcome.map_err(|error| error.to_string()))
    }

    let (ranks, bytes) = (options.count(), options.segment_bytes as u64);
    let segment = |own: &mut u64| {
        if bytes != 0 {
            *own = bytes;
        }
    };
    let report = match backend {
        Backend::Pscom => {
            let mut conduit = extoll::conduit::pscom::PscomConfig::default();
            segment(&mut conduit.am.segment);
            extoll::conduit::pscom::run(&extoll::cluster(ranks), &conduit, move |rank| part(&program, rank))
        }
        Backend::Sci => {
            let mut conduit = sci::conduit::ConduitConfig::default();
            segment(&mut conduit.segment);
            sci::conduit::run(&sci::torus(ranks), &conduit, move |rank| part(&program, rank))
        }
        Backend::Portals => {
            let mut conduit = portals::conduit::ConduitConfig::default();
            segment(&mut conduit.segment);
            portals::conduit::run(&portals::xt4(ranks), &conduit, move |rank| part(&program, rank))
        }
        Backend::Sim => {
            let own = match options.simulated_machine() {
                Ok(own) => own,
                Err(usage) => return refuse(&usage),
            };
            let mut conduit = machine::conduit::ConduitConfig::default();
            segment(&mut conduit.segment);
            machine::conduit::run(&own, &conduit, move |rank| part(&program, rank))
        }
        Backend::Exanet => {
            let mut conduit = exanet::conduit::ConduitConfig::default();
            segment(&mut conduit.segment);
            exanet::conduit::run(&exanet::rack(ranks), &conduit, move |rank| part(&program, rank))
        }
        _ => {
            let mut conduit = extoll::conduit::gasnet::GasnetConfig::default();
            segment(&mut conduit.segment);
            extoll::conduit::gasnet::run(&extoll::cluster(ranks), &conduit, move |rank| part(&program, rank))
        }
    };
    match report {
        Ok(report) => {
            let ended = |outcome: Option<_>| outcome.unwrap_or_else(|| Err("it ended early".into()));
            conclude(report.results.into_iter().map(ended))
        }
        Err(error) => {
            eprintln!("{backend}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(args: &[&str]) -> Result<(Options, Vec<String>), Usage> {
        let mut options = Options::new();
        let rest = options.take_args(args.iter().map(|arg| OsString::from(*arg)))?;
        Ok((options, rest.into_iter().map(|arg| arg.into_string().unwrap()).collect()))
    }

    #[test]
    fn flags_are_taken_out_of_the_arguments() {
        let (options, rest) =
            taken(&["program", "--ranks", "3", "input", "--backend=udp", "--size", "4"]).unwrap();
        assert_eq!((options.backend, options.ranks), (Some(Backend::Udp), Some(3)));
        assert_eq!(rest, ["program", "input", "--size", "4"]);
    }

    #[test]
    fn what_follows_two_dashes_is_the_programs() {
        let (options, rest) = taken(&["program", "--ranks=2", "--", "--ranks", "3", "--backend"]).unwrap();
        assert_eq!((options.backend, options.ranks), (None, Some(2)));
        assert_eq!(rest, ["program", "--", "--ranks", "3", "--backend"]);
    }

    #[test]
    fn wrong_flags_name_the_remedy() {
        assert!(taken(&["program", "--backend", "tcp"]).unwrap_err().to_string().contains("loopback, extoll"));
        for wrong in [&["program", "--ranks"][..], &["program", "--ranks", "0"], &["program", "--ranks=many"]] {
            assert!(taken(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn machines_go_with_their_backend_only() {
        let (options, rest) = taken(&["program", "--machine=my.toml", "--backend", "sim", "--size"]).unwrap();
        assert_eq!((options.machine.clone(), rest.len()), (Some("my.toml".into()), 2));
        assert_eq!(options.backend(), Ok(Backend::Sim));
        let (options, _) = taken(&["program", "--machine", "my.toml", "--backend", "shm"]).unwrap();
        let error = options.backend().unwrap_err().to_string();
        assert_eq!(error, "--machine my.toml means nothing to the backend 'shm': add --backend sim");
    }

    #[cfg(feature = "sim")]
    #[test]
    fn machines_that_cannot_be_name_the_remedy() {
        let refused = |machine: &str, ranks| {
            let options = Options { ranks, ..Options::new().machine(machine) };
            options.simulated_machine().unwrap_err().to_string()
        };
        let error = refused("/nonexistent/my.toml", None);
        assert!(
            error.starts_with("--machine /nonexistent/my.toml: ") && error.contains("No such file"),
            "{error}"
        );
        let error = refused("cube", None);
        assert!(error.contains("machine is cube, but must be a file such as my.toml, or one of "), "{error}");
        let error = refused("torus", Some(65));
        assert!(error.starts_with("--ranks 65 does not go with --machine torus: ranks is 65"), "{error}");
        assert!(error.contains("at most 64 nodes times 1") && error.contains("a larger topology"), "{error}");
        let options = Options::new().machine("torus");
        assert_eq!(options.simulated_machine().map(|machine| machine.ranks), Ok(64));
        assert_eq!(Options { backend: Some(Backend::Sim), ..options }.expected(), 64);
    }

    #[test]
    fn every_backend_has_one_name() {
        for backend in Backend::ALL {
            assert_eq!(backend.name().parse(), Ok(backend));
        }
    }
}
