//! What happens to segments is told to both sides, in events or callbacks.

use crate::nic_support::{Program, await_flag, ends, in_virtual_time, mapped, node_ids, pair, pause, retry};
use am_core::{LossCause, PeerStatus, Span};
use fabric_sim::{FaultEvent, Scheduled};
use sci_sim::SciConfig;
use sci_sim::nic::{CallbackSegment, Code, Flags, NodeId, SegmentId, SegmentReason, SequenceStatus, Sisci};

const PATIENCE: Option<Span> = Some(Span::from_secs(300));

/// Node 1 connects to node 0 twice, and leaves again.
#[derive(Clone)]
struct ComeAndGo;

impl Program for ComeAndGo {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let session = nic.open().unwrap();
        if me == 0 {
            let mut segments = [(1, Flags::NONE), (2, Flags::USE_CALLBACK)].map(|(id, flags)| {
                let segment = nic.create_segment(&session, SegmentId(id), 64, flags).unwrap();
                nic.prepare_segment(&segment).unwrap();
                nic.set_available(&segment).unwrap();
                Some(segment)
            });
            let first = segments[0].take().unwrap();
            for reason in [SegmentReason::Connect, SegmentReason::Disconnect] {
                let event = nic.wait_for_local_segment_event(&first, PATIENCE);
                assert_eq!(event, Ok((nodes[1], reason)));
            }
            for reason in [SegmentReason::Connect, SegmentReason::Disconnect] {
                let end = nic.now() + Span::from_secs(300);
                let callback = loop {
                    match nic.next_callback() {
                        Some(callback) => break callback,
                        None => pause(&nic, Span::from_micros(50)),
                    }
                    assert!(nic.now() < end);
                };
                assert_eq!((callback.segment, callback.node), (CallbackSegment::Local(SegmentId(2)), nodes[1]));
                assert_eq!(callback.reason, reason);
            }
            nic.remove_segment(first).unwrap();
            nic.remove_segment(segments[1].take().unwrap()).unwrap();
            return;
        }
        for id in [1, 2] {
            let timeout = Span::from_millis(1);
            let remote =
                retry(&nic, || nic.connect_segment(&session, nodes[0], SegmentId(id), timeout, Flags::NONE));
            pause(&nic, Span::from_millis(30));
            nic.disconnect_segment(remote).unwrap();
        }
        pause(&nic, Span::from_millis(5));
    }
}

#[test]
fn owners_are_told_who_connects_and_disconnects() {
    pair(ComeAndGo);
}

/// Node 1 disappears: in virtual time its node stops, between processes it departs while it panics.
#[derive(Clone)]
struct Disappear;

impl Program for Disappear {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 1 {
            // Says that it is there, and waits for its end.
            nic.store_flag(&ends.map, 0, 1).unwrap();
            nic.store_barrier();
            nic.alert(&ends.map);
            pause(&nic, Span::from_millis(300));
            nic.depart(PeerStatus::Lost(LossCause::Panicked));
            return;
        }
        await_flag(&nic, &ends.mine, 0, 1);
        let (session, timeout) = (&ends.descriptor, Span::from_millis(1));
        let told = nic.connect_segment(session, nodes[1], SegmentId(1), timeout, Flags::USE_CALLBACK).unwrap();
        assert_eq!(nic.wait_for_remote_segment_event(&told, PATIENCE), Err(Code::IllegalOperation));
        let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        assert_eq!(nic.wait_for_remote_segment_event(&ends.remote, PATIENCE), Ok(SegmentReason::Lost));
        let callback = nic.next_callback().unwrap();
        assert_eq!(callback.segment, CallbackSegment::Remote(nodes[1], SegmentId(1)));
        assert_eq!((callback.node, callback.reason), (nodes[1], SegmentReason::Lost));
        assert_eq!(nic.next_callback(), None);
        nic.disconnect_segment(told).unwrap();
        let events: Vec<_> =
            (0..2).map(|_| nic.wait_for_local_segment_event(&ends.local, PATIENCE).unwrap()).collect();
        assert_eq!(events[0], (nodes[1], SegmentReason::Connect));
        assert!(matches!(events[1].1, SegmentReason::Lost | SegmentReason::Disconnect), "{events:?}");
        assert!(matches!(nic.status(nodes[1]), PeerStatus::Lost(_)));
        assert_eq!(nic.losses(), 1);
        nic.store(&ends.map, 0, &[1; 64]).unwrap();
        assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::NotRetriable));
        for _ in 0..3 {
            assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::NotRetriable);
        }
        assert_eq!(nic.read_remote(&ends.map, 0, &mut [0; 8]), Err(Code::TransferFailed));
        assert_eq!(nic.probe_node(&ends.descriptor, nodes[1]), Err(Code::NoRemoteLinkAccess));
        // What belonged to the connection can be taken down.
        nic.remove_sequence(sequence);
        nic.unmap_remote(ends.map).unwrap();
        nic.disconnect_segment(ends.remote).unwrap();
        nic.unmap_local(ends.mine).unwrap();
        nic.remove_segment(ends.local).unwrap();
        nic.close(ends.descriptor).unwrap();
        assert!(nic.terminate().is_ok());
    }
}

#[test]
fn lost_nodes_are_told_and_leave_nothing_busy() {
    let mut config = SciConfig::pair();
    config.faults.schedule = vec![Scheduled { at_ns: 2e6, event: FaultEvent::NodeStop { node: 1 } }];
    in_virtual_time(&config, Disappear).unwrap();
    mapped(2, |_| (), Disappear).unwrap();
    assert_eq!(node_ids(2), [NodeId(4), NodeId(8)]);
}

/// Node 1 departs in order, and leaves everything as it is.
#[derive(Clone)]
struct Finish;

impl Program for Finish {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 1 {
            nic.depart(PeerStatus::Finished);
            return;
        }
        for reason in [SegmentReason::Connect, SegmentReason::Disconnect] {
            assert_eq!(nic.wait_for_local_segment_event(&ends.local, PATIENCE), Ok((nodes[1], reason)));
        }
        assert_eq!((nic.status(nodes[1]), nic.losses()), (PeerStatus::Finished, 0));
        nic.unmap_local(ends.mine).unwrap();
        nic.remove_segment(ends.local).unwrap();
    }
}

#[test]
fn nodes_that_finish_leave_nothing_busy() {
    pair(Finish);
}

/// The link breaks for a while.
#[derive(Clone)]
struct Interruption;

impl Program for Interruption {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 1 {
            await_flag(&nic, &ends.mine, 64, 9);
            // Lets the last answer find its way.
            pause(&nic, Span::from_millis(1));
            return;
        }
        let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        let timeout = Some(Span::from_millis(50));
        assert_eq!(nic.wait_for_remote_segment_event(&ends.remote, timeout), Ok(SegmentReason::NotOperational));
        nic.store_flag(&ends.map, 64, 9).unwrap();
        assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::NotRetriable));
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::NotRetriable);
        assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Err(Code::IllegalOperation));
        assert_eq!(nic.wait_for_remote_segment_event(&ends.remote, timeout), Ok(SegmentReason::Operational));
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        nic.store_flag(&ends.map, 64, 9).unwrap();
        assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::Ok));
        assert_eq!(nic.counters().failed_lines, 1);
    }
}

#[test]
fn links_that_break_and_heal_are_told_and_survived() {
    let at = |at_ns, event| Scheduled { at_ns, event };
    let mut config = SciConfig::pair();
    config.faults.schedule =
        vec![at(1e6, FaultEvent::LinkDown { from: 0, to: 1 }), at(3e6, FaultEvent::LinkUp { from: 0, to: 1 })];
    in_virtual_time(&config, Interruption).unwrap();
}
