//! What the ways through topologies have to be.

use super::*;
use crate::network::DIRECT;
use proptest::prelude::*;

fn path(network: &Network, from: u32, to: u32) -> Vec<u32> {
    let (mut at, mut links, flow) = (from, Vec::new(), network.flow(from, to));
    while at != to {
        let (link, next) = network.next(at, to, flow);
        assert!((link as usize) < network.links());
        links.push(link);
        at = next;
        assert!(links.len() <= 200_000, "a way ends");
    }
    links
}

proptest! {
    #[test]
    fn ways_in_grids_are_shortest_and_in_dimension_order(
        dims in prop::collection::vec(1u32..6, 1..6), wraps: bool, from: u32, to: u32
    ) {
        let extents = dims.clone();
        let topology = if wraps { Topology::Torus { dims: extents } } else { Topology::Mesh { dims: extents } };
        let network = topology.compile(Algorithm::Default).unwrap();
        let (from, to) = (from % network.nodes, to % network.nodes);
        let links = path(&network, from, to);
        prop_assert_eq!(links.len() as u32, network.hops(from, to));
        prop_assert_eq!(links.len() as u32, network.hops(to, from));
        prop_assert!(links.is_sorted_by_key(|link| network.class(*link)));
    }

    #[test]
    fn switches_take_two_links_and_cables_one(nodes in 2u32..200, from: u32, to: u32) {
        let (from, to) = (from % nodes, to % nodes);
        prop_assume!(from != to);
        let paths = [Topology::Crossbar { nodes }, Topology::Direct { nodes }].map(|t| {
            let network = t.compile(Algorithm::Default).unwrap();
            (path(&network, from, to).len(), network.hops(from, to))
        });
        prop_assert_eq!(paths, [(2, 2), (1, 1)]);
    }

    /// Links of different pairs of neighbours are different.
    #[test]
    fn each_link_has_one_beginning(dims in prop::collection::vec(3u32..5, 1..4)) {
        let network = Topology::Torus { dims }.compile(Algorithm::Default).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for from in 0..network.nodes {
            for to in (0..network.nodes).filter(|to| *to != from) {
                let (link, next) = network.next(from, to, network.flow(from, to));
                prop_assert_eq!(*seen.entry(link).or_insert((from, next)), (from, next));
            }
        }
    }
}

#[test]
fn impossible_topologies_name_field_and_limit() {
    let refused = |topology: Topology| topology.nodes().unwrap_err().to_string();
    assert_eq!(refused(Topology::Ring { nodes: 0 }), "topology.nodes is 0, but must be from 1 to 65536");
    assert_eq!(refused(Topology::Direct { nodes: 257 }), "topology.nodes is 257, but must be from 1 to 256");
    assert_eq!(refused(Topology::Mesh { dims: vec![4, 0] }), "topology.dims[1] is 0, but must be from 1 to 65536");
    assert_eq!(
        refused(Topology::Torus { dims: vec![2; 9] }),
        "topology.dims is [2, 2, 2, 2, 2, 2, 2, 2, 2], but must be a list of 1 to 8 extents"
    );
    assert!(refused(Topology::Mesh { dims: vec![4096, 4096] }).contains("at most 65536 nodes"));
    let texts = [
        ("hypercube:17", "topology.dims is 17, but must be from 1 to 16"),
        ("fat_tree:1x2", "topology.arity is 1, but must be from 2 to 65536"),
        ("fat_tree:4x9", "topology.levels is 9 of arity 4 (262144 nodes), but must be at most 65536 nodes"),
        ("fat_tree:4x2x3", "topology.oversubscription is 3, but must be a divisor of the arity, 4"),
        ("dragonfly:0x4x2", "topology.terminals is 0, but must be from 1 to 4096"),
        ("dragonfly:2x4x2x10", "topology.groups is 10, but must be from 1 to 9"),
    ];
    for (text, expected) in texts {
        assert_eq!(text.parse::<Topology>().unwrap_err().to_string(), expected);
    }
}

#[test]
fn neighbours_are_connected_and_others_are_not() {
    let mesh = Topology::Mesh { dims: vec![3, 3] }.compile(Algorithm::Default).unwrap();
    assert!(mesh.between(0, 1).len() == 1 && mesh.between(0, 3).len() == 1);
    assert_eq!(
        [(0, 2), (0, 4), (1, 1), (0, 9)].map(|(from, to)| mesh.between(from, to)),
        [const { Vec::<u32>::new() }; 4]
    );
    let star = Topology::Crossbar { nodes: 3 }.compile(Algorithm::Default).unwrap();
    assert_eq!([(1, 3), (3, 1), (0, 1)].map(|(from, to)| star.between(from, to)), [vec![1], vec![4], vec![]]);
    let circle = Topology::Ring { nodes: 2 }.compile(Algorithm::Default).unwrap();
    assert_eq!(circle.between(0, 1).len(), 2, "an outage between two nodes takes both");
    assert_eq!((mesh.name(4), star.name(4)), ("1 +x".into(), "switch -> 1".into()));
}

/// One small topology of each kind, and more where sizes matter.
pub(crate) fn all() -> Vec<Topology> {
    let texts = [
        "direct:5",
        "crossbar:6",
        "ring:2",
        "ring:7",
        "mesh:4x3",
        "mesh:2x3x2x2",
        "torus:4x4",
        "torus:2x4x3",
        "torus:5x2x2x2",
        "hypercube:1",
        "hypercube:4",
        "fat_tree:2x1",
        "fat_tree:2x3",
        "fat_tree:4x2x2",
        "fat_tree:3x3",
        "fat_tree:4x3x4",
        "dragonfly:1x1x1",
        "dragonfly:1x2x1",
        "dragonfly:2x4x2",
        "dragonfly:2x4x2x5",
        "dragonfly:1x4x1x2",
        "dragonfly:2x3x1x1",
    ];
    texts.into_iter().map(|text| text.parse().unwrap()).collect()
}

fn compile(topology: &Topology) -> Network {
    topology.compile(Algorithm::Default).unwrap()
}

#[test]
fn every_way_is_made_of_links() {
    for topology in all() {
        let network = compile(&topology);
        for from in 0..network.nodes {
            for to in (0..network.nodes).filter(|to| *to != from) {
                let (mut at, mut hops, flow) = (from, 0, network.flow(from, to));
                assert_ne!(flow & DIRECT, 0);
                while at != to {
                    let (link, next) = network.next(at, to, flow);
                    assert!(network.ports(at).contains(&link), "{topology}: {at}");
                    assert_eq!(network.head(link), Some(next), "{topology}: link {link}");
                    assert!(network.class(link) < network.classes().len());
                    (at, hops) = (next, hops + 1);
                }
                assert_eq!(hops, network.hops(from, to), "{topology}: {from} to {to}");
            }
        }
    }
}

#[test]
fn every_link_has_one_back() {
    for topology in all() {
        let network = compile(&topology);
        let mut numbers = Vec::new();
        for vertex in 0..network.vertices() {
            for link in network.ports(vertex) {
                numbers.push(link as usize);
                let Some(end) = network.head(link) else { continue };
                let to =
                    |from: u32, to| network.ports(from).filter(|link| network.head(*link) == Some(to)).count();
                assert_eq!(to(vertex, end), to(end, vertex), "{topology}: {}", network.name(link));
                assert!(network.between(vertex, end).iter().any(|link| network.head(*link) == Some(end)));
            }
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..network.links()), "{topology}");
    }
}

#[test]
fn diameters_are_those_of_the_links() {
    for topology in all() {
        let network = compile(&topology);
        let longest = (0..network.nodes).map(|node| network.reach(node)).max().unwrap();
        assert_eq!(topology.diameter().unwrap(), longest, "{topology}");
        let taken = (0..network.nodes).flat_map(|from| (0..network.nodes).map(move |to| (from, to)));
        // With several links between two groups, dragonflies take the one that a pair hashes to.
        if !matches!(topology, Topology::Dragonfly { groups: Some(2..), .. }) {
            assert_eq!(taken.map(|(from, to)| network.hops(from, to)).max().unwrap(), longest, "{topology}");
        }
    }
    let formulas = [
        ("mesh:4x5x6", 3 + 4 + 5),
        ("torus:8x7", 4 + 3),
        ("hypercube:10", 10),
        ("fat_tree:8x3", 6),
        ("dragonfly:4x8x4", 5),
    ];
    for (text, diameter) in formulas {
        assert_eq!(text.parse::<Topology>().unwrap().diameter().unwrap(), diameter, "{text}");
    }
}

/// The fewest cables between two halves of the nodes, over all halves and all sides that switches may be on.
fn fewest_cables(network: &Network) -> u64 {
    let (nodes, vertices) = (network.nodes, network.vertices());
    assert!(vertices <= 20, "{vertices} vertices are too many to try all halves");
    let cables: Vec<(u32, u32)> = (0..vertices)
        .flat_map(|vertex| network.ports(vertex).filter_map(move |link| Some((vertex, network.head(link)?))))
        .collect();
    let halves = (0..1u32 << vertices).filter(|side| (side & ((1 << nodes) - 1)).count_ones() == nodes / 2);
    let cut =
        |side: u32| cables.iter().filter(|(one, other)| side >> one & 1 == 1 && side >> other & 1 == 0).count();
    halves.map(|side| cut(side) as u64).min().unwrap()
}

#[test]
fn bisections_are_the_fewest_cables() {
    for text in [
        "direct:4",
        "direct:5",
        "crossbar:6",
        "ring:8",
        "ring:2",
        "mesh:4x3",
        "mesh:4x2x2",
        "torus:4x4",
        "torus:2x2x4",
        "torus:4x3",
        "hypercube:4",
        "fat_tree:2x3",
        "fat_tree:4x1",
        "fat_tree:2x2x2",
        "dragonfly:1x2x1",
        "dragonfly:1x2x2x4",
        "dragonfly:2x2x1",
        "dragonfly:1x4x1x2",
        "ringlets:4x2",
        "ringlets:2x4",
        "ringlets:4x4",
        "ringlets:6",
    ] {
        let topology: Topology = text.parse().unwrap();
        let (network, one_way) = (compile(&topology), matches!(topology, Topology::Ringlets { .. }));
        let fewest = fewest_cables(&network);
        assert_eq!(topology.bisection().unwrap(), Some(fewest), "{text}");
        assert_eq!(Cables::of(&network, one_way).fewest(), [fewest; 2], "{text}");
    }
    let formulas = [
        ("mesh:8x4", Some(4)),
        ("torus:16x8x8", Some(128)),
        ("hypercube:12", Some(2048)),
        ("fat_tree:16x3", Some(2048)),
        ("fat_tree:16x3x4", Some(512)),
        ("dragonfly:4x8x4", Some(16 * 16 + 16)),
        ("torus:5x5", None),
        ("ring:7", None),
    ];
    for (text, bisection) in formulas {
        assert_eq!(text.parse::<Topology>().unwrap().bisection().unwrap(), bisection, "{text}");
    }
}

/// The same network as a graph, as a file describes it.
fn as_graph(network: &Network) -> Network {
    let word = |vertex: u32| if vertex < network.nodes { vertex.to_string() } else { format!("s{vertex}") };
    let mut text = String::new();
    for vertex in 0..network.vertices() {
        for end in network.ports(vertex).filter_map(|link| network.head(link)).filter(|end| vertex < *end) {
            text += &format!("{} {}\n", word(vertex), word(end));
        }
    }
    let graph = Graph::parse(&text, graph::Ways::Shortest).unwrap();
    assert_eq!((graph.nodes, graph.vertices()), (network.nodes, network.vertices()));
    Network::new(graph.nodes, Shape::Graph(Box::new(graph)))
}

/// A graph of a known topology has its bisection: between the bounds that are found always, and where these meet
/// as the formula says it.
#[test]
fn graphs_have_the_bisection_of_what_they_are() {
    // Topology and lower bound where it is not the formula's.
    for (text, least) in [
        ("direct:9", None),
        ("crossbar:40", Some(11)),
        ("ring:64", None),
        ("mesh:8x4", None),
        ("mesh:6x6", Some(5)),
        ("torus:8x4", None),
        ("torus:8x8", None),
        ("torus:4x4x4", None),
        ("hypercube:7", None),
        ("fat_tree:4x3", Some(17)),
        ("fat_tree:4x2x2", None),
        ("dragonfly:2x4x2", Some(15)),
        ("dragonfly:4x8x4x4", Some(33)),
    ] {
        let topology: Topology = text.parse().unwrap();
        let formula = topology.bisection().unwrap().unwrap();
        let found = Cables::of(&as_graph(&compile(&topology)), false).fewest();
        assert_eq!(found, [least.unwrap_or(formula), formula], "{text}");
    }
}

/// What is found by trying all halves is what the plain count of the tests finds, of graphs that are nothing
/// known.
#[test]
fn bounds_hold_the_fewest_cables_of_graphs() {
    let mut state = 7;
    for case in 0..60 {
        let mut below = |limit: u32| (crate::random::splitmix64(&mut state) % u64::from(limit)) as u32;
        let (nodes, switches) = (2 + below(9), 1 + below(5));
        let word = |vertex: u32| if vertex < nodes { vertex.to_string() } else { format!("s{vertex}") };
        let mut text = String::new();
        for vertex in 1..nodes + switches {
            text += &format!("{} {}\n", word(vertex), word(below(vertex)));
        }
        for _ in 0..below(12) {
            let (one, other) = (below(nodes + switches), below(nodes + switches));
            if one != other {
                text += &format!("{} {}\n", word(one), word(other));
            }
        }
        let graph = Graph::parse(&text, graph::Ways::Shortest).unwrap();
        let network = Network::new(graph.nodes, Shape::Graph(Box::new(graph)));
        let (cables, fewest) = (Cables::of(&network, false), fewest_cables(&network));
        assert_eq!(cables.fewest(), [fewest; 2], "case {case}: {text}");
        let (least, most) = (cables.carried(), cables.found());
        assert!(least <= fewest && fewest <= most, "case {case}: {least}, {fewest}, {most}: {text}");
    }
}

/// Over all pairs both ways around an even circle carry the same.
#[test]
fn ties_on_tori_go_both_ways() {
    for text in ["torus:4x4x4", "torus:8x8", "torus:4x6", "ring:8"] {
        let network = compile(&text.parse().unwrap());
        let mut load = vec![0u32; network.links()];
        for from in 0..network.nodes {
            for to in (0..network.nodes).filter(|to| *to != from) {
                path(&network, from, to).into_iter().for_each(|link| load[link as usize] += 1);
            }
        }
        for class in 0..network.classes().len() {
            let of_class: Vec<u32> = (0..load.len())
                .filter(|link| network.class(*link as u32) == class)
                .map(|link| load[link])
                .collect();
            let (least, most) = (*of_class.iter().min().unwrap(), *of_class.iter().max().unwrap());
            assert!(f64::from(most - least) <= 0.1 * f64::from(most), "{text}: from {least} to {most}");
        }
    }
}

#[test]
fn graphs_are_what_their_files_say() {
    let text = "0 left # a comment\n1 left\n2 right\n\nleft right trunk\n3 right fast\n";
    for ways in [graph::Ways::Shortest, graph::Ways::UpDown] {
        let graph = Graph::parse(text, ways).unwrap();
        let network = Network::new(graph.nodes, Shape::Graph(Box::new(graph)));
        assert_eq!((network.nodes, network.vertices(), network.links()), (4, 6, 10));
        assert_eq!(network.classes(), ["link", "trunk", "fast"]);
        assert_eq!((network.hops(0, 1), network.hops(0, 2), network.hops(2, 3)), (2, 3, 2));
        let names: Vec<String> = path(&network, 0, 3).into_iter().map(|link| network.name(link)).collect();
        assert_eq!(names, ["0 -> left", "left -> right", "right -> 3"]);
        let classes: Vec<usize> = path(&network, 0, 3).into_iter().map(|link| network.class(link)).collect();
        assert_eq!(classes, [0, 1, 2]);
        let Shape::Graph(graph) = &network.shape else { unreachable!() };
        assert_eq!(graph.diameter(), 3);
    }
    let wrong = [
        ("0 0", "line 1: '0' is linked to itself"),
        ("0 a\n1 b", "there is no way from a to b"),
        ("0 a\n2 a", "node 1 has no link, although there are nodes up to 2"),
        ("0 a fast slow", "line 1: 4 words"),
        ("a b", "there is no node"),
        ("0 a\n9999999 a", "line 2: node 9999999, but must be below 65536"),
        ("0 1\n2 3", "nodes 0 and 1 are linked to nothing else"),
        ("0x a", "line 1: '0x' is no node's number"),
    ];
    for (text, expected) in wrong {
        let (line, problem) = Graph::parse(text, graph::Ways::Shortest).unwrap_err();
        let found = if line == 0 { problem } else { format!("line {line}: {problem}") };
        assert!(found.starts_with(expected), "{text:?}: {found}");
    }
}
