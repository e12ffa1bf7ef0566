//! Rules 4 and 5: whatever fails, at whatever line, is known, and storing everything once more makes it good; what
//! is lost is lost cleanly.

use super::{holds, holds_mapped, noticed};
use crate::nic_support::{Program, await_flag, bytes, ends, in_virtual_time, mapped, pattern, pause};
use am_core::{PeerStatus, Span};
use fabric_sim::{FaultEvent, Scheduled};
use sci_sim::SciConfig;
use sci_sim::nic::mutation::Mutation;
use sci_sim::nic::{
    Code, Flags, NodeId, PlannedError, PlannedStatus, SegmentReason, SequenceStatus, Sisci, TransferErrors,
};

/// Stores until a check says that everything has landed; returns what the checks said before.
fn deliver<N: Sisci>(nic: &N, sequence: &mut N::Sequence, store: impl Fn()) -> Vec<SequenceStatus> {
    let mut said = Vec::new();
    loop {
        store();
        match nic.check_sequence(sequence, Flags::NONE).unwrap() {
            SequenceStatus::Ok => return said,
            SequenceStatus::Retriable => said.push(SequenceStatus::Retriable),
            lasting => {
                said.push(lasting);
                let end = nic.now() + Span::from_secs(300);
                while nic.start_sequence(sequence) != SequenceStatus::Ok {
                    assert!(nic.now() < end, "it never starts again");
                }
            }
        }
    }
}

/// Node 0 delivers messages of some lines each, then a flag, all checked; node 1 compares.
#[derive(Clone)]
struct Deliver {
    messages: usize,
    /// What the checks must have said, all in all, where that is known.
    said: Option<Vec<SequenceStatus>>,
}

impl Program for Deliver {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 8192);
        let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
        while nic.start_sequence(&mut sequence) != SequenceStatus::Ok {}
        let (nic, map, mut said) = (&nic, &ends.map, Vec::new());
        for message in 1..=self.messages {
            let len = 50 + 117 * message % 500;
            if me == 0 {
                said.extend(deliver(nic, &mut sequence, || {
                    // Begins within a line and ends within one.
                    nic.store(map, 100, &pattern(message, len)).unwrap();
                }));
                said.extend(deliver(nic, &mut sequence, || nic.store_flag(map, 0, message as u8).unwrap()));
                nic.alert(map);
                await_flag(nic, &ends.mine, 0, message as u8);
            } else {
                await_flag(nic, &ends.mine, 0, message as u8);
                let found = bytes(&nic.memory(&ends.mine), 100, len);
                assert_eq!(found, pattern(message, len), "message {message}");
                assert_eq!(bytes(&nic.memory(&ends.mine), 64, 36), [0; 36], "before the message");
                deliver(nic, &mut sequence, || nic.store_flag(map, 0, message as u8).unwrap());
                nic.alert(map);
            }
        }
        if me == 0
            && let Some(expected) = &self.said
        {
            assert_eq!(said, *expected);
        }
        pause(nic, Span::from_millis(1));
    }
}

fn planned(line: u64, status: PlannedStatus, lands: bool) -> TransferErrors {
    TransferErrors { planned: vec![PlannedError { node: 4, line, status, lands }], ..TransferErrors::default() }
}

fn machine(errors: &TransferErrors) -> SciConfig {
    SciConfig { errors: errors.clone(), ..SciConfig::pair() }
}

/// One message of 167 bytes from 100 on: lines 0 to 3; its flag is line 4.
const ONE: usize = 1;
const LINES: u64 = 5;

#[test]
fn a_line_that_fails_anywhere_is_made_good() {
    for line in 0..LINES {
        for (planned_status, status) in [
            (PlannedStatus::Retriable, SequenceStatus::Retriable),
            (PlannedStatus::NotRetriable, SequenceStatus::NotRetriable),
            (PlannedStatus::Pending, SequenceStatus::Pending),
        ] {
            for lands in [false, true] {
                let errors = planned(line, planned_status, lands);
                let program = Deliver { messages: ONE, said: Some(vec![status]) };
                in_virtual_time(&machine(&errors), program.clone()).unwrap();
                mapped(2, |config| config.errors = errors.clone(), program).unwrap();
            }
        }
    }
    // The line behind them is not there to fail.
    let errors = planned(LINES, PlannedStatus::Retriable, false);
    in_virtual_time(&machine(&errors), Deliver { messages: ONE, said: Some(Vec::new()) }).unwrap();
}

#[test]
fn checks_that_say_ok_whatever_happened_are_noticed() {
    for line in 0..LINES {
        let errors = planned(line, PlannedStatus::Retriable, false);
        let program = Deliver { messages: ONE, said: None };
        let mut config = machine(&errors);
        // A flag that never comes is waited for no longer than that.
        config.deadline_ns = 1e8;
        holds(&config, Mutation::BlindCheck, program);
    }
    let program = Deliver { messages: ONE, said: None };
    holds_mapped(2, &planned(2, PlannedStatus::Retriable, false), Mutation::BlindCheck, program);
}

#[test]
fn lasting_failures_are_not_passing_ones() {
    let errors = planned(1, PlannedStatus::NotRetriable, false);
    let program = Deliver { messages: ONE, said: Some(vec![SequenceStatus::NotRetriable]) };
    holds(&machine(&errors), Mutation::LastingAsPassing, program.clone());
    holds_mapped(2, &errors, Mutation::LastingAsPassing, program);
}

#[test]
fn many_failures_of_all_kinds_are_made_good() {
    let errors =
        TransferErrors { retriable: 0.05, not_retriable: 0.01, pending: 0.02, ..TransferErrors::default() };
    let program = Deliver { messages: 200, said: None };
    for seed in 0..5 {
        let errors = TransferErrors { seed, ..errors.clone() };
        in_virtual_time(&machine(&errors), program.clone()).unwrap();
        mapped(2, |config| config.errors = errors.clone(), program.clone()).unwrap();
    }
}

/// A network that loses, spoils, delays and mixes, and whose links go down.
fn bad_network(seed: u64) -> SciConfig {
    let mut config = SciConfig::pair();
    config.faults.seed = seed;
    (config.faults.loss, config.faults.corruption) = (0.01, 0.01);
    (config.faults.delay, config.faults.delay_ns) = (0.02, 5_000.0);
    (config.faults.reordering, config.faults.reorder_ns) = (0.05, 5_000.0);
    config.adversary.reorder_ns = 1_000.0;
    let at = |at_ns, event| Scheduled { at_ns, event };
    config.faults.schedule =
        vec![at(1.5e6, FaultEvent::LinkDown { from: 0, to: 1 }), at(2.5e6, FaultEvent::LinkUp { from: 0, to: 1 })];
    config
}

#[test]
fn a_bad_network_is_made_good() {
    for seed in 0..12 {
        let mut config = bad_network(seed);
        // Links that repair losses hold packets while they are down, and let them come when their senders have
        // given them up.
        config.faults.link_retry = seed % 3 == 0;
        in_virtual_time(&config, Deliver { messages: 100, said: None }).unwrap();
    }
}

/// Node 0 delivers rising numbers to one place of a network in which lines may come very late: what was given up
/// must not land on what came after it.
#[derive(Clone)]
struct Rising;

impl Program for Rising {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 0 {
            let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
            while nic.start_sequence(&mut sequence) != SequenceStatus::Ok {}
            for number in 1..=100 {
                deliver(&nic, &mut sequence, || nic.store_flag(&ends.map, 0, number).unwrap());
            }
            pause(&nic, Span::from_millis(2));
            deliver(&nic, &mut sequence, || nic.store_flag(&ends.map, 64, 1).unwrap());
            pause(&nic, Span::from_millis(2));
            return;
        }
        let mut last = 0;
        while nic.flag(&ends.mine, 64) == 0 {
            let found = nic.flag(&ends.mine, 0);
            assert!(found >= last, "{found} after {last}");
            last = found;
            nic.charge_empty_poll();
            pause(&nic, Span::from_micros(1));
        }
        assert_eq!(last, 100);
        pause(&nic, Span::from_millis(2));
    }
}

#[test]
fn what_was_given_up_does_not_land_later() {
    let late = |seed| {
        let mut config = SciConfig::pair();
        config.faults.seed = seed;
        // Held back behind later ones, for longer than the sender has patience.
        (config.faults.reordering, config.faults.reorder_ns) = (0.1, 400_000.0);
        config
    };
    let configs: Vec<_> = (0..8).map(late).collect();
    configs.iter().for_each(|config| drop(in_virtual_time(config, Rising).unwrap()));
    noticed(&configs, Mutation::TakeLate, Rising);
}

/// Node 0 meets a link that is down.
#[derive(Clone)]
struct Down;

impl Program for Down {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 0 {
            let mut sequence = nic.create_map_sequence(&ends.map).unwrap();
            assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::Ok);
            pause(&nic, Span::from_millis(2));
            nic.store(&ends.map, 0, &[1; 64]).unwrap();
            assert_eq!(nic.check_sequence(&mut sequence, Flags::NONE), Ok(SequenceStatus::NotRetriable));
            for _ in 0..5 {
                assert_eq!(nic.start_sequence(&mut sequence), SequenceStatus::NotRetriable);
            }
        }
        pause(&nic, Span::from_millis(3));
    }
}

#[test]
fn sequences_do_not_start_while_the_link_is_down() {
    let mut config = SciConfig::pair();
    config.faults.schedule = vec![Scheduled { at_ns: 1e6, event: FaultEvent::LinkDown { from: 0, to: 1 } }];
    holds(&config, Mutation::EasyStart, Down);
}

/// Node 1 is lost.
#[derive(Clone)]
struct Lost;

impl Program for Lost {
    fn run<N: Sisci>(&self, nic: N, me: usize, nodes: &[NodeId]) {
        let ends = ends(&nic, nodes[1 - me], 4096);
        if me == 1 {
            nic.store_flag(&ends.map, 0, 1).unwrap();
            nic.store_barrier();
            nic.alert(&ends.map);
            pause(&nic, Span::from_millis(2));
            // Where nobody stops it, it leaves by itself.
            nic.depart(PeerStatus::Lost(am_core::LossCause::Left));
            return;
        }
        await_flag(&nic, &ends.mine, 0, 1);
        let event = nic.wait_for_remote_segment_event(&ends.remote, Some(Span::from_secs(2)));
        assert_eq!(event, Ok(SegmentReason::Lost));
        let found = nic.read_remote(&ends.map, 0, &mut [0; 4]);
        assert_eq!(found, Err(Code::TransferFailed));
    }
}

#[test]
fn the_loss_of_a_node_is_told() {
    let mut config = SciConfig::pair();
    config.faults.schedule = vec![Scheduled { at_ns: 1e6, event: FaultEvent::NodeStop { node: 1 } }];
    holds(&config, Mutation::SilentLoss, Lost);
    holds_mapped(2, &TransferErrors::default(), Mutation::SilentLoss, Lost);
}
