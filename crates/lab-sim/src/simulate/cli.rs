//! The command line: which machine, what it does, what is told of it.

use super::Failure;
use super::pattern::Pattern;
use clap::{ArgGroup, Parser, ValueEnum};
use fabric_sim::Topology;
use machine_sim::{MachineConfig, presets};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Measures and loads a machine of one's own in virtual time.
///
/// One of --measure, --pattern and --goal says what the machine does. Exits with 0 when all runs ended, with 1
/// when one did not (a deadlock, for instance), and with 2 when the command line, the machine or a schedule is
/// wrong.
#[derive(Clone, Debug, Parser)]
#[command(name = "simulate", max_term_width = 100)]
#[command(group(ArgGroup::new("task").required(true).args(["measure", "pattern", "goal", "list"])))]
pub(crate) struct Cli {
    /// The machine: a TOML file (docs/machines.md), or the name of one that is built in
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    machine: Option<PathBuf>,

    /// Ranks, in place of the machine's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// How nodes are connected, in place of the machine's: torus:4x4x4, fat_tree:8x2 and so on
    #[arg(long)]
    topology: Option<Topology>,

    /// Messages between two ranks
    #[arg(long, value_enum)]
    measure: Option<Measure>,

    /// Traffic of all ranks: messages without answers, at random times
    #[arg(long, value_enum)]
    pattern: Option<Pattern>,

    /// A schedule in GOAL's text format; the machine gets as many ranks as that has
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ranks", "sweep"])]
    goal: Option<PathBuf>,

    /// Lists the machines that are built in
    #[arg(long)]
    pub(crate) list: bool,

    /// What changes from run to run: bytes=8..1048576 (doubled each time) or load=0.1..1.0 (ten steps; /N for N)
    /// [default: bytes=8..1048576 with --measure, one run with --pattern]
    #[arg(long, value_name = "RANGE")]
    sweep: Option<Sweep>,

    /// Runs of a sweep at a time, each on a processor of its own; the results are the same
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "goal")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,

    /// Size of messages in bytes, unless that changes [default: 1024 with --pattern]
    #[arg(long, conflicts_with = "goal", value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    bytes: Option<u32>,

    /// Traffic as a part of what each rank's interface, data path and link can take, above 0 and at most 4
    #[arg(long, value_name = "PART", default_value_t = 0.5, conflicts_with_all = ["goal", "measure"])]
    load: f64,

    /// Messages of a stream, or of each rank in the time that is measured
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,

    /// Messages of a burst in the mean, with --pattern bursts [default: 16]
    #[arg(long, value_name = "COUNT", requires = "pattern")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) burst: Option<u32>,

    /// The two ranks that are measured [default: the first and the last]
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 2, requires = "measure")]
    pair: Option<Vec<u32>>,

    /// Where traffic and permutations are drawn from
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Also count what arrives in each interval of so many nanoseconds (in the JSON, and --series)
    #[arg(long, value_name = "NS", requires = "pattern")]
    pub(crate) interval: Option<f64>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the table to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write the use of each link in the last run to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) links: Option<PathBuf>,

    /// Write what each rank received in each run to a file
    #[arg(long, value_name = "FILE", requires = "pattern")]
    pub(crate) received: Option<PathBuf>,

    /// Write what messages of each size class took in each run to a file
    #[arg(long, value_name = "FILE", requires = "pattern")]
    pub(crate) classes: Option<PathBuf>,

    /// Write what arrived in each interval of each run to a file
    #[arg(long, value_name = "FILE", requires = "interval")]
    pub(crate) series: Option<PathBuf>,

    /// Draw the sweep; traffic has a second picture FILE-accepted.svg
    #[arg(long, value_name = "FILE", conflicts_with = "goal")]
    pub(crate) svg: Option<PathBuf>,

    /// Record every stage of every packet of the last run in a file for Perfetto
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// What is measured between two ranks, with their processors' overheads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Half a round trip
    Latency,
    /// A stream one way, in bytes
    Bandwidth,
    /// A stream one way, in messages
    Rate,
}

/// What changes from run to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sweep {
    Bytes(Vec<u32>),
    Load(Vec<f64>),
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "must be bytes=A..B or load=A..B or load=A..B/N, with A at most B, bytes from 1 to 67108864, loads above 0 and at most 4, and N from 2 to 1000".to_owned()
        };
        let (what, range) = text.split_once('=').ok_or_else(wrong)?;
        let (range, steps) = range.split_once('/').map_or((range, None), |(range, steps)| (range, Some(steps)));
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        match what {
            "bytes" => {
                let number = |text: &str| text.parse::<u32>().ok().filter(|bytes| (1..=1 << 26).contains(bytes));
                let (from, to) = (number(from).ok_or_else(wrong)?, number(to).ok_or_else(wrong)?);
                if from > to || steps.is_some() {
                    return Err(wrong());
                }
                Ok(Self::Bytes(
                    std::iter::successors(Some(from), |bytes| Some(2 * bytes))
                        .take_while(|bytes| *bytes <= to)
                        .collect(),
                ))
            }
            "load" => {
                let number = |text: &str| text.parse::<f64>().ok().filter(|load| *load > 0.0 && *load <= 4.0);
                let (from, to) = (number(from).ok_or_else(wrong)?, number(to).ok_or_else(wrong)?);
                let steps =
                    steps.map_or(Some(10), |steps| steps.parse().ok()).filter(|steps| (2..=1000).contains(steps));
                let steps: u32 = steps.ok_or_else(wrong)?;
                if from > to {
                    return Err(wrong());
                }
                let part = |step: u32| from + (to - from) * f64::from(step) / f64::from(steps - 1);
                // 0.3 and not what the sum of parts comes to.
                let part = |step: u32| (part(step) * 1e9).round() / 1e9;
                Ok(Self::Load((0..steps).map(part).collect()))
            }
            _ => Err(wrong()),
        }
    }
}

/// What the machine does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    Measure(Measure, (u32, u32)),
    Traffic(Pattern),
    Schedule(&'a Path),
}

impl Cli {
    /// The machine, with what the flags change.
    pub(crate) fn machine(&self) -> Result<MachineConfig, Failure> {
        let mut machine = presets::open(self.machine.as_deref().unwrap_or(Path::new("")))?;
        if let Some(topology) = &self.topology {
            machine.topology = topology.clone();
            machine.links.clear();
        }
        machine.ranks = self.ranks.unwrap_or(machine.ranks);
        machine.trace |= self.trace.is_some();
        machine.check()?;
        Ok(machine)
    }

    /// What the machine does.
    pub(crate) fn task(&self) -> Result<Task<'_>, Failure> {
        if let Some(file) = &self.goal {
            return Ok(Task::Schedule(file));
        }
        if let Some(pattern) = self.pattern {
            if self.burst.is_some() && pattern != Pattern::Bursts {
                return Err(Failure::Usage("--burst goes with --pattern bursts only".into()));
            }
            return Ok(Task::Traffic(pattern));
        }
        let ranks = self.machine()?.ranks;
        let (one, other) = match self.pair.as_deref() {
            Some([one, other]) => (*one, *other),
            _ => (0, ranks - 1),
        };
        if one == other || one.max(other) >= ranks {
            return Err(Failure::Usage(format!(
                "--pair {one},{other}: must be two different ranks below {ranks}; a machine of one rank has no pair"
            )));
        }
        Ok(Task::Measure(self.measure.unwrap_or(Measure::Latency), (one, other)))
    }

    /// The sizes of messages of the runs that measure two ranks.
    pub(crate) fn sizes(&self) -> Result<Vec<u32>, Failure> {
        match &self.sweep {
            Some(Sweep::Bytes(sizes)) => Ok(sizes.clone()),
            Some(Sweep::Load(_)) => Err(Failure::Usage("--sweep load goes with --pattern only".into())),
            None => Ok(self.bytes.map_or_else(|| (3..=20).map(|power| 1 << power).collect(), |bytes| vec![bytes])),
        }
    }

    /// Sizes and loads of the runs with traffic.
    pub(crate) fn loads(&self) -> Result<Vec<(u32, f64)>, Failure> {
        if !(self.load > 0.0 && self.load <= 4.0) {
            return Err(Failure::Usage(format!("--load {}: must be above 0 and at most 4", self.load)));
        }
        if let Some(interval) = self.interval
            && !(1.0..=1e15).contains(&interval)
        {
            return Err(Failure::Usage(format!("--interval {interval}: must be from 1 to 1e15 nanoseconds")));
        }
        let bytes = self.bytes.unwrap_or(1024);
        Ok(match &self.sweep {
            Some(Sweep::Bytes(sizes)) => sizes.iter().map(|bytes| (*bytes, self.load)).collect(),
            Some(Sweep::Load(loads)) => loads.iter().map(|load| (bytes, *load)).collect(),
            None => vec![(bytes, self.load)],
        })
    }

    /// Whether it is the load that changes from run to run.
    pub(crate) fn sweeps_load(&self) -> bool {
        !matches!(self.sweep, Some(Sweep::Bytes(_)))
    }

    /// Runs of a sweep at a time.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.into()
    }

    /// Messages of a stream, or of each rank in the time that is measured.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::random_access::cli::one_line;

    #[test]
    fn sweeps_are_read() {
        assert_eq!("bytes=8..100".parse(), Ok(Sweep::Bytes(vec![8, 16, 32, 64])));
        let Ok(Sweep::Load(loads)) = "load=0.1..1.0".parse() else { panic!("a sweep") };
        assert!(loads.len() == 10 && loads[2] == 0.3 && loads[9] == 1.0, "{loads:?}");
        assert_eq!("load=0.5..1/2".parse(), Ok(Sweep::Load(vec![0.5, 1.0])));
        for wrong in [
            "bytes",
            "bytes=8",
            "bytes=0..8",
            "bytes=9..8",
            "load=0..1",
            "load=0.5..5",
            "load=1..1/1",
            "ranks=1..2",
        ] {
            assert!(wrong.parse::<Sweep>().unwrap_err().contains("must be bytes=A..B"), "{wrong}");
        }
    }

    #[test]
    fn wrong_flags_are_one_line() {
        for (arguments, part) in [
            (&["--machine", "torus"][..], "--measure"),
            (&["--measure", "latency"], "--machine"),
            (&["--machine", "torus", "--pattern", "storm"], "storm"),
            (&["--machine", "torus", "--measure", "rate", "--pattern", "uniform"], "cannot be used with"),
            (&["--machine", "torus", "--pattern", "uniform", "--sweep", "load=2"], "load=2"),
            (&["--machine", "torus", "--goal", "x.goal", "--ranks", "3"], "--ranks"),
        ] {
            let error = Cli::try_parse_from(std::iter::once(&"simulate").chain(arguments)).expect_err("wrong");
            let line = one_line(&error);
            assert!(
                line.contains(part) && !line.contains('\n') && error.exit_code() == 2,
                "{arguments:?}: {line}"
            );
        }
    }
}
