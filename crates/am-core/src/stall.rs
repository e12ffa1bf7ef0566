//! The stall report: who an endpoint is waiting for, and what is missing.

use crate::address::{Address, Rank};
use crate::time::Span;
use crate::transport::{CreditSnapshot, LossCause, Resource};
use std::fmt;

/// A snapshot of why an endpoint does not get on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StallReport {
    /// How long the current or last wait has taken.
    pub waited: Span,
    /// What the endpoint waits for, in words.
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

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waited {} for {}", self.waited, self.waiting_for)?;
        if let Some((to, resource)) = self.blocked_on {
            write!(f, "; no {resource} left towards rank {to}")?;
        }
        for address in &self.needs {
            write!(f, "; nothing yet from rank {address}")?;
        }
        for (to, left) in &self.short_of {
            write!(
                f,
                "; towards rank {to}: {} request frames, {} request bytes, {} reply frames, {} reply bytes left",
                left.request_frames, left.request_bytes, left.reply_frames, left.reply_bytes
            )?;
        }
        for (rank, cause) in &self.lost {
            write!(f, "; rank {rank} is lost ({cause})")?;
        }
        Ok(())
    }
}
