//! The command line: what a run is, and what carries its messages between processes; checked as a whole before any
//! rank starts.

use super::hpcc::Distribution;
use clap::{Args, CommandFactory, Parser, ValueEnum, error::ErrorKind};

/// The most ranks that processes of this machine may be asked for.
const MOST_PROCESSES: u32 = 1024;

/// HPCC RandomAccess over active messages: 64-bit XOR updates at random places of a table spread over all ranks.
///
/// Started without a launcher, the program starts its own ranks on this host. Exits with 0 when the run passed its
/// verification, with 1 when it did not or a rank failed, and with 2 when the command line is wrong. With
/// `--backend extoll`, `sci`, `portals`, `exanet` or `sim`, the example random_access_sim beside this one runs
/// instead, with the same arguments.
#[derive(Clone, Debug, Parser)]
#[command(name = "random_access", max_term_width = 100)]
pub struct Cli {
    /// What to run.
    #[command(flatten)]
    pub options: Options,

    /// What carries the messages
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
}

/// What a run is, whatever carries its messages.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Number of ranks [default: one for each CPU this process may use, but at least 2; simulated: 8 or 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub ranks: Option<u32>,

    /// Binary logarithm of the number of 64-bit words of the WHOLE table
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=40))]
    pub log2_table: u32,

    /// Number of updates of all ranks together [default: the 4 * 2^N of the HPCC rules]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 50))]
    pub updates: Option<u64>,

    /// How an update reaches the word's owner
    #[arg(long, value_enum, default_value_t = Variant::Medium)]
    pub variant: Variant,

    /// Offset into the HPCC stream: the first update made is its sample SEED + 1, so that 0 is the standard run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

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
    pub verify: bool,

    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
}

/// How an update reaches the word's owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Variant {
    /// One Short message for each update
    Short,
    /// Updates gathered for each destination and sent as Medium payloads
    Medium,
    /// Updates pushed into an aggregator of am-pgas
    Aggregated,
    /// Native atomic XOR on the owner's segment, one update after the other
    Atomic,
    /// Native get, XOR and put: loses updates that race
    PutGet,
    /// The baseline without a runtime: prefetched atomic XOR on shared memory
    Direct,
}

impl Variant {
    /// Whether updates travel as messages, so that the owner applies them one at a time and no error is allowed.
    pub fn is_message(self) -> bool {
        matches!(self, Self::Short | Self::Medium | Self::Aggregated)
    }

    /// How many of `words` words may differ after the run: 1 % where updates may race by design, otherwise none.
    pub fn allowed_errors(self, words: u64) -> u64 {
        match self {
            Self::PutGet => words / 100,
            Self::Short | Self::Medium | Self::Aggregated | Self::Atomic | Self::Direct => 0,
        }
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Backend {
    /// Processes: shared memory within a host, UDP between hosts
    Auto,
    /// Processes of one host over shared memory
    Shm,
    /// Processes over UDP, also within a host
    Udp,
    /// A single rank that sends to itself
    Loopback,
    /// A machine that another program simulates.
    #[value(hide = true, aliases = ["exanet", "extoll", "portals", "sci", "sim"])]
    Simulated,
}

/// The name by which an enum's value is given on the command line.
///
/// # Panics
/// If the value cannot be given there.
pub fn name(value: impl ValueEnum) -> String {
    let name = value.to_possible_value().map(|value| value.get_name().to_owned());
    name.expect("no value is skipped")
}

/// Whether the arguments of a command line ask for a simulated machine, which another program runs: told before
/// they are parsed, since they may be flags that it alone knows.
pub fn asks_for_simulation<A: AsRef<str>>(arguments: impl IntoIterator<Item = A>) -> bool {
    let mut arguments = arguments.into_iter();
    let mut simulated = false;
    while let Some(argument) = arguments.next() {
        let backend = match argument.as_ref().split_once('=') {
            Some(("--backend", name)) => Backend::from_str(name, false),
            None if argument.as_ref() == "--backend" => {
                arguments.next().map_or(Err(String::new()), |name| Backend::from_str(name.as_ref(), false))
            }
            _ => continue,
        };
        simulated = backend == Ok(Backend::Simulated);
    }
    simulated
}

impl Cli {
    /// The number of ranks to start.
    pub fn rank_count(&self) -> u32 {
        self.options.ranks.unwrap_or_else(|| match self.backend {
            Backend::Loopback => 1,
            Backend::Auto | Backend::Shm | Backend::Udp | Backend::Simulated => {
                let cpus = std::thread::available_parallelism().map_or(2, |cpus| cpus.get());
                u32::try_from(cpus.clamp(2, 64)).expect("at most 64")
            }
        })
    }

    /// Checks what clap cannot see: arguments that do not fit together, and `ranks`, however that number came
    /// about.
    ///
    /// # Errors
    /// A clap error that names the arguments and their values.
    pub fn check(&self, ranks: u32) -> Result<(), clap::Error> {
        let fail = |message: String| Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        if self.backend == Backend::Simulated {
            let remedy = "cargo build --release --example random_access_sim";
            return fail(format!("the program that runs simulated machines is not beside this one: {remedy}"));
        }
        if ranks > MOST_PROCESSES {
            return fail(format!("{ranks} ranks are more than this backend's {MOST_PROCESSES}"));
        }
        if self.backend == Backend::Loopback && ranks != 1 {
            return fail(format!("the loopback backend has a single rank, not {ranks}"));
        }
        self.options.check(ranks).or_else(fail)
    }
}

impl Options {
    /// The number of updates of all ranks together.
    pub fn update_count(&self) -> u64 {
        self.updates.unwrap_or(self.full_run())
    }

    /// The number of updates that the HPCC rules ask for.
    pub fn full_run(&self) -> u64 {
        4 << self.log2_table
    }

    /// The size in bytes of the segment that a rank needs: its part of the table, unless that is worked on by
    /// messages.
    pub fn segment_bytes(&self, ranks: u32, rank: u32) -> usize {
        if self.variant.is_message() {
            return 0;
        }
        let owned = Distribution::new(self.log2_table, ranks).owned(rank);
        8 * (owned.end - owned.start) as usize
    }

    /// Checks that the table is large enough for so many ranks.
    ///
    /// # Errors
    /// What is wrong, with the numbers.
    pub fn check(&self, ranks: u32) -> Result<(), String> {
        let words = 1_u64 << self.log2_table;
        if u64::from(ranks) > words {
            return Err(format!(
                "{ranks} ranks cannot share a table of {words} words: every rank owns at least one"
            ));
        }
        Ok(())
    }
}

/// An error of the command line on one line: clap's first paragraph, without its usage and hints.
pub fn one_line(error: &clap::Error) -> String {
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
        assert_eq!((cli.options.update_count(), cli.options.full_run()), (1 << 27, 1 << 27));
        let Options { verify, json, seed, .. } = cli.options;
        assert!(verify && !json && cli.rank_count() >= 2 && seed == 0);
    }

    #[test]
    fn every_variant_has_its_name() {
        for variant in ["short", "medium", "aggregated", "atomic", "put-get", "direct"] {
            assert_eq!(name(parse(&["--variant", variant]).unwrap().options.variant), variant);
        }
    }

    #[test]
    fn verification_can_be_asked_for_or_declined() {
        assert!(parse(&["--verify"]).unwrap().options.verify);
        assert!(parse(&["--verify", "--json"]).unwrap().options.verify);
        assert!(!parse(&["--verify=false"]).unwrap().options.verify);
    }

    #[test]
    fn simulated_machines_are_asked_for_whatever_else_is_said() {
        for (line, simulated) in [
            ("--backend sim --machine my.toml --ranks 1024", true),
            ("--ranks 4 --backend=extoll", true),
            ("--backend shm --backend sci", true),
            ("--backend sci --backend shm", false),
            ("--backend shm", false),
            ("--backend", false),
            ("--backend nonsense", false),
            ("--variant short", false),
            ("", false),
        ] {
            assert_eq!(asks_for_simulation(line.split_whitespace()), simulated, "{line}");
        }
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
            (&["--backend", "extoll"], "random_access_sim"),
            (&["--ranks", "1025"], "1025 ranks are more than this backend's 1024"),
            (&["extra"], "extra"),
        ] {
            let error = parse(arguments).expect_err("wrong");
            let line = one_line(&error);
            assert!(line.starts_with("error: ") && line.contains(part), "{arguments:?}: {line}");
            assert!(!line.contains('\n') && error.exit_code() == 2, "{arguments:?}: {line}");
        }
    }
}
