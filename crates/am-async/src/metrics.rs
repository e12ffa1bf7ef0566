//! What was counted of calls, method by method and for both sides: as a table, as JSON by serde, and in
//! Prometheus' text format.

mod prometheus;
mod scrape;

pub use scrape::MetricsServer;

use am_core::Span;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Latencies up to which [`Latency::within`] counts: 1, 2 and 5 of every power of ten from a microsecond to ten
/// seconds.
pub const BOUNDS: [Duration; 22] = {
    let mut bounds = [Duration::ZERO; 22];
    let (mut at, mut unit) = (0, 1_000);
    while at < bounds.len() {
        let factor = [1, 2, 5][at % 3];
        bounds[at] = Duration::from_nanos(factor * unit);
        unit *= if at % 3 == 2 { 10 } else { 1 };
        at += 1;
    }
    bounds
};

/// What a rank has counted of its calls; see [`Caller::metrics`](crate::Caller::metrics).
///
/// `Display` prints a table of the methods that were called. serde knows it, so that it is JSON by `serde_json`,
/// and can be the answer of a method by which one rank collects those of all.
///
/// ```
/// use am_async::{CallConfig, CallEndpoint, Calls, Failure, Methods};
/// use am_core::{Endpoint, Handlers, Rank, loopback};
///
/// let mut methods = Methods::<u64>::new();
/// let add = methods.function("add", |total, _, number: u64| {
///     *total += number;
///     Ok::<u64, Failure>(*total)
/// })?;
/// let mut handlers = Handlers::new();
/// let calls = Calls::register_with(&mut handlers, methods, 0, CallConfig::new().metrics(true))?;
/// let mut endpoint = Endpoint::attach(loopback::single(), handlers, calls)?;
/// for number in 0..10 {
///     endpoint.call(Rank(0), add, &number).wait(&mut endpoint)?;
/// }
/// let metrics = endpoint.caller().metrics().expect("the settings ask for them");
/// assert_eq!(metrics.method("add").unwrap().caller.outcomes.answered, 10);
/// println!("{metrics}");
/// println!("{}", serde_json::to_string(&metrics)?);
/// print!("{}", metrics.to_prometheus());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// The rank that counted; of several ranks, the first.
    pub rank: u32,
    /// Of how many ranks these are: 1, or those that were [merged](Self::merge).
    pub ranks: u32,
    /// Its methods, in the order in which they were registered.
    pub methods: Vec<MethodMetrics>,
}

/// What was counted of one method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// The method's name.
    pub name: String,
    /// Calls that this rank made, also to itself for a request that goes [along a tree](crate::Caller::call_each).
    /// Those that it refused before they had a place are not among them, except for requests that are too large.
    pub caller: SideMetrics,
    /// Requests that this rank received.
    pub callee: SideMetrics,
}

/// What was counted at one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SideMetrics {
    /// Calls that were made, or requests that came.
    pub calls: u64,
    /// Those of them that have not ended.
    pub in_flight: u64,
    /// Calls that [`Caller::try_call`](crate::Caller::try_call) did not make, since they would have had to wait;
    /// none of `calls`.
    pub busy: u64,
    /// How the others have ended.
    pub outcomes: Outcomes,
    /// Bytes of requests.
    pub request_bytes: u64,
    /// Bytes of answers, and of errors of methods.
    pub answer_bytes: u64,
    /// At the caller, how long calls took that ended in any way, from when the endpoint first saw them: waiting
    /// for others included. At the callee, the same of requests to `async` methods and of long ones. A function
    /// that answers in the poll that brings its request is not timed.
    pub latency: Latency,
}

/// How calls have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcomes {
    /// With an answer.
    pub answered: u64,
    /// Sent, or carried out, without an answer, which nobody wanted.
    pub one_way: u64,
    /// With the method's error.
    pub failed: u64,
    /// With the text of a panic.
    pub panicked: u64,
    /// Refused under load.
    pub refused: u64,
    /// With a request or answer beyond [`CallConfig::max_bytes`](crate::CallConfig::max_bytes).
    pub too_large: u64,
    /// With a request or answer that the other side could make nothing of. An answer that comes whole and is no
    /// value of the caller's type counts as answered: it is read when the program takes it.
    pub malformed: u64,
    /// At their deadline.
    pub timed_out: u64,
    /// Given up by the caller.
    pub cancelled: u64,
    /// With the loss of the other side, or after it had finished.
    pub lost: u64,
    /// With the end of the rank's own endpoint, or since the network refused them.
    pub closed: u64,
}

impl Outcomes {
    /// Calls that have ended.
    pub fn total(&self) -> u64 {
        self.each().iter().map(|(_, count)| count).sum()
    }

    fn merge(&mut self, other: &Self) {
        self.answered += other.answered;
        self.one_way += other.one_way;
        self.failed += other.failed;
        self.panicked += other.panicked;
        self.refused += other.refused;
        self.too_large += other.too_large;
        self.malformed += other.malformed;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
        self.closed += other.closed;
    }

    /// All of them with their names.
    pub fn each(&self) -> [(&'static str, u64); 11] {
        [
            ("answered", self.answered),
            ("one_way", self.one_way),
            ("failed", self.failed),
            ("panicked", self.panicked),
            ("refused", self.refused),
            ("too_large", self.too_large),
            ("malformed", self.malformed),
            ("timed_out", self.timed_out),
            ("cancelled", self.cancelled),
            ("lost", self.lost),
            ("closed", self.closed),
        ]
    }
}

/// How long calls took, in the endpoint's time: the machine's, if it is simulated. Quantiles, maximum and what is
/// within bounds are exact to one percent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// Calls that were timed.
    pub count: u64,
    /// The sum of their times.
    #[serde(rename = "sum_ns", with = "nanoseconds")]
    pub sum: Duration,
    /// Half of them took no longer.
    #[serde(rename = "p50_ns", with = "nanoseconds")]
    pub p50: Duration,
    /// 90 percent took no longer.
    #[serde(rename = "p90_ns", with = "nanoseconds")]
    pub p90: Duration,
    /// 99 percent took no longer.
    #[serde(rename = "p99_ns", with = "nanoseconds")]
    pub p99: Duration,
    /// 99.9 percent took no longer.
    #[serde(rename = "p999_ns", with = "nanoseconds")]
    pub p999: Duration,
    /// The longest took so long.
    #[serde(rename = "max_ns", with = "nanoseconds")]
    pub max: Duration,
    /// How many took no longer than each of the [`BOUNDS`].
    pub within: Vec<u64>,
    /// The histogram that all of these are of, apart from the sum: times in nanoseconds, to one percent, in order,
    /// and how many calls took so long.
    pub histogram: Vec<(u64, u64)>,
}

/// The longest latency that histograms tell from longer ones, in nanoseconds: an hour.
pub(crate) const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of latencies in nanoseconds, with two digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are possible")
}

impl Latency {
    /// What a histogram tells.
    pub(crate) fn of(histogram: &Histogram<u64>, sum: Duration) -> Self {
        let quantile = |share| Duration::from_nanos(histogram.value_at_quantile(share));
        let within = |bound: &Duration| histogram.count_between(0, bound.as_nanos() as u64);
        let recorded = histogram.iter_recorded();
        Self {
            count: histogram.len(),
            sum,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Duration::from_nanos(histogram.max()),
            within: BOUNDS.iter().map(within).collect(),
            histogram: recorded.map(|at| (at.value_iterated_to(), at.count_since_last_iteration())).collect(),
        }
    }

    fn merge(&mut self, other: &Self) {
        let mut all = histogram();
        for (nanoseconds, count) in self.histogram.iter().chain(&other.histogram) {
            all.saturating_record_n(*nanoseconds, *count);
        }
        *self = Self::of(&all, self.sum + other.sum);
    }
}

impl SideMetrics {
    fn merge(&mut self, other: &Self) {
        let Self { calls, in_flight, busy, outcomes, request_bytes, answer_bytes, latency } = self;
        *calls += other.calls;
        *in_flight += other.in_flight;
        *busy += other.busy;
        *request_bytes += other.request_bytes;
        *answer_bytes += other.answer_bytes;
        outcomes.merge(&other.outcomes);
        latency.merge(&other.latency);
    }
}

/// Times as numbers, for those who read them elsewhere.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

impl MethodMetrics {
    fn side(&self, caller: bool) -> &SideMetrics {
        if caller { &self.caller } else { &self.callee }
    }
}

impl Metrics {
    /// What was counted of a method.
    pub fn method(&self, name: &str) -> Option<&MethodMetrics> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// Adds what another rank has counted: counters, and histograms, so that quantiles are those of all calls, as
    /// exact as before. A call between the two ranks is one of its caller's and one of its callee's, as ever.
    pub fn merge(&mut self, other: &Self) {
        self.ranks += other.ranks;
        for method in &other.methods {
            match self.methods.iter_mut().find(|known| known.name == method.name) {
                Some(known) => {
                    known.caller.merge(&method.caller);
                    known.callee.merge(&method.callee);
                }
                None => self.methods.push(method.clone()),
            }
        }
    }

    /// In Prometheus' text format, version 0.0.4. What was merged has "all" in the place of the rank.
    /// [`MetricsServer::text`] is for several ranks, whose samples Prometheus adds itself.
    pub fn to_prometheus(&self) -> String {
        prometheus::text(std::slice::from_ref(self))
    }
}

/// The columns of the table after the method's name.
const COLUMNS: [&str; 13] = [
    "calls",
    "in flight",
    "answered",
    "failed",
    "refused",
    "timed out",
    "lost",
    "other",
    "bytes out",
    "bytes in",
    "p50",
    "p99",
    "max",
];

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.ranks {
            0 | 1 => format!("rank {}", self.rank),
            ranks => format!("{ranks} ranks"),
        };
        for (title, caller) in [("calls made by", true), ("requests to", false)] {
            let called =
                self.methods.iter().filter(|method| method.side(caller).calls + method.side(caller).busy != 0);
            let rows: Vec<(&str, [String; 13])> =
                called.map(|method| (&*method.name, row(method.side(caller), caller))).collect();
            let name = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            let head = format!("{title} {whose}");
            let name = name.max(head.len());
            let width = |column: usize| {
                let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
                cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
            };
            write!(f, "{head:name$}")?;
            for (column, title) in COLUMNS.iter().enumerate() {
                write!(f, "  {title:>0$}", width(column))?;
            }
            writeln!(f)?;
            for (method, cells) in &rows {
                write!(f, "{method:name$}")?;
                for (column, cell) in cells.iter().enumerate() {
                    write!(f, "  {cell:>0$}", width(column))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn row(side: &SideMetrics, caller: bool) -> [String; 13] {
    let Outcomes { answered, failed, refused, timed_out, lost, one_way, .. } = side.outcomes;
    let other = side.outcomes.total() - answered - one_way - failed - refused - timed_out - lost;
    let (out, back) = match caller {
        true => (side.request_bytes, side.answer_bytes),
        false => (side.answer_bytes, side.request_bytes),
    };
    let time = |time: Duration| match side.latency.count {
        0 => "-".to_owned(),
        _ => Span::from(time).to_string(),
    };
    let numbers = [
        side.calls,
        side.in_flight,
        answered + one_way,
        failed,
        refused + side.busy,
        timed_out,
        lost,
        other,
        out,
        back,
    ];
    let mut cells: [String; 13] = Default::default();
    for (cell, number) in cells.iter_mut().zip(numbers) {
        *cell = number.to_string();
    }
    let Latency { p50, p99, max, .. } = side.latency;
    (cells[10], cells[11], cells[12]) = (time(p50), time(p99), time(max));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(nanoseconds: impl IntoIterator<Item = u64>) -> Latency {
        let (mut all, mut sum) = (histogram(), Duration::ZERO);
        for nanoseconds in nanoseconds {
            all.record(nanoseconds).expect("it is shorter than the longest");
            sum += Duration::from_nanos(nanoseconds);
        }
        Latency::of(&all, sum)
    }

    /// Merged parts tell what one histogram of all would.
    #[test]
    fn latencies_merge_without_loss() {
        let all = |part: u64| (1..4000u64).map(move |number| number * number * (1 + part * part * 50) + part);
        let mut merged = latency(all(0));
        merged.merge(&latency([]));
        (1..3).for_each(|part| merged.merge(&latency(all(part))));
        let due = latency((0..3).flat_map(all));
        assert_eq!(merged, due);
        let counted: u64 = due.histogram.iter().map(|(_, count)| count).sum();
        assert_eq!((counted, due.count), (11_997, 11_997));
        assert!(due.p50 < due.p99 && due.p99 < due.max);
    }
}
