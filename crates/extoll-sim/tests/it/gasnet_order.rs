//! The order of a pair over VELO and RMA: kept by default, at a price that is measured here.

use am_conformance::PairOrder;
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use extoll_sim::conduit::gasnet::{self, GasnetConfig, Implementation};
use extoll_sim::{AdversarialTiming, ExtollConfig};

/// How many messages of a pair come before one that was sent earlier.
fn overtakers(gasnet: &GasnetConfig, config: &ExtollConfig) -> (usize, usize) {
    const COUNT: u32 = 2000;
    let report = gasnet::run(config, gasnet, |transport| PairOrder::exchange(transport, COUNT, false)).unwrap();
    let seen: Vec<PairOrder> = report.results.into_iter().flatten().collect();
    assert_eq!(seen[1].requests.len(), COUNT as usize);
    PairOrder::overtakers([&seen[0], &seen[1]])
}

#[test]
fn messages_of_a_pair_keep_their_order() {
    for implementation in [Implementation::First, Implementation::Second] {
        let gasnet = GasnetConfig { implementation, segment: 1 << 14, ..GasnetConfig::default() };
        let small = GasnetConfig { medium: 512, ..GasnetConfig::smallest() };
        let small = GasnetConfig { implementation, segment: 1 << 14, ..small };
        let jitter = AdversarialTiming { jitter_ns: 20_000.0, store_gap_ns: 60.0 };
        let adversarial = ExtollConfig { adversary: jitter, ..ExtollConfig::pair() };
        for config in [ExtollConfig::pair(), adversarial] {
            assert_eq!(overtakers(&gasnet, &config), (0, 0));
            assert_eq!(overtakers(&small, &config), (0, 0));
        }
        // What that is worth: without it they do not.
        let unordered = GasnetConfig { ordered: false, ..gasnet };
        let (requests, replies) = overtakers(&unordered, &ExtollConfig::pair());
        assert!(requests > 100 && replies > 0, "{requests} requests and {replies} replies come late");
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
    /// As mixed, but with 64 KB in each Long message.
    MixedLarge,
    /// Short round trips, one at a time.
    RoundTrips,
    /// The same, each behind a Long message.
    RoundTripsBehindLongs,
}

/// Virtual time of a message of a flood, until all of them have been handled, in microseconds; or of a round trip.
fn flood(gasnet: &GasnetConfig, load: Load) -> f64 {
    const COUNT: u32 = 600;
    let report = gasnet::run(&ExtollConfig::pair(), gasnet, move |transport| {
        let mut handlers = Handlers::<u32>::new();
        let reply = handlers.reply("reply", |done: &mut u32, _: Address, (): (), _: Payload<'_>| *done += 1);
        let reply = reply.unwrap();
        let note = handlers.one_way("note", |_: &mut u32, _: Address, (): (), _: Payload<'_>| {}).unwrap();
        let ask = move |_: &mut u32, token: Token<'_>, (): (), _: Payload<'_>| token.reply(reply, ()).unwrap();
        let ask = handlers.request("ask", ask).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let began = endpoint.now();
        if endpoint.rank() == Rank(0) {
            let bytes = vec![7; 1 << 16];
            for number in 0..COUNT {
                match (load, number % 3) {
                    (Load::RoundTrips | Load::RoundTripsBehindLongs, _) => {
                        if let Load::RoundTripsBehindLongs = load {
                            endpoint.request_long(Rank(1), note, (), &bytes[..3000], 0).unwrap();
                        }
                        endpoint.request(Rank(1), ask, ()).unwrap();
                        endpoint.wait_until(|done| *done > number).unwrap();
                    }
                    (Load::Shorts, _) | (Load::Mixed | Load::MixedLarge, 0) => {
                        endpoint.request(Rank(1), note, ()).unwrap();
                    }
                    (Load::Mediums, _) | (Load::Mixed | Load::MixedLarge, 1) => {
                        endpoint.request_medium(Rank(1), note, (), &bytes[..200]).unwrap();
                    }
                    (Load::MixedLarge, _) => endpoint.request_long(Rank(1), note, (), &bytes, 0).unwrap(),
                    (Load::Longs | Load::Mixed, _) => {
                        endpoint.request_long(Rank(1), note, (), &bytes[..3000], 0).unwrap();
                    }
                }
            }
            endpoint.drain().unwrap();
        }
        let took = endpoint.now() - began;
        endpoint.finish().unwrap();
        took.as_secs_f64() * 1e6 / f64::from(COUNT)
    });
    report.unwrap().results[0].unwrap()
}

/// Order costs floods nothing, since whoever handles messages later is not their bottleneck. What follows a Long
/// message waits for the payload, and that is all.
/// `cargo test -p active-messages-extoll --test it order_costs -- --nocapture` prints the table.
#[test]
fn order_costs_little() {
    for implementation in [Implementation::First, Implementation::Second] {
        let floods = [Load::Shorts, Load::Mediums, Load::Longs, Load::Mixed, Load::MixedLarge];
        for load in floods.into_iter().chain([Load::RoundTrips, Load::RoundTripsBehindLongs]) {
            let [unordered, ordered] = [false, true].map(|ordered| {
                let config = GasnetConfig { implementation, ordered, segment: 1 << 17, ..GasnetConfig::default() };
                flood(&config, load)
            });
            println!("{implementation:?} {load:?}: {unordered:.3} us, in order {ordered:.3} us");
            match load {
                Load::Shorts | Load::Mediums | Load::Longs | Load::RoundTrips => {
                    assert_eq!(ordered, unordered, "{load:?}");
                }
                Load::Mixed | Load::MixedLarge => {
                    assert!(ordered < 1.01 * unordered, "{load:?}: {ordered} us against {unordered} us");
                }
                // 3000 bytes of payload take 9 us to come.
                Load::RoundTripsBehindLongs => {
                    assert!(ordered < unordered + 9.0, "{ordered} us against {unordered} us")
                }
            }
        }
    }
}
