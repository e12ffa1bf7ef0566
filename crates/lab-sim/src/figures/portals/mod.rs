//! Portals: what "Porting GASNet to Portals" (CUG 2009) shows of its conduit on XT4 nodes, beside MPI; and what no
//! paper showed, the memory and the speed of static and of lent credits by the number of nodes.
//!
//! The paper gives plots and words, no tables. So a line here is an ordering or a bound of an axis that the model
//! must keep to: it is consistent with the paper, not calibrated to it. What MPI took on those nodes is recalled,
//! and only its order counts; `two_copies` simulates MPI on the interface instead, and `mpi` two-sided messages.

mod bandwidth;
mod credits;
mod latency;
mod medium;
mod mpi;
pub mod pairs;
mod sources;
pub(crate) mod traffic;
mod two_copies;

use crate::figures::cli::Cli;
use crate::figures::parts::Parts;
use crate::figures::progress::Progress;
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use portals_sim::PortalsConfig;
use portals_sim::model::Parameters;

/// What the parts of the reproduction have in common.
struct Context<'a> {
    parameters: Parameters,
    quick: bool,
    progress: &'a Progress,
}

impl Context<'_> {
    /// Two neighbouring nodes.
    fn pair(&self) -> PortalsConfig {
        PortalsConfig { parameters: self.parameters.clone(), ..PortalsConfig::pair() }
    }

    /// So many nodes in a 3D torus.
    fn torus(&self, nodes: u32) -> PortalsConfig {
        PortalsConfig { parameters: self.parameters.clone(), ..portals_sim::xt4(nodes) }
    }

    /// The sizes of a curve in bytes: all powers of two up to one, or every third when quick, and the last.
    fn sizes(&self, powers: std::ops::RangeInclusive<u32>) -> Vec<u32> {
        let (first, last, every) = (*powers.start(), *powers.end(), if self.quick { 3 } else { 1 });
        powers
            .filter(|power| (power - first).is_multiple_of(every) || *power == last)
            .map(|power| 1 << power)
            .collect()
    }
}

/// A part of the reproduction.
type Run = fn(&Context<'_>) -> Result<Part, Failure>;

/// The parts.
const PARTS: Parts<Run> = Parts(&[
    ("latency", "latency of puts", latency::run),
    ("bandwidth", "bandwidth of puts", bandwidth::run),
    ("medium", "round trips of Medium messages", medium::run),
    ("two-sided", "puts beside two-sided messages", mpi::run),
    ("two-copies", "beside MPI of two copies on the interface", two_copies::run),
    ("credits", "static and lent credits from 64 to 4096 nodes", credits::run),
]);

/// Runs all parts, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    let parameters = Settings::new(cli)?.change(Parameters::xt4(), Parameters::from_toml)?;
    PARTS.run(cli, report, |part, progress| {
        part(&Context { parameters: parameters.clone(), quick: cli.quick, progress })
    })
}
