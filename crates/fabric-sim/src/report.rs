//! What a run leaves behind, and how it is told in words.

use crate::engine::Core;
use crate::ranks::State;
use crate::trace::{Hash, Histogram, LinkUse, StageUse, Trace};
use am_core::{Instant, Span};
use std::fmt;

/// What a run brought. Displayed it is a summary of three lines; the alternate form (`{:#}`) adds the busiest
/// links and stages and the histogram of latencies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<R> {
    /// What each rank returned; `None` for ranks whose node stopped.
    pub results: Vec<Option<R>>,
    /// When the last rank ended.
    pub ended: Instant,
    /// A hash over everything that happened: equal for equal runs, on every machine and in every build.
    pub hash: u64,
    /// Events executed.
    pub events: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered, copies included.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
    /// Times that a packet was spoilt without repair.
    pub corrupted: u64,
    /// Copies made on links without repair.
    pub duplicated: u64,
    /// Time from sending to delivery, of delivered packets.
    pub latency: Histogram,
    /// Tries to cross a link that failed and were repeated.
    pub retries: u64,
    /// The links that carried anything, by number.
    pub links: Vec<LinkUse>,
    /// The stages of interfaces and devices that served anything and are not free, node by node.
    pub stages: Vec<StageUse>,
    /// All spans, if [`Config::trace`](crate::Config::trace) asked for them.
    pub trace: Option<Trace>,
}

/// The stages that a node's interface has by itself, in the order of [`Core::nodes`](Core).
const OWN: [&str; 5] = ["nic_tx", "tx_translate", "nic_rx", "rx_match", "mem_write"];

impl Report<()> {
    /// Of a run whose results are [added](Self::with_results) later.
    pub(crate) fn new<B>(core: &mut Core<B>) -> Self {
        let ended = Self::ended(core);
        core.settle_buffers();
        Self::of(core, ended).0
    }

    /// When the last rank ended.
    pub(crate) fn ended<B>(core: &Core<B>) -> u64 {
        core.ranks.iter().filter(|rank| rank.state == State::Done).map(|rank| rank.now).max().unwrap_or(0)
    }

    /// Of a machine, or a half of one, of a run whose last rank ended at a time; and the numbers of the links.
    pub(crate) fn of<B>(core: &mut Core<B>, ended: u64) -> (Self, Vec<u32>) {
        let used = || core.links.iter().enumerate().filter(|(_, link)| link.packets != 0);
        let numbers = used().map(|(number, _)| number as u32).collect();
        let links = used().map(|(number, link)| LinkUse {
            name: core.network.name(number as u32),
            packets: link.packets,
            bytes: link.bytes,
            retries: core.outages[number].retries,
            busy: Span(link.used(ended)),
            utilisation: link.used(ended) as f64 / ended.max(1) as f64,
        });
        let stages = core.nodes.iter().enumerate().flat_map(|(node, stages)| {
            let interface =
                OWN.iter().zip(stages.tx.iter().chain(&stages.rx)).map(|(name, server)| (*name, server));
            let own = stages.own.iter().map(|(name, server)| (*name, server));
            interface.chain(own).filter(|(_, server)| server.packets != 0).map(move |(name, server)| StageUse {
                name,
                node: node as u32,
                packets: server.packets,
                bytes: server.bytes,
                busy: Span(server.used(ended)),
                utilisation: server.used(ended) as f64 / ended.max(1) as f64,
            })
        });
        let names =
            core.spans.is_some().then(|| (0..core.network.links() as u32).map(|link| core.network.name(link)));
        let names = names.into_iter().flatten().collect();
        let report = Self {
            results: Vec::new(),
            ended: Instant(ended),
            hash: core.hash.value(),
            events: core.counts.events,
            sent: core.counts.sent,
            delivered: core.counts.delivered,
            lost: core.counts.lost,
            corrupted: core.counts.corrupted,
            duplicated: core.counts.duplicated,
            retries: core.outages.iter().map(|link| link.retries).sum(),
            links: links.collect(),
            stages: stages.collect(),
            latency: std::mem::take(&mut core.latency),
            trace: core.spans.take().map(|spans| Trace { spans, links: names }),
        };
        (report, numbers)
    }

    /// The reports of both halves in one, with the numbers of their links.
    pub(crate) fn joined([one, other]: [Self; 2], links: [Vec<u32>; 2]) -> Self {
        let mut hash = Hash::new();
        [one.hash, other.hash].into_iter().for_each(|half| hash.add(half));
        let mut latency = one.latency;
        latency.merge(&other.latency);
        let numbers = links.into_iter().flatten();
        let mut links: Vec<_> = numbers.zip(one.links.into_iter().chain(other.links)).collect();
        links.sort_by_key(|(number, _)| *number);
        // In each half they are in the order of the events.
        let trace = one.trace.zip(other.trace).map(|(mut trace, more)| {
            trace.spans.extend(more.spans);
            trace.spans.sort_by_key(|span| span.begin);
            trace
        });
        Self {
            results: Vec::new(),
            ended: one.ended,
            hash: hash.value(),
            events: one.events + other.events,
            sent: one.sent + other.sent,
            delivered: one.delivered + other.delivered,
            lost: one.lost + other.lost,
            corrupted: one.corrupted + other.corrupted,
            duplicated: one.duplicated + other.duplicated,
            retries: one.retries + other.retries,
            links: links.into_iter().map(|(_, link)| link).collect(),
            stages: one.stages.into_iter().chain(other.stages).collect(),
            latency,
            trace,
        }
    }

    pub(crate) fn with_results<R>(self, results: Vec<Option<R>>) -> Report<R> {
        let Self { ended, hash, events, sent, delivered, lost, corrupted, duplicated, latency, retries, .. } =
            self;
        let Self { links, stages, trace, .. } = self;
        Report {
            results,
            ended,
            hash,
            events,
            sent,
            delivered,
            lost,
            corrupted,
            duplicated,
            latency,
            retries,
            links,
            stages,
            trace,
        }
    }
}

/// Links and stages that the alternate form shows.
const SHOWN: usize = 5;

impl<R> fmt::Display for Report<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, Self { events, hash, sent, lost, .. }) = (self.ended.since(Instant(0)), self);
        write!(f, "{took}, {events} events, hash {hash:016x}; {sent} sent, {lost} lost")?;
        for (count, what) in [(self.retries, "retries"), (self.corrupted, "spoilt"), (self.duplicated, "doubled")]
        {
            if count != 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        write!(f, "\n{}", self.latency)?;
        let links = busiest(&self.links, |link| link.utilisation);
        if let Some(most) = links.first() {
            let mean = 100.0 * links.iter().map(|link| link.utilisation).sum::<f64>() / links.len() as f64;
            let (used, LinkUse { name, utilisation, .. }) = (links.len(), most);
            write!(f, "\n{used} links used, {mean:.1} % of the time; most {name}, {:.1} %", 100.0 * utilisation)?;
        }
        if !f.alternate() {
            return Ok(());
        }
        for link in links.iter().take(SHOWN) {
            write!(f, "\n  {link}")?;
        }
        for stage in busiest(&self.stages, |stage| stage.utilisation).iter().take(SHOWN) {
            write!(f, "\n  {stage}")?;
        }
        self.latency.bars(f)
    }
}

fn busiest<T>(all: &[T], utilisation: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut all: Vec<_> = all.iter().collect();
    all.sort_by(|one, other| utilisation(other).total_cmp(&utilisation(one)));
    all
}

#[cfg(test)]
mod tests {
    use crate::{Config, LinkParameters, Sim, Stage, Topology};

    /// A link that is still busy when the ranks end was used for no longer than the run, and a packet that waits
    /// for it not at all.
    #[test]
    fn what_waits_behind_the_end_does_not_count() {
        for packet_bytes in [0, 100] {
            let mut config = Config::new(2);
            config.topology = Topology::Direct { nodes: 2 };
            config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 0.0 };
            config.nic.nic_tx = Stage { per_unit_ns: 100.0, unit_bytes: 1000, ..Stage::NONE };
            config.nic.packet_bytes = packet_bytes;
            let report = Sim::run(&config, |rank| match rank.rank() {
                0 => (0..100).for_each(|number| rank.send(1, 1000, number)),
                _ => (0..10).for_each(|number| assert_eq!(rank.wait().body, number)),
            });
            let report = report.unwrap();
            // 100 ns in the stage, then a packet each microsecond; trains that meet share the link.
            let (ended, link, stage) = (report.ended.0, &report.links[0], &report.stages[0]);
            assert!(link.utilisation <= 1.0 && link.utilisation > 0.98, "{link}");
            assert!(link.busy.0 < ended && link.busy.0 + 100_000 >= ended, "{link}");
            assert!(stage.utilisation <= 1.0, "{stage}");
            if packet_bytes == 0 {
                assert_eq!((ended, link.busy.0), (10_100_000, 10_000_000));
            }
        }
    }

    #[test]
    fn the_long_form_names_links_stages_and_latencies() {
        let mut config = Config::new(3);
        config.topology = Topology::Mesh { dims: vec![3] };
        config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 100.0 };
        config.nic.nic_tx = Stage { per_unit_ns: 50.0, ..Stage::NONE };
        let report = Sim::run(&config, |rank| match rank.rank() {
            0 => (0..2).for_each(|number| rank.send(2, 4 * number, number)),
            2 => (0..2).for_each(|_| assert_eq!(rank.wait().from, 0)),
            _ => {}
        });
        let text = format!("{:#}", report.unwrap());
        let expected = [
            "2 packets, median",
            "2 links used",
            "0 +x: 2 packets, 4 bytes, busy 4.000 ns",
            "nic_tx of node 0: 2 packets, 4 bytes, busy 250.000 ns",
        ];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains('#')).count(), 2, "{text}");
    }
}
