//! What came out: a table, one JSON object, CSV, pictures.

use super::Failure;
use super::cli::{Cli, Measure};
use super::pattern::Pattern;
use super::traffic::{COLUMNS, Point, Traffic};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use active_messages::{Instant, Span};
use fabric_sim::LinkUse;
use lab::bench::svg::digits;
use machine_sim::MachineConfig;
use machine_sim::nic::stats::{ClassCount, Count};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The results of all runs of a sweep.
#[derive(Debug)]
pub(crate) struct Output {
    /// What was run, in words and for the JSON.
    subtitle: String,
    head: Map<String, Value>,
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<Vec<f64>>,
    plots: Vec<Drawing>,
    links: Vec<LinkUse>,
    /// Of each run: size and load of its messages, and what came of it.
    details: Vec<((u32, f64), Point)>,
    ended: Vec<Instant>,
}

/// A picture of columns of the table.
#[derive(Clone, Debug)]
struct Drawing {
    /// What is added to the file's name.
    suffix: &'static str,
    title: &'static str,
    x: (usize, Axis),
    y: Axis,
    /// Name, and column.
    lines: Vec<(&'static str, usize)>,
    /// What the columns are divided by.
    unit: f64,
}

const BYTES: Axis = Axis { label: "bytes of a message", scale: Scale::Binary };

impl Output {
    fn new(machine: &MachineConfig, what: &str, columns: Vec<(&'static str, &'static str)>) -> Self {
        let (ranks, topology) = (machine.ranks, machine.topology.to_string());
        let name = &machine.parameters.name;
        let subtitle = format!("{name}, {topology}, {ranks} ranks: {what}");
        let mut head = Map::new();
        for (key, value) in [
            ("machine", json!(name)),
            ("topology", json!(topology)),
            ("ranks", json!(ranks)),
            ("what", json!(what)),
        ] {
            head.insert(key.into(), value);
        }
        Self {
            subtitle,
            head,
            columns,
            rows: Vec::new(),
            plots: Vec::new(),
            links: Vec::new(),
            details: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Of runs that measure two ranks.
    pub(crate) fn of_pair(machine: &MachineConfig, measure: Measure, (one, other): (u32, u32)) -> Self {
        let (key, heading, title, scale) = match measure {
            Measure::Latency => ("latency_ns", "half a round trip, ns", "Latency", Scale::Decimal),
            Measure::Bandwidth => ("bandwidth_mb_s", "MB/s", "Bandwidth of a stream", Scale::Linear),
            Measure::Rate => ("rate_m_s", "M messages/s", "Messages of a stream", Scale::Linear),
        };
        let what = format!("ranks {one} and {other}");
        let mut output = Self::new(machine, &what, vec![("bytes", "bytes"), (key, heading)]);
        let y = Axis { label: heading, scale };
        let lines = vec![("simulated", 1)];
        output.plots.push(Drawing { suffix: "", title, x: (0, BYTES), y, lines, unit: 1.0 });
        output
    }

    /// Of runs with traffic.
    pub(crate) fn of_traffic(machine: &MachineConfig, traffic: &Traffic, over_load: bool) -> Self {
        let mut output = Self::new(machine, traffic.pattern.name(), COLUMNS.to_vec());
        output.head.insert("seed".into(), json!(traffic.seed));
        if traffic.pattern == Pattern::Bursts {
            output.head.insert("burst".into(), json!(traffic.burst));
        }
        let x = if over_load { (1, Axis { label: "load", scale: Scale::Linear }) } else { (0, BYTES) };
        let y = Axis { label: "time from call to memory, us", scale: Scale::Decimal };
        let lines = vec![("mean", 5), ("median, from", 6), ("99 %, from", 7)];
        output.plots.push(Drawing { suffix: "", title: "Latency under load", x, y, lines, unit: 1e3 });
        let y = Axis { label: "GB/s of all ranks", scale: Scale::Linear };
        let lines = vec![("accepted", 3), ("offered", 2)];
        output.plots.push(Drawing { suffix: "-accepted", title: "Accepted traffic", x, y, lines, unit: 1e3 });
        output
    }

    /// Of a schedule.
    pub(crate) fn of_schedule(machine: &MachineConfig, ranks: usize) -> Self {
        let columns =
            vec![("ranks", "ranks"), ("ended_ns", "processors ended, ns"), ("quiet_ns", "interfaces quiet, ns")];
        let mut output = Self::new(machine, "schedule", columns);
        output.head.insert("ranks".into(), json!(ranks));
        output
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, row: Vec<f64>) {
        self.rows.push(row);
    }

    /// Adds what came of a run, by size and load of its messages.
    pub(crate) fn add_details(&mut self, of: (u32, f64), point: Point) {
        self.details.push((of, point));
    }

    /// Keeps the last run's.
    pub(crate) fn links(&mut self, links: &[LinkUse]) {
        self.links = links.to_vec();
    }

    /// When the ranks of a schedule ended.
    pub(crate) fn ended(&mut self, times: &[Instant]) {
        self.ended = times.to_vec();
    }

    /// Prints it and writes the files.
    pub(crate) fn write(&self, cli: &Cli) -> Result<(), Failure> {
        if cli.json {
            println!("{}", self.json());
        } else {
            print!("{}", self.table());
        }
        if let Some(path) = &cli.csv {
            put(path, &self.csv())?;
        }
        if let Some(path) = &cli.links {
            put(path, &self.links_csv())?;
        }
        let parts = [
            ("received", &cli.received, "rank"),
            ("classes", &cli.classes, "class"),
            ("series", &cli.series, "interval"),
        ];
        for (part, path, number) in parts {
            if let Some(path) = path {
                put(path, &self.numbered(number, part))?;
            }
        }
        if let Some(path) = &cli.svg {
            for drawing in &self.plots {
                put(&beside(path, drawing.suffix), &self.svg(drawing))?;
            }
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut text = format!("{}\n\n", self.subtitle);
        let width = |index: usize| self.columns[index].1.len().max(9);
        let line: Vec<String> = (0..self.columns.len())
            .map(|at| format!("{:>width$}", self.columns[at].1, width = width(at)))
            .collect();
        let _ = writeln!(text, "{}", line.join("  "));
        for row in &self.rows {
            let cell = |(at, value): (usize, &f64)| {
                let value = if value.fract() == 0.0 { value.to_string() } else { digits(*value) };
                format!("{value:>width$}", width = width(at))
            };
            let line: Vec<String> = row.iter().enumerate().map(cell).collect();
            let _ = writeln!(text, "{}", line.join("  "));
        }
        let mut links: Vec<&LinkUse> = self.links.iter().collect();
        links.sort_by(|one, other| other.utilisation.total_cmp(&one.utilisation));
        if !links.is_empty() {
            let _ = writeln!(text, "\nthe busiest of {} links that carried anything, last run:", links.len());
            links.iter().take(3).for_each(|link| {
                let _ = writeln!(text, "  {link}");
            });
        }
        text
    }

    fn json(&self) -> Value {
        let mut all = self.head.clone();
        let point = |row: &Vec<f64>| {
            let cells = self.columns.iter().zip(row).map(|((key, _), value)| ((*key).to_owned(), json!(value)));
            Value::Object(cells.collect())
        };
        all.insert("points".into(), self.rows.iter().map(point).collect());
        let link = |link: &LinkUse| {
            json!({ "name": link.name, "packets": link.packets, "bytes": link.bytes, "retries": link.retries,
                    "busy_ns": link.busy.0 as f64 / 1e3, "utilisation": link.utilisation })
        };
        all.insert("links".into(), self.links.iter().map(link).collect());
        if let Some((_, point)) = self.details.last() {
            all.append(&mut details(point));
        }
        if !self.ended.is_empty() {
            let times = self.ended.iter().map(|time| json!(time.0 as f64 / 1e3)).collect();
            all.insert("ended_ns".into(), times);
        }
        Value::Object(all)
    }

    fn csv(&self) -> String {
        let mut csv = self.columns.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(f64::to_string).collect();
            let _ = writeln!(csv, "{}", cells.join(","));
        }
        csv
    }

    /// The objects of a list of each run as CSV, a line each behind the run's size and load and its number; a pair
    /// is two columns.
    fn numbered(&self, number: &str, part: &str) -> String {
        let mut csv = String::new();
        for ((size, load), point) in &self.details {
            let list = details(point).remove(part).unwrap_or_default();
            let objects = || list.as_array().into_iter().flatten().filter_map(Value::as_object);
            if csv.is_empty() {
                csv = format!("size,load,{number}");
                for (key, value) in objects().next().into_iter().flatten() {
                    let names = if value.is_array() {
                        vec![format!("{key}_from"), format!("{key}_below")]
                    } else {
                        vec![key.clone()]
                    };
                    names.iter().for_each(|name| csv = format!("{csv},{name}"));
                }
                csv.push('\n');
            }
            for (index, object) in objects().enumerate() {
                let _ = write!(csv, "{size},{load},{index}");
                for value in object
                    .values()
                    .flat_map(|value| value.as_array().map_or_else(|| vec![value], |pair| pair.iter().collect()))
                {
                    let _ = if value.is_null() { write!(csv, ",") } else { write!(csv, ",{value}") };
                }
                csv.push('\n');
            }
        }
        csv
    }

    fn links_csv(&self) -> String {
        let mut csv = "link,packets,bytes,retries,busy_ns,utilisation\n".to_owned();
        for LinkUse { name, packets, bytes, retries, busy, utilisation, .. } in &self.links {
            let busy = busy.0 as f64 / 1e3;
            let _ = writeln!(csv, "\"{name}\",{packets},{bytes},{retries},{busy},{utilisation}");
        }
        csv
    }

    fn svg(&self, drawing: &Drawing) -> String {
        let series = drawing.lines.iter().enumerate().map(|(colour, (name, column))| {
            let points = self.rows.iter().map(|row| (row[drawing.x.0], row[*column] / drawing.unit)).collect();
            let style = if *name == "offered" { Style::Dashed } else { Style::Line };
            Series { name, style, colour, points }
        });
        let Drawing { title, x: (_, x), y, .. } = *drawing;
        let plot = Plot { name: "sweep", title, subtitle: "", x, y, series: series.collect() };
        plot.svg_with(&self.subtitle)
    }
}

/// What came of a run, rank by rank, class by class and interval by interval.
fn details(point: &Point) -> Map<String, Value> {
    let count = |count: &Count| json!({ "messages": count.messages, "bytes": count.bytes });
    let nanos = |span: Span| span.0 as f64 / 1e3;
    let class = |class: &ClassCount| {
        let messages = class.received.messages;
        let mean = (messages != 0).then(|| nanos(class.total) / messages as f64);
        let [median, p99] = [0.5, 0.99].map(|part| class.latency.bounds(part));
        json!({ "messages": messages, "bytes": class.received.bytes, "mean_ns": mean,
                "median_ns": [nanos(median.0), nanos(median.1)], "p99_ns": [nanos(p99.0), nanos(p99.1)],
                "longest_ns": nanos(class.latency.longest()) })
    };
    let mut all = Map::new();
    all.insert("received".into(), point.received.iter().map(count).collect());
    all.insert("classes".into(), point.classes.iter().map(class).collect());
    if let Some(interval) = point.interval {
        let of = |(index, came): (usize, &Count)| json!({ "from_ns": index as f64 * interval, "messages": came.messages, "bytes": came.bytes });
        all.insert("interval_ns".into(), json!(interval));
        all.insert("series".into(), point.series.iter().enumerate().map(of).collect());
    }
    all
}

/// A file beside another: `a.svg` and `-b` make `a-b.svg`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map_or(String::new(), |ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}{suffix}{ending}"))
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
}
