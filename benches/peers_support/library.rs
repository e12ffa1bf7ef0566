//! The other libraries: which of them this machine has, and the programs that are built against them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any program here runs: one that is not done by then hangs.
const HANGS: Duration = Duration::from_secs(300);

/// Names the installation of GASNet-EX, which no distribution has: what its `--prefix` was.
const GASNET: &str = "AM_GASNET";

/// How a library's program is built.
enum Recipe {
    /// By a C compiler, with what it needs after the file names.
    Compiler(&'static str, &'static [&'static str]),
    /// By `make` with the fragment that an installation of GASNet-EX has for its clients.
    Fragment,
    /// By cargo, as a package of its own with this manifest.
    Cargo(&'static str),
}

/// What tells a library's version.
enum Version {
    /// The first line of a command's output.
    Command(&'static str, &'static [&'static str]),
    /// The installation that the environment names.
    Release,
    /// What the manifest asks for.
    Pinned,
}

/// A library as the bench knows it.
struct Known {
    name: &'static str,
    source: &'static str,
    text: &'static str,
    recipe: Recipe,
    /// What starts a program with a number of ranks; `None` where the program does so itself, for two.
    starter: Option<fn(u32) -> Command>,
    version: Version,
    /// Where it can be had.
    found: &'static str,
}

/// RandomAccess, for the programs in C.
const HEADER: (&str, &str) = ("random_access.h", include_str!("random_access.h"));

const KNOWN: [Known; 6] = [
    Known {
        name: "Open MPI",
        source: "mpi.c",
        text: include_str!("mpi.c"),
        recipe: Recipe::Compiler("mpicc.openmpi", &[]),
        starter: Some(start_open_mpi),
        version: Version::Command("mpirun.openmpi", &["--version"]),
        found: "Debian has it in openmpi-bin libopenmpi-dev",
    },
    Known {
        name: "MPICH",
        source: "mpi.c",
        text: include_str!("mpi.c"),
        recipe: Recipe::Compiler("mpicc.mpich", &[]),
        starter: Some(start_mpich),
        version: Version::Command("mpichversion", &[]),
        found: "Debian has it in mpich libmpich-dev",
    },
    Known {
        name: "UCX",
        source: "ucx.c",
        text: include_str!("ucx.c"),
        recipe: Recipe::Compiler("cc", &["-lucp", "-lucs"]),
        starter: None,
        version: Version::Command("ucx_info", &["-v"]),
        found: "Debian has it in libucx-dev ucx-utils",
    },
    Known {
        name: "libfabric shm",
        source: "ofi.c",
        text: include_str!("ofi.c"),
        recipe: Recipe::Compiler("cc", &["-lfabric"]),
        starter: None,
        version: Version::Command("fi_info", &["--version"]),
        found: "Debian has it in libfabric-dev libfabric-bin",
    },
    Known {
        name: "GASNet-EX",
        source: "gasnet.c",
        text: include_str!("gasnet.c"),
        recipe: Recipe::Fragment,
        starter: Some(start_gasnet),
        version: Version::Release,
        found: "AM_GASNET names the folder of an installation with its smp-conduit",
    },
    Known {
        name: "Lamellar",
        source: "lamellar.rs",
        text: include_str!("lamellar.rs"),
        recipe: Recipe::Cargo(include_str!("lamellar.toml")),
        starter: None,
        version: Version::Pinned,
        found: "cargo has it from the registry",
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

fn start_gasnet(ranks: u32) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("GASNET_PSHM_NODES={ranks}"));
    command
}

/// A library that this machine has, with its program built.
pub(crate) struct Library {
    /// Its name and version.
    pub(crate) name: String,
    program: PathBuf,
    starter: Option<fn(u32) -> Command>,
}

/// The libraries that this machine has; what is missing is said, and where it can be had.
pub(crate) fn installed(scratch: &Path) -> Vec<Library> {
    KNOWN
        .iter()
        .filter_map(|known| {
            let built = build(known, scratch);
            if let Err(why) = &built {
                println!("without {}: {why} ({})", known.name, known.found);
            }
            built.ok()
        })
        .collect()
}

fn build(known: &Known, scratch: &Path) -> Result<Library, String> {
    let scratch = scratch.join("peers").join(known.name.replace(' ', "-").to_lowercase());
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let source = scratch.join(known.source);
    for (path, text) in [(&source, known.text), (&scratch.join(HEADER.0), HEADER.1)] {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let program = match &known.recipe {
        Recipe::Compiler(compiler, flags) => {
            let program = scratch.join("peer");
            let mut command = Command::new(compiler);
            command.args(["-O3", "-march=native", "-o"]).arg(&program).arg(&source).args(*flags);
            succeed(&mut command)?;
            program
        }
        Recipe::Fragment => by_fragment(&source)?,
        Recipe::Cargo(manifest) => by_cargo(known.name, manifest, &scratch)?,
    };
    let version = match known.version {
        Version::Command(command, arguments) => {
            let told = Command::new(command).args(arguments).output().map(|output| output.stdout);
            version(&String::from_utf8_lossy(&told.unwrap_or_default())).map(str::to_string)
        }
        Version::Release => release(),
        Version::Pinned => match &known.recipe {
            Recipe::Cargo(manifest) => {
                manifest.split_once("\"=").and_then(|(_, rest)| rest.split('"').next().map(str::to_string))
            }
            _ => None,
        },
    };
    let name = [Some(known.name.to_string()), version].into_iter().flatten().collect::<Vec<_>>().join(" ");
    Ok(Library { name, program, starter: known.starter })
}

/// Runs what builds a program; the first line that tells of an error, if it fails.
fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.lines().find(|line| line.contains("error")).unwrap_or("its compiler fails").to_string())
}

fn by_fragment(source: &Path) -> Result<PathBuf, String> {
    let prefix = std::env::var_os(GASNET).ok_or_else(|| format!("{GASNET} is not set"))?;
    let fragment = Path::new(&prefix).join("include/smp-conduit/smp-seq.mak");
    if !fragment.is_file() {
        return Err(format!("{GASNET} names no installation: there is no {}", fragment.display()));
    }
    let (folder, program) = (source.with_file_name(""), source.with_file_name("peer"));
    // A library that was built for programs at fixed addresses goes into no other, and one that was not into both.
    let rules = format!(
        "MANUAL_CFLAGS = -fno-pie\nMANUAL_LDFLAGS = -no-pie\ninclude {}\npeer: {}\n\
         \t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c -o peer.o $<\n\
         \t$(GASNET_LD) $(GASNET_LDFLAGS) -o peer peer.o $(GASNET_LIBS)\n",
        fragment.display(),
        source.display()
    );
    let makefile = folder.join("Makefile");
    std::fs::write(&makefile, rules).map_err(|error| format!("{}: {error}", makefile.display()))?;
    succeed(Command::new("make").arg("--always-make").arg("--directory").arg(&folder).arg("peer"))?;
    Ok(program)
}

fn by_cargo(name: &str, manifest: &str, scratch: &Path) -> Result<PathBuf, String> {
    let path = scratch.join("Cargo.toml");
    std::fs::write(&path, manifest).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("building the program of {name}; with all that it needs, this takes minutes at first");
    let target = scratch.join("target");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--manifest-path"]).arg(&path);
    // What cargo tells its benches is about this workspace.
    cargo.arg("--target-dir").arg(&target).env_remove("CARGO_MANIFEST_DIR").env_remove("RUSTFLAGS");
    succeed(&mut cargo)?;
    Ok(target.join("release/lamellar-peer"))
}

/// The release of the installation that the environment names.
fn release() -> Option<String> {
    let header = Path::new(&std::env::var_os(GASNET)?).join("include/gasnet_config.h");
    let text = std::fs::read_to_string(header).ok()?;
    let part = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("define GASNET_RELEASE_VERSION_{name} ")))?;
        line.split_whitespace().last().map(str::to_string)
    };
    Some([part("MAJOR")?, part("MINOR")?, part("PATCH")?].join("."))
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
