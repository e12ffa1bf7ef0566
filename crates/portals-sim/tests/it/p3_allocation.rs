//! After a while of use, puts, gets and their events allocate nothing, at neither side nor on the way.

use am_conformance::allocations;
use portals_sim::PortalsConfig;
use portals_sim::nic::HostMemory;
use portals_sim::nic::p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink};

#[test]
fn nothing_is_allocated_per_message() {
    const WARM_UP: u32 = 2_000;
    let report = portals_sim::run(&PortalsConfig::pair(), |nic| {
        let (p3, memory) = (nic.p3(), HostMemory::new(1 << 16));
        p3.init().unwrap();
        let eq = p3.eq_alloc(64).unwrap();
        let me = p3.me_attach(1, Criteria::bits(0, u64::MAX), Unlink::Retain, Position::After).unwrap();
        let options = Options::OP_PUT | Options::OP_GET | Options::MANAGE_REMOTE;
        let md = Md { eq: Some(eq), ..Md::new(&memory, options) };
        let md = p3.md_attach(me, &md, Unlink::Retain).unwrap();
        nic.launched();
        let peer = nic.id(1 - nic.rank()).unwrap();
        let mut before = 0;
        for round in 0..2 * WARM_UP {
            if round == WARM_UP {
                before = allocations();
            }
            p3.put(md, 0, 64, Ack::Request, peer, 1, 0, 64, 0).unwrap();
            p3.put(md, 0, 3_000, Ack::None, peer, 1, 0, 4_096, 0).unwrap();
            p3.get(md, 8_192, 100, peer, 1, 0, 0).unwrap();
            // Both ends of three operations, an acknowledgement, and the starts.
            let mut ends = 0;
            while ends < 7 {
                ends += u32::from(matches!(
                    p3.eq_wait(eq, None).unwrap().kind,
                    EventKind::SendEnd
                        | EventKind::PutEnd
                        | EventKind::GetEnd
                        | EventKind::ReplyEnd
                        | EventKind::Ack
                ));
            }
        }
        allocations() - before
    });
    let allocated = report.unwrap().results;
    let each = allocated.iter().flatten().max().copied().unwrap();
    // Queues of the simulation may still grow once or twice.
    assert!(each < 10, "{each} allocations in {WARM_UP} rounds");
}
