//! The suite over active messages on pscom, with both plugins.

use super::machines::{self, DEADLINE, adversarial, free, lossy, retrying, square};
use am_conformance::{Draw, halves_suite, run_simulated_case, sim_suite};
use am_core::{Address, Endpoint, Handlers, LossCause, Payload, Rank, Token};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{self, Padding, PairOverride, Plugin, PscomConfig};
use fabric_sim::{FaultEvent, Scheduled};

sim_suite! {
    Pscom, "pscom", ExtollConfig, PscomConfig, pscom::run;
    deadline: DEADLINE,
    smallest: |config| {
        let PscomConfig { ring, am, .. } = PscomConfig::smallest();
        PscomConfig { ring, am, ..config.clone() }
    },
    drawn: drawn,
    seeds: 30,
    full: [("over VELO, in full", Plugin::Velo), ("over RMA, in full", Plugin::Rma)]
        .map(|(what, plugin)| (what, PscomConfig::with(plugin))),
    on: square,
    deadlocks: Plugin::ALL.map(|plugin| (square(3), PscomConfig::with(plugin))),
}

halves_suite! { Pscom, ExtollConfig, pscom::run_halves; deadline: DEADLINE, seeds: 20 }

fn drawn(draw: &mut Draw, seed: u64, ranks: u32) -> (ExtollConfig, PscomConfig) {
    let machine = machines::drawn(draw, seed, ranks);
    let mut config = PscomConfig::with(draw.one(&Plugin::ALL));
    let ring = &mut config.ring;
    ring.receive_buffers = draw.one(&[16, 3, 5, 8]);
    ring.send_buffers = draw.one(&[ring.receive_buffers, 1, 2]);
    ring.buffer_bytes = draw.one(&[4096, 128, 1024]);
    ring.padding = draw.one(&[Padding::Line, Padding::Word]);
    config.rendezvous = draw.one(&[1024, 0, 256]);
    (machine, config)
}

#[test]
fn over_velo() {
    conforms("over VELO", &[1, 2, 5], &PscomConfig::with(Plugin::Velo), square);
}

#[test]
fn over_rma() {
    conforms("over RMA", &[1, 3], &PscomConfig::with(Plugin::Rma), square);
}

/// Five ranks talk by both plugins at once.
#[test]
fn over_both() {
    let pairs = [[0, 1], [2, 4], [1, 3], [0, 3], [1, 2]].map(|ranks| PairOverride { ranks, plugin: Plugin::Rma });
    conforms_in_part("over both", &[5], &PscomConfig { pairs: pairs.into(), ..PscomConfig::default() }, square);
}

/// Translation entries for some of the rings only.
#[test]
fn with_few_translation_entries() {
    conforms_in_part("with few entries", &[5], &PscomConfig::with(Plugin::Rma), |ranks| {
        let mut machine = square(ranks);
        machine.parameters.rma.pages = 100;
        machine
    });
}

#[test]
fn without_cost() {
    for plugin in Plugin::ALL {
        conforms_in_part(&format!("without cost over {plugin}"), &[2], &PscomConfig::with(plugin), free);
    }
}

#[test]
fn over_machines_with_faults() {
    for (what, machine) in [
        ("over links with retry", retrying as fn(_) -> _),
        ("over lossy links", lossy),
        ("under adversarial timing", adversarial),
    ] {
        conforms_in_part(what, &[2], &PscomConfig::with(Plugin::Rma), machine);
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

/// In this job a lost packet delays an answer until its asker has sent another request: the asker asks again.
#[test]
fn a_late_answer_does_not_end_the_asking() {
    run_simulated_case::<Pscom>("collectives-refusals", 5, 2626);
}
