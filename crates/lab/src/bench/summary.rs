//! The summary that every bench ends with: each figure with its baseline of the same run, the ratio and the bar it
//! should reach, as a table on the terminal and as `target/summary/<bench>.json`, a list of
//! `{name, value, unit, baseline, ratio}` with more fields for whoever wants to judge a figure.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::svg::digits;

/// What a figure counts. The value of every unit is a plain number, so that results can be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Nanoseconds; less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Microseconds; less is better.
    #[serde(rename = "us")]
    Microseconds,
    /// Millions of messages a second.
    #[serde(rename = "M/s")]
    MillionPerSecond,
    /// 10^9 bytes a second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// 10^9 table updates a second.
    #[serde(rename = "GUPS")]
    Gups,
    /// A share of one CPU, in percent; less is better.
    #[serde(rename = "% CPU")]
    CpuPercent,
    /// Seconds for a second of virtual time; less is better.
    #[serde(rename = "s/s")]
    SecondsPerSecond,
    /// Milliseconds; less is better.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Kilobytes of memory; less is better.
    #[serde(rename = "kB")]
    Kilobytes,
    /// Open files; less is better.
    #[serde(rename = "descriptors")]
    Descriptors,
}

impl Unit {
    /// How the unit is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::MillionPerSecond => "M/s",
            Self::GigabytesPerSecond => "GB/s",
            Self::Gups => "GUPS",
            Self::CpuPercent => "% CPU",
            Self::SecondsPerSecond => "s/s",
            Self::Milliseconds => "ms",
            Self::Kilobytes => "kB",
            Self::Descriptors => "descriptors",
        }
    }

    /// The value of one iteration that took `seconds` and moved `amount` messages, bytes or updates. Of a
    /// unit of time the amount is the number of operations in the iteration.
    pub fn value(self, seconds: f64, amount: f64) -> f64 {
        match self {
            Self::Nanoseconds => seconds * 1e9 / amount,
            Self::Microseconds => seconds * 1e6 / amount,
            Self::MillionPerSecond => amount / seconds / 1e6,
            Self::GigabytesPerSecond | Self::Gups => amount / seconds / 1e9,
            Self::CpuPercent => seconds * 100.0 / amount,
            Self::SecondsPerSecond => seconds / amount,
            Self::Milliseconds => seconds * 1e3 / amount,
            // No rates: the figure is what was counted.
            Self::Kilobytes | Self::Descriptors => amount,
        }
    }
}

/// What a figure should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// The value is at most this.
    ValueAtMost(f64),
    /// The value is at least this.
    ValueAtLeast(f64),
    /// The ratio to the baseline is at most this.
    RatioAtMost(f64),
    /// The ratio to the baseline is at least this.
    RatioAtLeast(f64),
    /// The value is above the baseline by at most this.
    AboveAtMost(f64),
}

impl Bar {
    fn reached(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::ValueAtMost(limit) => Some(value <= limit),
            Self::ValueAtLeast(limit) => Some(value >= limit),
            Self::RatioAtMost(limit) => ratio.map(|ratio| ratio <= limit),
            Self::RatioAtLeast(limit) => ratio.map(|ratio| ratio >= limit),
            Self::AboveAtMost(limit) => ratio.map(|ratio| value - value / ratio <= limit),
        }
    }

    fn text(self, unit: Unit) -> String {
        match self {
            Self::ValueAtMost(limit) => format!("<= {limit} {}", unit.name()),
            Self::ValueAtLeast(limit) => format!(">= {limit} {}", unit.name()),
            Self::RatioAtMost(limit) => format!("<= {limit} x"),
            Self::RatioAtLeast(limit) => format!(">= {limit} x"),
            Self::AboveAtMost(limit) => format!("<= {limit} {} above", unit.name()),
        }
    }
}

/// The baseline that was measured beside a figure, in the figure's unit.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The name of the figure that it is, or of what it does.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// One measured figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name, the same from run to run.
    pub name: String,
    /// The median of its samples.
    pub value: f64,
    /// What the value counts.
    pub unit: Unit,
    /// The spread of its samples: the difference between the quartiles, as a share of the median.
    pub spread: f64,
    /// The baseline beside it, if it has one.
    pub baseline: Option<Baseline>,
    /// What it should reach, if anything was promised.
    pub bar: Option<Bar>,
    /// Where its processes ran, in the words of the bench.
    pub placement: String,
    /// The bench's probe before and after the figure, in microseconds.
    pub probes: [f64; 2],
    /// How often the figure was measured until its placement held still.
    pub attempts: u32,
    /// Whether the placement was the same before and after.
    pub steady: bool,
    /// CPUs that other programs kept busy meanwhile.
    pub others: f64,
}

impl Figure {
    /// The value divided by the baseline.
    pub fn ratio(&self) -> Option<f64> {
        self.baseline.as_ref().map(|baseline| self.value / baseline.value)
    }

    /// Whether the bar is reached; `None` without a bar.
    pub fn reached(&self) -> Option<bool> {
        self.bar?.reached(self.value, self.ratio())
    }
}

/// A figure as it stands in the JSON file.
#[derive(Serialize)]
struct Record<'a> {
    name: &'a str,
    value: f64,
    unit: Unit,
    baseline: Option<f64>,
    ratio: Option<f64>,
    baseline_name: Option<&'a str>,
    bar: Option<String>,
    reached: Option<bool>,
    spread: f64,
    placement: &'a str,
    probe_before_us: f64,
    probe_after_us: f64,
    attempts: u32,
    steady: bool,
    others: f64,
}

/// All figures of one run of a bench, in the order in which they were measured.
pub struct Summary {
    bench: &'static str,
    figures: Vec<Figure>,
}

impl Summary {
    /// An empty summary of the bench with this name.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, figures: Vec::new() }
    }

    /// Adds a figure.
    pub fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// The figures so far.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The name of the bench.
    pub fn bench(&self) -> &'static str {
        self.bench
    }

    /// The figure with this name, if it was measured.
    pub fn find(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The table, one line a figure, ready to print.
    pub fn table(&self) -> String {
        let mut rows = vec![
            [
                "figure",
                "value",
                "unit",
                "spread",
                "baseline",
                "value",
                "ratio",
                "bar",
                "reached",
                "probe us",
                "others",
                "placement",
            ]
            .map(String::from)
            .to_vec(),
        ];
        rows.extend(self.figures.iter().map(row));
        let widths: Vec<usize> =
            (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for (number, row) in rows.iter().enumerate() {
            for ((column, cell), width) in row.iter().enumerate().zip(&widths) {
                let numeric = matches!(column, 1 | 3 | 5 | 6);
                let cell = if numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                text.push_str(&cell);
                text.push_str("  ");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
            if number == 0 {
                let line: usize = widths.iter().map(|width| width + 2).sum();
                let _ = writeln!(text, "{}", "-".repeat(line - 2));
            }
        }
        text
    }

    /// The table as Markdown, as `docs/benchmarks.md` shows it: the figures, and below them where they ran.
    pub fn markdown(&self) -> String {
        let blank = || String::from("-");
        let mut text =
            String::from("| figure | value | spread | baseline | ratio | wanted |\n|---|---|---|---|---|---|\n");
        for figure in &self.figures {
            let unit = figure.unit.name();
            let baseline = figure.baseline.as_ref();
            let baseline = baseline.map(|other| format!("{} {unit} ({})", digits(other.value), other.name));
            let wanted = figure.bar.map(|bar| match figure.reached() {
                Some(false) => format!("{}: **not reached**", bar.text(figure.unit)),
                _ => bar.text(figure.unit),
            });
            let _ = writeln!(
                text,
                "| {} | {} {unit} | {:.0} % | {} | {} | {} |",
                figure.name,
                digits(figure.value),
                figure.spread * 100.0,
                baseline.unwrap_or_else(blank),
                figure.ratio().map_or_else(blank, digits),
                wanted.unwrap_or_else(blank),
            );
        }
        let probes = self.figures.iter().flat_map(|figure| figure.probes);
        let (least, most) =
            probes.fold((f64::MAX, 0.0_f64), |(least, most), probe| (least.min(probe), most.max(probe)));
        let mut placements: Vec<&str> = self.figures.iter().map(|figure| figure.placement.as_str()).collect();
        placements.sort_unstable();
        placements.dedup();
        let _ = writeln!(text, "\nProbes of {least:.3} to {most:.3} us; placement: {}.", placements.join("; "));
        text
    }

    /// Writes `<target>/summary/<bench>.json` and returns its path.
    pub fn write_json(&self, target: &Path) -> io::Result<PathBuf> {
        let records: Vec<Record<'_>> = self.figures.iter().map(record).collect();
        let mut text = serde_json::to_string_pretty(&records)?;
        text.push('\n');
        self.write(target, "json", &text)
    }

    /// Writes `<target>/summary/<bench>.<extension>` and returns its path.
    pub fn write(&self, target: &Path, extension: &str, text: &str) -> io::Result<PathBuf> {
        let folder = target.join("summary");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.{extension}", self.bench));
        fs::write(&path, text)?;
        Ok(path)
    }
}

/// The median and the spread (distance of the quartiles as a share of the median) of samples.
///
/// # Panics
/// If there are none.
pub fn median_and_spread(samples: &[f64]) -> (f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    (at(0.5), (at(0.75) - at(0.25)) / at(0.5))
}

fn row(figure: &Figure) -> Vec<String> {
    let blank = || String::from("-");
    let baseline = figure.baseline.as_ref();
    vec![
        figure.name.clone(),
        digits(figure.value),
        figure.unit.name().into(),
        format!("{:.0}%", figure.spread * 100.0),
        baseline.map_or_else(blank, |baseline| baseline.name.clone()),
        baseline.map_or_else(blank, |baseline| digits(baseline.value)),
        figure.ratio().map_or_else(blank, digits),
        figure.bar.map_or_else(blank, |bar| bar.text(figure.unit)),
        match figure.reached() {
            Some(true) => "yes".into(),
            Some(false) => "NO".into(),
            None => blank(),
        },
        format!("{:.3}/{:.3}", figure.probes[0], figure.probes[1]),
        format!("{:.1} CPU", figure.others),
        match (figure.steady, figure.attempts) {
            (true, 1) => figure.placement.clone(),
            (true, attempts) => format!("{} (attempt {attempts})", figure.placement),
            (false, attempts) => format!("{} (changed in each of {attempts} attempts)", figure.placement),
        },
    ]
}

fn record(figure: &Figure) -> Record<'_> {
    Record {
        name: &figure.name,
        value: figure.value,
        unit: figure.unit,
        baseline: figure.baseline.as_ref().map(|baseline| baseline.value),
        ratio: figure.ratio(),
        baseline_name: figure.baseline.as_ref().map(|baseline| baseline.name.as_str()),
        bar: figure.bar.map(|bar| bar.text(figure.unit)),
        reached: figure.reached(),
        spread: figure.spread,
        placement: &figure.placement,
        probe_before_us: figure.probes[0],
        probe_after_us: figure.probes[1],
        attempts: figure.attempts,
        steady: figure.steady,
        others: figure.others,
    }
}
