//! The conformance suite over the conduit: without faults, with losses, reordering and page faults, and over
//! several machines.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Draw, halves_suite, run_simulated_case, sim_suite};
use exanet_sim::conduit::{self, ConduitConfig, HostCosts};
use exanet_sim::model::Parameters;
use exanet_sim::{AdversarialTiming, ExanetConfig, PageFaults, rack};
use fabric_sim::{Drawn, DrawnKind, Faults, Topology};

sim_suite! {
    Exanet, "ExaNet", ExanetConfig, ConduitConfig, conduit::run;
    deadline: 2e10,
    smallest: |config| ConduitConfig { pinned: config.pinned, costs: config.costs, ..ConduitConfig::smallest() },
    drawn: drawn,
    seeds: 24,
    full: [("in full", ConduitConfig::default())],
    on: rack,
    deadlocks: [(rack(3), ConduitConfig::default())],
}

halves_suite! { Exanet, ExanetConfig, conduit::run_halves; deadline: 2e10, seeds: 40 }

fn free(ranks: u32) -> ExanetConfig {
    let topology = Topology::Crossbar { nodes: ranks };
    ExanetConfig { parameters: Parameters::free(), ..ExanetConfig::new(ranks, topology) }
}

/// Links lose, spoil and double packets, and hold them back behind later ones.
fn lossy(ranks: u32) -> ExanetConfig {
    let faults = Faults {
        loss: 0.02,
        corruption: 0.01,
        duplication: 0.02,
        reordering: 0.1,
        reorder_ns: 20_000.0,
        ..Faults::default()
    };
    ExanetConfig { faults, ..ExanetConfig::new(ranks, Topology::Ring { nodes: ranks.max(2) }) }
}

/// The system takes pages away, and packets of a pair overtake each other.
fn adversarial(ranks: u32) -> ExanetConfig {
    ExanetConfig {
        adversary: AdversarialTiming { jitter_ns: 10_000.0 },
        errors: PageFaults { page_faults: 0.05 },
        ..rack(ranks)
    }
}

#[test]
fn conforms_without_cost() {
    let config = ConduitConfig { costs: HostCosts::free(), ..ConduitConfig::default() };
    conforms_in_part("without cost", &[3], &config, free);
}

#[test]
fn conforms_on_the_rack() {
    conforms("on the rack", &[1, 2, 5], &ConduitConfig::default(), rack);
}

#[test]
fn conforms_over_lossy_links() {
    conforms_in_part("over lossy links", &[3], &ConduitConfig::default(), lossy);
}

#[test]
fn conforms_under_page_faults_and_overtaking() {
    conforms_in_part("under page faults", &[3], &ConduitConfig::default(), adversarial);
}

#[test]
fn conforms_with_mailboxes_of_two_packets() {
    conforms_in_part("with small mailboxes", &[3], &ConduitConfig::default(), |ranks| {
        let mut machine = rack(ranks);
        machine.parameters.packetizer.mailbox = 2;
        machine.parameters.packetizer.channels = 2;
        machine.parameters.rdma.queue = 2;
        machine
    });
}

/// Another machine, other sizes and other faults for every seed.
fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (ExanetConfig, ConduitConfig) {
    let topology = match draw.of(4) {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Torus { dims: vec![2, ranks.div_ceil(2)] },
        _ => Topology::Direct { nodes: ranks.div_ceil(2).max(2) },
    };
    let mut machine = ExanetConfig::new(ranks, topology);
    machine.ranks_per_node = if matches!(machine.topology, Topology::Direct { .. }) { 2 } else { 1 };
    machine.faults.seed = seed;
    machine.parameters = if draw.of(3) == 0 { Parameters::free() } else { Parameters::prototype() };
    match draw.of(7) {
        0 => machine.faults.loss = 0.05,
        1 => machine.faults.corruption = 0.05,
        2 => (machine.faults.duplication, machine.faults.link_retry) = (0.1, draw.of(2) == 0),
        3 => (machine.faults.reordering, machine.faults.reorder_ns) = (0.2, 30_000.0),
        4 => machine.adversary = AdversarialTiming { jitter_ns: 5_000.0 },
        5 => {
            let kind = DrawnKind::LinkFlap { down_ns: 30_000.0 };
            machine.faults.drawn = if machine.topology.nodes() == Ok(1) {
                vec![]
            } else {
                vec![Drawn { count: 5, within_ns: 1e6, kind }]
            };
        }
        _ => {}
    }
    machine.errors = PageFaults { page_faults: draw.one(&[0.0, 0.0, 0.1]) };
    machine.parameters.packetizer.mailbox = draw.one(&[1024, 3]);
    // With a single channel, one packet that a full mailbox refuses blocks all others.
    machine.parameters.packetizer.channels = draw.one(&[32, 3, 4]);
    machine.parameters.rdma.queue = draw.one(&[64, 2]);
    let scarce = ConduitConfig { request_slots: 2, reply_slots: 1, stages: 2, ..ConduitConfig::default() };
    let base = if draw.of(3) == 0 { scarce } else { ConduitConfig::default() };
    let (inline, stage_bytes, pinned) = (draw.one(&[192, 0, 1024]), draw.one(&[1 << 16, 4096]), draw.of(2) == 0);
    (machine, ConduitConfig { inline, stage_bytes, pinned, ..base })
}

/// In this job a rank ends between another's question whether all is quiet and its idling.
#[test]
fn an_end_before_idling_is_noticed() {
    run_simulated_case::<Exanet>("order", 3, 657);
}
