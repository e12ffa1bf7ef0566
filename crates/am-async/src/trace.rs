//! Spans of calls for the crate `tracing`, and their numbers, which travel with requests; nothing at all without
//! the feature of that name.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{Span, Trace, Tracer};
#[cfg(feature = "tracing")]
pub use on::{BadTraceContext, TraceContext};
#[cfg(feature = "tracing")]
pub(crate) use on::{Span, Trace, Tracer};
