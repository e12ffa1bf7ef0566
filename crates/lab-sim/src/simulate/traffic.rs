//! Traffic of all ranks: messages without answers at random times, whether or not the network takes them. What
//! arrives is counted after a time in which queues have filled.

use super::cli::Cli;
use super::pattern::{Destinations, Draws, Pattern};
use super::{Failure, utilisation};
use active_messages::Span;
use fabric_sim::{Histogram, Report};
use machine_sim::nic::stats::{ClassCount, Count, Measurements};
use machine_sim::{MachineConfig, Nic};

/// What all runs of a sweep share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) pattern: Pattern,
    pub(crate) seed: u64,
    /// Of each rank in the time that is measured.
    messages: u32,
    /// The mean length of a burst.
    pub(crate) burst: u32,
    interval: Option<Span>,
}

impl Traffic {
    /// What the command line asks for.
    pub(crate) fn of(cli: &Cli, pattern: Pattern) -> Self {
        let interval = cli.interval.map(|nanos| Span((nanos * 1e3) as u64));
        Self { pattern, seed: cli.seed, messages: cli.messages(), burst: cli.burst.unwrap_or(16), interval }
    }
}

/// What came of one run.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// MB/s of all ranks together: what they sent, and what reached a rank.
    offered: f64,
    accepted: f64,
    /// From the call to the receiver's memory, in nanoseconds.
    mean: f64,
    latency: Histogram,
    /// Per size class of the interface, in its order: what all ranks received.
    pub(crate) classes: Vec<ClassCount>,
    /// The busiest link and the mean, as parts of the run.
    links: (f64, f64),
    /// Per rank: what it received.
    pub(crate) received: Vec<Count>,
    /// What all ranks received in each interval.
    pub(crate) series: Vec<Count>,
    /// How long an interval is, in nanoseconds.
    pub(crate) interval: Option<f64>,
}

/// The columns of [`Point::row`]: key, and heading.
pub(crate) const COLUMNS: [(&str, &str); 10] = [
    ("bytes", "bytes"),
    ("load", "load"),
    ("offered_mb_s", "offered MB/s"),
    ("accepted_mb_s", "accepted MB/s"),
    ("accepted_part", "accepted part"),
    ("mean_ns", "mean ns"),
    ("median_ns", "median ns, from"),
    ("p99_ns", "99 % ns, from"),
    ("busiest_link", "busiest link"),
    ("mean_link", "mean link"),
];

impl Point {
    /// The numbers of the table.
    pub(crate) fn row(&self, bytes: u32, load: f64) -> Vec<f64> {
        let quantile = |part| self.latency.quantile(part).0 as f64 / 1e3;
        vec![
            f64::from(bytes),
            load,
            self.offered,
            self.accepted,
            self.accepted / self.offered,
            self.mean,
            quantile(0.5),
            quantile(0.99),
            self.links.0,
            self.links.1,
        ]
    }
}

/// The shortest mean time between messages of so many bytes that a rank's interface, its share of the node's data
/// path and its link can take, in nanoseconds.
fn spacing(machine: &MachineConfig, bytes: u32) -> Result<f64, Failure> {
    let (table, size) = (&machine.parameters, f64::from(bytes));
    let class = table.sizes.iter().find(|class| class.up_to.is_none_or(|up_to| u64::from(bytes) <= up_to));
    let gap = class.map_or(0.0, |class| class.gap_ns + (size - 1.0) * class.gap_per_byte_ns);
    let sharing = f64::from(machine.ranks_per_node.min(machine.ranks));
    let path = sharing * size * 1e3 / table.injection_mb_s;
    let packets = f64::from(bytes.div_ceil(table.packet_bytes));
    let link = machine.links.get("host").unwrap_or(&table.link).bandwidth_mb_s;
    let link = sharing * (size + packets * f64::from(table.header_bytes)) * 1e3 / link;
    let least = gap.max(path).max(link);
    if least > 0.0 {
        return Ok(least);
    }
    Err(Failure::Usage(
        "a load is a part of what the interface can take, and this one takes anything: give parameters.sizes a gap_ns or a \
         gap_per_byte_ns, or the link a bandwidth_mb_s"
            .into(),
    ))
}

/// What a rank brings: what it sent, and what it measured.
type Brought = (u64, Measurements);

/// Runs traffic of messages of so many bytes at a load.
pub(crate) fn run(
    machine: &MachineConfig,
    traffic: &Traffic,
    bytes: u32,
    load: f64,
) -> Result<(Point, Report<Brought>), Failure> {
    let least = spacing(machine, bytes)?;
    let mean = least / load;
    let measured = f64::from(traffic.messages) * mean;
    let warm = measured / 2.0;
    let Traffic { pattern, seed, burst, interval, .. } = *traffic;
    let report = machine_sim::run(machine, move |nic: Nic<'_>| {
        let (me, ranks) = (nic.rank(), nic.ranks());
        let (mut draws, mut to) = (Draws::of(seed, me), Destinations::of(pattern, (me, ranks), seed, burst));
        let mut at = to.pause(mean, least, &mut draws);
        // The processor does nothing else: what it sends is known long before it happens.
        let mut send_until = |end: f64| {
            let (mut sent, picos) = (0, |nanos: f64| (nanos * 1e3) as u64);
            while at < end {
                nic.charge(Span(picos(at).saturating_sub(nic.now().0)));
                if let Some(to) = to.next(&mut draws) {
                    nic.inject(to, [0; 2], bytes.into());
                    sent += u64::from(bytes);
                }
                at += to.pause(mean, least, &mut draws);
            }
            nic.charge(Span(picos(end).saturating_sub(nic.now().0)));
            sent
        };
        send_until(warm);
        nic.measure(interval);
        let sent = send_until(warm + measured);
        (sent, nic.measurements())
    })?;
    let found = || report.results.iter().flatten();
    let mut classes = vec![ClassCount::default(); machine.parameters.sizes.len()];
    for (_, measured) in found() {
        classes.iter_mut().zip(&measured.classes).for_each(|(all, own)| all.merge(own));
    }
    let mut all = ClassCount::default();
    classes.iter().for_each(|class| all.merge(class));
    let ClassCount { received: Count { messages: count, .. }, latency, total, .. } = all;
    let received: Vec<Count> = found().map(|(_, measured)| measured.received).collect();
    let mut series = Vec::new();
    for own in found().map(|(_, measured)| &measured.series) {
        if series.len() < own.len() {
            series.resize(own.len(), Count::default());
        }
        series.iter_mut().zip(own).for_each(|(all, own)| all.merge(own));
    }
    let total_sent: u64 = found().map(|(sent, _)| sent).sum();
    if total_sent == 0 || count == 0 {
        let what = if total_sent == 0 { "sent" } else { "received" };
        return Err(Failure::Usage(format!(
            "--messages {}: no message was {what} in the time that is measured; ask for more",
            traffic.messages
        )));
    }
    let rate = |bytes: u64| bytes as f64 * 1e3 / measured;
    let point = Point {
        offered: rate(total_sent),
        accepted: rate(received.iter().map(|count| count.bytes).sum()),
        mean: total.0 as f64 / 1e3 / count as f64,
        latency,
        classes,
        links: utilisation(&report.links),
        received,
        series,
        interval: interval.map(|interval| interval.0 as f64 / 1e3),
    };
    Ok((point, report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine_sim::presets;

    fn traffic(pattern: Pattern) -> Traffic {
        Traffic { pattern, seed: 3, messages: 100, burst: 16, interval: None }
    }

    fn accepted(machine: &MachineConfig, pattern: Pattern, load: f64) -> (f64, f64, f64) {
        let (point, _) = run(machine, &traffic(pattern), 1024, load).unwrap();
        (point.accepted / point.offered, point.mean, point.links.0)
    }

    /// Little traffic arrives as it is sent, and as fast as a message on an empty machine.
    #[test]
    fn an_idle_network_takes_everything() {
        let machine = presets::open("torus").unwrap();
        let (part, mean, busiest) = accepted(&machine, Pattern::Neighbour, 0.1);
        assert!((0.9..1.1).contains(&part) && busiest < 0.3, "{part} {busiest}");
        // L, a link and more, 1040 bytes at 10 GB/s and 1024 at 12.5.
        assert!((450.0..700.0).contains(&mean), "{mean}");
    }

    /// Whatever is offered: a link is never used for longer than the run, and a rank gets no more than its
    /// interface can take.
    #[test]
    fn links_and_receivers_are_never_used_beyond_their_rate() {
        let machine = presets::open("torus").unwrap();
        // 1024 bytes in 20 ns and 1023 times 0.08.
        let interface = 1024.0 * 1e3 / (20.0 + 1023.0 * 0.08);
        for pattern in [Pattern::Uniform, Pattern::Permutation, Pattern::Incast, Pattern::BitComplement] {
            for load in [0.5, 1.0, 4.0] {
                let (point, report) = run(&machine, &traffic(pattern), 1024, load).unwrap();
                assert!(report.links.iter().all(|link| link.utilisation <= 1.0), "{pattern:?} {load}");
                let most = point.received.iter().map(|count| count.bytes).max().unwrap() as f64;
                let time = 100.0 * spacing(&machine, 1024).unwrap() / load;
                assert!(most * 1e3 <= interface * time + 1024.0 * 1e3, "{pattern:?} {load}: {most} in {time} ns");
            }
        }
        // An incast of 63 ranks fills the receiver's interface, and no more.
        let (point, _) = run(&machine, &traffic(Pattern::Incast), 1024, 1.0).unwrap();
        let part = point.accepted / interface;
        assert!((0.98..1.02).contains(&part), "{part}");
    }

    /// Rates of no messages are no numbers: they are refused with the remedy.
    #[test]
    fn too_few_messages_are_refused() {
        let machine = presets::open("loggopsim").unwrap();
        let few = Traffic { messages: 1, ..traffic(Pattern::Incast) };
        let machine = MachineConfig { ranks: 2, ..machine };
        let refused = (0..20).find_map(|seed| run(&machine, &Traffic { seed, ..few }, 8, 0.01).err());
        let error = refused.expect("some seed sends nothing").to_string();
        assert!(
            error.starts_with("--messages 1: no message was ") && error.ends_with("; ask for more"),
            "{error}"
        );
    }

    #[test]
    fn more_load_takes_longer() {
        let machine = presets::open("torus").unwrap();
        let means = [0.1, 0.4, 0.8].map(|load| accepted(&machine, Pattern::Uniform, load).1);
        assert!(means[0] < means[1] && means[1] < means[2], "{means:?}");
    }

    /// Bursts offer the mean load and below saturation all of it arrives, later than what comes at random times;
    /// the longer bursts are, the later. A seed repeats itself.
    #[test]
    fn bursts_bring_the_load_and_queue() {
        let machine = presets::open("torus").unwrap();
        let full = f64::from(machine.ranks) * 1024.0 * 1e3 / spacing(&machine, 1024).unwrap();
        let of = |pattern, burst| {
            let traffic = Traffic { messages: 2000, burst, ..traffic(pattern) };
            run(&machine, &traffic, 1024, 0.4).unwrap().0
        };
        let (uniform, short, long) = (of(Pattern::Uniform, 16), of(Pattern::Bursts, 4), of(Pattern::Bursts, 16));
        for point in [&uniform, &short, &long] {
            assert!((point.offered / full / 0.4 - 1.0).abs() < 0.03, "{} of {full} MB/s", point.offered);
            assert!((point.accepted / full / 0.4 - 1.0).abs() < 0.03, "{} of {full} MB/s", point.accepted);
        }
        let means = [uniform.mean, short.mean, long.mean];
        assert!(1.2 * means[0] < means[1] && 1.2 * means[1] < means[2], "{means:?}");
        assert_eq!(of(Pattern::Bursts, 16).row(1024, 0.4), long.row(1024, 0.4));
    }

    #[test]
    fn what_is_counted_by_interval_is_what_came() {
        let machine = presets::open("hdr_fat_tree").unwrap();
        let wanted = Traffic { interval: Some(Span(1_000_000)), ..traffic(Pattern::AllToAll) };
        let (point, _) = run(&machine, &wanted, 1024, 0.5).unwrap();
        let of = |counts: &[Count]| counts.iter().map(|count| count.bytes).sum::<u64>();
        assert_eq!(of(&point.series), of(&point.received));
        assert!(point.series.len() > 3 && point.received.len() == 256);
        // So are size classes, of which these messages are the second.
        let machine = presets::open("torus").unwrap();
        let (point, _) = run(&machine, &traffic(Pattern::Neighbour), 1024, 0.5).unwrap();
        let by_class: Vec<u64> = point.classes.iter().map(|class| class.received.bytes).collect();
        assert_eq!(by_class, [0, of(&point.received)]);
    }

    #[test]
    fn an_interface_without_gap_has_no_load() {
        let mut machine = machine_sim::crossbar(4);
        machine.parameters = machine_sim::model::Parameters::free();
        let error = run(&machine, &traffic(Pattern::Uniform), 8, 0.5).unwrap_err().to_string();
        assert!(error.contains("gap_per_byte_ns"), "{error}");
    }
}
