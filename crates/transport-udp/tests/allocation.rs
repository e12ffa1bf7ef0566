//! In steady state nothing is allocated per message: two ranks send each other every kind of message while an allocator
//! counts what their threads ask for.

use am_conformance::{CountingAllocator, allocations};
use am_core::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Span, Token};
use transport_udp::{LocalJob, Udp};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Answers received.
#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    buffer: Vec<u8>,
}

struct Messages {
    short: Request<u64>,
    medium: Request<u64>,
    long: Request<u64>,
    silent: Request<u64>,
}

fn attach(job: &LocalJob, rank: u32) -> (Endpoint<Udp, Seen>, Messages) {
    let mut handlers = Handlers::<Seen>::new();
    let answer: Reply<u64> = handlers
        .reply("answer", |seen: &mut Seen, _: Address, _: u64, payload: Payload<'_>| {
            seen.answers += 1;
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
    let silent = handlers.request("silent", |_: &mut Seen, _: Token<'_>, _: u64, _: Payload<'_>| {}).unwrap();
    let state = Seen { buffer: vec![0; 1 << 16], ..Seen::default() };
    let patience = Some(Span::from_secs(60));
    let endpoint = Endpoint::attach_patiently(job.join(rank).unwrap(), handlers, state, patience).unwrap();
    (endpoint, Messages { short, medium, long, silent })
}

/// Sends some messages of every kind to the other rank and waits for the answers.
fn converse(endpoint: &mut Endpoint<Udp, Seen>, messages: &Messages, to: Rank, rounds: u64) {
    let payload = [7; 4096];
    let before = endpoint.state().answers;
    for round in 0..rounds {
        endpoint.request(to, messages.short, round).unwrap();
        endpoint.request(to, messages.silent, round).unwrap();
        endpoint.request_medium(to, messages.medium, round, &payload[..(round % 64) as usize]).unwrap();
        endpoint.request_medium(to, messages.medium, round, &payload).unwrap();
        endpoint.request_long(to, messages.long, round, &payload, 8 * (round % 100)).unwrap();
        endpoint.wait_until(|seen| seen.answers + 40 >= before + 4 * (round + 1)).unwrap();
    }
    endpoint.wait_until(|seen| seen.answers == before + 4 * rounds).unwrap();
}

#[test]
fn messages_allocate_nothing_once_buffers_have_their_size() {
    let job = LocalJob::new(2).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let job = &job;
            scope.spawn(move || {
                let (mut endpoint, messages) = attach(job, rank);
                let other = Rank(1 - rank);
                let rounds = 200;
                let mut counts = Vec::with_capacity(20);
                // Buffers grow to the most that was ever under way at once, which depends on how the ranks take turns.
                while counts.len() < 20 && counts.last() != Some(&0) {
                    let before = allocations();
                    converse(&mut endpoint, &messages, other, rounds);
                    endpoint.drain().unwrap();
                    counts.push(allocations() - before);
                }
                assert_eq!(counts.last(), Some(&0), "allocations in runs of {} messages: {counts:?}", 5 * rounds);
                endpoint.finish().unwrap();
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
