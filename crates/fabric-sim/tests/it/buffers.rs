//! Programs on networks with finite buffers, which a machine's file chooses.

use fabric_sim::buffered::{Arbitration, Buffers};
use fabric_sim::{
    Config, Context, LinkParameters, Mailbox, NetworkModel, PortParameters, RunError, Sim, Topology,
};

type Rank<'a> = Context<'a, Mailbox<u64>>;

const PACKET: u32 = 500;

/// A machine with links of 1 GB/s that carry packets of half a microsecond.
fn machine(topology: &str, model: NetworkModel) -> Config {
    let topology: Topology = topology.parse().unwrap();
    let mut config = Config { model, ..Config::new(topology.nodes().unwrap()) };
    config.topology = topology;
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 50.0 };
    config.nic.packet_bytes = PACKET;
    config.buffers = Buffers { channel_bytes: 2 * PACKET, arbitration: Arbitration::RoundRobin };
    config
}

const BOTH: [NetworkModel; 2] = [NetworkModel::Queues, NetworkModel::Buffered];

/// A message that meets nobody takes as long in both models, in one packet or in many.
#[test]
fn alone_messages_take_as_long() {
    for topology in ["mesh:4x4", "torus:5x4", "hypercube:4", "fat_tree:4x2", "dragonfly:2x3x1", "crossbar:9"] {
        for bytes in [1, 480, 481, 100_000] {
            let took = BOTH.map(|model| {
                let mut config = machine(topology, model);
                (config.nic.header_bytes, config.nic.ordered) = (20, true);
                config.nic.port =
                    PortParameters { injection_mb_s: 900.0, ejection_mb_s: 1500.0, ..PortParameters::default() };
                let last = config.ranks - 1;
                let report = Sim::run(&config, move |rank: Rank<'_>| match rank.rank() {
                    0 => rank.send(last, bytes, 1),
                    me if me == last => assert_eq!(rank.wait().bytes, bytes),
                    _ => {}
                });
                report.unwrap().ended.0 as f64 / 1e6
            });
            // A port that is slower than the link lets every packet of a message wait for the one before it.
            let apart = (took[0] - took[1]).abs();
            assert!(apart <= 1e-3 + 0.002 * took[0], "{topology}, {bytes} bytes: {took:?} us");
        }
    }
}

/// The mean latency in microseconds of what rank 15 sends to rank 12, beside an incast of all others into rank 0.
fn beside_an_incast(model: NetworkModel, pause_ns: u64) -> f64 {
    let report = Sim::run(&machine("mesh:4x4", model), move |rank: Rank<'_>| {
        let me = rank.rank();
        let to = if me == 15 { 12 } else { 0 };
        if !matches!(me, 0 | 12) {
            for _ in 0..60 {
                rank.charge(am_core::Span::from_nanos(pause_ns));
                rank.send(to, PACKET, rank.now().0);
            }
        }
        let expected = match me {
            0 => 60 * 13,
            12 => 60,
            _ => 0,
        };
        (0..expected).map(|_| rank.wait().body).map(|sent| rank.now().0 - sent).sum::<u64>() as f64 / 60e6
    });
    report.unwrap().results[12].unwrap()
}

/// An incast that asks for more than its last link carries fills the buffers up to the senders, and delays what
/// crosses them on links that are not overloaded. Where links hold everything it does not.
#[test]
fn an_incast_delays_what_it_crosses() {
    // 13 senders with a packet of half a microsecond each: the last link is full at 6.5 us.
    let [(calm, storm), (buffered_calm, buffered_storm)] =
        BOTH.map(|model| (beside_an_incast(model, 13_000), beside_an_incast(model, 2_500)));
    assert!(storm < 2.0 * calm, "queues: {calm} us alone, {storm} us beside the incast");
    assert!(
        buffered_storm > 5.0 * buffered_calm,
        "buffered: {buffered_calm} us alone, {buffered_storm} us beside it"
    );
    assert!((buffered_calm / calm - 1.0).abs() < 0.2, "{calm} and {buffered_calm} us");
}

/// How much of the last link of a line each of 15 senders gets while all of them send, of what would be fair. The
/// first packets, which arrive while buffers fill, are not counted.
fn shares(arbitration: Arbitration) -> Vec<f64> {
    const COUNTED: u32 = 4096;
    let mut config = machine("mesh:16", NetworkModel::Buffered);
    config.buffers.arbitration = arbitration;
    let report = Sim::run(&config, |rank: Rank<'_>| {
        let me = rank.rank();
        let mut counts = vec![0.0; 15];
        if me != 0 {
            for _ in 0..COUNTED + 1088 {
                rank.charge(am_core::Span::from_nanos(500));
                rank.send(0, PACKET, 0);
            }
            return (counts, rank.now());
        }
        (0..1024).for_each(|_| assert_eq!(rank.wait().bytes, PACKET));
        (0..COUNTED).for_each(|_| counts[rank.wait().from as usize - 1] += 15.0 / f64::from(COUNTED));
        (counts, rank.now())
    });
    let results: Vec<_> = report.unwrap().results.into_iter().flatten().collect();
    assert!(results.iter().all(|(_, sent)| *sent >= results[0].1), "a sender ended before the count did");
    results[0].0.clone()
}

/// By age all senders get as much within a tenth. By turns each switch gives half of its link to its own node, so
/// that the nearest has half of everything, the next a quarter, and so on.
#[test]
fn senders_on_a_line_share_by_age() {
    let (oldest, turns) = (shares(Arbitration::Oldest), shares(Arbitration::RoundRobin));
    assert!(oldest.iter().all(|share| (0.9..=1.1).contains(share)), "{oldest:?}");
    for (place, share) in turns[..5].iter().enumerate() {
        let half = 15.0 / f64::from(2 << place);
        assert!((share / half - 1.0).abs() < 0.02, "{turns:?}");
    }
    assert!(turns[14] < 0.02, "{turns:?}");
}

#[test]
fn runs_repeat_themselves_and_tell_their_links() {
    let run = || {
        let mut config = machine("torus:4x4", NetworkModel::Buffered);
        config.trace = true;
        let report = Sim::run(&config, |rank: Rank<'_>| {
            for apart in 1..8 {
                rank.send((rank.rank() + apart) % 16, 300 * apart, 0);
            }
            (0..7).for_each(|_| assert!(rank.wait().bytes > 0));
        });
        report.unwrap()
    };
    let (one, other) = (run(), run());
    assert_eq!((one.hash, one.ended, one.events), (other.hash, other.ended, other.events));
    let bytes: u64 = one.links.iter().map(|link| link.bytes).sum();
    assert!(bytes > 16 * 300 * 28, "{bytes}");
    assert!(one.links.iter().all(|link| link.utilisation > 0.0 && link.utilisation <= 1.0), "{:?}", one.links);
    let spans = one.trace.unwrap().spans;
    assert!(spans.iter().filter(|span| matches!(span.stage, fabric_sim::StageKind::Link)).count() > 16 * 28);
}

#[test]
fn files_choose_the_model() {
    let text = "ranks = 4\ntopology = { kind = 'ring', nodes = 4 }\nmodel = 'buffered'\n\
                buffers = { channel_bytes = 4096, arbitration = 'oldest' }\n";
    let config = Config::from_toml(text).unwrap();
    assert_eq!((config.model, config.buffers.channel_bytes), (NetworkModel::Buffered, 4096));
    assert_eq!(Config::from_toml(&toml::to_string(&config).unwrap()).unwrap(), config);
    for (more, wanted) in [
        ("faults = { loss = 0.1 }", "faults.loss contradicts model: links with finite buffers lose"),
        ("faults = { links = [{ latency_ns = 3 }] }", "faults.links contradicts model"),
        (
            "faults = { drawn = [{ count = 1, within_ns = 9, kind = { link_flap = { down_ns = 3 } } }] }",
            "faults.drawn",
        ),
        ("routing = { algorithm = 'adaptive' }", "routing.algorithm is adaptive, but must be default"),
        ("nic = { packet_bytes = 5000 }", "buffers.channel_bytes is 4096, but must be at least 5000, a packet"),
        (
            "nic = { header_bytes = 4096 }",
            "buffers.channel_bytes is 4096, but must be above 4096, a packet's header",
        ),
    ] {
        let error = Config::from_toml(&format!("{text}{more}")).unwrap_err().to_string();
        assert!(error.contains(wanted), "{more}: {error}");
    }
    Config::from_toml(&format!(
        "{text}faults = {{ schedule = [{{ at_ns = 1, event = {{ node_stop = {{ node = 1 }} }} }}] }}"
    ))
    .unwrap();
}

/// Who waits for what cannot come is told, with what is still in the buffers.
#[test]
fn a_wait_in_vain_is_told() {
    let report = Sim::run(&machine("ring:4", NetworkModel::Buffered), |rank: Rank<'_>| {
        if rank.rank() == 0 {
            assert!(rank.wait().bytes > 0);
        }
    });
    assert!(matches!(report, Err(RunError::Deadlock(_))));
}

/// A packet that sets out while others are on their way has the engine look at the network earlier than foreseen.
/// The look that had been foreseen is none any more: looks do not multiply.
#[test]
fn looks_that_are_foreseen_anew_do_not_multiply() {
    const PACKETS: u64 = 100;
    let mut config = machine("ring:4", NetworkModel::Buffered);
    config.nic.link.latency_ns = 20_000.0;
    config.buffers.channel_bytes = 200 * PACKET;
    let report = Sim::run(&config, |rank: Rank<'_>| match rank.rank() {
        0 => (0..PACKETS).for_each(|number| {
            rank.charge(am_core::Span::from_nanos(100));
            rank.send(1, 10, number);
        }),
        1 => (0..PACKETS).for_each(|number| assert_eq!(rank.wait().body, number)),
        _ => {}
    });
    let events = report.unwrap().events;
    assert!(events < 16 * PACKETS, "{events} events");
}
