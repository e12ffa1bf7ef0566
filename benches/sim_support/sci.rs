//! SCI in virtual time: half a round trip on the raw interface, on the published conduit, on a tuned one and on
//! MPI, 8 B to 64 KB, which the parameter table fixes.

use active_messages::Span;
use fabric_sim::RunError;
use sci_sim::SciConfig;
use sci_sim::conduit::ConduitConfig;

use super::measure::Bench;
use lab_sim::figures::sci::pairs::{self as sci_pairs, Kind, Way};

/// The largest Medium payload of the published conduit, in bytes.
const LARGEST_MEDIUM: usize = 944;

/// All figures of SCI.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let machine = SciConfig::pair();
    for bytes in [8, 64, 512, LARGEST_MEDIUM, 4 << 10, 64 << 10] {
        let name = |layer: &str| format!("virtual/sci/{layer}/{bytes} B");
        let way = if bytes < 2048 { Way::Stores } else { Way::Dma };
        bench.virtual_time(&name("raw"), None, || ended(sci_pairs::raw(&machine, way, bytes)));
        let kind = if bytes <= LARGEST_MEDIUM { Kind::Medium } else { Kind::Long };
        for (layer, config) in [
            ("published", ConduitConfig::paper()),
            ("tuned", ConduitConfig::tuned()),
            ("MPI", ConduitConfig::mpi()),
        ] {
            let time = || ended(sci_pairs::messages(&machine, &config, kind, bytes));
            bench.virtual_time(&name(layer), Some(&name("raw")), time);
        }
    }
}

fn ended(time: Result<Span, RunError>) -> Span {
    time.expect("a ping-pong ends")
}
