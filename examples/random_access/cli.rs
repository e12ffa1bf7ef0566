//! The command line: what to run, checked as a whole before any rank starts.

use crate::hpcc::Distribution;
use active_messages::fabric::{ConfigError, Faults, Topology};
use clap::{Args, CommandFactory, Parser, ValueEnum, error::ErrorKind};
use std::path::PathBuf;

/// HPCC RandomAccess over active messages: 64-bit XOR updates at random places of a table spread over all ranks.
///
/// Started without a launcher, the program starts its own ranks on this host. Exits with 0 when the run passed its
/// verification, with 1 when it did not or a rank failed, and with 2 when the command line is wrong.
#[derive(Clone, Debug, Parser)]
#[command(name = "random_access", max_term_width = 100)]
pub(crate) struct Cli {
    /// Number of ranks [default: one for each CPU this process may use, but at least 2; simulated: 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) ranks: Option<u32>,

    /// Binary logarithm of the number of 64-bit words of the WHOLE table
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=40))]
    pub(crate) log2_table: u32,

    /// Number of updates of all ranks together [default: the 4 * 2^N of the HPCC rules]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 50))]
    pub(crate) updates: Option<u64>,

    /// How an update reaches the word's owner
    #[arg(long, value_enum, default_value_t = Variant::Medium)]
    pub(crate) variant: Variant,

    /// What carries the messages
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(crate) backend: Backend,

    /// Offset into the HPCC stream: the first update made is its sample SEED + 1, so that 0 is the standard run
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Whether to repeat the stream without messages afterwards and count the words that differ
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub(crate) verify: bool,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub(crate) json: bool,

    /// What is simulated; only with a simulated backend.
    #[command(flatten)]
    pub(crate) simulation: Simulation,
}

/// What is simulated.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Simulated machines")]
pub(crate) struct Simulation {
    /// How nodes are connected: direct:N, ring:N, crossbar:N, mesh:AxBxC, torus:AxB and so on [default: a crossbar]
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

    /// A machine with all its parameters, as a TOML file; flags override it
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

/// The simulated backends, in an error.
const SIMULATED: &str = "extoll, sci or portals";

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

    /// The first flag that was given, if any, and the backends that it is for.
    fn first_flag(&self) -> Option<(&'static str, &'static str)> {
        let given = [
            ("--topology", SIMULATED, self.topology.is_some()),
            ("--ranks-per-node", "extoll or portals", self.ranks_per_node.is_some()),
            ("--conduit", "extoll", self.conduit.is_some()),
            ("--sci", "sci", self.sci.is_some()),
            ("--flow", "portals", self.flow.is_some()),
            ("--machine", SIMULATED, self.machine.is_some()),
            ("--loss", SIMULATED, self.loss.is_some()),
            ("--fault-seed", SIMULATED, self.fault_seed.is_some()),
            ("--trace", SIMULATED, self.trace.is_some()),
        ];
        given.into_iter().find(|(.., given)| *given).map(|(flag, backends, _)| (flag, backends))
    }

    /// The first flag that was given for another simulated backend, if any.
    fn foreign_flag(&self, backend: Backend) -> Option<&'static str> {
        let mapped = self.sci() == Sci::Mapped;
        let given = match backend {
            Backend::Extoll => vec![("--sci", self.sci.is_some()), ("--flow", self.flow.is_some())],
            Backend::Portals => vec![("--sci", self.sci.is_some()), ("--conduit", self.conduit.is_some())],
            Backend::Sci => vec![
                ("--flow", self.flow.is_some()),
                ("--ranks-per-node", self.ranks_per_node.is_some()),
                ("--conduit", self.conduit.is_some()),
                ("--topology", mapped && self.topology.is_some()),
                ("--machine", mapped && self.machine.is_some()),
                ("--loss", mapped && self.loss.is_some()),
                ("--fault-seed", mapped && self.fault_seed.is_some()),
                ("--trace", mapped && self.trace.is_some()),
            ],
            _ => Vec::new(),
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
    /// Credits that the receiver lends to who needs them
    #[default]
    Bank,
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

/// How an update reaches the word's owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Variant {
    /// One Short message for each update
    Short,
    /// Updates gathered for each destination and sent as Medium payloads
    Medium,
    /// Native atomic XOR on the owner's segment, one update after the other
    Atomic,
    /// Native get, XOR and put: loses updates that race
    PutGet,
    /// The baseline without a runtime: prefetched atomic XOR on shared memory
    Direct,
}

impl Variant {
    /// Whether updates travel as messages, so that the owner applies them one at a time and no error is allowed.
    pub(crate) fn is_message(self) -> bool {
        matches!(self, Self::Short | Self::Medium)
    }

    /// How many of `words` words may differ after the run: 1 % where updates may race by design, otherwise none.
    pub(crate) fn allowed_errors(self, words: u64) -> u64 {
        match self {
            Self::PutGet => words / 100,
            Self::Short | Self::Medium | Self::Atomic | Self::Direct => 0,
        }
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Backend {
    /// Processes: shared memory within a host, UDP between hosts
    Auto,
    /// Processes of one host over shared memory
    Shm,
    /// Processes over UDP, also within a host
    Udp,
    /// A single rank that sends to itself
    Loopback,
    /// A simulated EXTOLL network, in virtual time
    Extoll,
    /// SCI's shared segments: a simulated network in virtual time, or processes that map files
    Sci,
    /// A simulated network of Portals interfaces (XT4), in virtual time
    Portals,
}

/// The name by which an enum's value is given on the command line.
pub(crate) fn name(value: impl ValueEnum) -> String {
    let name = value.to_possible_value().map(|value| value.get_name().to_owned());
    name.expect("no value is hidden")
}

impl Cli {
    /// The number of ranks to start.
    pub(crate) fn rank_count(&self) -> u32 {
        self.ranks.unwrap_or_else(|| match self.backend {
            Backend::Loopback => 1,
            Backend::Extoll | Backend::Portals => 16,
            Backend::Sci => 8,
            Backend::Auto | Backend::Shm | Backend::Udp => {
                let cpus = std::thread::available_parallelism().map_or(2, |cpus| cpus.get());
                u32::try_from(cpus.clamp(2, 64)).expect("at most 64")
            }
        })
    }

    /// The number of updates of all ranks together.
    pub(crate) fn update_count(&self) -> u64 {
        self.updates.unwrap_or(self.full_run())
    }

    /// The number of updates that the HPCC rules ask for.
    pub(crate) fn full_run(&self) -> u64 {
        4 << self.log2_table
    }

    /// The size in bytes of the segment that a rank needs: its part of the table, unless that is worked on by messages.
    pub(crate) fn segment_bytes(&self, ranks: u32, rank: u32) -> usize {
        if self.variant.is_message() {
            return 0;
        }
        let owned = Distribution::new(self.log2_table, ranks).owned(rank);
        8 * (owned.end - owned.start) as usize
    }

    /// Checks what clap cannot see: arguments that do not fit together, and `ranks`, however that number came about.
    ///
    /// # Errors
    /// A clap error that names the arguments and their values.
    pub(crate) fn check(&self, ranks: u32) -> Result<(), clap::Error> {
        let fail = |message: String| Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        if u64::from(ranks) > 1 << self.log2_table {
            let words = 1_u64 << self.log2_table;
            return fail(format!(
                "{ranks} ranks cannot share a table of {words} words: every rank owns at least one"
            ));
        }
        if let Some((flag, backends)) = self.simulation.first_flag()
            && !matches!(self.backend, Backend::Extoll | Backend::Sci | Backend::Portals)
        {
            return fail(format!("{flag} is for simulated backends: add --backend {backends}"));
        }
        if let Some(flag) = self.simulation.foreign_flag(self.backend) {
            let mapped = self.backend == Backend::Sci && self.simulation.sci() == Sci::Mapped;
            let backend = if mapped { "sci --sci mapped".to_owned() } else { name(self.backend) };
            return fail(format!("{flag} means nothing to --backend {backend}"));
        }
        let limit = if matches!(self.backend, Backend::Extoll | Backend::Portals) { 65_536 } else { 1024 };
        if ranks > limit {
            return fail(format!("{ranks} ranks are more than this backend's {limit}"));
        }
        if self.backend == Backend::Loopback && ranks != 1 {
            return fail(format!("the loopback backend has a single rank, not {ranks}"));
        }
        Ok(())
    }
}

/// An error of the command line on one line: clap's first paragraph, without its usage and hints.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        let cli = Cli::try_parse_from(std::iter::once(&"random_access").chain(arguments))?;
        cli.check(cli.rank_count()).map(|()| cli)
    }

    #[test]
    fn defaults_are_a_full_verified_run() {
        let cli = parse(&[]).unwrap();
        assert_eq!((cli.update_count(), cli.full_run()), (1 << 27, 1 << 27));
        assert!(cli.verify && !cli.json && cli.rank_count() >= 2 && cli.seed == 0);
    }

    #[test]
    fn every_variant_has_its_name() {
        for variant in ["short", "medium", "atomic", "put-get", "direct"] {
            assert_eq!(name(parse(&["--variant", variant]).unwrap().variant), variant);
        }
    }

    #[test]
    fn verification_can_be_asked_for_or_declined() {
        assert!(parse(&["--verify"]).unwrap().verify);
        assert!(parse(&["--verify", "--json"]).unwrap().verify);
        assert!(!parse(&["--verify=false"]).unwrap().verify);
    }

    #[test]
    fn wrong_flags_are_one_line_with_the_numbers() {
        for (arguments, part) in [
            (&["--frobnicate"][..], "--frobnicate"),
            (&["--variant", "long"], "'long'"),
            (&["--variant", "long"], "put-get"),
            (&["--ranks", "0"], "0"),
            (&["--ranks", "9", "--log2-table", "3"], "9 ranks cannot share a table of 8 words"),
            (&["--log2-table", "41"], "41"),
            (&["--updates", "0"], "0"),
            (&["--updates"], "--updates"),
            (&["--seed", "-1"], "-1"),
            (&["--backend", "loopback", "--ranks", "2"], "single rank, not 2"),
            (&["--sci", "mapped"], "--sci is for simulated backends"),
            (&["--backend", "extoll", "--sci", "mapped"], "--sci means nothing to --backend extoll"),
            (&["--backend", "sci", "--sci", "mapped", "--loss", "0.1"], "--loss means nothing"),
            (&["--backend", "sci", "--conduit", "pscom"], "--conduit means nothing to --backend sci"),
            (&["--backend", "shm", "--flow", "bank"], "--flow is for simulated backends: add --backend portals"),
            (&["--backend", "extoll", "--flow", "bank"], "--flow means nothing to --backend extoll"),
            (&["--conduit", "gasnet"], "--conduit is for simulated backends: add --backend extoll"),
            (&["extra"], "extra"),
        ] {
            let error = parse(arguments).expect_err("wrong");
            let line = one_line(&error);
            assert!(line.starts_with("error: ") && line.contains(part), "{arguments:?}: {line}");
            assert!(!line.contains('\n') && error.exit_code() == 2, "{arguments:?}: {line}");
        }
    }
}
