//! Spans, and the numbers by which those of one rank are the children of another's.
//!
//! Where the settings ask for it, 32 bytes stand before each request: the number of the trace, that of the
//! caller's span, and zeros, which keep the alignment of what follows. Ranks compare at attach whether they do.

use crate::meter::End;
use am_core::Address;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes before a request.
const ENVELOPE: usize = 32;

/// A span as other ranks, and other systems, know it: the number of its trace, and its own. Its text is the
/// `traceparent` of W3C's Trace Context, version 00.
///
/// Numbers are SplitMix64 of the endpoint's address and a counter: the same in every run, and unlike within a job.
/// Who collects the traces of several jobs begins each with a number of its own:
/// [`Caller::traced`](crate::Caller::traced).
///
/// ```
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context: am_async::TraceContext = text.parse()?;
/// assert_eq!((context.span_id, context.to_string().as_str()), (0xb7ad6b7169203331, text));
/// # Ok::<(), am_async::BadTraceContext>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace: all spans that one call has led to.
    pub trace_id: u128,
    /// The span.
    pub span_id: u64,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

/// A text that is no `traceparent` of version 00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no traceparent: it is written 00-, 32 hexadecimal digits, -, 16 of them, -, and two of flags")]
pub struct BadTraceContext;

impl FromStr for TraceContext {
    type Err = BadTraceContext;

    fn from_str(text: &str) -> Result<Self, BadTraceContext> {
        let parts: Vec<&str> = text.split('-').collect();
        let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase());
        let ["00", trace, span, flags] = parts[..] else { return Err(BadTraceContext) };
        if (trace.len(), span.len(), flags.len()) != (32, 16, 2) || !parts.iter().all(is_hex) {
            return Err(BadTraceContext);
        }
        let bad = |_: ParseIntError| BadTraceContext;
        let trace_id = u128::from_str_radix(trace, 16).map_err(bad)?;
        let span_id = u64::from_str_radix(span, 16).map_err(bad)?;
        if trace_id == 0 || span_id == 0 { Err(BadTraceContext) } else { Ok(Self { trace_id, span_id }) }
    }
}

/// What a call is part of, if it is part of something.
pub(crate) type Trace = Option<TraceContext>;

/// The span of a call.
#[derive(Debug)]
pub(crate) struct Span(tracing::Span);

impl Default for Span {
    fn default() -> Self {
        Self(tracing::Span::none())
    }
}

impl Span {
    pub(crate) fn enter(&self) -> tracing::span::Entered<'_> {
        self.0.enter()
    }

    /// The call has ended so.
    pub(crate) fn ended(&self, end: impl FnOnce() -> End) {
        if !self.0.is_none() {
            self.0.record("outcome", end().name());
        }
    }
}

/// Makes spans, if it is to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer(Option<Arc<Tracing>>);

#[derive(Debug)]
struct Tracing {
    /// The names of methods.
    names: Vec<String>,
    /// What tells the endpoint's numbers from others'.
    seed: AtomicU64,
    next: AtomicU64,
}

/// Sebastiano Vigna's SplitMix64, one step.
fn split_mix(state: u64) -> u64 {
    let mut word = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Tracing {
    /// A number that no other span has.
    fn number(&self) -> u64 {
        // Zero is no number.
        split_mix(self.seed.load(Relaxed) ^ self.next.fetch_add(1, Relaxed)).max(1)
    }

    /// A number that no other trace has.
    fn trace_number(&self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }

    fn name(&self, method: u16) -> &str {
        self.names.get(usize::from(method)).map_or("", String::as_str)
    }
}

impl Tracer {
    /// Traces calls of methods with these names.
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self(Some(Arc::new(Tracing { names, seed: AtomicU64::new(0), next: AtomicU64::new(0) })))
    }

    /// The endpoint has this address.
    pub(crate) fn is_at(&self, address: Address) {
        if let Some(tracing) = &self.0 {
            let place = (u64::from(address.rank.0) << 16 | u64::from(address.endpoint)) + 1;
            tracing.seed.store(split_mix(place), Relaxed);
        }
    }

    /// Bytes before a request.
    #[inline]
    pub(crate) fn envelope(&self) -> usize {
        if self.0.is_some() { ENVELOPE } else { 0 }
    }

    /// Begins a request; returns its caller's span, which is there as long as it is.
    pub(crate) fn call(&self, parent: Trace, method: u16, to: Address, request: &mut Vec<u8>) -> Span {
        let Some(tracing) = &self.0 else { return Span::default() };
        let trace_id = parent.map_or_else(|| tracing.trace_number(), |parent| parent.trace_id);
        let span_id = tracing.number();
        request.extend_from_slice(&trace_id.to_le_bytes());
        request.extend_from_slice(&span_id.to_le_bytes());
        request.extend_from_slice(&[0; 8]);
        let span = tracing::debug_span!(
            target: "am_async",
            "call",
            method = tracing.name(method),
            to = %to,
            trace_id = %format_args!("{trace_id:032x}"),
            span_id = %format_args!("{span_id:016x}"),
            parent_span_id = tracing::field::Empty,
            outcome = tracing::field::Empty,
        );
        if let Some(parent) = parent {
            span.record("parent_span_id", tracing::field::display(format_args!("{:016x}", parent.span_id)));
        }
        Span(span)
    }

    /// The span of several calls of one method, which are its children, and its numbers. `kind` says what they are
    /// to each other.
    pub(crate) fn several(&self, parent: Trace, kind: &'static str, method: u16) -> (Span, Trace) {
        let Some(tracing) = &self.0 else { return (Span::default(), parent) };
        let trace_id = parent.map_or_else(|| tracing.trace_number(), |parent| parent.trace_id);
        let span_id = tracing.number();
        let span = tracing::debug_span!(
            target: "am_async",
            "calls",
            kind,
            method = tracing.name(method),
            trace_id = %format_args!("{trace_id:032x}"),
            span_id = %format_args!("{span_id:016x}"),
            parent_span_id = tracing::field::Empty,
        );
        if let Some(parent) = parent {
            span.record("parent_span_id", tracing::field::display(format_args!("{:016x}", parent.span_id)));
        }
        (Span(span), Some(TraceContext { trace_id, span_id }))
    }

    /// What stands before a request, and the rest of it; none if it is no request.
    #[inline]
    pub(crate) fn open<'a>(&self, request: &'a [u8]) -> Option<(Trace, &'a [u8])> {
        if self.0.is_none() {
            return Some((None, request));
        }
        let (trace, rest) = request.split_first_chunk::<16>()?;
        let (span, rest) = rest.split_first_chunk::<8>()?;
        let (_, rest) = rest.split_first_chunk::<8>()?;
        let (trace_id, span_id) = (u128::from_le_bytes(*trace), u64::from_le_bytes(*span));
        // Zero is no number.
        let context = (trace_id != 0 && span_id != 0).then_some(TraceContext { trace_id, span_id });
        Some((context, rest))
    }

    /// The span of the work on a request, a child of the caller's, and its numbers.
    pub(crate) fn serve(&self, caller: Trace, method: u16, from: Address) -> (Span, Trace) {
        let (Some(tracing), Some(TraceContext { trace_id, span_id: parent })) = (&self.0, caller) else {
            return (Span::default(), None);
        };
        // As unlike others' as the caller's is, before this endpoint knows its address.
        let span_id = split_mix(parent).max(1);
        let span = tracing::debug_span!(
            target: "am_async",
            // Not a child of whatever this thread is doing otherwise.
            parent: None,
            "serve",
            method = tracing.name(method),
            from = %from,
            trace_id = %format_args!("{trace_id:032x}"),
            span_id = %format_args!("{span_id:016x}"),
            parent_span_id = %format_args!("{parent:016x}"),
        );
        (Span(span), Some(TraceContext { trace_id, span_id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_traceparent_is_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(good.parse::<TraceContext>().map(|context| context.to_string()).as_deref(), Ok(good));
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let other = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let upper = "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let signed = "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for bad in ["", "00", zero, other, upper, signed, &good[..54], &format!("{good}-00")] {
            assert_eq!(bad.parse::<TraceContext>(), Err(BadTraceContext), "{bad}");
        }
    }

    #[test]
    fn a_truncated_envelope_is_none() {
        let tracer = Tracer::new(vec!["method".into()]);
        let mut request = Vec::new();
        let context = TraceContext { trace_id: 1 << 100 | 7, span_id: 9 };
        drop(tracer.call(Some(context), 0, am_core::Rank(1).into(), &mut request));
        assert_eq!(request.len(), tracer.envelope());
        request.push(5);
        let (trace, rest) = tracer.open(&request).unwrap();
        assert_eq!((trace.map(|trace| trace.trace_id), rest), (Some(context.trace_id), &[5][..]));
        assert!((0..ENVELOPE).all(|len| tracer.open(&request[..len]).is_none()));
        request[..16].fill(0);
        assert_eq!(tracer.open(&request), Some((None, &[5][..])));
    }
}
