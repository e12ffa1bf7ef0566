//! What a run leaves behind: the hash, latencies, the use of links, and, if asked for, spans of every packet and
//! stage.

use am_core::{Instant, Span};
use serde_json::json;
use std::collections::BTreeSet;
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

    /// Adds a latency.
    #[inline]
    pub fn record(&mut self, latency: Span) {
        self.add(latency.0);
    }

    /// Adds all of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
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

    /// The latency that this part (0 to 1) of the packets stays at or below, rounded down by at most 1/8; zero
    /// without packets. [`Histogram::bounds`] has both ends of its bucket.
    pub fn quantile(&self, part: f64) -> Span {
        self.bounds(part).0
    }

    /// The bucket of the latency that this part (0 to 1) of the packets stays at or below: that latency is at
    /// least the first and at most the second. Zeros without packets.
    pub fn bounds(&self, part: f64) -> (Span, Span) {
        let wanted = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let Some(bucket) = bucket else { return (Span::ZERO, Span::ZERO) };
        let end = if bucket + 1 < self.counts.len() { Self::floor(bucket + 1) } else { u64::MAX };
        (Span(Self::floor(bucket)), Span(end.min(self.longest)))
    }

    /// The buckets that hold anything: smallest latency and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        filled.map(|(bucket, count)| (Span(Self::floor(bucket)), *count))
    }
}

impl Histogram {
    /// A line with a bar for each half of a power of two that holds anything.
    pub(crate) fn bars(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: u64 = 40;
        let halves = || self.counts.chunks(SUB / 2).map(|half| half.iter().sum::<u64>()).enumerate();
        let most = halves().map(|(_, count)| count).max().unwrap_or(0).max(1);
        for (half, count) in halves().filter(|(_, count)| *count != 0) {
            let least = Span(Self::floor(half * SUB / 2)).to_string();
            let bar = "#".repeat((u128::from(count) * u128::from(WIDTH)).div_ceil(u128::from(most)) as usize);
            write!(f, "\n{least:>14} {bar:<40} {count}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Histogram {
    /// One line; the alternate form (`{:#}`) adds a line with a bar for each half of a power of two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most] = [0.5, 0.99].map(|part| self.bounds(part));
        let (count, longest) = (self.count, self.longest());
        write!(f, "{count} packets, median {} to {}, 99 % {} to {}", half.0, half.1, most.0, most.1)?;
        write!(f, ", longest {longest}")?;
        if f.alternate() { self.bars(f) } else { Ok(()) }
    }
}

/// The use of one link in one direction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkUse {
    /// Where it leads, in words.
    pub name: String,
    /// Packets carried.
    pub packets: u64,
    /// Bytes carried, headers included.
    pub bytes: u64,
    /// Tries that failed and were repeated.
    pub retries: u64,
    /// Time of the run in which it carried packets; what waits for it at the run's end does not count.
    pub busy: Span,
    /// The part of the run in which it did, 0 to 1.
    pub utilisation: f64,
}

impl fmt::Display for LinkUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, packets, bytes, retries, busy, utilisation } = self;
        write!(f, "{name}: {packets} packets, {bytes} bytes, busy {busy} ({:.1} %)", 100.0 * utilisation)?;
        if *retries != 0 {
            write!(f, ", {retries} retries")?;
        }
        Ok(())
    }
}

/// The use of one stage of a node's interface or device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageUse {
    /// Its name in the parameter table, or the name that the device gives it.
    pub name: &'static str,
    /// The node.
    pub node: u32,
    /// Packets served.
    pub packets: u64,
    /// Their bytes, headers not counted.
    pub bytes: u64,
    /// Time of the run in which it could not take another packet; what waits for it at the run's end does not
    /// count.
    pub busy: Span,
    /// The part of the run in which it could not, 0 to 1.
    pub utilisation: f64,
}

impl fmt::Display for StageUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, node, packets, bytes, busy, utilisation } = self;
        let part = 100.0 * utilisation;
        write!(f, "{name} of node {node}: {packets} packets, {bytes} bytes, busy {busy} ({part:.1} %)")
    }
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
    /// A stage of a device, or whatever else it [records](crate::DeviceContext::record).
    Device(&'static str),
    /// What a rank's program [records](crate::Context::record).
    Program(&'static str),
}

impl StageKind {
    /// What the tracks of this kind are called together.
    fn title(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Link => "links",
            Self::Receive => "receive",
            Self::Message => "messages",
            Self::Device(name) | Self::Program(name) => name,
        }
    }
}

/// A packet in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSpan {
    /// The packet's number, or one that the device or the program gives.
    pub packet: u64,
    /// Who sent it.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// The stage.
    pub stage: StageKind,
    /// The node, the link or, for what a program records, the rank.
    pub place: u32,
    /// Begin.
    pub begin: Instant,
    /// End.
    pub end: Instant,
}

/// All spans of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The spans, in the order in which they were known.
    pub spans: Vec<TraceSpan>,
    /// The links by number, in words.
    pub links: Vec<String>,
}

impl Trace {
    /// Writes the trace in the JSON format of Chrome's trace viewer, which Perfetto opens: a process for each kind
    /// of stage, in it a thread for each node, link or rank. Messages and what programs record may overlap on
    /// their thread.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome(&self, mut out: impl io::Write) -> io::Result<()> {
        use StageKind::{Link, Message, Program, Receive, Send};
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let (mut kinds, mut places) = (vec![Send, Link, Receive, Message], BTreeSet::new());
        let mut events = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let process = kinds.iter().position(|kind| *kind == span.stage).unwrap_or_else(|| {
                kinds.push(span.stage);
                kinds.len() - 1
            });
            let place = if span.stage == Message { span.from } else { span.place };
            places.insert((process, place));
            events.push((process, place, span));
        }
        for (process, kind) in kinds.iter().enumerate() {
            let args = json!({ "name": kind.title() });
            let comma = if process == 0 { "" } else { "," };
            let name = json!({ "ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": args });
            write!(out, "{comma}{name}")?;
        }
        for (process, place) in places {
            let name = match kinds[process] {
                Link => self.links.get(place as usize).cloned().unwrap_or_else(|| format!("link {place}")),
                Message | Program(_) => format!("rank {place}"),
                _ => format!("node {place}"),
            };
            let args = json!({ "name": name });
            let name = json!({ "ph": "M", "pid": process, "tid": place, "name": "thread_name", "args": args });
            write!(out, ",{name}")?;
        }
        for (process, place, span) in events {
            let micros = |picos: u64| picos as f64 / 1e6;
            let name = format!("{} to {}", span.from, span.to);
            let (begin, length) = (micros(span.begin.0), micros(span.end.since(span.begin).picos()));
            // Messages of a rank overlap, so that they are asynchronous events; stages are complete ones.
            if let Message | Program(_) = span.stage {
                let mut event = json!({
                    "ph": "b", "cat": span.stage.title(), "id": span.packet, "pid": process, "tid": place, "name": name,
                    "ts": begin
                });
                write!(out, ",{event}")?;
                event["ph"] = "e".into();
                event["ts"] = micros(span.end.0).into();
                write!(out, ",{event}")?;
            } else {
                let event = json!({
                    "ph": "X", "pid": process, "tid": place, "name": name, "ts": begin, "dur": length,
                    "args": { "packet": span.packet }
                });
                write!(out, ",{event}")?;
            }
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
        assert_eq!([0.5, 1.0].map(|part| histogram.bounds(part)), [(Span(2), Span(3)), (Span(960), Span(1000))]);
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
        let kinds = [StageKind::Link, StageKind::Device("check"), StageKind::Message, StageKind::Program("am")];
        for kinds in [&[][..], &kinds] {
            let (spans, links) = (kinds.iter().map(|kind| span(*kind)).collect(), vec!["0 +x".into(); 3]);
            let mut text = Vec::new();
            Trace { spans, links }.write_chrome(&mut text).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let events = json["traceEvents"].as_array().unwrap();
            let name = |wanted: &str, index: usize| {
                let named = events.iter().filter(|event| event["name"] == wanted).nth(index);
                named.and_then(|event| event["args"]["name"].as_str())
            };
            assert_eq!(name("process_name", 1), Some("links"));
            if kinds.is_empty() {
                continue;
            }
            assert_eq!([4, 5].map(|index| name("process_name", index)), [Some("check"), Some("am")]);
            let threads = [0, 1, 2, 3].map(|index| name("thread_name", index));
            assert_eq!(threads, [Some("0 +x"), Some("rank 0"), Some("node 2"), Some("rank 2")]);
            let phases: Vec<_> = events.iter().filter(|event| event["name"] == "0 to 1").collect();
            assert_eq!(
                phases.iter().map(|event| event["ph"].as_str()).collect::<Option<String>>().unwrap(),
                "XXbebe"
            );
            assert_eq!((phases[0]["dur"].as_f64(), phases[0]["pid"].as_u64()), (Some(2.0), Some(1)));
        }
    }
}
