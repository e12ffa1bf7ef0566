//! Networks as programs see them: classes of links, ways around what is busy, placements, and what halves can
//! exchange.

use fabric_sim::{Algorithm, Config, LinkParameters, Placement, Report, Routing, Sim, Topology};
use std::fs;
use std::path::PathBuf;

/// Links of 1000 MB/s and 10 ns.
fn machine(topology: &str, ranks: u32) -> Config {
    let mut config = Config::new(ranks);
    config.topology = topology.parse().unwrap();
    config.nic.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 10.0 };
    config
}

/// Every rank sends `count` packets of 1000 bytes to each rank that it is to; returns the report.
fn exchange(config: &Config, count: u32, to: impl Fn(u32, u32) -> Vec<u32> + 'static) -> Report<()> {
    let report = Sim::run(config, move |rank| {
        let (me, ranks) = (rank.rank(), rank.ranks());
        for _ in 0..count {
            to(me, ranks).into_iter().for_each(|to| rank.send(to, 1000, ()));
        }
        let incoming = (0..ranks).flat_map(|from| to(from, ranks)).filter(|to| *to == me).count();
        for _ in 0..incoming * count as usize {
            rank.wait();
        }
    });
    report.unwrap()
}

/// A folder of this test's own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fabric-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies in the system's folder for what may be lost.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn classes_of_links_differ() {
    let mut config = machine("dragonfly:1x2x1", 6);
    let slow = LinkParameters { bandwidth_mb_s: 100.0, latency_ns: 500.0 };
    config.links.insert("global".into(), slow);
    let took = |config: &Config, to: u32| {
        let report = Sim::run(config, move |rank| match rank.rank() {
            0 => rank.send(to, 1000, ()),
            me if me == to => _ = rank.wait(),
            _ => {}
        });
        report.unwrap().ended.0
    };
    // Node 1 is on the other router of the group: three links of 10 ns, and the bytes at 1000 MB/s.
    assert_eq!(took(&config, 1), 3 * 10_000 + 1_000_000);
    let hops = u64::from((2..6).map(|to| took(&config, to)).min().unwrap() > 500_000);
    assert_eq!(hops, 1, "other groups are behind a global link");
    let nearest = (2..6).map(|to| took(&config, to)).min().unwrap();
    assert_eq!(nearest, 2 * 10_000 + 500_000 + 10_000_000, "the slow link takes the bytes ten times as long");
    config.links.insert("lokal".into(), slow);
    assert_eq!(
        config.check().unwrap_err().to_string(),
        "links is lokal, but must be one of host, local, global, the classes of links of dragonfly:1x2x1"
    );
}

/// All of a group send to the next one, over a single link; detours use the others.
#[test]
fn adaptive_routing_goes_around_a_busy_link() {
    let took = |algorithm| {
        let mut config = machine("dragonfly:2x4x2", 72);
        config.routing = Routing { algorithm, virtual_channels: 0 };
        exchange(&config, 40, |me, ranks| vec![(me + 8) % ranks]).ended.0
    };
    let [minimal, valiant, adaptive] = [Algorithm::Minimal, Algorithm::Valiant, Algorithm::Adaptive].map(took);
    assert!(minimal >= 8 * 40 * 1_000_000, "eight nodes share a link: {minimal}");
    assert!(2 * valiant < minimal && 2 * adaptive < minimal, "{valiant} and {adaptive} against {minimal}");
    // Without anything in the way, adaptive routing takes the shortest one.
    let quiet = |algorithm| {
        let mut config = machine("dragonfly:2x4x2", 72);
        config.routing.algorithm = algorithm;
        exchange(&config, 1, |me, _| if me == 0 { vec![40] } else { vec![] }).ended
    };
    assert_eq!(quiet(Algorithm::Adaptive), quiet(Algorithm::Minimal));
}

/// In a fat tree the destination chooses the way up, so that some patterns meet; adaptive routing spreads them.
#[test]
fn adaptive_routing_spreads_over_a_fat_tree() {
    let took = |algorithm| {
        let mut config = machine("fat_tree:4x2", 16);
        config.routing.algorithm = algorithm;
        // The four nodes of a switch send to nodes of equal place at the others.
        exchange(&config, 50, |me, _| if me % 4 == me / 4 { vec![] } else { vec![me % 4 * 4] }).ended.0
    };
    let [default, adaptive] = [Algorithm::Default, Algorithm::Adaptive].map(took);
    assert!(adaptive <= default, "{adaptive} against {default}");
}

/// Halves that exchange everything take at least as long as the bisection's cables need.
#[test]
fn halves_exchange_no_more_than_the_bisection() {
    for topology in ["mesh:4x4", "torus:4x4", "hypercube:4", "fat_tree:4x2", "fat_tree:4x2x2", "ring:16"] {
        let kind: Topology = topology.parse().unwrap();
        let (nodes, cables) = (kind.nodes().unwrap(), kind.bisection().unwrap().unwrap());
        let count = 20;
        // The upper half of the longest, last, dimension is the upper half of the numbers.
        let report = exchange(&machine(topology, nodes), count, |me, ranks| {
            let other = if me < ranks / 2 { ranks / 2..ranks } else { 0..ranks / 2 };
            other.collect()
        });
        let bytes = u64::from(nodes / 2) * u64::from(nodes / 2) * u64::from(count) * 1000;
        let least = bytes * 1000 / cables;
        assert!(report.ended.0 >= least, "{topology}: {} against {least}", report.ended.0);
        assert!(report.ended.0 < 3 * least, "{topology}: {} against {least}", report.ended.0);
    }
}

#[test]
fn files_of_graphs_and_places_lie_beside_the_machines() {
    let folder = Folder::new("files");
    folder.write("net.txt", "0 a\n1 a\n2 b\na b trunk\n");
    folder.write("places.txt", "2 0 # the two ends\n1\n");
    let machine = "ranks = 3\n[topology]\nkind = 'graph'\nfile = 'net.txt'\n[placement.file]\nfile = 'places.txt'\n\
                   [nic.link]\nlatency_ns = 5\n[links.trunk]\nlatency_ns = 100\n";
    let path = folder.write("machine.toml", machine);
    let config = Config::from_file(&path).unwrap();
    let report = Sim::run(&config, |rank| match rank.rank() {
        0 => rank.send(1, 8, ()),
        1 => _ = rank.wait(),
        _ => {}
    });
    assert_eq!(report.unwrap().ended.0, (5 + 100 + 5) * 1000);
    for (places, expected) in [
        ("0 1", "2 nodes, but must be one for each of 3 ranks"),
        ("0\n1\n7", "line 3: node 7, but must be below the number of nodes, 3"),
        ("0 0 1", "line 1: node 0 has 2 ranks, but must have at most 1"),
        ("0 one", "line 1: 'one' is no node's number"),
    ] {
        let file = folder.write("wrong.txt", places);
        let error =
            Config { placement: Placement::File { file }, ..config.clone() }.check().unwrap_err().to_string();
        assert!(error.starts_with("placement.file.file ") && error.ends_with(expected), "{error}");
    }
    folder.write("net.txt", "0 a\n1 a a a\n");
    let error = Topology::Graph { file: folder.0.join("net.txt") }.nodes().unwrap_err().to_string();
    assert!(error.ends_with("net.txt, line 2: 4 words, but must be two ends and at most one class"), "{error}");
    // With the machine's own line.
    let wrong = |line: &str| {
        let error = Config::from_file(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("machine.toml, {line} {}", folder.0.display())), "{error}");
    };
    wrong("line 4: topology.file");
    folder.write("net.txt", "0 a\n1 a\n2 b\na b trunk\n");
    folder.write("places.txt", "0\n1\n7\n");
    wrong("line 6: placement.file.file");
}

/// The draws of ways come from the seed, and a pair's packets stay in order unless the routing says otherwise.
#[test]
fn equal_seeds_take_equal_ways() {
    let run = |seed| {
        let mut config = machine("hypercube:4", 16);
        config.routing.algorithm = Algorithm::Valiant;
        config.faults.seed = seed;
        exchange(&config, 10, |me, ranks| vec![ranks - 1 - me]).hash
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
