//! The programming interface call by call: what it does, and the result codes of its misuse.

use am_core::Span;
use extoll_sim::model::Parameters;
use extoll_sim::nic::rma::{self, Access, AtuFault, Command, MAX_LOCK, MAX_SIZE, Nla, Notify, PageSize, RmaError};
use extoll_sim::nic::velo::VeloError;
use extoll_sim::nic::{Address, HostMemory};
use extoll_sim::{ExtollConfig, Nic};
use fabric_sim::{FaultEvent, Faults, Report, RunError, Scheduled, Topology, WaitFor};

fn run<R: 'static>(config: &ExtollConfig, program: impl Fn(Nic<'_>) -> R + 'static) -> Report<R> {
    let config = ExtollConfig { deadline_ns: 1e10, ..config.clone() };
    extoll_sim::run(&config, program).unwrap_or_else(|error| panic!("{error}"))
}

/// Takes the next notification and frees it.
fn next(rma: &rma::Rma<'_>) -> rma::Event {
    let notification = rma.noti_get_block(None).unwrap();
    let event = *notification;
    rma.noti_free(notification).unwrap();
    event
}

#[test]
fn velo_answers_misuse_with_its_codes() {
    run(&ExtollConfig::pair(), |nic| {
        let velo = nic.velo();
        let other = nic.address(1 - nic.rank()).unwrap();
        assert_eq!(velo.recv(None).unwrap_err(), VeloError::InvalidMbox);
        assert_eq!(velo.close().unwrap_err(), VeloError::InvalidMbox);
        assert!(matches!(velo.connect(other).unwrap_err(), VeloError::Error(_)));
        let own = velo.open().unwrap();
        assert_eq!(own, Address { node: nic.rank() as u16, vpid: 0 });
        assert!(matches!(velo.open().unwrap_err(), VeloError::Error(_)));
        for nowhere in [Address { node: 2, vpid: 0 }, Address { node: 0, vpid: 1 }] {
            assert_eq!(velo.connect(nowhere).unwrap_err(), VeloError::InvalidNode(nowhere));
        }
        let peer = velo.connect(other).unwrap();
        assert_eq!(velo.send(peer, &[0; 65], 0, 0).unwrap_err(), VeloError::InvMsg { len: 65, mtu: 64 });
        assert_eq!(velo.send(peer, &[0; 64], 0, 4).unwrap_err(), VeloError::InvMtt { mtt: 4 });
        assert_eq!(velo.recv(Some(4)).unwrap_err(), VeloError::InvMtt { mtt: 4 });
        assert_eq!(velo.probe_recv(Some(1)).unwrap_err(), VeloError::NoMsg);
        velo.disconnect(peer).unwrap();
        assert!(matches!(velo.disconnect(peer).unwrap_err(), VeloError::Error(_)));
        assert!(matches!(velo.send(peer, &[], 0, 0).unwrap_err(), VeloError::Error(_)));
        velo.close().unwrap();
        assert_eq!(velo.probe_recv(None).unwrap_err(), VeloError::InvalidMbox);
    });
}

#[test]
fn rma_answers_misuse_with_its_codes() {
    run(&ExtollConfig::pair(), |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(10_000));
        let other = nic.address(1 - nic.rank()).unwrap();
        assert_eq!(rma.connect(other).unwrap_err(), RmaError::InvPort);
        assert_eq!(rma.register(&memory, 0, 8, Access::ReadWrite).unwrap_err(), RmaError::InvPort);
        assert_eq!(rma.noti_probe().unwrap_err(), RmaError::InvPort);
        assert_eq!(rma.close().unwrap_err(), RmaError::InvPort);
        rma.open().unwrap();
        assert_eq!(rma.open().unwrap_err(), RmaError::PortsUsed { ports: 1 });
        assert_eq!(rma.connect(Address { node: 7, vpid: 0 }).unwrap_err(), RmaError::NoRoute { node: 7 });
        let nobody = rma.connect(Address { node: 0, vpid: 9 }).unwrap_err();
        assert_eq!(nobody, RmaError::NoConnect { connection: 9 });
        let peer = rma.connect(other).unwrap();
        for (at, size) in [(0, 0), (0, 10_001), (10_000, 1), (u64::MAX, 2)] {
            let refused = rma.register(&memory, at, size, Access::ReadWrite).unwrap_err();
            assert!(matches!(refused, RmaError::WrongArg { what: "size", .. }), "{refused}");
        }
        let region = rma.register(&memory, 8, 9_000, Access::ReadWrite).unwrap();
        let to = rma.nla(region, 0).unwrap();
        assert!(matches!(rma.nla(region, 9_000).unwrap_err(), RmaError::WrongArg { value: 9_000, .. }));
        let none = Notify::NONE;
        for size in [0, MAX_SIZE + 1] {
            let refused = rma.post_put_bt(peer, region, 0, size, to, none).unwrap_err();
            assert!(matches!(refused, RmaError::InvValue { what: "size", most: 8_388_608, .. }));
        }
        assert!(matches!(rma.post_get_bt(peer, region, 8_999, 2, to, none), Err(RmaError::WrongArg { .. })));
        assert!(matches!(rma.post_put_qw(peer, region, 0, 12, to, none), Err(RmaError::WrongArg { .. })));
        assert!(matches!(rma.post_put_qw(peer, region, 4, 8, to, none), Err(RmaError::WrongArg { .. })));
        let odd = Nla(to.0 + 1);
        assert!(matches!(rma.post_get_qw(peer, region, 0, 8, odd, none), Err(RmaError::WrongArg { .. })));
        for size in [0, 9] {
            let refused = rma.post_immediate_put(peer, 1, size, to, none).unwrap_err();
            assert!(matches!(refused, RmaError::InvValue { most: 8, .. }));
        }
        let refused = rma.post_lock(peer, MAX_LOCK + 1, 0, 1, none).unwrap_err();
        assert!(matches!(refused, RmaError::InvValue { what: "lock", most: 0xff_ffff, .. }));
        let command = Command::Notification;
        assert_eq!(rma.post_notification(peer, 1, 0, none).unwrap_err(), RmaError::WrongCmd { command });
        let responder = rma.post_put_bt(peer, region, 0, 8, to, Notify::RESPONDER).unwrap_err();
        assert_eq!(responder, RmaError::WrongCmd { command: Command::Put });
        assert_eq!(rma.noti_probe().unwrap_err(), RmaError::NoNoti);
        assert_eq!(rma.noti_match(|_| true).unwrap_err(), RmaError::NoNoti);
        let soon = nic.now() + Span::from_micros(1);
        assert_eq!(rma.noti_get_block(Some(soon)).unwrap_err(), RmaError::PollExceeded);
        rma.unregister(region).unwrap();
        let gone = RmaError::InvHandle { region: 0 };
        assert_eq!(rma.unregister(region).unwrap_err(), gone);
        assert_eq!(rma.post_put_bt(peer, region, 0, 8, to, none).unwrap_err(), gone);
        assert!(matches!(rma.protect(to, Access::ReadOnly), Err(RmaError::Atu(AtuFault::BadNla { .. }))));
        rma.disconnect(peer).unwrap();
        let gone = RmaError::NoConnect { connection: 0 };
        assert_eq!(rma.disconnect(peer).unwrap_err(), gone);
        assert_eq!(rma.post_immediate_put(peer, 1, 8, to, none).unwrap_err(), gone);
        rma.close().unwrap();
    });
}

#[test]
fn what_there_is_too_little_of_has_its_code() {
    let mut config = ExtollConfig { ranks_per_node: 2, ..ExtollConfig::new(2, Topology::Ring { nodes: 1 }) };
    config.parameters.rma.ports = 1;
    config.parameters.rma.pages = 10;
    config.parameters.rma.descriptors = 3;
    run(&config, |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(1 << 20));
        if nic.rank() == 1 {
            nic.charge(Span::from_micros(1));
            assert_eq!(rma.open().unwrap_err(), RmaError::PortsUsed { ports: 1 });
            return;
        }
        rma.open().unwrap();
        let four = |at| rma.register_pages(&memory, at, 8 * 4096, Access::ReadWrite, PageSize::Kib4);
        let region = four(0).unwrap();
        assert_eq!(four(0).unwrap_err(), RmaError::NoMem { pages: 8, used: 8, limit: 10 });
        rma.register_pages(&memory, 0, 1 << 20, Access::ReadWrite, PageSize::Mib2).unwrap();
        rma.unregister(region).unwrap();
        let region = four(4096).unwrap();
        let peer = rma.connect(nic.address(0).unwrap()).unwrap();
        let to = rma.nla(region, 0).unwrap();
        let put = || rma.post_put_bt(peer, region, 0, 32_768, to, Notify::NONE);
        (0..3).for_each(|_| put().unwrap());
        assert_eq!(put().unwrap_err(), RmaError::NoDescMem { outstanding: 3 });
        nic.idle(None, WaitFor::Named("a descriptor"));
        put().unwrap();
    });
    config.parameters.rma.ports = 0;
    run(&config, |nic| assert_eq!(nic.rma().open().unwrap_err(), RmaError::NoDevice));
}

/// Puts, gets, immediate puts and locks of many sizes, with all the notifications that they can give.
#[test]
fn commands_do_what_they_say() {
    run(&ExtollConfig::pair(), |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(1 << 20));
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 1 << 20, Access::ReadWrite).unwrap();
        let at = |offset| rma.nla(region, offset).unwrap();
        let peer = rma.connect(nic.address(1 - nic.rank()).unwrap()).unwrap();
        let all = Notify::REQUESTER | Notify::RESPONDER | Notify::COMPLETER;
        if nic.rank() == 1 {
            memory.write(500_000, b"to be fetched");
            for size in [1, 63, 64, 65, 4_096, 100_001] {
                let came = next(&rma);
                assert_eq!((came.kind, came.command, came.size), (Notify::COMPLETER, Command::Put, size));
                assert_eq!((came.partner, came.value), (Address { node: 0, vpid: 0 }, at(1_003).0));
                let mut found = vec![0; size as usize + 1];
                nic.read(&memory, 1_003, &mut found);
                let right = (0..size).all(|index| found[index as usize] == (index * 7 + size) as u8);
                assert!(right && found[size as usize] == 0, "{size} bytes and no more");
                memory.write(1_003, &vec![0; size as usize]);
                nic.charge(Span::from_micros(500));
            }
            let served = next(&rma);
            assert_eq!((served.kind, served.command, served.size), (Notify::RESPONDER, Command::Get, 13));
            for size in 1..=8 {
                let came = next(&rma);
                assert_eq!((came.command, came.size), (Command::ImmediatePut, size));
                nic.sync();
                assert_eq!(memory.word(800_000), 0x8877_6655_4433_2211 & (u64::MAX >> (64 - 8 * size)));
            }
            for _ in 0..4 {
                let locked = next(&rma);
                assert_eq!((locked.kind, locked.command), (Notify::RESPONDER, Command::Lock));
            }
            let told = next(&rma);
            assert_eq!((told.command, told.value, told.class), (Command::Notification, u64::MAX - 1, 200));
            return;
        }
        for size in [1, 63, 64, 65, 4_096, 100_001u32] {
            let bytes: Vec<u8> = (0..size).map(|index| (index * 7 + size) as u8).collect();
            nic.write(&memory, 200_001, &bytes);
            rma.post_put_bt(peer, region, 200_001, size, at(1_003), Notify::REQUESTER | Notify::COMPLETER)
                .unwrap();
            let done = next(&rma);
            assert_eq!((done.kind, done.command, done.value), (Notify::REQUESTER, Command::Put, at(200_001).0));
            // The source may be changed from now on.
            nic.write(&memory, 200_001, &vec![0xee; size as usize]);
            nic.charge(Span::from_micros(1_000));
        }
        rma.post_get_bt(peer, region, 77, 13, at(500_000), all).unwrap();
        assert_eq!(next(&rma).kind, Notify::REQUESTER);
        let came = next(&rma);
        assert_eq!((came.kind, came.size, came.value), (Notify::COMPLETER, 13, at(77).0));
        let mut found = [0; 13];
        nic.read(&memory, 77, &mut found);
        assert_eq!(&found, b"to be fetched");
        for size in 1..=8 {
            rma.post_immediate_put(peer, 0x8877_6655_4433_2211, size, at(800_000), Notify::COMPLETER).unwrap();
            nic.charge(Span::from_micros(50));
        }
        // Take a free lock, fail to take it again, give it back, count with another one.
        for (lock, compare, add, old, hit) in
            [(5, 0, 1, 0, true), (5, 0, 1, 1, false), (5, 1, -1, 1, true), (MAX_LOCK, i32::MAX, 40, 0, true)]
        {
            rma.post_lock(peer, lock, compare, add, Notify::RESPONDER | Notify::COMPLETER).unwrap();
            let result = next(&rma);
            assert_eq!((result.value, result.hit), (old, hit), "lock {lock}");
        }
        rma.post_notification(peer, u64::MAX - 1, 200, Notify::COMPLETER).unwrap();
    });
}

/// The source of a put is read when the interface gets to it: what changes before the requester notification may
/// be sent.
#[test]
fn a_source_changed_too_early_is_seen() {
    let report = run(&ExtollConfig::pair(), |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(1 << 16));
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 1 << 16, Access::ReadWrite).unwrap();
        if nic.rank() == 0 {
            let peer = rma.connect(nic.address(1).unwrap()).unwrap();
            rma.post_put_bt(peer, region, 0, 1 << 16, rma.nla(region, 0).unwrap(), Notify::COMPLETER).unwrap();
            nic.charge(Span::from_micros(10));
            nic.write(&memory, 0, &[1; 1 << 16]);
            return 0;
        }
        next(&rma);
        let mut found = vec![0; 1 << 16];
        nic.read(&memory, 0, &mut found);
        found.iter().position(|byte| *byte == 1).unwrap_or(found.len())
    });
    let first = report.results[1].unwrap();
    assert!(first > 0 && first < 1 << 16, "the put has a part of before and one of after: {first}");
}

#[test]
fn locks_are_atomic_among_all() {
    let config = ExtollConfig { ranks_per_node: 4, ..ExtollConfig::new(16, Topology::Torus { dims: vec![2, 2] }) };
    let report = run(&config, |nic| {
        let rma = nic.rma();
        rma.open().unwrap();
        let peer = rma.connect(nic.address(3).unwrap()).unwrap();
        let mut seen = Vec::new();
        for _ in 0..50 {
            rma.post_lock(peer, 9, i32::MAX, 1, Notify::COMPLETER).unwrap();
            seen.push(next(&rma).value);
        }
        seen
    });
    let mut all: Vec<u64> = report.results.into_iter().flatten().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..800).collect::<Vec<_>>());
}

/// A process may talk to itself and to others of its node.
#[test]
fn processes_of_a_node_reach_each_other() {
    let config = ExtollConfig { ranks_per_node: 3, ..ExtollConfig::new(3, Topology::Ring { nodes: 1 }) };
    run(&config, |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        for rank in 0..3 {
            let peer = velo.connect(nic.address(rank).unwrap()).unwrap();
            velo.send(peer, &[nic.rank() as u8], 0, 0).unwrap();
        }
        let mut from: Vec<u8> = (0..3).map(|_| velo.recv(None).unwrap().from.vpid).collect();
        from.sort_unstable();
        assert_eq!(from, [0, 1, 2]);
    });
}

/// What comes to a closed port is dropped, and its senders go on.
#[test]
fn closed_ports_drop_what_comes() {
    run(&ExtollConfig::pair(), |nic| {
        let (velo, rma) = (nic.velo(), nic.rma());
        velo.open().unwrap();
        rma.open().unwrap();
        if nic.rank() == 1 {
            velo.close().unwrap();
            rma.close().unwrap();
            nic.charge(Span::from_millis(5));
            velo.open().unwrap();
            assert_eq!(velo.probe_recv(None).unwrap_err(), VeloError::NoMsg);
            return;
        }
        nic.charge(Span::from_micros(10));
        let other = nic.address(1).unwrap();
        let (peer, page) = (velo.connect(other).unwrap(), rma.connect(other).unwrap());
        for number in 0..1_000 {
            while velo.send(peer, &[1], 0, 0).is_err() {
                nic.idle(None, WaitFor::Named("room"));
            }
            while rma.post_notification(page, number, 0, Notify::COMPLETER).is_err() {
                nic.idle(None, WaitFor::Named("room"));
            }
        }
    });
}

/// A receiver whose node has stopped is given up, and does not stand in the way of others.
#[test]
fn a_dead_receiver_is_given_up() {
    let stop = Scheduled { at_ns: 1_000.0, event: FaultEvent::NodeStop { node: 2 } };
    let mut config = ExtollConfig::new(3, Topology::Ring { nodes: 3 });
    config.faults = Faults { schedule: vec![stop], ..Faults::default() };
    config.parameters.retry.limit = 4;
    let report = run(&config, |nic| {
        let (velo, rma, memory) = (nic.velo(), nic.rma(), HostMemory::new(4096));
        velo.open().unwrap();
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 4096, Access::ReadWrite).unwrap();
        let to = rma.nla(region, 0).unwrap();
        if nic.rank() != 0 {
            // Rank 2 never gets to the end of this.
            while memory.word(0) == 0 {
                nic.idle(None, WaitFor::Named("a put"));
            }
            return memory.word(0);
        }
        nic.charge(Span::from_micros(2));
        let dead = nic.address(2).unwrap();
        let (peer, page) = (velo.connect(dead).unwrap(), rma.connect(dead).unwrap());
        velo.send(peer, b"are you there?", 0, 0).unwrap();
        (0..300).for_each(|_| rma.post_immediate_put(page, 1, 8, to, Notify::REQUESTER).unwrap());
        let alive = rma.connect(nic.address(1).unwrap()).unwrap();
        rma.post_immediate_put(alive, 42, 8, to, Notify::REQUESTER).unwrap();
        let failed = (0..301).filter(|_| next(&rma).error).count();
        let refused = velo.send(peer, b"hello?", 0, 0).unwrap_err();
        assert_eq!(refused, VeloError::Error("the receiver gives no sign"));
        failed as u64
    });
    // 255 had left before; they got no sign of life, but no report of an error either.
    assert_eq!(report.results, [Some(300 - 255), Some(42), None]);
}

#[test]
fn a_deadlock_says_what_the_interface_holds() {
    let outcome = extoll_sim::run(&ExtollConfig::pair(), |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() == 0 {
            let peer = velo.connect(nic.address(1).unwrap()).unwrap();
            velo.send(peer, &[0; 64], 0, 1).unwrap();
        }
        velo.recv(Some(2)).unwrap();
    });
    let Err(RunError::Deadlock(report)) = outcome else { panic!("{outcome:?}") };
    let text = report.to_string();
    assert!(text.contains("rank 1 waits for a VELO message") && text.contains("2 slots used"), "{text}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let hash = |seed, loss| {
        let mut config = extoll_sim::cluster(40);
        config.parameters = Parameters::deep();
        config.faults = Faults { seed, loss, ..Faults::default() };
        let report = run(&config, |nic| {
            let (velo, rma, memory) = (nic.velo(), nic.rma(), HostMemory::new(4096));
            velo.open().unwrap();
            rma.open().unwrap();
            let region = rma.register(&memory, 0, 4096, Access::ReadWrite).unwrap();
            for distance in [1, 16, 33] {
                let to = nic.address((nic.rank() + distance) % nic.ranks()).unwrap();
                let (peer, page) = (velo.connect(to).unwrap(), rma.connect(to).unwrap());
                velo.send(peer, &[1; 50], 0, 0).unwrap();
                // Every process registers its first region at the same place of its node, or nearly: some puts
                // fail.
                rma.post_put_bt(page, region, 0, 2000, rma.nla(region, 0).unwrap(), Notify::COMPLETER).unwrap();
            }
            for _ in 0..3 {
                velo.recv(None).unwrap();
                next(&rma);
            }
        });
        (report.hash, report.ended)
    };
    assert_eq!(hash(1, 0.0), hash(2, 0.0), "without faults there is nothing to draw");
    assert_eq!(hash(1, 0.02), hash(1, 0.02));
    assert_ne!(hash(1, 0.02).0, hash(2, 0.02).0);
}

#[test]
fn traces_show_the_units() {
    let config = ExtollConfig { trace: true, ..ExtollConfig::pair() };
    let report = run(&config, |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        if nic.rank() == 0 {
            let peer = velo.connect(nic.address(1).unwrap()).unwrap();
            velo.send(peer, &[0; 64], 0, 1).unwrap();
        } else {
            velo.recv(None).unwrap();
        }
    });
    let trace = report.trace.unwrap();
    let mut text = Vec::new();
    trace.write_chrome(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("velo tx") && text.contains("velo rx"), "{text}");
    let packets: std::collections::BTreeSet<u64> = trace.spans.iter().map(|span| span.packet).collect();
    assert_eq!(packets.len(), 1, "all spans are of the one packet: {:?}", trace.spans);
}
