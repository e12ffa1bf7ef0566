//! The figures of the bench, crew by crew: what each measures, the baseline beside it, and the bar it should
//! reach.

use super::am::{Crew, LONG, Plan};
use super::measure::{Bench, Case};
use super::{random_access, raw};
use lab::bench::summary::{Bar, Unit};
use std::cell::RefCell;
use std::time::Duration;
use transport_udp::WaitMode;
use transport_udp::proto::Protection;

const MEBIBYTE: f64 = (1 << 20) as f64;

type Raw = (&'static str, f64, fn(u64) -> Duration);

const BUSY: Raw = ("raw ping-pong, busy", 1.0, |n| raw::ping_pong(false, n));
const BLOCKING: Raw = ("raw ping-pong, blocking", 1.0, |n| raw::ping_pong(true, n));
const PACKETS: Raw = ("raw packets", 1.0, raw::packets);
const STREAM: Raw = ("raw GSO stream", MEBIBYTE, raw::stream);

/// Measures every figure.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    for (unit, (name, amount, run)) in [
        (Unit::Microseconds, BUSY),
        (Unit::Microseconds, BLOCKING),
        (Unit::MillionPerSecond, PACKETS),
        (Unit::GigabytesPerSecond, STREAM),
    ] {
        bench.measure(Case { name, unit, amount, bar: None, work: &mut |n| run(n), baseline: None });
    }
    for protection in [Protection::Encrypted, Protection::PlainText, Protection::Unauthenticated] {
        polled(bench, protection);
        adaptive(bench, protection);
        updates(bench, protection);
    }
    waiting(bench);
    lossy(bench);
}

/// Shorts of one iteration, and Mediums of 8 KB. A sample is at least one iteration. The
/// last acknowledgement takes half a millisecond, which a short sample would measure instead of the stream.
const SHORTS: u64 = 1 << 15;
const MEDIUMS: u64 = 1 << 9;

type Task = fn(&mut Crew, u64) -> Duration;

struct Row(&'static str, Unit, f64, Option<Bar>, Task, Option<Raw>);

/// Measures rows with one crew, which is started only if one of them is wanted.
fn rows(bench: &mut Bench<'_>, plan: Plan, rows: &[Row]) {
    let names: Vec<&str> = rows.iter().map(|row| row.0).collect();
    if !bench.wants(&names) {
        return;
    }
    let mut crew = Crew::start(plan);
    for Row(name, unit, amount, bar, task, baseline) in rows {
        let (name, unit, amount, bar, baseline) = (*name, *unit, *amount, *bar, *baseline);
        bench.measure(Case { name, unit, amount, bar, work: &mut |n| task(&mut crew, n), baseline });
    }
}

/// Round trips of ranks that never sleep.
fn polled(bench: &mut Bench<'_>, protection: Protection) {
    let (short, medium, bar) = match protection {
        Protection::Encrypted => ("short trip, encrypted", "medium 1 KB trip, encrypted", Some(1.1)),
        Protection::PlainText => ("short trip, plain text", "medium 1 KB trip, plain text", None),
        Protection::Unauthenticated => {
            ("short trip, unauthenticated", "medium 1 KB trip, unauthenticated", Some(1.05))
        }
    };
    let plan = Plan::new(protection, WaitMode::Polled);
    let bar = bar.map(Bar::RatioAtMost);
    let us = Unit::Microseconds;
    rows(
        bench,
        plan,
        &[
            Row(short, us, 1.0, bar, Crew::short_trips, Some(BUSY)),
            Row(medium, us, 1.0, None, Crew::medium_trips, Some(BUSY)),
        ],
    );
}

/// Streams and RandomAccess with ranks that wait as programs do unless told otherwise.
fn adaptive(bench: &mut Bench<'_>, protection: Protection) {
    let plan = Plan::new(protection, WaitMode::Adaptive);
    let flood: Task = |crew, n| crew.short_flood(n * SHORTS);
    let medium: Task = |crew, n| crew.medium_flood(n * MEDIUMS);
    let long = Crew::long_flood as Task;
    let (rate, bytes) = (Unit::MillionPerSecond, Unit::GigabytesPerSecond);
    let shorts = SHORTS as f64;
    let kb8 = (MEDIUMS * (8 << 10)) as f64;
    let long_bytes = LONG as f64;
    let (packets, stream) = (Some(PACKETS), Some(STREAM));
    let ratio = |value| Some(Bar::RatioAtLeast(value));
    match protection {
        Protection::Encrypted => rows(
            bench,
            plan,
            &[
                Row("short flood, encrypted", rate, shorts, Some(Bar::ValueAtLeast(6.0)), flood, packets),
                Row("medium 8 KB flood, encrypted", bytes, kb8, None, medium, stream),
                Row("long 1 MiB flood, encrypted", bytes, long_bytes, ratio(0.55), long, stream),
            ],
        ),
        Protection::PlainText => rows(
            bench,
            plan,
            &[
                Row("short flood, plain text", rate, shorts, None, flood, packets),
                Row("long 1 MiB flood, plain text", bytes, long_bytes, None, long, stream),
            ],
        ),
        Protection::Unauthenticated => rows(
            bench,
            plan,
            &[
                Row("short flood, unauthenticated", rate, shorts, ratio(40.0), flood, packets),
                Row("medium 8 KB flood, unauthenticated", bytes, kb8, None, medium, stream),
                Row("long 1 MiB flood, unauthenticated", bytes, long_bytes, ratio(0.85), long, stream),
            ],
        ),
    }
}

/// RandomAccess, on a table of two ranks of 2^22 words; with a Short for each update an eighth of a run.
fn updates(bench: &mut Bench<'_>, protection: Protection) {
    let [short, medium] = match protection {
        Protection::Encrypted => ["random access short, encrypted", "random access medium, encrypted"],
        Protection::Unauthenticated => {
            ["random access short, unauthenticated", "random access medium, unauthenticated"]
        }
        Protection::PlainText => return,
    };
    let (log2_table, plan) = (if bench.is_test() { 12 } else { 23 }, Plan::new(protection, WaitMode::Adaptive));
    for (name, variant, share, bar) in [(short, "short", 3, 0.01), (medium, "medium", 0, 0.1)] {
        let made = 4_u64 << (log2_table - share);
        let arguments = format!("--log2-table={log2_table} --variant={variant} --updates={made}");
        bench.measure(Case {
            name,
            unit: Unit::Gups,
            amount: made as f64,
            bar: Some(Bar::ValueAtLeast(bar)),
            work: &mut |n| (0..n).map(|_| random_access::run(plan, &arguments)).sum(),
            baseline: None,
        });
    }
}

thread_local! {
    /// The crew of [`lossless`], while it is needed.
    static LOSSLESS: RefCell<Option<Crew>> = const { RefCell::new(None) };
}

/// The stream of Longs of ranks that lose nothing.
fn lossless(iterations: u64) -> Duration {
    let plan = Plan::new(Protection::Encrypted, WaitMode::Adaptive);
    LOSSLESS.with_borrow_mut(|crew| crew.get_or_insert_with(|| Crew::start(plan)).long_flood(iterations))
}

/// What is left of a stream of Longs when datagrams are lost.
fn lossy(bench: &mut Bench<'_>) {
    let bytes = Unit::GigabytesPerSecond;
    let nothing_lost: Raw = ("the same, none lost", LONG as f64, lossless);
    for (name, loss, bar) in [
        ("long 1 MiB, 1 % lost", 10, Some(Bar::RatioAtLeast(0.8))),
        ("long 1 MiB, 10 % lost", 100, None),
        ("long 1 MiB, 30 % lost", 300, None),
    ] {
        let plan = Plan { loss, ..Plan::new(Protection::Encrypted, WaitMode::Adaptive) };
        rows(bench, plan, &[Row(name, bytes, LONG as f64, bar, Crew::long_flood, Some(nothing_lost))]);
    }
    LOSSLESS.take();
}

/// What waiting costs: ranks that sleep at once, ranks that do nothing, and what helpers cost ranks that never
/// wait.
fn waiting(bench: &mut Bench<'_>) {
    let protection = Protection::Encrypted;
    let us = Unit::Microseconds;
    let bar = Some(Bar::RatioAtMost(1.3));
    let plan = Plan::new(protection, WaitMode::Blocking);
    rows(bench, plan, &[Row("short trip, blocking", us, 1.0, bar, Crew::short_trips, Some(BLOCKING))]);
    let plan = Plan::new(protection, WaitMode::Adaptive);
    let alone = Plan { helper: false, ..Plan::new(protection, WaitMode::Polled) };
    // Without a baseline: rank 1 polls beside it. To be compared with the encrypted trip.
    rows(bench, alone, &[Row("short trip, no helpers", us, 1.0, None, Crew::short_trips, None)]);
    // An iteration is a quarter of a second of two ranks.
    let bar = Some(Bar::ValueAtMost(0.1));
    rows(bench, plan, &[Row("idle rank", Unit::CpuPercent, 0.5, bar, Crew::idle, None)]);
}
