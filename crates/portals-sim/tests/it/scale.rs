//! 4096 nodes: they start, and each sends one request to each of the others.

use am_core::{Address, Endpoint, Handlers, Payload, Rank};
use fabric_sim::Report;
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig};
use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::Instant;

/// Every rank sends a request to every other; `progress` is told how many have been sent so far. Returns how many
/// came in at each.
fn all_to_all(ranks: u32, progress: impl Fn(u64) + 'static) -> Report<u64> {
    let machine = PortalsConfig { stack_bytes: 64 << 10, ..portals_sim::xt4(ranks) };
    let config = ConduitConfig { segment: 4096, send_chunks: 32, reply_slots: 32, ..ConduitConfig::tuned() };
    let sent = Rc::new(Cell::new(0));
    let report = conduit::run(&machine, &config, move |transport| {
        let mut handlers = Handlers::<u64>::new();
        let take = handlers.one_way("take", |taken: &mut u64, _: Address, _: u32, _: Payload<'_>| *taken += 1);
        let take = take.unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
        let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
        for step in 1..ranks {
            endpoint.request(Rank((me + step) % ranks), take, step).unwrap();
            sent.set(sent.get() + 1);
            progress(sent.get());
            if step % 4 == 0 {
                endpoint.poll().unwrap();
            }
        }
        endpoint.finish().unwrap()
    });
    let report = report.unwrap();
    let expected = vec![Some(u64::from(ranks) - 1); ranks as usize];
    assert_eq!(report.results, expected, "every rank has a request from every other");
    report
}

#[test]
fn every_pair_of_many_ranks_talks() {
    all_to_all(128, |_| ());
}

/// A line of what the system knows of this process's memory.
fn memory(line: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found =
        status.lines().find_map(|found| found.strip_prefix(line)?.trim_end_matches(" kB").trim().parse().ok());
    found.map_or_else(|| "unknown".into(), |kib: f64| format!("{:.2} GiB", kib / f64::from(1 << 20)))
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored scale:: --nocapture`; with
/// `AM_RANKS=1024` in the environment there are as many ranks instead of 4096. Takes two minutes and 3 GB.
#[test]
#[ignore = "16.8 million messages take minutes and gigabytes"]
fn all_to_all_of_4096() {
    let ranks = std::env::var("AM_RANKS").map_or(4096, |ranks| ranks.parse().unwrap());
    let (messages, began) = (u64::from(ranks) * u64::from(ranks - 1), Instant::now());
    let report = all_to_all(ranks, move |sent| {
        if sent % (messages / 10) == 0 {
            println!("{sent} of {messages} sent after {:.1?}, {} in use", began.elapsed(), memory("VmRSS:"));
        }
    });
    let took = began.elapsed();
    println!("{messages} requests handled and answered in {took:.1?}, at most {} in use", memory("VmHWM:"));
    println!("{} packets, {} events; {report}", report.sent, report.events);
}
