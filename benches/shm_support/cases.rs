//! The figures of the bench, crew by crew: what each measures, the baseline beside it, and the bar it should
//! reach.

use super::am::AmTask;
use super::case::{Case, Work};
use super::raw::RawTask;
use super::ring::Announce;
use super::world::Task;
use lab::bench::command::Mode;
use lab::bench::summary::{Bar, Unit};

/// Words of the RandomAccess table for each of two ranks.
pub(crate) const TABLE_WORDS: u64 = 1 << 24;

/// Bytes that Mediums and their baseline rotate over: a ring, not a segment.
const RING_SPAN: usize = 256 << 10;
/// Bytes that Longs and their baseline rotate over.
const SEGMENT_SPAN: usize = super::am::SEGMENT_BYTES;

const LINE: &str = "payload ping-pong";
const RING: &str = "ring, lap per slot";
const COPY: &str = "memcpy into a ring";
const COPY_SEGMENT: &str = "memcpy into a segment";

/// The baselines as figures of their own.
pub(crate) fn raw() -> Vec<Case> {
    let ring = |name, announce| Case::new(name, Unit::MillionPerSecond, RawTask::Ring(announce), 1.0);
    let copy = |name, bytes: usize, span, out| {
        Case::new(name, Unit::GigabytesPerSecond, RawTask::Copy { bytes, span, out }, bytes as f64)
    };
    vec![
        Case::new("raw one-line ping-pong", Unit::Microseconds, RawTask::Word, 1.0),
        Case::new("raw payload ping-pong", Unit::Microseconds, RawTask::Line { pause: false }, 1.0),
        Case::new("raw payload ping-pong, pausing", Unit::Microseconds, RawTask::Line { pause: true }, 1.0),
        ring("raw ring, flag per slot", Announce::Flag),
        ring("raw ring, lap per slot", Announce::Lap),
        ring("raw ring, batched index", Announce::Index),
        copy("raw memcpy 8 KB in", 8 << 10, RING_SPAN, false),
        copy("raw memcpy 8 KB in and out", 8 << 10, RING_SPAN, true),
        copy("raw memcpy 1 MiB in", 1 << 20, SEGMENT_SPAN, false),
        copy("raw memcpy 1 MiB in and out", 1 << 20, SEGMENT_SPAN, true),
        Case::new("raw table", Unit::Gups, Work::Task(Task::Table), 2.0),
        own_tables(16),
        own_tables(32),
        own_tables(64),
        own_tables(128),
        own_tables(256),
    ]
}

/// A part of the table for each rank, and no messages.
fn own_tables(ahead: usize) -> Case {
    Case::new(format!("raw own tables, {ahead} ahead"), Unit::Gups, Task::OwnTable { ahead }, 2.0)
}

/// Request and reply between two ranks. `largest` is the largest Medium.
pub(crate) fn trips(largest: usize) -> Vec<Case> {
    let trip = |name: String, task| {
        Case::new(name, Unit::Microseconds, task, 1.0).beside(LINE, RawTask::Line { pause: false }, 1.0)
    };
    let mut cases = vec![
        trip("short round trip".into(), AmTask::EmptyTrip).bar(Bar::RatioAtMost(1.08)),
        trip("short round trip, one u64".into(), AmTask::WordTrip).bar(Bar::RatioAtMost(1.08)),
        trip("short round trip, 56 B".into(), AmTask::FullTrip),
    ];
    for bytes in [8, 64, 1 << 10, 8 << 10, largest] {
        let case = trip(format!("medium {} round trip", size(bytes)), AmTask::MediumTrip { bytes, back: true });
        cases.push(if bytes == 1 << 10 { case.bar(Bar::RatioAtMost(1.8)) } else { case });
    }
    for bytes in [64, 1 << 10, 8 << 10] {
        let name = format!("medium {} request, short reply", size(bytes));
        let case = trip(name, AmTask::MediumTrip { bytes, back: false });
        cases.push(if bytes == 1 << 10 { case.bar(Bar::RatioAtMost(2.5)) } else { case });
    }
    for bytes in [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20] {
        cases.push(trip(format!("long {} round trip", size(bytes)), AmTask::LongTrip { bytes }));
    }
    cases
}

/// One-way streams between two ranks, puts, gets, and polls that find nothing.
pub(crate) fn streams() -> Vec<Case> {
    let messages = |name, task| {
        let ring = RawTask::Ring(Announce::Lap);
        Case::new(name, Unit::MillionPerSecond, task, 1.0).beside(RING, ring, 1.0)
    };
    let medium = |bytes, read| AmTask::MediumFlood { bytes, read };
    let mut cases = vec![
        messages("short flood", AmTask::ShortFlood).bar(Bar::RatioAtLeast(0.6)),
        messages("medium 8 B flood", medium(8, false)).bar(Bar::ValueAtLeast(40.0)),
        messages("medium 64 B flood", medium(64, false)),
    ];
    for (bytes, read, bar) in
        [(1 << 10, false, None), (8 << 10, false, Some(Bar::ValueAtLeast(10.0))), (8 << 10, true, None)]
    {
        let name = format!("medium {} flood{}", size(bytes), if read { ", read" } else { "" });
        let copy = RawTask::Copy { bytes, span: RING_SPAN, out: read };
        let baseline = if read { "memcpy through a ring" } else { COPY };
        let case = bandwidth(name, medium(bytes, read), bytes).beside(baseline, copy, bytes as f64);
        cases.push(Case { bar, ..case });
    }
    for (bytes, bar) in [(8 << 10, None), (64 << 10, None), (1 << 20, Some(Bar::RatioAtLeast(0.9)))] {
        let copy = RawTask::Copy { bytes, span: SEGMENT_SPAN, out: false };
        let case = bandwidth(format!("long {} flood", size(bytes)), AmTask::LongFlood { bytes }, bytes);
        cases.push(Case { bar, ..case.beside(COPY_SEGMENT, copy, bytes as f64) });
    }
    for bytes in [8, 1 << 10, 64 << 10, 1 << 20] {
        let put = one_sided(format!("put {}", size(bytes)), AmTask::Put { bytes }, bytes);
        cases.push(put.beside("memcpy, private to shared", RawTask::Put { bytes }, amount(bytes)));
        let get = one_sided(format!("get {}", size(bytes)), AmTask::Get { bytes }, bytes);
        cases.push(get.beside("memcpy, shared to private", RawTask::Get { bytes }, amount(bytes)));
    }
    cases.push(
        Case::new("empty poll, 2 ranks", Unit::Nanoseconds, AmTask::EmptyPoll, 1.0).bar(Bar::ValueAtMost(8.0)),
    );
    cases
}

/// The RandomAccess example between two ranks, variant by variant.
pub(crate) fn random_access(mode: Mode) -> Vec<Case> {
    let case = |variant: &str| {
        example(&format!("random access {variant}"), variant, 2, mode).beside("direct table", Task::Table, 2.0)
    };
    // No table that ranks share bounds what the owners of words can do: they need no atomic operations, and have
    // their own tables in large pages.
    vec![
        case("short").bar(Bar::RatioAtLeast(0.65)),
        case("medium")
            .beside("own tables, 128 ahead", Task::OwnTable { ahead: 128 }, 2.0)
            .bar(Bar::RatioAtLeast(0.9)),
        example("random access medium, again", "medium", 2, mode).beside(
            "own tables, 256 ahead",
            Task::OwnTable { ahead: 256 },
            2.0,
        ),
        example("random access aggregated", "aggregated", 2, mode)
            .against("random access medium")
            .bar(Bar::RatioAtLeast(1.0)),
        case("atomic"),
        case("put-get"),
        case("direct"),
    ]
}

/// Eight ranks on however few CPUs there are.
pub(crate) fn eight(mode: Mode) -> Vec<Case> {
    vec![
        example("random access medium, 8 ranks", "medium", 8, mode)
            .against("random access medium")
            .bar(Bar::RatioAtLeast(0.9)),
        Case::new("short round trip, 2 of 8 busy ranks", Unit::Microseconds, AmTask::PairTrip, 1.0)
            .bar(Bar::ValueAtMost(6.5)),
        // An iteration is a millisecond.
        Case::new("idle rank", Unit::CpuPercent, Work::PeerTask(Task::Am(AmTask::Idle)), 0.001)
            .sampled(3, 1000)
            .bar(Bar::ValueAtMost(0.1)),
    ]
}

/// Two ranks among 62 that are silent.
pub(crate) fn sixty_four() -> Vec<Case> {
    vec![
        Case::new("empty poll, 64 ranks", Unit::Nanoseconds, AmTask::EmptyPoll, 1.0).bar(Bar::ValueAtMost(60.0)),
        Case::new("short round trip, 2 of 64 ranks", Unit::Microseconds, AmTask::EmptyTrip, 1.0).beside(
            LINE,
            RawTask::Line { pause: false },
            1.0,
        ),
    ]
}

/// Two ranks confined to one CPU.
pub(crate) fn one_cpu() -> Vec<Case> {
    vec![
        Case::new("short round trip, one CPU", Unit::Microseconds, AmTask::EmptyTrip, 1.0)
            .bar(Bar::ValueAtMost(20.0)),
    ]
}

/// Words of all ranks together in a run of the example, as a binary logarithm: of the table of two ranks of
/// [`TABLE_WORDS`], however many ranks share it. In test mode a run is one on a small table.
fn log2_table(mode: Mode) -> u32 {
    if mode == Mode::Test { 12 } else { (2 * TABLE_WORDS).ilog2() }
}

/// A whole run of the example, and the updates that it makes.
pub(crate) fn example_run(variant: &str, ranks: u64, mode: Mode) -> (Work, u64) {
    let log2_table = log2_table(mode);
    // Whether the updates are right is for the tests; in test mode this is one. On a small table the racing
    // variant loses more than the rules of the benchmark allow.
    let verify = mode == Mode::Test && variant != "put-get";
    let arguments =
        format!("--ranks={ranks} --log2-table={log2_table} --variant={variant} --verify={verify} --json");
    (Work::Example(arguments.split(' ').map(String::from).collect()), 4 << log2_table)
}

fn example(name: &str, variant: &str, ranks: u64, mode: Mode) -> Case {
    let (work, updates) = example_run(variant, ranks, mode);
    Case::new(name, Unit::Gups, work, updates as f64).sampled(7, 1)
}

fn bandwidth(name: String, task: AmTask, bytes: usize) -> Case {
    Case::new(name, Unit::GigabytesPerSecond, task, bytes as f64)
}

fn one_sided(name: String, task: AmTask, bytes: usize) -> Case {
    let unit = if bytes == 8 { Unit::Nanoseconds } else { Unit::GigabytesPerSecond };
    Case::new(name, unit, task, amount(bytes))
}

/// What an operation of `bytes` counts for: a word is an operation, anything larger its bytes.
fn amount(bytes: usize) -> f64 {
    if bytes == 8 { 1.0 } else { bytes as f64 }
}

/// A size as it stands in a figure's name.
fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}
