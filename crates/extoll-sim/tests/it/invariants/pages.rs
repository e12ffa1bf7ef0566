//! Rule 7: with a bad address, another process's page or the wrong rights, the error bit is set and memory
//! unchanged.

use super::{holds, run};
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::mutation::Mutation;
use extoll_sim::nic::rma::{Access, AtuFault, Command, Nla, Notify, PageSize, Rma};
use extoll_sim::{ExtollConfig, Nic};
use fabric_sim::{Topology, WaitFor};

const SIZE: usize = 32_768;

struct Place<'a> {
    rma: Rma<'a>,
    memory: HostMemory,
}

/// Rank 0 posts a put of `size` bytes to an address that `at` makes of the target's, and rank 1 expects it to
/// fail.
fn refused(nic: &Nic<'_>, access: Access, size: u32, at: impl Fn(Nla) -> Nla, fault: impl Fn(AtuFault) -> bool) {
    let place = Place { rma: nic.rma(), memory: HostMemory::new(SIZE) };
    let Place { rma, memory } = &place;
    rma.open().unwrap();
    let mine = if nic.rank() == 0 { Access::ReadWrite } else { access };
    let region = rma.register_pages(memory, 0, SIZE as u64, mine, PageSize::Kib4).unwrap();
    memory.write(0, &vec![nic.rank() as u8 + 1; SIZE]);
    if nic.rank() == 0 {
        let peer = rma.connect(nic.address(1).unwrap()).unwrap();
        let to = at(rma.nla(region, 0).unwrap());
        rma.post_put_bt(peer, region, 0, size, to, Notify::COMPLETER).unwrap();
        while rma.failure().is_none() {
            nic.idle(None, WaitFor::Named("the failure of the put"));
        }
        let failure = rma.failure().unwrap();
        assert!(fault(failure.fault), "{failure:?}");
        assert_eq!((failure.command, failure.count), (Command::Put, 1));
        return;
    }
    let came = rma.noti_get_block(None).unwrap();
    assert!(came.error, "the error bit of {came:?} is set");
    assert!(fault(rma.failure().unwrap().fault));
    rma.noti_free(came).unwrap();
    let mut found = vec![0; SIZE];
    nic.read(memory, 0, &mut found);
    assert!(found.iter().all(|byte| *byte == 2), "memory is unchanged");
}

#[test]
fn read_only_pages_are_not_written() {
    for size in [1, 64, 5_000] {
        holds(&ExtollConfig::pair(), Mutation::SkipRights, move |nic| {
            refused(&nic, Access::ReadOnly, size, |nla| nla, |fault| matches!(fault, AtuFault::ReadOnly { .. }));
        });
    }
}

#[test]
fn bad_addresses_are_not_written() {
    for distance in [SIZE as u64, 1 << 30, 1 << 61] {
        holds(&ExtollConfig::pair(), Mutation::SkipLookup, move |nic| {
            let at = move |nla: Nla| Nla(nla.0 + distance);
            refused(&nic, Access::ReadWrite, 8, at, |fault| matches!(fault, AtuFault::BadNla { .. }));
        });
    }
}

/// A put that begins inside and ends outside changes nothing, either.
#[test]
fn a_put_that_leaves_its_region_changes_nothing() {
    let config = ExtollConfig::pair();
    let outcome = run(&config, |nic| {
        let at = |nla: Nla| Nla(nla.0 + 30_000);
        refused(&nic, Access::ReadWrite, 5_000, at, |fault| matches!(fault, AtuFault::BadNla { .. }));
    });
    outcome.unwrap();
}

/// Each page has its own rights: one read-only page in the middle spoils the whole command.
#[test]
fn each_page_is_checked() {
    holds(&ExtollConfig::pair(), Mutation::SkipRights, |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(SIZE));
        rma.open().unwrap();
        let region = rma.register_pages(&memory, 0, SIZE as u64, Access::ReadWrite, PageSize::Kib4).unwrap();
        if nic.rank() == 1 {
            rma.protect(rma.nla(region, 3 * 4096).unwrap(), Access::ReadOnly).unwrap();
            for wanted in [false, true, false] {
                let came = rma.noti_get_block(None).unwrap();
                assert_eq!(came.error, wanted);
                rma.noti_free(came).unwrap();
            }
            let mut found = vec![0; SIZE];
            nic.read(&memory, 0, &mut found);
            let written: Vec<usize> = (0..8).filter(|page| found[page * 4096] != 0).collect();
            assert_eq!(written, [0, 1, 6]);
            return;
        }
        memory.write(0, &vec![9; SIZE]);
        let peer = rma.connect(nic.address(1).unwrap()).unwrap();
        for (page, pages) in [(0, 2), (2, 3), (6, 1)] {
            let to = rma.nla(region, page * 4096).unwrap();
            rma.post_put_bt(peer, region, 0, pages * 4096, to, Notify::COMPLETER).unwrap();
        }
        nic.idle(Some(nic.now() + am_core::Span::from_millis(1)), WaitFor::Named("the puts"));
    });
}

/// Two processes of a node: the address of one is none of the other's.
#[test]
fn pages_of_another_process_are_not_written() {
    let config = ExtollConfig { ranks_per_node: 2, ..ExtollConfig::new(4, Topology::Direct { nodes: 2 }) };
    holds(&config, Mutation::SkipVpid, |nic| {
        let (rma, velo, memory) = (nic.rma(), nic.velo(), HostMemory::new(SIZE));
        rma.open().unwrap();
        velo.open().unwrap();
        let region = rma.register(&memory, 0, SIZE as u64, Access::ReadWrite).unwrap();
        match nic.rank() {
            3 => {
                // Tells rank 0 its address, which will address rank 2 with it.
                let peer = velo.connect(nic.address(0).unwrap()).unwrap();
                velo.send(peer, &rma.nla(region, 0).unwrap().0.to_le_bytes(), 0, 0).unwrap();
                velo.recv(None).unwrap();
                nic.sync();
                assert_eq!(memory.word(0), 0, "memory of rank 3 is unchanged");
            }
            0 => {
                let nla = Nla(u64::from_le_bytes(velo.recv(None).unwrap().data().try_into().unwrap()));
                let peer = rma.connect(nic.address(2).unwrap()).unwrap();
                rma.post_immediate_put(peer, 77, 8, nla, Notify::COMPLETER).unwrap();
            }
            2 => {
                let came = rma.noti_get_block(None).unwrap();
                assert!(came.error);
                assert!(matches!(rma.failure().unwrap().fault, AtuFault::WrongVpid { owner: 1, vpid: 0, .. }));
                rma.noti_free(came).unwrap();
                let peer = velo.connect(nic.address(3).unwrap()).unwrap();
                velo.send(peer, b"look", 0, 0).unwrap();
            }
            _ => {}
        }
    });
}

/// Gets check the source there and the sink here; the initiator's completer has the error bit.
#[test]
fn gets_are_checked_on_both_sides() {
    let outcome = run(&ExtollConfig::pair(), |nic| {
        let (rma, memory, other) = (nic.rma(), HostMemory::new(SIZE), HostMemory::new(4096));
        rma.open().unwrap();
        let region = rma.register_pages(&memory, 0, SIZE as u64, Access::ReadWrite, PageSize::Kib4).unwrap();
        let secret = rma.register_pages(&other, 0, 4096, Access::WriteOnly, PageSize::Kib4).unwrap();
        let fixed = rma.register_pages(&other, 0, 4096, Access::ReadOnly, PageSize::Kib4).unwrap();
        other.write(0, &[5; 4096]);
        if nic.rank() == 1 {
            let came = rma.noti_get_block(None).unwrap();
            assert!(came.error && came.kind == Notify::RESPONDER && came.command == Command::Get);
            rma.noti_free(came).unwrap();
            nic.idle(Some(nic.now() + am_core::Span::from_millis(1)), WaitFor::Named("the end"));
            return;
        }
        let peer = rma.connect(nic.address(1).unwrap()).unwrap();
        let nla = |region| rma.nla(region, 0).unwrap();
        let both = Notify::RESPONDER | Notify::COMPLETER;
        rma.post_get_bt(peer, region, 0, 100, nla(secret), both).unwrap();
        let came = rma.noti_get_block(None).unwrap();
        assert!(came.error && came.kind == Notify::COMPLETER);
        assert!(matches!(rma.failure().unwrap().fault, AtuFault::WriteOnly { .. }));
        rma.noti_free(came).unwrap();
        rma.post_get_bt(peer, fixed, 0, 100, nla(region), Notify::COMPLETER).unwrap();
        let came = rma.noti_get_block(None).unwrap();
        assert!(came.error && matches!(rma.failure().unwrap().fault, AtuFault::ReadOnly { .. }));
        rma.noti_free(came).unwrap();
        assert_eq!((memory.word(0), other.word(0)), (0, 0x0505_0505_0505_0505));
    });
    outcome.unwrap();
}
