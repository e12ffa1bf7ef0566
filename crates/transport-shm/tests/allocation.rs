//! Nothing is allocated per message, and who sleeps is woken: two ranks send each other every kind of message while an
//! allocator counts what their threads ask for.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Span, Token};
use std::time::Duration;
use transport_shm::{Job, JobConfig, JoinOptions, Shm};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Answers received; the last value that came.
#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    value: u64,
    buffer: Vec<u8>,
}

struct Messages {
    short: Request<u64>,
    medium: Request<u64>,
    long: Request<u64>,
    silent: Request<u64>,
}

fn attach(job: &Job, rank: u32) -> (Endpoint<Shm, Seen>, Messages) {
    let mut handlers = Handlers::<Seen>::new();
    let answer: Reply<u64> = handlers
        .reply("answer", |seen: &mut Seen, _: Address, value: u64, payload: Payload<'_>| {
            seen.answers += 1;
            seen.value = value;
            payload.copy_to(&mut seen.buffer);
        })
        .unwrap();
    let short = handlers
        .request("short", move |_: &mut Seen, token: Token<'_>, value: u64, _: Payload<'_>| {
            token.reply(answer, value).expect("the requester is there");
        })
        .unwrap();
    let medium = handlers
        .request("medium", move |seen: &mut Seen, token: Token<'_>, value: u64, payload: Payload<'_>| {
            let len = payload.copy_to(&mut seen.buffer).min(token.max_reply());
            token.reply_medium(answer, value, &seen.buffer[..len]).expect("the requester is there");
        })
        .unwrap();
    let long = handlers
        .request("long", move |seen: &mut Seen, token: Token<'_>, value: u64, payload: Payload<'_>| {
            let len = payload.copy_to(&mut seen.buffer);
            token.reply_long(answer, value, &seen.buffer[..len], 0).expect("the requester is there");
        })
        .unwrap();
    // The first of these is answered by nothing, the second late.
    let silent = handlers
        .request("silent", |seen: &mut Seen, _: Token<'_>, value: u64, _: Payload<'_>| seen.value = value)
        .unwrap();
    let transport = job.join_with(rank, JoinOptions { segment_bytes: 1 << 16, endpoint: 0 }).unwrap();
    let state = Seen { buffer: vec![0; 1 << 16], ..Seen::default() };
    let patience = Some(Span::from_secs(60));
    let endpoint = Endpoint::attach_patiently(transport, handlers, state, patience).unwrap();
    (endpoint, Messages { short, medium, long, silent })
}

/// Sends some messages of every kind to the other rank and waits for the answers.
fn converse(endpoint: &mut Endpoint<Shm, Seen>, messages: &Messages, to: Rank, rounds: u64) {
    let payload = [7; 4096];
    let before = endpoint.state().answers;
    for round in 0..rounds {
        endpoint.request(to, messages.short, round).unwrap();
        endpoint.request(to, messages.silent, round).unwrap();
        endpoint.request_medium(to, messages.medium, round, &payload[..(round % 64) as usize]).unwrap();
        endpoint.request_medium(to, messages.medium, round, &payload).unwrap();
        let mut slot = endpoint.reserve_medium(to, messages.medium, round, 512).unwrap();
        am_core::PayloadWriter::write_u64(&mut slot, 3, round);
        slot.commit();
        endpoint.request_long(to, messages.long, round, &payload, 8 * (round % 100)).unwrap();
    }
    endpoint.wait_until(|seen| seen.answers == before + 5 * rounds).unwrap();
}

fn between_two(program: impl Fn(Endpoint<Shm, Seen>, Messages, Rank) + Sync) {
    let job = Job::create(&JobConfig::new(2)).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (job, program) = (&job, &program);
            scope.spawn(move || {
                let (endpoint, messages) = attach(job, rank);
                program(endpoint, messages, Rank(1 - rank));
            });
        }
    });
}

#[test]
fn messages_allocate_nothing() {
    between_two(|mut endpoint, messages, to| {
        // The first use of a remote segment maps it.
        converse(&mut endpoint, &messages, to, 1);
        endpoint.barrier().unwrap();
        let before = allocations();
        converse(&mut endpoint, &messages, to, 500);
        endpoint.barrier().unwrap();
        endpoint.drain().unwrap();
        assert_eq!(allocations() - before, 0);
        endpoint.finish().unwrap();
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
    between_two(|mut endpoint, messages, to| {
        let first = endpoint.rank() == Rank(0);
        for round in 1..=60 {
            if first {
                std::thread::sleep(Duration::from_millis(3));
                endpoint.request(to, messages.short, round).unwrap();
                endpoint.wait_until(|seen| seen.value == round).unwrap();
                endpoint.request(to, messages.silent, round).unwrap();
            } else {
                endpoint.wait_until(|seen| seen.value == round).unwrap();
            }
        }
        endpoint.finish().unwrap();
    });
}
