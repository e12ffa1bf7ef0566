//! After a while of use, active messages of the conduit allocate nothing, at neither side nor on the way.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig, Implementation};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn nothing_is_allocated_per_message() {
    const WARM_UP: u64 = 1_000;
    for implementation in [Implementation::First, Implementation::Second] {
        let gasnet = GasnetConfig { implementation, ..GasnetConfig::default() };
        let report = gasnet::run(&ExtollConfig::pair(), &gasnet, |transport| {
            let mut handlers = Handlers::<u64>::new();
            let back = handlers.reply("back", |count: &mut u64, _: Address, _: u32, _: Payload<'_>| *count += 1);
            let back = back.unwrap();
            let ask = handlers.request("ask", move |_: &mut u64, token: Token<'_>, kind: u32, _: Payload<'_>| {
                let sent = match kind {
                    0 => token.reply(back, kind),
                    1 => token.reply_medium(back, kind, &[1; 300]),
                    _ => token.reply_long(back, kind, &[2; 300], 0),
                };
                sent.unwrap();
            });
            let ask = ask.unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            let other = Rank(1 - endpoint.rank().0);
            let mut before = 0;
            for round in 0..2 * WARM_UP {
                if round == WARM_UP {
                    before = allocations();
                }
                endpoint.request(other, ask, 0).unwrap();
                endpoint.request_medium(other, ask, 1, &[3; 300]).unwrap();
                endpoint.request_long(other, ask, 2, &[4; 300], 1000).unwrap();
                endpoint.wait_until(|count| *count == 3 * (round + 1)).unwrap();
            }
            let allocated = allocations() - before;
            endpoint.finish().unwrap();
            allocated
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in {WARM_UP} rounds of the {implementation:?} implementation");
    }
}
