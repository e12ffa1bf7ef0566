//! The figures of the p2p bench, and their picture.

use lab::bench::chart::Chart;
use lab::bench::rows::Row::{self, Ours};
use lab::bench::rows::panels;
use lab::bench::summary::{Bar, Summary, Unit};

use super::am::AmTask;
use super::case::Case;
#[cfg(feature = "p2p-udp")]
use super::far_p2p::FarP2pTask;
use super::p2p::{Operation, P2pTask, Placed, Way};
use super::pass::Pass;
use super::raw::RawTask;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Two ranks.
pub(crate) fn pair() -> Vec<Case> {
    let trip = |name: &str, bytes, way| Case::new(name, Unit::Microseconds, P2pTask::PingPong { bytes, way }, 1.0);
    let short = |case: Case| case.beside("short round trip", AmTask::EmptyTrip, 1.0);
    // There and back, so that each direction moves the bytes once.
    let bulk = |name: &str, bytes: usize, way| {
        let copy = RawTask::Put { bytes };
        let moved =
            Case::new(name, Unit::GigabytesPerSecond, P2pTask::PingPong { bytes, way }, 2.0 * bytes as f64);
        moved.beside("memcpy", copy, bytes as f64)
    };
    // The same bytes there and back, so that each side reads what the other has just written.
    let fresh = |name: &str, bytes: usize| {
        let (task, moved) = (P2pTask::Echo { bytes }, 2.0 * bytes as f64);
        let copy = RawTask::Echo { bytes };
        Case::new(name, Unit::GigabytesPerSecond, task, moved).beside("memcpy, there and back", copy, moved)
    };
    // In memory of segments, which each can see of the other.
    let placed = |name: &str, bytes: usize, memory| {
        let (task, moved) = (P2pTask::Placed { bytes, memory, echo: false }, 2.0 * bytes as f64);
        let case = Case::new(name, Unit::GigabytesPerSecond, task, moved);
        case.beside("memcpy", RawTask::Put { bytes }, bytes as f64).bar(Bar::RatioAtLeast(0.85))
    };
    let placed_fresh = |name: &str, bytes: usize| {
        let (task, moved) = (P2pTask::Placed { bytes, memory: Placed::Both, echo: true }, 2.0 * bytes as f64);
        let copy = RawTask::Echo { bytes };
        Case::new(name, Unit::GigabytesPerSecond, task, moved).beside("memcpy, there and back", copy, moved)
    };
    // What two processes make of it without a library.
    let by_hand = |name: &str, bytes: usize, pass| {
        let (task, moved) = (RawTask::Pass { bytes, pass }, 2.0 * bytes as f64);
        let case = Case::new(name, Unit::GigabytesPerSecond, task, moved);
        case.beside("memcpy", RawTask::Put { bytes }, bytes as f64)
    };
    let posted = |name: &str, receives| {
        let alone = P2pTask::PingPong { bytes: 8, way: Way::Elided };
        Case::new(name, Unit::Microseconds, P2pTask::Posted { receives }, 1.0).beside("none posted", alone, 1.0)
    };
    let collective = |name: &str, unit, work, operation| {
        let task = |two_sided| P2pTask::Collective { operation, two_sided };
        Case::new(name, unit, task(true), work).beside("the team's own", task(false), work)
    };
    vec![
        Case::new("short round trip", Unit::Microseconds, AmTask::EmptyTrip, 1.0).beside(
            "payload ping-pong",
            RawTask::Line { pause: false },
            1.0,
        ),
        short(trip("8 B ping-pong", 8, Way::Elided)).bar(Bar::RatioAtMost(1.35)),
        short(trip("1 KB ping-pong", KIB, Way::Elided)),
        short(trip("8 KB ping-pong", 8 * KIB, Way::Elided)),
        Case::new("8 B ping-pong, a communicator each way", Unit::Microseconds, P2pTask::Apart { bytes: 8 }, 1.0)
            .beside("in one", P2pTask::PingPong { bytes: 8, way: Way::Elided }, 1.0),
        Case::new("8 B message rate", Unit::MillionPerSecond, P2pTask::Flood { bytes: 8 }, 1.0)
            .beside("short flood", AmTask::ShortFlood, 1.0)
            .bar(Bar::ValueAtLeast(25.0)),
        bulk("64 KB ping-pong", 64 * KIB, Way::Elided).bar(Bar::RatioAtLeast(0.85)),
        bulk("1 MiB ping-pong", MIB, Way::Elided).bar(Bar::RatioAtLeast(0.85)),
        by_hand("64 KB by hand, mapped", 64 * KIB, Pass::Mapped),
        by_hand("64 KB by hand, by the system", 64 * KIB, Pass::System),
        by_hand("64 KB by hand, two copies", 64 * KIB, Pass::Twice),
        by_hand("1 MiB by hand, mapped", MIB, Pass::Mapped),
        by_hand("1 MiB by hand, by the system", MIB, Pass::System),
        by_hand("1 MiB by hand, two copies", MIB, Pass::Twice),
        placed("64 KB ping-pong, from segments", 64 * KIB, Placed::Out),
        placed("1 MiB ping-pong, from segments", MIB, Placed::Out),
        placed("64 KB ping-pong, into segments", 64 * KIB, Placed::Into),
        placed("1 MiB ping-pong, into segments", MIB, Placed::Into),
        placed("64 KB ping-pong, between segments", 64 * KIB, Placed::Both),
        placed("1 MiB ping-pong, between segments", MIB, Placed::Both),
        fresh("64 KB ping-pong, fresh", 64 * KIB),
        fresh("1 MiB ping-pong, fresh", MIB),
        placed_fresh("64 KB ping-pong, fresh, between segments", 64 * KIB),
        placed_fresh("1 MiB ping-pong, fresh, between segments", MIB),
        bulk("1 MiB ping-pong, sender-initiated", MIB, Way::SenderInitiated),
        bulk("1 MiB ping-pong, receiver-initiated", MIB, Way::ReceiverInitiated),
        bulk("1 MiB ping-pong, eager-aware", MIB, Way::EagerAware),
        bulk("1 MiB ping-pong, read", MIB, Way::Read),
        Case::new("1 MiB bandwidth", Unit::GigabytesPerSecond, P2pTask::Flood { bytes: MIB }, MIB as f64).beside(
            "memcpy",
            RawTask::Put { bytes: MIB },
            MIB as f64,
        ),
        posted("8 B ping-pong, 1 receive posted", 1),
        posted("8 B ping-pong, 10000 receives posted", 10_000).bar(Bar::RatioAtMost(2.0)),
        collective("barrier of messages", Unit::Microseconds, 1.0, Operation::Barrier),
        collective("allreduce of messages", Unit::Microseconds, 1.0, Operation::Allreduce),
        collective(
            "broadcast of messages, 1 MiB",
            Unit::GigabytesPerSecond,
            MIB as f64,
            Operation::Broadcast { bytes: MIB },
        ),
    ]
}

/// Two ranks whose endpoints are of the type that programs get which choose between networks.
pub(crate) fn either() -> Vec<Case> {
    let trip = P2pTask::PingPong { bytes: 8, way: Way::Elided };
    vec![
        Case::new("8 B ping-pong, either network", Unit::Microseconds, trip, 1.0)
            .beside("short round trip", AmTask::EmptyTrip, 1.0)
            .bar(Bar::RatioAtMost(1.35)),
        Case::new("8 B message rate, either network", Unit::MillionPerSecond, P2pTask::Flood { bytes: 8 }, 1.0)
            .beside("short flood", AmTask::ShortFlood, 1.0)
            .bar(Bar::ValueAtLeast(25.0)),
    ]
}

/// Two ranks over UDP: none without the feature `p2p-udp`.
#[cfg(not(feature = "p2p-udp"))]
pub(crate) const fn far() -> Vec<Case> {
    Vec::new()
}

/// Two ranks over UDP.
#[cfg(feature = "p2p-udp")]
pub(crate) fn far() -> Vec<Case> {
    let messages = |name, bytes| Case::new(name, Unit::Microseconds, FarP2pTask::Messages { bytes }, 1.0);
    vec![
        messages("8 B ping-pong, UDP", 8)
            .beside("short round trip, UDP", FarP2pTask::Trip, 1.0)
            .bar(Bar::RatioAtMost(1.15)),
        messages("1 MiB there, 8 B back, UDP", MIB)
            .beside("1 MiB long, UDP", FarP2pTask::LongTrip, 1.0)
            .bar(Bar::RatioAtMost(1.1)),
        Case::new(
            "1 MiB there, into segments, 8 B back, UDP",
            Unit::Microseconds,
            FarP2pTask::Placed { bytes: MIB },
            1.0,
        )
        .beside("1 MiB long, UDP", FarP2pTask::LongTrip, 1.0)
        .bar(Bar::RatioAtMost(1.1)),
    ]
}

const PANELS: &[(&str, &[Row])] = &[
    (
        "Messages there and back, us (less is better)",
        &[
            Ours("8 B ping-pong", "8 B"),
            Ours("1 KB ping-pong", "1 KB"),
            Ours("8 KB ping-pong", "8 KB"),
            Ours("8 B ping-pong, 10000 receives posted", "8 B among 10000"),
        ],
    ),
    ("Messages one way, million a second (more is better)", &[Ours("8 B message rate", "8 B")]),
    (
        "There and back, GB/s (more is better)",
        &[
            Ours("64 KB ping-pong", "64 KB"),
            Ours("1 MiB ping-pong", "1 MiB"),
            Ours("1 MiB ping-pong, sender-initiated", "1 MiB, CTS"),
            Ours("1 MiB ping-pong, receiver-initiated", "1 MiB, RTR"),
            Ours("1 MiB ping-pong, eager-aware", "1 MiB, eager-aware"),
            Ours("1 MiB ping-pong, read", "1 MiB, read"),
        ],
    ),
];

/// The picture of `summary`; panels whose figures it lacks are left out.
pub(crate) fn chart(summary: &Summary) -> Chart {
    let placement = summary.figures().first().map_or("", |figure| figure.placement.as_str());
    Chart {
        title: "Two-sided messages over shared memory".into(),
        subtitle: format!("Regenerate with: cargo bench --bench p2p. One run, {placement}."),
        legend: ["this project".into(), "raw baseline of the same run".into(), String::new()],
        panels: panels(summary, PANELS),
    }
}
