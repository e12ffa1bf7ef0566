//! The conformance suite over the conduit: on pure LogGP, over fat trees and dragonflies, with losses and adaptive
//! routing, and with long messages that wait.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Draw, halves_suite, sim_suite};
use fabric_sim::{Algorithm, Drawn, DrawnKind, Faults, LinkParameters, Topology};
use machine_sim::MachineConfig;
use machine_sim::conduit::{self, ConduitConfig};
use machine_sim::model::{Native, Parameters, SharedMemory};

sim_suite! {
    Generic, "a machine of one's own", MachineConfig, ConduitConfig, conduit::run;
    deadline: 2e10,
    smallest: |_| ConduitConfig::smallest(),
    drawn: drawn,
    seeds: 40,
    full: [("in full", ConduitConfig::default())],
    on: |ranks| linked(ranks, Topology::FatTree { arity: 4, levels: 2, oversubscription: 1 }),
    deadlocks: [machine_sim::crossbar(3), lossy(3)].map(|machine| (machine, ConduitConfig::default())),
}

halves_suite! { Generic, MachineConfig, conduit::run_halves; deadline: 2e10, seeds: 60 }

fn linked(ranks: u32, topology: Topology) -> MachineConfig {
    let mut machine = MachineConfig::new(ranks, topology);
    machine.parameters.link = LinkParameters { bandwidth_mb_s: 12_500.0, latency_ns: 100.0 };
    machine
}

fn free(ranks: u32) -> MachineConfig {
    MachineConfig { parameters: Parameters::free(), ..machine_sim::crossbar(ranks) }
}

/// Six routers, each with as many nodes as the ranks need.
fn dragonfly(ranks: u32) -> Topology {
    Topology::Dragonfly { terminals: ranks.div_ceil(6), routers: 2, global: 1, groups: None }
}

/// Links lose, spoil and double packets, and hold them back behind later ones.
fn lossy(ranks: u32) -> MachineConfig {
    let faults = Faults {
        loss: 0.02,
        corruption: 0.01,
        duplication: 0.02,
        reordering: 0.1,
        reorder_ns: 20_000.0,
        ..Faults::default()
    };
    MachineConfig { faults, ..linked(ranks, Topology::Ring { nodes: ranks.max(2) }) }
}

#[test]
fn conforms_without_cost() {
    conforms("without cost", &[1, 2, 3], &ConduitConfig::default(), free);
}

#[test]
fn conforms_on_pure_loggp() {
    conforms_in_part("on pure LogGP", &[2, 5], &ConduitConfig::default(), |ranks| MachineConfig {
        parameters: Parameters::loggp(1000.0, 300.0, 400.0, 0.5),
        ..machine_sim::crossbar(ranks)
    });
}

#[test]
fn conforms_with_adaptive_routing() {
    conforms_in_part("with adaptive routing", &[3], &ConduitConfig::default(), |ranks| {
        let mut machine = linked(ranks, dragonfly(ranks));
        machine.routing.algorithm = Algorithm::Adaptive;
        machine
    });
}

#[test]
fn conforms_over_lossy_links() {
    conforms_in_part("over lossy links", &[3], &ConduitConfig::default(), lossy);
}

#[test]
fn conforms_with_rendezvous() {
    conforms_in_part("with rendezvous", &[3], &ConduitConfig::default(), |ranks| {
        let mut machine = linked(ranks, Topology::FatTree { arity: 2, levels: 3, oversubscription: 2 });
        machine.parameters.eager_bytes = Some(16);
        machine.parameters.native = Native { put: false, get: false, atomics: false, ..Native::default() };
        machine
    });
}

/// Another machine, other sizes and other faults for every seed.
fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (MachineConfig, ConduitConfig) {
    let topology = match draw.of(6) {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Torus { dims: vec![2, ranks.div_ceil(2)] },
        2 => Topology::Hypercube { dims: 3 },
        3 => Topology::FatTree { arity: 4, levels: 2, oversubscription: 2 },
        4 => dragonfly(ranks),
        _ => Topology::Direct { nodes: ranks.div_ceil(2).max(2) },
    };
    let mut machine = linked(ranks, topology);
    machine.ranks_per_node = if matches!(machine.topology, Topology::Direct { .. }) { 2 } else { 1 };
    machine.faults.seed = seed;
    machine.parameters = match draw.of(4) {
        0 => Parameters::free(),
        1 => Parameters::loggp(2000.0, 100.0, 3000.0, 2.0),
        _ => machine.parameters,
    };
    let crossbar = matches!(machine.topology, Topology::Crossbar { .. });
    machine.routing.algorithm = match draw.of(3) {
        0 if !crossbar => Algorithm::Adaptive,
        1 if !crossbar => Algorithm::Valiant,
        _ => Algorithm::Default,
    };
    match draw.of(7) {
        0 => machine.faults.loss = 0.05,
        1 => machine.faults.corruption = 0.05,
        2 => (machine.faults.duplication, machine.faults.link_retry) = (0.1, draw.of(2) == 0),
        3 => (machine.faults.reordering, machine.faults.reorder_ns) = (0.2, 30_000.0),
        4 => {
            let kind = DrawnKind::LinkFlap { down_ns: 30_000.0 };
            machine.faults.drawn = vec![Drawn { count: 5, within_ns: 1e6, kind }];
            if machine.topology.nodes() == Ok(1) {
                machine.faults.drawn.clear();
            }
        }
        _ => {}
    }
    let parameters = &mut machine.parameters;
    parameters.eager_bytes = draw.one(&[None, Some(64), Some(4096)]);
    let memory = SharedMemory { send_ns: 50.0, receive_ns: 60.0, latency_ns: 70.0, copy_per_byte_ns: 0.2 };
    parameters.shared_memory = draw.one(&[None, Some(memory)]);
    parameters.packet_bytes = draw.one(&[4096, 64, 1 << 20]);
    parameters.retry.window = draw.one(&[256, 1, 4]);
    (parameters.injection_mb_s, parameters.ejection_mb_s) =
        draw.one(&[(f64::INFINITY, f64::INFINITY), (3000.0, 2000.0)]);
    let [put, get, atomics] = [0; 3].map(|_: u32| draw.of(2) == 0);
    parameters.native = Native { put, get, atomics, operations: draw.one(&[64, 1]) };
    let (requests, replies, segment) = (draw.one(&[64, 1, 3]), draw.one(&[64, 1, 2]), 1 << 16);
    (machine, ConduitConfig { requests, replies, segment, ..ConduitConfig::default() })
}
