//! The other libraries: which of them this machine has, and the programs that are built against them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any program here runs: one that is not done by then hangs.
const HANGS: Duration = Duration::from_secs(300);

/// A library as the bench knows it.
struct Known {
    name: &'static str,
    source: &'static str,
    text: &'static str,
    /// The compiler, and what it needs after the file names.
    compiler: &'static str,
    flags: &'static [&'static str],
    /// What starts a program with a number of ranks; `None` where the program does so itself, for two.
    starter: Option<fn(u32) -> Command>,
    /// What tells the version in the first line of its output.
    version: (&'static str, &'static [&'static str]),
    /// The packages of Debian that have it.
    packages: &'static str,
}

const KNOWN: [Known; 3] = [
    Known {
        name: "Open MPI",
        source: "mpi.c",
        text: include_str!("mpi.c"),
        compiler: "mpicc.openmpi",
        flags: &[],
        starter: Some(start_open_mpi),
        version: ("mpirun.openmpi", &["--version"]),
        packages: "openmpi-bin libopenmpi-dev",
    },
    Known {
        name: "MPICH",
        source: "mpi.c",
        text: include_str!("mpi.c"),
        compiler: "mpicc.mpich",
        flags: &[],
        starter: Some(start_mpich),
        version: ("mpichversion", &[]),
        packages: "mpich libmpich-dev",
    },
    Known {
        name: "UCX",
        source: "ucx.c",
        text: include_str!("ucx.c"),
        compiler: "cc",
        flags: &["-lucp", "-lucs"],
        starter: None,
        version: ("ucx_info", &["-v"]),
        packages: "libucx-dev ucx-utils",
    },
];

fn start_open_mpi(ranks: u32) -> Command {
    let mut command = Command::new("mpirun.openmpi");
    // Containers run as root, and four ranks have two processors here.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.args(["--oversubscribe", "--bind-to", "none", "-n"]).arg(ranks.to_string());
    command
}

fn start_mpich(ranks: u32) -> Command {
    let mut command = Command::new("mpirun.mpich");
    command.arg("-n").arg(ranks.to_string());
    command
}

/// A library that this machine has, with its program built.
pub(crate) struct Library {
    /// Its name and version.
    pub(crate) name: String,
    program: PathBuf,
    starter: Option<fn(u32) -> Command>,
}

/// The libraries that this machine has; what is missing is said, with the packages that have it.
pub(crate) fn installed(scratch: &Path) -> Vec<Library> {
    KNOWN
        .iter()
        .filter_map(|known| {
            let built = build(known, scratch);
            if let Err(why) = &built {
                println!("without {}: {why} (Debian has it in {})", known.name, known.packages);
            }
            built.ok()
        })
        .collect()
}

fn build(known: &Known, scratch: &Path) -> Result<Library, String> {
    let source = scratch.join(known.source);
    let program = scratch.join(format!("peer-{}", known.name.replace(' ', "-").to_lowercase()));
    std::fs::write(&source, known.text).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compiler = Command::new(known.compiler);
    let output =
        compiler.args(["-O3", "-march=native", "-o"]).arg(&program).arg(&source).args(known.flags).output();
    let output = output.map_err(|error| format!("{}: {error}", known.compiler))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().find(|line| line.contains("error")).unwrap_or("its compiler fails").to_string());
    }
    let (command, arguments) = known.version;
    let told = Command::new(command).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    let name = match version(&String::from_utf8_lossy(&told)) {
        Some(version) => format!("{} {version}", known.name),
        None => known.name.into(),
    };
    Ok(Library { name, program, starter: known.starter })
}

/// The first word that looks like a version.
fn version(text: &str) -> Option<&str> {
    let number =
        |word: &&str| word.split('.').count() >= 2 && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(number)
}

impl Library {
    /// Runs the program once; the rows that it prints. `divisor` divides its counts.
    pub(crate) fn rows(&self, ranks: u32, divisor: u32) -> Result<Vec<(String, f64)>, String> {
        let mut command = match self.starter {
            Some(start) => {
                let mut command = start(ranks);
                command.arg(&self.program);
                command
            }
            None if ranks == 2 => Command::new(&self.program),
            None => return Ok(Vec::new()),
        };
        command.arg(divisor.to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.name))?;
        let began = Instant::now();
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if began.elapsed() > HANGS {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} is not done after {} s", self.name, HANGS.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // What they print fits into a pipe.
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}: {}", self.name, output.status, text.lines().next().unwrap_or("")));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text
            .lines()
            .filter_map(|line| {
                let (row, value) = line.split_once(' ')?;
                Some((row.into(), value.parse().ok()?))
            })
            .collect())
    }
}
