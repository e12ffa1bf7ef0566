//! Measures figures, each sample with its baseline right beside it, and gathers them.

use super::raw;
use criterion::{Criterion, SamplingMode};
use lab::bench::command::{CommandLine, Mode};
use lab::bench::load::Load;
use lab::bench::summary::{Bar, Baseline, Figure, Summary, Unit, median_and_spread};
use std::time::Duration;

/// The name of the figures' group, which criterion puts before theirs.
const GROUP: &str = "udp";
/// Round trips of the probe before and after a figure.
const PROBE: u64 = 2000;
/// A sample shorter than this in seconds is only criterion's warm-up and gets no baseline.
const SHORTEST_SAMPLE: f64 = 0.001;

/// What runs a number of iterations and says how long they took.
pub(crate) type Work<'w> = &'w mut dyn FnMut(u64) -> Duration;

/// A baseline's name, what an iteration of it counts for, and how it runs.
pub(crate) type Raw = (&'static str, f64, fn(u64) -> Duration);

/// A figure to be measured.
pub(crate) struct Case<'w> {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Messages, bytes, updates or round trips of one iteration.
    pub(crate) amount: f64,
    pub(crate) bar: Option<Bar>,
    pub(crate) work: Work<'w>,
    pub(crate) baseline: Option<Raw>,
}

/// Measures cases and gathers them.
pub(crate) struct Bench<'c> {
    criterion: &'c mut Criterion,
    command: CommandLine,
    summary: Summary,
}

impl<'c> Bench<'c> {
    pub(crate) fn new(criterion: &'c mut Criterion, command: CommandLine) -> Self {
        Self { criterion, command, summary: Summary::new(GROUP) }
    }

    pub(crate) fn into_summary(self) -> Summary {
        self.summary
    }

    /// Whether everything is only run once, to see that it works.
    pub(crate) fn is_test(&self) -> bool {
        self.command.mode == Mode::Test
    }

    /// Whether any of these figures is wanted.
    pub(crate) fn wants(&self, names: &[&str]) -> bool {
        self.command.mode == Mode::CriterionOnly || names.iter().any(|name| self.command.selects(GROUP, name))
    }

    /// Measures a case, unless the filter leaves it out.
    pub(crate) fn measure(&mut self, case: Case<'_>) {
        let Case { name, unit, amount, bar, work, baseline } = case;
        let test = self.is_test();
        let probe = || if test { 0.0 } else { raw::ping_pong(false, PROBE).as_secs_f64() / PROBE as f64 * 1e6 };
        if !self.wants(&[name]) {
            return;
        }
        let (before, load) = (probe(), Load::now(&[std::process::id()]));
        let (mut subject, mut beside, mut least) = (Vec::new(), Vec::new(), 1);
        let mut group = self.criterion.benchmark_group(GROUP);
        group.sampling_mode(SamplingMode::Flat).sample_size(20);
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800));
        group.bench_function(name, |bencher| {
            let mut length = 0.0;
            bencher.iter_custom(|iterations| {
                let took = work(iterations);
                length = took.as_secs_f64();
                subject.push((iterations, length / iterations as f64));
                took
            });
            if let Some((_, _, run)) = baseline
                && (test || length >= SHORTEST_SAMPLE)
            {
                beside.push(sample(run, &mut least, if test { 0.0 } else { (length / 4.0).clamp(0.005, 0.3) }));
            }
        });
        group.finish();
        let others = load.others_until(&Load::now(&[std::process::id()]));
        // The warm-up's samples have other lengths than those of the measurement, which are all alike.
        let last = subject.last().map(|(iterations, _)| *iterations);
        let alike: Vec<f64> = subject.iter().filter(|(n, _)| Some(*n) == last).map(|(_, time)| *time).collect();
        if alike.is_empty() || matches!(self.command.mode, Mode::Test | Mode::CriterionOnly) {
            return;
        }
        let (seconds, spread) = median_and_spread(&alike);
        let baseline = baseline.filter(|_| !beside.is_empty()).map(|(name, amount, _)| Baseline {
            name: name.into(),
            value: unit.value(median_and_spread(&beside).0, amount),
        });
        self.summary.push(Figure {
            name: name.into(),
            value: unit.value(seconds, amount),
            unit,
            spread,
            baseline,
            bar,
            placement: "two threads".into(),
            probes: [before, probe()],
            attempts: 1,
            steady: true,
            others,
        });
    }
}

/// One sample of a baseline, at least `shortest` seconds long; seconds per iteration.
fn sample(run: fn(u64) -> Duration, iterations: &mut u64, shortest: f64) -> f64 {
    loop {
        let seconds = run(*iterations).as_secs_f64();
        if seconds >= shortest {
            return seconds / *iterations as f64;
        }
        *iterations *= 2;
    }
}
