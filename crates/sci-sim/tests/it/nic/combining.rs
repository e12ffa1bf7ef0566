//! The processor's write-combining buffer, and what leaves it when.

use crate::nic_support::{Ends, Program, await_flag, bytes, ends, in_virtual_time, pause};
use am_core::Span;
use sci_sim::SciConfig;
use sci_sim::nic::{Flags, NodeId, SequenceStatus, Sisci};

/// Counts the lines that some stores take.
#[derive(Clone)]
struct Lines;

impl Program for Lines {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 1 << 14);
        if me == 1 {
            await_flag(&nic, &ends.mine, 8192, 1);
            let found = bytes(&nic.memory(&ends.mine), 0, 1024);
            assert_eq!((&found[..80], &found[80..]), (&[1; 80][..], &[2; 944][..]));
            return;
        }
        let Ends { map, .. } = &ends;
        let lines = |expected: u64, store: &dyn Fn()| {
            let before = nic.counters().lines;
            store();
            assert_eq!(nic.counters().lines - before, expected);
        };
        // A header of 80 bytes and a payload of 944 behind it: 16 lines, of which the second is of both.
        lines(15, &|| {
            nic.store(map, 0, &[1; 80]).unwrap();
            nic.store(map, 80, &[2; 943]).unwrap();
        });
        lines(1, &|| nic.store(map, 1023, &[2]).unwrap());
        // What has left already leaves no more.
        lines(0, &|| nic.flush());
        // Bytes of one line in any order are one line, and another line sends them off.
        lines(0, &|| {
            [3, 60, 2].iter().for_each(|at| nic.store_flag(map, 2048 + at, 7).unwrap());
        });
        lines(1, &|| nic.store_flag(map, 4096, 8).unwrap());
        // A check that is asked to leaves the rest where it is, and so does one that does not wait for it.
        let mut sequence = nic.create_map_sequence(map).unwrap();
        assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
        lines(0, &|| pass(&nic));
        let before = nic.counters().lines;
        assert_eq!(nic.check_sequence(&mut sequence, Flags::NO_FLUSH), Ok(SequenceStatus::Ok));
        assert_eq!(nic.counters().lines, before);
        let began = nic.now();
        nic.store(map, 6144, &[9; 640]).unwrap();
        let stored = nic.now();
        let flags = Flags::NO_STORE_BARRIER;
        assert_eq!(nic.check_sequence(&mut sequence, flags), Ok(SequenceStatus::Ok));
        // Ten lines and the one before; then the look at the adapter's state, and no waiting.
        assert_eq!(
            (stored.since(began), nic.now().since(stored)),
            (Span::from_nanos(2_530), Span::from_nanos(300))
        );
        nic.store_flag(map, 8192, 1).unwrap();
        nic.store_barrier();
        pause(&nic, Span::from_micros(100));
    }
}

/// Computing sends nothing off.
fn pass<N: Sisci>(nic: &N) {
    nic.charge(Span::from_micros(1));
    nic.charge_empty_poll();
}

#[test]
fn stores_into_one_line_leave_together() {
    in_virtual_time(&SciConfig::pair(), Lines).unwrap();
}

/// What waits in the buffer leaves before the processor waits for anything.
#[derive(Clone)]
struct Idling;

impl Program for Idling {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 0 {
            nic.store_flag(&ends.map, 0, 5).unwrap();
        }
        await_flag(&nic, &ends.mine, 0, if me == 0 { 6 } else { 5 });
        if me == 1 {
            nic.store_flag(&ends.map, 0, 6).unwrap();
            nic.flush();
        }
        pause(&nic, Span::from_micros(50));
    }
}

#[test]
fn nothing_stays_in_the_buffer_while_its_processor_waits() {
    in_virtual_time(&SciConfig::pair(), Idling).unwrap();
}
