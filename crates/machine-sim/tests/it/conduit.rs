//! The conduit: what it allocates, and that peers that cannot be reached are lost.

use am_conformance::allocations;
use am_core::{Endpoint, Handlers, Rank};
use fabric_sim::{FaultEvent, Faults, Scheduled};
use machine_sim::MachineConfig;
use machine_sim::conduit::{self, ConduitConfig};

#[test]
fn messages_allocate_nothing() {
    for len in [16usize, 4000] {
        let report = conduit::run(&machine_sim::crossbar(2), &ConduitConfig::default(), move |transport| {
            let mut handlers = Handlers::<u32>::new();
            let done = handlers.reply("done", |replies, _, (): (), _| *replies += 1).unwrap();
            let ask = handlers
                .request("ask", move |_, token, (): (), _| {
                    token.reply(done, ()).map_err(am_core::HandlerError::from)
                })
                .unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            let (mut spent, bytes) = (0, vec![7; len]);
            if endpoint.rank() == Rank(0) {
                for round in 0..30 {
                    let before = allocations();
                    endpoint.request(Rank(1), ask, ()).unwrap();
                    endpoint.request_medium(Rank(1), ask, (), &bytes).unwrap();
                    endpoint.request_long(Rank(1), ask, (), &bytes, 64).unwrap();
                    endpoint.wait_until(|replies| *replies == 3 * (round + 1)).unwrap();
                    spent += if round < 5 { 0 } else { allocations() - before };
                }
            }
            endpoint.finish().unwrap();
            spent
        });
        assert_eq!(report.unwrap().results[0], Some(0), "{len} bytes");
    }
}

/// A link that stays down is noticed: who sends over it learns that its peer is lost.
#[test]
fn unreachable_peers_are_lost() {
    let event = FaultEvent::LinkDown { from: 0, to: 1 };
    let schedule = vec![Scheduled { at_ns: 100_000.0, event }];
    let mut machine = MachineConfig { faults: Faults { schedule, ..Faults::default() }, ..MachineConfig::pair() };
    machine.parameters.retry.limit = 3;
    let report = conduit::run(&machine, &ConduitConfig::default(), |transport| {
        let mut handlers = Handlers::<u32>::new();
        let note = handlers.one_way("note", |count, _, (): (), _| *count += 1).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        if endpoint.rank() != Rank(0) {
            return endpoint.wait_until(|_| false).is_err();
        }
        endpoint.charge(am_core::Span::from_micros(200));
        endpoint.request(Rank(1), note, ()).unwrap();
        endpoint.wait_until(|_| false).is_err()
    });
    assert_eq!(report.unwrap().results, [Some(true), Some(true)]);
}
