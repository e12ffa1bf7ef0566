//! The lives of segments, connections, maps, sequences and queues: random calls, held against the model, on both
//! implementations. Every outcome has to be the model's, and at the end every byte.

use super::model::{Map, Model, Outcome, Queue, live};
use crate::nic_support::{Program, bytes, in_virtual_time, mapped, pause};
use am_core::Span;
use fabric_sim::Topology;
use proptest::prelude::*;
use sci_sim::SciConfig;
use sci_sim::nic::{Code, DmaState, Flags, NodeId, RefusedObject, SegmentId, SequenceStatus, Sisci};
use std::fmt::Debug;

#[derive(Clone, Debug)]
enum Call {
    Create { id: u32, size: usize, illegal: bool },
    Prepare(usize),
    MapLocal { segment: usize, offset: usize, size: usize },
    UnmapLocal(usize),
    Offer(usize, bool),
    Remove(usize),
    Connect(u32),
    MapRemote { connection: usize, offset: usize, size: usize },
    UnmapRemote(usize),
    Disconnect(usize),
    NewSequence(usize),
    EndSequence(usize),
    Start(usize),
    Check(usize),
    Store { map: usize, offset: usize, len: usize, seed: u8 },
    NewQueue(usize),
    Enqueue { queue: usize, local: usize, offset: usize, connection: usize, goal: usize, size: usize },
    Transfer { queue: usize, abort: bool },
    Reset(usize),
    RemoveQueue(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let which = || 0usize..8;
    let place = || prop_oneof![3 => (0usize..40).prop_map(|at| 64 * at), 1 => 0usize..2600];
    let extent = || prop_oneof![3 => (1usize..20).prop_map(|size| 64 * size), 1 => 0usize..300];
    let size = || {
        prop_oneof![
            1 => Just(0), 1 => Just(6), 2 => Just(64), 6 => Just(2048), 2 => Just(100),
            1 => Just((1 << 20) + 4),
        ]
    };
    let call = prop_oneof![
        4 => (0u32..4, size(), prop::bool::weighted(0.1))
            .prop_map(|(id, size, illegal)| Call::Create { id, size, illegal }),
        4 => which().prop_map(Call::Prepare),
        4 => (which(), place(), extent())
            .prop_map(|(segment, offset, size)| Call::MapLocal { segment, offset, size }),
        2 => which().prop_map(Call::UnmapLocal),
        5 => (which(), prop::bool::weighted(0.8)).prop_map(|(segment, yes)| Call::Offer(segment, yes)),
        3 => which().prop_map(Call::Remove),
        6 => (0u32..4).prop_map(Call::Connect),
        6 => (which(), place(), extent())
            .prop_map(|(connection, offset, size)| Call::MapRemote { connection, offset, size }),
        2 => which().prop_map(Call::UnmapRemote),
        2 => which().prop_map(Call::Disconnect),
        2 => which().prop_map(Call::NewSequence),
        1 => which().prop_map(Call::EndSequence),
        2 => which().prop_map(Call::Start),
        2 => which().prop_map(Call::Check),
        10 => (which(), 0usize..700, 0usize..300, any::<u8>())
            .prop_map(|(map, offset, len, seed)| Call::Store { map, offset, len, seed }),
        2 => (0usize..4).prop_map(Call::NewQueue),
        6 => (which(), which(), place(), which(), place(), extent()).prop_map(
            |(queue, local, offset, connection, goal, size)| Call::Enqueue {
                queue, local, offset, connection, goal, size
            }
        ),
        3 => (which(), prop::bool::weighted(0.3)).prop_map(|(queue, abort)| Call::Transfer { queue, abort }),
        2 => which().prop_map(Call::Reset),
        1 => which().prop_map(Call::RemoveQueue),
    ];
    // Most lives begin where something is connected, from where everything is near.
    let prefix = |begun: bool| {
        let connected = [
            Call::Create { id: 0, size: 2048, illegal: false },
            Call::Prepare(0),
            Call::Offer(0, true),
            Call::Connect(0),
            Call::NewQueue(2),
        ];
        connected.into_iter().filter(move |_| begun)
    };
    (prop::bool::weighted(0.8), prop::collection::vec(call, 1..80))
        .prop_map(move |(begun, calls)| prefix(begun).chain(calls).collect())
}

/// The objects that belong to the model's.
struct Objects<'n, N: Sisci> {
    nic: &'n N,
    node: NodeId,
    session: N::Descriptor,
    locals: Vec<Option<N::LocalSegment>>,
    local_maps: Vec<Option<N::LocalMap>>,
    connections: Vec<Option<N::RemoteSegment>>,
    maps: Vec<Option<N::RemoteMap>>,
    sequences: Vec<Option<N::Sequence>>,
    queues: Vec<Option<N::DmaQueue>>,
    model: Model,
}

#[track_caller]
fn same<R>(expected: Outcome, found: Result<R, Code>, call: &dyn Debug) -> Option<R> {
    match found {
        Ok(found) if expected.is_ok() => Some(found),
        Err(code) if expected == Err(code) => None,
        found => panic!("{call:?}: {:?} instead of {expected:?}", found.map(drop)),
    }
}

/// A call that consumes an object, which a refusal puts back.
fn consume<T>(place: &mut Option<T>, work: impl FnOnce(T) -> Result<(), RefusedObject<T>>) -> Outcome {
    let object = place.take().unwrap();
    work(object).map_err(|kept| {
        *place = Some(kept.object);
        kept.code
    })
}

fn pick<T>(table: &[Option<T>], index: usize) -> Option<usize> {
    let live = live(table);
    if live.is_empty() { None } else { Some(live[index % live.len()]) }
}

impl<N: Sisci> Objects<'_, N> {
    /// Makes a call if what it is about is there.
    fn make(&mut self, call: &Call) -> Option<()> {
        let Self { nic, node, session, locals, local_maps, connections, maps, sequences, queues, model } = self;
        match *call {
            Call::Create { id, size, illegal } => {
                let flags = if illegal { Flags::NO_FLUSH } else { Flags::NONE };
                let found = nic.create_segment(session, SegmentId(id), size, flags);
                let expected = model.create(id, size, illegal, nic.limits().segment_bytes);
                locals.extend(same(expected, found, call).map(Some));
            }
            Call::Prepare(index) => {
                let number = pick(&model.locals, index)?;
                let found = nic.prepare_segment(locals[number].as_ref()?);
                same(model.prepare(number), found, call);
            }
            Call::MapLocal { segment, offset, size } => {
                let number = pick(&model.locals, segment)?;
                let found = nic.map_local(locals[number].as_ref()?, offset, size);
                local_maps.extend(same(model.map_local(number, offset, size), found, call).map(Some));
            }
            Call::UnmapLocal(index) => {
                let number = pick(&model.local_maps, index)?;
                let found = consume(&mut local_maps[number], |map| nic.unmap_local(map));
                same(model.unmap_local(number), found, call);
            }
            Call::Offer(index, yes) => {
                let number = pick(&model.locals, index)?;
                let local = locals[number].as_ref()?;
                let found = if yes { nic.set_available(local) } else { nic.set_unavailable(local) };
                same(model.offer(number, yes), found, call);
            }
            Call::Remove(index) => {
                let number = pick(&model.locals, index)?;
                let found = consume(&mut locals[number], |local| nic.remove_segment(local));
                same(model.remove(number), found, call);
            }
            Call::Connect(id) => {
                let timeout = Span::from_millis(1);
                let found = nic.connect_segment(session, *node, SegmentId(id), timeout, Flags::NONE);
                connections.extend(same(model.connect(id), found, call).map(Some));
            }
            Call::MapRemote { connection, offset, size } => {
                let number = pick(&model.connections, connection)?;
                let found = nic.map_remote(connections[number].as_ref()?, offset, size);
                maps.extend(same(model.map_remote(number, offset, size), found, call).map(Some));
            }
            Call::UnmapRemote(index) => {
                let number = pick(&model.maps, index)?;
                let found = consume(&mut maps[number], |map| nic.unmap_remote(map));
                same(model.unmap_remote(number), found, call);
            }
            Call::Disconnect(index) => {
                let number = pick(&model.connections, index)?;
                let found = consume(&mut connections[number], |remote| nic.disconnect_segment(remote));
                same(model.disconnect(number), found, call);
            }
            Call::NewSequence(index) => {
                let number = pick(&model.maps, index)?;
                let made = nic.create_map_sequence(maps[number].as_ref()?).unwrap();
                sequences.push(Some(made));
                model.sequences.push(Some((number, false)));
                model.maps[number].as_mut()?.sequences += 1;
            }
            Call::EndSequence(index) => {
                let number = pick(&model.sequences, index)?;
                nic.remove_sequence(sequences[number].take()?);
                let (map, _) = model.sequences[number].take()?;
                model.maps[map].as_mut()?.sequences -= 1;
            }
            Call::Start(index) => {
                let number = pick(&model.sequences, index)?;
                assert_eq!(nic.start_sequence(sequences[number].as_mut()?), SequenceStatus::Ok);
                model.sequences[number].as_mut()?.1 = true;
            }
            Call::Check(index) => {
                let number = pick(&model.sequences, index)?;
                let found = nic.check_sequence(sequences[number].as_mut()?, Flags::NONE);
                let expected = if model.sequences[number]?.1 { Ok(()) } else { Err(Code::IllegalOperation) };
                let status = same(expected, found, call);
                assert!(status.is_none_or(|status| status == SequenceStatus::Ok));
            }
            Call::Store { map, offset, len, seed } => {
                let number = pick(&model.maps, map)?;
                let data: Vec<u8> = (0..len).map(|index| seed.wrapping_add(index as u8)).collect();
                let found = nic.store(maps[number].as_ref()?, offset, &data);
                same(model.store(number, offset, &data), found, call);
            }
            Call::NewQueue(max) => {
                let expected = if max == 0 { Err(Code::NoSpace) } else { Ok(()) };
                if let Some(queue) = same(expected, nic.create_dma_queue(session, max), call) {
                    queues.push(Some(queue));
                    model.queues.push(Some(Queue { state: DmaState::Idle, max, transfers: Vec::new() }));
                }
            }
            Call::Enqueue { queue, local, offset, connection, goal, size } => {
                let number = pick(&model.queues, queue)?;
                let (local, connection) = (pick(&model.locals, local)?, pick(&model.connections, connection)?);
                let (from, to) = (locals[local].as_ref()?, connections[connection].as_ref()?);
                let found = nic.enqueue(queues[number].as_mut()?, from, offset, to, goal, size);
                same(model.enqueue(number, local, offset, connection, goal, size), found, call);
            }
            Call::Transfer { queue, abort } => self.transfer(queue, abort, call)?,
            Call::Reset(index) => {
                let number = pick(&model.queues, index)?;
                nic.reset(queues[number].as_mut()?).unwrap();
                model.empty(number);
            }
            Call::RemoveQueue(index) => {
                let number = pick(&model.queues, index)?;
                consume(&mut queues[number], |queue| nic.remove_dma_queue(queue)).unwrap();
                model.empty(number);
                model.queues[number] = None;
            }
        }
        Some(())
    }

    fn transfer(&mut self, index: usize, abort: bool, call: &Call) -> Option<()> {
        let (nic, number) = (self.nic, pick(&self.model.queues, index)?);
        let queue = self.queues[number].as_mut()?;
        let state = self.model.queues[number].as_ref()?.state;
        assert_eq!(nic.dma_state(queue), state);
        // What DMA reads must not change under it: all stores land first.
        settle(nic);
        let expected = if state == DmaState::Gather { Ok(()) } else { Err(Code::IllegalOperation) };
        same(expected, nic.post(queue), call)?;
        if abort {
            nic.abort(queue).unwrap();
        }
        let aborted = match nic.wait_for_dma_queue(queue, None) {
            Ok(()) => false,
            Err(Code::Cancelled) if abort => true,
            other => panic!("{call:?}: {other:?}"),
        };
        self.model.transferred(number, aborted);
        // What was sent before the end lands.
        settle(nic);
        Some(())
    }

    fn compare(&mut self) {
        settle(self.nic);
        for number in live(&self.model.locals) {
            let local = self.locals[number].as_ref().unwrap();
            let expected = self.model.locals[number].clone().unwrap();
            if !expected.prepared {
                continue;
            }
            let map = self.nic.map_local(local, 0, expected.size).unwrap();
            let found = bytes(&self.nic.memory(&map), 0, expected.size);
            for (at, (found, expected)) in found.iter().zip(&expected.bytes).enumerate() {
                assert!(expected.is_none_or(|expected| expected == *found), "byte {at} of segment {number}");
            }
        }
        let connections: Vec<_> =
            self.model.maps.iter().flatten().map(|Map { connection, .. }| connection).collect();
        assert!(connections.iter().all(|connection| self.model.connections[**connection].is_some()));
    }
}

/// Lets everything that was stored land.
fn settle<N: Sisci>(nic: &N) {
    nic.store_barrier();
    // A process has nothing to wait for; the simulated machine has 10 us at most.
    if nic.limits().outstanding > 1 {
        pause(nic, Span::from_micros(10));
    }
}

#[derive(Clone)]
struct Life(Vec<Call>);

impl Program for Life {
    fn run<N: Sisci>(&self, nic: N, _: usize, nodes: &[NodeId]) {
        let mut objects = Objects {
            session: nic.open().unwrap(),
            nic: &nic,
            node: nodes[0],
            locals: Vec::new(),
            local_maps: Vec::new(),
            connections: Vec::new(),
            maps: Vec::new(),
            sequences: Vec::new(),
            queues: Vec::new(),
            model: Model::default(),
        };
        for call in &self.0 {
            objects.make(call);
        }
        objects.compare();
    }
}

/// The model finds what the tests of single rules find.
#[test]
fn random_lives_notice_defects() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use sci_sim::Testing;
    use sci_sim::nic::mutation::{Defects, Mutation};
    for mutation in [
        Mutation::AnySize,
        Mutation::RemoveConnected,
        Mutation::UnmapConnected,
        Mutation::ConnectAnyway,
        Mutation::RoundDma,
    ] {
        let mut runner = TestRunner::deterministic();
        let noticed = (0..100).any(|_| {
            let calls = calls().new_tree(&mut runner).unwrap().current();
            let mut config = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
            config.testing = Testing { defects: Defects::of(mutation) };
            in_virtual_time(&config, Life(calls)).is_err()
        });
        assert!(noticed, "{mutation:?} goes unnoticed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_lives_in_virtual_time_are_the_models(calls in calls(), seed: u64, adversarial: bool) {
        let mut config = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
        config.faults.seed = seed;
        if adversarial {
            config.adversary.reorder_ns = 3_000.0;
        }
        if let Err(error) = in_virtual_time(&config, Life(calls)) {
            prop_assert!(false, "{}", error);
        }
    }

    #[test]
    fn random_lives_in_files_are_the_models(calls in calls()) {
        if let Err(error) = mapped(1, |_| (), Life(calls)) {
            prop_assert!(false, "{}", error);
        }
    }
}
