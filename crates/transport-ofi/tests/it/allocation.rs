//! Nothing is allocated per message: two ranks send each other every kind of message while an allocator counts
//! what their threads ask for. What the provider asks for is its own affair: it does not use this allocator.

use am_conformance::{Exchange, allocations};
use std::time::Duration;
use transport_ofi::{LocalJob, LocalOptions, Ofi, OfiConfig};

/// Sends some messages of every kind to the other rank and waits for the answers.
fn converse(talk: &mut Exchange<Ofi>, rounds: u64) {
    for round in 0..rounds {
        talk.medium(round, (round % 64) as usize);
        talk.reserved(round, 512);
        talk.ask(round, 512);
    }
    talk.settle(0);
}

#[test]
fn messages_allocate_nothing() {
    let config = OfiConfig::default().provider("tcp").interface("127.0.0.1");
    let job = match LocalJob::with(2, LocalOptions::default().segment_bytes(1 << 16), &config) {
        Ok(job) => job,
        Err(error) => return crate::skip("allocations", "tcp", &error),
    };
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let job = &job;
            scope.spawn(move || {
                let mut talk = Exchange::attach(job.join(rank).unwrap());
                // Queues and spare memory grow to what is ever under way: most of it while a rank is absent and
                // its helper takes in.
                for absent in 0..2 {
                    talk.endpoint().barrier().unwrap();
                    if rank == absent {
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    converse(&mut talk, 1000);
                }
                // They may grow later still, when the system keeps a rank from running; not every time.
                let rows = (0..8).map(|_| {
                    talk.endpoint().barrier().unwrap();
                    let before = allocations();
                    converse(&mut talk, 200);
                    talk.endpoint().barrier().unwrap();
                    talk.endpoint().drain().unwrap();
                    allocations() - before
                });
                let fewest = rows.min().unwrap();
                assert!(fewest < 8, "{fewest} allocations for 600 messages each way, at least");
                talk.finish();
            });
        }
    });
}
