//! Control packets: NACK, FULL, contexts.

use am_core::PeerStatus;
use exanet_sim::nic::{Address, Nack, PacketError};
use exanet_sim::{ExanetConfig, Nic};
use fabric_sim::WaitFor;

fn pair(change: impl FnOnce(&mut ExanetConfig)) -> ExanetConfig {
    let mut machine = ExanetConfig::pair();
    change(&mut machine);
    machine
}

/// Waits until a channel is refused or free.
fn settled(nic: &Nic<'_>, channel: u32) -> bool {
    loop {
        let channels = nic.pkt_channels();
        if channels.busy & 1 << channel == 0 {
            return channels.refused & 1 << channel == 0;
        }
        nic.charge_empty_poll();
        nic.sync();
    }
}

/// A full mailbox refuses; what was refused stays with the sender and comes when there is room.
#[test]
fn a_full_mailbox_pushes_back() {
    let machine = pair(|machine| machine.parameters.packetizer.mailbox = 2);
    let report = exanet_sim::run(&machine, |nic| {
        nic.open();
        nic.sync();
        let mut found = Vec::new();
        if nic.rank() == 0 {
            let to = nic.address(1).unwrap();
            let channels = [1u8, 2, 3].map(|byte| nic.pkt_send(to, &[byte]).unwrap());
            let taken = channels.map(|channel| settled(&nic, channel));
            assert_eq!(taken, [true, true, false]);
            while nic.pkt_channels().refused != 0 {
                nic.pkt_retry(channels[2]).unwrap();
                settled(&nic, channels[2]);
            }
            return (found, nic.counters().refused);
        }
        nic.charge(am_core::Span::from_micros(20));
        while found.len() < 3 {
            nic.idle(None, WaitFor::Arrival);
            found.extend(std::iter::from_fn(|| nic.mbox_poll()).map(|message| message.data()[0]));
        }
        (found, nic.counters().refused)
    });
    let results = report.unwrap().results;
    let (found, refused) = results[1].clone().unwrap();
    assert_eq!(found, [1, 2, 3]);
    assert!(refused >= 1);
}

/// A context has so many channels; the next packet is refused at once, and the rank woken when one is free.
#[test]
fn a_sender_without_channels_is_full() {
    let machine = pair(|machine| machine.parameters.packetizer.channels = 2);
    let report = exanet_sim::run(&machine, |nic| {
        nic.open();
        nic.sync();
        if nic.rank() == 0 {
            let to = nic.address(1).unwrap();
            assert_eq!([(); 2].map(|()| nic.pkt_send(to, &[0; 64]).unwrap()), [0, 1]);
            let full = nic.pkt_send(to, &[0; 64]).unwrap_err();
            assert_eq!(full, PacketError::Full { busy: 2, channels: 2, under_way: 2 });
            let began = nic.now();
            nic.idle(None, WaitFor::Named("a channel"));
            assert!(nic.now() > began && nic.pkt_send(to, &[0; 64]).is_ok());
        }
    });
    report.unwrap();
}

/// What nobody can take is refused by name.
#[test]
fn packets_that_cannot_be_sent_are_refused() {
    let report = exanet_sim::run(&ExanetConfig::pair(), |nic| {
        if nic.rank() == 1 {
            return;
        }
        let (to, nowhere) = (nic.address(1).unwrap(), Address { node: 9, context: 0 });
        assert_eq!(nic.pkt_send(to, &[]), Err(PacketError::NotOpen));
        nic.open();
        assert_eq!(nic.pkt_send(to, &[0; 65]), Err(PacketError::TooLong { len: 65 }));
        assert_eq!(nic.pkt_send(nowhere, &[]), Err(PacketError::NoProcess(nowhere)));
        assert_eq!(nic.pkt_cancel(0), Err(PacketError::NotRefused(0)));
        // The other process never opens its context.
        let channel = nic.pkt_send(to, &[1]).unwrap();
        assert!(!settled(&nic, channel));
        assert_eq!(nic.pkt_cancel(channel), Ok(Nack::NoContext));
        assert_eq!(nic.pkt_channels(), Default::default());
    });
    report.unwrap();
}

/// A process that leaves has its packets delivered by its interface, also those that are refused at first.
#[test]
fn packets_of_who_has_left_arrive() {
    let machine = pair(|machine| machine.parameters.packetizer.mailbox = 1);
    let report = exanet_sim::run(&machine, |nic| {
        nic.open();
        nic.sync();
        if nic.rank() == 0 {
            let to = nic.address(1).unwrap();
            for byte in 0..4 {
                nic.pkt_send(to, &[byte]).unwrap();
            }
            nic.depart(PeerStatus::Finished);
            return 0;
        }
        nic.charge(am_core::Span::from_micros(50));
        let mut found = 0;
        while nic.context().status(0) == PeerStatus::Active {
            while nic.mbox_poll().is_some() {
                found += 1;
            }
            nic.idle(None, WaitFor::From(0));
        }
        while nic.mbox_poll().is_some() {
            found += 1;
        }
        found
    });
    assert_eq!(report.unwrap().results[1], Some(4));
}
