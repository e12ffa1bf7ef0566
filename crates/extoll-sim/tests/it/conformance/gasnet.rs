//! The suite over the GASNet conduit, in both implementations.

use super::machines::{adversarial, free, lossy, retrying, square};
use super::{Conduit, seeds, suite};
use am_conformance::{Description, Draw, Profile, World, chosen_seeds, play_part, problems, wait_in_vain};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig, HostCosts, Implementation};
use fabric_sim::RunError;

struct Gasnet;

impl Conduit for Gasnet {
    const NAME: &str = "gasnet";
    type Config = GasnetConfig;

    fn smallest(config: &GasnetConfig) -> GasnetConfig {
        let GasnetConfig { medium, request_slots, reply_slots, bounce, .. } = GasnetConfig::smallest();
        GasnetConfig { medium, request_slots, reply_slots, bounce, ..config.clone() }
    }

    fn drawn(draw: &mut Draw, machine: &ExtollConfig) -> GasnetConfig {
        let implementation = if draw.of(4) == 3 { Implementation::First } else { Implementation::Second };
        let packets: &[u32] = if machine.parameters.velo.mtu < 112 { &[56, 64, 24] } else { &[56, 112, 64, 24] };
        let (packet, put) = (draw.one(packets), draw.one(&[8 << 20, 1000]));
        GasnetConfig { implementation, packet, put, ..GasnetConfig::default() }
    }

    fn run(case: &Description, machine: &ExtollConfig, config: &GasnetConfig, world: &World) -> Vec<String> {
        let (case, world) = (*case, *world);
        let outcome = gasnet::run(machine, config, move |transport| play_part(&case, &world, transport));
        problems(outcome.map(|report| report.results))
    }
}

fn conforms(what: &str, ranks: &[u32], config: &GasnetConfig, machine: impl Fn(u32) -> ExtollConfig) {
    suite::<Gasnet>(what, (Profile::Quick, ranks), config, machine);
}

#[test]
fn without_cost() {
    let config = GasnetConfig { costs: HostCosts::free(), ..GasnetConfig::default() };
    conforms("without cost", &[1, 2, 3], &config, free);
}

#[test]
fn on_the_cluster() {
    conforms("on the cluster", &[1, 2, 3, 8], &GasnetConfig::default(), square);
}

#[test]
fn with_the_first_implementation() {
    conforms("in its first implementation", &[2, 3], &GasnetConfig::first(), square);
}

#[test]
fn when_links_repair_what_they_lose() {
    conforms("over links with retry", &[3], &GasnetConfig::default(), retrying);
}

#[test]
fn when_interfaces_repair_what_links_lose() {
    conforms("over lossy links", &[3], &GasnetConfig::default(), lossy);
}

#[test]
fn under_adversarial_timing() {
    conforms("under adversarial timing", &[3], &GasnetConfig::default(), adversarial);
}

#[test]
fn some_seeds() {
    seeds::<Gasnet>(0..60);
}

/// `cargo test --release -p extoll-sim --test it -- --ignored conformance::gasnet::many_seeds`
#[test]
#[ignore = "a thousand seeds take minutes"]
fn many_seeds() {
    seeds::<Gasnet>(chosen_seeds(1000));
}

/// `cargo test --release -p extoll-sim --test it -- --ignored conformance::gasnet::full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    suite::<Gasnet>("in full", (Profile::Full, &[1, 2, 3, 8]), &GasnetConfig::default(), square);
}

#[test]
fn a_wait_for_nothing_is_a_deadlock_that_names_the_ranks() {
    let outcome = gasnet::run(&square(3), &GasnetConfig::default(), |transport| wait_in_vain(transport));
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(report.waiting.iter().map(|waiting| waiting.rank).collect::<Vec<_>>(), [0, 1, 2]);
}
