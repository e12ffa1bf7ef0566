//! The picture of the UDP figures: ours, the raw baseline of the same run, and what other libraries reached on
//! other machines.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Other, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::Summary;

/// The panels with their rows from top to bottom. GASNet-EX 2025.8 over UDP, unauthenticated, ran on a two-CPU
/// virtual machine whose raw busy ping-pong took 6.4 us.
/// Rows with "2 GHz" are of the best programs on a third machine.
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
            Other("GASNet-EX, 2 GHz", 0.0669),
            Other("OpenMPI over tcp, 2 GHz", 0.061),
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
            "other libraries, on another 2-CPU virtual machine (raw ping-pong: 6.4 us); 2 GHz: on a third".into(),
        ],
        panels: panels(summary, PANELS),
    }
}
