//! Bounds of physics: whatever the ranks send, no node puts out or takes in more than its interface can.

use am_conformance::{
    NodeRates, check_cut, check_node_rates, check_round_trips, cross_traffic, random_traffic, round_trips,
};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use extoll_sim::conduit::pscom::{self, PscomConfig};
use fabric_sim::Topology;

/// Seven nodes that are all linked to each other: six links lead into each.
#[test]
fn no_traffic_exceeds_the_interfaces() {
    for (seed, hot) in [(1, true), (2, true), (3, false), (4, false)] {
        let machine = ExtollConfig::new(7, Topology::Direct { nodes: 7 });
        let report = gasnet::run(&machine, &GasnetConfig::default(), move |transport| {
            random_traffic(transport, seed, hot, 24);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let links = report.links.iter().map(|link| (&*link.name, link.bytes));
        let end = report.ended.0 as f64 / 1e6;
        let rates = NodeRates { out: 624.0, into: 624.0, together: f64::INFINITY };
        check_node_rates(links, end, rates, if hot { 0.5 } else { 0.0 });
    }
}

/// Halves of the nodes send to each other in drawn sizes: no cut carries more than its links, and no message is
/// faster than its way.
#[test]
fn no_traffic_exceeds_cuts_and_ways() {
    for text in ["mesh:8", "ring:8", "torus:2x4", "hypercube:3"] {
        let topology: Topology = text.parse().expect("a topology");
        let cables = topology.bisection().expect("a topology").expect("a formula is known");
        let machine = ExtollConfig::new(8, topology);
        let link = machine.parameters.link;
        for (seed, longest, both) in [(1, 300, false), (2, 5000, true), (3, 60_000, false), (4, 60_000, true)] {
            // One cable is what limits long messages.
            let busiest = if cables == 1 && longest == 60_000 { 0.4 } else { 0.0 };
            let report = gasnet::run(&machine, &GasnetConfig::default(), move |ours| {
                cross_traffic(ours, seed, 12, longest, both)
            });
            let report = report.unwrap_or_else(|error| panic!("{text}: {error}"));
            let bytes = report.results.iter().flatten().sum();
            // The lower half of the numbers is behind a smallest cut of each.
            check_cut(bytes, report.ended.0 as f64 / 1e6, cables, link.bandwidth_mb_s, busiest);
        }
        let links = |to: u32| match text {
            "mesh:8" => to,
            "ring:8" => to.min(8 - to),
            "hypercube:3" => to.count_ones(),
            // Of a torus what is certain of any order of its nodes.
            _ => 1,
        };
        let report = gasnet::run(&machine, &GasnetConfig::default(), |ours| round_trips(ours));
        let report = report.unwrap_or_else(|error| panic!("{text}: {error}"));
        check_round_trips(report.results[0].as_ref().expect("rank 0 ended"), links, link.latency_ns);
    }
}

/// The same over pscom's conduit: seven nodes that are all linked to each other: six links lead into each.
#[test]
fn no_traffic_of_pscom_exceeds_the_interfaces() {
    for (seed, hot) in [(1, true), (2, true), (3, false), (4, false)] {
        let machine = ExtollConfig::new(7, Topology::Direct { nodes: 7 });
        let report = pscom::run(&machine, &PscomConfig::default(), move |transport| {
            random_traffic(transport, seed, hot, 24);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let links = report.links.iter().map(|link| (&*link.name, link.bytes));
        let end = report.ended.0 as f64 / 1e6;
        let rates = NodeRates { out: 624.0, into: 624.0, together: f64::INFINITY };
        check_node_rates(links, end, rates, if hot { 0.15 } else { 0.0 });
    }
}

/// Over pscom's conduit halves of the nodes send to each other in drawn sizes: no cut carries more than its links,
/// and no message is faster than its way.
#[test]
fn no_traffic_of_pscom_exceeds_cuts_and_ways() {
    for text in ["mesh:8", "ring:8", "torus:2x4", "hypercube:3"] {
        let topology: Topology = text.parse().expect("a topology");
        let cables = topology.bisection().expect("a topology").expect("a formula is known");
        let machine = ExtollConfig::new(8, topology);
        let link = machine.parameters.link;
        for (seed, longest, both) in [(1, 300, false), (2, 5000, true), (3, 60_000, false), (4, 60_000, true)] {
            // One cable is what limits long messages.
            let busiest = if cables == 1 && longest == 60_000 { 0.4 } else { 0.0 };
            let report = pscom::run(&machine, &PscomConfig::default(), move |ours| {
                cross_traffic(ours, seed, 12, longest, both)
            });
            let report = report.unwrap_or_else(|error| panic!("{text}: {error}"));
            let bytes = report.results.iter().flatten().sum();
            // The lower half of the numbers is behind a smallest cut of each.
            check_cut(bytes, report.ended.0 as f64 / 1e6, cables, link.bandwidth_mb_s, busiest);
        }
        let links = |to: u32| match text {
            "mesh:8" => to,
            "ring:8" => to.min(8 - to),
            "hypercube:3" => to.count_ones(),
            // Of a torus what is certain of any order of its nodes.
            _ => 1,
        };
        let report = pscom::run(&machine, &PscomConfig::default(), |ours| round_trips(ours));
        let report = report.unwrap_or_else(|error| panic!("{text}: {error}"));
        check_round_trips(report.results[0].as_ref().expect("rank 0 ended"), links, link.latency_ns);
    }
}
