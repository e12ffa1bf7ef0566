//! SCI: the figures of the paper on GASNet's core API over SISCI, measured on a cluster of 16 nodes.
//!
//! Every value is the virtual time of a run; no file here knows what anything costs. What costs are lies in the
//! machine's parameter table, [`sci_sim::model`]. The paper gives few numbers: most lines are of the class
//! `model`, this project's own.

mod messages;
mod methods;
pub mod pairs;
mod raw;
mod sources;
mod tuned;

use crate::figures::cli::Cli;
use crate::figures::parts::Parts;
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use active_messages::Span;
use fabric_sim::RunError;
use sci_sim::SciConfig;
use sci_sim::model::Parameters;
use sci_sim::model::fit::TrainingSet;

/// What the parts of the reproduction have in common.
struct Context {
    parameters: Parameters,
    quick: bool,
}

impl Context {
    /// Two neighbouring nodes, a process on each.
    fn pair(&self) -> SciConfig {
        SciConfig { parameters: self.parameters.clone(), ..SciConfig::pair() }
    }

    /// The sizes of a curve, in bytes: all, or every third when quick, and the last.
    fn thin(&self, sizes: Vec<usize>) -> Vec<usize> {
        let last = sizes.last().copied();
        let every = if self.quick { 3 } else { 1 };
        let mut kept: Vec<usize> = sizes.into_iter().step_by(every).collect();
        if kept.last().copied() != last {
            kept.extend(last);
        }
        kept
    }
}

/// A latency in microseconds for each size in bytes.
type Curve = Vec<(usize, f64)>;

/// Measures each size by a run of its own; `ping` tells the time of half a round trip.
fn curve(
    what: &'static str,
    sizes: &[usize],
    ping: impl Fn(usize) -> Result<Span, RunError>,
) -> Result<Curve, Failure> {
    sizes.iter().map(|size| Ok((*size, micros(ping(*size).map_err(Failure::of(what))?)))).collect()
}

fn micros(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

/// A curve as points of a plot.
fn points(curve: &Curve) -> Vec<(f64, f64)> {
    curve.iter().map(|(size, value)| (*size as f64, *value)).collect()
}

/// Whether parameters are fitted to a published value.
fn is_training(name: &str) -> bool {
    TrainingSet::NAMES.iter().any(|(known, _)| *known == name)
}

/// A part of the reproduction.
type Run = fn(&Context) -> Result<Part, Failure>;

/// The parts.
const PARTS: Parts<Run> = Parts(&[
    ("raw", "stores, DMA and reads on the interface", raw::run),
    ("messages", "active messages against the interface and against MPI", messages::run),
    ("methods", "both ways to send a Medium message", methods::run),
    ("tuned", "the published conduit and a tuned one", tuned::run),
]);

/// Runs all parts, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    let parameters = Settings::new(cli)?.change(Parameters::paper(), Parameters::from_toml)?;
    let context = Context { parameters, quick: cli.quick };
    PARTS.run(cli, report, |part, _| part(&context))
}
