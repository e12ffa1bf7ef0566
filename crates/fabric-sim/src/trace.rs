//! What a run leaves behind: the hash, latencies, the use of links, and, if asked for, spans of every packet and stage.

use am_core::{Instant, Span};
use std::fmt;
use std::io;

/// A 64-bit hash over everything that happened, the same on every machine and in every build.
#[derive(Clone, Copy)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    pub(crate) fn add(&mut self, word: u64) {
        // One round of multiplication and rotation: every bit of a word reaches every bit within two rounds.
        self.0 = (self.0 ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    }

    pub(crate) fn value(self) -> u64 {
        let mut hash = self;
        hash.add(0);
        hash.add(0);
        hash.0
    }
}

const SUB: usize = 8;

/// A histogram of latencies with a relative error below 1/8.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    longest: u64,
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 62 * SUB], count: 0, longest: 0 }
    }
}

impl Histogram {
    #[inline]
    fn bucket(value: u64) -> usize {
        if value < SUB as u64 {
            return value as usize;
        }
        let exponent = 63 - value.leading_zeros();
        (exponent as usize - 2) * SUB + (value >> (exponent - 3)) as usize % SUB
    }

    /// The smallest value of a bucket.
    fn floor(bucket: usize) -> u64 {
        if bucket < SUB {
            return bucket as u64;
        }
        ((SUB + bucket % SUB) as u64) << (bucket / SUB - 1)
    }

    #[inline]
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[Self::bucket(value)] += 1;
        self.count += 1;
        self.longest = self.longest.max(value);
    }

    /// Number of packets.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest latency.
    pub fn longest(&self) -> Span {
        Span(self.longest)
    }

    /// The latency that this part (0 to 1) of the packets stays at or below, rounded down by at most 1/8; zero without
    /// packets.
    pub fn quantile(&self, part: f64) -> Span {
        let wanted = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        Span(bucket.map_or(0, Self::floor))
    }

    /// The buckets that hold anything: smallest latency and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        filled.map(|(bucket, count)| (Span(Self::floor(bucket)), *count))
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most] = [0.5, 0.99].map(|part| self.quantile(part));
        write!(f, "{} packets, median {half}, 99 % {most}, longest {}", self.count, self.longest())
    }
}

/// The use of one link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// Where it leads, in words.
    pub name: String,
    /// Packets carried.
    pub packets: u64,
    /// Bytes carried, headers included.
    pub bytes: u64,
    /// Tries that failed and were repeated.
    pub retries: u64,
    /// Time in which it carried packets.
    pub busy: Span,
    /// The part of the run in which it did, 0 to 1.
    pub utilisation: f64,
}

/// A stage that a packet passes, as spans name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageKind {
    /// The sending interface, translation included.
    Send,
    /// A link, from the first to the last bit.
    Link,
    /// The receiving interface, matching and writing included.
    Receive,
    /// The whole way.
    Message,
}

/// A packet in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    /// The packet's number in the order of sending.
    pub packet: u64,
    /// Who sent it.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// The stage.
    pub stage: StageKind,
    /// The node or link, numbered as the machine does.
    pub place: u32,
    /// Begin.
    pub begin: Instant,
    /// End.
    pub end: Instant,
}

/// All spans of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The spans, in the order in which they were known.
    pub spans: Vec<TraceSpan>,
}

impl Trace {
    /// Writes the trace in the JSON format of Chrome's trace viewer, which Perfetto opens: a process for each kind of
    /// stage, a thread for each node or link.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome(&self, mut out: impl io::Write) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for (process, name) in ["send", "links", "receive", "messages"].into_iter().enumerate() {
            let event = serde_json::json!({
                "ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": { "name": name }
            });
            write!(out, "{event},")?;
        }
        for (index, span) in self.spans.iter().enumerate() {
            let thread = if span.stage == StageKind::Message { span.from } else { span.place };
            let micros = |picos: u64| picos as f64 / 1e6;
            // Messages of a rank overlap, so that they are asynchronous events; stages are complete ones.
            let name = format!("{} to {}", span.from, span.to);
            let (begin, length) = (micros(span.begin.0), micros(span.end.since(span.begin).picos()));
            let comma = if index == 0 { "" } else { "," };
            if span.stage == StageKind::Message {
                let mut event = serde_json::json!({
                    "ph": "b", "cat": "message", "id": span.packet, "pid": 3, "tid": thread, "name": name, "ts": begin
                });
                write!(out, "{comma}{event}")?;
                event["ph"] = "e".into();
                event["ts"] = micros(span.end.0).into();
                write!(out, ",{event}")?;
            } else {
                let event = serde_json::json!({
                    "ph": "X", "pid": span.stage as u32, "tid": thread, "name": name, "ts": begin, "dur": length,
                    "args": { "packet": span.packet }
                });
                write!(out, "{comma}{event}")?;
            }
        }
        if self.spans.is_empty() {
            write!(out, "{}", serde_json::json!({ "ph": "M", "pid": 0, "tid": 0, "name": "thread_name" }))?;
        }
        out.write_all(b"]}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_hold_their_values(value in 0u64..1 << 62) {
            let bucket = Histogram::bucket(value);
            prop_assert!(Histogram::floor(bucket) <= value && value < Histogram::floor(bucket + 1));
            prop_assert!((value - Histogram::floor(bucket)) as f64 <= value as f64 / 8.0);
        }
    }

    #[test]
    fn quantiles_count_from_below() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Span::ZERO);
        for value in [1, 2, 3, 1000] {
            histogram.add(value);
        }
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| histogram.quantile(part).0), [1, 2, 3, 960]);
        assert_eq!((histogram.longest(), histogram.count(), histogram.buckets().count()), (Span(1000), 4, 4));
    }

    #[test]
    fn the_export_is_json() {
        let span = |stage| TraceSpan {
            packet: 4,
            from: 0,
            to: 1,
            stage,
            place: 2,
            begin: Instant(1_000_000),
            end: Instant(3_000_000),
        };
        for spans in [vec![], vec![span(StageKind::Link), span(StageKind::Message)]] {
            let mut text = Vec::new();
            Trace { spans: spans.clone() }.write_chrome(&mut text).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let events = json["traceEvents"].as_array().unwrap();
            assert!(events.len() >= 4 + spans.len());
            if !spans.is_empty() {
                assert_eq!((events[4]["ph"].as_str(), events[4]["dur"].as_f64()), (Some("X"), Some(2.0)));
                assert_eq!((events[5]["ph"].as_str(), events[6]["ph"].as_str()), (Some("b"), Some("e")));
            }
        }
    }
}
