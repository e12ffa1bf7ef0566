//! After a while of use, stores, checks, flags, reads, transfers and idling allocate nothing, in either
//! implementation.

use crate::nic_support::{Program, in_virtual_time, mapped};
use am_conformance::allocations;
use am_core::{Span, WaitReason};
use fabric_sim::Topology;
use sci_sim::SciConfig;
use sci_sim::nic::{Flags, NodeId, SegmentId, SequenceStatus, Sisci};

/// One node that stores to itself.
#[derive(Clone)]
struct Rounds;

const WARM_UP: u32 = 500;

impl Program for Rounds {
    fn run<N: Sisci>(&self, nic: N, _: usize, nodes: &[NodeId]) {
        let session = nic.open().unwrap();
        let segment = nic.create_segment(&session, SegmentId(1), 1 << 16, Flags::NONE).unwrap();
        nic.prepare_segment(&segment).unwrap();
        let mine = nic.map_local(&segment, 0, 1 << 16).unwrap();
        nic.set_available(&segment).unwrap();
        let timeout = Span::from_millis(1);
        let remote = nic.connect_segment(&session, nodes[0], SegmentId(1), timeout, Flags::NONE).unwrap();
        let map = nic.map_remote(&remote, 0, 1 << 16).unwrap();
        let mut sequence = nic.create_map_sequence(&map).unwrap();
        let mut queue = nic.create_dma_queue(&session, 2).unwrap();
        nic.watch(&mine, 0).unwrap();
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        let mut before = 0;
        for round in 0..2 * WARM_UP {
            if round == WARM_UP {
                before = allocations();
            }
            nic.store(&map, 100, &[round as u8; 900]).unwrap();
            assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::Ok));
            nic.memcpy(&mut sequence, &map, 2000, &[1; 64], Flags::ERROR_CHECK).unwrap();
            nic.enqueue(&mut queue, &segment, 0, &remote, 1 << 15, 8192).unwrap();
            nic.enqueue(&mut queue, &segment, 8192, &remote, 1 << 14, 64).unwrap();
            nic.post(&mut queue).unwrap();
            nic.wait_for_dma_queue(&mut queue, None).unwrap();
            nic.reset(&mut queue).unwrap();
            nic.read_remote(&map, 100, &mut [0; 100]).unwrap();
            nic.store_flag(&map, 0, 1).unwrap();
            nic.store_barrier();
            nic.alert(&map);
            while nic.take_flag(&mine, 0) == 0 {
                nic.charge_empty_poll();
                nic.idle(Some(nic.now() + Span::from_micros(5)), WaitReason::Message);
            }
            nic.idle(Some(nic.now() + Span::from_nanos(100)), WaitReason::Message);
        }
        let most = allocations() - before;
        // Queues of the simulation may still grow once or twice.
        assert!(most < 10, "{most} allocations in {WARM_UP} rounds");
    }
}

#[test]
fn nothing_is_allocated_per_store_or_transfer() {
    let alone = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
    in_virtual_time(&alone, Rounds).unwrap();
    mapped(1, |_| (), Rounds).unwrap();
}
