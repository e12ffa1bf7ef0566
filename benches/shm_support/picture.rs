//! The picture of the shared-memory figures: ours, the raw baseline of the same run, and what other libraries reached on
//! another machine of the same kind.

use crate::support::chart::{Chart, Column, Kind, Panel};
use crate::support::summary::Summary;

/// One panel: its title, our figures with their labels, and the references of other libraries.
type Sketch = (&'static str, &'static [(&'static str, &'static str)], &'static [(&'static str, f64)]);

/// Two-CPU virtual machine, separate cores, both processes on one host; RandomAccess with 2 ranks of 2^24 words.
const SKETCHES: &[Sketch] = &[
    (
        "Short request and reply, round trip, us (less is better)",
        &[("short round trip", "this project")],
        &[
            ("GASNet-EX 2025.8", 0.48),
            ("UCX 1.13 UCT", 0.34),
            ("UCX 1.13 UCP", 0.50),
            ("OpenMPI 4.1", 0.53),
            ("pscom", 0.76),
        ],
    ),
    (
        "Medium request and Short reply, round trip, us (less is better)",
        &[
            ("medium 64 B round trip", "64 B"),
            ("medium 1 KB round trip", "1 KB"),
            ("medium 8 KB round trip", "8 KB"),
        ],
        &[("GASNet-EX 64 B", 0.59), ("GASNet-EX 1 KB", 0.96), ("GASNet-EX 8 KB", 2.33)],
    ),
    (
        "Flood of Shorts, million messages/s (more is better)",
        &[("short flood", "this project")],
        &[("GASNet-EX 2025.8", 15.0), ("OpenMPI 4.1", 9.6), ("UCX 1.13 UCT", 9.0), ("Lamellar 0.8.1", 0.19)],
    ),
    (
        "Flood of 8-byte Mediums, million messages/s (more is better)",
        &[("medium 8 B flood", "this project")],
        &[("GASNet-EX 2025.8", 10.4), ("UCX 1.13 UCP", 6.0)],
    ),
    (
        "Large payloads, GB/s (more is better)",
        &[("medium 8 KB flood", "Medium 8 KB"), ("long 1 MiB flood", "Long 1 MiB")],
        &[("GASNet-EX 8 KB", 15.0)],
    ),
    (
        "RandomAccess, one update per message, GUPS (more is better)",
        &[("random access short", "this project")],
        &[("GASNet-EX", 0.0090), ("OpenMPI", 0.0072), ("Lamellar", 0.0004)],
    ),
    (
        "RandomAccess, best, GUPS (more is better)",
        &[("random access medium", "this project")],
        &[
            ("GASNet-EX buckets", 0.044),
            ("OpenMPI buckets", 0.041),
            ("Lamellar buckets", 0.0165),
            ("HPCC MPI program", 0.0158),
        ],
    ),
];

/// The picture of `summary`; figures that it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let panels = SKETCHES.iter().map(|sketch| panel(summary, sketch)).collect();
    let placement = summary.figures().last().map_or("", |figure| figure.placement.as_str());
    Chart {
        title: "Active messages over shared memory, two processes of one host".into(),
        subtitle: format!("Regenerate with: cargo bench --bench shm. Ours and baselines: one run, {placement}."),
        legend: [
            "this project".into(),
            "raw baseline, same run".into(),
            "other libraries, on another 2-CPU virtual machine of the same kind".into(),
        ],
        panels,
    }
}

fn panel(summary: &Summary, (title, ours, references): &Sketch) -> Panel {
    let mut columns = Vec::new();
    let mut baselines: Vec<Column> = Vec::new();
    for (name, label) in *ours {
        let Some(figure) = summary.find(name) else {
            continue;
        };
        columns.push(Column { label: (*label).into(), value: figure.value, kind: Kind::Ours });
        if let Some(baseline) = &figure.baseline
            && !baselines.iter().any(|known| known.label == baseline.name)
        {
            baselines.push(Column { label: baseline.name.clone(), value: baseline.value, kind: Kind::Baseline });
        }
    }
    if !columns.is_empty() {
        columns.extend(baselines);
        columns.extend(references.iter().map(|(label, value)| Column {
            label: (*label).into(),
            value: *value,
            kind: Kind::Reference,
        }));
    }
    Panel { title: (*title).into(), columns }
}
