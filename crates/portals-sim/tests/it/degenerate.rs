//! Machines that cannot be: the bare interface and the conduit refuse each with the same one-line error, and never
//! panic.

use fabric_sim::Topology;
use fabric_sim::impossible::{self, changed, check_refusal};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, FlowControl};

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut PortalsConfig);
    let own: [(Change, &str); 6] = [
        (|c| *c = portals_sim::xt4(0), "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = portals_sim::xt4(u32::MAX), "ranks is 4294967295, but must be from 1 to 32000"),
        (
            |c| (c.ranks, c.ranks_per_node) = (33, 16),
            "ranks is 33, but must be at most 2 nodes times 16 ranks per node",
        ),
        (|c| c.ranks_per_node = 0, "ranks_per_node is 0, but must be at least 1"),
        (|c| c.ranks_per_node = 65_537, "ranks_per_node is 65537, but must be at most 65536, since pids are"),
        (|c| c.topology = Topology::Direct { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 256"),
    ];
    let own = own.into_iter().map(|(change, error)| (changed(change), error));
    for (machine, error) in impossible::machines().into_iter().chain(own) {
        check_refusal("interface", portals_sim::run(&machine, |_| ()), error);
        for flow in [FlowControl::Static, FlowControl::Bank, FlowControl::Disable] {
            check_refusal("conduit", conduit::run(&machine, &ConduitConfig::with(flow), |_| ()), error);
        }
    }
}

#[test]
fn the_receive_space_of_no_ranks_is_refused() {
    let error = ConduitConfig::default().receive_bytes(0).unwrap_err().to_string();
    assert_eq!(error, "ranks is 0, but must be at least 1");
}

#[test]
fn one_rank_on_one_node_is_a_job() {
    let machine = PortalsConfig::new(1, Topology::Crossbar { nodes: 1 });
    conduit::run(&machine, &ConduitConfig::default(), |_| ()).unwrap();
}
