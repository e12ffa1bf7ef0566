//! The report of a run: which cases ran with how many ranks, how long they took, and what went wrong.

use std::fmt;
use std::time::Duration;

/// The outcome of one case with one number of ranks.
#[derive(Clone, Debug)]
pub struct Line {
    /// The item of the conformance list.
    pub item: u8,
    /// The case's name.
    pub name: &'static str,
    /// Ranks of the job.
    pub ranks: u32,
    /// How long it took by the clock on the wall; told, never judged.
    pub took: Duration,
    /// What went wrong, one text per rank; empty if nothing did.
    pub problems: Vec<String>,
}

/// A case that a run leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The item of the conformance list.
    pub item: u8,
    /// The case's name.
    pub name: &'static str,
    /// Why it cannot be run.
    pub reason: &'static str,
}

/// What a run of the suite found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The transport's name.
    pub fabric: String,
    /// The seed that repeats the run.
    pub seed: u64,
    /// One line per case and number of ranks.
    pub lines: Vec<Line>,
    /// Cases that this kind of run leaves out, with the reason.
    pub skipped: Vec<Skipped>,
}

impl Report {
    /// Whether nothing went wrong, and anything ran at all.
    pub fn passed(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(|line| line.problems.is_empty())
    }

    /// Prints the report.
    ///
    /// # Panics
    /// Unless the run [passed](Self::passed).
    pub fn check(&self) {
        println!("{self}");
        let failed = self.lines.iter().filter(|line| !line.problems.is_empty()).count();
        assert!(self.passed(), "{failed} of {} conformance cases failed over {}", self.lines.len(), self.fabric);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {} (repeat with AM_CONFORMANCE_SEED={})", self.fabric, self.seed)?;
        for Line { item, name, ranks, took, problems } in &self.lines {
            let outcome = if problems.is_empty() { "ok" } else { "FAILED" };
            writeln!(f, "{item:>4}  {name:<28} {ranks:>3} ranks {:>9.3} s  {outcome}", took.as_secs_f64())?;
            for problem in problems {
                writeln!(f, "      {problem}")?;
            }
        }
        for Skipped { item, name, reason } in &self.skipped {
            writeln!(f, "{item:>4}  {name:<28} skipped: {reason}")?;
        }
        Ok(())
    }
}
