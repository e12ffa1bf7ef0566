//! In steady state nothing is allocated per message: two ranks send each other every kind of message while an
//! allocator counts what their threads ask for.

use am_conformance::{Exchange, allocations, without_stall_requests};
use transport_udp::{LocalJob, Udp};

/// Sends some messages of every kind to the other rank and waits for the answers.
fn converse(talk: &mut Exchange<Udp>, rounds: u64) {
    for round in 0..rounds {
        talk.medium(round, (round % 64) as usize);
        talk.ask(round, 4096);
        talk.settle(40);
    }
    talk.settle(0);
}

#[test]
fn messages_allocate_nothing_once_buffers_have_their_size() {
    let _undisturbed = without_stall_requests();
    let job = LocalJob::new(2).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let job = &job;
            scope.spawn(move || {
                let mut talk = Exchange::attach(job.join(rank).unwrap());
                let rounds = 200;
                let mut counts = Vec::with_capacity(20);
                // Buffers grow to the most that was ever under way at once, which depends on how the ranks take
                // turns.
                while counts.len() < 20 && counts.last() != Some(&0) {
                    let before = allocations();
                    converse(&mut talk, rounds);
                    talk.endpoint().drain().unwrap();
                    counts.push(allocations() - before);
                }
                assert_eq!(counts.last(), Some(&0), "allocations in runs of {} messages: {counts:?}", 6 * rounds);
                talk.finish();
            });
        }
    });
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(vec![1; 10]));
    assert_eq!(allocations() - before, 1);
}
