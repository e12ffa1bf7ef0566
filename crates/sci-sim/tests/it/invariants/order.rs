//! Rule 1, as far as it is the interface's: what is stored after a check or a barrier lands after what was stored
//! before it, and stores into one line land in their order; nothing else is ordered. Rule 6: reads are counted,
//! and come after earlier stores. The window: no more lines are under way than the interface has room for.

use super::{holds, noticed};
use crate::nic_support::{Program, await_flag, bytes, ends, in_virtual_time, pattern, pause};
use am_core::{Span, WaitReason};
use sci_sim::SciConfig;
use sci_sim::nic::mutation::Mutation;
use sci_sim::nic::{Flags, NodeId, SequenceStatus, Sisci};

/// What lies between the data of a message and its flag.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Check,
    Barrier,
    Nothing,
}

/// Node 0 sends messages of several lines, then their number as a flag in another line.
#[derive(Clone)]
struct FlagAfterData(Between);

const MESSAGES: usize = 60;

impl Program for FlagAfterData {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 1 << 16);
        let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        for message in 1..=MESSAGES {
            let (at, len) = (64 + 1024 * (message % 60), 40 + 17 * message % 900);
            if me == 0 {
                nic.store(&ends.map, at, &pattern(message, len)).unwrap();
                match self.0 {
                    Between::Check => {
                        let status = nic.check_sequence(&mut sequence, Flags::NONE);
                        assert_eq!(status, Ok(SequenceStatus::Ok));
                    }
                    Between::Barrier => nic.store_barrier(),
                    Between::Nothing => {}
                }
                nic.store_flag(&ends.map, 0, message as u8).unwrap();
                nic.flush();
                await_flag(&nic, &ends.mine, 0, message as u8);
            } else {
                // Looks as often as it can.
                while nic.flag(&ends.mine, 0) != message as u8 {
                    nic.charge_empty_poll();
                    nic.idle(Some(nic.now() + Span::from_nanos(100)), WaitReason::Message);
                }
                assert_eq!(bytes(&nic.memory(&ends.mine), at, len), pattern(message, len), "message {message}");
                nic.store_flag(&ends.map, 0, message as u8).unwrap();
                nic.flush();
            }
        }
        // What is still under way needs this node.
        pause(&nic, Span::from_micros(500));
    }
}

fn adversarial(seed: u64) -> SciConfig {
    let mut config = SciConfig::pair();
    config.faults.seed = seed;
    config.adversary.reorder_ns = 2_000.0;
    config
}

#[test]
fn flags_after_a_check_land_after_the_data() {
    holds(&adversarial(1), Mutation::HastyCheck, FlagAfterData(Between::Check));
}

#[test]
fn flags_after_a_barrier_land_after_the_data() {
    holds(&adversarial(2), Mutation::HollowBarrier, FlagAfterData(Between::Barrier));
}

#[test]
fn flags_without_either_overtake_the_data() {
    assert!(in_virtual_time(&adversarial(3), FlagAfterData(Between::Nothing)).is_err());
}

/// Node 0 stores rising numbers into one line, with another line between every two, so that each leaves on its
/// own.
#[derive(Clone)]
struct OneLine;

impl Program for OneLine {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 0 {
            for number in 1..=200u8 {
                nic.store_flag(&ends.map, 0, number).unwrap();
                nic.store_flag(&ends.map, 64 + 64 * usize::from(number % 32), number).unwrap();
            }
            nic.store_barrier();
            pause(&nic, Span::from_micros(500));
            return;
        }
        let mut last = 0;
        while last != 200 {
            let found = nic.flag(&ends.mine, 0);
            assert!(found >= last, "{found} after {last}");
            last = found;
            nic.charge_empty_poll();
            nic.idle(Some(nic.now() + Span::from_nanos(50)), WaitReason::Message);
        }
        pause(&nic, Span::from_micros(500));
        assert_eq!(nic.flag(&ends.mine, 0), 200);
    }
}

#[test]
fn stores_into_one_line_stay_in_order() {
    holds(&adversarial(4), Mutation::MixLine, OneLine);
}

/// Node 0 reads back what it has just stored, and what the other node holds.
#[derive(Clone)]
struct ReadBack;

impl Program for ReadBack {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 0 {
            for number in 1..=50 {
                let mut found = [0; 20];
                nic.store(&ends.map, 30, &pattern(number, 20)).unwrap();
                nic.read_remote(&ends.map, 30, &mut found).unwrap();
                assert_eq!(found[..], pattern(number, 20));
                assert_eq!(nic.counters().remote_reads, number as u64);
            }
            // 30 to 229: four lines.
            nic.read_remote(&ends.map, 30, &mut [0; 200]).unwrap();
            assert_eq!(nic.counters().remote_reads, 54);
            nic.store_flag(&ends.map, 0, 1).unwrap();
            nic.flush();
            pause(&nic, Span::from_micros(500));
        } else {
            // Its segment is there until all has been read, however long that takes.
            await_flag(&nic, &ends.mine, 0, 1);
            assert_eq!(nic.counters().remote_reads, 0);
        }
    }
}

#[test]
fn reads_come_after_earlier_stores_and_are_counted() {
    crate::nic_support::pair(ReadBack);
    holds(&SciConfig::pair(), Mutation::UncountedReads, ReadBack);
    // Stores that land later than a line is fetched.
    let mut late = SciConfig::pair();
    late.parameters.pio.fixed_ns += 2.0 * late.parameters.pio.read_ns;
    noticed(&[late], Mutation::ReadAhead, ReadBack);
    super::holds_mapped(2, &Default::default(), Mutation::UncountedReads, ReadBack);
}

/// Node 0 stores 160 lines; how long that takes tells how many are under way at once.
#[derive(Clone)]
struct Window;

impl Program for Window {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 16 << 10);
        if me == 0 {
            let began = nic.now();
            nic.store(&ends.map, 0, &[1; 160 * 64]).unwrap();
            // Sixteen lines each 23.0 us, which is how long an answer takes here: the last sixteen are still under
            // way.
            let took = nic.now().since(began).0 as f64 / 1e6;
            assert!((9.0 * 23.0..9.2 * 23.0 + 16.0 * 0.23).contains(&took), "{took}");
        }
        pause(&nic, Span::from_millis(1));
    }
}

#[test]
fn no_more_lines_are_under_way_than_there_is_room_for() {
    let mut config = SciConfig::pair();
    config.parameters.pio.answer_ns = 23_000.0;
    holds(&config, Mutation::NoWindow, Window);
}
