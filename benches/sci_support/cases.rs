//! What is measured: three transports in turn, so that each meets the same weather, and the median of their
//! samples.

use super::pair::{Counts, MEDIUM, Sample, sample};
use active_messages::shm::{Job, JobConfig};
use lab::bench::summary::{Bar, Baseline, Figure, Summary, Unit, median_and_spread};
use sci_sim::conduit::{ConduitConfig, MappedJob};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    counts: Counts,
    samples: usize,
}

impl Plan {
    /// Enough for figures, in a few seconds.
    pub(crate) const fn full() -> Self {
        Self { counts: Counts { trips: 50_000, flood: 200_000 }, samples: 15 }
    }

    /// Everything once.
    pub(crate) const fn tiny() -> Self {
        Self { counts: Counts { trips: 20, flood: 50 }, samples: 1 }
    }
}

fn shm(counts: Counts) -> Sample {
    let job = Job::create(&JobConfig::new(2)).expect("there is memory for a job of two");
    sample(counts, |rank| job.join(rank).expect("each rank joins once"))
}

fn sci(counts: Counts, config: &ConduitConfig, number: usize) -> Sample {
    let job = MappedJob::named(&format!("bench-{}-{number}", std::process::id()), 2, config.clone());
    sample(counts, |rank| job.join(rank).expect("both ranks join"))
}

/// One figure of a sample.
type Field = fn(&Sample) -> f64;

/// Measures all figures.
pub(crate) fn measure(plan: &Plan) -> Summary {
    let (paper, tuned) = (ConduitConfig::paper(), ConduitConfig::tuned());
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for number in 0..plan.samples {
        samples[0].push(shm(plan.counts));
        samples[1].push(sci(plan.counts, &paper, 2 * number));
        samples[2].push(sci(plan.counts, &tuned, 2 * number + 1));
    }
    let mut summary = Summary::new("sci");
    let kinds: [(&str, Unit, Field, Option<Bar>); 3] = [
        ("Short request + reply", Unit::Microseconds, |sample| sample.short, Some(Bar::RatioAtMost(4.0))),
        ("Medium 944 B request + reply", Unit::Microseconds, |sample| sample.medium, None),
        ("flood of Shorts", Unit::MillionPerSecond, |sample| sample.flood, None),
    ];
    for (name, unit, seconds, bar) in kinds {
        let (value, spread) = median(&samples[0], seconds);
        let baseline = Baseline { name: "transport-shm".into(), value: unit.value(value, 1.0) };
        push(&mut summary, format!("{name}, shm"), unit, (value, spread), None, None);
        for (conduit, samples) in [("published", &samples[1]), ("tuned", &samples[2])] {
            let found = median(samples, seconds);
            push(&mut summary, format!("{name}, {conduit}"), unit, found, Some(baseline.clone()), bar);
        }
    }
    for (conduit, samples) in [("published", &samples[1]), ("tuned", &samples[2])] {
        let lines = samples.iter().filter_map(|sample| sample.lines).next_back().unwrap_or(f64::NAN);
        println!("{conduit}: {lines:.2} lines are stored for a Short message ({MEDIUM} B more take 15)");
    }
    summary
}

/// The median of some samples, and their spread.
fn median(samples: &[Sample], seconds: fn(&Sample) -> f64) -> (f64, f64) {
    median_and_spread(&samples.iter().map(seconds).collect::<Vec<_>>())
}

fn push(
    summary: &mut Summary,
    name: String,
    unit: Unit,
    (seconds, spread): (f64, f64),
    baseline: Option<Baseline>,
    bar: Option<Bar>,
) {
    summary.push(Figure {
        name,
        value: unit.value(seconds, 1.0),
        unit,
        spread,
        baseline,
        bar,
        placement: "two threads, a processor each".into(),
        probes: [0.0; 2],
        attempts: 1,
        steady: true,
        others: 0.0,
    });
}
