//! After a while of use, active messages, puts and gets of the conduit allocate nothing, at neither side nor on the way.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, FlowControl, Local};
use portals_sim::nic::HostMemory;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn nothing_is_allocated_per_message() {
    const WARM_UP: u64 = 1_000;
    for flow in [FlowControl::Static, FlowControl::Bank, FlowControl::Disable] {
        let report = conduit::run(&PortalsConfig::pair(), &ConduitConfig::with(flow), |transport| {
            let mut handlers = Handlers::<u64>::new();
            let back = handlers.reply("back", |count: &mut u64, _: Address, _: u32, _: Payload<'_>| *count += 1);
            let back = back.unwrap();
            let ask = handlers.request("ask", move |_: &mut u64, token: Token<'_>, kind: u32, _: Payload<'_>| {
                let sent = match kind {
                    0 => token.reply(back, kind),
                    1 => token.reply_medium(back, kind, &[1; 300]),
                    2 => token.reply_long(back, kind, &[2; 300], 0),
                    _ => token.reply_long(back, kind, &[2; 3000], 0),
                };
                sent.unwrap();
            });
            let ask = ask.unwrap();
            let direct = transport.one_sided();
            let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            let other = Rank(1 - endpoint.rank().0);
            let memory = HostMemory::new(5000);
            let mut before = 0;
            for round in 0..2 * WARM_UP {
                if round == WARM_UP {
                    before = allocations();
                }
                endpoint.request(other, ask, 0).unwrap();
                endpoint.request_medium(other, ask, 1, &[3; 300]).unwrap();
                endpoint.request_long(other, ask, 2, &[4; 300], 1000).unwrap();
                endpoint.request_long(other, ask, 3, &[4; 4000], 1000).unwrap();
                let put = direct.put(other, 20_000, Local::Memory(&memory, 100), 4000).unwrap();
                let get = direct.get(other, 20_000, Local::Segment(30_000), 100).unwrap();
                endpoint.wait_until(|count| *count == 4 * (round + 1)).unwrap();
                while !(direct.is_done(put) && direct.is_done(get)) {
                    endpoint.poll().unwrap();
                }
            }
            let allocated = allocations() - before;
            endpoint.finish().unwrap();
            allocated
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in {WARM_UP} rounds with flow control {flow:?}");
    }
}
