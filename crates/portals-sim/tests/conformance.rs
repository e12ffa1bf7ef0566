//! The conformance suite over the conduit: each flow control, without faults, with them, and over several machines.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Buffers, Description, Plan, Profile, World, judge, run_part, run_with};
use fabric_sim::{Drawn, DrawnKind, Faults, RunError, Topology};
use portals_sim::conduit::{self, ConduitConfig, FlowControl};
use portals_sim::model::Parameters;
use portals_sim::{Adversary, PortalsConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Programs that poll for ever end here, in nanoseconds.
const DEADLINE: f64 = 2e10;

/// Plays one case; returns what went wrong.
fn play(case: &Description, config: &PortalsConfig, conduit: &ConduitConfig, world: &World) -> Vec<String> {
    let sizes = match case.needs.buffers {
        Buffers::Smallest => ConduitConfig { flow: conduit.flow, ..ConduitConfig::smallest() },
        Buffers::Default => conduit.clone(),
    };
    let (case, world) = (*case, *world);
    let outcome = conduit::run(config, &sizes, move |transport| {
        let played = catch_unwind(AssertUnwindSafe(|| run_part(&case, &world, vec![transport])));
        judge(&case, played)
    });
    match outcome {
        Ok(report) => {
            let problems = report.results.into_iter().enumerate();
            problems.filter_map(|(rank, problem)| Some(format!("rank {rank}: {}", problem.flatten()?))).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

fn suite(name: &str, plan: &Plan, conduit: &ConduitConfig, machine: impl Fn(u32) -> PortalsConfig) {
    run_with(name, plan, |case, ranks, world| {
        let mut config = machine(ranks);
        config.deadline_ns = DEADLINE;
        play(case, &config, conduit, world)
    })
    .check();
}

fn plan(ranks: &[u32]) -> Plan {
    let plan = Plan::from_environment(Profile::Quick);
    let chosen = std::env::var("AM_CONFORMANCE_RANKS").is_ok();
    if chosen { plan } else { Plan { ranks: ranks.to_vec(), ..plan } }
}

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
    suite("Portals without cost", &plan(&[1, 2, 3]), &bank(), free);
}

#[test]
fn conforms_with_a_bank() {
    suite("Portals, bank", &plan(&[1, 2, 3, 8]), &bank(), PortalsConfig::xt4);
}

#[test]
fn conforms_with_shares() {
    suite("Portals, static shares", &plan(&[2, 3]), &shares(), PortalsConfig::xt4);
}

#[test]
fn conforms_over_portals_4() {
    suite("Portals 4", &plan(&[1, 2, 3]), &ConduitConfig::with(FlowControl::Disable), PortalsConfig::xt4);
}

#[test]
fn conforms_where_ranks_share_interfaces() {
    suite("Portals, shared interfaces", &plan(&[8]), &bank(), shared_nodes);
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
    PortalsConfig { faults, ..PortalsConfig::xt4(ranks) }
}

#[test]
fn conforms_over_links_that_repair_what_they_lose() {
    suite("Portals over faulty links", &plan(&[3]), &bank(), faulty);
}

/// Messages of different pairs overtake each other, and memory is read as late as it may be.
fn unkind(ranks: u32) -> PortalsConfig {
    PortalsConfig { adversary: Adversary { jitter_ns: 20_000.0, late_read: true }, ..PortalsConfig::xt4(ranks) }
}

#[test]
fn conforms_under_an_unkind_schedule() {
    suite("Portals, unkind schedule", &plan(&[3]), &bank(), unkind);
}

/// Another machine, other sizes and other faults for every seed.
fn drawn(seed: u64, ranks: u32) -> (PortalsConfig, ConduitConfig) {
    let topology = match seed % 4 {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Torus { dims: vec![2, ranks.div_ceil(2)] },
        _ => Topology::Direct { nodes: ranks },
    };
    let mut config = PortalsConfig::new(ranks, topology);
    config.faults.seed = seed;
    config.parameters = if seed.is_multiple_of(3) { Parameters::free() } else { Parameters::xt4() };
    match seed % 7 {
        0 => (config.faults.loss, config.faults.retry_ns) = (0.05, 500.0),
        1 => config.faults.corruption = 0.05,
        2 => config.faults.duplication = 0.05,
        3 => (config.faults.delay, config.faults.delay_ns) = (0.1, 10_000.0),
        4 => config.adversary = Adversary { jitter_ns: 5_000.0, late_read: true },
        5 => {
            let kind = DrawnKind::LinkFlap { down_ns: 30_000.0 };
            config.faults.drawn = if ranks < 2 { vec![] } else { vec![Drawn { count: 5, within_ns: 1e6, kind }] };
        }
        _ => {}
    }
    let flow = FLOWS[(seed / 2) as usize % FLOWS.len()];
    let scarce = ConduitConfig {
        credits: 8,
        banked: Some(10),
        send_chunks: 12,
        reply_slots: 2,
        tickets: 14,
        staging: 2,
        disable_bytes: 1 << 13,
        disable_events: 32,
        ..ConduitConfig::default()
    };
    let base = if seed % 5 == 4 { scarce } else { ConduitConfig::default() };
    let (buffers, epoch) = (2 + (seed % 3) as u32, if seed.is_multiple_of(2) { 16 } else { 1024 });
    (config, ConduitConfig { flow, buffers, epoch, ..base })
}

const FLOWS: [FlowControl; 3] = [FlowControl::Bank, FlowControl::Static, FlowControl::Disable];

fn seeds(seeds: std::ops::Range<u64>) {
    let cases = am_conformance::descriptions();
    let mut problems = Vec::new();
    for seed in seeds {
        let case = &cases[seed as usize % cases.len()];
        let ranks = [1, 2, 3, 5][(seed / cases.len() as u64 % 4) as usize].max(case.needs.ranks);
        let (mut config, conduit) = drawn(seed, ranks);
        config.deadline_ns = DEADLINE;
        let found = play(case, &config, &conduit, &World::new(Profile::Quick, seed));
        problems.extend(
            found.into_iter().map(|problem| format!("seed {seed}, {} with {ranks} ranks: {problem}", case.name)),
        );
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn conforms_with_some_seeds() {
    seeds(0..60);
}

/// `cargo test --release -p portals-sim --test conformance -- --ignored many_seeds`
#[test]
#[ignore = "a thousand seeds take minutes"]
fn conforms_with_many_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (first, count) =
        (number("AM_CONFORMANCE_FIRST").unwrap_or(0), number("AM_CONFORMANCE_SEEDS").unwrap_or(1000));
    seeds(first..first + count);
}

/// `cargo test --release -p portals-sim --test conformance -- --ignored full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    let plan = Plan { ranks: vec![1, 2, 3, 8], ..Plan::from_environment(Profile::Full) };
    for flow in FLOWS {
        suite("Portals, full", &plan, &ConduitConfig::with(flow), PortalsConfig::xt4);
    }
}

#[test]
fn a_wait_for_nothing_is_a_deadlock_that_names_the_ranks() {
    use am_core::{Endpoint, Handlers, Rank};
    let outcome = conduit::run(&PortalsConfig::xt4(3), &bank(), |transport| {
        let mut endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap();
        if endpoint.rank() == Rank(1) {
            endpoint.wait_until(|()| false).unwrap();
        }
        endpoint.finish().unwrap();
    });
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(report.waiting.iter().map(|waiting| waiting.rank).collect::<Vec<_>>(), [0, 1, 2]);
}
