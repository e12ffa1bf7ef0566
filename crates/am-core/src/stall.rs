//! Why an endpoint does not get on: the stall report, the request that makes every endpoint of a process print its own,
//! and the time-out of waits.
//!
//! A wait has no limit unless [`Endpoint::set_timeout`](crate::Endpoint::set_timeout) or [`set_default_timeout`] sets one;
//! beyond it, it fails with a [`StallReport`]. [`request`] prints the reports of waits that go on.

use crate::address::{Address, Rank};
use crate::time::Span;
use crate::transport::{CreditSnapshot, LossCause, Resource};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// How many reports have been requested of this process.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// The time-out of endpoints that attach, in picoseconds.
static DEFAULT_TIMEOUT: AtomicU64 = AtomicU64::new(NO_TIMEOUT);
const NO_TIMEOUT: u64 = u64::MAX;

type Printer = Arc<dyn Fn(&StallReport) + Send + Sync>;

/// What prints requested reports, unless it is standard error.
static PRINTER: RwLock<Option<Printer>> = RwLock::new(None);

/// Asks every endpoint of this process for its stall report.
///
/// Each endpoint prints one report per request, through [`set_printer`]'s function, when it next finds nothing to serve:
/// in a step of a wait, or in one of sixteen polls that serve no message. An endpoint that waits on a real network does so within about
/// a second, also if it sleeps. One that computes does so when it polls or waits next, and one that is dropped before
/// prints nothing. A simulated rank does so at its next turn.
///
/// May be called from any thread and from a signal handler: it increments one atomic number and does nothing else.
pub fn request() {
    // Relaxed: only the number itself is shared.
    REQUESTS.fetch_add(1, Relaxed);
}

/// How many reports have been requested so far, wrapping.
#[inline]
pub(crate) fn requests() -> u32 {
    // Relaxed: a later look sees the request, too.
    REQUESTS.load(Relaxed)
}

/// Sets what prints the reports that [`request`] asks for, for all endpoints of this process. The default writes
/// [`StallReport::lines`] to standard error.
///
/// The function runs inside a wait or a poll of the endpoint: it may allocate and block, and cannot use the endpoint.
pub fn set_printer(printer: impl Fn(&StallReport) + Send + Sync + 'static) {
    *PRINTER.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(printer));
}

/// Prints a report.
#[cold]
pub(crate) fn print(report: &StallReport) {
    let printer = PRINTER.read().unwrap_or_else(PoisonError::into_inner).clone();
    match printer {
        Some(printer) => printer(report),
        // In one piece, so that the reports of several ranks do not mix. There is nobody to tell if it fails.
        None => drop(std::io::stderr().lock().write_all(report.lines().as_bytes())),
    }
}

/// Sets the time-out of all endpoints of this process that attach from now on; `None`, the initial value, is none.
/// A launcher sets it from the environment. [`Endpoint::set_timeout`](crate::Endpoint::set_timeout) overrides it.
pub fn set_default_timeout(timeout: Option<Span>) {
    // Relaxed: only the number itself is shared.
    DEFAULT_TIMEOUT.store(timeout.map_or(NO_TIMEOUT, |span| span.0.min(NO_TIMEOUT - 1)), Relaxed);
}

/// The time-out of endpoints that attach now.
pub fn default_timeout() -> Option<Span> {
    // Relaxed: only the number itself is shared.
    Some(DEFAULT_TIMEOUT.load(Relaxed)).filter(|picos| *picos != NO_TIMEOUT).map(Span)
}

/// A snapshot of why an endpoint does not get on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StallReport {
    /// The endpoint that waits.
    pub of: Address,
    /// How long the wait under way has taken; zero outside of waits. Exact where the wait has a time-out or a deadline, else
    /// counted from a moment after its first fruitless looks, since a short wait does not ask for the time.
    pub waited: Span,
    /// What the endpoint waits for, in words; empty outside of waits.
    pub waiting_for: String,
    /// The peer and resource that sending waits for, if it does.
    pub blocked_on: Option<(Address, Resource)>,
    /// The peers whose message the wait needs, as far as known (a barrier knows).
    pub needs: Vec<Address>,
    /// Peers to which something is used up, and what is left towards them.
    pub short_of: Vec<(Address, CreditSnapshot)>,
    /// Lost ranks.
    pub lost: Vec<(Rank, LossCause)>,
}

impl StallReport {
    /// The report as lines that each begin with the rank and end with a line feed (allocates).
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for clause in self.clauses() {
            writeln!(lines, "rank {}: {clause}", self.of).expect("writing to a string cannot fail");
        }
        lines
    }

    /// What the report has to say, in the order of its fields.
    fn clauses(&self) -> Vec<String> {
        let mut clauses = vec![if self.waiting_for.is_empty() {
            "not inside a wait".into()
        } else {
            format!("waited {} for {}", self.waited, self.waiting_for)
        }];
        if let Some((to, resource)) = self.blocked_on {
            clauses.push(format!("no {resource} left towards rank {to}"));
        }
        clauses.extend(self.needs.iter().map(|address| format!("nothing yet from rank {address}")));
        clauses.extend(self.short_of.iter().map(|(to, left)| {
            let CreditSnapshot { request_frames, request_bytes, reply_frames, reply_bytes } = left;
            format!(
                "towards rank {to}: {request_frames} request frames, {request_bytes} request bytes, {reply_frames} \
                 reply frames, {reply_bytes} reply bytes left"
            )
        }));
        clauses.extend(self.lost.iter().map(|(rank, cause)| format!("rank {rank} is lost ({cause})")));
        clauses
    }
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clauses().join("; "))
    }
}
