//! The machines that the suite runs on.

use am_conformance::Draw;
use extoll_sim::model::Parameters;
use extoll_sim::{AdversarialTiming, ExtollConfig};
use fabric_sim::{Drawn, DrawnKind, Faults, Topology};

/// Programs that poll for ever end here, in nanoseconds of virtual time.
pub(crate) const DEADLINE: f64 = 2e10;

/// Four nodes in a square, with as many ranks each as it takes.
pub(crate) fn square(ranks: u32) -> ExtollConfig {
    let topology = Topology::Mesh { dims: vec![2, 2] };
    ExtollConfig { ranks_per_node: ranks.div_ceil(4), ..ExtollConfig::new(ranks, topology) }
}

/// A machine on which nothing takes time.
pub(crate) fn free(ranks: u32) -> ExtollConfig {
    let topology = Topology::Crossbar { nodes: ranks };
    ExtollConfig { parameters: Parameters::free(), ..ExtollConfig::new(ranks, topology) }
}

/// Links lose, spoil, double and delay packets, and send again themselves.
pub(crate) fn retrying(ranks: u32) -> ExtollConfig {
    let faults = Faults {
        loss: 0.02,
        corruption: 0.01,
        duplication: 0.01,
        delay: 0.02,
        delay_ns: 2_000.0,
        link_retry: true,
        retry_ns: 200.0,
        ..Faults::default()
    };
    ExtollConfig { faults, ..square(ranks) }
}

/// Links lose, spoil and double packets, and the interfaces repair that.
pub(crate) fn lossy(ranks: u32) -> ExtollConfig {
    let faults = Faults { loss: 0.01, corruption: 0.01, duplication: 0.01, ..Faults::default() };
    ExtollConfig { faults, ..square(ranks) }
}

/// VELO and RMA overtake each other, and mailboxes are written slot by slot.
pub(crate) fn adversarial(ranks: u32) -> ExtollConfig {
    ExtollConfig { adversary: AdversarialTiming { jitter_ns: 20_000.0, store_gap_ns: 100.0 }, ..square(ranks) }
}

/// A machine with its faults.
pub(crate) fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> ExtollConfig {
    let topology = match draw.of(5) {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Mesh { dims: vec![ranks.div_ceil(2), 2] },
        3 => Topology::Torus { dims: vec![ranks] },
        _ => Topology::Direct { nodes: ranks },
    };
    let mut machine = ExtollConfig::new(ranks, topology);
    machine.parameters = match draw.of(4) {
        0 => Parameters::cluster(),
        1 => Parameters::deep(),
        2 => Parameters::asic(),
        _ => Parameters::free(),
    };
    let faults = &mut machine.faults;
    faults.seed = seed;
    match draw.of(9) {
        0 => faults.loss = 0.02,
        1 => faults.corruption = 0.02,
        2 => faults.duplication = 0.03,
        3 => (faults.loss, faults.corruption, faults.duplication) = (0.005, 0.005, 0.005),
        4 => (faults.delay, faults.delay_ns) = (0.1, 20_000.0),
        5 => (faults.loss, faults.link_retry, faults.retry_ns) = (0.05, true, 500.0),
        6 if ranks > 1 => {
            let kind = DrawnKind::LinkFlap { down_ns: 40_000.0 };
            faults.drawn = vec![Drawn { count: 6, within_ns: 1e6, kind }];
        }
        7 => {}
        _ => machine.adversary = AdversarialTiming { jitter_ns: 10_000.0, store_gap_ns: 60.0 },
    }
    machine
}
