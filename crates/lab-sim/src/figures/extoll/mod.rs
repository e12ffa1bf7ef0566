//! EXTOLL: the figures of the report on pscom's plugin, measured on the DEEP evaluator, and of the conduit paper,
//! measured on a cluster of 64 nodes.
//!
//! Every value is the virtual time of a run; no file here knows what anything costs. What costs are lies in the
//! machine's parameter table, [`extoll_sim::model`].

mod latency;
mod machines;
mod overhead;
pub mod pairs;
mod random_access;
mod sources;
mod throughput;
mod udp;
mod updates;
mod versions;
mod window;

use crate::figures::cli::Cli;
use crate::figures::parts::Parts;
use crate::figures::progress::Progress;
use crate::figures::report::{Failure, Part, Report};
use machines::Machines;

/// What the parts of the reproduction have in common.
struct Context<'a> {
    machines: Machines,
    quick: bool,
    progress: &'a Progress,
}

impl Context<'_> {
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

/// A part of the reproduction.
type Run = fn(&Context<'_>) -> Result<Part, Failure>;

/// The parts.
const PARTS: Parts<Run> = Parts(&[
    ("latency", "latency of VELO and RMA", latency::run),
    ("throughput", "throughput of VELO and RMA", throughput::run),
    ("window", "throughput over the number of ring buffers", window::run),
    ("ping-pong", "ping-pong on the interface, the conduit, two-sided messages", overhead::run),
    ("implementations", "first and second implementation of active messages", versions::run),
    ("udp", "a conduit over UDP beside raw UDP", udp::run),
    ("random-access", "RandomAccess on the 3D and the 2D mesh", random_access::run),
]);

/// Runs all parts, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    let machines = Machines::new(cli)?;
    PARTS.run(cli, report, |part, progress| {
        part(&Context { machines: machines.clone(), quick: cli.quick, progress })
    })
}
