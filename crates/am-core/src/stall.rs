//! Why an endpoint does not get on: the stall report, the request that makes every endpoint of a process print its
//! own, and the time-out of waits.
//!
//! A wait has no limit unless [`Endpoint::set_timeout`](crate::Endpoint::set_timeout) or [`set_default_timeout`]
//! sets one; beyond it, it fails with a [`StallReport`]. [`request`] prints the reports of waits that go on.

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
/// Each endpoint prints one report per request, through [`set_printer`]'s function, when it next finds nothing to
/// serve: in a step of a wait, or in one of sixteen polls that serve no message. An endpoint that waits on a real
/// network does so within about a second, also if it sleeps. One that computes does so when it polls or waits
/// next, and one that is dropped before prints nothing. A simulated rank does so at its next turn.
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
/// The function runs inside a wait or a poll of the endpoint: it may allocate and block, and cannot use the
/// endpoint.
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

/// The requests that one peer has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unanswered {
    /// Their destination.
    pub to: Address,
    /// How many there are, of those that permit a reply. Exact unless `or_more`.
    pub requests: u64,
    /// Whether there may be more: some transports set room aside for replies in bytes and do not count them.
    pub or_more: bool,
    /// The handlers that they went to are among these: those of the latest requests to this peer that permit a
    /// reply, each once, from the latest on. Requests before the endpoint's latest 64 are not known.
    pub handlers: Vec<String>,
    /// How long ago the oldest one was sent, at least: the time that the wait has taken, since nothing is sent
    /// meanwhile. `None` outside of waits, and where several threads share the endpoint.
    pub age: Option<Span>,
}

/// Work that a layer could not do when its progress function was last called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerWork {
    /// The layer's name; empty for a progress function of the program's own.
    pub layer: String,
    /// The room that it lacked last, and towards whom; `None` if it waits for something else.
    pub lacks: Option<(Address, Resource)>,
}

impl fmt::Display for LayerWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.layer[..] {
            "" => f.write_str("the program's progress function has work left")?,
            layer => write!(f, "layer '{layer}' has work left")?,
        }
        self.lacks.map_or(Ok(()), |(to, resource)| write!(f, ": no {resource} left towards rank {to}"))
    }
}

/// A snapshot of why an endpoint does not get on.
///
/// Nothing is recorded per message for it but the handler and the destination of the latest 64 requests that
/// permit a reply; the rest comes from accounts that endpoint and transport keep anyway. Each field says what of
/// it is exact.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StallReport {
    /// The endpoint that waits.
    pub of: Address,
    /// How long the wait under way has taken; zero outside of waits. Exact where the wait has a time-out or a
    /// deadline, else counted from a moment after its first fruitless looks, since a short wait does not ask for
    /// the time.
    pub waited: Span,
    /// What the endpoint waits for, in words; empty outside of waits.
    pub waiting_for: String,
    /// The peer and resource that sending waits for, if it does.
    pub blocked_on: Option<(Address, Resource)>,
    /// The layers that could not do all of their work when they were last called.
    pub layers: Vec<LayerWork>,
    /// The peers whose message the wait needs, as far as known (a barrier knows).
    pub needs: Vec<Address>,
    /// The peers that have not answered all requests, by rank, where the transport keeps an account per peer.
    pub unanswered: Vec<Unanswered>,
    /// The peers that have not handled all requests, where the transport knows; told only by a wait for that, as
    /// in `drain`.
    pub unhandled: Vec<Address>,
    /// How many of this endpoint's requests were ended without a reply: their handlers let the token go. Exact,
    /// but `None` where the transport does not count unanswered requests exactly.
    pub ended: Option<u64>,
    /// Handlers of this endpoint that ended requests of others without a reply, and how many (exact).
    pub forgotten: Vec<(String, u64)>,
    /// Handlers of this endpoint that detached the tokens of requests which are not answered yet, and how many
    /// (exact).
    pub detached: Vec<(String, u64)>,
    /// Peers to which something is used up, and what is left towards them.
    pub short_of: Vec<(Address, CreditSnapshot)>,
    /// Lost ranks.
    pub lost: Vec<(Rank, LossCause)>,
}

/// Peers or handlers that one kind of clause names before the rest is only counted.
const NAMED: usize = 8;

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
        name(&mut clauses, &self.layers, "layers", LayerWork::to_string);
        name(&mut clauses, &self.needs, "ranks", |address| format!("nothing yet from rank {address}"));
        name(&mut clauses, &self.unanswered, "ranks with unanswered requests", Unanswered::to_string);
        name(&mut clauses, &self.unhandled, "ranks", |to| format!("rank {to} has not handled all requests"));
        if let Some(ended @ 1..) = self.ended {
            let plural = if ended == 1 { "request of this rank was" } else { "requests of this rank were" };
            clauses.push(format!("{ended} {plural} ended by a handler without a reply"));
        }
        name(&mut clauses, &self.forgotten, "handlers", |(handler, count)| {
            format!("handler '{handler}' ended {} without a reply", requests_of(*count))
        });
        name(&mut clauses, &self.detached, "handlers", |(handler, count)| {
            format!("handler '{handler}' detached {} that are not answered yet", requests_of(*count))
        });
        name(&mut clauses, &self.short_of, "ranks that something is used up towards", |(to, left)| {
            let CreditSnapshot { request_frames, request_bytes, reply_frames, reply_bytes } = left;
            format!(
                "towards rank {to}: {request_frames} request frames, {request_bytes} request bytes, {reply_frames} \
                 reply frames, {reply_bytes} reply bytes left"
            )
        });
        name(&mut clauses, &self.lost, "lost ranks", |(rank, cause)| format!("rank {rank} is lost ({cause})"));
        clauses
    }
}

/// Adds a clause for each of the first few, and one that counts the rest.
fn name<A>(clauses: &mut Vec<String>, all: &[A], what: &str, clause: impl Fn(&A) -> String) {
    clauses.extend(all.iter().take(NAMED).map(clause));
    if all.len() > NAMED {
        clauses.push(format!("and {} more {what}", all.len() - NAMED));
    }
}

fn requests_of(count: u64) -> String {
    if count == 1 { "1 request".into() } else { format!("{count} requests") }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_more = if self.or_more { " or more" } else { "" };
        let plural = if self.requests == 1 && !self.or_more { "request" } else { "requests" };
        write!(f, "{}{or_more} {plural} to rank {} unanswered", self.requests, self.to)?;
        match &self.handlers[..] {
            [] => {}
            [one] => write!(f, ", to handler '{one}'")?,
            several => write!(f, ", to handlers among '{}' (latest first)", several.join("', '"))?,
        }
        self.age.map_or(Ok(()), |age| write!(f, ", for at least {age}"))
    }
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clauses().join("; "))
    }
}
