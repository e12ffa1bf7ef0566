//! The command line: a run as it is between processes, and the machine that it is simulated on.

use clap::{Args, CommandFactory, Parser, ValueEnum, error::ErrorKind};
use fabric_sim::{ConfigError, Faults, Processors, Topology};
use lab::random_access::cli::{Options, name};
use std::path::PathBuf;

/// HPCC RandomAccess on a simulated machine: every rank is a coroutine of this process, and time is the machine's.
///
/// Exits with 0 when the run passed its verification, with 1 when it did not or a rank failed, and with 2 when the
/// command line is wrong.
#[derive(Clone, Debug, Parser)]
#[command(name = "random_access_sim", max_term_width = 100)]
pub(crate) struct Cli {
    /// What to run.
    #[command(flatten)]
    pub(crate) options: Options,

    /// What is simulated
    #[arg(long, value_enum, default_value_t = Backend::Extoll)]
    pub(crate) backend: Backend,

    /// How the machine is built.
    #[command(flatten)]
    pub(crate) simulation: Simulation,
}

/// What is simulated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Backend {
    /// A network of ExaNet interfaces (the ExaNeSt prototype)
    Exanet,
    /// An EXTOLL network
    Extoll,
    /// A network of Portals interfaces (XT4)
    Portals,
    /// SCI's shared segments: a simulated network in virtual time, or processes that map files
    Sci,
    /// A machine of one's own (--machine), which has as many ranks as it says unless --ranks does
    Sim,
}

impl Cli {
    /// The number of ranks of the machine.
    pub(crate) fn rank_count(&self) -> u32 {
        self.options.ranks.unwrap_or(match self.backend {
            Backend::Exanet | Backend::Extoll | Backend::Portals => 16,
            Backend::Sci => 8,
            // Those of the machine are known, and checked, once it has been read.
            Backend::Sim => 1,
        })
    }

    /// Checks what clap cannot see: arguments that do not fit together, and `ranks`, however that number came
    /// about.
    ///
    /// # Errors
    /// A clap error that names the arguments and their values.
    pub(crate) fn check(&self, ranks: u32) -> Result<(), clap::Error> {
        let fail = |message: String| Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        if let Some(flag) = self.simulation.foreign_flag(self.backend) {
            let mapped = self.backend == Backend::Sci && self.simulation.sci() == Sci::Mapped;
            let backend = if mapped { "sci --sci mapped".to_owned() } else { name(self.backend) };
            return fail(format!("{flag} means nothing to --backend {backend}"));
        }
        let limit = if self.backend == Backend::Sci { 1024 } else { 65_536 };
        if ranks > limit {
            return fail(format!("{ranks} ranks are more than this backend's {limit}"));
        }
        let table = 8_u64 << self.options.log2_table >> 20;
        if let Some(available) = available_mib().filter(|available| table > *available) {
            return fail(format!(
                "a table of 2^{} words takes {table} MiB, and {available} MiB are available: ask for a smaller \
                 --log2-table",
                self.options.log2_table
            ));
        }
        self.options.check(ranks).or_else(fail)
    }
}

/// Memory that this system can still give, in MiB, if it tells.
fn available_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok()? >> 10)
}

/// What is simulated.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Simulated machines")]
pub(crate) struct Simulation {
    /// How nodes are connected: direct:N, ring:N, crossbar:N, mesh:AxBxC, torus:AxB and so on [default: a
    /// crossbar]
    #[arg(long)]
    pub(crate) topology: Option<Topology>,

    /// Ranks that share a node and its interface [default: as many as needed]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) ranks_per_node: Option<u32>,

    /// EXTOLL: how active messages are carried on the interface [default: gasnet]
    #[arg(long, value_enum)]
    conduit: Option<Conduit>,

    /// SCI: where the segments lie [default: virtual]
    #[arg(long, value_enum)]
    sci: Option<Sci>,

    /// Portals: what keeps the receive buffers from overflowing [default: bank]
    #[arg(long, value_enum)]
    flow: Option<Flow>,

    /// Simulate the machine as two halves on 1 or 2 processors: the same on both, bit for bit, but not the
    /// order of events of a run without this [default: in one piece, on one processor]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=2))]
    processors: Option<u8>,

    /// A machine with all its parameters, as a TOML file; flags override it. With --backend sim it may also be the
    /// name of a machine that is built in
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,

    /// Probability that a packet is lost on a link, from 0 to 1
    #[arg(long, value_name = "PART")]
    pub(crate) loss: Option<f64>,

    /// Where faults are drawn from
    #[arg(long, value_name = "SEED")]
    pub(crate) fault_seed: Option<u64>,

    /// Record every stage of every packet in a file for Perfetto
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

impl Simulation {
    /// How active messages are carried on EXTOLL's interface.
    pub(crate) fn conduit(&self) -> Conduit {
        self.conduit.unwrap_or_default()
    }

    /// Where SCI's segments lie.
    pub(crate) fn sci(&self) -> Sci {
        self.sci.unwrap_or_default()
    }

    /// What keeps Portals' receive buffers from overflowing.
    pub(crate) fn flow(&self) -> Flow {
        self.flow.unwrap_or_default()
    }

    /// On how many processors two halves are simulated, if they are.
    pub(crate) fn processors(&self) -> Option<Processors> {
        self.processors.map(|count| if count == 1 { Processors::One } else { Processors::Two })
    }

    /// Adds the faults that were asked for to a machine's.
    pub(crate) fn change_faults(&self, faults: &mut Faults) {
        faults.loss = self.loss.unwrap_or(faults.loss);
        faults.seed = self.fault_seed.unwrap_or(faults.seed);
    }

    /// How many ranks share a node, unless a machine's file says so: as many as asked for, or as needed.
    ///
    /// # Errors
    /// There is no such topology.
    pub(crate) fn per_node(&self, ranks: u32, topology: &Topology) -> Result<Option<u32>, ConfigError> {
        match self.ranks_per_node {
            None if self.machine.is_none() => Ok(Some(ranks.div_ceil(topology.nodes()?))),
            asked => Ok(asked),
        }
    }

    /// The first flag that was given for another simulated backend, if any.
    fn foreign_flag(&self, backend: Backend) -> Option<&'static str> {
        let mapped = self.sci() == Sci::Mapped;
        let given = match backend {
            Backend::Exanet => vec![
                ("--sci", self.sci.is_some()),
                ("--flow", self.flow.is_some()),
                ("--conduit", self.conduit.is_some()),
            ],
            Backend::Extoll => vec![("--sci", self.sci.is_some()), ("--flow", self.flow.is_some())],
            Backend::Portals => vec![("--sci", self.sci.is_some()), ("--conduit", self.conduit.is_some())],
            Backend::Sim => vec![
                ("--sci", self.sci.is_some()),
                ("--flow", self.flow.is_some()),
                ("--conduit", self.conduit.is_some()),
            ],
            Backend::Sci => vec![
                ("--processors", self.processors.is_some()),
                ("--flow", self.flow.is_some()),
                ("--ranks-per-node", self.ranks_per_node.is_some()),
                ("--conduit", self.conduit.is_some()),
                ("--topology", mapped && self.topology.is_some()),
                ("--machine", mapped && self.machine.is_some()),
                ("--loss", mapped && self.loss.is_some()),
                ("--fault-seed", mapped && self.fault_seed.is_some()),
                ("--trace", mapped && self.trace.is_some()),
            ],
        };
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// How active messages are carried on a simulated interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Conduit {
    /// GASNet's conduit over VELO and RMA
    #[default]
    Gasnet,
    /// The same in its first, straightforward implementation
    GasnetFirst,
    /// Active messages on two-sided messages, as an MPI-based runtime has them
    Pscom,
}

/// What keeps the receive buffers of Portals from overflowing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Flow {
    /// Credits that the receiver lends to who needs them, by the published rules
    #[default]
    Bank,
    /// The same by this project's rules
    TunedBank,
    /// A fixed share of credits for every sender
    Static,
    /// No credits: Portals 4, where a full receiver disables its portal and senders send again
    Portals4,
}

/// Where the segments of SCI lie.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Sci {
    /// On the nodes of a simulated machine, in virtual time
    #[default]
    Virtual,
    /// In files that the processes of this host map
    Mapped,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::random_access::cli::one_line;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        let cli = Cli::try_parse_from(std::iter::once(&"random_access_sim").chain(arguments))?;
        cli.check(cli.rank_count()).map(|()| cli)
    }

    #[test]
    fn wrong_flags_are_one_line_with_the_numbers() {
        for (arguments, part) in [
            (&["--frobnicate"][..], "--frobnicate"),
            (&["--backend", "shm"], "'shm'"),
            (&["--ranks", "9", "--log2-table", "3"], "9 ranks cannot share a table of 8 words"),
            (&["--backend", "sci", "--ranks", "1025"], "1025 ranks are more than this backend's 1024"),
            (&["--backend", "extoll", "--sci", "mapped"], "--sci means nothing to --backend extoll"),
            (&["--backend", "sci", "--sci", "mapped", "--loss", "0.1"], "--loss means nothing"),
            (&["--backend", "sci", "--conduit", "pscom"], "--conduit means nothing to --backend sci"),
            (&["--backend", "extoll", "--flow", "bank"], "--flow means nothing to --backend extoll"),
            (&["--backend", "exanet", "--flow", "bank"], "--flow means nothing to --backend exanet"),
            (&["--backend", "sci", "--processors", "2"], "--processors means nothing to --backend sci"),
            (&["--processors", "3"], "3 is not in 1..=2"),
            (&["--log2-table", "40"], "a table of 2^40 words takes 8388608 MiB"),
            (&["extra"], "extra"),
        ] {
            let error = parse(arguments).expect_err("wrong");
            let line = one_line(&error);
            assert!(line.starts_with("error: ") && line.contains(part), "{arguments:?}: {line}");
            assert!(!line.contains('\n') && error.exit_code() == 2, "{arguments:?}: {line}");
        }
    }
}
