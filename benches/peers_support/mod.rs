//! The comparison with other libraries: their programs and ours take turns in one run, a probe of the placement
//! before and after each.

mod library;

use std::collections::BTreeMap;

use lab::bench::chart::{Chart, Column, Kind, Panel};
use lab::bench::command::{CommandLine, Mode};
use lab::bench::load::Load;
use lab::bench::publish::publish;
use lab::bench::summary::{Baseline, Figure, Summary, Unit, median_and_spread};

use crate::shm_support::am::AmTask;
use crate::shm_support::case::Work;
use crate::shm_support::cases;
use crate::shm_support::crew::{Crew, serve_as_peer};
use crate::shm_support::p2p::{P2pTask, Way};
use crate::shm_support::pgas::PgasTask;
use crate::shm_support::placement::Probe;
use crate::shm_support::raw::{Places, RawTask};
use crate::shm_support::world::{Task, WorldPlan};
use library::Library;

/// Times that everyone has a turn.
const ROUNDS: usize = 5;

/// A thing of ours, or without a library, that stands for a row.
struct Entry {
    name: &'static str,
    work: Work,
    /// Iterations of a turn.
    iterations: u64,
    /// Messages, bytes or operations of an iteration.
    amount: f64,
}

/// What is compared.
struct Row {
    /// As the other programs print it.
    name: &'static str,
    title: &'static str,
    unit: Unit,
    ranks: u32,
    /// The limit of the machine, if the bench has a program for it.
    raw: Option<Entry>,
    ours: Vec<Entry>,
}

/// What the others' programs put and get.
const WORDS: Places = Places { step: 8, span: 8 << 10 };
const BLOCK: Places = Places { step: 1 << 20, span: 1 << 20 };

const ACTIVE: &str = "this project, active messages";
const TWO_SIDED: &str = "this project, two-sided";
const ONE_SIDED: &str = "this project";

fn entry(name: &'static str, work: impl Into<Work>, iterations: u64, amount: f64) -> Entry {
    Entry { name, work: work.into(), iterations, amount }
}

fn raw(name: &'static str, task: impl Into<Work>, iterations: u64, amount: f64) -> Option<Entry> {
    Some(entry(name, task, iterations, amount))
}

fn rows(mode: Mode) -> Vec<Row> {
    let (am, pgas, p2p) = (Task::Am, Task::Pgas, Task::P2p);
    let row = |name, title, unit, raw, ours| Row { name, title, unit, ranks: 2, raw, ours };
    let line = || raw("payload ping-pong", RawTask::Line { pause: false }, 200_000, 1.0);
    let copy = |bytes: usize, count| {
        let task = RawTask::Copy { bytes, span: bytes, out: false };
        raw("memcpy, once", task, count, bytes as f64)
    };
    let stream = |name, title, bytes: usize, window, count| {
        let ours = vec![
            // To one place and in windows, as those of the others.
            entry("this project, Long", am(AmTask::LongWindows { bytes, window }), count, bytes as f64),
            entry(TWO_SIDED, p2p(P2pTask::Flood { bytes }), count, bytes as f64),
        ];
        row(name, title, Unit::GigabytesPerSecond, copy(bytes, count), ours)
    };
    let collective = |name, title, task, ranks, count| Row {
        name,
        title,
        unit: Unit::Microseconds,
        ranks,
        raw: (ranks == 2).then(|| line().expect("a ping-pong")),
        ours: vec![entry(ONE_SIDED, pgas(task), count, 1.0)],
    };
    let random_access = |name, title, variant, raw| {
        let (run, updates) = cases::example_run(variant, 2, mode);
        row(name, title, Unit::Gups, raw, vec![entry(ONE_SIDED, run, 1, updates as f64)])
    };
    vec![
        random_access(
            "updates",
            "RandomAccess, a message for each update, GUPS (more is better)",
            "short",
            raw("direct table", Task::Table, 20_000_000, 2.0),
        ),
        random_access(
            "updates-buckets",
            "RandomAccess, updates in buckets, GUPS (more is better)",
            "medium",
            raw("own tables, 128 ahead", Task::OwnTable { ahead: 128 }, 60_000_000, 2.0),
        ),
        row(
            "round-trip",
            "8 bytes there and back, us (less is better)",
            Unit::Microseconds,
            line(),
            vec![
                entry(ACTIVE, am(AmTask::WordTrip), 200_000, 1.0),
                entry(TWO_SIDED, p2p(P2pTask::PingPong { bytes: 8, way: Way::Elided }), 200_000, 1.0),
            ],
        ),
        row(
            "rate",
            "messages of 8 bytes one way, million/s (more is better)",
            Unit::MillionPerSecond,
            None,
            vec![
                entry(ACTIVE, am(AmTask::ShortWindows { window: 64 }), 4_000_000, 1.0),
                entry(TWO_SIDED, p2p(P2pTask::Flood { bytes: 8 }), 1_000_000, 1.0),
            ],
        ),
        stream("stream-64k", "stream of 64 KiB, GB/s (more is better)", 64 << 10, 16, 16_000),
        stream("stream-1m", "stream of 1 MiB, GB/s (more is better)", 1 << 20, 4, 1_200),
        row(
            "put",
            "put of 8 bytes, done at the target, ns (less is better)",
            Unit::Nanoseconds,
            raw("store", RawTask::Store(WORDS), 2_000_000, 1.0),
            vec![entry(ONE_SIDED, pgas(PgasTask::Put(WORDS)), 2_000_000, 1.0)],
        ),
        row(
            "get",
            "get of 8 bytes, ns (less is better)",
            Unit::Nanoseconds,
            raw("load", RawTask::Load(WORDS), 2_000_000, 1.0),
            vec![entry(ONE_SIDED, pgas(PgasTask::Get(WORDS)), 2_000_000, 1.0)],
        ),
        row(
            "put-1m",
            "put of 1 MiB, GB/s (more is better)",
            Unit::GigabytesPerSecond,
            raw("memcpy", RawTask::Put { bytes: 1 << 20 }, 2_000, (1 << 20) as f64),
            vec![entry(ONE_SIDED, pgas(PgasTask::PutBlock(BLOCK)), 2_000, (1 << 20) as f64)],
        ),
        collective("barrier", "barrier of 2 ranks, us (less is better)", PgasTask::Barrier, 2, 200_000),
        collective(
            "allreduce",
            "sum of one number of 2 ranks, us (less is better)",
            PgasTask::Allreduce,
            2,
            200_000,
        ),
        collective(
            "broadcast",
            "8 bytes of one rank after the other for 2 ranks, us (less is better)",
            PgasTask::BroadcastSmall,
            2,
            200_000,
        ),
        collective("barrier-4", "barrier of 4 ranks, us (less is better)", PgasTask::Barrier, 4, 10_000),
        collective(
            "allreduce-4",
            "sum of one number of 4 ranks, us (less is better)",
            PgasTask::Allreduce,
            4,
            10_000,
        ),
        collective(
            "broadcast-4",
            "8 bytes of one rank after the other for 4 ranks, us (less is better)",
            PgasTask::BroadcastSmall,
            4,
            10_000,
        ),
    ]
}

/// The samples of one contender in one row, with the probes beside them.
#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    before: Vec<f64>,
    after: Vec<f64>,
    others: f64,
}

/// All samples, by row and contender, in the order in which contenders first came.
#[derive(Default)]
struct Results {
    samples: BTreeMap<(String, String), Samples>,
    order: Vec<(String, String)>,
}

impl Results {
    /// `probes` are those before and after the sample, in microseconds.
    fn add(&mut self, row: &str, contender: &str, value: f64, probes: [f64; 2], others: f64) {
        let key = (row.to_string(), contender.to_string());
        if !self.samples.contains_key(&key) {
            self.order.push(key.clone());
        }
        let samples = self.samples.entry(key).or_default();
        samples.values.push(value);
        samples.before.push(probes[0]);
        samples.after.push(probes[1]);
        samples.others = samples.others.max(others);
    }
}

/// Runs the bench, or serves as one of its ranks.
pub(crate) fn run() {
    if serve_as_peer() {
        return;
    }
    let command = CommandLine::of_process();
    let mode = command.mode;
    if mode == Mode::CriterionOnly {
        println!("this bench is no criterion bench: it has neither a list nor profiles");
        return;
    }
    let scratch = env!("CARGO_TARGET_TMPDIR").as_ref();
    // What others' programs do is not this project's test.
    let libraries = if mode == Mode::Test { Vec::new() } else { library::installed(scratch) };
    let rounds = if mode == Mode::Test { 1 } else { ROUNDS };
    let rows: Vec<Row> = rows(mode).into_iter().filter(|row| command.selects("peers", row.name)).collect();
    let mut results = Results::default();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        for ranks in [2, 4] {
            let words = if ranks == 2 && mode != Mode::Test { cases::TABLE_WORDS } else { 1 << 12 };
            let mut plan = WorldPlan::new(ranks as usize).with_table(words).with_pgas();
            if ranks == 2 {
                plan = plan.with_p2p();
            }
            let rows: Vec<&Row> = rows.iter().filter(|row| row.ranks == ranks).collect();
            if rows.is_empty() {
                continue;
            }
            let mut crew = Crew::start(plan);
            for row in &rows {
                ours(&mut crew, row, mode, &mut results);
            }
            // Waiting ranks cost no processor time meanwhile.
            for library in &libraries {
                others(&mut crew, library, &rows, mode, &mut results);
            }
        }
    }
    let summary = summary(&rows, &results);
    if mode != Mode::Test {
        publish(&summary, mode, scratch, |_| chart(&rows, &results));
    }
}

fn ours(crew: &mut Crew, row: &Row, mode: Mode, results: &mut Results) {
    for entry in row.raw.iter().chain(&row.ours) {
        let iterations = if mode == Mode::Test { 1 } else { entry.iterations };
        let before = Probe::take_settled(crew, mode);
        let load = Load::now(&crew.processes());
        if mode != Mode::Test {
            entry.work.run(crew, iterations / 10);
        }
        let elapsed = entry.work.run(crew, iterations).as_secs_f64();
        let busy = load.others_until(&Load::now(&crew.processes()));
        let value = row.unit.value(elapsed, iterations as f64 * entry.amount);
        let probes = [before, Probe::take(crew, mode)].map(|probe| probe.microseconds);
        results.add(row.name, entry.name, value, probes, busy);
    }
}

fn others(crew: &mut Crew, library: &Library, rows: &[&Row], mode: Mode, results: &mut Results) {
    let before = Probe::take_settled(crew, mode);
    match library.rows(rows[0].ranks, 1) {
        Ok(found) => {
            // The ranks have slept meanwhile.
            let probes = [before, Probe::take_settled(crew, mode)].map(|probe| probe.microseconds);
            for (name, value) in found {
                if rows.iter().any(|row| row.name == name) {
                    results.add(&name, &library.name, value, probes, 0.0);
                }
            }
        }
        Err(why) => println!("{why}"),
    }
}

/// The raw limit of a row and the medians of its contenders, best first.
fn ranking<'r>(row: &Row, results: &'r Results) -> Vec<(&'r str, f64, &'r Samples)> {
    let mut found: Vec<_> = results
        .order
        .iter()
        .filter(|(name, _)| name == row.name)
        .map(|key| (key.1.as_str(), median_and_spread(&results.samples[key].values).0, &results.samples[key]))
        .collect();
    let more_is_better = matches!(row.unit, Unit::MillionPerSecond | Unit::GigabytesPerSecond | Unit::Gups);
    found.sort_by(|a, b| if more_is_better { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) });
    found
}

fn is_ours(row: &Row, name: &str) -> bool {
    row.ours.iter().any(|entry| entry.name == name)
}

fn is_raw(row: &Row, name: &str) -> bool {
    row.raw.as_ref().is_some_and(|entry| entry.name == name)
}

fn summary(rows: &[Row], results: &Results) -> Summary {
    let mut summary = Summary::new("peers");
    for row in rows {
        let ranking = ranking(row, results);
        let best = ranking.iter().find(|(name, ..)| !is_ours(row, name) && !is_raw(row, name));
        for (name, value, samples) in &ranking {
            let probes = [&samples.before, &samples.after];
            let (_, probe_spread) = median_and_spread(&[samples.before.clone(), samples.after.clone()].concat());
            let baseline = best.filter(|_| is_ours(row, name));
            summary.push(Figure {
                name: format!("{}: {name}", row.name),
                value: *value,
                unit: row.unit,
                spread: median_and_spread(&samples.values).1,
                baseline: baseline.map(|(name, value, _)| Baseline { name: (*name).into(), value: *value }),
                bar: None,
                placement: format!("{} ranks, median of {} turns", row.ranks, samples.values.len()),
                probes: probes.map(|probes| median_and_spread(probes).0),
                attempts: 1,
                steady: probe_spread < 0.3,
                others: samples.others,
            });
        }
    }
    summary
}

fn chart(rows: &[Row], results: &Results) -> Chart {
    let panels = rows.iter().map(|row| {
        let columns = ranking(row, results).into_iter().map(|(name, value, _)| {
            let kind = match name {
                name if is_ours(row, name) => Kind::Ours,
                name if is_raw(row, name) => Kind::Baseline,
                _ => Kind::Reference,
            };
            Column { label: name.into(), value, kind }
        });
        Panel { title: row.title.into(), columns: columns.collect() }
    });
    Chart {
        title: "Shared memory between processes of one host, beside the other libraries of the machine".into(),
        subtitle: "One interleaved run, medians of five turns; bars beyond four times the median are cut. Regenerate with: cargo bench --bench peers".into(),
        legend: ["this project".into(), "without a library".into(), "other libraries".into()],
        panels: panels.collect(),
    }
}
