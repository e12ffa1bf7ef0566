//! After a while of use, active messages over pscom allocate nothing, at neither side nor on the way, over neither plugin.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Token};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::pscom::{self, Plugin, PscomConfig};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Short, Medium and Long requests with answers of their kind; returns the most allocations at a rank after warming up.
fn allocated(config: &PscomConfig, bytes: usize) -> u64 {
    const WARM_UP: u64 = 1_000;
    let report = pscom::run(&ExtollConfig::pair(), config, move |transport| {
        let mut handlers = Handlers::<u64>::new();
        let back = handlers.reply("back", |count: &mut u64, _: Address, _: u32, _: Payload<'_>| *count += 1);
        let back = back.unwrap();
        let answer = vec![1; bytes];
        let ask = handlers.request("ask", move |_: &mut u64, token: Token<'_>, kind: u32, _: Payload<'_>| {
            let sent = match kind {
                0 => token.reply(back, kind),
                1 => token.reply_medium(back, kind, &answer),
                _ => token.reply_long(back, kind, &answer, 0),
            };
            sent.unwrap();
        });
        let ask = ask.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let other = Rank(1 - endpoint.rank().0);
        let payload = vec![3; bytes];
        let mut before = 0;
        for round in 0..2 * WARM_UP {
            if round == WARM_UP {
                before = allocations();
            }
            endpoint.request(other, ask, 0).unwrap();
            endpoint.request_medium(other, ask, 1, &payload).unwrap();
            endpoint.request_long(other, ask, 2, &payload, 1000).unwrap();
            endpoint.wait_until(|count| *count == 3 * (round + 1)).unwrap();
        }
        let allocated = allocations() - before;
        endpoint.finish().unwrap();
        allocated
    });
    report.unwrap().results.into_iter().flatten().max().unwrap()
}

#[test]
fn nothing_is_allocated_per_message() {
    let ring = PscomConfig { rendezvous: 0, ..PscomConfig::with(Plugin::Rma) };
    for (name, config) in
        [("VELO", PscomConfig::with(Plugin::Velo)), ("rendezvous", PscomConfig::with(Plugin::Rma)), ("ring", ring)]
    {
        for bytes in [300, 5000] {
            let most = allocated(&config, bytes);
            // Queues of the simulation may still grow once or twice.
            assert!(most < 20, "{most} allocations in 1000 rounds of {bytes} bytes over {name}");
        }
    }
}
