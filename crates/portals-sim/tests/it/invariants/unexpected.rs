//! Rules 1 to 3 on Portals 4: the priority list before the overflow list, first match in each; unexpected headers
//! in order; locally managed buffers; truncation.

use super::holds;
use fabric_sim::Faults;
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::Mutation;
use portals_sim::nic::p4::{
    Ack, EqHandle, Event, EventKind, List, Md, MdHandle, MdOptions, Me, MeOptions, P4, PtOptions, Put, Region,
    Target,
};
use portals_sim::{AdversarialTiming, Nic, PortalsConfig};

const PT: u32 = 1;
const QUIET: MeOptions = MeOptions::EVENT_LINK_DISABLE;

fn opened<'a>(nic: &Nic<'a>) -> (P4<'a>, HostMemory, EqHandle, MdHandle) {
    let (p4, memory) = (nic.p4(), HostMemory::new(4096));
    p4.init(None).unwrap();
    let eq = p4.eq_alloc(1024).unwrap();
    p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
    let options = MdOptions::EVENT_SEND_DISABLE;
    let md = p4.md_bind(&Md { options, eq: Some(eq), ..Md::new(&memory) }).unwrap();
    (p4, memory, eq, md)
}

fn send(nic: &Nic<'_>, p4: &P4<'_>, md: MdHandle, match_bits: u64, length: u32, hdr_data: u64) {
    let target = Target { process: nic.id(0).unwrap().into(), pt_index: PT, match_bits, offset: 0 };
    let from = Region { md, offset: 0 };
    p4.put(&Put { from, length, ack: Ack::Request, target, user_ptr: 0, hdr_data }).unwrap();
}

fn next(p4: &P4<'_>, eq: EqHandle) -> Event {
    p4.eq_wait(eq, None).unwrap()
}

/// Messages before and after the entries that want them.
fn lists_in_order(nic: &Nic<'_>) {
    let (p4, memory, eq, md) = opened(nic);
    if nic.rank() == 1 {
        nic.launched();
        for (number, bits) in [1, 2, 1, 3, 1].into_iter().enumerate() {
            send(nic, &p4, md, bits, 8, number as u64);
        }
        (0..5).for_each(|_| assert_eq!(next(&p4, eq).kind, EventKind::Ack));
        return;
    }
    let append = |list, bits, ignore, options, number| {
        let me = Me::new(&memory, options | QUIET | MeOptions::OP_PUT, bits, ignore);
        p4.me_append(PT, &me, list, number).unwrap();
    };
    append(List::Overflow, 0, u64::MAX, MeOptions::MANAGE_LOCAL, 100);
    append(List::Overflow, 1, 0, MeOptions::NONE, 101);
    append(List::Priority, 3, 0, MeOptions::NONE, 3);
    append(List::Priority, 0, 3, MeOptions::USE_ONCE, 4);
    nic.launched();
    let told = |event: Event| (event.kind, event.list, event.user_ptr, event.hdr_data);
    // The first goes to the entry that is used once, the fourth to its own, the others are unexpected.
    let expected = [
        (EventKind::Put, List::Priority, 4, 0),
        (EventKind::AutoUnlink, List::Priority, 4, 0),
        (EventKind::Put, List::Overflow, 100, 1),
        (EventKind::Put, List::Overflow, 100, 2),
        (EventKind::Put, List::Priority, 3, 3),
        (EventKind::Put, List::Overflow, 100, 4),
    ];
    for event in expected {
        assert_eq!(told(next(&p4, eq)), event);
    }
    assert_eq!(p4.status().unwrap().unexpected, 3);
    // Who comes later finds them, the oldest first.
    append(List::Priority, 1, 0, MeOptions::USE_ONCE, 5);
    assert_eq!(told(next(&p4, eq)), (EventKind::PutOverflow, List::Overflow, 5, 2));
    assert_eq!(next(&p4, eq).kind, EventKind::AutoUnlink);
    append(List::Priority, 0, u64::MAX, MeOptions::NONE, 6);
    assert_eq!(told(next(&p4, eq)), (EventKind::PutOverflow, List::Overflow, 6, 1));
    assert_eq!(told(next(&p4, eq)), (EventKind::PutOverflow, List::Overflow, 6, 4));
    assert_eq!(p4.status().unwrap().unexpected, 0);
}

#[test]
fn priority_comes_before_overflow() {
    for mutation in [Mutation::OverflowFirst, Mutation::LastMatch, Mutation::ForgetUnexpected] {
        holds(&PortalsConfig::pair(), mutation, |nic| lists_in_order(&nic));
    }
}

/// Everyone sends to rank 0, whose buffers follow each other: nothing overlaps, each goes when less than
/// `min_free` is left, says so after its last message, and is appended again.
fn buffers(nic: &Nic<'_>) {
    const SIZE: usize = 512;
    const LEAST: usize = 100;
    const EACH: u64 = 30;
    let (p4, memory, eq, md) = opened(nic);
    if nic.rank() != 0 {
        nic.launched();
        memory.write(0, &[nic.rank() as u8; LEAST]);
        for number in 0..EACH {
            send(nic, &p4, md, 0, (number as u32 * 29 + nic.rank() * 7) % LEAST as u32 + 1, number);
            assert_eq!(next(&p4, eq).mlength, (number as u32 * 29 + nic.rank() * 7) % LEAST as u32 + 1);
        }
        return;
    }
    let append = |which: u64| {
        let (start, options) =
            (which as usize * SIZE, MeOptions::OP_PUT | MeOptions::MANAGE_LOCAL | MeOptions::NO_TRUNCATE);
        let me = Me { start, length: SIZE, min_free: LEAST, ..Me::new(&memory, options | QUIET, 0, u64::MAX) };
        p4.me_append(PT, &me, List::Priority, which).unwrap();
    };
    (0..8).for_each(append);
    nic.launched();
    let (mut left, mut used, mut expected, mut current) = (EACH * u64::from(nic.ranks() - 1), 0, [0; 8], 0);
    while left != 0 {
        let event = next(&p4, eq);
        assert_eq!(event.user_ptr, current, "buffers are used one after the other");
        if event.kind == EventKind::AutoUnlink {
            assert!(
                SIZE - used < LEAST,
                "it goes when less than {LEAST} bytes are left, not with {}",
                SIZE - used
            );
            append(current);
            (current, used) = ((current + 1) % 8, 0);
            continue;
        }
        assert!(SIZE - used >= LEAST, "one with only {} bytes left takes nothing", SIZE - used);
        assert_eq!(event.start, current * SIZE as u64 + used as u64, "messages lie one behind the other");
        let mut bytes = vec![0; event.mlength as usize];
        nic.read(&memory, event.start as usize, &mut bytes);
        let from = nic.rank_of(event.initiator).unwrap() as usize;
        assert!(bytes.iter().all(|byte| *byte == from as u8));
        assert_eq!(event.hdr_data, expected[from], "each sender's messages are in order");
        (expected[from], used, left) = (expected[from] + 1, used + bytes.len(), left - 1);
    }
}

#[test]
fn locally_managed_entries_fill_without_overlap() {
    let adversarial = AdversarialTiming { jitter_ns: 20_000.0, late_read: true };
    let faults =
        Faults { seed: 5, loss: 0.05, delay: 0.1, delay_ns: 9_000.0, retry_ns: 800.0, ..Faults::default() };
    let config = PortalsConfig { adversary: adversarial, faults, ..portals_sim::xt4(8) };
    for mutation in [Mutation::HalfOffset, Mutation::NoMaxSize] {
        holds(&config, mutation, |nic| buffers(&nic));
    }
}

/// Messages that are too long are cut off; both sides learn both lengths.
fn truncation(nic: &Nic<'_>) {
    let (p4, memory, eq, md) = opened(nic);
    if nic.rank() == 0 {
        let me = Me { length: 100, ..Me::new(&memory, MeOptions::OP_PUT | QUIET, 0, 0) };
        p4.me_append(PT, &me, List::Priority, 0).unwrap();
    }
    nic.launched();
    if nic.rank() == 1 {
        memory.write(0, &[7; 4096]);
        send(nic, &p4, md, 0, 100, 0);
        send(nic, &p4, md, 0, 101, 0);
    }
    for rlength in [100, 101] {
        let event = next(&p4, eq);
        assert_eq!((event.rlength, event.mlength), (rlength, 100));
    }
    if nic.rank() == 0 {
        assert_eq!(memory.word(96), 0x0707_0707, "nothing is written behind the entry");
    }
}

#[test]
fn truncation_tells_both_lengths() {
    holds(&PortalsConfig::pair(), Mutation::HideTruncation, |nic| truncation(&nic));
}
