//! What the ranks measured: gathered at rank 0, printed as a table or as one JSON object.

use super::cli::{Options, name};
use super::error::RunError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What one rank measured between the barriers, sent to rank 0 as JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// Words of the table that it owns.
    pub words: u64,
    /// Updates that it made.
    pub updates: u64,
    /// Wall-clock time from barrier to barrier, with everything sent also applied.
    pub seconds: f64,
    /// Requests that it sent.
    pub messages: u64,
    /// Payload bytes of these requests.
    pub bytes: u64,
    /// What sending found used up, and how often.
    pub stalls: Vec<(String, u64)>,
    /// How often it went idle while it waited.
    pub idles: u64,
    /// Words with a wrong final value; `None` without verification.
    pub errors: Option<u64>,
}

/// What all ranks measured.
#[derive(Clone, Debug)]
pub struct Report {
    options: Options,
    backend: String,
    ranks: Vec<RankReport>,
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Json {
    backend: String,
    variant: String,
    ranks: u32,
    log2_table: u32,
    updates: u64,
    seconds: f64,
    gups: f64,
    errors: Option<u64>,
}

impl Report {
    /// The report of a run from those of its ranks, in any order.
    pub fn new(options: &Options, backend: &str, mut ranks: Vec<RankReport>) -> Self {
        ranks.sort_by_key(|report| report.rank);
        Self { options: options.clone(), backend: backend.into(), ranks }
    }

    /// The time of the slowest rank.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds())
    }

    fn seconds(&self) -> f64 {
        self.ranks.iter().map(|report| report.seconds).fold(0.0, f64::max)
    }

    fn sum(&self, of: impl Fn(&RankReport) -> u64) -> u64 {
        self.ranks.iter().map(of).sum()
    }

    /// Words with a wrong final value; `None` without verification.
    fn errors(&self) -> Option<u64> {
        self.ranks.iter().map(|report| report.errors).sum()
    }

    /// Judges the run; one that was not verified passes.
    ///
    /// # Errors
    /// [`RunError::Verification`] if there are more errors than the variant allows.
    pub fn verdict(&self) -> Result<(), RunError> {
        let (errors, allowed) = (self.errors().unwrap_or(0), self.allowed());
        if errors > allowed { Err(RunError::Verification { errors, allowed }) } else { Ok(()) }
    }

    fn allowed(&self) -> u64 {
        self.options.variant.allowed_errors(1 << self.options.log2_table)
    }

    /// What a run with another number of updates than the rules ask for has to say.
    pub fn caveat(&self) -> Option<String> {
        let (made, full) = (self.options.update_count(), self.options.full_run());
        (made != full).then(|| format!("{made} updates instead of the {full} of a full run"))
    }

    /// The one JSON object of `--json`, on one line.
    pub fn json(&self) -> String {
        let (updates, seconds) = (self.sum(|report| report.updates), self.seconds());
        let json = Json {
            backend: self.backend.clone(),
            variant: name(self.options.variant),
            ranks: self.ranks.len() as u32,
            log2_table: self.options.log2_table,
            updates,
            seconds,
            gups: updates as f64 / seconds * 1e-9,
            errors: self.errors(),
        };
        serde_json::to_string(&json).expect("numbers and strings are JSON")
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, ranks: &[RankReport]) -> fmt::Result {
        let sum = |of: fn(&RankReport) -> u64| ranks.iter().map(of).sum::<u64>();
        let (seconds, updates) = (self.seconds(), sum(|report| report.updates));
        writeln!(
            f,
            "{name:<10} {:>12} {updates:>13} {:>9.5} {:>12.0} {:>9.1} {:>9}",
            sum(|report| report.words),
            updates as f64 / seconds * 1e-9,
            sum(|report| report.messages) as f64 / seconds,
            sum(|report| report.bytes) as f64 / seconds * 1e-6,
            sum(|report| report.stalls.iter().map(|(_, count)| count).sum()),
        )
    }
}

/// A size in bytes with a binary prefix.
fn binary(bytes: u64) -> String {
    let (mut value, mut prefix) = (bytes as f64, 0);
    while value >= 1024.0 && prefix < 4 {
        value /= 1024.0;
        prefix += 1;
    }
    format!("{value} {}", ["B", "KiB", "MiB", "GiB", "TiB"][prefix])
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, words) = (&self.options, 1_u64 << self.options.log2_table);
        let (variant, backend, ranks) = (name(options.variant), &self.backend, self.ranks.len());
        let size = binary(8 * words);
        writeln!(
            f,
            "RandomAccess: {words} words ({size}) on {ranks} rank(s), variant {variant}, backend {backend}"
        )?;
        writeln!(f, "{} updates in {:.3} s", self.sum(|report| report.updates), self.seconds())?;
        if let Some(caveat) = self.caveat() {
            writeln!(f, "note: {caveat}: no HPCC result")?;
        }
        writeln!(f)?;
        let head = ["words", "updates", "GUPS", "messages/s", "MB/s", "stalls"];
        let [words_head, updates, gups, messages, bytes, stalls] = head;
        writeln!(f, "{:<10} {words_head:>12} {updates:>13} {gups:>9} {messages:>12} {bytes:>9} {stalls:>9}", "")?;
        for report in &self.ranks {
            self.row(f, &format!("rank {}", report.rank), std::slice::from_ref(report))?;
        }
        self.row(f, "total", &self.ranks)?;
        writeln!(f)?;
        let stalled = self.ranks.iter().flat_map(|report| report.stalls.iter().map(move |stall| (report, stall)));
        let mut any = false;
        for (report, (resource, count)) in stalled {
            any = true;
            writeln!(f, "stalls: rank {} found no {resource} left {count} times", report.rank)?;
        }
        if !any {
            writeln!(f, "stalls: none, sending always found room")?;
        }
        writeln!(f, "idle waits: {}", self.sum(|report| report.idles))?;
        match self.errors() {
            Some(errors) => {
                let (allowed, verdict) =
                    (self.allowed(), if self.verdict().is_ok() { "verified" } else { "FAILED" });
                write!(f, "{verdict}: {errors} errors in {words} words ({allowed} allowed)")
            }
            None => write!(f, "not verified"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_access::cli::Cli;
    use clap::Parser;

    fn report(arguments: &[&str], errors: [Option<u64>; 2]) -> Report {
        let cli = Cli::try_parse_from(std::iter::once(&"random_access").chain(arguments)).unwrap();
        let rank = |rank: u32| RankReport {
            rank,
            words: 512,
            updates: 2048,
            seconds: 0.5 + f64::from(rank),
            messages: 30,
            bytes: 240,
            stalls: if rank == 1 { vec![("request frames".into(), 7)] } else { vec![] },
            idles: 2,
            errors: errors[rank as usize],
        };
        Report::new(&cli.options, &name(cli.backend), vec![rank(1), rank(0)])
    }

    #[test]
    fn the_json_object_has_the_slowest_time_and_all_updates() {
        let report = report(&["--log2-table", "10", "--ranks", "2", "--backend", "shm"], [Some(0), Some(0)]);
        let expected =
            r#"{"backend":"shm","variant":"medium","ranks":2,"log2_table":10,"updates":4096,"seconds":1.5,"#;
        let json = report.json();
        assert!(json.starts_with(expected) && json.ends_with(r#","errors":0}"#), "{json}");
        assert!((report.sum(|r| r.updates) as f64 / 1.5e9 - 2.73e-6).abs() < 1e-8);
    }

    #[test]
    fn errors_that_a_variant_may_have() {
        assert!(report(&["--log2-table", "10"], [Some(0), Some(0)]).verdict().is_ok());
        assert!(report(&["--log2-table", "10"], [Some(0), Some(1)]).verdict().is_err());
        assert!(report(&["--log2-table", "10", "--variant", "atomic"], [Some(1), Some(0)]).verdict().is_err());
        assert!(report(&["--log2-table", "10", "--variant", "put-get"], [Some(5), Some(5)]).verdict().is_ok());
        assert!(report(&["--log2-table", "10", "--variant", "put-get"], [Some(5), Some(6)]).verdict().is_err());
        assert!(report(&["--log2-table", "10"], [None, None]).verdict().is_ok());
    }

    #[test]
    fn the_table_names_stalls_errors_and_shortened_runs() {
        let text = report(&["--log2-table", "10", "--updates", "4000"], [Some(0), Some(3)]).to_string();
        for part in [
            "1024 words (8 KiB) on 2 rank(s)",
            "4000 updates instead of the 4096 of a full run",
            "rank 1 found no request frames left 7 times",
            "FAILED: 3 errors in 1024 words (0 allowed)",
            "idle waits: 4",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(report(&["--log2-table", "10"], [None, None]).to_string().ends_with("not verified"));
    }
}
