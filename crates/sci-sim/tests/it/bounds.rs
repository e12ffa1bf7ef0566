//! Bounds of physics: whatever the ranks send, no node's bus carries more payload than it can, in both directions
//! together.

use am_conformance::{Crossed, NodeRates, check_cuts_and_ways, check_node_rates, random_traffic};
use fabric_sim::Topology;
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig};

/// Seven nodes that are all linked to each other: six links lead into each.
#[test]
fn no_traffic_exceeds_the_buses() {
    for (seed, hot) in [(1, true), (2, true), (3, false), (4, false)] {
        let machine = SciConfig::new(7, Topology::Direct { nodes: 7 });
        let (bus, header) = (machine.parameters.bus_mb_s, u64::from(machine.parameters.pio.header_bytes));
        // Of stores each line is a packet, whose header can be told.
        let stores = ConduitConfig { dma_from: u64::MAX, ..ConduitConfig::default() };
        let report = conduit::run(&machine, &stores, move |transport| {
            random_traffic(transport, seed, hot, 24);
        });
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        // Headers, and answers, which are nothing else, do not pass the bus.
        let payload = |bytes: u64, packets: u64| bytes.saturating_sub(packets * header);
        let links = report.links.iter().map(|link| (&*link.name, payload(link.bytes, link.packets)));
        let end = report.ended.0 as f64 / 1e6;
        let rates = NodeRates { out: bus, into: bus, together: bus };
        check_node_rates(links, end, rates, if hot { 0.5 } else { 0.0 });
    }
}

/// Halves of the nodes send to each other in drawn sizes: no cut carries more than its links, and no message is
/// faster than its way.
#[test]
fn no_traffic_exceeds_cuts_and_ways() {
    check_cuts_and_ways(0.1, |name, crossing| {
        let topology: Topology = name.parse().expect("a topology");
        let cables = topology.bisection().expect("a topology").expect("a formula is known");
        let machine = SciConfig::new(8, topology);
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
