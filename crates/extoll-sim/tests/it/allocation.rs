//! After a while of use, messages and puts allocate nothing, at neither side nor on the way.

use am_conformance::allocations;
use extoll_sim::ExtollConfig;
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::rma::{Access, Notify};

#[test]
fn nothing_is_allocated_per_message() {
    const WARM_UP: u32 = 2_000;
    let report = extoll_sim::run(&ExtollConfig::pair(), |nic| {
        let (velo, rma, memory) = (nic.velo(), nic.rma(), HostMemory::new(1 << 16));
        velo.open().unwrap();
        rma.open().unwrap();
        let region = rma.register(&memory, 0, 1 << 16, Access::ReadWrite).unwrap();
        let to = rma.nla(region, 0).unwrap();
        let other = nic.address(1 - nic.rank()).unwrap();
        let (peer, page) = (velo.connect(other).unwrap(), rma.connect(other).unwrap());
        let mut before = 0;
        for round in 0..2 * WARM_UP {
            if round == WARM_UP {
                before = allocations();
            }
            velo.send(peer, &[round as u8; 64], 0, 0).unwrap();
            rma.post_put_bt(page, region, 0, 3_000, to, Notify::COMPLETER).unwrap();
            rma.post_get_bt(page, region, 8_000, 100, to, Notify::COMPLETER).unwrap();
            velo.recv(None).unwrap();
            for _ in 0..2 {
                let came = rma.noti_get_block(None).unwrap();
                rma.noti_free(came).unwrap();
            }
        }
        allocations() - before
    });
    let allocated = report.unwrap().results;
    let each = allocated.iter().flatten().max().copied().unwrap();
    // Queues of the simulation may still grow once or twice.
    assert!(each < 10, "{each} allocations in {WARM_UP} rounds");
}
