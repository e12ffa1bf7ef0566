//! The suite over the GASNet conduit, in both implementations.

use super::machines::{self, DEADLINE, adversarial, free, lossy, retrying, square};
use am_conformance::{Draw, Profile, World, concrete_cases, halves_suite, play_part, sim_suite};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig, HostCosts, Implementation};

sim_suite! {
    Gasnet, "gasnet", ExtollConfig, GasnetConfig, gasnet::run;
    deadline: DEADLINE,
    smallest: |config| {
        let GasnetConfig { medium, request_slots, reply_slots, bounce, .. } = GasnetConfig::smallest();
        GasnetConfig { medium, request_slots, reply_slots, bounce, ..config.clone() }
    },
    drawn: drawn,
    seeds: 30,
    full: [("in full", GasnetConfig::default())],
    on: square,
    deadlocks: [(square(3), GasnetConfig::default())],
}

halves_suite! { Gasnet, ExtollConfig, gasnet::run_halves; deadline: DEADLINE, seeds: 20 }

fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (ExtollConfig, GasnetConfig) {
    let machine = machines::drawn(draw, seed, ranks);
    let implementation = if draw.of(4) == 3 { Implementation::First } else { Implementation::Second };
    let packets: &[u32] = if machine.parameters.velo.mtu < 112 { &[56, 64, 24] } else { &[56, 112, 64, 24] };
    let (packet, put) = (draw.one(packets), draw.one(&[8 << 20, 1000]));
    let config = GasnetConfig { implementation, packet, put, ..GasnetConfig::default() };
    (machine, config)
}

#[test]
fn without_cost() {
    let config = GasnetConfig { costs: HostCosts::free(), ..GasnetConfig::default() };
    conforms_in_part("without cost", &[3], &config, free);
}

#[test]
fn on_the_cluster() {
    conforms("on the cluster", &[1, 2, 5], &GasnetConfig::default(), square);
}

#[test]
fn with_the_first_implementation() {
    conforms_in_part("in its first implementation", &[2, 3], &GasnetConfig::first(), square);
}

#[test]
fn when_links_repair_what_they_lose() {
    conforms_in_part("over links with retry", &[3], &GasnetConfig::default(), retrying);
}

#[test]
fn when_interfaces_repair_what_links_lose() {
    conforms_in_part("over lossy links", &[3], &GasnetConfig::default(), lossy);
}

#[test]
fn under_adversarial_timing() {
    conforms_in_part("under adversarial timing", &[3], &GasnetConfig::default(), adversarial);
}

#[test]
fn a_trait_object_takes_no_virtual_time() {
    let (machine, config) = (square(2), GasnetConfig::default());
    for name in ["checksum-ping", "reservations", "direct-access"] {
        let world = World::new(Profile::Quick, 3);
        let run = |behind_object: bool| {
            let report = gasnet::run(&machine, &config, move |transport| {
                let case = concrete_cases().into_iter().find(|case| case.description.name == name);
                let case = case.expect("a case is called like that");
                if behind_object {
                    assert_eq!(play_part(&case.description, &world, transport), None);
                } else {
                    case.run(&world, vec![transport]).expect("the case passes");
                }
            });
            let report = report.expect("all ranks end");
            (report.ended, report.hash)
        };
        assert_eq!(run(true), run(false), "{name}");
    }
}
