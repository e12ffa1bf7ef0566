//! After a while of use, active messages of the conduit allocate nothing, at neither side nor on the way.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use sci_sim::SciConfig;
use sci_sim::conduit::{self, ConduitConfig, MediumMethod};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn nothing_is_allocated_per_message() {
    const WARM_UP: u64 = 500;
    let one_copy = ConduitConfig { medium: MediumMethod::OneCopy, ..ConduitConfig::default() };
    for conduit in [ConduitConfig::default(), ConduitConfig::paper(), one_copy] {
        let report = conduit::run(&SciConfig::pair(), &conduit, |transport| {
            let mut handlers = Handlers::<u64>::new();
            let back = handlers.reply("back", |count: &mut u64, _: Address, _: u32, _: Payload<'_>| *count += 1);
            let back = back.unwrap();
            let ask = handlers.request("ask", move |_: &mut u64, token: Token<'_>, kind: u32, _: Payload<'_>| {
                let sent = match kind {
                    0 => token.reply(back, kind),
                    1 => token.reply_medium(back, kind, &[1; 300]),
                    _ => token.reply_long(back, kind, &[2; 3000], 0),
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
                endpoint.request_long(other, ask, 2, &[4; 3000], 5000).unwrap();
                endpoint.wait_until(|count| *count == 3 * (round + 1)).unwrap();
            }
            let allocated = allocations() - before;
            endpoint.finish().unwrap();
            allocated
        });
        let most = report.unwrap().results.into_iter().flatten().max().unwrap();
        // Queues of the simulation may still grow once or twice.
        assert!(most < 20, "{most} allocations in {WARM_UP} rounds of {conduit:?}");
    }
}
