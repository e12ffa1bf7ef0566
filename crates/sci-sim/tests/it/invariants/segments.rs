//! Rule 8: segments beyond the limit are refused, what is connected stays, and nobody connects before it is
//! allowed.

use super::{holds, holds_mapped};
use crate::nic_support::{Program, pause};
use am_core::Span;
use fabric_sim::Topology;
use sci_sim::SciConfig;
use sci_sim::nic::mutation::Mutation;
use sci_sim::nic::{Code, Flags, NodeId, SegmentId, Sisci, TransferErrors};

/// The life of a segment, with everything that is not allowed on the way.
#[derive(Clone)]
struct Life;

impl Program for Life {
    fn run<N: Sisci>(&self, nic: N, _: usize, nodes: &[NodeId]) {
        let (session, me) = (nic.open().unwrap(), nodes[0]);
        let create = |size| nic.create_segment(&session, SegmentId(7), size, Flags::NONE);
        let connect = || nic.connect_segment(&session, me, SegmentId(7), Span::from_millis(1), Flags::NONE);
        assert_eq!(create((1 << 20) + 4).map(drop), Err(Code::NoSpace));
        let segment = create(1 << 20).unwrap();
        assert_eq!(connect().map(drop), Err(Code::ConnectionRefused), "before it is prepared");
        nic.prepare_segment(&segment).unwrap();
        assert_eq!(connect().map(drop), Err(Code::ConnectionRefused), "before it is available");
        let map = nic.map_local(&segment, 0, 64).unwrap();
        nic.set_available(&segment).unwrap();
        let remote = connect().unwrap();
        nic.set_unavailable(&segment).unwrap();
        assert_eq!(connect().map(drop), Err(Code::ConnectionRefused), "when it is no longer available");
        let map = nic.unmap_local(map).expect_err("unmapping while connected");
        assert_eq!(map.code, Code::Busy);
        let segment = nic.remove_segment(segment).expect_err("removing while mapped and connected");
        assert_eq!(segment.code, Code::Busy);
        nic.disconnect_segment(remote).unwrap();
        nic.unmap_local(map.object).unwrap();
        nic.remove_segment(segment.object).unwrap();
        assert_eq!(connect().map(drop), Err(Code::NoSuchSegment));
        // Connected alone keeps it too.
        let segment = create(64).unwrap();
        nic.prepare_segment(&segment).unwrap();
        nic.set_available(&segment).unwrap();
        let remote = connect().unwrap();
        let kept = nic.remove_segment(segment).expect_err("removing while connected");
        assert_eq!(kept.code, Code::Busy);
        nic.disconnect_segment(remote).unwrap();
        nic.remove_segment(kept.object).unwrap();
        pause(&nic, Span::from_micros(10));
    }
}

#[test]
fn segments_live_by_the_rules() {
    let alone = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
    for mutation in
        [Mutation::AnySize, Mutation::RemoveConnected, Mutation::UnmapConnected, Mutation::ConnectAnyway]
    {
        holds(&alone, mutation, Life);
        holds_mapped(1, &TransferErrors::default(), mutation, Life);
    }
}

#[test]
fn the_limit_is_a_parameter() {
    #[derive(Clone)]
    struct Large;
    impl Program for Large {
        fn run<N: Sisci>(&self, nic: N, _: usize, _: &[NodeId]) {
            let session = nic.open().unwrap();
            let create = |id, size| nic.create_segment(&session, SegmentId(id), size, Flags::NONE).map(drop);
            assert_eq!(create(1, 16 << 20), Ok(()));
            assert_eq!(create(2, (16 << 20) + 4), Err(Code::NoSpace));
            // And the node's memory is another.
            assert_eq!(create(2, 16 << 20), Ok(()));
            assert_eq!(create(3, 16 << 20), Err(Code::NoSpace));
        }
    }
    let mut config = SciConfig::new(1, Topology::Ringlets { dims: vec![2] });
    (config.parameters.segment_bytes, config.parameters.memory_bytes) = (16 << 20, 40 << 20);
    crate::nic_support::in_virtual_time(&config, Large).unwrap();
    let change = |config: &mut sci_sim::nic::MappedConfig| {
        (config.segment_bytes, config.memory_bytes) = (16 << 20, 40 << 20);
    };
    crate::nic_support::mapped(1, change, Large).unwrap();
}
