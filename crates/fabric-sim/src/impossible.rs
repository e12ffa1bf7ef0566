//! Machines that cannot be, for the tests of interfaces and conduits: each refuses all of them with the same
//! one-line error, and none panics.

use crate::{Interface, Machine, Placement, RunError, Topology};
use std::fmt::Debug;

/// What makes a machine of two nodes impossible whatever its interface is, and the error that says so.
pub fn machines<I: Interface>() -> Vec<(Machine<I>, &'static str)> {
    type Change<I> = fn(&mut Machine<I>);
    let none = "ranks is 0, but must be from 1 to 32000";
    let changes: [(Change<I>, &str); 9] = [
        (|c| c.ranks = 0, none),
        (|c| *c = Machine::new(0, Topology::Crossbar { nodes: 1 }), none),
        (|c| (c.ranks, c.placement) = (0, Placement::Random { seed: 1 }), none),
        (|c| c.ranks = 3, "ranks is 3, but must be at most 2 nodes times 1 ranks per node"),
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
    ];
    changes.into_iter().map(|(change, error)| (changed(change), error)).collect()
}

/// Two ranks on two nodes, but for what is changed.
pub fn changed<I: Interface>(change: fn(&mut Machine<I>)) -> Machine<I> {
    let mut machine = Machine::pair();
    change(&mut machine);
    machine
}

/// Checks that a run has been refused with this error.
///
/// # Panics
/// If it has not.
pub fn check_refusal<R: Debug>(what: &str, outcome: Result<R, RunError>, error: &str) {
    let Err(RunError::Config(refusal)) = outcome else { panic!("{what}: {outcome:?}, not {error}") };
    assert_eq!(refusal.to_string(), error, "{what}");
}
