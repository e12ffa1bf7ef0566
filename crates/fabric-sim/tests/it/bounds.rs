//! Bounds of physics: no pattern of traffic puts more into a node, takes more out of one, or sends more over a cut
//! than there is room for, and no packet is faster than its way is long.

use fabric_sim::{Config, LinkParameters, Mailbox, Outgoing, PortParameters, Sim, Topology};
use proptest::prelude::*;

type Rank<'a> = fabric_sim::Context<'a, Mailbox<()>>;

const LINK: LinkParameters = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 50.0 };

/// Bytes in a microsecond, less what rounding to picoseconds may add.
fn at_most(bytes: f64, us: f64, mb_s: f64) -> bool {
    bytes <= us * mb_s * (1.0 + 1e-6) + 1.0
}

/// What a message is: who sends it, to whom, how long it is, and how long its sender waits before.
type Message = (u32, u32, u32, u64);

/// Sends the messages, each rank its own in order; returns for each message its latency, and when the last one
/// came.
fn play(config: &Config, messages: &[Message]) -> (Vec<(u32, u32, u32, u64)>, f64) {
    let all = messages.to_vec();
    let report = Sim::run(config, move |rank: Rank<'_>| {
        let me = rank.rank();
        for (from, to, bytes, pause) in &all {
            if *from == me {
                rank.charge(am_core::Span(*pause));
                rank.send(*to, *bytes, ());
            }
        }
        let expected = all.iter().filter(|message| message.1 == me).count();
        let packets = (0..expected).map(|_| rank.wait());
        packets.map(|packet| (packet.from, me, packet.bytes, rank.now().0 - packet.sent.0)).collect::<Vec<_>>()
    });
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let end = report.ended.0 as f64 / 1e6;
    for link in &report.links {
        assert!(at_most(link.bytes as f64, end, LINK.bandwidth_mb_s), "{link:?}");
    }
    (report.results.into_iter().flatten().flatten().collect(), end)
}

fn machine(topology: Topology, ranks: u32, port: PortParameters, packet_bytes: u32) -> Config {
    let mut config = Config::new(ranks);
    config.topology = topology;
    (config.nic.link, config.nic.port, config.nic.packet_bytes) = (LINK, port, packet_bytes);
    config
}

fn check(config: &Config, messages: &[Message]) {
    let (came, end) = play(config, messages);
    assert_eq!(came.len(), messages.len());
    let port = config.nic.port;
    for node in 0..config.ranks {
        let sum = |of: fn(&(u32, u32, u32, u64)) -> u32| {
            let own = came.iter().filter(|message| of(message) == node && message.0 != message.1);
            own.map(|message| f64::from(message.2)).sum::<f64>()
        };
        let (out, into) = (sum(|message| message.0), sum(|message| message.1));
        assert!(at_most(out, end, port.injection_mb_s), "node {node} sends {out} in {end}");
        assert!(at_most(into, end, port.ejection_mb_s), "node {node} takes {into} in {end}");
        if port.shared {
            assert!(at_most(out + into, end, port.injection_mb_s), "node {node} moves {} in {end}", out + into);
        }
    }
    let slowest = [LINK.bandwidth_mb_s, port.injection_mb_s, port.ejection_mb_s].into_iter().fold(1e9, f64::min);
    for (from, to, bytes, latency) in came {
        if from != to {
            let least = 50_000 + (f64::from(bytes) / slowest * 1e6) as u64;
            assert!(latency + 2 >= least, "{from} to {to}, {bytes} bytes: {latency} ps, at least {least}");
        }
    }
}

fn messages(nodes: u32, long: u32) -> impl Strategy<Value = Vec<Message>> {
    let size = prop_oneof![0..65u32, 1..2_000u32, 1..long];
    let hot = prop_oneof![Just(0), 0..nodes];
    prop::collection::vec((0..nodes, hot, size, prop_oneof![Just(0), 0..5_000_000u64]), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_pattern_exceeds_ports_and_links(
        messages in messages(16, 200_000), kind in 0..4u8, packet in prop_oneof![Just(0), Just(64), Just(1024)],
        rate in prop_oneof![Just(250.0), Just(1000.0), Just(3000.0)], shared: bool
    ) {
        let topology = match kind {
            0 => Topology::Mesh { dims: vec![4, 4] },
            1 => Topology::Torus { dims: vec![4, 2, 2] },
            2 => Topology::Ring { nodes: 16 },
            _ => Topology::Crossbar { nodes: 16 },
        };
        check(&machine(topology, 16, PortParameters { shared, ..PortParameters::of(rate) }, packet), &messages);
    }

    /// Half of a mesh sends to the other half over as many links as its last dimension has rows.
    #[test]
    fn no_pattern_exceeds_the_bisection(
        pairs in prop::collection::vec((0..8u32, 0..8u32, 1..50_000u32), 1..60),
        packet in prop_oneof![Just(0), Just(128)]
    ) {
        let messages: Vec<Message> = pairs.iter().map(|(from, to, bytes)| (*from, 8 + to, *bytes, 0)).collect();
        let config = machine(Topology::Mesh { dims: vec![4, 4] }, 16, PortParameters::default(), packet);
        let (_, end) = play(&config, &messages);
        let bytes: f64 = messages.iter().map(|message| f64::from(message.2)).sum();
        prop_assert!(at_most(bytes, end, 4.0 * LINK.bandwidth_mb_s), "{bytes} in {end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Where the interface keeps order, what a rank sends on a channel arrives in the order in which it was sent.
    #[test]
    fn channels_keep_their_order(
        sizes in prop::collection::vec(
            (0..3u32, prop_oneof![0..90u32, 1..400u32, 1..5_000u32], 0..3u8, 0..400_000u64), 1..120
        ),
        rate in prop_oneof![Just(500.0), Just(1000.0), Just(f64::INFINITY)], shared: bool
    ) {
        let port = PortParameters { shared, ..PortParameters::of(rate) };
        let mut config = machine(Topology::Mesh { dims: vec![4] }, 4, port, 80);
        (config.nic.ordered, config.nic.header_bytes) = (true, 15);
        let report = Sim::run(&config, move |rank: fabric_sim::Context<'_, Mailbox<u64>>| {
            for (number, (from, bytes, channel, pause)) in sizes.iter().enumerate() {
                if *from == rank.rank() {
                    rank.charge(am_core::Span(*pause));
                    let body = u64::from(*channel) << 32 | number as u64;
                    rank.send_as(Outgoing { channel: *channel, ..Outgoing::new(*from, 3, *bytes, body) });
                }
            }
            let expected = if rank.rank() == 3 { sizes.len() } else { 0 };
            (0..expected).map(|_| rank.wait()).map(|packet| (packet.from, packet.body)).collect::<Vec<_>>()
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let came = report.results[3].clone().unwrap();
        let mut last = std::collections::BTreeMap::new();
        for (from, body) in came {
            let before = last.insert((from, body >> 32), body);
            prop_assert!(before.is_none_or(|before| before < body), "of {from}: {before:?} before {body}");
        }
    }
}

/// Six neighbours of a node that takes in as much as one link carries.
#[test]
fn an_incast_comes_at_the_ports_rate() {
    for packet in [0, 64] {
        let messages: Vec<Message> = [4, 10, 12, 14, 16, 22]
            .into_iter()
            .flat_map(|from| (0..4).map(move |_| (from, 13, 100_000, 0)))
            .collect();
        let topology = Topology::Mesh { dims: vec![3, 3, 3] };
        let (_, free) = play(&machine(topology.clone(), 27, PortParameters::default(), packet), &messages);
        let (_, bound) = play(&machine(topology, 27, PortParameters::of(1000.0), packet), &messages);
        assert!((free - 400.0).abs() < 1.0, "six links bring {free} us");
        assert!((bound - 2400.0).abs() < 3.0, "one port takes {bound} us");
    }
}

/// A short message beside a stream over a shared link: it waits for packets of the stream, not for its messages.
#[test]
fn short_messages_wait_for_packets() {
    // From 0 to 2 the stream; from 1 to 2 a short message in the midst of each megabyte.
    let stream = (0..4).map(|_| (0, 2, 1_000_000, 0));
    let short = (0..4).map(|_| (1, 2, 8, 900_000_000));
    let messages: Vec<Message> = stream.chain(short).collect();
    let worst = |packet| {
        let config = machine(Topology::Mesh { dims: vec![3] }, 3, PortParameters::of(1000.0), packet);
        let (came, end) = play(&config, &messages);
        let short = came.iter().filter(|message| message.2 == 8);
        (short.map(|message| message.3).max().unwrap(), end)
    };
    let ((whole, end), (packets, other_end)) = (worst(0), worst(64));
    assert!(whole > 50_000_000, "a message of a megabyte takes a millisecond: {whole} ps");
    // On the link and at the port.
    assert!(packets <= 50_000 + 8_000 + 2 * 64_000 + 2_000, "{packets} ps");
    assert!((end - other_end).abs() < 1.0, "the stream ends when it did: {end} and {other_end} us");
}

/// Trains that meet share a link: both of two equal ones end when their bytes have gone.
#[test]
fn long_messages_share_a_link() {
    let config = |packet| machine(Topology::Mesh { dims: vec![3] }, 3, PortParameters::default(), packet);
    let messages = [(0, 2, 1_000_000, 0), (1, 2, 1_000_000, 100_000_000)];
    let (came, end) = play(&config(128), &messages);
    let of = |rank| came.iter().find(|message| message.0 == rank).unwrap().3 as f64 / 1e6;
    // 900 us are left of the first when the second comes.
    assert!((of(0) - 1900.0).abs() < 1.0 && (of(1) - 1900.0).abs() < 1.0, "{came:?}");
    let (whole, end_whole) = play(&config(0), &messages);
    assert!(whole.iter().any(|message| (message.3 as f64 / 1e6 - 1000.0).abs() < 1.0), "first come, first served");
    assert!((end - end_whole).abs() < 1.0);
}

/// How many events a long message takes does not depend on its packets.
#[test]
fn trains_take_few_events() {
    let events = |packet| {
        let config = machine(Topology::Mesh { dims: vec![4] }, 4, PortParameters::of(1000.0), packet);
        let report = Sim::run(&config, |rank: Rank<'_>| match rank.rank() {
            0 => rank.send(3, 10_000_000, ()),
            3 => drop(rank.wait()),
            _ => {}
        });
        report.unwrap().events
    };
    assert_eq!(events(0), events(64));
}

/// Where the interface keeps order, what a rank sends behind a long message comes behind it, on the same channel;
/// what another rank or channel sends cuts in.
#[test]
fn nothing_overtakes_a_train_of_its_channel() {
    let came = |ordered, channel| {
        let mut config = machine(Topology::Mesh { dims: vec![3] }, 3, PortParameters::of(1000.0), 64);
        config.nic.ordered = ordered;
        let report = Sim::run(&config, move |rank: Rank<'_>| match rank.rank() {
            0 => {
                rank.send(2, 100_000, ());
                rank.send_as(Outgoing { channel, ..Outgoing::new(0, 2, 8, ()) });
                Vec::new()
            }
            1 => {
                rank.send(2, 9, ());
                Vec::new()
            }
            _ => (0..3).map(|_| rank.wait().bytes).collect::<Vec<_>>(),
        });
        report.unwrap().results.into_iter().flatten().flatten().collect::<Vec<u32>>()
    };
    assert_eq!(came(true, 0), [9, 100_000, 8]);
    assert_eq!(came(true, 1), [9, 8, 100_000]);
    assert_eq!(came(false, 0), [9, 8, 100_000]);
}
