//! Rule 8: a notification queue that nobody drains stalls, and never loses.

use super::{holds, run};
use am_core::Span;
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::mutation::Mutation;
use extoll_sim::nic::rma::{Access, Notify, RmaError};
use extoll_sim::{ExtollConfig, Nic};
use fabric_sim::{Faults, Topology, WaitFor};

/// Everyone notifies rank 0, which looks away until its queue is long full.
fn undrained(nic: &Nic<'_>, each: u64) {
    let rma = nic.rma();
    rma.open().unwrap();
    if nic.rank() != 0 {
        let peer = rma.connect(nic.address(0).unwrap()).unwrap();
        for number in 0..each {
            while let Err(error) = rma.post_notification(peer, number, nic.rank() as u8, Notify::COMPLETER) {
                assert!(matches!(error, RmaError::NoDescMem { .. }), "{error}");
                nic.idle(None, WaitFor::Named("a descriptor"));
            }
        }
        return;
    }
    nic.charge(Span::from_millis(50));
    let mut next = vec![0; nic.ranks() as usize];
    for _ in 0..each * u64::from(nic.ranks() - 1) {
        let came = rma.noti_get_block(None).unwrap();
        let from = nic.rank_at(came.partner).unwrap() as usize;
        assert_eq!((came.value, usize::from(came.class)), (next[from], from), "notifications of rank {from}");
        next[from] += 1;
        rma.noti_free(came).unwrap();
    }
    assert_eq!(rma.noti_probe().unwrap_err(), RmaError::NoNoti);
}

fn small(entries: u32) -> ExtollConfig {
    let mut config = ExtollConfig::new(4, Topology::Crossbar { nodes: 4 });
    config.parameters.rma.notifications = entries;
    config.parameters.rma.descriptors = 16;
    config
}

#[test]
fn a_full_queue_stalls_and_loses_nothing() {
    for entries in [1, 2, 7, 64] {
        holds(&small(entries), Mutation::DropNotifications, |nic| undrained(&nic, 500));
    }
    let faults = Faults { seed: 2, loss: 0.05, ..Faults::default() };
    run(&ExtollConfig { faults, ..small(16) }, |nic| undrained(&nic, 500)).unwrap();
}

/// With the size of the sheet: 16,384 entries.
#[test]
fn the_queue_has_16384_entries() {
    let config = ExtollConfig::new(4, Topology::Crossbar { nodes: 4 });
    holds(&config, Mutation::DropNotifications, |nic| undrained(&nic, 6_000));
}

/// While the queue is full, what comes behind waits: the memory that a later put writes, and the process's own
/// commands.
#[test]
fn a_stalled_process_neither_writes_nor_sends() {
    let mut config = ExtollConfig::pair();
    config.parameters.rma.notifications = 2;
    let outcome = run(&config, |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(4096));
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 4096, Access::ReadWrite).unwrap();
        let to = rma.nla(region, 0).unwrap();
        let peer = rma.connect(nic.address(1 - nic.rank()).unwrap()).unwrap();
        if nic.rank() == 0 {
            (0..3).for_each(|number| rma.post_notification(peer, number, 0, Notify::COMPLETER).unwrap());
            rma.post_immediate_put(peer, 5, 8, to, Notify::NONE).unwrap();
            nic.idle(Some(nic.now() + Span::from_millis(9)), WaitFor::Named("a while"));
            assert_eq!(memory.word(0), 0, "the other's put is held back");
            nic.idle(Some(nic.now() + Span::from_millis(9)), WaitFor::Named("the other's put"));
            nic.sync();
            assert_eq!(memory.word(0), 6);
            return;
        }
        nic.charge(Span::from_millis(5));
        nic.sync();
        rma.post_immediate_put(peer, 6, 8, to, Notify::NONE).unwrap();
        nic.charge(Span::from_millis(5));
        nic.sync();
        assert_eq!(memory.word(0), 0, "a put behind the third notification waits");
        let first = rma.noti_get_block(None).unwrap();
        rma.noti_free(first).unwrap();
        nic.sync();
        assert_eq!(memory.word(0), 5);
        for _ in 0..2 {
            let next = rma.noti_get_block(None).unwrap();
            rma.noti_free(next).unwrap();
        }
    });
    outcome.unwrap();
}

/// Entries are given back in any order; one that is kept blocks those behind it only when the ring has come round.
#[test]
fn a_notification_that_is_kept_stalls_in_the_end() {
    let mut config = ExtollConfig::pair();
    config.parameters.rma.notifications = 8;
    let outcome = run(&config, |nic| {
        let rma = nic.rma();
        rma.open().unwrap();
        if nic.rank() == 0 {
            let peer = rma.connect(nic.address(1).unwrap()).unwrap();
            (0..20).for_each(|number| rma.post_notification(peer, number, 0, Notify::COMPLETER).unwrap());
            return 0;
        }
        let kept = rma.noti_get_block(None).unwrap();
        for _ in 1..8 {
            let next = rma.noti_get_block(None).unwrap();
            rma.noti_free(next).unwrap();
        }
        let late = nic.now() + Span::from_millis(1);
        assert_eq!(rma.noti_get_block(Some(late)).unwrap_err(), RmaError::PollExceeded);
        rma.noti_free(kept).unwrap();
        (8..20).for_each(|number| {
            let next = rma.noti_get_block(None).unwrap();
            assert_eq!(next.value, number);
            rma.noti_free(next).unwrap();
        });
        1
    });
    assert_eq!(outcome.unwrap().results, [Some(0), Some(1)]);
}
