//! Rule 2: a slot is not overwritten before its read pointer commits. Rule 3: the status comes after the data, the
//! end of a message in its last slot alone.

use super::{holds, pattern, run};
use am_core::Span;
use extoll_sim::nic::mutation::Mutation;
use extoll_sim::nic::replay::WINDOW;
use extoll_sim::nic::velo::{COMMIT_EVERY, SEGMENT_SLOTS, VeloError, slots};
use extoll_sim::{AdversarialTiming, ExtollConfig, Nic};
use fabric_sim::{Faults, Topology, WaitFor};

/// Many senders fill the mailbox of rank 0, which sleeps first; then it reads everything, in order and intact.
fn flood(nic: &Nic<'_>, each: u32) {
    let velo = nic.velo();
    velo.open().unwrap();
    if nic.rank() != 0 {
        let peer = velo.connect(nic.address(0).unwrap()).unwrap();
        for number in 0..each {
            let mut message = pattern(number, 64);
            message[..4].copy_from_slice(&number.to_le_bytes());
            while let Err(error) = velo.send(peer, &message, 0, 0) {
                assert!(matches!(error, VeloError::TryAgain { .. }), "{error}");
                nic.idle(None, WaitFor::Named("room in the mailbox"));
            }
        }
        return;
    }
    nic.idle(Some(nic.now() + Span::from_millis(2)), WaitFor::Named("a full mailbox"));
    nic.charge(Span::from_millis(2));
    let mut next = vec![0; nic.ranks() as usize];
    for _ in 0..each * (nic.ranks() - 1) {
        let message = velo.recv(None).unwrap();
        let from = nic.rank_at(message.from).unwrap() as usize;
        let mut wanted = pattern(next[from], 64);
        wanted[..4].copy_from_slice(&next[from].to_le_bytes());
        assert_eq!(message.data(), wanted, "message {} of rank {from}", next[from]);
        next[from] += 1;
    }
    assert_eq!(velo.probe_recv(None).unwrap_err(), VeloError::NoMsg);
}

#[test]
fn a_slot_is_not_overwritten_before_it_is_read() {
    // Nine senders of 300 messages of two slots: more than the 1024 slots of the ring.
    let config = ExtollConfig::new(10, Topology::Crossbar { nodes: 10 });
    holds(&config, Mutation::IgnoreReadPointer, |nic| flood(&nic, 300));
    let lossy = Faults { seed: 3, loss: 0.02, ..Faults::default() };
    run(&ExtollConfig { faults: lossy, ..config }, |nic| flood(&nic, 300)).unwrap();
}

/// A sender alone gets as far as the ring and the window let it, and is woken when the receiver has read.
#[test]
fn send_says_try_again_instead() {
    let config = ExtollConfig::pair();
    let report = run(&config, |nic| {
        let velo = nic.velo();
        if nic.rank() == 1 {
            // Nothing is lost before the port is open, either.
            nic.charge(Span::from_millis(10));
            velo.open().unwrap();
            let first = velo.recv(None).unwrap();
            for _ in 1..800 {
                velo.recv(None).unwrap();
            }
            return (first.data()[0].into(), 0);
        }
        velo.open().unwrap();
        let peer = velo.connect(nic.address(1).unwrap()).unwrap();
        let mut sent = 0;
        let mut refused = 0;
        while sent < 800 {
            match velo.send(peer, &[7; 8], 0, 0) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert_eq!(error, VeloError::TryAgain { uncommitted: WINDOW, replay: false });
                    refused = if refused == 0 { sent } else { refused };
                    nic.idle(None, WaitFor::Named("the receiver"));
                }
            }
        }
        (refused, nic.now().0)
    });
    let results = report.unwrap().results;
    assert_eq!(results[0].unwrap().0, u64::from(WINDOW));
    assert!(results[0].unwrap().1 > 10_000_000_000, "the sender had to wait for the receiver");
    assert_eq!(results[1].unwrap().0, 7);
}

/// The process commits its read pointer every eight slots; until then the ring stays full.
#[test]
fn the_read_pointer_commits_lazily() {
    let senders = 1024 / u32::from(WINDOW) + 1;
    let config = ExtollConfig::new(1 + senders, Topology::Crossbar { nodes: 1 + senders });
    let report = run(&config, move |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() != 0 {
            let peer = velo.connect(nic.address(0).unwrap()).unwrap();
            (0..WINDOW).for_each(|_| velo.send(peer, &[nic.rank() as u8], 0, 0).unwrap());
            return Vec::new();
        }
        let settle = || nic.idle(Some(nic.now() + Span::from_millis(1)), WaitFor::Named("the ring to settle"));
        (0..3).for_each(|_| settle());
        nic.charge(Span::from_millis(5));
        let held = || nic.context().device(|interface, _| interface.mailbox(0));
        assert_eq!(held(), (u64::from(SEGMENT_SLOTS), senders * u32::from(WINDOW) - SEGMENT_SLOTS));
        let used = (0..16).map(|_| {
            velo.recv(None).unwrap();
            held().1
        });
        used.collect()
    });
    let first = senders * u32::from(WINDOW) - SEGMENT_SLOTS;
    let every = COMMIT_EVERY as u32;
    let wanted: Vec<u32> = (1..=16).map(|read| first - read / every * every).collect();
    assert_eq!(report.unwrap().results[0].as_deref(), Some(&wanted[..]));
}

/// The receiver polls while the interface writes slot by slot, word by word.
fn watch(nic: &Nic<'_>, messages: u32) {
    let velo = nic.velo();
    velo.open().unwrap();
    let mtu = nic.parameters().velo.mtu;
    if nic.rank() == 0 {
        let peer = velo.connect(nic.address(1).unwrap()).unwrap();
        for number in 0..messages {
            let message = pattern(number, (number * 17 % (mtu + 1)) as usize);
            velo.send(peer, &message, number as u8, 1).unwrap();
        }
        return;
    }
    let mut number = 0;
    while number < messages {
        match velo.probe_recv(None) {
            Ok(message) => {
                assert_eq!(
                    message.data(),
                    pattern(number, (number * 17 % (mtu + 1)) as usize),
                    "message {number}"
                );
                assert_eq!((message.tag, message.mtt, message.error), (number as u8, 1, false));
                number += 1;
            }
            Err(error) => assert_eq!(error, VeloError::NoMsg),
        }
    }
}

fn slot_by_slot(mtu: u32) -> ExtollConfig {
    let mut config = ExtollConfig::pair();
    config.parameters.velo.mtu = mtu;
    // One look takes less than the pause between two writes, so that every state of the ring is seen.
    config.parameters.empty_poll_ns = 20.0;
    config.adversary = AdversarialTiming { store_gap_ns: 300.0, ..AdversarialTiming::default() };
    config
}

#[test]
fn the_status_comes_after_the_data() {
    for mtu in [64, 120] {
        holds(&slot_by_slot(mtu), Mutation::StatusFirst, |nic| watch(&nic, 200));
    }
}

#[test]
fn a_message_ends_in_its_last_slot_alone() {
    for mtu in [64, 120] {
        holds(&slot_by_slot(mtu), Mutation::EndEverywhere, |nic| watch(&nic, 200));
    }
}

#[test]
fn messages_take_one_to_three_slots() {
    let sizes = [0, 1, 56, 57, 64, 112, 113, 120];
    assert_eq!(sizes.map(slots), [1, 1, 1, 2, 2, 2, 3, 3]);
}

/// Messages of other types stay in their slots, which are free again only once everything before them is read.
#[test]
fn types_are_received_out_of_order() {
    let report = run(&ExtollConfig::pair(), |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() == 0 {
            let peer = velo.connect(nic.address(1).unwrap()).unwrap();
            for round in 0..900_u32 {
                for mtt in 0..3 {
                    let message = pattern(round * 3 + u32::from(mtt), 60);
                    while velo.send(peer, &message, 0, mtt).is_err() {
                        nic.idle(None, WaitFor::Named("room"));
                    }
                }
            }
            return;
        }
        for round in 0..900_u32 {
            for mtt in [2, 0, 1] {
                let message = velo.recv(Some(mtt)).unwrap();
                assert_eq!(message.data(), pattern(round * 3 + u32::from(mtt), 60));
            }
            if round == 899 {
                assert_eq!(velo.probe_recv(Some(1)).unwrap_err(), VeloError::NoMsg);
            }
        }
    });
    report.unwrap();
    let report = run(&ExtollConfig::pair(), |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() == 0 {
            let peer = velo.connect(nic.address(1).unwrap()).unwrap();
            velo.send(peer, b"x", 0, 3).unwrap();
            return;
        }
        nic.charge(Span::from_micros(100));
        assert_eq!(velo.probe_recv(Some(1)).unwrap_err(), VeloError::NoMatch { mtt: 1 });
        assert_eq!(velo.probe_recv(Some(3)).unwrap().data(), b"x");
    });
    report.unwrap();
}
