//! What finite buffers do, beside the engine, whose links hold everything.

use super::{Arbitration, Buffered, Buffers, Delivery};
use crate::random::splitmix64;
use crate::routing::{Algorithm, Routing};
use crate::{Config, LinkParameters, PortParameters, Sim, Topology};
use am_core::{Instant, Span};

const WIRE: u32 = 1000;

fn config(topology: &str) -> Config {
    let topology: Topology = topology.parse().unwrap();
    let mut config = Config { topology: topology.clone(), ..Config::new(topology.nodes().unwrap()) };
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 50.0 };
    config
}

fn turns(packets: u32) -> Buffers {
    Buffers { channel_bytes: packets * WIRE, arbitration: Arbitration::RoundRobin }
}

const SHAPES: [&str; 9] = [
    "mesh:4x4",
    "torus:5x4",
    "torus:4x4x2",
    "ring:7",
    "ringlets:4x3",
    "hypercube:4",
    "fat_tree:4x2",
    "dragonfly:2x3x1",
    "crossbar:9",
];

/// A packet that meets nobody takes the same time in both models.
#[test]
fn alone_a_packet_takes_what_it_takes_in_the_engine() {
    for shape in SHAPES {
        let mut config = config(shape);
        config.nic.header_bytes = 20;
        config.nic.port =
            PortParameters { injection_mb_s: 800.0, ejection_mb_s: 1500.0, ..PortParameters::default() };
        let nodes = config.ranks;
        for to in [1, nodes / 2, nodes - 1] {
            let report = Sim::run(&config, move |rank| match rank.rank() {
                0 => rank.send(to, 980, ()),
                me if me == to => assert_eq!(rank.wait().from, 0),
                _ => {}
            });
            let mut network = Buffered::new(&config, turns(1)).unwrap();
            network.send(Instant(0), 0, to, 980).unwrap();
            network.run().unwrap();
            assert_eq!(network.delivered()[0].at, report.unwrap().ended, "{shape}, 0 to {to}");
        }
    }
}

#[test]
fn a_stream_with_enough_buffers_has_link_rate() {
    let rate = |packets: u32, latency_ns: f64| {
        let mut config = config("mesh:4");
        config.nic.link.latency_ns = latency_ns;
        let mut network = Buffered::new(&config, turns(packets)).unwrap();
        for _ in 0..200 {
            network.send(Instant(0), 0, 3, WIRE).unwrap();
        }
        network.run().unwrap();
        let ended = network.delivered().last().unwrap().at.0 as f64 / 1e6;
        200.0 / ended
    };
    // A packet takes a microsecond, and room is known a latency after its last bit has gone on.
    assert!(rate(2, 50.0) > 0.97, "{}", rate(2, 50.0));
    assert!((0.2..0.4).contains(&rate(1, 1000.0)), "{}", rate(1, 1000.0));
    assert!(rate(5, 1000.0) > 0.95, "{}", rate(5, 1000.0));
}

/// All nodes send half of a circle on: without a second channel behind the circle's end each waits for the next,
/// with it nobody does.
#[test]
fn datelines_keep_circles_from_jamming() {
    for shape in ["ring:8", "ringlets:8", "torus:4x8"] {
        let config = config(shape);
        let nodes = config.ranks;
        let load = |datelines| {
            let mut network = Buffered::new(&config, turns(1)).unwrap();
            network.datelines = datelines;
            let apart = if shape.starts_with("torus") { 12 } else { 3 };
            for node in (0..4).flat_map(|_| 0..nodes) {
                network.send(Instant(0), node, (node + apart) % nodes, WIRE).unwrap();
            }
            (network.run(), network.delivered().len())
        };
        assert_eq!(load(true), (Ok(()), 4 * nodes as usize), "{shape}");
        let jam = load(false).0.unwrap_err();
        assert!(jam.packets > 0 && jam.to_string().contains("wait for each other for ever"), "{shape}: {jam}");
    }
}

/// Random packets on every topology, with room for one of them only: all arrive, each once and those of a pair in
/// order.
#[test]
fn nothing_jams_and_nothing_is_lost() {
    for shape in SHAPES {
        for algorithm in [Algorithm::Default, Algorithm::Minimal] {
            if shape.starts_with("crossbar") && algorithm == Algorithm::Minimal {
                continue;
            }
            for arbitration in [Arbitration::RoundRobin, Arbitration::Oldest] {
                let config = Config { routing: Routing { algorithm, ..Routing::default() }, ..config(shape) };
                let buffers = Buffers { arbitration, ..turns(1) };
                let mut network = Buffered::new(&config, buffers).unwrap();
                let (mut random, nodes) = (7, u64::from(config.ranks));
                let count = 40 * config.ranks;
                for _ in 0..count {
                    let mut draw = |below: u64| splitmix64(&mut random) % below;
                    let (at, from, to) = (Instant(draw(10_000_000)), draw(nodes) as u32, draw(nodes) as u32);
                    network.send(at, from, to, 1 + draw(WIRE.into()) as u32 % WIRE).unwrap();
                }
                network.run().unwrap_or_else(|jam| panic!("{shape}, {algorithm:?}, {arbitration:?}: {jam}"));
                let mut numbers: Vec<u32> = network.delivered().iter().map(|delivery| delivery.number).collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{shape}");
                // What a node sends to itself passes nothing that takes time.
                let late = |delivery: &Delivery| delivery.at > delivery.sent || delivery.from == delivery.to;
                assert!(network.delivered().iter().all(late));
                assert!(network.held().is_empty(), "{:?}", network.held());
            }
        }
    }
}

/// 15 senders on a line, all of them for ever. By turns each switch gives half of its link to its own node; by age
/// all get as much.
#[test]
fn senders_on_a_line_share_by_age_and_not_by_turns() {
    let shares = |arbitration| {
        let mut network = Buffered::new(&config("mesh:16"), Buffers { arbitration, ..turns(2) }).unwrap();
        for round in 0..1000u64 {
            for from in 1..16 {
                network.send(Instant(round * 1_000_000), from, 0, WIRE).unwrap();
            }
        }
        network.run_until(Instant(1_000_000_000));
        let of = |from: u32| network.delivered().iter().filter(|delivery| delivery.from == from).count();
        (1..16).map(of).collect::<Vec<usize>>()
    };
    let (oldest, turns) = (shares(Arbitration::Oldest), shares(Arbitration::RoundRobin));
    let (least, most) = (*oldest.iter().min().unwrap() as f64, *oldest.iter().max().unwrap() as f64);
    let mean = oldest.iter().sum::<usize>() as f64 / 15.0;
    assert!(least > 0.9 * mean && most < 1.1 * mean && mean > 60.0, "{oldest:?}");
    assert!((450..550).contains(&turns[0]) && (200..300).contains(&turns[1]) && turns[14] < 10, "{turns:?}");
}

/// The victims' mean latency in nanoseconds: packets of node 15 to node 12, beside an incast of all others into
/// node 0 that asks for `load` of the last link.
fn beside_an_incast(load: f64, buffered: bool) -> (f64, usize) {
    let config = config("mesh:4x4");
    let pause = (12.0 / load * 1e6) as u64;
    let packets: Vec<(u64, u32, u32)> = (0..60u64)
        .flat_map(|round| {
            (1..16).filter(|from| *from != 12).map(move |from| (round * pause + 7_001 * u64::from(from), from, 0))
        })
        .chain((0..60).map(|round| (round * pause + 500_000, 15, 12)))
        .collect();
    let mean = |took: &[u64]| took.iter().sum::<u64>() as f64 / 1e3 / took.len() as f64;
    if buffered {
        let mut network = Buffered::new(&config, turns(2)).unwrap();
        let mut packets = packets;
        packets.sort_unstable();
        for (at, from, to) in packets {
            network.send(Instant(at), from, to, WIRE).unwrap();
        }
        network.run_until(Instant(60 * pause));
        let full = network.held().iter().filter(|(_, bytes)| *bytes > u64::from(WIRE)).count();
        network.run().unwrap();
        let victims = network.delivered().iter().filter(|Delivery { to, .. }| *to == 12);
        return (mean(&victims.map(|delivery| delivery.at.since(delivery.sent).0).collect::<Vec<_>>()), full);
    }
    let (sent, received) = (packets.clone(), packets);
    let report = Sim::run(&config, move |rank| {
        let me = rank.rank();
        let mut mine: Vec<_> = sent.iter().filter(|(_, from, _)| *from == me).collect();
        mine.sort_unstable();
        for (at, _, to) in mine {
            rank.charge(Span(at.saturating_sub(rank.now().0)));
            rank.send(*to, WIRE, rank.now());
        }
        let expected = received.iter().filter(|(_, _, to)| *to == me).count();
        (0..expected)
            .map(|_| rank.wait())
            .filter(|packet| packet.from == 15)
            .map(|packet| rank.now().since(packet.body).0)
            .collect()
    });
    let results: Vec<Option<Vec<u64>>> = report.unwrap().results;
    (mean(results[12].as_ref().unwrap()), 0)
}

/// An incast that asks for more than its last link fills the buffers up to the senders, and others wait behind it,
/// though nothing that they use is overloaded. In the engine they do not.
#[test]
fn an_incast_saturates_a_tree_of_links() {
    let ((calm, few), (stormy, many)) = (beside_an_incast(0.7, true), beside_an_incast(1.6, true));
    assert!(many >= 6 && few < many, "{few} and {many} links have full buffers");
    assert!(stormy > 5.0 * calm, "{stormy} ns against {calm} ns");
    let (calm, stormy) = (beside_an_incast(0.7, false).0, beside_an_incast(1.6, false).0);
    assert!(stormy < 2.0 * calm, "{stormy} ns against {calm} ns in the engine");
}

#[test]
fn what_it_costs_in_events() {
    let config = config("torus:8x8");
    let (mut network, mut random, mut hops) = (Buffered::new(&config, turns(4)).unwrap(), 3, 0);
    for number in 0..5000 {
        let mut draw = || (splitmix64(&mut random) % 64) as u32;
        let (from, to) = (draw(), draw());
        network.send(Instant(number * 30_000), from, to, WIRE).unwrap();
        hops += u64::from(network.network.hops(from, to));
    }
    network.run().unwrap();
    // A head, a last bit, room and a look for each, and another look where somebody waits; and a packet's
    // beginning, last bit and look.
    assert!(network.events() <= 5 * hops + 3 * 5000, "{} events for {hops} links", network.events());
    assert!(network.events() >= 4 * hops, "{} events for {hops} links", network.events());
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut Config), buffers: Buffers| {
        let mut config = config("torus:4x4");
        change(&mut config);
        Buffered::new(&config, buffers).map(drop).unwrap_err().to_string()
    };
    let adaptive = refused(|config| config.routing.algorithm = Algorithm::Adaptive, turns(1));
    assert_eq!(
        adaptive,
        "routing.algorithm is adaptive, but must be default, dimension_order or minimal where buffers are finite"
    );
    let small = Buffers { channel_bytes: 8, ..turns(1) };
    let header = refused(|config| config.nic.header_bytes = 8, small);
    assert_eq!(header, "buffers.channel_bytes is 8, but must be above 8, a packet's header");
    let mut network = Buffered::new(&config("torus:4x4"), turns(1)).unwrap();
    let long = network.send(Instant(0), 0, 1, WIRE + 1).unwrap_err().to_string();
    assert_eq!(long, "buffers.channel_bytes is 1000, but must be at least 1001, a packet with its header");
    assert_eq!(network.send(Instant(0), 0, 16, 1).unwrap_err().to_string(), "node is 16, but must be below 16");
}
