//! The conformance suite over the conduit in virtual time: every configuration, without and with transfer errors.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{
    Buffers, Description, Draw, Plan, Profile, World, chosen_seeds, play_part, problems, run_seeds, run_with,
};
use fabric_sim::Topology;
use sci_sim::conduit::{self, ConduitConfig, FlagStores, MediumMethod};
use sci_sim::model::Parameters;
use sci_sim::nic::TransferErrors;
use sci_sim::{AdversarialTiming, SciConfig};
use std::ops::Range;

/// Programs that poll for ever end here, in nanoseconds.
const DEADLINE: f64 = 2e11;

/// Plays one case; returns what went wrong.
fn play(case: &Description, config: &SciConfig, conduit: &ConduitConfig, world: &World) -> Vec<String> {
    let mut sizes = conduit.clone();
    if case.needs.buffers == Buffers::Smallest {
        let ConduitConfig { requests, slot, dma_queue, .. } = ConduitConfig::smallest();
        sizes = ConduitConfig { requests, slot, dma_queue, ..sizes };
    }
    let (case, world) = (*case, *world);
    let outcome = conduit::run(config, &sizes, move |transport| play_part(&case, &world, transport));
    problems(outcome.map(|report| report.results))
}

fn suite(name: &str, plan: &Plan, conduit: &ConduitConfig, machine: impl Fn(u32) -> SciConfig) {
    run_with(name, plan, |case, ranks, world| {
        let config = SciConfig { deadline_ns: DEADLINE, ..machine(ranks) };
        play(case, &config, conduit, world)
    })
    .check();
}

fn plan(ranks: &[u32]) -> Plan {
    Plan::with_ranks(Profile::Quick, ranks)
}

#[test]
fn conforms_on_the_cluster() {
    suite("sci on the cluster", &plan(&[1, 2, 3, 8]), &ConduitConfig::default(), SciConfig::fitting);
}

#[test]
fn conforms_as_published() {
    suite("sci, the published conduit", &plan(&[2]), &ConduitConfig::paper(), SciConfig::fitting);
}

#[test]
fn conforms_when_tuned() {
    suite("sci, the tuned conduit", &plan(&[3]), &ConduitConfig::tuned(), SciConfig::fitting);
}

#[test]
fn conforms_without_cost() {
    suite("sci without cost", &plan(&[1, 3]), &ConduitConfig::default(), |ranks| SciConfig {
        parameters: Parameters::free(),
        ..SciConfig::fitting(ranks)
    });
}

fn errors(seed: u64) -> TransferErrors {
    TransferErrors { seed, retriable: 0.02, not_retriable: 0.002, pending: 0.002, planned: Vec::new() }
}

#[test]
fn conforms_under_transfer_errors() {
    suite("sci with transfer errors", &plan(&[2, 3]), &ConduitConfig::default(), |ranks| SciConfig {
        errors: errors(7),
        ..SciConfig::fitting(ranks)
    });
}

#[test]
fn conforms_when_links_lose() {
    suite("sci over lossy links", &plan(&[3]), &ConduitConfig::default(), |ranks| {
        let mut config = SciConfig::fitting(ranks);
        (config.faults.loss, config.faults.corruption) = (0.01, 0.01);
        config
    });
}

#[test]
fn conforms_when_lines_overtake_each_other() {
    for (conduit, ranks) in [(ConduitConfig::default(), 3), (ConduitConfig::paper(), 2)] {
        suite("sci with lines out of order", &plan(&[ranks]), &conduit, |ranks| SciConfig {
            adversary: AdversarialTiming { reorder_ns: 5_000.0 },
            ..SciConfig::fitting(ranks)
        });
    }
}

/// Another machine, other sizes and other errors for every seed.
fn drawn(seed: u64, ranks: u32) -> (SciConfig, ConduitConfig) {
    let mut draw = Draw::new(seed);
    let topology = match draw.of(3) {
        0 => Topology::Torus { dims: vec![ranks] },
        1 => Topology::Torus { dims: vec![ranks.div_ceil(2), 2] },
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

fn seeds(seeds: Range<u64>) {
    run_seeds(seeds, |case, ranks, world, seed| {
        let (mut config, conduit) = drawn(seed, ranks);
        config.deadline_ns = DEADLINE;
        play(case, &config, &conduit, world)
    });
}

#[test]
fn conforms_with_some_seeds() {
    seeds(0..40);
}

/// `cargo test --release -p sci-sim --test it -- --ignored conformance_virtual::many_seeds`
#[test]
#[ignore = "a thousand seeds take minutes"]
fn many_seeds() {
    seeds(chosen_seeds(1000));
}

/// `cargo test --release -p sci-sim --test it -- --ignored conformance_virtual::full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    let plan = Plan::with_ranks(Profile::Full, &[1, 2, 3, 8]);
    suite("sci on the cluster, full", &plan, &ConduitConfig::default(), SciConfig::fitting);
}
