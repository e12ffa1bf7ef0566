//! The figures of the pgas bench, and their picture.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::{Bar, Summary, Unit};

use super::case::Case;
use super::far::{BLOCK, FarTask};
use super::mapping::LINE_BYTES;
use super::pgas::{PgasTask, SPARE};
use super::raw::{Places, RawTask};
use super::world::Task;

const MIB: usize = 1 << 20;
/// Every line of what the raw stores and loads go round in.
const LINES: Places = Places { step: LINE_BYTES, span: SPARE };
const LINE: &str = "payload ping-pong";

/// Two ranks.
pub(crate) fn pair() -> Vec<Case> {
    let trip = |name, task| {
        Case::new(name, Unit::Microseconds, task, 1.0).beside(LINE, RawTask::Line { pause: false }, 1.0)
    };
    let word = |name, task| Case::new(name, Unit::Nanoseconds, task, 1.0);
    let bulk = |name, task| Case::new(name, Unit::GigabytesPerSecond, task, MIB as f64);
    let table = |name, task, add| {
        Case::new(name, Unit::Gups, task, 2.0).beside("direct table", Task::TableBatches { add }, 2.0)
    };
    vec![
        word("put of a value", PgasTask::Put(LINES))
            .beside("store", RawTask::Store(LINES), 1.0)
            .bar(Bar::AboveAtMost(2.0)),
        word("get of a value", PgasTask::Get(LINES))
            .beside("load", RawTask::Load(LINES), 1.0)
            .bar(Bar::AboveAtMost(2.0)),
        Case::new(
            "memcpy of 1 MiB in the cache",
            Unit::GigabytesPerSecond,
            RawTask::CopyInCache { bytes: MIB },
            MIB as f64,
        ),
        bulk("put of 1 MiB", PgasTask::PutBlock(Places { step: MIB, span: SPARE }))
            .beside("memcpy", RawTask::PutAfresh { bytes: MIB }, MIB as f64)
            .bar(Bar::RatioAtLeast(0.95)),
        trip("barrier, 2 ranks", PgasTask::Barrier).bar(Bar::RatioAtMost(1.5)),
        trip("allreduce of a number, 2 ranks", PgasTask::Allreduce).bar(Bar::RatioAtMost(2.0)),
        Case::new("broadcast of 8 B, 2 ranks", Unit::Microseconds, PgasTask::BroadcastSmall, 1.0).beside(
            "payload one way",
            RawTask::Line { pause: false },
            2.0,
        ),
        given("broadcast of 1 MiB, 2 ranks", false).bar(Bar::RatioAtLeast(0.8)),
        given("allgather of 1 MiB, 2 ranks", true).bar(Bar::RatioAtLeast(0.8)),
        table("histogram", PgasTask::Histogram, true).bar(Bar::RatioAtLeast(0.9)),
        table("index gather", PgasTask::IndexGather, false).bar(Bar::RatioAtLeast(0.9)),
    ]
}

/// What others have just written, for everyone: beside copies out of memory that they share.
fn given(name: &str, all: bool) -> Case {
    let task = if all { PgasTask::Allgather { bytes: MIB } } else { PgasTask::Broadcast { bytes: MIB } };
    let copy = RawTask::Give { bytes: MIB, all };
    Case::new(name, Unit::GigabytesPerSecond, task, MIB as f64).beside(
        "memcpy between processes",
        copy,
        MIB as f64,
    )
}

/// Four ranks on however few CPUs there are.
pub(crate) fn four() -> Vec<Case> {
    let bar = Bar::RatioAtLeast(0.8);
    vec![given("broadcast of 1 MiB, 4 ranks", false).bar(bar), given("allgather of 1 MiB, 4 ranks", true).bar(bar)]
}

/// Eight ranks on however few CPUs there are.
pub(crate) fn eight() -> Vec<Case> {
    let among = |name, task| Case::new(name, Unit::Microseconds, task, 1.0);
    vec![
        among("barrier, 8 ranks", PgasTask::Barrier),
        among("allreduce of a number, 8 ranks", PgasTask::Allreduce)
            .beside("barrier", PgasTask::Barrier, 1.0)
            .bar(Bar::RatioAtMost(1.3)),
    ]
}

/// Ranks over UDP, as threads of one process.
pub(crate) fn far() -> Vec<Case> {
    let (trip, block) = ("Short round trip", BLOCK as f64);
    let us = |name, task| Case::new(name, Unit::Microseconds, task, 1.0).beside(trip, FarTask::Trip, 1.0);
    let puts = Case::new("puts of 1 MiB, UDP", Unit::GigabytesPerSecond, FarTask::Puts, block);
    let histogram = Case::new("histogram, UDP", Unit::Gups, FarTask::Histogram, 2.0);
    vec![
        us("get of 8 B, UDP", FarTask::Get).bar(Bar::RatioAtMost(1.1)),
        puts.beside("Longs", FarTask::Longs, block).bar(Bar::RatioAtLeast(0.95)),
        // One and a half times what GASNet-EX takes for two rounds of 9.2 us.
        us("barrier, 4 ranks, UDP", FarTask::Barrier { ranks: 4 }).bar(Bar::ValueAtMost(27.6)),
        Case::new("RandomAccess, aggregated, UDP", Unit::Gups, FarTask::RandomAccess, 2.0)
            .beside("RandomAccess, own buckets", FarTask::OwnBuckets, 2.0)
            .bar(Bar::RatioAtLeast(1.0)),
        histogram.beside("RandomAccess, aggregated", FarTask::RandomAccess, 2.0),
        Case::new("index gather, UDP", Unit::Gups, FarTask::IndexGather, 2.0).beside(
            "RandomAccess, aggregated",
            FarTask::RandomAccess,
            2.0,
        ),
    ]
}

const PANELS: &[(&str, &[Row])] = &[
    ("A value put or got, ns (less is better)", &[Ours("put of a value", "put"), Ours("get of a value", "get")]),
    (
        "Collective operations of 2 ranks, us (less is better)",
        &[
            Ours("barrier, 2 ranks", "barrier"),
            Ours("allreduce of a number, 2 ranks", "allreduce"),
            Ours("broadcast of 8 B, 2 ranks", "broadcast"),
        ],
    ),
    (
        "1 MiB, GB/s (more is better)",
        &[
            Ours("put of 1 MiB", "put"),
            Ours("broadcast of 1 MiB, 2 ranks", "broadcast"),
            Ours("allgather of 1 MiB, 2 ranks", "allgather"),
        ],
    ),
    (
        "Random elements of an array of 2 ranks, GUPS (more is better)",
        &[Ours("histogram", "histogram"), Ours("index gather", "index gather")],
    ),
    (
        "Over UDP, us (less is better)",
        &[Ours("get of 8 B, UDP", "get of 8 B"), Ours("barrier, 4 ranks, UDP", "barrier, 4 ranks")],
    ),
    ("Puts of 1 MiB over UDP, GB/s (more is better)", &[Ours("puts of 1 MiB, UDP", "puts")]),
    ("Histogram of 2 ranks over UDP, GUPS (more is better)", &[Ours("histogram, UDP", "histogram")]),
];

/// The picture of `summary`; panels whose figures it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let placement = summary.figures().first().map_or("", |figure| figure.placement.as_str());
    Chart {
        title: "One-sided access, collectives and arrays over shared memory".into(),
        subtitle: format!("Regenerate with: cargo bench --bench pgas. One run, {placement}."),
        legend: ["this project".into(), "raw baseline of the same run".into(), String::new()],
        panels: panels(summary, PANELS),
    }
}
