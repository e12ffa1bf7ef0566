//! Machines that cannot be: the bare interface and the conduit refuse each with the same one-line error, and never
//! panic.

use fabric_sim::{Placement, RunError, Topology};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, FlowControl};

/// The error of a run, which must be one of the configuration and one line long.
fn refusal<R: std::fmt::Debug>(what: &str, outcome: Result<R, RunError>) -> String {
    let Err(RunError::Config(error)) = outcome else { panic!("{what}: {outcome:?}") };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{what}: {text}");
    text
}

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut PortalsConfig);
    let cases: [(Change, &str); 13] = [
        (|c| c.ranks = 0, "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = portals_sim::xt4(0), "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = portals_sim::xt4(u32::MAX), "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.ranks = 3, "ranks is 3, but must be at most 2 nodes times 1 ranks per node"),
        (
            |c| (c.ranks, c.ranks_per_node) = (33, 16),
            "ranks is 33, but must be at most 2 nodes times 16 ranks per node",
        ),
        (|c| c.ranks = u32::MAX, "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.ranks_per_node = 0, "ranks_per_node is 0, but must be at least 1"),
        (|c| c.ranks_per_node = 65_537, "ranks_per_node is 65537, but must be at most 65536, since pids are"),
        (|c| c.topology = Topology::Direct { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 256"),
        (
            |c| c.topology = Topology::Mesh { dims: vec![] },
            "topology.dims is [], but must be a list of 1 to 8 extents",
        ),
        (
            |c| c.topology = Topology::Torus { dims: vec![2, 0] },
            "topology.dims[1] is 0, but must be from 1 to 65536",
        ),
        (
            |c| c.topology = Topology::Mesh { dims: vec![65_536; 3] },
            "topology.dims is [65536, 65536, 65536] (281474976710656 nodes), but must be at most 65536 nodes",
        ),
        (
            |c| (c.ranks, c.placement) = (0, Placement::Random { seed: 1 }),
            "ranks is 0, but must be from 1 to 32000",
        ),
    ];
    for (change, wanted) in cases {
        let mut machine = PortalsConfig::pair();
        change(&mut machine);
        assert_eq!(refusal("interface", portals_sim::run(&machine, |_| ())), wanted);
        for flow in [FlowControl::Static, FlowControl::Bank, FlowControl::Disable] {
            assert_eq!(refusal("conduit", conduit::run(&machine, &ConduitConfig::with(flow), |_| ())), wanted);
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
