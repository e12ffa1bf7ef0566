//! Bounds of physics: whatever the ranks send, no node puts out or takes in more than its interface can.

use am_conformance::{Crossed, NodeRates, check_cuts_and_ways, check_node_rates, random_traffic};
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
    check_cuts_and_ways(0.4, |name, crossing| {
        let topology: Topology = name.parse().expect("a topology");
        let cables = topology.bisection().expect("a topology").expect("a formula is known");
        let machine = ExtollConfig::new(8, topology);
        let report = gasnet::run(&machine, &GasnetConfig::default(), move |ours| crossing.play(ours));
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        let link = machine.parameters.link;
        Crossed {
            cables,
            bandwidth_mb_s: link.bandwidth_mb_s,
            latency_ns: link.latency_ns,
            microseconds: report.ended.0 as f64 / 1e6,
            ranks: report.results.into_iter().map(|played| played.expect("each rank ends")).collect(),
        }
    });
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
    check_cuts_and_ways(0.4, |name, crossing| {
        let topology: Topology = name.parse().expect("a topology");
        let cables = topology.bisection().expect("a topology").expect("a formula is known");
        let machine = ExtollConfig::new(8, topology);
        let report = pscom::run(&machine, &PscomConfig::default(), move |ours| crossing.play(ours));
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        let link = machine.parameters.link;
        Crossed {
            cables,
            bandwidth_mb_s: link.bandwidth_mb_s,
            latency_ns: link.latency_ns,
            microseconds: report.ended.0 as f64 / 1e6,
            ranks: report.results.into_iter().map(|played| played.expect("each rank ends")).collect(),
        }
    });
}
