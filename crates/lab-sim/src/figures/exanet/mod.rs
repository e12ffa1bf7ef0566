//! ExaNet: what is published of the ExaNeSt prototype's interface, and active messages on it.
//!
//! Four published numbers are what the parameter table is fitted to ([`exanet_sim::model::fit`]), so lines that
//! compare with them show that the simulation keeps to the fit, and no more. Whether a line is held out is
//! computed from the training set. The write-based MPI claims three inequalities, of its protocols, of programs on
//! them, and beside an MPI through the kernel.

mod collectives;
mod latency;
mod messages;
pub mod pairs;
pub mod programs;
mod protocols;
mod sources;
mod writes;

use crate::figures::cli::Cli;
use crate::figures::line::Line;
use crate::figures::parts::Parts;
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use exanet_sim::ExanetConfig;
use exanet_sim::model::Parameters;
use exanet_sim::model::fit::TRAINING_SET;
use fabric_sim::Topology;
use sources::PUBLISHED;

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
    ("protocols", "two-sided messages by protocol", protocols::run),
    ("collectives", "collective operations by protocol", collectives::run),
    ("programs", "conjugate gradient and a stencil by protocol", programs::run),
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
