//! Portals 4 call by call: what it does, the return codes of its misuse, and how operations fail.

use am_core::Span;
use fabric_sim::{FaultEvent, Faults, Report, Scheduled, Topology, WaitFor};
use portals_sim::model::{NiLimits, Parameters};
use portals_sim::nic::p4::{
    Ack, Atomic, AtomicOp, Command, CtEvent, Datatype, Event, EventKind, FetchAtomic, Get, Le, List, Md, MdHandle,
    MdOptions, Me, MeOptions, NiFail, P4, P4Error, Process, PtOptions, Put, Region, Search, Source, Swap, Target,
};
use portals_sim::nic::{HostMemory, ProcessId};
use portals_sim::{Nic, PortalsConfig};

const PT: u32 = 2;

fn run<R: 'static>(config: &PortalsConfig, program: impl Fn(Nic<'_>) -> R + 'static) -> Report<R> {
    let config = PortalsConfig { deadline_ns: 1e9, ..config.clone() };
    portals_sim::run(&config, program).unwrap_or_else(|error| panic!("{error}"))
}

fn pause(nic: &Nic<'_>, micros: u64) {
    let until = nic.now() + Span::from_micros(micros);
    while nic.now() < until {
        nic.idle(Some(until), WaitFor::Named("a pause"));
    }
}

fn target(nic: &Nic<'_>, to: u32) -> Target {
    Target { process: nic.id(to).unwrap().into(), pt_index: PT, match_bits: 0, offset: 0 }
}

fn put(nic: &Nic<'_>, md: MdHandle, to: u32, length: u32) -> Put {
    let from = Region { md, offset: 0 };
    Put { from, length, ack: Ack::Request, target: target(nic, to), user_ptr: 0, hdr_data: 0 }
}

#[test]
fn misuse_returns_the_codes_of_the_interface() {
    let limits = NiLimits {
        pt_entries: 2,
        entries: 3,
        mds: 1,
        eqs: 1,
        eq_entries: 16,
        cts: 1,
        list_entries: 2,
        triggered: 1,
        message_bytes: 100,
        ..NiLimits::default()
    };
    let config = PortalsConfig {
        parameters: Parameters { limits, ..Parameters::xt4() },
        ranks_per_node: 2,
        ..PortalsConfig::new(4, Topology::Ring { nodes: 2 })
    };
    run(&config, move |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(200));
        let other = nic.rank() ^ 1;
        let mut codes: Vec<(&str, P4Error)> = Vec::new();
        let me = Me::new(&memory, MeOptions::OP_PUT, 0, 0);

        codes.push(("PTL_NO_INIT", p4.fini().unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.eq_alloc(1).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.ct_alloc().unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.pt_alloc(PtOptions::NONE, None, None).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.me_append(0, &me, List::Priority, 0).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.me_search(0, &me, Search::Only, 0).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.md_bind(&Md::new(&memory)).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.set_map(&[]).unwrap_err()));
        codes.push(("PTL_NO_INIT", p4.status().unwrap_err()));
        codes.push(("PTL_PID_IN_USE", p4.init(Some(nic.id(other).unwrap().pid)).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.init(Some(2)).unwrap_err()));
        assert_eq!((p4.init(Some(p4.id().pid)), p4.init(None)), (Ok(limits), Ok(limits)));

        // Queues and counters.
        codes.push(("PTL_ARG_INVALID", p4.eq_alloc(0).unwrap_err()));
        codes.push(("PTL_NO_SPACE", p4.eq_alloc(17).unwrap_err()));
        let eq = p4.eq_alloc(16).unwrap();
        codes.push(("PTL_NO_SPACE", p4.eq_alloc(1).unwrap_err()));
        codes.push(("PTL_EQ_EMPTY", p4.eq_get(eq).unwrap_err()));
        codes.push(("PTL_EQ_EMPTY", p4.eq_wait(eq, Some(nic.now() + Span::from_micros(5))).unwrap_err()));
        let ct = p4.ct_alloc().unwrap();
        codes.push(("PTL_NO_SPACE", p4.ct_alloc().unwrap_err()));
        let soon = Some(nic.now() + Span::from_micros(5));
        codes.push(("PTL_CT_NONE_REACHED", p4.ct_poll(&[(ct, 1)], soon).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.ct_inc(ct, CtEvent { success: 1, failure: 1 }).unwrap_err()));
        codes.push(("PTL_FAIL", p4.handles_equal(nic.rank(), other).unwrap_err()));
        assert_eq!(p4.handles_equal(ct, ct), Ok(()));

        // Portal table entries.
        codes.push(("PTL_PT_EQ_NEEDED", p4.pt_alloc(PtOptions::FLOWCTRL, None, None).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.pt_alloc(PtOptions::NONE, None, Some(2)).unwrap_err()));
        let one = p4.pt_alloc(PtOptions::NONE, Some(eq), Some(1)).unwrap();
        codes.push(("PTL_PT_IN_USE", p4.pt_alloc(PtOptions::NONE, None, Some(1)).unwrap_err()));
        let zero = p4.pt_alloc(PtOptions::ONLY_USE_ONCE, None, None).unwrap();
        codes.push(("PTL_PT_FULL", p4.pt_alloc(PtOptions::NONE, None, None).unwrap_err()));
        codes.push(("PTL_IN_USE", p4.eq_free(eq).unwrap_err()));

        // Entries.
        codes.push(("PTL_ARG_INVALID", p4.me_append(9, &me, List::Priority, 0).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.me_append(zero, &me, List::Priority, 0).unwrap_err()));
        let first = p4.me_append(one, &me, List::Priority, 0).unwrap();
        let le =
            Le { memory: memory.clone(), start: 0, length: 8, options: MeOptions::OP_PUT, ct: None, uid: None };
        codes.push(("PTL_ARG_INVALID", p4.le_append(one, &le, List::Priority, 0).unwrap_err()));
        p4.me_append(one, &me, List::Priority, 0).unwrap();
        codes.push(("PTL_LIST_TOO_LONG", p4.me_append(one, &me, List::Priority, 0).unwrap_err()));
        p4.me_append(one, &me, List::Overflow, 0).unwrap();
        codes.push(("PTL_NO_SPACE", p4.me_append(one, &me, List::Overflow, 0).unwrap_err()));
        codes.push(("PTL_PT_IN_USE", p4.pt_free(one).unwrap_err()));
        p4.me_unlink(first).unwrap();
        codes.push(("PTL_ARG_INVALID", p4.me_unlink(first).unwrap_err()));
        p4.pt_free(zero).unwrap();
        codes.push(("PTL_ARG_INVALID", p4.pt_free(zero).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.pt_enable(zero).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.pt_disable(zero).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.me_search(zero, &me, Search::Only, 0).unwrap_err()));

        // Memory descriptors and commands.
        for (start, length) in [(0, 201), (201, 0), (usize::MAX, 2)] {
            let wrong = Md { start, length, ..Md::new(&memory) };
            codes.push(("PTL_ARG_INVALID", p4.md_bind(&wrong).unwrap_err()));
        }
        let md = p4.md_bind(&Md { ct: Some(ct), ..Md::new(&memory) }).unwrap();
        codes.push(("PTL_NO_SPACE", p4.md_bind(&Md::new(&memory)).unwrap_err()));
        let good = put(&nic, md, other, 8);
        let good = Put { target: Target { pt_index: one, ..good.target }, ..good };
        let at = |offset| Put { from: Region { md, offset }, ..good };
        let to = |process| Put { target: Target { process, ..good.target }, ..good };
        let nobody = Process::Physical(ProcessId { nid: 0, pid: 2 });
        for wrong in [at(193), at(u64::MAX), Put { length: 101, ..good }, to(nobody), to(Process::Logical(0))] {
            codes.push(("PTL_ARG_INVALID", p4.put(&wrong).unwrap_err()));
        }
        let outside = Target { pt_index: 2, ..good.target };
        codes.push(("PTL_ARG_INVALID", p4.put(&Put { target: outside, ..good }).unwrap_err()));
        let get = Get { to: Region { md, offset: 0 }, length: 8, target: outside, user_ptr: 0 };
        codes.push(("PTL_ARG_INVALID", p4.get(&get).unwrap_err()));
        for (operation, datatype, length) in [
            (AtomicOp::Swap, Datatype::Int64, 8),
            (AtomicOp::Bor, Datatype::Double, 8),
            (AtomicOp::Min, Datatype::FloatComplex, 8),
            (AtomicOp::Sum, Datatype::Int64, 12),
        ] {
            let atomic = Atomic { put: Put { length, ..good }, operation, datatype };
            codes.push(("PTL_ARG_INVALID", p4.atomic(&atomic).unwrap_err()));
            let fetch = FetchAtomic { to: Region { md, offset: 0 }, put: atomic.put, operation, datatype };
            codes.push(("PTL_ARG_INVALID", p4.fetch_atomic(&fetch).unwrap_err()));
        }
        for (operation, length) in [(AtomicOp::Sum, 8), (AtomicOp::Cswap, 16), (AtomicOp::Mswap, 0)] {
            let (to, put, datatype) = (Region { md, offset: 0 }, Put { length, ..good }, Datatype::Int64);
            let swap = Swap { to, put, operation, datatype, operand: [0; 16] };
            codes.push(("PTL_ARG_INVALID", p4.swap(&swap).unwrap_err()));
        }
        p4.set_map(&[p4.id(), nic.id(other).unwrap()]).unwrap();
        assert_eq!(p4.map().unwrap()[1], nic.id(other).unwrap());
        codes.push(("PTL_IGNORED", p4.set_map(&[]).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.put(&to(Process::Logical(2))).unwrap_err()));

        // Triggered operations.
        codes.push(("PTL_ARG_INVALID", p4.triggered(&Command::Put(at(193)), ct, 1).unwrap_err()));
        p4.triggered(&Command::CtInc(ct, CtEvent::success(1)), ct, 5).unwrap();
        codes.push(("PTL_NO_SPACE", p4.triggered(&Command::Put(good), ct, 5).unwrap_err()));
        assert_eq!(p4.ct_cancel_triggered(ct), Ok(1));

        // A message that has not been answered keeps its descriptor.
        p4.put(&to(Process::Logical(1))).unwrap();
        codes.push(("PTL_IN_USE", p4.md_release(md).unwrap_err()));
        pause(&nic, 100);
        p4.md_release(md).unwrap();
        codes.push(("PTL_ARG_INVALID", p4.md_release(md).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.put(&good).unwrap_err()));
        p4.ct_free(ct).unwrap();
        codes.push(("PTL_ARG_INVALID", p4.ct_get(ct).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.ct_free(ct).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.ct_set(ct, CtEvent::default()).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.ct_cancel_triggered(ct).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.md_bind(&Md { ct: Some(ct), ..Md::new(&memory) }).unwrap_err()));
        codes.push((
            "PTL_ARG_INVALID",
            p4.me_append(one, &Me { ct: Some(ct), ..me.clone() }, List::Priority, 0).unwrap_err(),
        ));
        p4.fini().unwrap();
        codes.push(("PTL_NO_INIT", p4.eq_get(eq).unwrap_err()));
        p4.init(None).unwrap();
        codes.push(("PTL_ARG_INVALID", p4.eq_get(eq).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.eq_free(eq).unwrap_err()));
        codes.push(("PTL_ARG_INVALID", p4.map().unwrap_err()));
        for (number, (expected, error)) in codes.iter().enumerate() {
            assert_eq!(error.code(), *expected, "misuse {number}: {error}");
        }
        let all = [
            "ARG_INVALID",
            "CT_NONE_REACHED",
            "EQ_EMPTY",
            "FAIL",
            "IGNORED",
            "IN_USE",
            "LIST_TOO_LONG",
            "NO_INIT",
            "NO_SPACE",
            "PID_IN_USE",
            "PT_FULL",
            "PT_EQ_NEEDED",
            "PT_IN_USE",
        ];
        for code in all {
            assert!(codes.iter().any(|(found, _)| found[4..] == *code), "{code} is tested");
        }
    });
}

/// Opens everything, with one entry that an operation can find.
fn opened<'a>(
    nic: &Nic<'a>,
    me: impl FnOnce(&HostMemory) -> Me,
) -> (P4<'a>, HostMemory, MdHandle, impl Fn() -> Event) {
    let (p4, memory) = (nic.p4(), HostMemory::new(256));
    p4.init(None).unwrap();
    let eq = p4.eq_alloc(64).unwrap();
    p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
    let mut me = me(&memory);
    me.options = me.options | MeOptions::EVENT_LINK_DISABLE;
    p4.me_append(PT, &me, List::Priority, 0).unwrap();
    let options = MdOptions::EVENT_SEND_DISABLE;
    let md = p4.md_bind(&Md { options, eq: Some(eq), ..Md::new(&memory) }).unwrap();
    nic.launched();
    let waiting = p4.clone();
    (p4, memory, md, move || waiting.eq_wait(eq, None).unwrap())
}

#[test]
fn operations_fail_for_their_reasons() {
    run(&portals_sim::xt4(2), |nic| {
        let permitted = MeOptions::OP_PUT | MeOptions::EVENT_SUCCESS_DISABLE;
        let (p4, memory, md, next) = opened(&nic, |memory| Me::new(memory, permitted, 0, 0));
        if nic.rank() == 0 {
            let eq = p4.eq_alloc(64).unwrap();
            p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT + 1)).unwrap();
            let append = |me: &Me| p4.me_append(PT + 1, me, List::Priority, 5).unwrap();
            append(&Me { uid: Some(7), ..Me::new(&memory, permitted, 1, 0) });
            append(&Me { start: 250, length: 100, ..Me::new(&memory, permitted, 2, 0) });
            let only = Source::Process(nic.id(0).unwrap());
            append(&Me { source: only, ..Me::new(&memory, permitted, 3, 0) });
            p4.pt_alloc(PtOptions::ALLOC_DISABLED, None, Some(PT + 2)).unwrap();
            pause(&nic, 2_000);
            // What is not the program's fault makes an event here as well.
            let event = std::iter::from_fn(|| p4.eq_get(eq).ok()).find(|event| event.kind == EventKind::Put);
            assert_eq!(event.map(|event| (event.ni_fail, event.user_ptr)), Some((NiFail::Segv, 5)));
            let status = p4.status().unwrap();
            let counts =
                (status.permission_violations, status.operation_violations, status.refused, status.dropped);
            assert_eq!(counts, (2, 2, 2, 7));
            return;
        }
        pause(&nic, 100);
        let cases = [
            (PT, 0, NiFail::Ok, NiFail::OpViolation),
            (PT, 1, NiFail::NoMatch, NiFail::NoMatch),
            (PT + 1, 1, NiFail::PermViolation, NiFail::PermViolation),
            (PT + 1, 2, NiFail::Segv, NiFail::OpViolation),
            (PT + 1, 3, NiFail::NoMatch, NiFail::NoMatch),
            (PT + 2, 0, NiFail::PtDisabled, NiFail::PtDisabled),
            (PT + 3, 0, NiFail::Dropped, NiFail::Dropped),
        ];
        for (pt_index, match_bits, putting, getting) in cases {
            let target = Target { pt_index, match_bits, ..target(&nic, 0) };
            p4.put(&Put { target, ..put(&nic, md, 0, 16) }).unwrap();
            let ack = next();
            assert_eq!((ack.kind, ack.ni_fail), (EventKind::Ack, putting), "{target:?}");
            assert!(ack.ni_fail.name().starts_with("PTL_NI_"));
            p4.get(&Get { to: Region { md, offset: 0 }, length: 16, target, user_ptr: 3 }).unwrap();
            let reply = next();
            assert_eq!((reply.kind, reply.ni_fail, reply.user_ptr), (EventKind::Reply, getting, 3), "{target:?}");
        }
    });
}

#[test]
fn what_is_for_a_lost_node_is_undeliverable() {
    let schedule = vec![Scheduled { at_ns: 200_000.0, event: FaultEvent::NodeStop { node: 1 } }];
    let config = PortalsConfig { faults: Faults { schedule, ..Faults::default() }, ..portals_sim::xt4(2) };
    run(&config, |nic| {
        let (p4, _, md, next) = opened(&nic, |memory| Me::new(memory, MeOptions::OP_PUT, 0, 0));
        if nic.rank() == 1 {
            return pause(&nic, 10_000);
        }
        p4.put(&put(&nic, md, 1, 8)).unwrap();
        assert_eq!(next().ni_fail, NiFail::Ok);
        // One is under way when that becomes known, the other is sent afterwards.
        nic.charge(Span::from_micros(200));
        for _ in 0..2 {
            p4.put(&put(&nic, md, 1, 8)).unwrap();
            assert_eq!(next().ni_fail, NiFail::Undeliverable);
        }
        // The interface reads the bytes even so.
        pause(&nic, 10);
        p4.md_release(md).unwrap();
    });
}

/// One rank changes another's words by atomic operations; both see what they should.
#[test]
fn atomic_operations_work_at_the_target() {
    run(&PortalsConfig::pair(), |nic| {
        let both = MeOptions::OP_PUT | MeOptions::OP_GET;
        let (p4, memory, md, next) = opened(&nic, |memory| Me { length: 64, ..Me::new(memory, both, 0, 0) });
        let word = |at| memory.word(at);
        if nic.rank() == 1 {
            memory.write(0, &10u64.to_le_bytes());
            for (kind, atomic, value) in [
                (EventKind::Atomic, (AtomicOp::Sum, Datatype::Uint64), 15),
                (EventKind::FetchAtomic, (AtomicOp::Max, Datatype::Uint64), 20),
                (EventKind::FetchAtomic, (AtomicOp::Cswap, Datatype::Uint64), 20),
                (EventKind::FetchAtomic, (AtomicOp::Cswap, Datatype::Uint64), 7),
                (EventKind::FetchAtomic, (AtomicOp::Swap, Datatype::Uint64), 1),
            ] {
                let event = next();
                nic.sync();
                assert_eq!((event.kind, event.atomic, word(0)), (kind, Some(atomic), value));
            }
            return;
        }
        let send = |value: u64| memory.write(128, &value.to_le_bytes());
        let put = Put { from: Region { md, offset: 128 }, ..put(&nic, md, 1, 8) };
        let (to, datatype) = (Region { md, offset: 192 }, Datatype::Uint64);
        let ended = |kind| {
            let event = next();
            assert_eq!((event.kind, event.ni_fail, event.mlength), (kind, NiFail::Ok, 8));
            pause(&nic, 50);
            word(192)
        };
        send(5);
        p4.atomic(&Atomic { put, operation: AtomicOp::Sum, datatype }).unwrap();
        ended(EventKind::Ack);
        send(20);
        p4.fetch_atomic(&FetchAtomic { to, put, operation: AtomicOp::Max, datatype }).unwrap();
        assert_eq!(ended(EventKind::Reply), 15);
        let swap = |operation, operand: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&operand.to_le_bytes());
            p4.swap(&Swap { to, put, operation, datatype, operand: bytes }).unwrap();
            ended(EventKind::Reply)
        };
        send(7);
        assert_eq!((swap(AtomicOp::Cswap, 19), swap(AtomicOp::Cswap, 20)), (20, 20));
        send(1);
        assert_eq!(swap(AtomicOp::Swap, 0), 7);
    });
}

#[test]
fn acknowledgements_come_as_asked() {
    let config = PortalsConfig::pair();
    run(&config, |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(64));
        p4.init(None).unwrap();
        let (eq, ct) = (p4.eq_alloc(64).unwrap(), p4.ct_alloc().unwrap());
        p4.pt_alloc(PtOptions::NONE, None, Some(PT)).unwrap();
        p4.me_append(PT, &Me::new(&memory, MeOptions::OP_PUT, 0, 0), List::Priority, 0).unwrap();
        p4.me_append(PT, &Me::new(&memory, MeOptions::OP_PUT | MeOptions::ACK_DISABLE, 1, 0), List::Priority, 0)
            .unwrap();
        let options = MdOptions::EVENT_CT_ACK;
        let md = p4.md_bind(&Md { options, eq: Some(eq), ct: Some(ct), ..Md::new(&memory) }).unwrap();
        nic.launched();
        let try_with = |ack, match_bits| {
            let put = put(&nic, md, 1 - nic.rank(), 32);
            p4.put(&Put { ack, target: Target { match_bits, ..put.target }, ..put }).unwrap();
            pause(&nic, 100);
            let events: Vec<_> =
                std::iter::from_fn(|| p4.eq_get(eq).ok()).map(|event| (event.kind, event.mlength)).collect();
            assert_eq!(events[0], (EventKind::Send, 32));
            (events.get(1).copied(), p4.ct_get(ct).unwrap().success)
        };
        assert_eq!(try_with(Ack::None, 0), (None, 0));
        assert_eq!(try_with(Ack::Request, 0), (Some((EventKind::Ack, 32)), 1));
        assert_eq!(try_with(Ack::Count, 0), (None, 2));
        assert_eq!(try_with(Ack::Completed, 0), (Some((EventKind::Ack, 0)), 3));
        assert_eq!(try_with(Ack::Request, 1), (None, 3));
        // What failed is told even so, and counted as a failure.
        assert_eq!(try_with(Ack::Count, 2), (Some((EventKind::Ack, 0)), 3));
        assert_eq!(p4.ct_wait(ct, 99), Ok(CtEvent { success: 3, failure: 1 }));
        p4.md_release(md).unwrap();
    });
}

/// Entries that match nothing but everything.
#[test]
fn list_entries_take_everything() {
    run(&PortalsConfig::pair(), |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(64));
        p4.init(None).unwrap();
        let (eq, ct) = (p4.eq_alloc(64).unwrap(), p4.ct_alloc().unwrap());
        p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
        let options = MeOptions::OP_PUT
            | MeOptions::EVENT_CT_COMM
            | MeOptions::EVENT_CT_BYTES
            | MeOptions::EVENT_COMM_DISABLE;
        let le = Le { memory: memory.clone(), start: 8, length: 24, options, ct: Some(ct), uid: Some(p4.uid()) };
        p4.le_append(PT, &le, List::Priority, 0).unwrap();
        let md = p4.md_bind(&Md::new(&memory)).unwrap();
        nic.launched();
        if nic.rank() == 0 {
            memory.write(0, &[3; 32]);
            for match_bits in [0, 5, u64::MAX] {
                let put = put(&nic, md, 1, 32);
                p4.put(&Put { ack: Ack::None, target: Target { match_bits, ..put.target }, ..put }).unwrap();
            }
            return;
        }
        // Three messages, each cut off at 24 bytes.
        assert_eq!(p4.ct_wait(ct, 72), Ok(CtEvent::success(72)));
        assert_eq!((memory.word(0), memory.word(24), memory.word(32)), (0, 0x0303_0303_0303_0303, 0));
        assert_eq!(p4.eq_get(eq).map(|event| event.kind), Ok(EventKind::Link));
        assert_eq!(p4.eq_get(eq), Err(P4Error::EqEmpty));
    });
}

/// What only unexpected headers keep goes with their portal table entry.
#[test]
fn unexpected_headers_go_with_their_portal_table_entry() {
    let limits = NiLimits { entries: 1, ..NiLimits::default() };
    let config = PortalsConfig { parameters: Parameters { limits, ..Parameters::xt4() }, ..PortalsConfig::pair() };
    run(&config, |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(64));
        p4.init(None).unwrap();
        p4.pt_alloc(PtOptions::NONE, None, Some(PT)).unwrap();
        let me = Me::new(&memory, MeOptions::OP_PUT | MeOptions::USE_ONCE, 0, 0);
        p4.me_append(PT, &me, List::Overflow, 0).unwrap();
        let md = p4.md_bind(&Md::new(&memory)).unwrap();
        nic.launched();
        p4.put(&put(&nic, md, 1 - nic.rank(), 8)).unwrap();
        pause(&nic, 100);
        // The entry has unlinked itself, but its header keeps its place.
        assert_eq!(p4.status().unwrap().unexpected, 1);
        assert_eq!(
            p4.me_append(PT, &me, List::Overflow, 0),
            Err(P4Error::NoSpace { what: "list entries", limit: 1 })
        );
        p4.pt_free(PT).unwrap();
        assert_eq!(p4.status().unwrap().unexpected, 0);
        p4.pt_alloc(PtOptions::NONE, None, Some(PT)).unwrap();
        p4.me_append(PT, &me, List::Overflow, 0).unwrap();
    });
}
