//! Rule 6: whatever packets are lost, spoilt or doubled, each message arrives exactly once and in order, also
//! across the 8-bit wrap.

use super::{holds, pattern, run};
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::mutation::Mutation;
use extoll_sim::nic::replay::{Receiver, Sender, Verdict, WINDOW};
use extoll_sim::nic::rma::{Access, Notify, RmaError};
use extoll_sim::nic::velo::VeloError;
use extoll_sim::{AdversarialTiming, ExtollConfig, Nic};
use fabric_sim::{Faults, Topology, WaitFor};
use proptest::prelude::*;

/// Both ranks send numbered messages to each other over VELO.
fn exchange(nic: &Nic<'_>, messages: u32) {
    let velo = nic.velo();
    velo.open().unwrap();
    let peer = velo.connect(nic.address(1 - nic.rank()).unwrap()).unwrap();
    let (mut sent, mut received) = (0, 0);
    while sent < messages || received < messages {
        let before = (sent, received);
        if sent < messages {
            match velo.send(peer, &pattern(sent, 40), sent as u8, 0) {
                Ok(()) => sent += 1,
                Err(error) => assert!(matches!(error, VeloError::TryAgain { .. }), "{error}"),
            }
        }
        match velo.probe_recv(None) {
            Ok(message) => {
                assert_eq!((message.tag, message.data()), (received as u8, &pattern(received, 40)[..]));
                assert!(!message.error, "spoilt packets are sent again");
                received += 1;
            }
            Err(error) => assert_eq!(error, VeloError::NoMsg),
        }
        if (sent, received) == before {
            nic.idle(None, WaitFor::Named("the other rank"));
        }
    }
    // What the other has not got yet is repaired by the interface, not by this rank; it may end.
}

fn faulty(seed: u64, faults: Faults) -> ExtollConfig {
    ExtollConfig { faults: Faults { seed, ..faults }, ..ExtollConfig::pair() }
}

#[test]
fn lost_messages_come_exactly_once_and_in_order() {
    let loss = Faults { loss: 0.1, ..Faults::default() };
    let doubling = Faults { duplication: 0.2, ..Faults::default() };
    for seed in 0..5 {
        holds(&faulty(seed, loss.clone()), Mutation::NoReplay, |nic| exchange(&nic, 700));
        holds(&faulty(seed, loss.clone()), Mutation::AnySequence, |nic| exchange(&nic, 700));
        holds(&faulty(seed, doubling.clone()), Mutation::AnySequence, |nic| exchange(&nic, 700));
    }
}

/// From the retry flag until everything has been sent again, nothing new is sent.
#[test]
fn nothing_new_is_sent_during_a_replay() {
    let report = run(&faulty(5, Faults { loss: 0.05, ..Faults::default() }), |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() == 1 {
            for number in 0..1_000_u32 {
                assert_eq!(velo.recv(None).unwrap().tag, number as u8);
            }
            return (0, 0);
        }
        let peer = velo.connect(nic.address(1).unwrap()).unwrap();
        let mut refused = 0;
        for number in 0..1_000_u32 {
            while let Err(error) = velo.send(peer, &[0; 64], number as u8, 0) {
                refused += u64::from(matches!(error, VeloError::TryAgain { replay: true, .. }));
                nic.idle(None, WaitFor::Named("the end of a replay"));
            }
        }
        (refused, nic.counters().resent)
    });
    let (refused, resent) = report.unwrap().results[0].unwrap();
    assert!(refused > 10 && resent > refused, "{refused} refused during replays, {resent} sent again");
}

#[test]
fn the_committed_count_wraps_at_eight_bits() {
    // Even where nothing is lost, the count wraps.
    for config in [ExtollConfig::pair(), faulty(1, Faults { loss: 0.05, ..Faults::default() })] {
        holds(&config, Mutation::PlainCompare, |nic| exchange(&nic, 700));
    }
}

/// Everything at once, over several links, with several ranks at each interface.
#[test]
fn all_faults_at_once_are_survived() {
    for seed in 0..10 {
        let mut config = ExtollConfig::new(8, Topology::Mesh { dims: vec![2, 2] });
        config.ranks_per_node = 2;
        config.faults = Faults {
            seed,
            loss: 0.03,
            corruption: 0.03,
            duplication: 0.03,
            delay: 0.05,
            delay_ns: 2_000.0,
            ..Faults::default()
        };
        config.adversary = AdversarialTiming { jitter_ns: 3_000.0, store_gap_ns: 50.0 };
        run(&config, |nic| traffic(&nic, 60)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// VELO and RMA traffic in a ring; every byte and every notification is accounted for.
fn traffic(nic: &Nic<'_>, rounds: u32) {
    let (velo, rma, memory) = (nic.velo(), nic.rma(), HostMemory::new(1 << 16));
    velo.open().unwrap();
    rma.open().unwrap();
    let region = rma.register(&memory, 0, 1 << 16, Access::ReadWrite).unwrap();
    let (left, right) = ((nic.rank() + nic.ranks() - 1) % nic.ranks(), (nic.rank() + 1) % nic.ranks());
    let right = nic.address(right).unwrap();
    let (page, peer) = (rma.connect(right).unwrap(), velo.connect(right).unwrap());
    let address = rma.nla(region, 0).unwrap();
    // Addresses go round first.
    velo.send(peer, &address.0.to_le_bytes(), 0, 3).unwrap();
    let there = velo.recv(Some(3)).unwrap();
    assert_eq!(nic.rank_at(there.from), Some(left));
    let back = velo.connect(there.from).unwrap();
    velo.send(back, &address.0.to_le_bytes(), 0, 2).unwrap();
    let right = u64::from_le_bytes(velo.recv(Some(2)).unwrap().data().try_into().unwrap());
    for round in 0..rounds {
        let size = round * 97 % 3000 + 1;
        let bytes = pattern(round, size as usize);
        nic.write(&memory, 0, &bytes);
        let to = extoll_sim::nic::rma::Nla(right + 8192);
        rma.post_put_bt(page, region, 0, size, to, Notify::REQUESTER | Notify::COMPLETER).unwrap();
        for _ in 0..2 {
            let event = rma.noti_get_block(None).unwrap();
            assert!(!event.error);
            rma.noti_free(event).unwrap();
        }
        let mut found = vec![0; size as usize];
        nic.read(&memory, 8192, &mut found);
        assert_eq!(found, bytes, "round {round}");
        // Read the own data back from the right, then let the left write again.
        rma.post_get_bt(page, region, 20_000, size, to, Notify::COMPLETER).unwrap();
        let event = rma.noti_get_block(None).unwrap();
        rma.noti_free(event).unwrap();
        nic.read(&memory, 20_000, &mut found);
        assert_eq!(found, bytes, "round {round} read back");
        while let Err(error) = velo.send(back, b"next", round as u8, 0) {
            assert!(matches!(error, VeloError::TryAgain { .. }), "{error}");
            nic.idle(None, WaitFor::Named("a replay to end"));
        }
        assert_eq!(velo.recv(Some(0)).unwrap().tag, round as u8);
    }
    assert_eq!(rma.noti_probe().unwrap_err(), RmaError::NoNoti);
}

#[test]
fn corruption_is_repaired_like_loss() {
    let config = faulty(9, Faults { corruption: 0.2, ..Faults::default() });
    holds(&config, Mutation::TakeSpoilt, |nic| exchange(&nic, 600));
}

#[test]
fn links_that_repair_leave_nothing_to_replay() {
    let faults = Faults { loss: 0.2, corruption: 0.1, link_retry: true, retry_ns: 500.0, ..Faults::default() };
    let report = run(&faulty(4, faults), |nic| {
        exchange(&nic, 600);
        nic.context().device(|interface, _| interface.counters().resent)
    });
    assert_eq!(report.unwrap().results, [Some(0), Some(0)]);
}

/// A whole link going down for a while is a loss like any other.
#[test]
fn a_link_that_comes_back_is_survived() {
    use fabric_sim::{FaultEvent, Scheduled};
    let schedule = vec![
        Scheduled { at_ns: 20_000.0, event: FaultEvent::LinkDown { from: 0, to: 1 } },
        Scheduled { at_ns: 900_000.0, event: FaultEvent::LinkUp { from: 0, to: 1 } },
    ];
    let report = run(&faulty(0, Faults { schedule, ..Faults::default() }), |nic| exchange(&nic, 300));
    assert!(report.unwrap().ended.0 > 900_000_000);
}

/// A sender alone with a channel that loses what a schedule says; the state machines without any simulation.
fn deliver(total: u32, losses: &[bool], bursts: bool) -> Result<Vec<u32>, TestCaseError> {
    // Packets that stand for up to 64 take as many numbers.
    let wanted = |packet: u32| if bursts { 1 + (packet * 37 % 64) as u8 } else { 1 };
    let mut counts = Vec::new();
    let (mut sender, mut receiver) = (Sender::<u32>::default(), Receiver::default());
    let (mut sent, mut got, mut step) = (0, Vec::new(), 0);
    let mut lose = || {
        step += 1;
        losses.get(step - 1).copied().unwrap_or(false)
    };
    // Each turn fills the window, lets some packets through, and ends with a timeout.
    while got.len() < total as usize || sender.uncommitted() != 0 {
        let mut wire = Vec::new();
        while sent < total {
            let count = sender.room(wanted(sent));
            if count == 0 {
                break;
            }
            wire.push((sender.push(Some(sent), count), sent));
            counts.push(count);
            sent += 1;
        }
        if wire.is_empty() {
            prop_assert!(sender.flag(), "something is uncommitted");
            wire = sender.replay().0;
            prop_assert!(wire.len() <= usize::from(WINDOW));
        }
        for (sequence, packet) in wire {
            if lose() {
                continue;
            }
            match receiver.judge(sequence, counts[packet as usize]) {
                Verdict::Take => {
                    got.push(packet);
                    receiver.commit(counts[packet as usize], 1);
                    if !lose() {
                        sender.progress(receiver.tell());
                    }
                }
                Verdict::Known | Verdict::Missing => {
                    if !lose() {
                        sender.progress(receiver.tell());
                    }
                }
                Verdict::Waiting => {}
            }
        }
    }
    Ok(got)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any subset of the first 3000 packets and reports may be lost.
    #[test]
    fn any_subset_may_be_lost(
        total in 1u32..1500, losses in prop::collection::vec(any::<bool>(), 0..3000), bursts: bool
    ) {
        let got = deliver(total, &losses, bursts)?;
        prop_assert_eq!(got, (0..total).collect::<Vec<_>>());
    }

    /// Rare losses let long windows build up.
    #[test]
    fn rare_losses_in_full_windows(
        total in 600u32..3000, every in 2usize..400, from in 0usize..300, bursts: bool
    ) {
        let losses: Vec<bool> = (0..8000).map(|step| step >= from && (step - from) % every == 0).collect();
        let got = deliver(total, &losses, bursts)?;
        prop_assert_eq!(got, (0..total).collect::<Vec<_>>());
    }
}

/// Whichever single packet is lost around the wrap, the rest of the window is sent again from there.
#[test]
fn each_loss_around_the_wrap_is_repaired() {
    for lost in 200..300 {
        let losses: Vec<bool> = (0..600).map(|step| step == 2 * lost || step == 2 * lost + 1).collect();
        assert_eq!(deliver(520, &losses, false).unwrap(), (0..520).collect::<Vec<_>>(), "losing step {lost}");
    }
}
