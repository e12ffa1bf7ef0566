//! Machines that cannot be: the bare interface and the conduit refuse each with the same one-line error, and never
//! panic.

use fabric_sim::{Placement, RunError, Topology};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig};

/// The error of a run, which must be one of the configuration and one line long.
fn refusal<R: std::fmt::Debug>(what: &str, outcome: Result<R, RunError>) -> String {
    let Err(RunError::Config(error)) = outcome else { panic!("{what}: {outcome:?}") };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{what}: {text}");
    text
}

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut SciConfig);
    let cases: [(Change, &str); 12] = [
        (|c| c.ranks = 0, "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = sci_sim::fitting(0), "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = sci_sim::fitting(u32::MAX), "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.ranks = 3, "ranks is 3, but must be at most 2 nodes times 1 ranks per node"),
        (|c| c.ranks_per_node = 2, "ranks_per_node is 2, but must be 1, since each rank has a node of its own"),
        (|c| c.ranks = u32::MAX, "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.topology = Topology::Ring { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 65536"),
        (
            |c| c.topology = Topology::Mesh { dims: vec![] },
            "topology.dims is [], but must be a list of 1 to 8 extents",
        ),
        (
            |c| c.topology = Topology::Torus { dims: vec![2, 0] },
            "topology.dims[1] is 0, but must be from 1 to 65536",
        ),
        (
            |c| c.topology = Topology::Torus { dims: vec![65_536; 3] },
            "topology.dims is [65536, 65536, 65536] (281474976710656 nodes), but must be at most 65536 nodes",
        ),
        (
            |c| c.topology = Topology::Ring { nodes: 16_384 },
            "topology is 16384 nodes, but must be at most 16383 nodes, whose numbers are multiples of 4",
        ),
        (
            |c| (c.ranks, c.placement) = (0, Placement::Random { seed: 1 }),
            "ranks is 0, but must be from 1 to 32000",
        ),
    ];
    for (change, wanted) in cases {
        let mut machine = SciConfig::pair();
        change(&mut machine);
        assert_eq!(refusal("interface", sci_sim::run(&machine, |_| ())), wanted);
        for config in [ConduitConfig::default(), ConduitConfig::paper()] {
            assert_eq!(refusal("conduit", conduit::run(&machine, &config, |_| ())), wanted);
        }
    }
}

#[test]
fn one_rank_on_one_node_is_a_job() {
    let machine = SciConfig::new(1, Topology::Crossbar { nodes: 1 });
    conduit::run(&machine, &ConduitConfig::default(), |_| ()).unwrap();
}
