//! Bounds of physics: whatever the ranks send, no node puts out or takes in more than its data paths can.

use am_conformance::{Crossed, NodeRates, check_cuts_and_ways, check_node_rates, random_traffic};
use fabric_sim::Topology;
use machine_sim::MachineConfig;
use machine_sim::conduit::{self, ConduitConfig};

/// Seven nodes that are all linked to each other: six links lead into each.
#[test]
fn no_traffic_exceeds_the_data_paths() {
    for (seed, hot) in [(1, true), (2, true), (3, false), (4, false)] {
        let mut machine = MachineConfig::new(7, Topology::Direct { nodes: 7 });
        // Where one node is sent to most, its intake bounds the run; else what the busiest node puts out does.
        let (out, into) = if hot { (800.0, 500.0) } else { (500.0, 800.0) };
        (machine.parameters.injection_mb_s, machine.parameters.ejection_mb_s) = (out, into);
        let report = conduit::run(&machine, &ConduitConfig::default(), move |transport| {
            random_traffic(transport, seed, hot, 24);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let links = report.links.iter().map(|link| (&*link.name, link.bytes));
        let end = report.ended.0 as f64 / 1e6;
        let rates = NodeRates { out, into, together: f64::INFINITY };
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
        let mut machine = MachineConfig::new(8, topology);
        let link = &mut machine.parameters.link;
        (link.bandwidth_mb_s, link.latency_ns) = (1000.0, 50.0);
        let report = conduit::run(&machine, &ConduitConfig::default(), move |ours| crossing.play(ours));
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
