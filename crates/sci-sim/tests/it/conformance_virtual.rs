//! The conformance suite over the conduit in virtual time: every configuration, without and with transfer errors.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Draw, sim_suite};
use fabric_sim::Topology;
use sci_sim::conduit::{self, ConduitConfig, FlagStores, MediumMethod};
use sci_sim::model::Parameters;
use sci_sim::nic::TransferErrors;
use sci_sim::{AdversarialTiming, SciConfig, fitting};

sim_suite! {
    Sci, "sci", SciConfig, ConduitConfig, conduit::run;
    deadline: 2e11,
    smallest: |config| {
        let ConduitConfig { requests, slot, dma_queue, .. } = ConduitConfig::smallest();
        ConduitConfig { requests, slot, dma_queue, ..config.clone() }
    },
    drawn: drawn,
    seeds: 24,
    full: [("on the cluster, in full", ConduitConfig::default())],
    on: fitting,
    deadlocks: [(fitting(3), ConduitConfig::default())],
}

#[test]
fn conforms_on_the_cluster() {
    conforms("on the cluster", &[1, 2, 5], &ConduitConfig::default(), fitting);
}

#[test]
fn conforms_as_published() {
    conforms_in_part("the published conduit", &[2], &ConduitConfig::paper(), fitting);
}

#[test]
fn conforms_when_tuned() {
    conforms_in_part("the tuned conduit", &[3], &ConduitConfig::tuned(), fitting);
}

#[test]
fn conforms_without_cost() {
    conforms_in_part("without cost", &[1, 3], &ConduitConfig::default(), |ranks| SciConfig {
        parameters: Parameters::free(),
        ..fitting(ranks)
    });
}

fn errors(seed: u64) -> TransferErrors {
    TransferErrors { seed, retriable: 0.02, not_retriable: 0.002, pending: 0.002, planned: Vec::new() }
}

#[test]
fn conforms_under_transfer_errors() {
    conforms_in_part("with transfer errors", &[2, 3], &ConduitConfig::default(), |ranks| SciConfig {
        errors: errors(7),
        ..fitting(ranks)
    });
}

#[test]
fn conforms_when_links_lose() {
    conforms_in_part("over lossy links", &[3], &ConduitConfig::default(), |ranks| {
        let mut config = fitting(ranks);
        (config.faults.loss, config.faults.corruption) = (0.01, 0.01);
        config
    });
}

#[test]
fn conforms_when_lines_overtake_each_other() {
    for (conduit, ranks) in [(ConduitConfig::default(), 3), (ConduitConfig::paper(), 2)] {
        conforms_in_part("with lines out of order", &[ranks], &conduit, |ranks| SciConfig {
            adversary: AdversarialTiming { reorder_ns: 5_000.0 },
            ..fitting(ranks)
        });
    }
}

/// Another machine, other sizes and other errors for every seed.
fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (SciConfig, ConduitConfig) {
    let topology = match draw.of(3) {
        0 => Topology::Ringlets { dims: vec![ranks] },
        1 => Topology::Ringlets { dims: vec![ranks.div_ceil(2), 2] },
        _ => Topology::Crossbar { nodes: ranks },
    };
    let mut config = SciConfig::new(ranks, topology);
    match draw.of(4) {
        2 => (config.faults.seed, config.faults.loss) = (seed, 0.005),
        3 => config.parameters = Parameters::free(),
        _ => {}
    }
    config.errors = TransferErrors { seed, ..errors(seed) };
    match draw.of(5) {
        0 => config.errors.retriable = 0.2,
        1 => config.errors.not_retriable = 0.02,
        2 => config.errors.pending = 0.02,
        3 => config.adversary.reorder_ns = 3_000.0,
        _ => {}
    }
    let (requests, slot) = (draw.one(&[1, 2, 3, 8, 32]), draw.one(&[1024, 2048, 4096]));
    let medium = draw.one(&[MediumMethod::TwoTransfers, MediumMethod::OneCopy]);
    let dma_from = draw.one(&[2048, 0, 64, u64::MAX]);
    let flags = FlagStores::Numbered;
    let conduit = ConduitConfig { requests, slot, medium, flags, dma_from, ..ConduitConfig::default() };
    (config, conduit)
}
