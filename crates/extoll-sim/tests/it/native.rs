//! One-sided operations of the RMA unit: what a completion promises, what fences cost, refusals, lost ranks.

use am_core::segment::Segment;
use am_core::transport::{
    Arrival, Completion, Departure, Landing, Membership, OperationFault, Remote, ReplyPath, Sink, Ticket,
    Transport, WaitReason, Waiting,
};
use am_core::{Payload, Peer, PeerStatus, Rank, Span, Words};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, Gasnet, GasnetConfig, Implementation};
use extoll_sim::model::Parameters;
use extoll_sim::nic::rma::Access;
use fabric_sim::{FaultEvent, Faults, HostMemory, Report, Scheduled, Stage, Topology};
use std::cell::RefCell;
use std::rc::Rc;

type Outcome = Result<Vec<u8>, OperationFault>;

/// Keeps how operations have ended.
#[derive(Default)]
struct Completions(Vec<(u64, Outcome)>);

impl Sink for Completions {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {}
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    fn completed(&mut self, completion: Completion<'_>) {
        self.0.push((completion.ticket.id, completion.outcome.map(|brought| brought.bytes.to_vec())));
    }
}

fn remote(peer: Peer, at: u64, id: u64) -> Remote {
    Remote { peer, at, ticket: Ticket { id, part: 0 } }
}

/// The transport of a rank and what its operations brought.
struct Initiator<'t, 'a>(&'t mut Gasnet<'a>, Completions);

impl Initiator<'_, '_> {
    fn put(&mut self, to: u32, at: u64, bytes: &[u8], id: u64) -> bool {
        let (native, to) = self.0.native(Peer(to)).unwrap();
        native.put(remote(to, at, id), bytes, None, &mut |_| ()).is_ok()
    }

    fn get(&mut self, from: u32, at: u64, len: u64, landing: Landing, id: u64) -> bool {
        let (native, from) = self.0.native(Peer(from)).unwrap();
        native.get(remote(from, at, id), len, landing, &mut |_| ()).is_ok()
    }

    /// Polls until so many operations have ended.
    fn until(&mut self, ended: usize) {
        while self.1.0.len() < ended {
            self.step();
        }
    }

    fn step(&mut self) {
        if self.0.poll(8, &mut self.1) == 0 {
            self.0.idle(None, WaitReason::Message);
        }
    }
}

/// The segments of all ranks.
type Segments = Rc<RefCell<Vec<Segment<HostMemory>>>>;

/// Rank 0 runs a program once all others wait; these may prepare something before.
fn run<R: Default + 'static>(
    (config, gasnet): (&ExtollConfig, &GasnetConfig),
    prepare: impl Fn(&Gasnet<'_>) + 'static,
    program: impl Fn(&mut Initiator<'_, '_>, &Segments) -> R + 'static,
) -> Report<R> {
    let segments = Segments::default();
    let report = gasnet::run(config, gasnet, move |mut transport| {
        let mine = Segments::clone(&segments);
        let last = Peer(transport.shape().ranks - 1);
        if transport.local_peer() == Peer(0) {
            transport.charge(Span::from_micros(10));
            assert_eq!(transport.status(last), PeerStatus::Active);
            let result = program(&mut Initiator(&mut transport, Completions::default()), &mine);
            transport.depart(Departure::Left);
            return result;
        }
        prepare(&transport);
        mine.borrow_mut().push(transport.segment().clone());
        // Deaf, as long as rank 0 is there.
        while transport.status(Peer(0)) == PeerStatus::Active {
            transport.charge(Span::from_micros(5));
        }
        R::default()
    });
    report.unwrap()
}

const DEFAULT: fn() -> (ExtollConfig, GasnetConfig) = || (ExtollConfig::pair(), GasnetConfig::default());

/// A put that has completed is in the target's memory, however late its bytes are behind their source.
#[test]
fn puts_complete_in_memory() {
    for (implementation, put) in [(Implementation::First, 1000), (Implementation::Second, 8 << 20)] {
        let mut slow = Parameters::cluster();
        slow.rma.rx = Stage { fixed_ns: 200_000.0, ..slow.rma.rx };
        let machine = ExtollConfig { parameters: slow, ..ExtollConfig::pair() };
        let config = GasnetConfig { implementation, put, ..GasnetConfig::default() };
        let report = run(
            (&machine, &config),
            |_| (),
            |initiator, segments| {
                assert!(initiator.put(1, 40, &[7; 900], 1));
                initiator.until(1);
                let there = segments.borrow()[0].view(40, 900).unwrap().to_vec() == [7; 900];
                (there, std::mem::take(&mut initiator.1.0))
            },
        );
        assert_eq!(report.results[0], Some((true, vec![(1, Ok(vec![]))])));
    }
}

/// Puts in a flood share fences; each one that is waited for has its own.
#[test]
fn fences_are_shared() {
    // All that the target sends over RMA is the answers to fences.
    let answers = |together: usize| {
        let (machine, config) = DEFAULT();
        let report = run(
            (&machine, &config),
            |_| (),
            move |initiator, _| {
                for id in 0..100 {
                    while !initiator.put(1, 8 * id, &[1; 8], id) {
                        initiator.step();
                    }
                    if (id + 1) % together as u64 == 0 {
                        initiator.until(id as usize + 1);
                    }
                }
                initiator.1.0.iter().all(|(_, outcome)| outcome.is_ok())
            },
        );
        assert_eq!(report.results[0], Some(true));
        let stage = report.stages.iter().find(|stage| stage.name == "rma tx" && stage.node == 1);
        stage.expect("fences were answered").packets
    };
    assert_eq!(answers(1), 100);
    let shared = answers(100);
    assert!((2..25).contains(&shared), "{shared} fences for 100 puts");
}

/// Gets bring what is at the target, to the core and to the segment, without the target.
#[test]
fn gets_bring_bytes() {
    let (machine, config) = DEFAULT();
    let pattern = |transport: &Gasnet<'_>| transport.segment().write(100, &[9; 500]).unwrap();
    let report = run((&machine, &config), pattern, |initiator, _| {
        assert!(
            initiator.get(1, 100, 500, Landing::Report, 1) && initiator.get(1, 90, 20, Landing::Segment(33), 2)
        );
        initiator.until(2);
        initiator.1.0.sort_by_key(|(id, _)| *id);
        (std::mem::take(&mut initiator.1.0), initiator.0.segment().view(33, 20).unwrap().to_vec())
    });
    let landed = [[0; 10], [9; 10]].concat();
    assert_eq!(report.results[0], Some((vec![(1, Ok(vec![9; 500])), (2, Ok(vec![]))], landed)));
}

/// What the target's translation refuses changes nothing, and only the operation that was refused says so.
#[test]
fn refusals_name_their_operation() {
    let (machine, config) = DEFAULT();
    let protect = |transport: &Gasnet<'_>| {
        let page = |offset| transport.nla(Rank(1), offset).expect("the segment is registered");
        transport.nic().rma().protect(page(4096), Access::ReadOnly).unwrap();
        transport.nic().rma().protect(page(8192), Access::WriteOnly).unwrap();
    };
    let report = run((&machine, &config), protect, |initiator, segments| {
        for (id, at) in (0..).zip([0, 4096, 8192, 4100, 12_288]) {
            assert!(initiator.put(1, at, &[5; 8], id));
        }
        assert!(initiator.get(1, 8192, 8, Landing::Report, 5) && initiator.get(1, 4096, 8, Landing::Report, 6));
        initiator.until(7);
        initiator.1.0.sort_by_key(|(id, _)| *id);
        let ended: Vec<_> = initiator.1.0.iter().map(|(_, outcome)| outcome.as_ref().err().copied()).collect();
        let bytes = [4096, 4100, 12_288].map(|at| segments.borrow()[0].view(at, 4).unwrap().to_vec());
        (ended, bytes)
    });
    let refused = Some(OperationFault::Refused);
    let ended = vec![None, refused, None, refused, None, refused, None];
    assert_eq!(report.results[0], Some((ended, [vec![0; 4], vec![0; 4], vec![5; 4]])));
}

/// Operations on a rank that is lost are not done, and leave room for those on others.
#[test]
fn lost_ranks_leave_room() {
    let event = FaultEvent::NodeStop { node: 1 };
    let faults = Faults { schedule: vec![Scheduled { at_ns: 60_000.0, event }], ..Faults::default() };
    let machine = ExtollConfig { faults, ..ExtollConfig::new(3, Topology::Crossbar { nodes: 3 }) };
    let config = GasnetConfig { bounce: 4096, ..GasnetConfig::default() };
    let report = run(
        (&machine, &config),
        |_| (),
        |initiator, _| {
            // As much as the landing buffers hold, which never comes.
            let (mut begun, mut id) = (0, 0);
            while initiator.0.status(Peer(1)) == PeerStatus::Active {
                while initiator.get(1, 0, 1024, Landing::Report, id) {
                    begun += 1;
                }
                begun += usize::from(initiator.put(1, 0, &[1; 64], id));
                initiator.0.poll(8, &mut initiator.1);
                id += 1;
            }
            while initiator.0.poll(64, &mut initiator.1) > 0 {}
            let done = initiator.1.0.iter().filter(|(_, outcome)| outcome.is_ok()).count();
            let gone = initiator.1.0.iter().filter(|(_, outcome)| *outcome == Err(OperationFault::Gone)).count();
            assert!(
                initiator.0.is_quiescent() && done > 4 && gone >= 4 && done + gone == begun,
                "{done} and {gone} of {begun}"
            );
            initiator.1.0.clear();
            for id in 0..20 {
                while !initiator.get(2, 0, 1024, Landing::Report, id) {
                    initiator.step();
                }
            }
            initiator.until(20);
            initiator.1.0.iter().all(|(_, outcome)| outcome.as_ref().is_ok_and(|bytes| bytes.len() == 1024))
        },
    );
    assert_eq!(report.results[0], Some(true));
}

/// After a while of use, operations allocate nothing.
#[test]
fn nothing_is_allocated_per_operation() {
    let (machine, config) = DEFAULT();
    let report = run(
        (&machine, &config),
        |_| (),
        |initiator, _| {
            initiator.1.0.reserve(10_000);
            let round = |initiator: &mut Initiator<'_, '_>| {
                for id in 0..8 {
                    assert!(initiator.put(1, 64 * id, &[3; 64], id));
                    assert!(initiator.get(1, 64, 64, Landing::Segment(0), id));
                }
                let ended = initiator.1.0.len() + 16;
                initiator.until(ended);
            };
            (0..100).for_each(|_| round(initiator));
            let before = am_conformance::allocations();
            (0..100).for_each(|_| round(initiator));
            am_conformance::allocations() - before
        },
    );
    // Queues of the simulation may still grow once or twice.
    assert!(report.results[0].is_some_and(|count| count < 20), "{:?} allocations", report.results[0]);
}
