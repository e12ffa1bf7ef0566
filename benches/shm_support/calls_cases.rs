//! The figures of the calls bench, and their picture.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::{Bar, Summary, Unit};

use super::am::AmTask;
use super::bells::BellTask;
use super::calls::CallTask;
use super::case::{Case, Work};
use super::far_calls::FarCallTask;
use super::placed::Places;
use super::raw::RawTask;
#[cfg(feature = "tarpc")]
use super::tarpc_calls::TarpcTask;
use super::tokio_calls::TokioTask;

const MIB: usize = 1 << 20;

/// Two ranks.
pub(crate) fn pair() -> Vec<Case> {
    let trip = |name: &str, task: CallTask| {
        Case::new(name, Unit::Microseconds, task, 1.0).beside("short round trip", AmTask::EmptyTrip, 1.0)
    };
    fn asleep(name: &str, calls: TokioTask, beside: &'static str, task: impl Into<Work>) -> Case {
        let calls = Case::new(name, Unit::Microseconds, calls, 1.0);
        calls.beside(beside, task, 1.0).sampled(10, 200).asleep().bar(Bar::RatioAtMost(1.5))
    }
    fn placed(how: &str, places: Places, beside: &'static str, task: impl Into<Work>) -> Case {
        asleep(&format!("tokio, both asleep, {how}"), TokioTask::Parked, beside, task).placed(places)
    }
    let (reads, futexes) = ("eventfds read, both asleep", "futexes, both asleep");
    vec![
        Case::new("short round trip", Unit::Microseconds, AmTask::EmptyTrip, 1.0).beside(
            "payload ping-pong",
            RawTask::Line { pause: false },
            1.0,
        ),
        trip("empty call", CallTask::Empty).bar(Bar::RatioAtMost(1.5)),
        trip("empty call, awaited", CallTask::EmptyAwaited).bar(Bar::RatioAtMost(1.5)),
        trip("call with a structure", CallTask::Structure).bar(Bar::RatioAtMost(2.5)),
        Case::new("empty calls, pipelined", Unit::MillionPerSecond, CallTask::Pipelined, 1.0)
            .beside("short flood", AmTask::ShortFlood, 1.0)
            .bar(Bar::ValueAtLeast(5.0)),
        Case::new("1 MiB request", Unit::GigabytesPerSecond, CallTask::Bulk { bytes: MIB }, MIB as f64).beside(
            "1 MiB long",
            AmTask::LongTrip { bytes: MIB },
            MIB as f64,
        ),
        Case::new("1 MiB text", Unit::GigabytesPerSecond, CallTask::Text { bytes: MIB }, MIB as f64),
        Case::new("1 MiB answer", Unit::GigabytesPerSecond, CallTask::BulkBack { bytes: MIB }, MIB as f64),
        Case::new("answers of a stream", Unit::MillionPerSecond, CallTask::Stream, 1.0),
        // Samples of a fixed length: most of their time passes between the round trips.
        asleep("tokio, both asleep", TokioTask::Parked, "eventfds on tokio, both asleep", BellTask::Tokio),
        asleep("tokio, both asleep, beside reads", TokioTask::Parked, reads, BellTask::Blocking),
        asleep("tokio, both asleep, beside futexes", TokioTask::Parked, futexes, RawTask::Asleep),
        placed("apart, beside reads", Places::Apart, reads, BellTask::Blocking),
        placed("apart, beside futexes", Places::Apart, futexes, RawTask::Asleep),
        placed("together, beside reads", Places::Together, reads, BellTask::Blocking),
        placed("together, beside futexes", Places::Together, futexes, RawTask::Asleep),
        asleep("tokio, drivers apart, both asleep", TokioTask::ParkedApart, reads, BellTask::Blocking),
        asleep(
            "tokio, drivers apart, both asleep, beside futexes",
            TokioTask::ParkedApart,
            futexes,
            RawTask::Asleep,
        ),
        Case::new("tokio, 256 tasks", Unit::MillionPerSecond, TokioTask::Busy, 1.0).bar(Bar::ValueAtLeast(1.0)),
    ]
}

/// Two ranks on tokio beside `tarpc`.
#[cfg(feature = "tarpc")]
pub(crate) fn beside_tarpc() -> Vec<Case> {
    vec![
        Case::new("tokio, one after the other", Unit::Microseconds, TokioTask::Awaited, 1.0).beside(
            "tarpc, one after the other",
            TarpcTask::Awaited,
            1.0,
        ),
        Case::new("tokio, 256 tasks, beside tarpc", Unit::MillionPerSecond, TokioTask::Busy, 1.0)
            .beside("tarpc, 256 tasks", TarpcTask::Busy, 1.0)
            .bar(Bar::RatioAtLeast(5.0)),
    ]
}

/// The comparison needs the feature `tarpc`.
#[cfg(not(feature = "tarpc"))]
pub(crate) fn beside_tarpc() -> Vec<Case> {
    println!("skipped: tokio beside tarpc: built without the feature tarpc");
    vec![Case::new("tokio, one after the other", Unit::Microseconds, TokioTask::Awaited, 1.0)]
}

/// Ranks over UDP, as threads of one process.
pub(crate) fn far() -> Vec<Case> {
    let trip = |name, task| {
        Case::new(name, Unit::Microseconds, task, 1.0)
            .beside("short round trip, UDP", FarCallTask::Trip, 1.0)
            .bar(Bar::RatioAtMost(1.15))
    };
    vec![
        trip("empty call, UDP", FarCallTask::Empty),
        trip("empty call, awaited, UDP", FarCallTask::EmptyAwaited),
        Case::new("1 MiB request, UDP", Unit::Microseconds, FarCallTask::Bulk, 1.0)
            .beside("1 MiB long, UDP", FarCallTask::LongTrip, 1.0)
            .bar(Bar::RatioAtMost(1.2)),
    ]
}

const PANELS: &[(&str, &[Row])] = &[
    (
        "Calls and their answers, us (less is better)",
        &[
            Ours("empty call", "empty"),
            Ours("empty call, awaited", "empty, awaited"),
            Ours("call with a structure", "structure"),
        ],
    ),
    ("Calls, million a second (more is better)", &[Ours("empty calls, pipelined", "pipelined")]),
    ("Requests, GB/s (more is better)", &[Ours("1 MiB request", "1 MiB")]),
    ("On tokio, both asleep before, us (less is better)", &[Ours("tokio, both asleep", "empty")]),
    ("On tokio, one after the other, us (less is better)", &[Ours("tokio, one after the other", "empty")]),
    (
        "256 tasks of tokio, million a second (more is better)",
        &[Ours("tokio, 256 tasks", "empty"), Ours("tokio, 256 tasks, beside tarpc", "empty")],
    ),
    (
        "Over UDP, us (less is better)",
        &[Ours("empty call, UDP", "empty"), Ours("empty call, awaited, UDP", "empty, awaited")],
    ),
    ("1 MiB requests over UDP, us (less is better)", &[Ours("1 MiB request, UDP", "1 MiB")]),
];

/// The picture of `summary`; panels whose figures it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let placement = summary.figures().first().map_or("", |figure| figure.placement.as_str());
    Chart {
        title: "Typed calls over shared memory".into(),
        subtitle: format!("Regenerate with: cargo bench --bench calls. One run, {placement}."),
        legend: ["this project".into(), "raw baseline of the same run".into(), String::new()],
        panels: panels(summary, PANELS),
    }
}
