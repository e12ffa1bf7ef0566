//! Measures figures the way this machine needs it: each sample with its baseline right beside it, and with probes
//! of the placement before, between and after. A figure whose placement changed meanwhile, or that had to share
//! the CPUs with other programs, is measured again.

use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};

use super::case::{Case, Reference, Sampling, Work};
use super::crew::Crew;
use super::placement::Probe;
use lab::bench::command::{CommandLine, Mode};
use lab::bench::load::Load;
use lab::bench::summary::{Baseline, Figure, Summary, median_and_spread};

/// How often a figure is measured before a changing placement or a busy machine is accepted, and said.
const ATTEMPTS: u32 = 3;
/// CPUs of other programs that do not spoil a figure.
const BUSY: f64 = 0.2;
/// A sample shorter than this is only criterion's warm-up and gets no baseline.
const SHORTEST_SAMPLE: f64 = 0.001;

/// Measures cases and gathers them.
pub(crate) struct Bench<'c> {
    criterion: &'c mut Criterion,
    command: CommandLine,
    summary: Summary,
    /// The name of the bench, which criterion puts before those of the figures.
    name: &'static str,
}

impl<'c> Bench<'c> {
    /// A bench that gathers the summary of this name.
    pub(crate) fn new(criterion: &'c mut Criterion, name: &'static str, command: CommandLine) -> Self {
        Self { criterion, command, summary: Summary::new(name), name }
    }

    /// What was measured.
    pub(crate) fn into_summary(self) -> Summary {
        self.summary
    }

    /// How this process was asked to run.
    pub(crate) fn mode(&self) -> Mode {
        self.command.mode
    }

    /// Measures `case` between the ranks of `crew`, unless the filter leaves it out. Repeats it when the placement
    /// changed or the machine was busy meanwhile, and keeps the least disturbed attempt.
    pub(crate) fn measure(&mut self, crew: &mut Crew, case: &Case) {
        let mut best: Option<Figure> = None;
        for attempt in 1..=ATTEMPTS {
            let Some(samples) = self.attempt(crew, case) else { return };
            if matches!(self.mode(), Mode::Test | Mode::CriterionOnly) {
                return;
            }
            let figure = samples.figure(case, attempt, &self.summary);
            let cpus: Vec<u64> = crew.reports().iter().map(|(_, cpu)| *cpu).collect();
            let ([before, after], others) = (figure.probes, figure.others);
            println!("    probe {before:.3} us before, {after:.3} us after: {}, CPUs {cpus:?}", figure.placement);
            match (figure.steady, others > BUSY) {
                (false, _) => println!("    the placement changed meanwhile"),
                (true, true) => println!("    other programs kept {others:.1} CPUs busy meanwhile"),
                (true, false) => {
                    self.summary.push(figure);
                    return;
                }
            }
            if best.as_ref().is_none_or(|best| (!figure.steady, others) < (!best.steady, best.others)) {
                best = Some(figure);
            }
        }
        // The attempts that were made count, not which of them was the best.
        if let Some(best) = best {
            self.summary.push(Figure { attempts: ATTEMPTS, ..best });
        }
    }

    fn attempt(&mut self, crew: &mut Crew, case: &Case) -> Option<Samples> {
        match case.sampling {
            Sampling::Criterion => {
                let mode = self.mode();
                let mut group = self.criterion.benchmark_group(self.name);
                group.sampling_mode(SamplingMode::Flat).sample_size(20);
                group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(800));
                let taken = Samples::from_criterion(&mut group, crew, case, mode);
                group.finish();
                taken
            }
            Sampling::Fixed { samples, iterations } => self.command.selects(self.name, &case.name).then(|| {
                println!("{}/{}: {samples} samples", self.name, case.name);
                Samples::of_fixed_length(crew, case, samples, iterations, self.mode())
            }),
        }
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
    load: Load,
    others: f64,
}

impl Samples {
    /// Lets criterion take its samples; `None` if its filter leaves the case out.
    fn from_criterion(
        group: &mut BenchmarkGroup<'_, WallTime>,
        crew: &mut Crew,
        case: &Case,
        mode: Mode,
    ) -> Option<Self> {
        let mut taken: Option<Self> = None;
        group.bench_function(case.name.as_str(), |bencher| {
            // Criterion's clock for planning runs inside `iter_custom` only: probes and baselines stay outside.
            let samples = taken.get_or_insert_with(|| Self::begin(crew, mode));
            bencher.iter_custom(|iterations| samples.subject(crew, case, iterations));
            samples.surroundings(crew, case, mode);
        });
        let mut samples = taken?;
        samples.end(crew, case, mode);
        Some(samples)
    }

    fn of_fixed_length(crew: &mut Crew, case: &Case, count: u32, iterations: u64, mode: Mode) -> Self {
        let mut samples = Self::begin(crew, mode);
        let (count, iterations) = if mode == Mode::Test { (1, 1) } else { (count, iterations) };
        for _ in 0..count {
            samples.subject(crew, case, iterations);
            samples.surroundings(crew, case, mode);
        }
        samples.end(crew, case, mode);
        samples
    }

    fn begin(crew: &mut Crew, mode: Mode) -> Self {
        let before = Probe::take_settled(crew, mode);
        let (subject, baseline) = (Vec::new(), Vec::new());
        let load = Load::now(&crew.processes());
        Self { subject, baseline, baseline_iterations: 1, before, after: before, steady: true, load, others: 0.0 }
    }

    fn end(&mut self, crew: &mut Crew, case: &Case, mode: Mode) {
        self.others = self.load.others_until(&Load::now(&crew.processes()));
        self.after = Probe::take(crew, mode);
        self.steady &= case.sleeps || self.after.placement == self.before.placement;
    }

    fn subject(&mut self, crew: &mut Crew, case: &Case, iterations: u64) -> Duration {
        let elapsed = case.subject.work.run(crew, iterations);
        self.subject.push((iterations, elapsed.as_secs_f64() / iterations as f64));
        elapsed
    }

    /// Takes the baseline beside the last sample and looks whether the ranks still stand where they stood.
    fn surroundings(&mut self, crew: &mut Crew, case: &Case, mode: Mode) {
        let length = self.subject.last().map_or(0.0, |&(iterations, time)| iterations as f64 * time);
        if mode == Mode::Test || length >= SHORTEST_SAMPLE {
            if let Some(Reference::Beside(_, load)) = &case.baseline {
                // Long enough beside a long sample, too.
                let least = if mode == Mode::Test { 0.0 } else { (length / 4.0).clamp(0.005, 0.3) };
                self.baseline_sample(crew, &load.work, least);
            }
            self.steady &= case.sleeps || Probe::take(crew, mode).placement == self.before.placement;
        }
    }

    fn baseline_sample(&mut self, crew: &mut Crew, work: &Work, least: f64) {
        loop {
            let seconds = work.run(crew, self.baseline_iterations).as_secs_f64();
            if seconds >= least {
                self.baseline.push(seconds / self.baseline_iterations as f64);
                return;
            }
            self.baseline_iterations *= 2;
        }
    }

    fn figure(&self, case: &Case, attempt: u32, earlier: &Summary) -> Figure {
        // The warm-up's samples have other lengths than those of the measurement, which are all alike.
        let last = self.subject.last().map(|&(iterations, _)| iterations);
        let alike = self.subject.iter().filter(|(iterations, _)| Some(*iterations) == last);
        let subject: Vec<f64> = alike.map(|&(_, time)| time).collect();
        let (seconds, spread) = median_and_spread(&subject);
        let baseline = match &case.baseline {
            Some(Reference::Beside(name, load)) => {
                let (seconds, _) = median_and_spread(&self.baseline);
                Some(Baseline { name: (*name).into(), value: case.unit.value(seconds, load.amount) })
            }
            Some(Reference::Earlier(name)) => {
                earlier.find(name).map(|figure| Baseline { name: (*name).into(), value: figure.value })
            }
            None => None,
        };
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
            others: self.others,
        }
    }
}
