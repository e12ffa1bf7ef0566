//! Every misuse returns the code that the sheet lists.

use crate::nic_support::{JobDirectory, Program, in_virtual_time, mapped, node_ids, pause};
use am_core::Span;
use fabric_sim::{FaultEvent, Scheduled, Topology};
use sci_sim::SciConfig;
use sci_sim::nic::{
    Code, DmaState, Flags, Mapped, MappedConfig, NodeId, PlannedError, PlannedStatus, RefusedObject, SegmentId,
    SequenceStatus, Sisci,
};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

const SIZE: usize = 8192;
const SOON: Span = Span::from_micros(50);
const LATER: Span = Span::from_millis(1);

/// The codes that have been seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<Code>>>);

impl Seen {
    #[track_caller]
    fn expect<R: Debug>(&self, code: Code, what: &str, result: Result<R, impl Into<Code>>) {
        let found = result.map_err(Into::into);
        assert!(matches!(&found, Err(found) if *found == code), "{what}: {found:?} instead of {code:?}");
        self.0.lock().unwrap().insert(code);
    }

    /// A refusal that hands the object back.
    #[track_caller]
    fn keeps<T>(&self, code: Code, what: &str, result: Result<(), RefusedObject<T>>) -> T {
        let Err(kept) = result else { panic!("{what}: done instead of {code:?}") };
        assert_eq!(kept.code, code, "{what}");
        self.0.lock().unwrap().insert(code);
        kept.object
    }
}

/// All that one node, connected to itself, can do wrong. Its first line fails for a passing reason too often to be
/// of use.
#[derive(Clone)]
struct Misuse(Seen);

impl Program for Misuse {
    fn run<N: Sisci>(&self, nic: N, _: usize, nodes: &[NodeId]) {
        self.local(&nic);
        self.remote(&nic, nodes[0]);
        self.dma(&nic, nodes[0]);
        self.interrupts(&nic, nodes[0]);
        self.sessions(nic);
    }
}

fn own<N: Sisci>(nic: &N, descriptor: &N::Descriptor, id: u32) -> N::LocalSegment {
    let segment = nic.create_segment(descriptor, SegmentId(id), SIZE, Flags::NONE).unwrap();
    nic.prepare_segment(&segment).unwrap();
    nic.set_available(&segment).unwrap();
    segment
}

fn opaque<T>(result: Result<T, Code>) -> Result<(), Code> {
    result.map(drop)
}

impl Misuse {
    fn local<N: Sisci>(&self, nic: &N) {
        let Self(seen) = self;
        let session = nic.open().unwrap();
        let create = |id, size, flags| opaque(nic.create_segment(&session, SegmentId(id), size, flags));
        seen.expect(Code::SizeAlignment, "a segment of no bytes", create(1, 0, Flags::NONE));
        seen.expect(Code::SizeAlignment, "a segment of 6 bytes", create(1, 6, Flags::NONE));
        seen.expect(Code::IllegalFlag, "a flag of another call", create(1, 64, Flags::ERROR_CHECK));
        seen.expect(Code::IllegalFlag, "an unknown flag", create(1, 64, Flags::from_bits(1 << 30)));
        let most = nic.limits().segment_bytes;
        seen.expect(Code::NoSpace, "a segment beyond the limit", create(1, most + 4, Flags::NONE));
        let segment = nic.create_segment(&session, SegmentId(1), SIZE, Flags::NONE).unwrap();
        seen.expect(Code::SegmentIdUsed, "a number twice", create(1, 64, Flags::NONE));
        seen.expect(Code::SegmentNotPrepared, "availability before", nic.set_available(&segment));
        seen.expect(Code::SegmentNotPrepared, "unavailability before", nic.set_unavailable(&segment));
        seen.expect(Code::SegmentNotPrepared, "a map before", opaque(nic.map_local(&segment, 0, 64)));
        nic.prepare_segment(&segment).unwrap();
        seen.expect(Code::Busy, "preparing twice", nic.prepare_segment(&segment));
        seen.expect(Code::OffsetAlignment, "a map at 4", opaque(nic.map_local(&segment, 4, 64)));
        seen.expect(Code::SizeAlignment, "a map of 2", opaque(nic.map_local(&segment, 0, 2)));
        seen.expect(Code::OutOfRange, "a map beyond", opaque(nic.map_local(&segment, SIZE - 8, 16)));
        seen.expect(Code::OutOfRange, "a map far out", opaque(nic.map_local(&segment, usize::MAX - 7, 16)));
        let map = nic.map_local(&segment, 0, 64).unwrap();
        seen.expect(Code::OutOfRange, "watching outside", nic.watch(&map, 64));
        let segment = seen.keeps(Code::Busy, "removing what is mapped", nic.remove_segment(segment));
        nic.unmap_local(map).unwrap();
        let waited = nic.wait_for_local_segment_event(&segment, Some(SOON));
        seen.expect(Code::Timeout, "waiting for an event", waited);
        nic.remove_segment(segment).unwrap();
        let told = nic.create_segment(&session, SegmentId(2), 64, Flags::USE_CALLBACK).unwrap();
        let waited = nic.wait_for_local_segment_event(&told, Some(SOON));
        seen.expect(Code::IllegalOperation, "waiting beside a callback", waited);
        nic.remove_segment(told).unwrap();
        nic.close(session).unwrap();
    }

    fn remote<N: Sisci>(&self, nic: &N, node: NodeId) {
        let Self(seen) = self;
        let session = nic.open().unwrap();
        let connect = |node, id, flags| opaque(nic.connect_segment(&session, node, SegmentId(id), LATER, flags));
        seen.expect(Code::NoSuchNodeId, "a node that is none", connect(NodeId(3), 1, Flags::NONE));
        seen.expect(Code::NoSuchNodeId, "probing none", nic.probe_node(&session, NodeId(3)));
        seen.expect(Code::NoSuchSegment, "a segment that is none", connect(node, 99, Flags::NONE));
        seen.expect(Code::IllegalFlag, "an unknown flag", connect(node, 99, Flags::NO_FLUSH));
        let segment = own(nic, &session, 1);
        nic.set_unavailable(&segment).unwrap();
        seen.expect(Code::ConnectionRefused, "a segment that is not available", connect(node, 1, Flags::NONE));
        nic.set_available(&segment).unwrap();
        nic.probe_node(&session, node).unwrap();
        let local = nic.map_local(&segment, 0, SIZE).unwrap();
        let remote = nic.connect_segment(&session, node, SegmentId(1), LATER, Flags::NONE).unwrap();
        assert_eq!(nic.remote_segment_size(&remote), SIZE);
        let local = seen.keeps(Code::Busy, "unmapping while connected", nic.unmap_local(local));
        let waited = nic.wait_for_remote_segment_event(&remote, Some(SOON));
        seen.expect(Code::Timeout, "waiting for an event", waited);
        let import = |offset, size| opaque(nic.map_remote(&remote, offset, size));
        seen.expect(Code::OffsetAlignment, "a map at 2", import(2, 4));
        seen.expect(Code::SizeAlignment, "a map of 3", import(0, 3));
        seen.expect(Code::SizeAlignment, "a map of nothing", import(0, 0));
        seen.expect(Code::OutOfRange, "a map beyond", import(0, SIZE + 4));
        let map = nic.map_remote(&remote, 4, 128).unwrap();
        let remote = seen.keeps(Code::Busy, "disconnecting what is mapped", nic.disconnect_segment(remote));
        seen.expect(Code::OutOfRange, "an address outside", nic.remote_address(&map, 128));
        let (first, second) = (nic.remote_address(&map, 0).unwrap(), nic.remote_address(&map, 127).unwrap());
        assert_eq!((first.node(), second.offset() - first.offset(), first.offset() % 64), (node, 127, 4));
        seen.expect(Code::OutOfRange, "a store beyond", nic.store(&map, 120, &[0; 9]));
        seen.expect(Code::OutOfRange, "a store far out", nic.store(&map, usize::MAX, &[0; 9]));
        seen.expect(Code::OutOfRange, "a flag beyond", nic.store_flag(&map, 128, 1));
        seen.expect(Code::OutOfRange, "a read beyond", nic.read_remote(&map, 125, &mut [0; 4]));
        self.sequence(nic, &map);
        nic.unmap_remote(map).unwrap();
        let segment = seen.keeps(Code::Busy, "removing what is mapped and connected", nic.remove_segment(segment));
        nic.disconnect_segment(remote).unwrap();
        nic.unmap_local(local).unwrap();
        nic.remove_segment(segment).unwrap();
        nic.close(session).unwrap();
    }

    fn sequence<N: Sisci>(&self, nic: &N, map: &N::RemoteMap) {
        let Self(seen) = self;
        let mut sequence = nic.create_map_sequence(map).unwrap();
        let check = |nic: &N, sequence: &mut N::Sequence, flags| nic.check_sequence(sequence, flags);
        seen.expect(Code::IllegalOperation, "a check before the start", check(nic, &mut sequence, Flags::NONE));
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        seen.expect(Code::IllegalFlag, "an unknown flag", check(nic, &mut sequence, Flags::ERROR_CHECK));
        let copy =
            |sequence: &mut N::Sequence, at, len, flags| nic.memcpy(sequence, map, at, &[7; 256][..len], flags);
        // The lines that were planned to fail are the first ones.
        let failed = copy(&mut sequence, 0, 64, Flags::ERROR_CHECK);
        seen.expect(Code::TransferFailed, "a line that fails for good", failed);
        while nic.start_sequence(&mut sequence) != SequenceStatus::Ok {}
        seen.expect(Code::OffsetAlignment, "a copy to 2", copy(&mut sequence, 2, 4, Flags::NONE));
        seen.expect(Code::SizeAlignment, "a copy of 3", copy(&mut sequence, 0, 3, Flags::NONE));
        seen.expect(Code::OutOfRange, "a copy beyond", copy(&mut sequence, 4, 128, Flags::ERROR_CHECK));
        seen.expect(Code::IllegalFlag, "a flag of a check", copy(&mut sequence, 0, 4, Flags::NO_FLUSH));
        copy(&mut sequence, 0, 128, Flags::ERROR_CHECK).unwrap();
        copy(&mut sequence, 0, 128, Flags::NONE).unwrap();
        assert_eq!(check(nic, &mut sequence, Flags::NONE), Ok(SequenceStatus::Ok));
        nic.remove_sequence(sequence);
    }

    fn dma<N: Sisci>(&self, nic: &N, node: NodeId) {
        let Self(seen) = self;
        let session = nic.open().unwrap();
        let (local, segment) = (own(nic, &session, 1), own(nic, &session, 2));
        let raw = nic.create_segment(&session, SegmentId(3), SIZE, Flags::NONE).unwrap();
        let remote = nic.connect_segment(&session, node, SegmentId(2), LATER, Flags::NONE).unwrap();
        seen.expect(Code::NoSpace, "a queue of none", opaque(nic.create_dma_queue(&session, 0)));
        seen.expect(Code::NoSpace, "an endless queue", opaque(nic.create_dma_queue(&session, 1 << 20)));
        let mut queue = nic.create_dma_queue(&session, 2).unwrap();
        assert_eq!(nic.dma_state(&queue), DmaState::Idle);
        seen.expect(Code::IllegalOperation, "posting nothing", nic.post(&mut queue));
        seen.expect(Code::IllegalOperation, "waiting for nothing", nic.wait_for_dma_queue(&mut queue, Some(SOON)));
        seen.expect(Code::IllegalOperation, "aborting nothing", nic.abort(&mut queue));
        let add = |queue: &mut N::DmaQueue, at, goal, size| nic.enqueue(queue, &local, at, &remote, goal, size);
        seen.expect(Code::OffsetAlignment, "from 4", add(&mut queue, 4, 0, 64));
        seen.expect(Code::OffsetAlignment, "to 32", add(&mut queue, 0, 32, 64));
        seen.expect(Code::SizeAlignment, "4 bytes", add(&mut queue, 0, 0, 4));
        seen.expect(Code::SizeAlignment, "nothing", add(&mut queue, 0, 0, 0));
        seen.expect(Code::OutOfRange, "from beyond", add(&mut queue, SIZE - 64, 0, 128));
        seen.expect(Code::OutOfRange, "to beyond", add(&mut queue, 0, SIZE, 64));
        let unprepared = nic.enqueue(&mut queue, &raw, 0, &remote, 0, 64);
        seen.expect(Code::SegmentNotPrepared, "from what is not prepared", unprepared);
        assert_eq!(nic.dma_state(&queue), DmaState::Idle);
        add(&mut queue, 0, 64, SIZE - 64).unwrap();
        assert_eq!(nic.dma_state(&queue), DmaState::Gather);
        add(&mut queue, 0, 0, 64).unwrap();
        seen.expect(Code::NoSpace, "a transfer too many", add(&mut queue, 0, 0, 64));
        let local = seen.keeps(Code::Busy, "removing what a queue reads", nic.remove_segment(local));
        let remote = seen.keeps(Code::Busy, "disconnecting what it writes", nic.disconnect_segment(remote));
        nic.post(&mut queue).unwrap();
        let again = nic.enqueue(&mut queue, &local, 0, &remote, 0, 64);
        seen.expect(Code::Busy, "adding to what is posted", again);
        let mut queue = seen.keeps(Code::Busy, "removing what is posted", nic.remove_dma_queue(queue));
        nic.abort(&mut queue).unwrap();
        seen.expect(Code::Cancelled, "waiting for what was aborted", nic.wait_for_dma_queue(&mut queue, None));
        assert_eq!(nic.dma_state(&queue), DmaState::Aborted);
        seen.expect(Code::IllegalOperation, "aborting twice", nic.abort(&mut queue));
        seen.expect(Code::IllegalOperation, "posting what was aborted", nic.post(&mut queue));
        nic.reset(&mut queue).unwrap();
        assert_eq!(nic.dma_state(&queue), DmaState::Idle);
        nic.enqueue(&mut queue, &local, 0, &remote, 0, SIZE).unwrap();
        nic.post(&mut queue).unwrap();
        seen.expect(Code::Timeout, "no patience", nic.wait_for_dma_queue(&mut queue, Some(Span::ZERO)));
        nic.wait_for_dma_queue(&mut queue, None).unwrap();
        assert_eq!(nic.dma_state(&queue), DmaState::Done);
        nic.remove_dma_queue(queue).unwrap();
        nic.disconnect_segment(remote).unwrap();
        for segment in [local, segment, raw] {
            nic.remove_segment(segment).unwrap();
        }
        nic.close(session).unwrap();
    }

    fn interrupts<N: Sisci>(&self, nic: &N, node: NodeId) {
        let Self(seen) = self;
        let session = nic.open().unwrap();
        let connect = |node, number| opaque(nic.connect_interrupt(&session, node, number, LATER));
        seen.expect(Code::NoSuchSegment, "an interrupt that is none", connect(node, 5));
        seen.expect(Code::NoSuchNodeId, "a node that is none", connect(NodeId(2), 5));
        let interrupt = nic.create_interrupt(&session, 5).unwrap();
        seen.expect(Code::SegmentIdUsed, "a number twice", opaque(nic.create_interrupt(&session, 5)));
        let others: Vec<_> = (100..163).map(|number| nic.create_interrupt(&session, number).unwrap()).collect();
        seen.expect(Code::NoSpace, "too many", opaque(nic.create_interrupt(&session, 99)));
        seen.expect(Code::Timeout, "waiting", nic.wait_for_interrupt(&interrupt, Some(SOON)));
        let remote = nic.connect_interrupt(&session, node, 5, LATER).unwrap();
        nic.trigger_interrupt(&remote).unwrap();
        nic.trigger_interrupt(&remote).unwrap();
        pause(nic, SOON);
        nic.wait_for_interrupt(&interrupt, None).unwrap();
        nic.wait_for_interrupt(&interrupt, None).unwrap();
        seen.expect(Code::Timeout, "a third time", nic.wait_for_interrupt(&interrupt, Some(SOON)));
        nic.disconnect_interrupt(remote);
        let session = seen.keeps(Code::Busy, "closing what is used", nic.close(session));
        nic.remove_interrupt(interrupt);
        others.into_iter().for_each(|interrupt| nic.remove_interrupt(interrupt));
        nic.close(session).unwrap();
    }

    fn sessions<N: Sisci>(&self, nic: N) {
        let Self(seen) = self;
        let session = nic.open().unwrap();
        let nic = seen.keeps(Code::Busy, "ending with an open session", nic.terminate());
        nic.close(session).unwrap();
        assert!(nic.terminate().is_ok());
    }
}

/// The first line fails for good.
fn planned() -> Vec<PlannedError> {
    vec![PlannedError { node: 4, line: 0, status: PlannedStatus::NotRetriable, lands: false }]
}

fn simulated(seen: &Seen) {
    let mut config = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
    config.errors.planned = planned();
    in_virtual_time(&config, Misuse(seen.clone())).unwrap();
}

fn in_files(seen: &Seen) {
    mapped(1, |config| config.errors.planned = planned(), Misuse(seen.clone())).unwrap();
}

/// Links that are down; an empty node; a partner that does not answer in time.
fn links(seen: &Seen) {
    let mut config = SciConfig::new(3, Topology::Ringlets { dims: vec![5] });
    let cut = |at_ns, from, to| Scheduled { at_ns, event: FaultEvent::LinkDown { from, to } };
    config.faults.schedule = vec![cut(1e6, 1, 2), cut(3e6, 0, 1)];
    let seen = seen.clone();
    let report = sci_sim::run(&config, move |nic| {
        let session = nic.open().unwrap();
        let nodes = nic.nodes();
        let connect =
            |node, timeout| opaque(nic.connect_segment(&session, node, SegmentId(1), timeout, Flags::NONE));
        if nic.rank() == 0 {
            seen.expect(Code::NoRemoteLinkAccess, "an empty node", nic.probe_node(&session, NodeId(16)));
            seen.expect(Code::Timeout, "no patience", connect(nodes[1], Span::ZERO));
            pause(&nic, Span::from_millis(2));
            seen.expect(Code::NoRemoteLinkAccess, "the second of two links is down", connect(nodes[2], LATER));
            pause(&nic, Span::from_millis(2));
            seen.expect(Code::NoLinkAccess, "its own link is down", connect(nodes[1], LATER));
            seen.expect(Code::NoLinkAccess, "its own link is down", nic.probe_node(&session, nodes[1]));
            seen.expect(Code::NoLinkAccess, "the first of two links that are down", connect(nodes[2], LATER));
        }
        if nic.rank() == 2 {
            pause(&nic, Span::from_millis(2));
            let probed = nic.probe_node(&session, nodes[1]);
            seen.expect(Code::NoRemoteLinkAccess, "the way back is down", probed);
        }
        pause(&nic, Span::from_millis(5));
    });
    report.unwrap();
}

/// What only files can bring about.
fn files(seen: &Seen) {
    let (directory, nodes) = (JobDirectory::new(), node_ids(2));
    let nic = Mapped::initialize(MappedConfig::new(directory.path(), nodes[0], nodes.clone())).unwrap();
    let session = nic.open().unwrap();
    seen.expect(Code::NoRemoteLinkAccess, "a node that has not come", nic.probe_node(&session, nodes[1]));
    std::fs::write(directory.path().join("segment-4-00000009"), b"in the way").unwrap();
    let made = opaque(nic.create_segment(&session, SegmentId(9), 64, Flags::NONE));
    seen.expect(Code::System, "a file in the way", made);
    let found = opaque(nic.connect_segment(&session, nodes[0], SegmentId(9), LATER, Flags::NONE));
    seen.expect(Code::NoSuchSegment, "a file that is no segment", found);
    std::fs::remove_dir_all(directory.path()).unwrap();
    seen.expect(Code::NoLinkAccess, "cut off from the job", nic.probe_node(&session, nodes[0]));
}

#[test]
fn every_code_is_returned_where_it_should_be() {
    let seen = Seen::default();
    simulated(&seen);
    links(&seen);
    let beyond_files: BTreeSet<Code> = Code::ALL.into_iter().filter(|code| *code != Code::System).collect();
    assert_eq!(*seen.0.lock().unwrap(), beyond_files, "in virtual time");
    let seen = Seen::default();
    in_files(&seen);
    files(&seen);
    // In files a connection is made at once or not at all, and links are the memory's.
    assert_eq!(*seen.0.lock().unwrap(), Code::ALL.into_iter().collect(), "in files");
}

#[test]
fn messages_of_codes_begin_with_siscis_names() {
    for code in Code::ALL {
        let text = code.to_string();
        let (name, rest) = text.split_once(": ").unwrap();
        assert!(name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'), "{text}");
        assert!(!rest.is_empty());
    }
}
