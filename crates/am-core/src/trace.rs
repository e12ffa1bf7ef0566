//! Events for the `tracing` crate, at the endpoint's rare moments; nothing at all without the feature of that
//! name.
//!
//! Nothing is traced per message: a message takes less time than asking whether anyone listens.

use crate::address::{Address, Rank};
use crate::error::BadMessage;
use crate::outcome::HandlerFailure;
use crate::stall::StallReport;
use crate::transport::{LossCause, Resource};

macro_rules! event {
    ($(#[$doc:meta])* $name:ident($($field:ident: $type:ty),*), $level:ident, $text:literal) => {
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        #[cold]
        pub(crate) fn $name($($field: $type),*) {
            tracing::$level!(target: "am_core", $($field = %$field),*, $text);
        }

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        #[inline(always)]
        pub(crate) fn $name($(_: $type),*) {}
    };
}

event!(
    /// An endpoint has joined its job.
    attached(address: Address, ranks: u32), debug, "attached");
event!(
    /// An endpoint has left its job after finishing.
    finished(address: Address), debug, "finished");
event!(
    /// Sending began to wait for a resource.
    stalled(to: Address, resource: Resource), debug, "waiting for room");
event!(
    /// A wait ran out of time.
    timed_out(report: &StallReport), warn, "timed out");
event!(
    /// A rank was lost.
    lost(rank: Rank, cause: LossCause), warn, "rank lost");
event!(
    /// A message was dropped.
    dropped(from: Address, handler: u8, reason: BadMessage), warn, "message dropped");
event!(
    /// A handler returned an error.
    failed(failure: &HandlerFailure), warn, "handler failed");
