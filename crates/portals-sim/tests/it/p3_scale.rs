//! All to all on Portals 3.3: every rank sends every other one message, which goes behind the others in a locally
//! managed buffer.

use portals_sim::nic::HostMemory;
use portals_sim::nic::p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink};
use portals_sim::{Nic, PortalsConfig};
use std::fs;

const BYTES: u32 = 16;

/// Sends one message to every other rank and takes those of all others; returns the sum of their numbers.
fn all_to_all(nic: &Nic<'_>) -> u64 {
    let (p3, ranks) = (nic.p3(), nic.ranks());
    p3.init().unwrap();
    let eq = p3.eq_alloc(4 * ranks).unwrap();
    let (buffer, source) = (HostMemory::new((ranks * BYTES) as usize), HostMemory::new(BYTES as usize));
    let me = p3.me_attach(1, Criteria::bits(0, u64::MAX), Unlink::Retain, Position::After).unwrap();
    let quiet = Options::EVENT_START_DISABLE;
    let md = Md { eq: Some(eq), ..Md::new(&buffer, Options::OP_PUT | quiet) };
    p3.md_attach(me, &md, Unlink::Retain).unwrap();
    let md = p3.md_bind(&Md::new(&source, quiet), Unlink::Retain).unwrap();
    nic.launched();
    let (mut sent, mut taken, mut sum) = (1, 1, 0);
    while taken < ranks {
        if sent < ranks {
            let peer = nic.id((nic.rank() + sent) % ranks).unwrap();
            p3.put(md, 0, BYTES, Ack::None, peer, 1, 0, 0, nic.rank().into()).unwrap();
            sent += 1;
        }
        // While it sends it looks once for each message, afterwards it waits.
        let event = if sent < ranks { p3.eq_get(eq) } else { p3.eq_wait(eq, None) };
        if let Ok(event) = event {
            assert_eq!((event.kind, event.mlength), (EventKind::PutEnd, BYTES));
            (taken, sum) = (taken + 1, sum + event.hdr_data);
        }
    }
    assert_eq!(p3.status().unwrap().dropped, 0);
    sum
}

fn run(ranks: u32) {
    let config = PortalsConfig { stack_bytes: 64 << 10, ..portals_sim::xt4(ranks) };
    let began = std::time::Instant::now();
    let report = portals_sim::run(&config, |nic| all_to_all(&nic)).unwrap_or_else(|error| panic!("{error}"));
    let took = began.elapsed();
    let all = u64::from(ranks) * u64::from(ranks - 1) / 2;
    for (rank, sum) in report.results.iter().enumerate() {
        assert_eq!(*sum, Some(all - rank as u64), "rank {rank} has everyone's message");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("no VmHWM");
    println!(
        "{ranks} ranks: {} messages, {} events in {took:.1?}, {memory}; {report}",
        report.sent, report.events
    );
}

#[test]
fn a_hundred_ranks_send_to_all() {
    run(100);
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored p3_scale::two_thousand --nocapture`
#[test]
#[ignore = "long: 4.2 million messages"]
fn two_thousand_ranks_send_to_all() {
    run(2048);
}

/// `cargo test --release -p active-messages-portals --test it -- --ignored p3_scale::four_thousand --nocapture`
#[test]
#[ignore = "long: 16.8 million messages"]
fn four_thousand_ranks_send_to_all() {
    run(4096);
}
