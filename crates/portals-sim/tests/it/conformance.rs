//! The conformance suite over the conduit: each flow control, without faults, with them, and over several
//! machines.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Draw, halves_suite, sim_suite};
use fabric_sim::{Drawn, DrawnKind, Faults, Topology};
use portals_sim::conduit::{self, ConduitConfig, FlowControl};
use portals_sim::model::Parameters;
use portals_sim::{AdversarialTiming, PortalsConfig, xt4};

sim_suite! {
    Portals, "Portals", PortalsConfig, ConduitConfig, conduit::run;
    deadline: 2e10,
    smallest: |config| ConduitConfig { flow: config.flow, ..ConduitConfig::smallest() },
    drawn: drawn,
    seeds: 24,
    full: FLOWS.map(|flow| ("in full", ConduitConfig::with(flow))),
    on: xt4,
    deadlocks: [(xt4(3), bank())],
}

halves_suite! { Portals, PortalsConfig, conduit::run_halves; deadline: 2e10, seeds: 40 }

fn bank() -> ConduitConfig {
    ConduitConfig::default()
}

fn shares() -> ConduitConfig {
    ConduitConfig::with(FlowControl::Static)
}

/// Nodes of two ranks in a torus.
fn shared_nodes(ranks: u32) -> PortalsConfig {
    PortalsConfig {
        ranks_per_node: ranks.div_ceil(4),
        ..PortalsConfig::new(ranks, Topology::Torus { dims: vec![2, 2] })
    }
}

fn free(ranks: u32) -> PortalsConfig {
    let parameters = Parameters::free();
    PortalsConfig { parameters, ..PortalsConfig::new(ranks, Topology::Crossbar { nodes: ranks }) }
}

#[test]
fn conforms_without_cost() {
    conforms_in_part("without cost", &[3], &bank(), free);
}

#[test]
fn conforms_with_a_tuned_bank() {
    conforms_in_part("tuned bank", &[3], &ConduitConfig::tuned(), xt4);
}

#[test]
fn conforms_with_a_bank() {
    conforms("bank", &[1, 2, 5], &bank(), xt4);
}

#[test]
fn conforms_with_shares() {
    conforms_in_part("static shares", &[2, 3], &shares(), xt4);
}

#[test]
fn conforms_over_portals_4() {
    conforms("4", &[1, 3], &ConduitConfig::with(FlowControl::Disable), xt4);
}

#[test]
fn conforms_where_ranks_share_interfaces() {
    conforms_in_part("shared interfaces", &[8], &bank(), shared_nodes);
}

fn faulty(ranks: u32) -> PortalsConfig {
    let faults = Faults {
        loss: 0.02,
        corruption: 0.01,
        duplication: 0.01,
        delay: 0.02,
        delay_ns: 2_000.0,
        retry_ns: 200.0,
        ..Faults::default()
    };
    PortalsConfig { faults, ..xt4(ranks) }
}

#[test]
fn conforms_over_links_that_repair_what_they_lose() {
    conforms_in_part("over faulty links", &[3], &bank(), faulty);
}

/// Messages of different pairs overtake each other, and memory is read as late as it may be.
fn adversarial(ranks: u32) -> PortalsConfig {
    PortalsConfig { adversary: AdversarialTiming { jitter_ns: 20_000.0, late_read: true }, ..xt4(ranks) }
}

#[test]
fn conforms_under_adversarial_timing() {
    conforms_in_part("adversarial timing", &[3], &bank(), adversarial);
}

/// Another machine, other sizes and other faults for every seed.
fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (PortalsConfig, ConduitConfig) {
    let topology = match draw.of(4) {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Torus { dims: vec![2, ranks.div_ceil(2)] },
        _ => Topology::Direct { nodes: ranks },
    };
    let mut config = PortalsConfig::new(ranks, topology);
    config.faults.seed = seed;
    config.parameters = if draw.of(3) == 0 { Parameters::free() } else { Parameters::xt4() };
    match draw.of(7) {
        0 => (config.faults.loss, config.faults.retry_ns) = (0.05, 500.0),
        1 => config.faults.corruption = 0.05,
        2 => config.faults.duplication = 0.05,
        3 => (config.faults.delay, config.faults.delay_ns) = (0.1, 10_000.0),
        4 => config.adversary = AdversarialTiming { jitter_ns: 5_000.0, late_read: true },
        5 => {
            let kind = DrawnKind::LinkFlap { down_ns: 30_000.0 };
            config.faults.drawn = if ranks < 2 { vec![] } else { vec![Drawn { count: 5, within_ns: 1e6, kind }] };
        }
        _ => {}
    }
    let flow = draw.one(&FLOWS);
    let scarce = ConduitConfig {
        credits: 8,
        banked: Some(10),
        send_chunks: 12,
        reply_slots: 2,
        send_slots: 14,
        staging: 2,
        disable_bytes: 1 << 13,
        disable_events: 32,
        ..ConduitConfig::default()
    };
    let base = if draw.of(5) == 4 { scarce } else { ConduitConfig::default() };
    let (buffers, epoch) = (draw.one(&[2, 3, 4]), draw.one(&[16, 1024]));
    let ConduitConfig { extra, lend_limit, revoke_least, .. } =
        if draw.of(2) == 0 { ConduitConfig::tuned() } else { ConduitConfig::default() };
    (config, ConduitConfig { flow, buffers, epoch, extra, lend_limit, revoke_least, ..base })
}

const FLOWS: [FlowControl; 3] = [FlowControl::Bank, FlowControl::Static, FlowControl::Disable];
