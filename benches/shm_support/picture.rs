//! The picture of the shared-memory figures: ours, the raw baseline of the same run, and what other libraries
//! reached on other machines of the same kind.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Other, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::Summary;

/// The panels with their rows from top to bottom. The other libraries ran on a two-CPU virtual machine, on
/// separate cores, both processes on one host; RandomAccess with 2 ranks of 2^24 words. Rows with "2 GHz" are of a
/// third machine.
const PANELS: &[(&str, &[Row])] = &[
    (
        "Short request and reply, us (less is better)",
        &[
            Ours("short round trip", "this project"),
            Other("UCX 1.13, lowest layer", 0.34),
            Other("GASNet-EX 2025.8", 0.48),
            Other("UCX 1.13, messages", 0.50),
            Other("OpenMPI 4.1", 0.53),
            Other("pscom", 0.76),
        ],
    ),
    (
        "Medium request and reply, us (less is better)",
        &[
            Ours("medium 64 B round trip", "this project, 64 B"),
            Other("GASNet-EX, 64 B", 0.59),
            Ours("medium 1 KB round trip", "this project, 1 KB"),
            Other("GASNet-EX, 1 KB", 0.96),
            Ours("medium 8 KB round trip", "this project, 8 KB"),
            Other("GASNet-EX, 8 KB", 2.33),
        ],
    ),
    (
        "Flood of Shorts, million messages/s (more is better)",
        &[
            Ours("short flood", "this project"),
            Other("GASNet-EX 2025.8", 15.0),
            Other("OpenMPI 4.1", 9.6),
            Other("UCX 1.13, lowest layer", 9.0),
            Other("Lamellar 0.8.1", 0.19),
        ],
    ),
    (
        "Flood of 8-byte Mediums, million messages/s (more is better)",
        &[
            Ours("medium 8 B flood", "this project"),
            Other("GASNet-EX 2025.8", 10.4),
            Other("UCX 1.13, messages", 6.0),
        ],
    ),
    (
        "Medium 8 KB and Long 1 MiB one way, GB/s (more is better)",
        &[
            Ours("medium 8 KB flood", "this project, 8 KB"),
            Other("GASNet-EX, 8 KB", 15.0),
            Ours("long 1 MiB flood", "this project, 1 MiB"),
        ],
    ),
    (
        "RandomAccess, update by update, GUPS (more is better)",
        &[
            Ours("random access short", "this project"),
            Other("GASNet-EX 2025.8", 0.0090),
            Other("OpenMPI 4.1", 0.0072),
            Other("Lamellar 0.8.1", 0.0004),
        ],
    ),
    (
        "RandomAccess, at best, GUPS (more is better)",
        &[
            Ours("random access medium", "this project"),
            Other("GASNet-EX, buckets, 2 GHz", 0.108),
            Other("OpenMPI, buckets, 2 GHz", 0.084),
            Other("Lamellar, buckets", 0.0165),
            Other("HPCC's MPI program", 0.0158),
        ],
    ),
    (
        "Short round trip among 8 ranks on 2 CPUs, us (less is better)",
        &[Ours("short round trip, 2 of 8 busy ranks", "this project"), Other("GASNet-EX 2025.8", 6.5)],
    ),
    (
        "Short round trip on one CPU, us (less is better)",
        &[Ours("short round trip, one CPU", "this project"), Other("GASNet-EX, MPI", 8000.0)],
    ),
];

/// The picture of `summary`; panels whose figures it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let placement = summary.figures().first().map_or("", |figure| figure.placement.as_str());
    Chart {
        title: "Active messages over shared memory, between processes of one host".into(),
        subtitle: format!(
            "Regenerate with: cargo bench --bench shm. This project and baselines: one run, {placement}."
        ),
        legend: [
            "this project".into(),
            "raw baseline of the same run".into(),
            "other libraries, on another 2-CPU virtual machine (payload ping-pong: 0.23 us); 2 GHz: on a third"
                .into(),
        ],
        panels: panels(summary, PANELS),
    }
}
