//! Rule 7: DMA moves whole aligned lines and nothing else, for all 64 x 64 places of a message's begin and end.

use super::{holds, holds_mapped};
use crate::nic_support::{Program, await_flag, bytes, ends, in_virtual_time, mapped, pair, pause};
use am_core::Span;
use am_core::segment::Memory;
use sci_sim::SciConfig;
use sci_sim::nic::mutation::Mutation;
use sci_sim::nic::{Code, DmaState, NodeId, PlannedError, PlannedStatus, Sisci, TransferErrors};

/// A place for one message, of 64 side by side; behind them what is sent, and a flag.
const SIZE: usize = 1024;
const FAR: usize = 64 * SIZE;
const FLAG: usize = 2 * FAR;

/// Sends bytes `begin..end` of what is to be sent to the same place of the other node: the aligned middle by DMA,
/// the edges by stores.
fn send<N: Sisci>(nic: &N, queue: &mut N::DmaQueue, ends: &crate::nic_support::Ends<N>, begin: usize, end: usize) {
    let (first, last) = (begin.next_multiple_of(64), end / 64 * 64);
    let edge = |from: usize, to: usize| {
        nic.store(&ends.map, from, &bytes(&nic.memory(&ends.mine), FAR + from, to - from)).unwrap();
    };
    nic.enqueue(queue, &ends.local, FAR + first, &ends.remote, first, last - first).unwrap();
    nic.post(queue).unwrap();
    edge(begin, first);
    edge(last, end);
    nic.wait_for_dma_queue(queue, None).unwrap();
    assert_eq!(nic.dma_state(queue), DmaState::Done);
    nic.reset(queue).unwrap();
}

/// All begins within a line and ends within a line: node 0 sends 64 messages with all begins and one end, and node
/// 1 compares what came and what is around it; so for each end.
#[derive(Clone)]
struct AllEdges;

impl Program for AllEdges {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], FLAG + 64);
        let memory = nic.memory(&ends.mine);
        let mut queue = nic.create_dma_queue(&ends.descriptor, 1).unwrap();
        for last in 0..64usize {
            let place = |first: usize| (first * SIZE + 64 + first, first * SIZE + SIZE - 64 + last);
            let (value, turn) = (last as u8 + 1, (last % 2) as u8 + 1);
            if me == 0 {
                memory.store(FAR, &[value; FAR]);
                for first in 0..64 {
                    let (begin, end) = place(first);
                    send(&nic, &mut queue, &ends, begin, end);
                }
                nic.store_barrier();
                nic.store_flag(&ends.map, FLAG, turn).unwrap();
                nic.flush();
                nic.alert(&ends.map);
                await_flag(&nic, &ends.mine, FLAG, turn);
            } else {
                await_flag(&nic, &ends.mine, FLAG, turn);
                for first in 0..64 {
                    let (begin, end) = place(first);
                    let all = first * SIZE..first * SIZE + SIZE;
                    let found = bytes(&memory, all.start, SIZE);
                    for (at, byte) in all.zip(found) {
                        let expected = if (begin..end).contains(&at) { value } else { 0 };
                        assert_eq!(byte, expected, "byte {at} of {begin}..{end}");
                    }
                }
                memory.store(0, &[0; FAR]);
                nic.store_flag(&ends.map, FLAG, turn).unwrap();
                nic.flush();
                nic.alert(&ends.map);
            }
        }
        pause(&nic, Span::from_micros(100));
    }
}

#[test]
fn all_edges_of_messages_by_dma_are_exact() {
    pair(AllEdges);
}

/// What is not aligned is refused, and moves nothing.
#[derive(Clone)]
struct Misaligned;

impl Program for Misaligned {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 64 << 10);
        let mut queue = nic.create_dma_queue(&ends.descriptor, 1).unwrap();
        if me == 0 {
            for at in (0..64).filter(|at| at % 64 != 0) {
                let refused = nic.enqueue(&mut queue, &ends.local, at, &ends.remote, 0, 64);
                assert_eq!(refused, Err(Code::OffsetAlignment), "from {at}");
                let refused = nic.enqueue(&mut queue, &ends.local, 0, &ends.remote, at, 64);
                assert_eq!(refused, Err(Code::OffsetAlignment), "to {at}");
                let refused = nic.enqueue(&mut queue, &ends.local, 0, &ends.remote, 0, 64 + at);
                assert_eq!(refused, Err(Code::SizeAlignment), "{} bytes", 64 + at);
            }
            assert_eq!(nic.post(&mut queue), Err(Code::IllegalOperation));
        }
        pause(&nic, Span::from_micros(100));
    }
}

#[test]
fn transfers_that_are_not_of_whole_lines_are_refused() {
    holds(&SciConfig::pair(), Mutation::RoundDma, Misaligned);
    holds_mapped(2, &TransferErrors::default(), Mutation::RoundDma, Misaligned);
}

/// An aborted transfer ends, one that fails says so; both can be done once more.
#[derive(Clone)]
struct Ended {
    fails: bool,
}

impl Program for Ended {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 256 << 10);
        if me == 0 {
            nic.memory(&ends.mine).store(0, &[7; 128 << 10]);
            let mut queue = nic.create_dma_queue(&ends.descriptor, 1).unwrap();
            let fill = |queue: &mut N::DmaQueue| {
                nic.enqueue(queue, &ends.local, 0, &ends.remote, 0, 128 << 10).unwrap();
                nic.post(queue).unwrap();
            };
            fill(&mut queue);
            if self.fails {
                assert_eq!(nic.wait_for_dma_queue(&mut queue, None), Err(Code::TransferFailed));
                assert_eq!(nic.dma_state(&queue), DmaState::Error);
            } else {
                nic.abort(&mut queue).unwrap();
                assert_eq!(nic.wait_for_dma_queue(&mut queue, None), Err(Code::Cancelled));
                assert_eq!(nic.dma_state(&queue), DmaState::Aborted);
            }
            nic.reset(&mut queue).unwrap();
            fill(&mut queue);
            nic.wait_for_dma_queue(&mut queue, None).unwrap();
            nic.store_flag(&ends.map, 128 << 10, 1).unwrap();
            nic.store_barrier();
            pause(&nic, Span::from_micros(100));
        } else {
            await_flag(&nic, &ends.mine, 128 << 10, 1);
            assert_eq!(bytes(&nic.memory(&ends.mine), 0, 128 << 10), [7; 128 << 10]);
        }
    }
}

#[test]
fn aborted_queues_are_aborted() {
    holds(&SciConfig::pair(), Mutation::IgnoreAbort, Ended { fails: false });
    holds_mapped(2, &TransferErrors::default(), Mutation::IgnoreAbort, Ended { fails: false });
}

#[test]
fn a_part_that_fails_fails_its_queue() {
    let error = PlannedError { node: 4, line: 40, status: PlannedStatus::Retriable, lands: false };
    let errors = TransferErrors { planned: vec![error], ..TransferErrors::default() };
    let config = SciConfig { errors: errors.clone(), ..SciConfig::pair() };
    in_virtual_time(&config, Ended { fails: true }).unwrap();
    mapped(2, |config| config.errors = errors.clone(), Ended { fails: true }).unwrap();
    // On a network that loses packets by itself.
    let mut config = SciConfig::pair();
    (config.faults.corruption, config.faults.seed) = (0.01, 5);
    assert!(in_virtual_time(&config, Ended { fails: false }).is_err(), "it cannot succeed for ever");
}
