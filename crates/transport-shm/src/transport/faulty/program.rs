//! What a program sees of a rank that breaks the protocol: it is named to the others, who go on without it.

use crate::layout::{Layout, endpoint};
use crate::region::View;
use crate::sync::{AtomicU64, Relaxed};
use crate::{Job, JobConfig, Shm};
use am_core::{
    Address, Endpoint, Handlers, LossCause, Payload, PollError, Rank, Reply, Request, SendError, Span, Token,
    WaitError,
};
use std::sync::atomic::AtomicUsize;

const CONFIG: JobConfig = JobConfig::smallest(3);
const FAULTY: usize = 2;

/// Words of the job file, by index, and what the faulty rank writes there.
type Words = Vec<(usize, u64)>;

fn layout() -> Layout {
    Layout::new(&CONFIG)
}

/// The cells of a lane with headers that cannot be there so early.
fn garbage(lane: usize) -> Words {
    (0..layout().request_cells).map(|cell| (lane / 8 + 8 * cell, 0x55)).collect()
}

fn attach(job: &Job, rank: usize) -> (Endpoint<Shm, u64>, Request<u64>) {
    let mut handlers = Handlers::<u64>::new();
    let sum: Reply<u64> =
        handlers.reply("sum", |last: &mut u64, _: Address, value: u64, _: Payload<'_>| *last = value).unwrap();
    let add = handlers
        .request("add", move |_: &mut u64, token: Token<'_>, value: u64, _: Payload<'_>| {
            token.reply(sum, value + 1).expect("the requester is there");
        })
        .unwrap();
    // Long enough for any machine, short enough to end a test that hangs.
    let patience = Some(Span::from_secs(60));
    let transport = job.join(rank as u32).unwrap();
    (Endpoint::builder(transport).timeout(patience).attach(handlers, 0).unwrap(), add)
}

/// Counts a rank as done when it goes, also by a failed assertion.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Lets rank 2 write `words` into the job file. Ranks 0 and 1 must both be told what became of it, and still be
/// able to talk to each other.
fn spoil(words: &Words) {
    let job = Job::create(&CONFIG).unwrap();
    let (attached, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let faulty = scope.spawn(|| {
            let (endpoint, _) = attach(&job, FAULTY);
            while attached.load(Relaxed) != 2 {
                std::thread::yield_now();
            }
            let file = View::<AtomicU64>::new(&job.mapping, 0, layout().control_bytes() / 8);
            for (index, value) in words {
                file[*index].store(*value, Relaxed);
            }
            endpoint
        });
        let sound = [0, 1].map(|rank| {
            let (job, attached, done) = (&job, &attached, &done);
            scope.spawn(move || {
                let ended = Ended(done);
                let (mut endpoint, add) = attach(job, rank);
                attached.fetch_add(1, Relaxed);
                let lost = PollError::PeerLost { rank: Rank(FAULTY as u32), cause: LossCause::Faulty };
                let error = endpoint.wait_until(|_| false).expect_err("nothing else ends this wait");
                assert_eq!(error, WaitError::Poll(lost.clone()), "at rank {rank}");
                assert_eq!(endpoint.try_request(Rank(FAULTY as u32), add, 1), Err(SendError::Wait(lost.into())));
                endpoint.acknowledge_loss(Rank(FAULTY as u32));
                for value in 0..100 {
                    endpoint.request(Rank(1 - rank as u32), add, value).unwrap();
                    endpoint.wait_until(|last| *last == value + 1).unwrap();
                }
                drop(ended);
                // The other may still need answers.
                while done.load(Relaxed) != 2 {
                    let _ = endpoint.wait_until_for(Span::from_millis(1), |_| false);
                }
                endpoint
            })
        });
        // The faulty rank leaves last, so that this is not what the others see.
        let sound = sound.map(|thread| thread.join());
        drop(faulty.join());
        assert!(sound.iter().all(Result::is_ok));
    });
}

#[test]
fn garbage_among_requests_is_named_to_all() {
    spoil(&garbage(layout().pair(FAULTY, 0).request_cells));
}

#[test]
fn garbage_among_replies_is_named_to_all() {
    spoil(&garbage(layout().pair(1, FAULTY).reply_cells));
}

#[test]
fn more_given_back_than_was_used_is_named_to_all() {
    for word in 0..4 {
        spoil(&vec![(layout().pair(0, FAULTY).back / 8 + word, u64::MAX)]);
    }
}

#[test]
fn a_status_that_says_otherwise_does_not_hide_the_fault() {
    // Absent, active, finished. Each of the others finds the garbage itself.
    for pretended in [0, 1, 2] {
        let mut words = garbage(layout().pair(FAULTY, 0).request_cells);
        words.extend(garbage(layout().pair(FAULTY, 1).request_cells));
        words.push((layout().endpoint(FAULTY) / 8 + endpoint::STATUS, pretended));
        spoil(&words);
    }
}
