//! Bounds of physics: whatever the ranks send, no node puts out or takes in more than its interface can.

use am_conformance::{NodeRates, check_node_rates, random_traffic};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
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
