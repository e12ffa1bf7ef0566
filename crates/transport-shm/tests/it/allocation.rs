//! Nothing is allocated per message, and who sleeps is woken: two ranks send each other every kind of message
//! while an allocator counts what their threads ask for.

use am_conformance::{Exchange, allocations};
use am_core::Rank;
use std::time::Duration;
use transport_shm::{Job, JobConfig, JoinOptions, Shm};

fn between_two(program: impl Fn(Exchange<Shm>) + Sync) {
    let job = Job::create(&JobConfig::new(2)).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (job, program) = (&job, &program);
            scope.spawn(move || {
                let options = JoinOptions::default().segment_bytes(1 << 16);
                program(Exchange::attach(job.join_with(rank, options).unwrap()));
            });
        }
    });
}

/// Sends some messages of every kind to the other rank and waits for the answers.
fn converse(talk: &mut Exchange<Shm>, rounds: u64) {
    for round in 0..rounds {
        talk.medium(round, (round % 64) as usize);
        talk.reserved(round, 512);
        talk.ask(round, 4096);
    }
    talk.settle(0);
}

#[test]
fn messages_allocate_nothing() {
    between_two(|mut talk| {
        // The first use of a remote segment maps it.
        converse(&mut talk, 1);
        talk.endpoint().barrier().unwrap();
        let before = allocations();
        converse(&mut talk, 500);
        talk.endpoint().barrier().unwrap();
        talk.endpoint().drain().unwrap();
        assert_eq!(allocations() - before, 0);
        talk.finish();
    });
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(vec![1; 10]));
    assert_eq!(allocations() - before, 1);
}

/// Between two messages each side waits long enough to sleep.
#[test]
fn sleepers_are_woken_for_every_message() {
    between_two(|mut talk| {
        let first = talk.other() == Rank(1);
        for round in 1..=60 {
            if first {
                std::thread::sleep(Duration::from_millis(3));
                talk.short(round);
                talk.endpoint().wait_until(|heard| heard.value == round).unwrap();
                talk.silent(round);
            } else {
                talk.endpoint().wait_until(|heard| heard.value == round).unwrap();
            }
        }
        talk.finish();
    });
}
