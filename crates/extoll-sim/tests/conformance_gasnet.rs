//! The conformance suite over the GASNet conduit: without faults, with them, over several machines and both implementations.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` test (`-- --ignored`).

use am_conformance::{Buffers, Description, Plan, Profile, World, judge, run_part, run_with};
use extoll_sim::conduit::gasnet::{self, GasnetConfig, HostCosts, Implementation};
use extoll_sim::model::Parameters;
use extoll_sim::{Adversary, ExtollConfig};
use fabric_sim::{Drawn, DrawnKind, Faults, RunError, Topology};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Programs that poll for ever end here, in nanoseconds.
const DEADLINE: f64 = 2e10;

/// Plays one case; returns what went wrong.
fn play(case: &Description, config: &ExtollConfig, gasnet: &GasnetConfig, world: &World) -> Vec<String> {
    let mut sizes = gasnet.clone();
    if case.needs.buffers == Buffers::Smallest {
        let GasnetConfig { medium, request_slots, reply_slots, bounce, .. } = GasnetConfig::smallest();
        sizes = GasnetConfig { medium, request_slots, reply_slots, bounce, ..sizes };
    }
    let (case, world) = (*case, *world);
    let outcome = gasnet::run(config, &sizes, move |transport| {
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

fn suite(name: &str, plan: &Plan, gasnet: &GasnetConfig, machine: impl Fn(u32) -> ExtollConfig) {
    run_with(name, plan, |case, ranks, world| {
        let mut config = machine(ranks);
        config.deadline_ns = DEADLINE;
        play(case, &config, gasnet, world)
    })
    .check();
}

fn plan(ranks: &[u32]) -> Plan {
    let plan = Plan::from_environment(Profile::Quick);
    let chosen = std::env::var("AM_CONFORMANCE_RANKS").is_ok();
    if chosen { plan } else { Plan { ranks: ranks.to_vec(), ..plan } }
}

fn first() -> GasnetConfig {
    GasnetConfig::first()
}

/// Nodes of two ranks in a mesh.
fn mesh(ranks: u32) -> ExtollConfig {
    ExtollConfig {
        ranks_per_node: ranks.div_ceil(4),
        ..ExtollConfig::new(ranks, Topology::Mesh { dims: vec![2, 2] })
    }
}

#[test]
fn conforms_without_cost() {
    let free = GasnetConfig { costs: HostCosts::free(), ..GasnetConfig::default() };
    suite("gasnet without cost", &plan(&[1, 2, 3]), &free, |ranks| ExtollConfig {
        parameters: Parameters::free(),
        ..ExtollConfig::new(ranks, Topology::Crossbar { nodes: ranks })
    });
}

#[test]
fn conforms_on_the_cluster() {
    suite("gasnet on the cluster", &plan(&[1, 2, 3, 8]), &GasnetConfig::default(), mesh);
}

#[test]
fn conforms_with_the_first_implementation() {
    suite("gasnet, first implementation", &plan(&[2, 3]), &first(), mesh);
}

#[test]
fn conforms_when_links_repair_what_they_lose() {
    let faults = Faults {
        loss: 0.02,
        corruption: 0.01,
        delay: 0.02,
        delay_ns: 2_000.0,
        link_retry: true,
        ..Faults::default()
    };
    suite("gasnet over links with retry", &plan(&[3]), &GasnetConfig::default(), |ranks| ExtollConfig {
        faults: Faults { duplication: 0.01, retry_ns: 200.0, ..faults.clone() },
        ..mesh(ranks)
    });
}

#[test]
fn conforms_when_interfaces_repair_what_links_lose() {
    suite("gasnet over lossy links", &plan(&[3]), &GasnetConfig::default(), lossy);
}

fn lossy(ranks: u32) -> ExtollConfig {
    let faults = Faults { loss: 0.01, corruption: 0.01, duplication: 0.01, ..Faults::default() };
    ExtollConfig { faults, ..mesh(ranks) }
}

/// VELO and RMA overtake each other, and mailboxes are written slot by slot.
fn unkind(ranks: u32) -> ExtollConfig {
    ExtollConfig { adversary: Adversary { jitter_ns: 20_000.0, store_gap_ns: 100.0 }, ..mesh(ranks) }
}

#[test]
fn conforms_under_an_unkind_schedule() {
    suite("gasnet, unkind schedule", &plan(&[3]), &GasnetConfig::default(), unkind);
}

/// Another machine, other sizes and other faults for every seed.
fn drawn(seed: u64, ranks: u32) -> (ExtollConfig, GasnetConfig) {
    let topology = match seed % 5 {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Mesh { dims: vec![2, ranks.div_ceil(2)] },
        3 => Topology::Torus { dims: vec![ranks] },
        _ => Topology::Direct { nodes: ranks },
    };
    let mut config = ExtollConfig::new(ranks, topology);
    config.faults.seed = seed;
    config.parameters = match seed % 3 {
        0 => Parameters::cluster(),
        1 => Parameters::asic(),
        _ => Parameters::free(),
    };
    match seed % 7 {
        0 => config.faults.loss = 0.02,
        1 => config.faults.corruption = 0.02,
        2 => config.faults.duplication = 0.02,
        3 => (config.faults.delay, config.faults.delay_ns) = (0.1, 10_000.0),
        4 => config.adversary = Adversary { jitter_ns: 5_000.0, store_gap_ns: 50.0 },
        5 => {
            (config.faults.loss, config.faults.link_retry) = (0.05, true);
            let kind = DrawnKind::LinkFlap { down_ns: 30_000.0 };
            config.faults.drawn = if ranks < 2 { vec![] } else { vec![Drawn { count: 5, within_ns: 1e6, kind }] };
        }
        _ => {}
    }
    let implementation = if seed % 4 == 3 { Implementation::First } else { Implementation::Second };
    let packet =
        if seed % 3 == 1 { [56, 112][(seed / 3 % 2) as usize] } else { [56, 64, 24][(seed / 3 % 3) as usize] };
    let put = if seed.is_multiple_of(2) { 8 << 20 } else { 1000 };
    (config, GasnetConfig { implementation, packet, put, ..GasnetConfig::default() })
}

fn seeds(seeds: std::ops::Range<u64>) {
    let cases = am_conformance::descriptions();
    let mut problems = Vec::new();
    for seed in seeds {
        let case = &cases[seed as usize % cases.len()];
        let ranks = [1, 2, 3, 5][(seed / cases.len() as u64 % 4) as usize].max(case.needs.ranks);
        let (mut config, gasnet) = drawn(seed, ranks);
        config.deadline_ns = DEADLINE;
        let found = play(case, &config, &gasnet, &World::new(Profile::Quick, seed));
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

/// `cargo test --release -p extoll-sim --test conformance_gasnet -- --ignored many_seeds`
#[test]
#[ignore = "a thousand seeds take minutes"]
fn conforms_with_many_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let (first, count) =
        (number("AM_CONFORMANCE_FIRST").unwrap_or(0), number("AM_CONFORMANCE_SEEDS").unwrap_or(1000));
    seeds(first..first + count);
}

/// `cargo test --release -p extoll-sim --test conformance_gasnet -- --ignored full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    let plan = Plan { ranks: vec![1, 2, 3, 8], ..Plan::from_environment(Profile::Full) };
    suite("gasnet on the cluster, full", &plan, &GasnetConfig::default(), mesh);
}

#[test]
fn a_wait_for_nothing_is_a_deadlock_that_names_the_ranks() {
    use am_core::{Endpoint, Handlers, Rank};
    let outcome = gasnet::run(&mesh(3), &GasnetConfig::default(), |transport| {
        let mut endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap();
        if endpoint.rank() == Rank(1) {
            endpoint.wait_until(|()| false).unwrap();
        }
        endpoint.finish().unwrap();
    });
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(report.waiting.iter().map(|waiting| waiting.rank).collect::<Vec<_>>(), [0, 1, 2]);
}
