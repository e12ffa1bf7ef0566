//! Virtual figures of the bare fabric: what a packet takes from rank to rank, without an interface's programming
//! model and without active messages. The conduits' figures are to be read beside these.

use am_core::Instant;
use fabric_sim::{Context, Mailbox, Sim};

use super::measure::Bench;
use super::traffic;

/// Packets of 8 bytes to 1 MiB between neighbours.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    for bytes in (3..=20).step_by(3).chain([20]).map(|power| 1u32 << power) {
        bench.virtual_time(&format!("virtual/fabric/{bytes} B"), None, || {
            let program = move |rank: Context<'_, Mailbox<()>>| match rank.rank() {
                0 => rank.send(1, bytes, ()),
                _ => drop(rank.wait()),
            };
            let report = Sim::run(&traffic::machine([2, 1, 1]), program).expect("one packet arrives");
            report.ended.since(Instant(0))
        });
    }
}
