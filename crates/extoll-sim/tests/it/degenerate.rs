//! Machines that cannot be: the bare interface and both conduits refuse each with the same one-line error, and
//! never panic.

use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use extoll_sim::conduit::pscom::{self, Plugin, PscomConfig};
use fabric_sim::Topology;
use fabric_sim::impossible::{self, changed, check_refusal};

#[test]
fn impossible_machines_are_refused() {
    type Change = fn(&mut ExtollConfig);
    let own: [(Change, &str); 6] = [
        (|c| *c = extoll_sim::cluster(0), "ranks is 0, but must be from 1 to 32000"),
        (
            |c| (c.ranks, c.ranks_per_node) = (513, 256),
            "ranks is 513, but must be at most 2 nodes times 256 ranks per node",
        ),
        (|c| c.ranks_per_node = 0, "ranks_per_node is 0, but must be at least 1"),
        (|c| c.ranks_per_node = 257, "ranks_per_node is 257, but must be at most 256, since vpids have 8 bits"),
        (|c| c.topology = Topology::Direct { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 256"),
        (|c| c.topology = Topology::Crossbar { nodes: 0 }, "topology.nodes is 0, but must be from 1 to 65536"),
    ];
    let own = own.into_iter().map(|(change, error)| (changed(change), error));
    for (machine, error) in impossible::machines().into_iter().chain(own) {
        check_refusal("interface", extoll_sim::run(&machine, |_| ()), error);
        check_refusal("gasnet", gasnet::run(&machine, &GasnetConfig::default(), |_| ()), error);
        check_refusal("first gasnet", gasnet::run(&machine, &GasnetConfig::first(), |_| ()), error);
        for plugin in [Plugin::Velo, Plugin::Rma] {
            check_refusal("pscom", pscom::run(&machine, &PscomConfig::with(plugin), |_| ()), error);
        }
    }
}

#[test]
fn one_rank_on_one_node_is_a_job() {
    let machine = ExtollConfig::new(1, Topology::Crossbar { nodes: 1 });
    gasnet::run(&machine, &GasnetConfig::default(), |_| ()).unwrap();
    pscom::run(&machine, &PscomConfig::default(), |_| ()).unwrap();
}
