//! The order of a pair: kept by default, and not where the published conduit does not keep it.

use crate::conduit_support::machine;
use am_conformance::PairOrder;
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Span};
use sci_sim::conduit::{self, ConduitConfig};
use sci_sim::{AdversarialTiming, SciConfig};

/// How many messages of a pair, of which both compute between their calls, come before one that was sent earlier.
fn overtakers(conduit: &ConduitConfig, machine: &SciConfig) -> (usize, usize) {
    const COUNT: u32 = 1000;
    let report = conduit::run(machine, conduit, |transport| PairOrder::exchange(transport, COUNT, true)).unwrap();
    let seen: Vec<PairOrder> = report.results.into_iter().flatten().collect();
    assert_eq!(seen[1].requests.len(), COUNT as usize);
    PairOrder::overtakers([&seen[0], &seen[1]])
}

#[test]
fn messages_of_a_pair_keep_their_order() {
    let scattered = SciConfig { adversary: AdversarialTiming { reorder_ns: 3_000.0 }, ..machine(2) };
    let mut failing = machine(2);
    (failing.errors.retriable, failing.errors.not_retriable) = (0.05, 0.01);
    for conduit in [ConduitConfig::default(), ConduitConfig::tuned(), ConduitConfig::smallest()] {
        let conduit = ConduitConfig { slot: conduit.slot.max(1024), ..conduit };
        for machine in [machine(2), scattered.clone(), failing.clone()] {
            assert_eq!(overtakers(&conduit, &machine), (0, 0));
        }
    }
}

#[test]
fn published_conduits_do_not_keep_the_order() {
    let unordered = ConduitConfig { ordered: false, ..ConduitConfig::tuned() };
    for conduit in [ConduitConfig::paper(), unordered] {
        let (requests, replies) = overtakers(&conduit, &machine(2));
        println!("{requests} requests and {replies} replies come late");
        assert!(requests + replies > 10, "{requests} requests and {replies} replies come late");
    }
}

/// What a flood is made of.
#[derive(Clone, Copy, Debug)]
enum Load {
    Shorts,
    Mediums,
    Longs,
    /// Short, Medium, Long in turn.
    Mixed,
}

/// Virtual time of a flood, until all of it has been handled.
fn flood(conduit: &ConduitConfig, load: Load) -> Span {
    let report = conduit::run(&machine(2), conduit, move |transport| {
        let mut handlers = Handlers::<()>::new();
        let note = handlers.one_way("note", |(): &mut (), _: Address, (): (), _: Payload<'_>| {}).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, ()).unwrap();
        let began = endpoint.now();
        if endpoint.rank() == Rank(0) {
            for number in 0..300 {
                match (load, number % 3) {
                    (Load::Shorts, _) | (Load::Mixed, 0) => endpoint.request(Rank(1), note, ()).unwrap(),
                    (Load::Mediums, _) | (Load::Mixed, 1) => {
                        endpoint.request_medium(Rank(1), note, (), &[3; 200]).unwrap();
                    }
                    (Load::Longs | Load::Mixed, _) => {
                        endpoint.request_long(Rank(1), note, (), &[4; 3000], 0).unwrap();
                    }
                }
            }
            endpoint.drain().unwrap();
        }
        let took = endpoint.now() - began;
        endpoint.finish().unwrap();
        took
    });
    report.unwrap().results[0].unwrap()
}

/// `cargo test -p active-messages-sci --test it order_costs -- --nocapture` prints the table.
#[test]
fn order_costs_nothing() {
    for config in [ConduitConfig::default(), ConduitConfig::tuned()] {
        for load in [Load::Shorts, Load::Mediums, Load::Longs, Load::Mixed] {
            let [unordered, ordered] =
                [false, true].map(|ordered| flood(&ConduitConfig { ordered, ..config.clone() }, load));
            println!("{} slots, {load:?}: {unordered}, in order {ordered}", config.requests);
            assert_eq!(ordered, unordered, "{load:?}");
        }
    }
}
