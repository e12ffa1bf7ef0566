//! The tasks of the calls bench over UDP: two ranks as threads of this process that talk over loopback, by calls
//! and by bare active messages, so that each figure has its baseline in the same run.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use active_messages::calls::{CallEndpoint, Calls, Failure, Method, Methods, SliceMethod};
use active_messages::{Endpoint, Handlers, HasLayer, Payload, Rank, Request, Token};
use transport_udp::{LocalJob, LocalOptions, Udp, UdpConfig};

/// Bytes of what is sent at once, and of the part of a segment that Longs rotate over.
const BLOCK: usize = 1 << 20;
const SPARE: usize = 8 << 20;
const OTHER: Rank = Rank(1);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarCallTask {
    /// A Short request and its Short reply.
    Trip,
    /// A call without values.
    Empty,
    /// A call of a future without values.
    EmptyAwaited,
    /// A Long of a mebibyte and its Short reply.
    LongTrip,
    /// A mebibyte there, nothing back.
    Bulk,
}

thread_local! {
    static CREW: RefCell<Option<FarCallCrew>> = const { RefCell::new(None) };
}

impl FarCallTask {
    /// Does it with two ranks, which are started at its first use.
    pub(crate) fn run(self, iterations: u64) -> Duration {
        CREW.with_borrow_mut(|crew| crew.get_or_insert_with(FarCallCrew::start).run(self, iterations))
    }
}

/// Ends both ranks.
pub(crate) fn end() {
    CREW.take().into_iter().for_each(FarCallCrew::end);
}

struct State {
    calls: Calls<u64>,
    replies: u64,
}

impl HasLayer<Calls<u64>> for State {
    fn as_layer(&self) -> &Calls<u64> {
        &self.calls
    }

    fn as_layer_mut(&mut self) -> &mut Calls<u64> {
        &mut self.calls
    }
}

struct FarCallRank {
    endpoint: Endpoint<Udp, State>,
    ask: Request<u64>,
    empty: Method<(), ()>,
    bulk: SliceMethod<u64, u64>,
    over: Method<(), ()>,
    block: Vec<u64>,
    tasks: u64,
}

impl FarCallRank {
    fn join(job: &LocalJob, rank: u32) -> Self {
        let (few, mut methods) = ("there is room for all of them", Methods::<u64>::new());
        let empty = methods.function("empty", |_, _, ()| Ok::<(), Failure>(())).expect(few);
        let bulk = methods.slices("bulk", |_, _, values: &[u64], answer| {
            answer.push(values[values.len() - 1]);
            Ok(())
        });
        let over = methods.function("over", |tasks: &mut u64, _, ()| {
            *tasks += 1;
            Ok(())
        });
        let mut handlers = Handlers::<State>::new();
        let calls = Calls::register(&mut handlers, methods, 0).expect(few);
        let reply = handlers.reply("reply", |state: &mut State, _, _: u64, _: Payload<'_>| state.replies += 1);
        let reply = reply.expect(few);
        let ask = handlers.request("ask", move |_: &mut State, token: Token<'_>, value: u64, _: Payload<'_>| {
            token.reply(reply, value).expect("the asker waits");
        });
        let (ask, bulk, over) = (ask.expect(few), bulk.expect(few), over.expect(few));
        let transport = job.join(rank).expect("every rank joins once");
        let state = State { calls, replies: 0 };
        let endpoint = Endpoint::attach(transport, handlers, state).expect("all ranks have the same tables");
        Self { endpoint, ask, empty, bulk, over, block: vec![7; BLOCK / 8], tasks: 0 }
    }

    /// Serves until a task of rank 0 is over.
    fn serve(&mut self) {
        self.tasks += 1;
        let tasks = self.tasks;
        self.endpoint.serve_until(|over| *over == tasks).expect("nobody is lost");
    }

    /// Does a task; its time.
    fn perform(&mut self, task: FarCallTask, iterations: u64) -> Duration {
        let Self { endpoint, ask, empty, bulk, over, block, .. } = self;
        let (there, empty) = ("the other serves", *empty);
        // The other has woken up.
        endpoint.call(OTHER, empty, &()).wait(endpoint).expect(there);
        let start = Instant::now();
        match task {
            FarCallTask::Trip => {
                for value in 0..iterations {
                    let due = endpoint.state().replies + 1;
                    endpoint.request(OTHER, *ask, value).expect(there);
                    endpoint.wait_until(|state| state.replies == due).expect(there);
                }
            }
            FarCallTask::Empty => {
                for _ in 0..iterations {
                    endpoint.call(OTHER, empty, &()).wait(endpoint).expect(there);
                }
            }
            FarCallTask::EmptyAwaited => {
                let all = endpoint.run(async |context| {
                    for _ in 0..iterations {
                        context.call(OTHER, empty, &()).await.expect(there);
                    }
                });
                all.expect(there);
            }
            FarCallTask::LongTrip => {
                for index in 0..iterations {
                    let due = endpoint.state().replies + 1;
                    let at = index * BLOCK as u64 % SPARE as u64;
                    let bytes = zerocopy::IntoBytes::as_bytes(block.as_slice());
                    endpoint.request_long(OTHER, *ask, index, bytes, at).expect(there);
                    endpoint.wait_until(|state| state.replies == due).expect(there);
                }
            }
            FarCallTask::Bulk => {
                for _ in 0..iterations {
                    let answer = endpoint.call(OTHER, *bulk, block).wait(endpoint).expect(there);
                    assert_eq!(answer, [7]);
                }
            }
        }
        let elapsed = start.elapsed();
        endpoint.call(OTHER, *over, &()).wait(endpoint).expect(there);
        elapsed
    }
}

/// This thread's rank, and that of a thread that sleeps between two tasks.
struct FarCallCrew {
    rank: FarCallRank,
    orders: Sender<()>,
    other: JoinHandle<()>,
}

impl FarCallCrew {
    fn start() -> Self {
        let options = LocalOptions::default().segment_bytes(SPARE);
        let job = Arc::new(LocalJob::with(2, options, UdpConfig::new([])).expect("loopback has free ports"));
        let theirs = Arc::clone(&job);
        let (orders, received) = mpsc::channel();
        let other = thread::spawn(move || {
            let mut rank = FarCallRank::join(&theirs, 1);
            while received.recv().is_ok() {
                rank.serve();
            }
            rank.endpoint.leave();
        });
        Self { rank: FarCallRank::join(&job, 0), orders, other }
    }

    fn run(&mut self, task: FarCallTask, iterations: u64) -> Duration {
        self.orders.send(()).expect("rank 1 is there");
        self.rank.perform(task, iterations)
    }

    fn end(self) {
        drop(self.orders);
        self.other.join().expect("rank 1 ends well");
        self.rank.endpoint.leave();
    }
}
