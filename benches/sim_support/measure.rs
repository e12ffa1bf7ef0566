//! Measures figures in the time that they take on one core, with a baseline in the same run, and figures in
//! virtual time, which criterion gets as if they had taken that long.
//!
//! The simulator is one thread that never waits. Its processor time is what it takes by the clock on a core of its
//! own, and stays so (but for caches) on a machine that others use, too.

use std::process;
use std::time::Duration;

use am_core::Span;
use criterion::{Criterion, SamplingMode, Throughput};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::traffic;
use lab::bench::command::{CommandLine, Mode};
use lab::bench::load::Load;
use lab::bench::summary::{Bar, Baseline, Figure, Summary, Unit, median_and_spread};

/// The name of the figures' group, which criterion puts before theirs.
const GROUP: &str = "sim";

/// Processor time of this thread, in steps of microseconds.
pub(crate) fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("Linux counts the time of threads");
    let micros = |time: TimeVal| time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

/// A figure that follows from the samples of a case: so much of something per run.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// The name of the figure.
    pub(crate) name: String,
    /// What it counts.
    pub(crate) unit: Unit,
    /// How much of it one run has.
    pub(crate) amount: f64,
    /// What it should reach.
    pub(crate) bar: Option<Bar>,
    /// Events in a heap that is the baseline, if the figure has one.
    pub(crate) heap: Option<u32>,
}

/// Measures and gathers.
pub(crate) struct Bench<'c> {
    criterion: &'c mut Criterion,
    command: CommandLine,
    summary: Summary,
}

impl<'c> Bench<'c> {
    /// A bench that gathers the summary of this name.
    pub(crate) fn new(criterion: &'c mut Criterion, name: &'static str, command: CommandLine) -> Self {
        Self { criterion, command, summary: Summary::new(name) }
    }

    /// What was measured.
    pub(crate) fn into_summary(self) -> Summary {
        self.summary
    }

    /// How this process was asked to run.
    pub(crate) fn mode(&self) -> Mode {
        self.command.mode
    }

    /// Whether a figure is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.command.mode == Mode::CriterionOnly || self.command.selects(GROUP, name)
    }

    /// Measures the time that `run` takes on one core; criterion reports the throughput of `events` under the name
    /// of the first figure.
    pub(crate) fn one_core(&mut self, events: u64, figures: &[Counted], mut run: impl FnMut()) {
        let name = &figures[0].name;
        let heap = figures.iter().find_map(|figure| figure.heap);
        let least = |mode| if mode == Mode::Test { Duration::ZERO } else { Duration::from_millis(20) };
        let least = least(self.mode());
        let (mut seconds, mut beside) = (Vec::new(), Vec::new());
        let load = Load::now(&[process::id()]);
        let mut group = self.criterion.benchmark_group(GROUP);
        group.sampling_mode(SamplingMode::Flat).sample_size(10).throughput(Throughput::Elements(events));
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(1500));
        group.bench_function(name.as_str(), |bencher| {
            // Criterion takes what `iter_custom` returns as the time, and its own clock for planning.
            bencher.iter_custom(|iterations| {
                let begin = processor_time();
                (0..iterations).for_each(|_| run());
                let elapsed = processor_time() - begin;
                seconds.push(elapsed.as_secs_f64() / iterations as f64);
                elapsed
            });
            beside.extend(heap.map(|pending| traffic::heap_seconds(pending, least)));
        });
        group.finish();
        let others = load.others_until(&Load::now(&[process::id()]));
        if seconds.is_empty() || matches!(self.mode(), Mode::Test | Mode::CriterionOnly) {
            return;
        }
        let (median, spread) = median_and_spread(&seconds);
        for Counted { name, unit, amount, bar, heap } in figures {
            let baseline = heap.map(|pending| Baseline {
                name: format!("heap of {pending}"),
                value: unit.value(median_and_spread(&beside).0, 1.0),
            });
            let probes = [beside.first(), beside.last()].map(|probe| probe.map_or(0.0, |seconds| seconds * 1e6));
            self.summary.push(Figure {
                name: name.clone(),
                value: unit.value(median, *amount),
                unit: *unit,
                spread,
                baseline,
                bar: *bar,
                placement: "one core".into(),
                probes,
                attempts: 1,
                steady: true,
                others,
            });
        }
    }

    /// Reports the virtual time of one operation, which `run` returns; the baseline is a figure measured earlier.
    pub(crate) fn virtual_time(&mut self, name: &str, baseline: Option<&str>, mut run: impl FnMut() -> Span) {
        let mut took = None;
        let mut group = self.criterion.benchmark_group(GROUP);
        group.sampling_mode(SamplingMode::Flat).sample_size(10);
        group.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(20));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                // Every run takes the same virtual time: one is enough.
                let span = *took.get_or_insert_with(&mut run);
                Duration::from_secs_f64(span.picos() as f64 * 1e-12 * iterations as f64)
            });
        });
        group.finish();
        let Some(took) = took.filter(|_| !matches!(self.mode(), Mode::Test | Mode::CriterionOnly)) else { return };
        let baseline = baseline.and_then(|name| self.summary.find(name));
        let baseline = baseline.map(|figure| Baseline { name: figure.name.clone(), value: figure.value });
        self.summary.push(Figure {
            name: name.into(),
            value: took.picos() as f64 * 1e-6,
            unit: Unit::Microseconds,
            spread: 0.0,
            baseline,
            bar: None,
            placement: "virtual time".into(),
            probes: [0.0; 2],
            attempts: 1,
            steady: true,
            others: 0.0,
        });
    }
}
