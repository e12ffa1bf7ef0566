//! Machines that cannot be: the bare interface and the conduit refuse each with the same one-line error, and never
//! panic.

use fabric_sim::Topology;
use fabric_sim::impossible::{self, changed, check_refusal};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig};

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut SciConfig);
    let own: [(Change, &str); 4] = [
        (|c| *c = sci_sim::fitting(0), "ranks is 0, but must be from 1 to 32000"),
        (|c| *c = sci_sim::fitting(u32::MAX), "ranks is 4294967295, but must be from 1 to 32000"),
        (|c| c.ranks_per_node = 2, "ranks_per_node is 2, but must be 1, since each rank has a node of its own"),
        (
            |c| c.topology = Topology::Ring { nodes: 16_384 },
            "topology is 16384 nodes, but must be at most 16383 nodes, whose numbers are multiples of 4",
        ),
    ];
    let own = own.into_iter().map(|(change, error)| (changed(change), error));
    for (machine, error) in impossible::machines().into_iter().chain(own) {
        check_refusal("interface", sci_sim::run(&machine, |_| ()), error);
        for config in [ConduitConfig::default(), ConduitConfig::paper()] {
            check_refusal("conduit", conduit::run(&machine, &config, |_| ()), error);
        }
    }
}

#[test]
fn one_rank_on_one_node_is_a_job() {
    let machine = SciConfig::new(1, Topology::Crossbar { nodes: 1 });
    conduit::run(&machine, &ConduitConfig::default(), |_| ()).unwrap();
}
