//! Rules 1 to 3 on Portals 3.3: first-match order; the local offset, and when a descriptor goes; truncation.

use super::{holds, run};
use fabric_sim::Faults;
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::Mutation;
use portals_sim::nic::p3::{
    Ack, Criteria, EqHandle, Event, EventKind, Md, MdHandle, Options, P3, Position, Threshold, Unlink,
};
use portals_sim::{AdversarialTiming, Nic, PortalsConfig};

const QUIET: Options = Options::EVENT_START_DISABLE;

fn opened<'a>(nic: &Nic<'a>) -> (P3<'a>, EqHandle, HostMemory) {
    let (p3, memory) = (nic.p3(), HostMemory::new(4096));
    p3.init().unwrap();
    let eq = p3.eq_alloc(1024).unwrap();
    (p3, eq, memory)
}

fn attach(p3: &P3<'_>, criteria: Criteria, md: &Md, unlink: Unlink) -> MdHandle {
    let me = p3.me_attach(1, criteria, Unlink::Unlink, Position::After).unwrap();
    p3.md_attach(me, md, unlink).unwrap()
}

/// The next event of a kind.
fn next(p3: &P3<'_>, eq: EqHandle, kind: EventKind) -> Event {
    loop {
        let event = p3.eq_wait(eq, None).unwrap();
        if event.kind == kind {
            return event;
        }
    }
}

/// Several entries fit a message; the first whose descriptor accepts it takes it, until that is used up.
fn first_match(nic: &Nic<'_>) {
    let (p3, eq, memory) = opened(nic);
    let take = |user_ptr, threshold, options| Md {
        user_ptr,
        threshold,
        eq: Some(eq),
        ..Md::new(&memory, QUIET | options)
    };
    let any = Criteria::bits(0xab00, 0xff);
    // It does not accept puts, so that it is passed over.
    attach(&p3, any, &take(0, Threshold::Infinite, Options::OP_GET), Unlink::Retain);
    attach(&p3, any, &take(1, Threshold::Count(2), Options::OP_PUT), Unlink::Unlink);
    attach(&p3, Criteria::bits(0xab07, 0), &take(2, Threshold::Count(1), Options::OP_PUT), Unlink::Retain);
    attach(&p3, any, &take(3, Threshold::Infinite, Options::OP_PUT), Unlink::Retain);
    nic.launched();
    if nic.rank() == 0 {
        let md = p3.md_bind(&Md::new(&memory, QUIET), Unlink::Retain).unwrap();
        for bits in [0xab01, 0xab07, 0xab07, 0xab08, 0xab07] {
            p3.put(md, 0, 8, Ack::None, nic.id(1).unwrap(), 1, bits, 0, 0).unwrap();
        }
    } else {
        let found = [(); 5].map(|()| next(&p3, eq, EventKind::PutEnd).user_ptr);
        assert_eq!(found, [1, 1, 2, 3, 3], "each message goes to the first entry that takes it");
    }
}

#[test]
fn the_first_match_takes_a_message() {
    holds(&PortalsConfig::pair(), Mutation::LastMatch, |nic| first_match(&nic));
    holds(&PortalsConfig::pair(), Mutation::CompareIgnored, |nic| first_match(&nic));
}

/// Everyone sends to rank 0, whose descriptors come one after the other: nothing overlaps, each goes when less
/// than `max_size` is left, and says so after its last message.
fn receive_buffers(nic: &Nic<'_>) {
    const SIZE: usize = 512;
    const LEAST: usize = 100;
    let (p3, eq, _) = opened(nic);
    let messages = 40 * (nic.ranks() as usize - 1);
    let mut buffers = Vec::new();
    let attach_one = |buffers: &mut Vec<(HostMemory, usize, bool)>| {
        let memory = HostMemory::new(SIZE);
        let md = Md {
            max_size: LEAST,
            user_ptr: buffers.len() as u64,
            eq: Some(eq),
            ..Md::new(&memory, QUIET | Options::OP_PUT | Options::MAX_SIZE)
        };
        attach(&p3, Criteria::bits(0, u64::MAX), &md, Unlink::Unlink);
        buffers.push((memory, 0, false));
    };
    if nic.rank() == 0 {
        // Enough for all that may come at once.
        (0..messages / 4).for_each(|_| attach_one(&mut buffers));
    }
    nic.launched();
    if nic.rank() != 0 {
        let memory = HostMemory::new(LEAST);
        let md = p3.md_bind(&Md::new(&memory, QUIET), Unlink::Retain).unwrap();
        memory.write(0, &[nic.rank() as u8; LEAST]);
        for number in 0..40u64 {
            let length = (number as u32 * 37 + nic.rank() * 11) % LEAST as u32 + 1;
            p3.put(md, 0, length, Ack::None, nic.id(0).unwrap(), 1, number, 0, number).unwrap();
        }
        return;
    }
    let (mut taken, mut expected) = (0, vec![0; nic.ranks() as usize]);
    let mut open = 0;
    while taken < messages {
        let event = p3.eq_wait(eq, None).unwrap();
        let (memory, used, unlinked) = &mut buffers[event.user_ptr as usize];
        assert!(!*unlinked, "nothing comes of a descriptor after its unlink event");
        if event.kind == EventKind::Unlink {
            assert!(
                SIZE - *used < LEAST,
                "it goes when less than {LEAST} bytes are left, not with {}",
                SIZE - *used
            );
            *unlinked = true;
            open += 1;
            continue;
        }
        assert_eq!(event.kind, EventKind::PutEnd);
        assert_eq!(event.user_ptr, open, "descriptors are used one after the other");
        assert!(SIZE - *used >= LEAST, "one with only {} bytes left takes nothing", SIZE - *used);
        assert_eq!(event.offset, *used as u64, "messages lie one behind the other");
        let mut bytes = vec![0; event.mlength as usize];
        nic.read(memory, *used, &mut bytes);
        let from = nic.rank_of(event.initiator).unwrap();
        assert!(bytes.iter().all(|byte| *byte == from as u8), "the bytes are those of rank {from}");
        assert_eq!(event.hdr_data, expected[from as usize], "each sender's messages are in order");
        expected[from as usize] += 1;
        *used += bytes.len();
        taken += 1;
    }
    assert_eq!(p3.status().unwrap().dropped, 0);
}

#[test]
fn locally_managed_buffers_fill_without_overlap() {
    let adversarial = AdversarialTiming { jitter_ns: 20_000.0, late_read: true };
    for adversary in [AdversarialTiming::default(), adversarial] {
        let faults =
            Faults { seed: 5, loss: 0.05, delay: 0.1, delay_ns: 9_000.0, retry_ns: 800.0, ..Faults::default() };
        let config = PortalsConfig { adversary, faults, ..portals_sim::xt4(8) };
        for mutation in [Mutation::HalfOffset, Mutation::NoMaxSize, Mutation::UnlinkEarly] {
            holds(&config, mutation, |nic| receive_buffers(&nic));
        }
    }
}

/// Messages that are too long are cut off; both sides learn both lengths.
fn truncation(nic: &Nic<'_>) {
    let (p3, eq, memory) = opened(nic);
    let options = QUIET | Options::OP_PUT | Options::OP_GET | Options::TRUNCATE | Options::MANAGE_REMOTE;
    let md = Md { length: 100, eq: Some(eq), ..Md::new(&memory, options) };
    attach(&p3, Criteria::bits(0, 0), &md, Unlink::Retain);
    nic.launched();
    let lengths = |event: Event| (event.offset, event.rlength, event.mlength);
    let expected = [(0, 100, 100), (0, 101, 100), (90, 20, 10), (100, 5, 0)];
    if nic.rank() == 0 {
        memory.write(0, &[7; 4096]);
        let md = p3.md_bind(&Md { eq: Some(eq), ..Md::new(&memory, QUIET) }, Unlink::Retain).unwrap();
        for (offset, rlength, mlength) in expected {
            p3.put(md, 0, rlength, Ack::Request, nic.id(1).unwrap(), 1, 0, offset, 0).unwrap();
            assert_eq!(lengths(next(&p3, eq, EventKind::Ack)), (offset, rlength, mlength));
            p3.get(md, 0, rlength, nic.id(1).unwrap(), 1, 0, offset).unwrap();
            assert_eq!(lengths(next(&p3, eq, EventKind::ReplyEnd)), (offset, rlength, mlength));
        }
        return;
    }
    for told in expected {
        assert_eq!(lengths(next(&p3, eq, EventKind::PutEnd)), told);
        assert_eq!(lengths(next(&p3, eq, EventKind::GetEnd)), told);
    }
    let mut bytes = [0; 200];
    nic.read(&memory, 0, &mut bytes);
    assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), 100, "nothing is written behind the descriptor");
}

#[test]
fn truncation_tells_both_lengths() {
    holds(&PortalsConfig::pair(), Mutation::HideTruncation, |nic| truncation(&nic));
}

/// What no descriptor accepts is dropped, counted, and not acknowledged.
#[test]
fn what_nothing_takes_is_dropped() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p3, eq, memory) = opened(&nic);
        let md = Md { length: 100, eq: Some(eq), ..Md::new(&memory, QUIET | Options::OP_PUT) };
        attach(&p3, Criteria::bits(3, 0), &md, Unlink::Retain);
        nic.launched();
        if nic.rank() == 0 {
            let md = p3.md_bind(&Md { eq: Some(eq), ..Md::new(&memory, QUIET) }, Unlink::Retain).unwrap();
            for (pt, bits, length) in [(0, 3, 8), (1, 2, 8), (1, 3, 101), (1, 3, 8)] {
                p3.put(md, 0, length, Ack::Request, nic.id(1).unwrap(), pt, bits, 0, 0).unwrap();
            }
            p3.get(md, 0, 8, nic.id(1).unwrap(), 1, 3, 0).unwrap();
            assert_eq!(next(&p3, eq, EventKind::Ack).rlength, 8);
        } else {
            assert_eq!(next(&p3, eq, EventKind::PutEnd).rlength, 8);
        }
        let until = nic.now() + am_core::Span::from_micros(100);
        while nic.now() < until {
            p3.idle(&[], Some(until), fabric_sim::WaitFor::Named("the rest")).unwrap();
        }
        while let Ok(event) = p3.eq_get(eq) {
            assert_eq!(event.kind, EventKind::SendEnd, "nothing more comes of it");
        }
        p3.status().unwrap().dropped
    });
    assert_eq!(report.unwrap().results, [Some(0), Some(4)]);
}
