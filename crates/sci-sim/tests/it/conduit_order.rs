//! The order of a pair: kept by default, and not where the published conduit does not keep it.

use crate::conduit_support::machine;
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Span, Token};
use sci_sim::conduit::{self, ConduitConfig};
use sci_sim::{AdversarialTiming, SciConfig};

const COUNT: u32 = 1000;

#[derive(Default)]
struct Order {
    requests: Vec<u32>,
    replies: Vec<u32>,
}

/// Short, Medium and Long requests in turn to one neighbour, who computes between his polls and answers each in
/// one of three ways; how many requests were handled, and how many replies came, before one that was sent earlier.
fn overtakers(conduit: &ConduitConfig, machine: &SciConfig) -> (usize, usize) {
    let report = conduit::run(machine, conduit, |transport| {
        let mut handlers = Handlers::<Order>::new();
        let reply = handlers.reply("reply", |order: &mut Order, _: Address, number: u32, _: Payload<'_>| {
            order.replies.push(number);
        });
        let reply = reply.unwrap();
        let ask = move |order: &mut Order, token: Token<'_>, number: u32, _: Payload<'_>| {
            order.requests.push(number);
            match number % 5 {
                0 | 3 => token.reply(reply, number).unwrap(),
                1 => token.reply_medium(reply, number, &[1; 100]).unwrap(),
                _ => token.reply_long(reply, number, &[2; 700], 0).unwrap(),
            }
        };
        let ask = handlers.request("ask", ask).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, Order::default()).unwrap();
        if endpoint.rank() == Rank(0) {
            for number in 0..COUNT {
                match number % 3 {
                    0 => endpoint.request(Rank(1), ask, number).unwrap(),
                    1 => endpoint.request_medium(Rank(1), ask, number, &[3; 200]).unwrap(),
                    _ => endpoint.request_long(Rank(1), ask, number, &[4; 3000], 4096).unwrap(),
                }
                // The answers pile up now and then.
                endpoint.charge(Span::from_micros(u64::from(number * 7 % 30)));
            }
            endpoint.wait_until(|order| order.replies.len() == COUNT as usize).unwrap();
        } else {
            while endpoint.state().requests.len() < COUNT as usize {
                let handled = endpoint.state().requests.len() as u64;
                endpoint.charge(Span::from_micros(handled * 11 % 40));
                endpoint.poll().unwrap();
            }
        }
        endpoint.finish().unwrap()
    });
    let late = |numbers: &[u32]| {
        assert_eq!(numbers.len(), COUNT as usize);
        let mut largest = 0;
        let late = |number: &&u32| {
            largest = largest.max(**number);
            **number < largest
        };
        numbers.iter().filter(late).count()
    };
    let seen: Vec<Order> = report.unwrap().results.into_iter().flatten().collect();
    // Replies are sent in the order in which requests are handled.
    let mut place = vec![0; COUNT as usize];
    seen[1].requests.iter().zip(0..).for_each(|(number, at)| place[*number as usize] = at);
    let replies: Vec<u32> = seen[0].replies.iter().map(|number| place[*number as usize]).collect();
    (late(&seen[1].requests), late(&replies))
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

/// `cargo test -p sci-sim --test it order_costs -- --nocapture` prints the table.
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
