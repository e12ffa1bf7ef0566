//! Machines that cannot be: the bare interface and both conduits refuse each with the same one-line error, and
//! never panic.

use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use extoll_sim::conduit::pscom::{self, Plugin, PscomConfig};
use fabric_sim::{Placement, RunError, Topology};

/// The error of a run, which must be one of the configuration and one line long.
fn refusal<R: std::fmt::Debug>(what: &str, outcome: Result<R, RunError>) -> String {
    let Err(RunError::Config(error)) = outcome else { panic!("{what}: {outcome:?}") };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{what}: {text}");
    text
}

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut ExtollConfig);
    let cases: [(Change, &str); 14] = [
        (|c| c.ranks = 0, "ranks is 0, but must be from 1 to 32000"),
        (
            |c| *c = ExtollConfig::new(0, Topology::Crossbar { nodes: 1 }),
            "ranks is 0, but must be from 1 to 32000",
        ),
        (|c| *c = extoll_sim::cluster(0), "ranks is 0, but must be from 1 to 32000"),
        (|c| c.ranks = 3, "ranks is 3, but must be at most 2 nodes times 1 ranks per node"),
        (
            |c| (c.ranks, c.ranks_per_node) = (513, 256),
            "ranks is 513, but must be at most 2 nodes times 256 ranks per node",
        ),
        (|c| c.ranks = u32::MAX, "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.ranks_per_node = 0, "ranks_per_node is 0, but must be at least 1"),
        (|c| c.ranks_per_node = 257, "ranks_per_node is 257, but must be at most 256, since vpids have 8 bits"),
        (|c| c.topology = Topology::Direct { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 256"),
        (|c| c.topology = Topology::Crossbar { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 65536"),
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
        let mut machine = ExtollConfig::pair();
        change(&mut machine);
        let first = GasnetConfig::first();
        assert_eq!(refusal("interface", extoll_sim::run(&machine, |_| ())), wanted);
        assert_eq!(refusal("gasnet", gasnet::run(&machine, &GasnetConfig::default(), |_| ())), wanted);
        assert_eq!(refusal("first gasnet", gasnet::run(&machine, &first, |_| ())), wanted);
        for plugin in [Plugin::Velo, Plugin::Rma] {
            assert_eq!(refusal("pscom", pscom::run(&machine, &PscomConfig::with(plugin), |_| ())), wanted);
        }
    }
}

#[test]
fn one_rank_on_one_node_is_a_job() {
    let machine = ExtollConfig::new(1, Topology::Crossbar { nodes: 1 });
    gasnet::run(&machine, &GasnetConfig::default(), |_| ()).unwrap();
    pscom::run(&machine, &PscomConfig::default(), |_| ()).unwrap();
}
