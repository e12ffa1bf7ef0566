//! Portals 3.3 call by call: what it does, and the return codes of its misuse.

use am_core::Span;
use fabric_sim::{Report, WaitFor};
use portals_sim::model::{NiLimits, Parameters};
use portals_sim::nic::p3::{
    Ack, Criteria, EqHandle, Event, EventKind, Md, MdHandle, MeHandle, Options, P3, P3Error, Position, Source,
    Threshold, Unlink,
};
use portals_sim::nic::{HostMemory, ProcessId};
use portals_sim::{Nic, PortalsConfig};

const QUIET: Options = Options::EVENT_START_DISABLE;
const PT: u32 = 2;

fn run<R: 'static>(config: &PortalsConfig, program: impl Fn(Nic<'_>) -> R + 'static) -> Report<R> {
    let config = PortalsConfig { deadline_ns: 1e9, ..config.clone() };
    portals_sim::run(&config, program).unwrap_or_else(|error| panic!("{error}"))
}

/// A place for puts and gets with these bits.
fn place(p3: &P3<'_>, bits: u64, md: &Md, unlink: Unlink) -> (MeHandle, MdHandle) {
    let me = p3.me_attach(PT, Criteria::bits(bits, 0), Unlink::Unlink, Position::After).unwrap();
    (me, p3.md_attach(me, md, unlink).unwrap())
}

/// The next event, which has to come.
fn next(p3: &P3<'_>, eq: EqHandle) -> Event {
    p3.eq_wait(eq, None).unwrap()
}

fn kinds(p3: &P3<'_>, eq: EqHandle, count: usize) -> Vec<EventKind> {
    (0..count).map(|_| next(p3, eq).kind).collect()
}

fn pause(nic: &Nic<'_>, micros: u64) {
    let until = nic.now() + Span::from_micros(micros);
    while nic.now() < until {
        nic.idle(Some(until), WaitFor::Named("a pause"));
    }
}

#[test]
fn misuse_returns_the_codes_of_the_interface() {
    let limits = NiLimits {
        pt_entries: 8,
        entries: 2,
        mds: 2,
        eqs: 1,
        eq_entries: 16,
        message_bytes: 100,
        ..Default::default()
    };
    let config = PortalsConfig { parameters: Parameters { limits, ..Parameters::xt4() }, ..PortalsConfig::pair() };
    run(&config, move |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(200));
        let peer = nic.id(1 - nic.rank()).unwrap();
        let any = Criteria::bits(0, 0);
        let attach = |pt| p3.me_attach(pt, any, Unlink::Retain, Position::After);
        let md = Md::new(&memory, QUIET);
        let mut codes = vec![("PTL_NO_INIT", p3.fini().unwrap_err())];
        codes.push(("PTL_NO_INIT", p3.status().unwrap_err()));
        codes.push(("PTL_NO_INIT", p3.eq_alloc(1).unwrap_err()));
        codes.push(("PTL_NO_INIT", attach(0).unwrap_err()));
        codes.push(("PTL_NO_INIT", p3.md_bind(&md, Unlink::Retain).unwrap_err()));
        assert_eq!(p3.init(), Ok(limits));
        codes.push(("PTL_IFACE_DUP", p3.init().unwrap_err()));

        codes.push(("PTL_NO_SPACE", p3.eq_alloc(0).unwrap_err()));
        codes.push(("PTL_NO_SPACE", p3.eq_alloc(17).unwrap_err()));
        let eq = p3.eq_alloc(16).unwrap();
        codes.push(("PTL_NO_SPACE", p3.eq_alloc(16).unwrap_err()));
        codes.push(("PTL_EQ_EMPTY", p3.eq_get(eq).unwrap_err()));
        codes.push(("PTL_EQ_EMPTY", p3.eq_wait(eq, Some(nic.now())).unwrap_err()));

        codes.push(("PTL_PT_INDEX_INVALID", attach(8).unwrap_err()));
        let me = attach(7).unwrap();
        let other = p3.me_insert(me, any, Unlink::Retain, Position::Before).unwrap();
        codes.push(("PTL_NO_SPACE", attach(0).unwrap_err()));
        codes.push(("PTL_NO_SPACE", p3.me_insert(me, any, Unlink::Retain, Position::After).unwrap_err()));
        p3.me_unlink(other).unwrap();
        codes.push(("PTL_ME_INVALID", p3.me_unlink(other).unwrap_err()));
        codes.push(("PTL_ME_INVALID", p3.me_insert(other, any, Unlink::Retain, Position::After).unwrap_err()));
        codes.push(("PTL_ME_INVALID", p3.md_attach(other, &md, Unlink::Retain).unwrap_err()));
        // Its place is taken again, and the handle still stale.
        let again = attach(7).unwrap();
        codes.push(("PTL_ME_INVALID", p3.me_unlink(other).unwrap_err()));

        for (start, length) in [(0, 201), (201, 0), (200, 1), (usize::MAX, 2)] {
            let wrong = Md { start, length, ..md.clone() };
            codes.push(("PTL_MD_ILLEGAL", p3.md_bind(&wrong, Unlink::Retain).unwrap_err()));
            codes.push(("PTL_MD_ILLEGAL", p3.md_attach(me, &wrong, Unlink::Retain).unwrap_err()));
        }
        let attached = p3.md_attach(me, &md, Unlink::Retain).unwrap();
        codes.push(("PTL_ME_IN_USE", p3.md_attach(me, &md, Unlink::Retain).unwrap_err()));
        let bound = p3.md_bind(&Md { eq: Some(eq), ..md.clone() }, Unlink::Retain).unwrap();
        codes.push(("PTL_NO_SPACE", p3.md_bind(&md, Unlink::Retain).unwrap_err()));
        codes.push(("PTL_NO_SPACE", p3.md_attach(again, &md, Unlink::Retain).unwrap_err()));

        let put = |md, offset, length, to, pt| p3.put(md, offset, length, Ack::None, to, pt, 0, 0, 0);
        let nobody = ProcessId { nid: 0, pid: 1 };
        codes.push(("PTL_PROCESS_INVALID", put(bound, 0, 1, nobody, 0).unwrap_err()));
        codes.push(("PTL_PROCESS_INVALID", put(bound, 0, 1, ProcessId { nid: 2, pid: 0 }, 0).unwrap_err()));
        codes.push(("PTL_PT_INDEX_INVALID", put(bound, 0, 1, peer, 8).unwrap_err()));
        codes.push(("PTL_PT_INDEX_INVALID", p3.get(bound, 0, 1, peer, 8, 0, 0).unwrap_err()));
        codes.push(("PTL_MD_ILLEGAL", put(bound, 200, 1, peer, 0).unwrap_err()));
        codes.push(("PTL_MD_ILLEGAL", put(bound, u64::MAX, 1, peer, 0).unwrap_err()));
        codes.push(("PTL_MD_ILLEGAL", put(bound, 0, 101, peer, 0).unwrap_err()));
        codes.push(("PTL_MD_ILLEGAL", p3.get(bound, 0, 101, peer, 0, 0, 0).unwrap_err()));

        // A get that nobody answers is pending for ever, a put until it has left.
        put(attached, 0, 100, peer, 0).unwrap();
        codes.push(("PTL_MD_IN_USE", p3.md_unlink(attached).unwrap_err()));
        codes.push(("PTL_ME_IN_USE", p3.me_unlink(me).unwrap_err()));
        pause(&nic, 10);
        p3.md_unlink(attached).unwrap();
        codes.push(("PTL_MD_INVALID", p3.md_unlink(attached).unwrap_err()));
        codes.push(("PTL_MD_INVALID", put(attached, 0, 1, peer, 0).unwrap_err()));
        codes.push(("PTL_MD_INVALID", p3.get(attached, 0, 1, peer, 0, 0, 0).unwrap_err()));
        p3.get(bound, 0, 1, peer, 0, 0, 0).unwrap();
        pause(&nic, 100);
        codes.push(("PTL_MD_IN_USE", p3.md_unlink(bound).unwrap_err()));

        p3.eq_free(eq).unwrap();
        codes.push(("PTL_EQ_INVALID", p3.eq_free(eq).unwrap_err()));
        codes.push(("PTL_EQ_INVALID", p3.eq_get(eq).unwrap_err()));
        codes.push(("PTL_EQ_INVALID", p3.idle(&[eq], None, WaitFor::Arrival).unwrap_err()));
        codes
            .push(("PTL_EQ_INVALID", p3.md_bind(&Md { eq: Some(eq), ..md.clone() }, Unlink::Retain).unwrap_err()));
        p3.fini().unwrap();
        codes.push(("PTL_NO_INIT", p3.eq_get(eq).unwrap_err()));
        codes.push(("PTL_NO_INIT", put(bound, 0, 1, peer, 0).unwrap_err()));
        p3.init().unwrap();
        codes.push(("PTL_MD_INVALID", put(bound, 0, 1, peer, 0).unwrap_err()));
        for (number, (expected, error)) in codes.iter().enumerate() {
            assert_eq!(error.code(), *expected, "misuse {number}: {error}");
        }
        let all = [
            "NO_INIT",
            "IFACE_DUP",
            "NO_SPACE",
            "PT_INDEX_INVALID",
            "PROCESS_INVALID",
            "ME_INVALID",
            "ME_IN_USE",
            "MD_INVALID",
            "MD_ILLEGAL",
            "MD_IN_USE",
            "EQ_INVALID",
            "EQ_EMPTY",
        ];
        for code in all {
            assert!(codes.iter().any(|(found, _)| found[4..] == *code), "{code} is tested");
        }
    });
}

#[test]
fn starts_are_told_unless_disabled() {
    let counts = |options: Options| {
        let report = run(&PortalsConfig::pair(), move |nic| {
            let (p3, memory) = (nic.p3(), HostMemory::new(64));
            p3.init().unwrap();
            let eq = p3.eq_alloc(16).unwrap();
            let md = Md { eq: Some(eq), ..Md::new(&memory, Options::OP_PUT | Options::OP_GET | options) };
            let (_, md) = place(&p3, 0, &md, Unlink::Retain);
            nic.launched();
            let quiet = options.has(QUIET);
            if nic.rank() == 0 {
                let peer = nic.id(1).unwrap();
                p3.put(md, 0, 8, Ack::Request, peer, PT, 0, 0, 0).unwrap();
                let sent = kinds(&p3, eq, if quiet { 2 } else { 3 });
                p3.get(md, 0, 8, peer, PT, 0, 0).unwrap();
                return [sent, kinds(&p3, eq, if quiet { 1 } else { 2 })].concat();
            }
            kinds(&p3, eq, if quiet { 2 } else { 4 })
        });
        report.results.into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(
        counts(QUIET),
        [
            vec![EventKind::SendEnd, EventKind::Ack, EventKind::ReplyEnd],
            vec![EventKind::PutEnd, EventKind::GetEnd]
        ]
    );
    let all = counts(Options::NONE);
    assert_eq!(
        all[0],
        [EventKind::SendStart, EventKind::SendEnd, EventKind::Ack, EventKind::ReplyStart, EventKind::ReplyEnd]
    );
    assert_eq!(all[1], [EventKind::PutStart, EventKind::PutEnd, EventKind::GetStart, EventKind::GetEnd]);
}

#[test]
fn entries_take_messages_of_their_sources_only() {
    run(&portals_sim::xt4(3), |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(64));
        p3.init().unwrap();
        let eq = p3.eq_alloc(16).unwrap();
        let sources = [Source::Process(ProcessId { nid: 2, pid: 0 }), Source::Node(1), Source::Any];
        for (number, source) in sources.into_iter().enumerate() {
            let criteria = Criteria { source, ..Criteria::bits(0, 0) };
            let me = p3.me_attach(PT, criteria, Unlink::Retain, Position::After).unwrap();
            let (user_ptr, md) = (number as u64, Md::new(&memory, QUIET | Options::OP_PUT));
            p3.md_attach(me, &Md { user_ptr, eq: Some(eq), ..md }, Unlink::Retain).unwrap();
        }
        let md = p3.md_bind(&Md::new(&memory, QUIET), Unlink::Retain).unwrap();
        nic.launched();
        p3.put(md, 0, 4, Ack::None, nic.id(0).unwrap(), PT, 0, 0, 0).unwrap();
        if nic.rank() == 0 {
            let mut found: Vec<_> =
                (0..3).map(|_| next(&p3, eq)).map(|event| (event.initiator.nid, event.user_ptr)).collect();
            found.sort_unstable();
            assert_eq!(found, [(0, 2), (1, 1), (2, 0)]);
        }
    });
}

#[test]
fn thresholds_count_sends_acknowledgements_and_replies() {
    run(&PortalsConfig::pair(), |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(64));
        p3.init().unwrap();
        let eq = p3.eq_alloc(16).unwrap();
        place(
            &p3,
            0,
            &Md::new(&memory, QUIET | Options::OP_PUT | Options::OP_GET | Options::MANAGE_REMOTE),
            Unlink::Retain,
        );
        nic.launched();
        if nic.rank() == 1 {
            return;
        }
        let peer = nic.id(1).unwrap();
        let bind = |count| {
            let md = Md { eq: Some(eq), threshold: Threshold::Count(count), ..Md::new(&memory, QUIET) };
            p3.md_bind(&md, Unlink::Unlink).unwrap()
        };
        // One for the put, one for its acknowledgement.
        let md = bind(2);
        p3.put(md, 0, 8, Ack::Request, peer, PT, 0, 0, 0).unwrap();
        assert_eq!(kinds(&p3, eq, 3), [EventKind::SendEnd, EventKind::Ack, EventKind::Unlink]);
        assert_eq!(p3.md_unlink(md), Err(P3Error::MdInvalid { md }));
        // Without the second, the acknowledgement is dropped. The descriptor goes once the put has left.
        let md = bind(1);
        p3.put(md, 0, 8, Ack::Request, peer, PT, 0, 0, 0).unwrap();
        assert_eq!(p3.md_unlink(md), Err(P3Error::MdInUse { md }));
        assert_eq!(p3.put(md, 0, 8, Ack::None, peer, PT, 0, 0, 0), Err(P3Error::MdInvalid { md }));
        assert_eq!(kinds(&p3, eq, 2), [EventKind::SendEnd, EventKind::Unlink]);
        assert_eq!(p3.md_unlink(md), Err(P3Error::MdInvalid { md }));
        pause(&nic, 50);
        assert_eq!((p3.status().unwrap().dropped, p3.eq_get(eq)), (1, Err(P3Error::EqEmpty)));
        // A get and its reply.
        let md = bind(2);
        p3.get(md, 0, 8, peer, PT, 0, 0).unwrap();
        assert_eq!(kinds(&p3, eq, 2), [EventKind::ReplyEnd, EventKind::Unlink]);
        // A reply that may not come is dropped, and the descriptor goes.
        let md = bind(1);
        p3.get(md, 0, 8, peer, PT, 0, 0).unwrap();
        assert_eq!(kinds(&p3, eq, 1), [EventKind::Unlink]);
        assert_eq!((p3.status().unwrap().dropped, p3.status().unwrap().in_use), (2, [1, 1, 1]));
    });
}

#[test]
fn the_memory_of_a_put_may_change_once_it_has_been_sent() {
    for late_read in [false, true] {
        let mut config = PortalsConfig::pair();
        config.adversary.late_read = late_read;
        let report = run(&config, |nic| {
            let (p3, memory) = (nic.p3(), HostMemory::new(100_000));
            p3.init().unwrap();
            let eq = p3.eq_alloc(16).unwrap();
            let (_, md) =
                place(&p3, 0, &Md { eq: Some(eq), ..Md::new(&memory, QUIET | Options::OP_PUT) }, Unlink::Retain);
            nic.launched();
            if nic.rank() == 1 {
                next(&p3, eq);
                return memory.word(0);
            }
            nic.write(&memory, 0, &[1; 8]);
            p3.put(md, 0, 100_000, Ack::None, nic.id(1).unwrap(), PT, 0, 0, 0).unwrap();
            // Too early: the adversary sees it.
            nic.write(&memory, 0, &[2; 4]);
            next(&p3, eq);
            nic.write(&memory, 0, &[3; 8]);
            0
        });
        let expected = if late_read { 0x0101_0101_0202_0202 } else { 0x0101_0101_0101_0101 };
        assert_eq!(report.results[1], Some(expected), "late: {late_read}");
    }
}

#[test]
fn ranks_of_a_node_have_interfaces_of_their_own() {
    let config =
        PortalsConfig { ranks_per_node: 2, ..PortalsConfig::new(4, fabric_sim::Topology::Ring { nodes: 2 }) };
    run(&config, |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(256));
        p3.init().unwrap();
        let eq = p3.eq_alloc(16).unwrap();
        let (_, md) =
            place(&p3, 9, &Md { eq: Some(eq), ..Md::new(&memory, QUIET | Options::OP_PUT) }, Unlink::Retain);
        nic.launched();
        for to in 0..4 {
            p3.put(md, 0, 8, Ack::None, nic.id(to).unwrap(), PT, 9, 0, u64::from(to)).unwrap();
        }
        let mut from = Vec::new();
        while from.len() < 4 {
            let event = next(&p3, eq);
            if event.kind == EventKind::PutEnd {
                assert_eq!(event.hdr_data, u64::from(nic.rank()));
                from.push(nic.rank_of(event.initiator).unwrap());
            }
        }
        from.sort_unstable();
        assert_eq!(from, [0, 1, 2, 3]);
    });
}

#[test]
fn a_put_without_events_wakes_who_idles() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(64));
        p3.init().unwrap();
        let (_, md) = place(&p3, 0, &Md::new(&memory, QUIET | Options::OP_PUT), Unlink::Retain);
        nic.launched();
        if nic.rank() == 0 {
            pause(&nic, 100);
            memory.write(0, &[1]);
            p3.put(md, 0, 8, Ack::None, nic.id(1).unwrap(), PT, 0, 0, 0).unwrap();
        }
        while memory.word(0) == 0 {
            p3.idle(&[], None, WaitFor::Named("the word")).unwrap();
        }
        nic.now().0
    });
    assert!(report.results[1] > Some(100_000_000), "{report:?}");
}

/// Who waits for a message that finds no place would wait for ever.
#[test]
fn a_dropped_message_wakes_who_idles() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(64));
        p3.init().unwrap();
        let md = p3.md_bind(&Md::new(&memory, QUIET), Unlink::Retain).unwrap();
        nic.launched();
        if nic.rank() == 0 {
            pause(&nic, 100);
            p3.put(md, 0, 8, Ack::None, nic.id(1).unwrap(), PT, 0, 0, 0).unwrap();
            return 0;
        }
        while p3.dropped() == 0 {
            p3.idle(&[], None, WaitFor::Named("a message without a place")).unwrap();
        }
        nic.now().0
    });
    assert!(report.results[1] > Some(100_000_000), "{report:?}");
}

/// Both wait for the same events: one by the interface's idling, which knows when its own put will have been sent,
/// one by looking all the time.
#[test]
fn a_known_event_is_awaited_as_long_as_a_looked_for() {
    let time = |looks: bool| {
        let report = run(&PortalsConfig::pair(), move |nic| {
            let (p3, memory) = (nic.p3(), HostMemory::new(64));
            p3.init().unwrap();
            let eq = p3.eq_alloc(64).unwrap();
            let md = p3.md_bind(&Md { eq: Some(eq), ..Md::new(&memory, QUIET) }, Unlink::Retain).unwrap();
            place(&p3, 0, &Md { eq: Some(eq), ..Md::new(&memory, QUIET | Options::OP_PUT) }, Unlink::Retain);
            nic.launched();
            let mut times = Vec::new();
            for _ in 0..8 {
                p3.put(md, 0, 8, Ack::None, nic.id(1 - nic.rank()).unwrap(), PT, 0, 0, 0).unwrap();
            }
            while times.len() < 16 {
                match p3.eq_get(eq) {
                    Ok(event) => times.push((event.kind, nic.now().0)),
                    Err(_) if looks => {}
                    Err(_) => p3.idle(&[eq], None, WaitFor::Named("an event")).unwrap(),
                }
            }
            times
        });
        report.results.into_iter().flatten().flatten().collect::<Vec<_>>()
    };
    let (looking, knowing) = (time(true), time(false));
    for ((kind, at), (other, found)) in looking.iter().zip(&knowing) {
        // A look takes 74 ns, and an event may come at its beginning.
        assert!(kind == other && at.abs_diff(*found) <= 2 * 74_000, "{looking:?}\n{knowing:?}");
    }
}

#[test]
fn without_cost_only_looking_takes_time() {
    let config = PortalsConfig { parameters: Parameters::free(), ..PortalsConfig::pair() };
    let report = run(&config, |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(1 << 20));
        p3.init().unwrap();
        let eq = p3.eq_alloc(64).unwrap();
        let (_, md) =
            place(&p3, 0, &Md { eq: Some(eq), ..Md::new(&memory, QUIET | Options::OP_PUT) }, Unlink::Retain);
        nic.launched();
        let began = nic.now();
        p3.put(md, 0, 1 << 20, Ack::Request, nic.id(1 - nic.rank()).unwrap(), PT, 0, 0, 0).unwrap();
        kinds(&p3, eq, 3);
        nic.now().since(began).0
    });
    assert!(report.results.iter().flatten().all(|took| *took < 20), "{report:?}");
}
