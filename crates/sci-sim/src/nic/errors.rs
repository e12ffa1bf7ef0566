//! Transfer errors on purpose: which lines fail and how, drawn from a seed or planned. Both implementations use
//! it.

use super::kinds::{NodeId, SequenceStatus};
use fabric_sim::splitmix64;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// Transfer errors of an adapter, besides those that a simulated network's faults bring. The default is none.
///
/// ```
/// let config = sci_sim::SciConfig::from_toml("
///     ranks = 2
///     topology = { kind = 'torus', dims = [2, 1] }
///     errors = { seed = 3, retriable = 0.01, planned = [{ node = 4, line = 2, status = 'pending' }] }
/// ").unwrap();
/// assert_eq!(config.errors.planned.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransferErrors {
    /// Where the draws come from, together with the node's number and, in virtual time, the seed of the faults.
    pub seed: u64,
    /// Probability that a line fails for a passing reason.
    pub retriable: f64,
    /// Probability that a line fails for a lasting reason. One to three starts of the sequence later it works
    /// again.
    pub not_retriable: f64,
    /// Probability that a line fails and the driver does not know yet why. One to three starts later it works
    /// again.
    pub pending: f64,
    /// Lines that fail for sure.
    pub planned: Vec<PlannedError>,
}

/// A line that fails for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedError {
    /// The node that stores it.
    pub node: u16,
    /// Its number among the lines that the node stores to others and among the transfers of its DMA engine, from
    /// 0.
    pub line: u64,
    /// What its sequence says.
    pub status: PlannedStatus,
    /// Whether it lands although it counts as failed.
    #[serde(default)]
    pub lands: bool,
}

/// How a planned line fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedStatus {
    /// For a passing reason.
    Retriable,
    /// For a lasting one.
    NotRetriable,
    /// Nobody knows yet.
    Pending,
}

/// How bad a failure is; the worst of a sequence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Passing,
    Unclear,
    Lasting,
}

impl Severity {
    pub(crate) const fn status(self) -> SequenceStatus {
        match self {
            Self::Passing => SequenceStatus::Retriable,
            Self::Unclear => SequenceStatus::Pending,
            Self::Lasting => SequenceStatus::NotRetriable,
        }
    }
}

/// What a sequence is to be told of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Failure {
    pub(crate) severity: Severity,
    /// How many starts of the sequence say so once more.
    pub(crate) restarts: u8,
}

impl Failure {
    pub(crate) const fn new(severity: Severity) -> Self {
        Self { severity, restarts: 0 }
    }

    /// Adds a failure to what was known.
    pub(crate) fn worsen(known: &mut Option<Self>, new: Self) {
        *known = Some(known.map_or(new, |known| known.max(new)));
    }
}

/// A failure that is injected into a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Injected {
    pub(crate) failure: Failure,
    /// Whether the line lands all the same.
    pub(crate) lands: bool,
}

/// The errors of one node.
#[derive(Debug)]
pub(crate) struct Injector {
    random: u64,
    /// A draw below the first fails as `Passing`, below the second as `Unclear`, below the third as `Lasting`.
    bounds: [u64; 3],
    /// By line, ascending.
    planned: Vec<PlannedError>,
    next: usize,
    lines: u64,
    any: bool,
}

impl TransferErrors {
    /// Checks the probabilities; complains by field, value and limit.
    pub(crate) fn check<E>(&self, complain: impl Fn(&str, &dyn Display, &str) -> E) -> Result<(), E> {
        for (field, value) in [
            ("errors.retriable", self.retriable),
            ("errors.not_retriable", self.not_retriable),
            ("errors.pending", self.pending),
        ] {
            if !(0.0..1.0).contains(&value) {
                return Err(complain(field, &value, "a probability from 0 to below 1"));
            }
        }
        let sum = self.retriable + self.not_retriable + self.pending;
        if sum > 0.9 {
            return Err(complain("errors", &sum, "probabilities that together are at most 0.9"));
        }
        Ok(())
    }
}

impl Injector {
    pub(crate) fn new(errors: &TransferErrors, seed: u64, node: NodeId) -> Self {
        let bound = |probability: f64| (probability * 18_446_744_073_709_551_616.0) as u64;
        let passing = errors.retriable;
        let unclear = passing + errors.pending;
        let lasting = unclear + errors.not_retriable;
        let mut planned: Vec<_> = errors.planned.iter().filter(|error| error.node == node.0).copied().collect();
        planned.sort_by_key(|error| error.line);
        let mut random = errors.seed ^ seed.rotate_left(17) ^ u64::from(node.0) << 40;
        splitmix64(&mut random);
        let any = lasting > 0.0 || !planned.is_empty();
        Self { random, bounds: [passing, unclear, lasting].map(bound), planned, next: 0, lines: 0, any }
    }

    /// What happens to the next line; mostly nothing.
    #[inline]
    pub(crate) fn draw(&mut self) -> Option<Injected> {
        if !self.any {
            return None;
        }
        self.decide()
    }

    #[cold]
    fn decide(&mut self) -> Option<Injected> {
        let line = self.lines;
        self.lines += 1;
        if let Some(planned) = self.planned.get(self.next)
            && planned.line == line
        {
            while self.planned.get(self.next).is_some_and(|next| next.line == line) {
                self.next += 1;
            }
            let severity = match planned.status {
                PlannedStatus::Retriable => Severity::Passing,
                PlannedStatus::NotRetriable => Severity::Lasting,
                PlannedStatus::Pending => Severity::Unclear,
            };
            let restarts = u8::from(severity != Severity::Passing);
            return Some(Injected { failure: Failure { severity, restarts }, lands: planned.lands });
        }
        let drawn = splitmix64(&mut self.random);
        let severities = [Severity::Passing, Severity::Unclear, Severity::Lasting];
        let index = self.bounds.iter().position(|bound| drawn < *bound)?;
        let more = splitmix64(&mut self.random);
        let restarts = if index == 0 { 0 } else { (more >> 8) as u8 % 3 };
        let failure = Failure { severity: severities[index], restarts };
        Some(Injected { failure, lands: more & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_probabilities_and_the_seed() {
        let errors = TransferErrors { retriable: 0.1, not_retriable: 0.02, pending: 0.05, ..Default::default() };
        let draw = |seed| {
            let mut injector = Injector::new(&errors, seed, NodeId(4));
            (0..20_000).map(|_| injector.draw()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        for (severity, expected) in
            [(Severity::Passing, 2000), (Severity::Lasting, 400), (Severity::Unclear, 1000)]
        {
            let found = drawn.iter().flatten().filter(|injected| injected.failure.severity == severity).count();
            assert!(found.abs_diff(expected) < expected / 5, "{severity:?}: {found} instead of {expected}");
        }
        let landed = drawn.iter().flatten().filter(|injected| injected.lands).count();
        assert!((1500..1900).contains(&landed), "{landed} of the failed lines land");
    }

    #[test]
    fn planned_lines_fail_once_and_on_their_node_only() {
        let planned = PlannedError { node: 8, line: 3, status: PlannedStatus::Pending, lands: true };
        let errors = TransferErrors { planned: vec![planned], ..Default::default() };
        let failing = |node| {
            let mut injector = Injector::new(&errors, 0, NodeId(node));
            (0..10).filter(|_| injector.draw().is_some_and(|injected| injected.lands)).count()
        };
        assert_eq!((failing(8), failing(4)), (1, 0));
        let mut injector = Injector::new(&errors, 0, NodeId(8));
        assert_eq!((0..10).position(|_| injector.draw().is_some()), Some(3));
    }
}
