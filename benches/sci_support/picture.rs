//! The picture of the bench: the conduit beside `transport-shm`.

use lab::bench::chart::Chart;
use lab::bench::rows::{Row, panels};
use lab::bench::summary::Summary;

/// The picture of a full run.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let rows = |published, tuned| [Row::Ours(published, "published design"), Row::Ours(tuned, "tuned")];
    let short = rows("Short request + reply, published", "Short request + reply, tuned");
    let medium = rows("Medium 944 B request + reply, published", "Medium 944 B request + reply, tuned");
    let flood = rows("flood of Shorts, published", "flood of Shorts, tuned");
    Chart {
        title: "SCI's conduit over mapped files".into(),
        subtitle: "cargo bench --bench sci: two threads, a processor each".into(),
        legend: ["SCI's conduit, mapped".into(), "transport-shm".into(), "published elsewhere".into()],
        panels: panels(
            summary,
            &[
                ("Short request + reply, us (less is better)", &short),
                ("Medium 944 B request + reply, us (less is better)", &medium),
                ("Flood of Shorts, M/s (more is better)", &flood),
            ],
        ),
    }
}
