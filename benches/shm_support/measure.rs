//! Measures one figure the way this machine needs it: samples from criterion, each with its raw baseline right beside
//! it, and the raw one-line ping-pong before, between and after, because a virtual machine's CPUs are two cores at one time
//! and two hyper-threads of one core at another. A figure whose placement changed is measured again.

use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};

use super::crew::Crew;
use super::world::Task;
use crate::support::summary::{Bar, Baseline, Figure, Mode, Summary, Unit, median_and_spread};

/// Round trips of one probe, well under a millisecond on two CPUs.
const PROBE_ROUNDS: u64 = 1000;
/// How often a figure is measured before a changing placement is accepted and said.
const ATTEMPTS: u32 = 4;
/// A sample shorter than this is only criterion's warm-up and gets no baseline.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(1);
/// How long the baseline beside each sample runs at least.
const BASELINE_TIME: Duration = Duration::from_millis(5);

/// Where the two ranks that a probe connects run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Two hyper-threads of one core.
    Siblings,
    /// Two cores.
    SeparateCores,
    /// One CPU for both, in turn.
    OneCpu,
}

impl Placement {
    /// The placement that a raw one-line round trip of this many microseconds betrays.
    pub(crate) fn of_round_trip(microseconds: f64) -> Self {
        match microseconds {
            time if time < 0.06 => Self::Siblings,
            time if time < 2.0 => Self::SeparateCores,
            _ => Self::OneCpu,
        }
    }

    /// How the placement is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Siblings => "hyper-threads of one core",
            Self::SeparateCores => "separate cores",
            Self::OneCpu => "one CPU",
        }
    }
}

/// A task with what one of its iterations counts for.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The work.
    pub(crate) task: Task,
    /// Messages, bytes, updates or round trips in one iteration of it.
    pub(crate) amount: f64,
}

/// One figure to measure.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name, for criterion, the table and the filter.
    pub(crate) name: String,
    /// What its value counts.
    pub(crate) unit: Unit,
    /// What is measured.
    pub(crate) subject: Load,
    /// The baseline beside it and its name.
    pub(crate) baseline: Option<(&'static str, Load)>,
    /// What it should reach.
    pub(crate) bar: Option<Bar>,
}

impl Case {
    /// A figure of `task`, `amount` counted per iteration, without baseline and bar.
    pub(crate) fn new(name: impl Into<String>, unit: Unit, task: Task, amount: f64) -> Self {
        Self { name: name.into(), unit, subject: Load { task, amount }, baseline: None, bar: None }
    }

    /// The same beside a baseline.
    pub(crate) fn beside(self, name: &'static str, task: Task, amount: f64) -> Self {
        Self { baseline: Some((name, Load { task, amount })), ..self }
    }

    /// The same with a bar.
    pub(crate) fn bar(self, bar: Bar) -> Self {
        Self { bar: Some(bar), ..self }
    }
}

/// Where the probe found the ranks.
#[derive(Clone, Copy, Debug)]
struct Probe {
    microseconds: f64,
    placement: Placement,
}

/// Measures cases with criterion and gathers them.
pub(crate) struct Bench<'c> {
    criterion: &'c mut Criterion,
    mode: Mode,
    summary: Summary,
}

impl<'c> Bench<'c> {
    /// A bench that gathers the summary of this name.
    pub(crate) fn new(criterion: &'c mut Criterion, name: &'static str, mode: Mode) -> Self {
        Self { criterion, mode, summary: Summary::new(name) }
    }

    /// What was measured.
    pub(crate) fn into_summary(self) -> Summary {
        self.summary
    }

    /// How this process was asked to run.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Measures `case` between the ranks of `crew`, unless the filter leaves it out.
    pub(crate) fn measure(&mut self, crew: &mut Crew, case: &Case) {
        for attempt in 1..=ATTEMPTS {
            let mut group = self.criterion.benchmark_group("shm");
            group.sampling_mode(SamplingMode::Flat).sample_size(20);
            group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(800));
            let taken = Samples::take(&mut group, crew, case, self.mode);
            group.finish();
            let Some(samples) = taken else { return };
            let figure = samples.figure(case, attempt);
            if self.mode == Mode::Test {
                return;
            }
            println!(
                "    probe {:.3} us before, {:.3} us after: {}, CPUs {:?}",
                figure.probes[0],
                figure.probes[1],
                figure.placement,
                crew.cpus()
            );
            if figure.steady || attempt == ATTEMPTS {
                self.summary.push(figure);
                return;
            }
            println!("    the placement changed meanwhile: measuring again");
        }
    }

    /// Adds a figure that was not sampled by criterion: one value that the ranks report themselves.
    pub(crate) fn note(&mut self, figure: Figure) {
        self.summary.push(figure);
    }
}

/// The samples of one attempt at a case.
struct Samples {
    subject: Vec<(u64, f64)>,
    baseline: Vec<f64>,
    baseline_iterations: u64,
    before: Probe,
    after: Probe,
    steady: bool,
}

impl Samples {
    /// Lets criterion take its samples; `None` if its filter leaves the case out.
    fn take(group: &mut BenchmarkGroup<'_, WallTime>, crew: &mut Crew, case: &Case, mode: Mode) -> Option<Self> {
        let mut taken: Option<Self> = None;
        group.bench_function(case.name.as_str(), |bencher| {
            // Criterion's clock for planning runs inside `iter_custom` only: probes and baselines stay outside.
            let samples = taken.get_or_insert_with(|| Self::begin(crew, mode));
            bencher.iter_custom(|iterations| samples.subject(crew, case, iterations));
            samples.surroundings(crew, case, mode);
        });
        let mut samples = taken?;
        samples.after = probe(crew, mode);
        samples.steady &= samples.after.placement == samples.before.placement;
        Some(samples)
    }

    fn begin(crew: &mut Crew, mode: Mode) -> Self {
        let before = settle(crew, mode);
        let (subject, baseline) = (Vec::new(), Vec::new());
        Self { subject, baseline, baseline_iterations: 1, before, after: before, steady: true }
    }

    fn subject(&mut self, crew: &mut Crew, case: &Case, iterations: u64) -> Duration {
        let elapsed = crew.run(&case.subject.task, iterations);
        self.subject.push((iterations, elapsed.as_secs_f64() / iterations as f64));
        elapsed
    }

    /// Takes the baseline beside the last sample and looks whether the ranks still stand where they stood.
    fn surroundings(&mut self, crew: &mut Crew, case: &Case, mode: Mode) {
        let last = self.subject.last().map_or(0.0, |&(iterations, time)| iterations as f64 * time);
        if mode == Mode::Test || last >= SHORTEST_SAMPLE.as_secs_f64() {
            if let Some((_, load)) = &case.baseline {
                self.baseline_sample(crew, load, mode);
            }
            self.steady &= probe(crew, mode).placement == self.before.placement;
        }
    }

    fn baseline_sample(&mut self, crew: &mut Crew, load: &Load, mode: Mode) {
        loop {
            let elapsed = crew.run(&load.task, self.baseline_iterations);
            if mode == Mode::Test || elapsed >= BASELINE_TIME {
                self.baseline.push(elapsed.as_secs_f64() / self.baseline_iterations as f64);
                return;
            }
            self.baseline_iterations *= 2;
        }
    }

    fn figure(&self, case: &Case, attempt: u32) -> Figure {
        // The warm-up's samples have other lengths than those of the measurement, which are all alike.
        let last = self.subject.last().map(|&(iterations, _)| iterations);
        let subject: Vec<f64> = self
            .subject
            .iter()
            .filter(|(iterations, _)| Some(*iterations) == last)
            .map(|&(_, time)| time)
            .collect();
        let (seconds, spread) = median_and_spread(&subject);
        let baseline = case.baseline.as_ref().map(|(name, load)| {
            let (seconds, _) = median_and_spread(&self.baseline);
            Baseline { name: (*name).into(), value: case.unit.value(seconds, load.amount) }
        });
        Figure {
            name: case.name.clone(),
            value: case.unit.value(seconds, case.subject.amount),
            unit: case.unit,
            spread,
            baseline,
            bar: case.bar,
            placement: self.before.placement.name().into(),
            probes: [self.before.microseconds, self.after.microseconds],
            attempts: attempt,
            steady: self.steady,
        }
    }
}

/// Probes until the kernel has spread the ranks over the CPUs, but no longer than a quarter of a second.
fn settle(crew: &mut Crew, mode: Mode) -> Probe {
    let mut found = probe(crew, mode);
    for _ in 0..10 {
        if found.placement != Placement::OneCpu || mode == Mode::Test {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        found = probe(crew, mode);
    }
    found
}

/// The raw one-line ping-pong: the median of five short runs.
fn probe(crew: &mut Crew, mode: Mode) -> Probe {
    let rounds = if mode == Mode::Test { 1 } else { PROBE_ROUNDS };
    let times: Vec<f64> =
        (0..5).map(|_| crew.run(&Task::RawWord, rounds).as_secs_f64() / rounds as f64 * 1e6).collect();
    let (microseconds, _) = median_and_spread(&times);
    Probe { microseconds, placement: Placement::of_round_trip(microseconds) }
}
