//! The figures of the calls bench, and their picture.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::{Bar, Summary, Unit};

use super::am::AmTask;
use super::calls::CallTask;
use super::case::Case;
use super::raw::RawTask;

const MIB: usize = 1 << 20;

/// Two ranks.
pub(crate) fn pair() -> Vec<Case> {
    let trip = |name: &str, task: CallTask| {
        Case::new(name, Unit::Microseconds, task, 1.0).beside("short round trip", AmTask::EmptyTrip, 1.0)
    };
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
