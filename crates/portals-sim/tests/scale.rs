//! 4096 nodes: they start, and each sends one request to each of the others.

use am_core::{Address, Endpoint, Handlers, Payload, Rank};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig};
use std::time::Instant;

/// Every rank sends a request to every other; returns how many came in all.
fn all_to_all(ranks: u32) -> u64 {
    let machine = PortalsConfig { stack_bytes: 64 << 10, ..PortalsConfig::xt4(ranks) };
    let config = ConduitConfig { segment: 4096, send_chunks: 256, reply_slots: 64, ..ConduitConfig::default() };
    let report = conduit::run(&machine, &config, |transport| {
        let mut handlers = Handlers::<u64>::new();
        let take = handlers.one_way("take", |taken: &mut u64, _: Address, _: u32, _: Payload<'_>| *taken += 1);
        let take = take.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
        for step in 1..ranks {
            endpoint.request(Rank((me + step) % ranks), take, step).unwrap();
            if step % 4 == 0 {
                endpoint.poll().unwrap();
            }
        }
        endpoint.finish().unwrap()
    });
    report.unwrap().results.into_iter().flatten().sum()
}

#[test]
fn every_pair_of_many_ranks_talks() {
    assert_eq!(all_to_all(128), 128 * 127);
}

/// `cargo test --release -p portals-sim --test scale -- --ignored --nocapture 4096`
#[test]
#[ignore = "16.8 million messages take minutes and gigabytes"]
fn all_to_all_of_4096() {
    let began = Instant::now();
    assert_eq!(all_to_all(4096), 4096 * 4095);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown");
    println!("16.8 M messages in {:.1} s, {peak}", began.elapsed().as_secs_f64());
}
