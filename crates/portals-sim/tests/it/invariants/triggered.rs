//! Rule 9: triggered operations fire once, in the order of their thresholds.

use super::{holds, run};
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::Mutation;
use portals_sim::nic::p4::{
    Ack, Command, CtEvent, CtHandle, List, Md, MdHandle, MdOptions, Me, MeOptions, P4, PtOptions, Put, Region,
    Target,
};
use portals_sim::{Nic, PortalsConfig};

const PT: u32 = 0;

fn opened<'a>(nic: &Nic<'a>) -> (P4<'a>, HostMemory) {
    let (p4, memory) = (nic.p4(), HostMemory::new(4096));
    p4.init(None).unwrap();
    (p4, memory)
}

fn put(nic: &Nic<'_>, md: MdHandle, to: u32, number: u64) -> Put {
    let target = Target { process: nic.id(to).unwrap().into(), pt_index: PT, match_bits: 0, offset: 0 };
    Put { from: Region { md, offset: 0 }, length: 8, ack: Ack::None, target, user_ptr: 0, hdr_data: number }
}

/// Rank 0 makes triggered puts in some order of thresholds, then lets its counter move; what rank 1 sees is in the
/// order of the thresholds, each once.
fn by_threshold(nic: &Nic<'_>) {
    let (p4, memory) = opened(nic);
    let thresholds = [7u64, 3, 9, 3, 1, 8, 20, 2];
    if nic.rank() == 1 {
        let eq = p4.eq_alloc(64).unwrap();
        p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
        let options = MeOptions::OP_PUT | MeOptions::EVENT_LINK_DISABLE;
        p4.me_append(PT, &Me::new(&memory, options, 0, 0), List::Priority, 0).unwrap();
        nic.launched();
        let mut order: Vec<u64> = (0..thresholds.len() as u64).collect();
        order.sort_by_key(|number| thresholds[*number as usize]);
        // The one with threshold 20 never fires.
        let found: Vec<u64> = order[1..].iter().map(|_| p4.eq_wait(eq, None).unwrap().hdr_data).collect();
        assert_eq!(found, order[..order.len() - 1]);
        let until = nic.now() + am_core::Span::from_micros(200);
        assert!(p4.eq_wait(eq, Some(until)).is_err(), "nothing fires twice");
        return;
    }
    let md = p4.md_bind(&Md::new(&memory)).unwrap();
    let ct = p4.ct_alloc().unwrap();
    nic.launched();
    for (number, threshold) in thresholds.into_iter().enumerate() {
        p4.triggered(&Command::Put(put(nic, md, 1, number as u64)), ct, threshold).unwrap();
    }
    // Step by step, by a leap, and back.
    p4.ct_inc(ct, CtEvent::success(1)).unwrap();
    p4.ct_inc(ct, CtEvent { success: 0, failure: 1 }).unwrap();
    p4.ct_set(ct, CtEvent::success(9)).unwrap();
    p4.ct_set(ct, CtEvent::success(0)).unwrap();
    p4.ct_inc(ct, CtEvent::success(9)).unwrap();
    assert_eq!(p4.status().unwrap().triggered, 7);
    assert_eq!(p4.ct_cancel_triggered(ct), Ok(1));
}

#[test]
fn triggered_operations_fire_once_in_order() {
    for mutation in [Mutation::TriggerInOrderOfMaking, Mutation::TriggerAgain] {
        holds(&PortalsConfig::pair(), mutation, |nic| by_threshold(&nic));
    }
}

/// A command that moves its own counter lets what follows fire in its turn.
fn cascade(nic: &Nic<'_>) {
    let (p4, _) = opened(nic);
    let ct = p4.ct_alloc().unwrap();
    let log: CtHandle = p4.ct_alloc().unwrap();
    let note = |digit| Command::CtSet(log, CtEvent::success(digit));
    // Each sets the log, so that its last value tells who came last; counting shows that all came.
    p4.triggered(&Command::CtInc(ct, CtEvent::success(5)), ct, 1).unwrap();
    p4.triggered(&note(3), ct, 3).unwrap();
    p4.triggered(&note(2), ct, 2).unwrap();
    p4.triggered(&note(6), ct, 6).unwrap();
    p4.ct_inc(ct, CtEvent::success(1)).unwrap();
    assert_eq!((p4.ct_get(ct), p4.ct_get(log)), (Ok(CtEvent::success(6)), Ok(CtEvent::success(6))));
    assert_eq!(p4.status().unwrap().triggered, 4);
    // Whose threshold is reached already fires at once.
    p4.triggered(&note(9), ct, 6).unwrap();
    assert_eq!(p4.ct_get(log), Ok(CtEvent::success(9)));
}

#[test]
fn commands_that_move_counters_take_their_turn() {
    run(&portals_sim::xt4(1), |nic| cascade(&nic)).unwrap();
}

/// A barrier made of triggered operations: the interfaces do it, whatever the processors do.
#[test]
fn interfaces_alone_make_a_barrier() {
    let config = portals_sim::xt4(16);
    let report = run(&config, |nic| {
        let (p4, memory) = opened(&nic);
        let arrived: Vec<CtHandle> = (0..4).map(|_| p4.ct_alloc().unwrap()).collect();
        for (round, ct) in arrived.iter().enumerate() {
            p4.pt_alloc(PtOptions::NONE, None, Some(round as u32)).unwrap();
            let options = MeOptions::OP_PUT | MeOptions::EVENT_CT_COMM;
            let me = Me { ct: Some(*ct), ..Me::new(&memory, options, 0, 0) };
            p4.me_append(round as u32, &me, List::Priority, 0).unwrap();
        }
        let md = p4.md_bind(&Md { options: MdOptions::EVENT_SEND_DISABLE, ..Md::new(&memory) }).unwrap();
        nic.launched();
        let to = |round: u32| (nic.rank() + (1 << round)) % 16;
        let send = |round: u32| {
            let put = put(&nic, md, to(round), 0);
            Put { target: Target { pt_index: round, ..put.target }, length: 0, ..put }
        };
        // Each round but the first begins when the one before has brought its message and been sent itself.
        for round in 1..4 {
            p4.triggered(&Command::Put(send(round)), arrived[round as usize - 1], 2).unwrap();
            let own = Command::CtInc(arrived[round as usize], CtEvent::success(1));
            p4.triggered(&own, arrived[round as usize - 1], 2).unwrap();
        }
        // Rank 5 is late.
        if nic.rank() == 5 {
            nic.charge(am_core::Span::from_millis(1));
        }
        let entered = nic.now();
        p4.put(&send(0)).unwrap();
        p4.ct_inc(arrived[0], CtEvent::success(1)).unwrap();
        p4.ct_wait(arrived[3], 2).unwrap();
        (entered, nic.now())
    });
    let times: Vec<_> = report.unwrap().results.into_iter().flatten().collect();
    let last = times.iter().map(|(entered, _)| *entered).max().unwrap();
    assert!(times.iter().all(|(_, left)| *left >= last), "nobody leaves before the last has come");
}

/// A count of sends comes when the bytes have been read, not before.
#[test]
fn counts_come_at_their_time() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(1 << 20));
        p4.init(None).unwrap();
        let ct = p4.ct_alloc().unwrap();
        let options = MdOptions::EVENT_CT_SEND | MdOptions::EVENT_CT_BYTES;
        let md = p4.md_bind(&Md { options, ct: Some(ct), ..Md::new(&memory) }).unwrap();
        let began = nic.now();
        p4.put(&Put { length: 1 << 20, ..put(&nic, md, 1 - nic.rank(), 0) }).unwrap();
        assert_eq!(p4.ct_get(ct), Ok(CtEvent::default()));
        let value = p4.ct_wait(ct, 1).unwrap();
        assert_eq!(value, CtEvent::success(1 << 20));
        nic.now().since(began).0 / 1_000_000
    });
    let took = report.unwrap().results[0].unwrap();
    assert!((636..645).contains(&took), "a mebibyte is read at 1650 MB/s in {took} us");
}

/// A triggered command whose descriptor is gone when its time comes is dropped and counted.
#[test]
fn what_cannot_be_executed_any_more_is_dropped() {
    run(&PortalsConfig::pair(), |nic| {
        let (p4, memory) = opened(&nic);
        let (ct, md) = (p4.ct_alloc().unwrap(), p4.md_bind(&Md::new(&memory)).unwrap());
        p4.triggered(&Command::Put(put(&nic, md, 0, 0)), ct, 1).unwrap();
        p4.md_release(md).unwrap();
        p4.ct_inc(ct, CtEvent::success(1)).unwrap();
        assert_eq!(p4.status().unwrap().dropped, 1);
    })
    .unwrap();
}
