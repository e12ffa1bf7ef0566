//! The core's one-sided operations: what atomics leave and find, and what becomes of operations on lost ranks.

use am_core::one_sided::{Atomic, AtomicKind};
use am_core::transport::{
    Arrival, Completion, Departure, Landing, Membership, OperationFault, Remote, ReplyPath, Sink, Ticket,
    Transport, WaitReason, Waiting,
};
use am_core::{Payload, Peer, PeerStatus, Span, Words};
use fabric_sim::{FaultEvent, Faults, Scheduled, Topology};
use portals_sim::conduit::{self, Conduit, ConduitConfig, FlowControl};
use portals_sim::{AdversarialTiming, PortalsConfig};

const FLOWS: [FlowControl; 3] = [FlowControl::Static, FlowControl::Bank, FlowControl::Disable];

/// Every atomic that Portals 4 does for the core leaves and finds what the processor's would.
#[test]
fn atomics_of_the_interface_are_those_of_the_processor() {
    let values: [u64; 6] = [0, 1, 7, u64::MAX, 0x8000_0000_8000_0000, 0x3ff8_0000_3fc0_0000];
    let report =
        conduit::run(&PortalsConfig::pair(), &ConduitConfig::with(FlowControl::Disable), move |mut transport| {
            let (me, mut done) = (transport.local_peer(), 0);
            let network = transport.native(Peer(1)).map(|(network, to)| network.capability(to)).unwrap();
            let words = |index: usize| [values[index % 6], values[index / 6 % 6], values[index / 36 % 6]];
            for index in 0..if me == Peer(0) { 216 } else { 0 } {
                let [old, operand, expected] = words(index);
                for number in 0..66 {
                    let Some(atomic) = Atomic::from_number(number, operand, expected) else { continue };
                    if !network.does(&atomic) {
                        assert!(atomic.kind.is_float(), "{atomic:?} is left to messages");
                        continue;
                    }
                    let size = atomic.kind.size() as usize;
                    // The segment is this rank's own, so that both sides can be seen.
                    transport.segment().write(16, &old.to_le_bytes()).unwrap();
                    let ticket = Ticket { id: 5, part: 0 };
                    let (native, to) = transport.native(me).unwrap();
                    native.atomic(Remote { peer: to, at: 16, ticket }, &atomic, true, &mut |_| ()).unwrap();
                    let mut sink = Completions(Vec::new());
                    while sink.0.is_empty() {
                        transport.poll(8, &mut sink);
                        transport.idle(None, WaitReason::Message);
                    }
                    let mut found = [0; 8];
                    transport.segment().read(16, &mut found[..size]).unwrap();
                    let was = if size == 4 { old & 0xffff_ffff } else { old };
                    let (operand, expected) = if size == 4 {
                        (operand & 0xffff_ffff, expected & 0xffff_ffff)
                    } else {
                        (operand, expected)
                    };
                    let now = Atomic { operand, expected, ..atomic }.apply(was);
                    let after = u64::from_le_bytes(found);
                    assert_eq!(sink.0[0], Ok(was), "{atomic:?} on {old:x}");
                    // IEEE 754 leaves the sign of a NaN open.
                    assert!(
                        after == now || is_nan(&atomic, after) && is_nan(&atomic, now),
                        "{atomic:?} on {old:x}: {after:x}"
                    );
                    done += 1;
                }
            }
            transport.depart(Departure::Finished);
            done
        });
    assert_eq!(report.unwrap().results, [Some(216 * 56), Some(0)]);
}

fn is_nan(atomic: &Atomic, bits: u64) -> bool {
    match atomic.kind {
        AtomicKind::F32 => f32::from_bits(bits as u32).is_nan(),
        AtomicKind::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// Keeps what operations have brought.
struct Completions(Vec<Result<u64, OperationFault>>);

impl Sink for Completions {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    fn completed(&mut self, completion: Completion<'_>) {
        assert_eq!(completion.ticket.id, 5);
        self.0.push(completion.outcome.map(|brought| brought.value));
    }
}

/// An operation that a lost rank never answers does not count as done.
#[test]
fn operations_on_lost_ranks_are_not_done() {
    let event = FaultEvent::NodeStop { node: 1 };
    let schedule = vec![Scheduled { at_ns: 50_000.0, event }];
    for flow in FLOWS {
        let faults = Faults { schedule: schedule.clone(), ..Faults::default() };
        let machine = PortalsConfig { faults, ..PortalsConfig::pair() };
        let report = conduit::run(&machine, &ConduitConfig::with(flow), move |mut transport| {
            if transport.local_peer() == Peer(1) {
                transport.idle(None, WaitReason::Message);
                return (0, 0, true);
            }
            let (mut sink, mut begun) = (Completions(Vec::new()), 0);
            while transport.status(Peer(1)) == PeerStatus::Active {
                let (native, to) = transport.native(Peer(1)).unwrap();
                let ticket = Ticket { id: 5, part: 0 };
                begun +=
                    u32::from(native.put(Remote { peer: to, at: 0, ticket }, &[1; 64], None, &mut |_| ()).is_ok());
                let (native, from) = transport.native(Peer(1)).unwrap();
                let from = Remote { peer: from, at: 0, ticket };
                begun += u32::from(native.get(from, 64, Landing::Report, &mut |_| ()).is_ok());
                transport.poll(16, &mut sink);
                let until = transport.now() + Span::from_micros(5);
                transport.idle(Some(until), WaitReason::Message);
            }
            // What has not left this rank yet leaves all the same.
            let mut steps = 0;
            while !transport.is_quiescent() && steps < 100 {
                transport.poll(64, &mut sink);
                let until = transport.now() + Span::from_micros(5);
                transport.idle(Some(until), WaitReason::Message);
                steps += 1;
            }
            while transport.poll(64, &mut sink) > 0 {}
            let quiet = transport.is_quiescent();
            transport.depart(Departure::Left);
            let done = sink.0.iter().filter(|outcome| outcome.is_ok()).count();
            assert!(sink.0.iter().all(|outcome| matches!(outcome, Ok(_) | Err(OperationFault::Gone))));
            (begun, done, quiet)
        });
        let (begun, done, quiet) = report.unwrap().results[0].unwrap();
        // What was under way when it stopped is not done, and nobody waits for it.
        assert!(done > 4 && done < begun as usize && quiet, "{flow:?}: {done} of {begun} done, quiet: {quiet}");
    }
}

/// On Portals 3.3 gets from a lost rank are never answered; what they had registered is not missing afterwards.
#[test]
fn gets_from_lost_ranks_leave_registrations() {
    let schedule = vec![Scheduled { at_ns: 60_000.0, event: FaultEvent::NodeStop { node: 1 } }];
    for flow in [FlowControl::Static, FlowControl::Bank] {
        let faults = Faults { schedule: schedule.clone(), ..Faults::default() };
        let machine = PortalsConfig { faults, ..PortalsConfig::new(3, Topology::Crossbar { nodes: 3 }) };
        let config = ConduitConfig { staging: 8, firehose_slots: 4, ..ConduitConfig::with(flow) };
        let report = conduit::run(&machine, &config, move |mut transport| {
            if transport.local_peer() != Peer(0) {
                while transport.status(Peer(0)) == PeerStatus::Active {
                    transport.idle(Some(transport.now() + Span::from_micros(20)), WaitReason::Message);
                }
                return 0;
            }
            let (mut sink, ticket) = (Completions(Vec::new()), Ticket { id: 5, part: 0 });
            let get = |transport: &mut Conduit<'_>, from| {
                let (native, from) = transport.native(Peer(from)).unwrap();
                native.get(Remote { peer: from, at: 0, ticket }, 64, Landing::Report, &mut |_| ()).is_ok()
            };
            let (mut begun, mut steps) = (0, 0);
            while transport.status(Peer(1)) == PeerStatus::Active {
                while get(&mut transport, 1) {
                    begun += 1;
                }
                transport.poll(16, &mut sink);
            }
            assert!(sink.0.len() + 4 <= begun, "all registrations are in use: {} of {begun}", sink.0.len());
            sink.0.clear();
            while sink.0.len() < 100 && steps < 10_000 {
                get(&mut transport, 2);
                if transport.poll(16, &mut sink) == 0 {
                    transport.idle(Some(transport.now() + Span::from_micros(5)), WaitReason::Message);
                }
                steps += 1;
            }
            transport.depart(Departure::Left);
            sink.0.iter().filter(|outcome| outcome.is_ok()).count()
        });
        assert!(report.unwrap().results[0].is_some_and(|done| done >= 100), "{flow:?}");
    }
}

/// A signal of Portals 4 comes behind the bytes of its put, whatever its length and however packets are delayed,
/// without the target's program.
#[test]
fn signals_come_behind_their_bytes() {
    for seed in 0..8 {
        let faults = Faults { seed, ..Faults::default() };
        let adversary = AdversarialTiming { jitter_ns: 20_000.0, ..AdversarialTiming::default() };
        let machine = PortalsConfig { faults, adversary, ..PortalsConfig::pair() };
        let config = ConduitConfig { segment: 1 << 18, ..ConduitConfig::with(FlowControl::Disable) };
        let report = conduit::run(&machine, &config, move |mut transport| {
            let lengths = [0u64, 1, 64, 5000, 200_000];
            if transport.local_peer() == Peer(1) {
                let mut looks = 0;
                for (seen, len) in (1..).zip(lengths) {
                    while transport.segment().view(0, 8).unwrap().to_vec() != u64::to_le_bytes(seen) {
                        transport.charge(Span::from_nanos(300));
                        transport.status(Peer(0));
                        looks += 1;
                        assert!(looks < 1_000_000, "no signal comes");
                    }
                    let bytes = transport.segment().view(64, len as usize).unwrap().to_vec();
                    assert!(bytes.iter().all(|byte| u64::from(*byte) == seen), "{len} bytes");
                    transport.segment().write(8, &[seen as u8]).unwrap();
                }
                while transport.status(Peer(0)) == PeerStatus::Active {
                    transport.idle(Some(transport.now() + Span::from_micros(20)), WaitReason::Message);
                }
                return 0;
            }
            let (mut sink, ticket) = (Completions(Vec::new()), Ticket { id: 5, part: 0 });
            for (seen, len) in (1..).zip(lengths) {
                let (native, to) = transport.native(Peer(1)).unwrap();
                assert!(native.capability(to).signal);
                let bytes = vec![seen; len as usize];
                native.put(Remote { peer: to, at: 64, ticket }, &bytes, Some(0), &mut |_| ()).unwrap();
                let mut read = vec![0];
                while read != [seen] {
                    // The other rank says in its segment that it has looked.
                    let (native, from) = transport.native(Peer(1)).unwrap();
                    let from = Remote { peer: from, at: 8, ticket };
                    let _ = native.get(from, 1, Landing::Segment(8), &mut |_| ());
                    while transport.poll(16, &mut sink) == 0 {
                        transport.idle(None, WaitReason::Message);
                    }
                    read = transport.segment().view(8, 1).unwrap().to_vec();
                }
            }
            transport.depart(Departure::Left);
            sink.0.iter().filter(|outcome| outcome.is_err()).count()
        });
        assert_eq!(report.unwrap().results[0], Some(0), "seed {seed}");
    }
}
