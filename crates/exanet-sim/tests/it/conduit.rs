//! The conduit: what it allocates, how it carries payloads, what becomes of operations on lost ranks, and that a
//! broken interface shows in it.

use am_conformance::allocations;
use am_core::transport::{
    Arrival, Completion, Departure, Landing, Membership, OperationFault, Remote, ReplyPath, Sink, Ticket,
    Transport, WaitReason, Waiting,
};
use am_core::{Category, Endpoint, Handlers, Payload, Peer, PeerStatus, Rank, Span, Words};
use exanet_sim::ExanetConfig;
use exanet_sim::conduit::{self, ConduitConfig};
use exanet_sim::nic::Counters;
use fabric_sim::{FaultEvent, Faults, Scheduled};

/// Rank 0 sends `rounds` times a Short, a Medium and a Long message of a size and waits for their replies; returns
/// its allocations after the first rounds, and the counters of rank 1's interface.
fn exchange(config: &ConduitConfig, len: usize, rounds: u32) -> (u64, Counters) {
    let report = conduit::run(&ExanetConfig::pair(), config, move |transport| {
        let mut handlers = Handlers::<u32>::new();
        let done = handlers.reply("done", |replies, _, (): (), _| *replies += 1).unwrap();
        let ask = handlers
            .request("ask", move |_, token, (): (), _| token.reply(done, ()).map_err(am_core::HandlerError::from))
            .unwrap();
        let nic = transport.nic().clone();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let (mut spent, bytes) = (0, vec![7; len]);
        if endpoint.rank() == Rank(0) {
            for round in 0..rounds {
                let before = allocations();
                endpoint.request(Rank(1), ask, ()).unwrap();
                endpoint.request_medium(Rank(1), ask, (), &bytes).unwrap();
                endpoint.request_long(Rank(1), ask, (), &bytes, 64).unwrap();
                endpoint.wait_until(|replies| *replies == 3 * (round + 1)).unwrap();
                spent += if round < 5 { 0 } else { allocations() - before };
            }
        }
        endpoint.barrier().unwrap();
        let counters = nic.counters();
        endpoint.finish().unwrap();
        (spent, counters)
    });
    let results = report.unwrap().results;
    (results[0].unwrap().0, results[1].unwrap().1)
}

#[test]
fn messages_allocate_nothing() {
    for len in [16, 4000] {
        assert_eq!(exchange(&ConduitConfig::default(), len, 30).0, 0, "{len} bytes");
    }
}

/// A small payload is in control packets, a larger one is a write: one block each, and one packet besides.
#[test]
fn larger_payloads_are_written() {
    let count = |len, rounds| exchange(&ConduitConfig::default(), len, rounds).1;
    let few = |len| (count(len, 10), count(len, 20));
    let (small, more_small) = few(16);
    let (large, more_large) = few(4000);
    // Long messages are written whatever their size.
    assert_eq!((more_small.blocks - small.blocks, more_large.blocks - large.blocks), (10, 20));
    assert_eq!(more_large.packets - large.packets, more_small.packets - small.packets);
}

/// Keeps what operations have come to.
struct Completions(Vec<Result<(), OperationFault>>);

impl Sink for Completions {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    fn completed(&mut self, completion: Completion<'_>) {
        assert_eq!(completion.ticket.id, 5);
        self.0.push(completion.outcome.map(drop));
    }
}

/// An operation that a lost rank never answers does not count as done, and nobody waits for it.
#[test]
fn operations_on_lost_ranks_are_not_done() {
    let schedule = vec![Scheduled { at_ns: 50_000.0, event: FaultEvent::NodeStop { node: 1 } }];
    let machine = ExanetConfig { faults: Faults { schedule, ..Faults::default() }, ..ExanetConfig::pair() };
    let report = conduit::run(&machine, &ConduitConfig::default(), |mut transport| {
        if transport.local_peer() == Peer(1) {
            transport.idle(None, WaitReason::Message);
            return (0, 0, true);
        }
        let (mut sink, mut begun) = (Completions(Vec::new()), 0);
        let place = |peer| Remote { peer, at: 0, ticket: Ticket { id: 5, part: 0 } };
        let mut pause = |transport: &mut conduit::Conduit<'_>| {
            transport.poll(64, &mut sink);
            let until = transport.now() + Span::from_micros(5);
            transport.idle(Some(until), WaitReason::Message);
        };
        while transport.status(Peer(1)) == PeerStatus::Active {
            let (native, to) = transport.native(Peer(1)).unwrap();
            begun += u32::from(native.put(place(to), &[1; 64], None, &mut |_| ()).is_ok());
            begun += u32::from(native.get(place(to), 64, Landing::Report, &mut |_| ()).is_ok());
            begun += u32::from(native.get(place(to), 64, Landing::Segment(0), &mut |_| ()).is_ok());
            pause(&mut transport);
        }
        for _ in 0..100 {
            pause(&mut transport);
        }
        let quiet = transport.is_quiescent();
        transport.depart(Departure::Left);
        let done = sink.0.iter().filter(|outcome| outcome.is_ok()).count();
        assert!(sink.0.iter().all(|outcome| matches!(outcome, Ok(()) | Err(OperationFault::Gone))));
        (begun, done, quiet)
    });
    let (begun, done, quiet) = report.unwrap().results[0].unwrap();
    assert!(done > 4 && done < begun as usize && quiet, "{done} of {begun} done, quiet: {quiet}");
}

/// Two ranks of which one sends the other a message while the link to it is down for longer than the interface
/// tries; what each of them has come to: messages handled whole, messages handled with bytes missing, and whether
/// it lost the other.
fn cut_off(category: Category) -> [(u32, u32, bool); 2] {
    let at = |at_ns, event| Scheduled { at_ns, event };
    let schedule = vec![
        at(100_000.0, FaultEvent::LinkDown { from: 0, to: 1 }),
        at(1e6, FaultEvent::LinkUp { from: 0, to: 1 }),
    ];
    let mut machine = ExanetConfig { faults: Faults { schedule, ..Faults::default() }, ..ExanetConfig::pair() };
    (machine.parameters.retry.timeout_ns, machine.parameters.retry.limit) = (10_000.0, 4);
    machine.deadline_ns = 1e9;
    let config = ConduitConfig { stage_bytes: 4096, ..ConduitConfig::default() };
    let report = conduit::run(&machine, &config, move |transport| {
        let mut handlers = Handlers::<(u32, u32)>::new();
        let take = handlers.one_way("take", move |state, _, (): (), payload| {
            let whole = payload.to_vec().iter().all(|byte| *byte == 7);
            *(if whole { &mut state.0 } else { &mut state.1 }) += 1;
        });
        let take = take.unwrap();
        let nic = transport.nic().clone();
        let mut endpoint = Endpoint::attach(transport, handlers, (0, 0)).unwrap();
        endpoint.barrier().unwrap();
        let other = Rank(1 - endpoint.rank().0);
        if endpoint.rank() == Rank(0) {
            // The link goes down while this is on its way, or before.
            let until = am_core::Instant(if category == Category::Long { 90_000_000 } else { 110_000_000 });
            nic.charge(until.since(nic.now()));
            let _ = match category {
                Category::Long => endpoint.request_long(other, take, (), &[7; 60_000], 0),
                _ => endpoint.request(other, take, ()),
            };
        }
        let lost = endpoint.wait_until(|_| false).is_err();
        let state = *endpoint.state();
        (state.0, state.1, lost)
    });
    let results = report.unwrap().results;
    [results[0].unwrap(), results[1].unwrap()]
}

/// A part of a Long message that is given up does not count as arrived, and both sides learn that they lost each
/// other.
#[test]
fn parts_that_are_given_up_are_no_message() {
    assert_eq!(cut_off(Category::Long), [(0, 0, true), (0, 0, true)]);
}

/// A control packet that is given up leaves no gap behind which everything waits for ever.
#[test]
fn packets_that_are_given_up_end_the_connection() {
    assert_eq!(cut_off(Category::Short), [(0, 0, true), (0, 0, true)]);
}
