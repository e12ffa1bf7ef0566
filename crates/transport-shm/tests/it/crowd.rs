//! Sixty-four ranks as threads of one process: everyone talks to everyone, nothing is lost at the end, and the
//! job's memory stays within what the crate's documentation says.

use am_core::{Address, Endpoint, Handlers, Payload, Rank, Reply, Request, Span, Token};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use transport_shm::{Job, JobConfig};

const RANKS: u32 = 64;
/// The documented most for each ordered pair of endpoints, in KiB.
const PAIR: u64 = 168;

/// What a rank has seen: requests handled, replies handled, sum of what came back.
#[derive(Debug, Default)]
struct Seen {
    requests: u64,
    replies: u64,
    sum: u64,
}

/// Every rank asks every rank `rounds` times and then finishes at once: the last replies are handled while it
/// does.
fn everyone_asks_everyone(job: &Job, rank: u32, rounds: u64) -> Seen {
    let mut handlers = Handlers::<Seen>::new();
    let back: Reply<u64> = handlers
        .reply("back", |seen: &mut Seen, _: Address, value: u64, payload: Payload<'_>| {
            seen.replies += 1;
            seen.sum += value + payload.len() as u64;
        })
        .unwrap();
    let ask: Request<u64> = handlers
        .request("ask", move |seen: &mut Seen, token: Token<'_>, value: u64, payload: Payload<'_>| {
            seen.requests += 1;
            token.reply_medium(back, value + 1, &payload.to_vec()).expect("the requester is there");
        })
        .unwrap();
    let transport = job.join(rank).unwrap();
    let patience = Some(Span::from_secs(300));
    let mut endpoint = Endpoint::builder(transport).timeout(patience).attach(handlers, Seen::default()).unwrap();
    for round in 0..rounds {
        for step in 0..RANKS {
            let to = Rank((rank + step) % RANKS);
            endpoint.request_medium(to, ask, round, &[1; 100][..step as usize]).unwrap();
        }
    }
    endpoint.finish().unwrap()
}

fn run(config: &JobConfig, rounds: u64) -> Job {
    let job = Job::create(config).unwrap();
    std::thread::scope(|scope| {
        let job = &job;
        let ranks: Vec<_> =
            (0..RANKS).map(|rank| scope.spawn(move || everyone_asks_everyone(job, rank, rounds))).collect();
        let (all, ranks) = (u64::from(RANKS), ranks.into_iter().enumerate());
        for (rank, thread) in ranks {
            let seen = thread.join().unwrap();
            let sum = all * (1..=rounds).sum::<u64>() + rounds * (0..all).sum::<u64>();
            assert_eq!((seen.requests, seen.replies, seen.sum), (all * rounds, all * rounds, sum), "rank {rank}");
        }
    });
    job
}

/// Memory that the job has so far, in bytes: its file is sparse.
fn memory(job: &Job) -> u64 {
    File::from(job.fd().try_clone_to_owned().unwrap()).metadata().unwrap().blocks() * 512
}

#[test]
fn sixty_four_ranks_talk_to_each_other_within_their_memory() {
    let job = run(&JobConfig::new(RANKS), 20);
    let all = u64::from(RANKS);
    let most = (all * all * PAIR) << 10;
    assert!(memory(&job) <= most + (1 << 20), "{} of {most} bytes", memory(&job));
}

#[test]
fn sixty_four_ranks_need_little_with_the_smallest_rings() {
    let job = run(&JobConfig::smallest(RANKS), 3);
    let all = u64::from(RANKS);
    assert!(memory(&job) <= all * all * 8192 + (1 << 20), "{} bytes", memory(&job));
}

#[test]
fn a_job_whose_ranks_do_not_talk_needs_next_to_nothing() {
    let job = Job::create(&JobConfig::new(RANKS)).unwrap();
    let _ranks: Vec<_> = (0..RANKS).map(|rank| job.join(rank).unwrap()).collect();
    assert!(memory(&job) <= 1 << 20, "{} bytes", memory(&job));
}
