//! Rule 8 on Portals 4: a portal table entry with flow control loses nothing, takes nothing twice, and lets order
//! be kept. Rule 7 without flow control: what is written over is told.

use super::{holds, run};
use am_core::Span;
use fabric_sim::{Faults, WaitFor};
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::Mutation;
use portals_sim::nic::p4::{
    Ack, EqHandle, EventKind, List, Md, MdHandle, MdOptions, Me, MeOptions, NiFail, P4, P4Error, PtOptions, Put,
    Region, Target,
};
use portals_sim::{AdversarialTiming, Nic, PortalsConfig};

const PT: u32 = 3;
const MESSAGES: u64 = 30;
const BYTES: u32 = 64;
const BUFFER: usize = 512;

fn pause(nic: &Nic<'_>, micros: u64) {
    let until = nic.now() + Span::from_micros(micros);
    while nic.now() < until {
        nic.idle(Some(until), WaitFor::Named("a pause"));
    }
}

fn send(nic: &Nic<'_>, p4: &P4<'_>, md: MdHandle, number: u64) {
    let target = Target { process: nic.id(0).unwrap().into(), pt_index: PT, match_bits: 0, offset: 0 };
    let from = Region { md, offset: 0 };
    p4.put(&Put { from, length: BYTES, ack: Ack::Request, target, user_ptr: number, hdr_data: number }).unwrap();
}

/// Sends numbered messages, with so many under way, and sends again what is refused. Returns how many were.
fn sender(nic: &Nic<'_>, p4: &P4<'_>, window: u64) -> u64 {
    let memory = HostMemory::new(BYTES as usize);
    memory.write(0, &[nic.rank() as u8; BYTES as usize]);
    let eq = p4.eq_alloc(64).unwrap();
    let options = MdOptions::EVENT_SEND_DISABLE;
    let md = p4.md_bind(&Md { options, eq: Some(eq), ..Md::new(&memory) }).unwrap();
    nic.launched();
    let (mut next, mut under_way, mut done, mut refused) = (0, 0, 0, 0);
    while done < MESSAGES {
        while next < MESSAGES && under_way < window {
            send(nic, p4, md, next);
            (next, under_way) = (next + 1, under_way + 1);
        }
        let ack = p4.eq_wait(eq, None).unwrap();
        assert_eq!(ack.kind, EventKind::Ack);
        if ack.ni_fail == NiFail::PtDisabled {
            refused += 1;
            pause(nic, 20);
            send(nic, p4, md, ack.user_ptr);
            continue;
        }
        assert_eq!((ack.ni_fail, ack.mlength), (NiFail::Ok, BYTES));
        (done, under_way) = (done + 1, under_way - 1);
    }
    p4.md_release(md).unwrap();
    refused
}

/// Takes all messages slowly, from a queue and buffers that are too small for all that come; enables the
/// portal table entry again when it has disabled itself.
fn receiver(nic: &Nic<'_>, p4: &P4<'_>, ordered: bool) -> u64 {
    let eq = p4.eq_alloc(12).unwrap();
    p4.pt_alloc(PtOptions::FLOWCTRL, Some(eq), Some(PT)).unwrap();
    let memory = HostMemory::new(2 * BUFFER);
    let append = |which: u64| {
        let options = MeOptions::OP_PUT | MeOptions::MANAGE_LOCAL | MeOptions::EVENT_LINK_DISABLE;
        let me = Me {
            start: which as usize * BUFFER,
            length: BUFFER,
            min_free: BYTES as usize,
            ..Me::new(&memory, options, 0, u64::MAX)
        };
        p4.me_append(PT, &me, List::Priority, which).unwrap();
    };
    append(0);
    append(1);
    nic.launched();
    let senders = nic.ranks() - 1;
    let mut seen = vec![vec![0u32; MESSAGES as usize]; nic.ranks() as usize];
    let mut next = vec![0; nic.ranks() as usize];
    let (mut left, mut disabled, mut used) = (u64::from(senders) * MESSAGES, 0, Vec::new());
    while left != 0 {
        // It computes for a while, takes what has come, and gives the buffers that are full back.
        pause(nic, 60);
        let mut enable = false;
        loop {
            match p4.eq_get(eq) {
                Ok(event) if event.kind == EventKind::Put => {
                    let (from, number) = (nic.rank_of(event.initiator).unwrap() as usize, event.hdr_data);
                    let mut bytes = [0; BYTES as usize];
                    nic.read(&memory, event.start as usize, &mut bytes);
                    assert!(bytes.iter().all(|byte| *byte == from as u8), "what rank {from} has sent is there");
                    seen[from][number as usize] += 1;
                    assert!(!ordered || number == next[from], "messages of rank {from} are in order");
                    next[from] += 1;
                    left -= 1;
                }
                Ok(event) if event.kind == EventKind::AutoUnlink => used.push(event.user_ptr),
                Ok(event) if event.kind == EventKind::PtDisabled => {
                    (disabled, enable) = (disabled + 1, true);
                }
                Ok(event) if event.kind == EventKind::AutoFree => {}
                Err(P4Error::EqEmpty) => break,
                other => panic!("with flow control nothing is lost, but the queue says {other:?}"),
            }
        }
        used.drain(..).for_each(append);
        if enable {
            p4.pt_enable(PT).unwrap();
        }
    }
    let twice = seen.iter().flatten().filter(|count| **count > 1).count();
    assert_eq!(twice, 0, "no message is taken twice");
    assert_eq!(p4.status().unwrap().events_lost, 0);
    disabled
}

fn incast(nic: &Nic<'_>, window: u64) -> u64 {
    let p4 = nic.p4();
    p4.init(None).unwrap();
    if nic.rank() == 0 {
        let disabled = receiver(nic, &p4, window == 1);
        assert!(disabled > 1, "the test wants the entry to disable itself, more than once");
        return disabled;
    }
    sender(nic, &p4, window)
}

#[test]
fn a_disabled_entry_loses_nothing_and_takes_nothing_twice() {
    let adversarial = AdversarialTiming { jitter_ns: 15_000.0, late_read: true };
    for adversary in [AdversarialTiming::default(), adversarial] {
        let faults =
            Faults { seed: 3, loss: 0.03, retry_ns: 700.0, delay: 0.1, delay_ns: 5_000.0, ..Faults::default() };
        let config = PortalsConfig { adversary, faults, ..portals_sim::xt4(8) };
        for window in [1, 8] {
            for mutation in [Mutation::TakeAndRefuse, Mutation::RefuseSilently, Mutation::NeverDisable] {
                holds(&config, mutation, move |nic| incast(&nic, window));
            }
        }
        for seed in 0..10 {
            let faults = Faults { seed, ..config.faults.clone() };
            let report = run(&PortalsConfig { faults, ..config.clone() }, |nic| incast(&nic, 8));
            let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let refused: u64 = report.results[1..].iter().flatten().sum();
            assert!(refused > 10, "{refused} messages were refused with seed {seed}");
        }
    }
}

/// While an entry is disabled it takes nothing, whoever disabled it.
#[test]
fn an_entry_is_disabled_until_it_is_enabled() {
    run(&PortalsConfig::pair(), |nic| {
        let p4 = nic.p4();
        p4.init(None).unwrap();
        let (eq, memory) = (p4.eq_alloc(64).unwrap(), HostMemory::new(4096));
        p4.pt_alloc(PtOptions::ALLOC_DISABLED, Some(eq), Some(PT)).unwrap();
        let options = MeOptions::OP_PUT | MeOptions::EVENT_LINK_DISABLE;
        p4.me_append(PT, &Me::new(&memory, options, 0, 0), List::Priority, 0).unwrap();
        let md = MdOptions::EVENT_SEND_DISABLE;
        let md = p4.md_bind(&Md { options: md, eq: Some(eq), ..Md::new(&memory) }).unwrap();
        nic.launched();
        if nic.rank() == 0 {
            for slot in 0..6u64 {
                pause(&nic, 100);
                if slot % 2 == 0 { p4.pt_enable(PT).unwrap() } else { p4.pt_disable(PT).unwrap() }
            }
            return;
        }
        pause(&nic, 50);
        for slot in 0..6 {
            send(&nic, &p4, md, slot);
            let expected = if slot % 2 == 0 { NiFail::PtDisabled } else { NiFail::Ok };
            assert_eq!(p4.eq_wait(eq, None).unwrap().ni_fail, expected, "slot {slot}");
            pause(&nic, 100 - (nic.now().0 / 1_000_000 + 50) % 100);
        }
    })
    .unwrap();
}

/// Without flow control the oldest events are written over, and the loss is told.
fn overwritten(nic: &Nic<'_>) {
    let p4 = nic.p4();
    p4.init(None).unwrap();
    let (eq, memory): (EqHandle, _) = (p4.eq_alloc(4).unwrap(), HostMemory::new(4096));
    p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
    let options = MeOptions::OP_PUT | MeOptions::EVENT_LINK_DISABLE;
    p4.me_append(PT, &Me::new(&memory, options, 0, 0), List::Priority, 0).unwrap();
    let md = p4.md_bind(&Md::new(&memory)).unwrap();
    nic.launched();
    if nic.rank() == 1 {
        (0..10).for_each(|number| send(nic, &p4, md, number));
        return;
    }
    pause(nic, 300);
    match p4.eq_get(eq) {
        Err(error @ P4Error::EqDropped { event, lost }) => {
            assert_eq!((event.hdr_data, lost, error.code()), (6, 6, "PTL_EQ_DROPPED"));
        }
        other => panic!("the loss of six events is told as {other:?}"),
    }
    assert_eq!([(); 3].map(|()| p4.eq_get(eq).unwrap().hdr_data), [7, 8, 9]);
    assert_eq!((p4.eq_get(eq), p4.status().unwrap().events_lost), (Err(P4Error::EqEmpty), 6));
}

#[test]
fn what_is_written_over_is_told() {
    holds(&PortalsConfig::pair(), Mutation::HideLostEvents, |nic| overwritten(&nic));
}
