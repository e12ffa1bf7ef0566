//! ExaNet: what is published of the ExaNeSt prototype's interface, and active messages on it.
//!
//! Four published numbers are what the parameter table is fitted to ([`exanet_sim::model::fit`]), so lines that compare
//! with them show that the simulation keeps to the fit, and no more. Whether a line is held out is computed from the training
//! set. What the write-based MPI claims is about its two-sided protocols, and is listed as not reproduced until those stand
//! on the interface.

mod latency;
mod messages;
pub mod pairs;
mod writes;

use crate::figures::cli::Cli;
use crate::figures::line::{Class, Group, Line, Source, Tolerance};
use crate::figures::parts::Parts;
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use exanet_sim::ExanetConfig;
use exanet_sim::model::Parameters;
use exanet_sim::model::fit::TRAINING_SET;
use fabric_sim::Topology;

/// What the parts of the reproduction have in common.
struct Context {
    parameters: Parameters,
    quick: bool,
}

impl Context {
    /// Nodes in a ring, so that there are ways of 1 to 8 hops.
    fn ring(&self) -> ExanetConfig {
        ExanetConfig { parameters: self.parameters.clone(), ..ExanetConfig::new(16, Topology::Ring { nodes: 16 }) }
    }

    /// The sizes of a curve in bytes: all powers of two, or every third when quick, and the last.
    fn sizes(&self, powers: std::ops::RangeInclusive<u32>) -> Vec<u32> {
        let (first, last, every) = (*powers.start(), *powers.end(), if self.quick { 3 } else { 1 });
        let kept = powers.filter(|power| (power - first).is_multiple_of(every) || *power == last);
        kept.map(|power| 1 << power).collect()
    }
}

/// A published value and the simulated one, held out unless the value is one that the table is fitted to.
fn published(name: &'static str, unit: &'static str, value: f64, simulated: f64) -> Line {
    PUBLISHED.value(name, unit, value, simulated).trained(TRAINING_SET.has(value))
}

/// A part of the reproduction.
type Run = fn(&Context) -> Result<Part, Failure>;

/// The parts.
const PARTS: Parts<Run> = Parts(&[
    ("latency", "latency of small messages over hops", latency::run),
    ("writes", "time and bandwidth of writes", writes::run),
    ("messages", "active messages over their size", messages::run),
]);

/// Runs all parts, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    let parameters = Settings::new(cli)?.change(Parameters::prototype(), Parameters::from_toml)?;
    let context = Context { parameters, quick: cli.quick };
    PARTS.run(cli, report, |part, _| part(&context))
}

const PAPER: &str = "The ExaNeSt Prototype (Ploumidis et al.)";

static PUBLISHED: Group = Group {
    class: Class::Published,
    source: Source { document: PAPER, place: "abstract, and text on the latency and bandwidth of the network" },
    sentence: "latency of small MPI messages over one hop and five, the interface's part of it, the part of a link that is used",
    tolerance: Tolerance::Part(0.01),
    rule: "1 %: three or two digits are given",
};

static BOUND: Group = Group {
    class: Class::Derived,
    source: Source { document: PAPER, place: "text on the links" },
    sentence: "links of 10 Gb/s carry 1250 MB/s",
    tolerance: Tolerance::Absolute(0.0),
    rule: "a bound of physics",
};
