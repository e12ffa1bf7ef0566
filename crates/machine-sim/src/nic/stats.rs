//! What ranks sent and received.

use am_core::{Instant, Span};
use fabric_sim::Histogram;

/// What one rank has measured since [`Nic::measure`](crate::Nic::measure).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measurements {
    /// Messages that left the rank, and their bytes.
    pub sent: Count,
    /// Messages that reached the rank, and their bytes.
    pub received: Count,
    /// Packets sent again because nobody had acknowledged them.
    pub repeated: u64,
    /// How long the rank's sending and receiving interface were occupied.
    pub busy: [Span; 2],
    /// Per size class: what reached the rank, and the time from the call of its sender.
    pub classes: Vec<ClassCount>,
    /// What reached the rank in each interval, from the time of the call on.
    pub series: Vec<Count>,
}

/// Messages and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Messages of one size class.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClassCount {
    /// How many and how long.
    pub received: Count,
    /// From the call that sent a message until it reached the program's queue.
    pub latency: Histogram,
    /// The sum of these times.
    pub total: Span,
}

impl ClassCount {
    /// Adds another count.
    pub fn merge(&mut self, other: &Self) {
        self.received.merge(&other.received);
        self.latency.merge(&other.latency);
        self.total.0 += other.total.0;
    }
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Adds another count.
    pub fn merge(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// The meter of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    since: Instant,
    interval: Option<Span>,
    pub(crate) found: Measurements,
}

/// Intervals of a series, at most.
const MOST: usize = 1 << 20;

impl Meter {
    pub(crate) fn new(since: Instant, interval: Option<Span>, classes: usize) -> Self {
        let found = Measurements { classes: vec![ClassCount::default(); classes], ..Measurements::default() };
        Self { since, interval, found }
    }

    pub(crate) fn received(&mut self, sent: Instant, now: Instant, class: usize, bytes: u64) {
        self.found.received.add(bytes);
        let took = now.since(sent);
        let class = &mut self.found.classes[class];
        class.received.add(bytes);
        class.latency.record(took);
        class.total.0 += took.0;
        if let Some(interval) = self.interval {
            let index = (now.since(self.since).0 / interval.0.max(1)) as usize;
            if index < MOST {
                if self.found.series.len() <= index {
                    self.found.series.resize(index + 1, Count::default());
                }
                self.found.series[index].add(bytes);
            }
        }
    }
}
