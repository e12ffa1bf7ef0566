//! No links wait for each other in a circle, as long as there are as many virtual channels as the routing says.

use super::*;
use crate::network::{DIRECT, SHORTEST, UNDECIDED};
use crate::topology::{Topology, tests::all};
use std::collections::BTreeSet;

fn network(text: &str, algorithm: Algorithm) -> Result<Network, ConfigError> {
    let topology: Topology = text.parse()?;
    let mut network = topology.compile(algorithm)?;
    Routing { algorithm, virtual_channels: 64 }.apply(&mut network, text, false)?;
    Ok(network)
}

/// The ways that packets of a pair may take: links, and for each whether it is in the first part of a detour.
fn ways(network: &Network, from: u32, to: u32) -> Vec<Vec<(u32, bool)>> {
    let straight = |network: &Network, from, to, first| {
        let (mut at, mut links) = (from, Vec::new());
        let flow = match network.flow(from, to) {
            flow if flow & DIRECT != 0 => flow,
            _ => network.straight(from, to),
        };
        while at != to {
            let (link, next) = network.next(at, to, flow);
            links.push((link, first));
            at = next;
        }
        links
    };
    let mut all = vec![straight(network, from, to, false)];
    if network.algorithm.keeps_order() {
        return all;
    }
    if let Shape::FatTree(tree) = &network.shape {
        // All ways up.
        let mut open = vec![(from, Vec::new())];
        while let Some((at, links)) = open.pop() {
            let next = match tree.choices(at, to) {
                Some((first, count)) => (first..first + count).map(|link| (link, tree.head(link))).collect(),
                None => vec![tree.next(at, to, None)],
            };
            for (link, end) in next {
                let mut links = links.clone();
                links.push((link, false));
                if end == to { all.push(links) } else { open.push((end, links)) }
            }
        }
        return all;
    }
    // Detours begin where there is a choice: at a node, or at its switch.
    for via in 0..network.vertices() {
        let mut detour = network.clone();
        let (mut at, mut flow, mut links) = (from, via, Vec::new());
        if matches!(network.shape, Shape::Dragonfly(_) | Shape::Graph(_)) {
            let (link, next) = network.next(from, to, network.straight(from, to));
            links.push((link, true));
            at = next;
        }
        let outside = match &network.shape {
            Shape::Dragonfly(fly) => {
                via < network.nodes || [at, to].map(|end| fly.group(end)).contains(&fly.group(via))
            }
            Shape::Graph(graph) => !graph.is_router(via),
            _ => via >= network.nodes,
        };
        if outside || via == at || via == to || at == to {
            continue;
        }
        while at != to {
            let first = flow & DIRECT == 0;
            let (link, next, onward) = if first {
                detour.choose(at, to, flow, |_| 0)
            } else {
                let (link, next) = network.next(at, to, flow);
                (link, next, flow)
            };
            links.push((link, first));
            (at, flow) = (next, onward);
            assert!(links.len() < 100, "a way ends");
        }
        all.push(links);
    }
    all
}

/// The virtual channel of each link of a way.
fn channels(network: &Network, way: &[(u32, bool)], from: u32, to: u32) -> Vec<u32> {
    let each = if network.algorithm.keeps_order() { 1 } else { 2 };
    let part = |first: bool| u32::from(each == 2 && !first);
    match &network.shape {
        Shape::Grid(grid) => {
            let needed = network.virtual_channels() / each;
            let circles = 1 + u32::from(grid.wraps && grid.dims.iter().any(|extent| *extent > 3));
            let reversed = needed > circles && network.flow(from, to) >> 30 & 1 == 1;
            let (mut passed, mut last) = (0, (usize::MAX, true));
            let mut channel = |&(link, first): &(u32, bool)| {
                if (network.class(link), first) != last {
                    (passed, last) = (0, (network.class(link), first));
                }
                let channel = passed * (circles - 1) + circles * u32::from(reversed) + needed * part(first);
                passed |= u32::from(grid.closes(link));
                channel
            };
            way.iter().map(&mut channel).collect()
        }
        Shape::Hypercube { .. } if network.algorithm == Algorithm::Minimal => {
            way.iter().map(|_| network.flow(from, to) >> 30 & 1).collect()
        }
        Shape::Dragonfly(_) => {
            let mut globals = 0;
            let mut channel = |&(link, _): &(u32, bool)| {
                let channel = globals;
                globals += u32::from(network.class(link) == 2);
                channel
            };
            way.iter().map(&mut channel).collect()
        }
        _ => way.iter().map(|(_, first)| part(*first)).collect(),
    }
}

/// Whether links wait for each other in a circle if there are only so many channels.
fn deadlocks(network: &Network, most: u32) -> bool {
    let mut after = vec![BTreeSet::new(); network.links() * most as usize];
    for from in 0..network.nodes {
        for to in (0..network.nodes).filter(|to| *to != from) {
            for way in ways(network, from, to) {
                let channels = channels(network, &way, from, to);
                let of = |index: usize| {
                    let (link, _): (u32, bool) = way[index];
                    link * most + channels[index].min(most - 1)
                };
                for index in 1..way.len() {
                    after[of(index - 1) as usize].insert(of(index));
                }
            }
        }
    }
    has_circle(&after.into_iter().map(|links| links.into_iter().collect()).collect::<Vec<_>>())
}

#[test]
fn as_many_channels_as_needed_do_not_deadlock() {
    let algorithms = [
        Algorithm::Default,
        Algorithm::DimensionOrder,
        Algorithm::Minimal,
        Algorithm::Valiant,
        Algorithm::Adaptive,
    ];
    let mut tried = 0;
    for topology in all() {
        for algorithm in algorithms {
            let Ok(network) = network(&topology.to_string(), algorithm) else { continue };
            let needed = network.virtual_channels();
            assert!(!deadlocks(&network, needed), "{algorithm:?} on {topology} with {needed} channels");
            tried += 1;
        }
    }
    assert!(tried > 70, "{tried}");
}

#[test]
fn fewer_channels_deadlock() {
    for (text, algorithm, needed) in [
        ("ring:7", Algorithm::Default, 2),
        ("torus:4x4", Algorithm::Default, 2),
        ("torus:4x4", Algorithm::Valiant, 4),
        ("mesh:4x3", Algorithm::Minimal, 2),
        ("mesh:4x3", Algorithm::Valiant, 2),
        ("hypercube:4", Algorithm::Minimal, 2),
        ("hypercube:4", Algorithm::Valiant, 2),
        ("dragonfly:2x4x2", Algorithm::Default, 2),
        ("dragonfly:2x4x2", Algorithm::Valiant, 3),
        ("direct:5", Algorithm::Valiant, 2),
    ] {
        let network = network(text, algorithm).unwrap();
        assert_eq!(network.virtual_channels(), needed, "{algorithm:?} on {text}");
        assert!(deadlocks(&network, 1), "{algorithm:?} on {text} with one channel");
    }
}

/// A circle of switches waits for itself on shortest ways, and does not on those up and down a tree.
#[test]
fn graphs_are_checked_themselves() {
    let circle: String = (0..7).map(|at| format!("{at} s{at}\ns{at} s{}\n", (at + 1) % 7)).collect();
    let parsed = |ways| crate::topology::graph::Graph::parse(&circle, ways).unwrap();
    let make = |algorithm: Algorithm, virtual_channels| {
        let graph = parsed(algorithm.ways());
        let mut network = Network::new(graph.nodes, Shape::Graph(Box::new(graph)));
        let routed = Routing { algorithm, virtual_channels }.apply(&mut network, "graph:circle", false);
        routed.map(|()| network)
    };
    let refused = make(Algorithm::Minimal, 1).unwrap_err().to_string();
    assert_eq!(
        refused,
        "routing.virtual_channels is 1, but must be at least 3, or minimal routing on graph:circle could deadlock; up_down routing \
         needs 1"
    );
    let up_down = make(Algorithm::UpDown, 1).unwrap();
    assert_eq!(up_down.virtual_channels(), 1);
    assert!(!deadlocks(&up_down, 1));
    assert!(deadlocks(&make(Algorithm::Minimal, 3).unwrap(), 1));
    assert_eq!(make(Algorithm::Adaptive, 0).unwrap().virtual_channels(), 6);
    // All nodes reach each other on both.
    let hops = |network: &Network| {
        (0..7)
            .flat_map(|from| (0..7).map(move |to| (from, to)))
            .map(|(from, to)| network.hops(from, to))
            .sum::<u32>()
    };
    assert!(hops(&up_down) > hops(&make(Algorithm::Minimal, 3).unwrap()));
    let tree = crate::topology::graph::Graph::parse("0 a\n1 b\na b", Ways::Shortest).unwrap();
    assert_eq!(Network::new(2, Shape::Graph(Box::new(tree))).virtual_channels(), 1);
}

#[test]
fn what_a_topology_cannot_route_is_refused() {
    for (text, algorithm, expected) in [
        (
            "crossbar:4",
            Algorithm::Valiant,
            "routing.algorithm is valiant, but must be default: crossbar:4 has one way",
        ),
        (
            "fat_tree:2x2",
            Algorithm::DimensionOrder,
            "routing.algorithm is dimension_order, but must be another one: fat_tree:2x2 has no",
        ),
        (
            "fat_tree:2x2",
            Algorithm::UpDown,
            "routing.algorithm is up_down, but must be another one: fat_tree:2x2 is no graph",
        ),
        (
            "mesh:4x4",
            Algorithm::UpDown,
            "routing.algorithm is up_down, but must be one of default, dimension_order",
        ),
    ] {
        let error = network(text, algorithm).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let mut mesh = "mesh:4x4".parse::<Topology>().unwrap().compile(Algorithm::Valiant).unwrap();
    let valiant = Routing { algorithm: Algorithm::Valiant, virtual_channels: 0 };
    let error = valiant.apply(&mut mesh, "mesh:4x4", true).unwrap_err().to_string();
    assert!(
        error.starts_with("routing.algorithm contradicts nic.ordered: valiant routing lets packets"),
        "{error}"
    );
}

/// A queue on the shortest way sends packets around it, and none does not.
#[test]
fn adaptive_routing_looks_at_queues() {
    let mut ring = network("ring:8", Algorithm::Adaptive).unwrap();
    assert_eq!(ring.flow(0, 2), UNDECIDED);
    let direct = ring.next(0, 2, ring.straight(0, 2)).0;
    for _ in 0..20 {
        assert_eq!(ring.choose(0, 2, UNDECIDED, |_| 0).0, direct);
    }
    let queue = |link: u32| if link == direct { 1000 } else { 0 };
    let around = (0..200).filter(|_| ring.choose(0, 2, UNDECIDED, queue).0 != direct).count();
    assert!(around > 50, "{around} of 200 went around");
    let mut tree = network("fat_tree:4x2", Algorithm::Adaptive).unwrap();
    assert_eq!(tree.flow(0, 15), SHORTEST);
    let leaf = tree.next(0, 15, DIRECT).1;
    let (first, count) = match &tree.shape {
        Shape::FatTree(tree) => tree.choices(leaf, 15).unwrap(),
        _ => unreachable!(),
    };
    assert_eq!(count, 4);
    let free = first + 2;
    assert_eq!(tree.choose(leaf, 15, SHORTEST, |link| u64::from(link != free)).0, free);
}
