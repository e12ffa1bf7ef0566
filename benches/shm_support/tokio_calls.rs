//! The tasks of the calls bench on tokio: typed calls by tasks of a runtime between two ranks of a crew, over a
//! job of their own.

use std::thread;
use std::time::{Duration, Instant};

use active_messages::calls::{Caller, Calls, DriverEnd, Failure, Method, Methods, StopHandle, drive};
use active_messages::shm::{Job, JoinOptions, Shm};
use active_messages::{Endpoint, Handlers, Rank};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Tasks that call at once where their rate is measured.
pub(crate) const CALLERS: u64 = 256;

/// How long both sides have nothing to do before a round trip for which they are asleep.
pub(crate) const PAUSE: Duration = Duration::from_micros(500);

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokioTask {
    /// Calls without values, each of which finds both sides asleep.
    Parked,
    /// The same where each side's driver has a thread of its own.
    ParkedApart,
    /// Calls without values one after the other.
    Awaited,
    /// Calls without values of many tasks at once.
    Busy,
}

type Ended = DriverEnd<Shm, Calls<watch::Sender<u64>>>;

/// What serves the endpoint: a task of this thread's runtime, or a thread of its own.
enum Driven {
    Task(JoinHandle<Ended>),
    Apart(thread::JoinHandle<Ended>),
}

/// One rank, whose calls are made by tasks of this thread's runtime.
pub(crate) struct TokioRank {
    runtime: Runtime,
    /// While a task is performed, there.
    driven: Option<Driven>,
    stop_handle: StopHandle,
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
        let (runtime, stop_handle) = (runtime(), driver.stop_handle());
        let driven = Some(Driven::Task(runtime.spawn(driver.on_tokio())));
        Self { runtime, driven, stop_handle, caller, rank: Rank(rank), empty, over, ended, tasks: 0 }
    }

    /// Has the endpoint served by a thread of its own, or else by a task.
    fn drive(&mut self, apart: bool) {
        let expected = "nothing ends the driver but its handle";
        let driven = self.driven.take().expect(expected);
        if matches!(driven, Driven::Apart(_)) == apart {
            self.driven = Some(driven);
            return;
        }
        self.stop_handle.stop();
        let end = match driven {
            Driven::Task(task) => self.runtime.block_on(task).expect(expected),
            Driven::Apart(thread) => thread.join().expect(expected),
        };
        assert_eq!(end.error, None);
        let (caller, driver) = drive(end.endpoint);
        (self.caller, self.stop_handle) = (caller, driver.stop_handle());
        self.driven = Some(match apart {
            true => Driven::Apart(thread::spawn(move || driver.block())),
            false => Driven::Task(self.runtime.spawn(driver.on_tokio())),
        });
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: TokioTask, iterations: u64) -> Duration {
        self.drive(task == TokioTask::ParkedApart);
        let Self { runtime, caller, rank, empty, over, ended, tasks, .. } = self;
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
                TokioTask::Parked | TokioTask::ParkedApart => {
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
