//! The picture of the UDP figures: ours, the raw baseline of the same run, and what GASNet-EX reached on another machine.

use crate::support::chart::{Chart, Column, Kind, Panel};
use crate::support::summary::Summary;

/// A bar of a panel.
enum Row {
    /// A figure of the bench, by its name, and what stands beside it. Its baseline follows it, once in a panel.
    Ours(&'static str, &'static str),
    /// Another library's value.
    Other(&'static str, f64),
}

use Row::{Other, Ours};

/// The panels with their rows from top to bottom. GASNet-EX 2025.8 over UDP, unauthenticated, ran on a two-CPU virtual
/// machine whose raw busy ping-pong took 6.4 us.
const PANELS: &[(&str, &[Row])] = &[
    (
        "Short request and reply, us (less is better)",
        &[
            Ours("short trip, encrypted", "encrypted"),
            Ours("short trip, unauthenticated", "unauthenticated"),
            Other("GASNet-EX 2025.8", 9.8),
        ],
    ),
    ("Short request and reply, sleeping ranks, us (less is better)", &[Ours("short trip, blocking", "encrypted")]),
    (
        "Flood of Shorts with one u64, million messages/s (more is better)",
        &[
            Ours("short flood, encrypted", "encrypted"),
            Ours("short flood, unauthenticated", "unauthenticated"),
            Other("GASNet-EX 2025.8", 0.19),
        ],
    ),
    (
        "Long of 1 MiB one way, GB/s (more is better)",
        &[
            Ours("long 1 MiB flood, encrypted", "encrypted"),
            Ours("long 1 MiB flood, unauthenticated", "unauthenticated"),
            Other("GASNet-EX 2025.8", 3.4),
        ],
    ),
    (
        "RandomAccess, update by update, GUPS (more is better)",
        &[
            Ours("random access short, encrypted", "encrypted"),
            Ours("random access short, unauthenticated", "unauthenticated"),
            Other("GASNet-EX 2025.8", 0.0005),
        ],
    ),
    (
        "RandomAccess, buckets, GUPS (more is better)",
        &[
            Ours("random access medium, encrypted", "encrypted"),
            Ours("random access medium, unauthenticated", "unauthenticated"),
            Other("GASNet-EX 2025.8", 0.0305),
        ],
    ),
];

/// The picture of `summary`; panels whose figures it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    Chart {
        title: "Active messages over UDP on loopback, two ranks".into(),
        subtitle: "Regenerate with: cargo bench --bench udp. This project and baselines: one run.".into(),
        legend: [
            "this project".into(),
            "raw sockets in the same run".into(),
            "GASNet-EX over UDP, on another 2-CPU virtual machine (raw ping-pong there: 6.4 us)".into(),
        ],
        panels: PANELS.iter().map(|(title, rows)| panel(summary, title, rows)).collect(),
    }
}

fn panel(summary: &Summary, title: &str, rows: &[Row]) -> Panel {
    let mut columns: Vec<Column> = Vec::new();
    for row in rows {
        match *row {
            Ours(name, label) => {
                let Some(figure) = summary.find(name) else { continue };
                columns.push(Column { label: label.into(), value: figure.value, kind: Kind::Ours });
                let Some(baseline) = &figure.baseline else { continue };
                let same = |column: &Column| column.kind == Kind::Baseline && column.label == baseline.name;
                if !columns.iter().any(same) {
                    let label = baseline.name.clone();
                    columns.push(Column { label, value: baseline.value, kind: Kind::Baseline });
                }
            }
            Other(label, value) => columns.push(Column { label: label.into(), value, kind: Kind::Reference }),
        }
    }
    if columns.iter().all(|column| column.kind == Kind::Reference) {
        columns.clear();
    }
    Panel { title: title.into(), columns }
}
