//! The conformance suite over active messages on pscom: with both plugins, without faults and with faults from seeds.
//!
//! `AM_CONFORMANCE_SEEDS=2000` changes the number of seeds of `many_seeds`.

use am_conformance::{Buffers, Description, Plan, Profile, World, descriptions, judge, run_part, run_with};
use am_core::{Address, Endpoint, Handlers, LossCause, Payload, Rank, Token};
use extoll_sim::conduit::pscom::{self, Padding, PairOverride, Plugin, PscomConfig};
use extoll_sim::model::Parameters;
use extoll_sim::{Adversary, ExtollConfig};
use fabric_sim::{Drawn, DrawnKind, FaultEvent, Scheduled, Topology};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs all ranks of a case; returns what they found wrong.
fn play(case: &Description, machine: &ExtollConfig, pscom: &PscomConfig, world: &World) -> Vec<String> {
    let mut pscom = pscom.clone();
    if case.needs.buffers == Buffers::Smallest {
        let PscomConfig { ring, am, .. } = PscomConfig::smallest();
        pscom = PscomConfig { ring, am, ..pscom };
    }
    // Programs that poll for ever end here.
    let machine = ExtollConfig { deadline_ns: 1e13, ..machine.clone() };
    let (case, world) = (*case, *world);
    let outcome = pscom::run(&machine, &pscom, move |transport| {
        let part = catch_unwind(AssertUnwindSafe(|| run_part(&case, &world, vec![transport])));
        judge(&case, part)
    });
    let report = match outcome {
        Ok(report) => report,
        Err(error) => return vec![error.to_string()],
    };
    let problems =
        report.results.into_iter().zip(0..).filter_map(|(problem, rank)| Some((rank, problem.flatten()?)));
    problems.map(|(rank, problem): (u32, String)| format!("rank {rank}: {problem}")).collect()
}

fn suite(name: &str, ranks: &[u32], pscom: &PscomConfig, machine: impl Fn(u32) -> ExtollConfig) {
    let mut plan = Plan::from_environment(Profile::Quick);
    if std::env::var_os("AM_CONFORMANCE_RANKS").is_none() {
        plan.ranks = ranks.to_vec();
    }
    run_with(name, &plan, |case, ranks, world| play(case, &machine(ranks), pscom, world)).check();
}

/// Four nodes in a square, with as many ranks each as it takes.
fn square(ranks: u32) -> ExtollConfig {
    ExtollConfig {
        ranks_per_node: ranks.div_ceil(4),
        ..ExtollConfig::new(ranks, Topology::Torus { dims: vec![2, 2] })
    }
}

fn free(ranks: u32) -> ExtollConfig {
    ExtollConfig { parameters: Parameters::free(), ..square(ranks) }
}

#[test]
fn velo() {
    suite("pscom over VELO", &[1, 2, 3, 8], &PscomConfig::with(Plugin::Velo), square);
}

#[test]
fn rma() {
    suite("pscom over RMA", &[1, 2, 3, 8], &PscomConfig::with(Plugin::Rma), square);
}

/// Five ranks talk by both plugins at once.
#[test]
fn mixed() {
    let pairs = [[0, 1], [2, 4], [1, 3], [0, 3], [1, 2]].map(|ranks| PairOverride { ranks, plugin: Plugin::Rma });
    suite("pscom over both", &[5], &PscomConfig { pairs: pairs.into(), ..PscomConfig::default() }, square);
}

#[test]
fn without_cost() {
    for plugin in Plugin::ALL {
        suite(&format!("pscom without cost over {plugin}"), &[2], &PscomConfig::with(plugin), free);
    }
}

/// A machine with its faults, and sizes, all drawn from a seed.
fn drawn(seed: u64, ranks: u32) -> (ExtollConfig, PscomConfig) {
    // A digit of the seed in a mixed base: neighbours differ in everything.
    let mut rest = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
    let mut digit = |base: u64| {
        let digit = rest % base;
        rest /= base;
        digit
    };
    let topology = match digit(4) {
        0 => Topology::Crossbar { nodes: ranks },
        1 => Topology::Ring { nodes: ranks },
        2 => Topology::Mesh { dims: vec![ranks.div_ceil(2), 2] },
        _ => Topology::Direct { nodes: ranks },
    };
    let mut machine = ExtollConfig::new(ranks, topology);
    machine.parameters = match digit(4) {
        0 => Parameters::cluster(),
        1 => Parameters::deep(),
        2 => Parameters::asic(),
        _ => Parameters::free(),
    };
    let faults = &mut machine.faults;
    faults.seed = seed;
    match digit(8) {
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
        _ => machine.adversary = Adversary { jitter_ns: 10_000.0, store_gap_ns: 60.0 },
    }
    let mut pscom = PscomConfig::with(Plugin::ALL[digit(2) as usize]);
    pscom.ring.receive_buffers = [16, 3, 5, 8][digit(4) as usize];
    pscom.ring.send_buffers = [pscom.ring.receive_buffers, 1, 2][digit(3) as usize];
    pscom.ring.buffer_bytes = [4096, 128, 1024][digit(3) as usize];
    pscom.ring.padding = [Padding::Line, Padding::Word][digit(2) as usize];
    pscom.rendezvous = [1024, 0, 256][digit(3) as usize];
    (machine, pscom)
}

fn seeds(range: std::ops::Range<u64>) {
    let cases = descriptions();
    let mut problems = Vec::new();
    for seed in range {
        let case = &cases[seed as usize % cases.len()];
        let ranks = [2, 3, 1, 5][(seed / cases.len() as u64 % 4) as usize].max(case.needs.ranks);
        let (machine, pscom) = drawn(seed, ranks);
        let found = play(case, &machine, &pscom, &World::new(Profile::Quick, seed));
        problems.extend(found.iter().map(|found| format!("seed {seed}, {} on {ranks} ranks: {found}", case.name)));
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn some_seeds() {
    seeds(0..76);
}

/// `cargo test --release -p extoll-sim --test pscom_conformance -- --ignored many_seeds`
#[test]
#[ignore = "a thousand seeds take minutes"]
fn many_seeds() {
    let count = std::env::var("AM_CONFORMANCE_SEEDS").map(|text| text.parse().expect("a number of seeds"));
    seeds(0..count.unwrap_or(1200));
}

/// `cargo test --release -p extoll-sim --test pscom_conformance -- --ignored full`
#[test]
#[ignore = "the full profile takes minutes"]
fn full() {
    let plan = Plan { ranks: vec![1, 2, 3, 8], ..Plan::from_environment(Profile::Full) };
    for plugin in Plugin::ALL {
        let name = format!("pscom over {plugin}, full");
        run_with(name, &plan, |case, ranks, world| play(case, &square(ranks), &PscomConfig::with(plugin), world))
            .check();
    }
}

/// A node stops in the middle of a conversation: the others learn which rank is lost, and work on.
#[test]
fn a_stopped_node_is_a_lost_rank() {
    for plugin in Plugin::ALL {
        let mut machine = square(3);
        let event = FaultEvent::NodeStop { node: 2 };
        machine.faults.schedule = vec![Scheduled { at_ns: 3_000_000.0, event }];
        let report = pscom::run(&machine, &PscomConfig::with(plugin), |transport| {
            let mut handlers = Handlers::<u32>::new();
            let back =
                handlers.reply("back", |replies: &mut u32, _: Address, (): (), _: Payload<'_>| *replies += 1);
            let back = back.unwrap();
            let ask = handlers.request("ask", move |_: &mut u32, token: Token<'_>, (): (), _: Payload<'_>| {
                let _ = token.reply(back, ());
            });
            let ask = ask.unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            let error = loop {
                if let Err(error) = endpoint.request(Rank(2), ask, ()) {
                    break error;
                }
            };
            endpoint.acknowledge_loss(Rank(2));
            let (replies, other) = (*endpoint.state(), Rank(1 - endpoint.rank().0));
            endpoint.request(other, ask, ()).unwrap();
            endpoint.wait_until(|now| *now > replies).unwrap();
            // Both have had their answer when each has left: nobody waits for the other's.
            (error.lost_rank(), endpoint.lost(), replies)
        });
        let report = report.unwrap_or_else(|error| panic!("{plugin}: {error}"));
        for (lost, all, replies) in report.results.into_iter().take(2).flatten() {
            assert_eq!((lost, all), (Some(Rank(2)), vec![(Rank(2), LossCause::Died)]), "{plugin}");
            assert!(replies > 10, "{plugin}: {replies} replies before the end");
        }
    }
}
