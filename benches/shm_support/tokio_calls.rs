//! The tasks of the calls bench on tokio: typed calls by tasks of a runtime between two ranks of a crew, over a
//! job of their own.

use std::time::{Duration, Instant};

use active_messages::calls::{Caller, Calls, Failure, Method, Methods, drive};
use active_messages::shm::{Job, JoinOptions};
use active_messages::{Endpoint, Handlers, Rank};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Tasks that call at once where their rate is measured.
pub(crate) const CALLERS: u64 = 256;

/// How long both sides have nothing to do before a round trip for which they are asleep.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokioTask {
    /// Calls without values, each of which finds both sides asleep.
    Parked,
    /// Calls without values one after the other.
    Awaited,
    /// Calls without values of many tasks at once.
    Busy,
}

/// One rank, whose driver is a task of this thread's runtime.
pub(crate) struct TokioRank {
    runtime: Runtime,
    caller: Caller,
    rank: Rank,
    empty: Method<(), ()>,
    over: Method<(), ()>,
    /// Tasks that are over.
    ended: watch::Receiver<u64>,
    tasks: u64,
}

/// A runtime of one thread, which this thread lends it.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system has what a runtime needs")
}

impl TokioRank {
    /// Joins as `rank` and waits for all others.
    pub(crate) fn join(job: &Job, rank: u32) -> Self {
        let shm = job.join_with(rank, JoinOptions::default()).expect("the rank is free");
        let mut methods = Methods::<watch::Sender<u64>>::new();
        let differ = "the names differ";
        let empty = methods.function("empty", |_, _, ()| Ok::<(), Failure>(())).expect(differ);
        let over = methods.function("over", |tasks: &mut watch::Sender<u64>, _, ()| {
            tasks.send_modify(|tasks| *tasks += 1);
            Ok::<(), Failure>(())
        });
        let over = over.expect(differ);
        let (tasks, ended) = watch::channel(0);
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, tasks).expect(differ);
        let endpoint = Endpoint::attach(shm, handlers, calls).expect("all ranks run this program");
        let (caller, driver) = drive(endpoint);
        let runtime = runtime();
        runtime.spawn(driver);
        Self { runtime, caller, rank: Rank(rank), empty, over, ended, tasks: 0 }
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: TokioTask, iterations: u64) -> Duration {
        let Self { runtime, caller, rank, empty, over, ended, tasks } = self;
        let (to, empty, expected) = (Rank(1), *empty, "the other serves");
        *tasks += 1;
        let start = Instant::now();
        if *rank != Rank(0) {
            runtime.block_on(ended.wait_for(|ended| *ended == *tasks)).expect("the driver runs");
            return start.elapsed();
        }
        let (caller, over) = (caller.clone(), *over);
        // As a task: the future of `block_on` has its turn only when tasks have had 61.
        let calls = runtime.spawn(async move {
            let took = match task {
                TokioTask::Parked => {
                    let mut took = Duration::ZERO;
                    for _ in 0..iterations {
                        pause().await;
                        let start = Instant::now();
                        caller.call(to, empty, &()).await.expect(expected);
                        took += start.elapsed();
                    }
                    took
                }
                TokioTask::Awaited => {
                    for _ in 0..iterations {
                        caller.call(to, empty, &()).await.expect(expected);
                    }
                    start.elapsed()
                }
                TokioTask::Busy => {
                    let callers = (0..CALLERS).map(|place| {
                        let caller = caller.clone();
                        tokio::spawn(async move {
                            for _ in 0..part(iterations, place) {
                                caller.call(to, empty, &()).await.expect(expected);
                            }
                        })
                    });
                    for caller in callers.collect::<Vec<_>>() {
                        caller.await.expect(expected);
                    }
                    start.elapsed()
                }
            };
            caller.call(to, over, &()).await.expect(expected);
            took
        });
        runtime.block_on(calls).expect(expected)
    }
}

/// Lets a runtime sleep for [`PAUSE`], by a thread: its own timers count in milliseconds.
pub(crate) async fn pause() {
    tokio::task::spawn_blocking(|| std::thread::sleep(PAUSE)).await.expect("a sleep does not panic");
}

/// The iterations of one of the [`CALLERS`].
pub(crate) fn part(iterations: u64, place: u64) -> u64 {
    iterations / CALLERS + u64::from(place < iterations % CALLERS)
}
