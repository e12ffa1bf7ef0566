//! What tests of transports themselves take messages with.

use am_core::arguments::Words;
use am_core::transport::{Arrival, ReplyPath, Sink};
use am_core::{Payload, Peer};

/// Counts requests, answers none, and ignores everything else.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingSink(pub u64);

impl Sink for CountingSink {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
        self.0 += 1;
    }

    fn reply(&mut self, _: Arrival<'_>) {}

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}
