//! The conduit's own ways: Long messages of both forms, puts and gets with and without registration, limits.

use am_core::transport::{Membership, Transport};
use am_core::{Address, Category, Endpoint, Handlers, Payload, Rank, Token};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, FlowControl, Local, OneSidedError};
use portals_sim::nic::HostMemory;

const FLOWS: [FlowControl; 3] = [FlowControl::Static, FlowControl::Bank, FlowControl::Disable];

/// Long payloads around the size that fits a chunk, there and back.
#[test]
fn long_messages_arrive_whole_packed_or_not() {
    for flow in FLOWS {
        conduit::run(&PortalsConfig::pair(), &ConduitConfig::with(flow), |transport| {
            let mut handlers = Handlers::<u32>::new();
            let back = handlers.reply("back", |count: &mut u32, _: Address, len: u64, payload: Payload<'_>| {
                assert_eq!(payload.to_vec(), vec![(len % 251) as u8; len as usize]);
                assert_eq!(payload.offset(), Some(7));
                *count += 1;
            });
            let back = back.unwrap();
            let there =
                handlers.request("there", move |_: &mut u32, token: Token<'_>, len: u64, payload: Payload<'_>| {
                    assert_eq!(payload.offset(), Some(11));
                    token.reply_long(back, len, &payload.to_vec(), 7).unwrap();
                });
            let there = there.unwrap();
            let mut endpoint = Endpoint::attach(transport, handlers, 0).unwrap();
            for (sent, len) in (1..).zip([0, 1, 2000, 2024, 2025, 2047, 2048, 2049, 40_000]) {
                let payload = vec![(len % 251) as u8; len];
                endpoint.request_long(Rank(1 - endpoint.rank().0), there, len as u64, &payload, 11).unwrap();
                endpoint.wait_until(|count| *count == sent).unwrap();
            }
            let received = endpoint.statistics().requests_received(Category::Long).messages;
            endpoint.finish().unwrap();
            received
        })
        .unwrap_or_else(|error| panic!("{flow:?}: {error}"));
    }
}

#[test]
fn puts_and_gets_reach_the_segment() {
    for flow in FLOWS {
        let report = conduit::run(&PortalsConfig::pair(), &ConduitConfig::with(flow), |mut transport| {
            let direct = transport.one_sided();
            if transport.local_peer().0 == 0 {
                let memory = HostMemory::new(10_000);
                memory.write(5000, b"out of segment");
                let put = direct.put(Rank(1), 100, Local::Memory(&memory, 5000), 14).unwrap();
                assert!(!direct.is_done(put));
                transport.wait_direct(put);
                assert!(direct.is_done(put) && direct.has_left(put));
                let get = direct.get(Rank(1), 100, Local::Segment(40), 14).unwrap();
                transport.wait_direct(get);
                let mut found = [0; 14];
                transport.segment().read(40, &mut found).unwrap();
                assert_eq!(&found, b"out of segment");
                let get = direct.get(Rank(1), 107, Local::Memory(&memory, 0), 7).unwrap();
                transport.wait_direct(get);
                memory.read(0, &mut found[..7]);
                assert_eq!(&found[..7], b"segment");
                // Two stretches of the memory were registered, and found again.
                for _ in 0..10 {
                    let again = direct.put(Rank(1), 200, Local::Memory(&memory, 5000), 14).unwrap();
                    transport.wait_direct(again);
                }
                let counters = direct.firehose();
                assert_eq!((counters.hits, counters.misses, counters.evictions), (10, 2, 0));
            }
            let endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap();
            let mut there = [0; 14];
            endpoint.segment().read(100, &mut there).unwrap();
            endpoint.finish().unwrap();
            there
        });
        let report = report.unwrap_or_else(|error| panic!("{flow:?}: {error}"));
        assert_eq!(report.results[1].as_ref(), Some(b"out of segment"));
    }
}

#[test]
fn wrong_puts_are_refused_and_too_many_registrations_wait() {
    let config = ConduitConfig { operations: 3, firehose_slots: 4, ..ConduitConfig::default() };
    conduit::run(&PortalsConfig::pair(), &config, |mut transport| {
        let (direct, memory) = (transport.one_sided(), HostMemory::new(100));
        if transport.local_peer().0 == 0 {
            let put = |to, at, local, len| direct.put(Rank(to), at, local, len).unwrap_err().to_string();
            assert_eq!(put(2, 0, Local::Segment(0), 1), "rank 2 is outside the job of 2 ranks");
            let refused = "10 bytes at offset 65530 are outside the 65536 bytes of the segment";
            assert_eq!(put(1, 65_530, Local::Segment(0), 10), refused);
            let refused = "2 bytes at offset 99 are outside the 100 bytes of the memory";
            assert_eq!(put(1, 0, Local::Memory(&memory, 99), 2), refused);
            let begun: Vec<_> = (0..3).map(|_| direct.put(Rank(1), 0, Local::Segment(0), 8).unwrap()).collect();
            let busy = direct.get(Rank(1), 0, Local::Segment(0), 8);
            assert_eq!(busy, Err(OneSidedError::Busy { operations: 3 }));
            begun.into_iter().for_each(|put| transport.wait_direct(put));
            // More memories than descriptors: the oldest go.
            for _ in 0..10 {
                let memory = HostMemory::new(100);
                let put = direct.put(Rank(1), 0, Local::Memory(&memory, 0), 100).unwrap();
                transport.wait_direct(put);
            }
            assert_eq!((direct.firehose().misses, direct.firehose().evictions), (10, 6));
        }
        Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap().finish().unwrap();
    })
    .unwrap();
}

/// State is made for peers that are talked to, and for no others.
#[test]
fn a_large_job_keeps_state_of_those_that_talk() {
    let report = conduit::run(&portals_sim::xt4(300), &ConduitConfig::default(), |transport| {
        let endpoint = Endpoint::attach(transport, Handlers::<()>::new(), ()).unwrap();
        let peers = endpoint.transport().counters().peers;
        endpoint.finish().unwrap();
        peers
    });
    // A barrier of 300 ranks has nine rounds, each with a peer before and a peer behind.
    let most = report.unwrap().results.into_iter().flatten().max();
    assert!(most <= Some(19), "{most:?} peers");
}
