//! The tasks of the calls bench: typed calls between two ranks of a crew, over a job of their own.

use std::time::{Duration, Instant};

use active_messages::calls::{
    Call, CallEndpoint, Calls, Context, Failure, Method, Methods, Sink, SliceMethod, StreamMethod,
};
use active_messages::shm::{Job, JoinOptions, Shm};
use active_messages::{Endpoint, Handlers, Rank};
use serde::{Deserialize, Serialize};

/// Calls that are under way at once where their rate is measured.
const WINDOW: u64 = 256;

/// Bytes of a long answer at most.
const LONGEST: usize = 16 << 20;

/// What is measured between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallTask {
    /// A call without values, by blocking waits.
    Empty,
    /// The same in a future that the endpoint runs.
    EmptyAwaited,
    /// A structure with a text of 20 bytes and ten numbers there, and back.
    Structure,
    /// Calls without values, a window of them at a time.
    Pipelined,
    /// Bytes there, nothing back.
    Bulk {
        /// How many.
        bytes: usize,
    },
    /// A text there, nothing back.
    Text {
        /// Bytes of it.
        bytes: usize,
    },
    /// Nothing there, bytes back.
    BulkBack {
        /// How many.
        bytes: usize,
    },
    /// One call, which yields a number as answer after answer.
    Stream,
}

/// What travels as an argument and as an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Structure {
    text: String,
    numbers: Vec<u32>,
}

/// One rank.
pub(crate) struct CallRank {
    /// The state counts the tasks that are over.
    endpoint: Endpoint<Shm, Calls<u64>>,
    empty: Method<(), ()>,
    structure: Method<Structure, Structure>,
    bulk: SliceMethod<u64, u64>,
    bulk_back: SliceMethod<u64, u64>,
    text: Method<String, usize>,
    count: StreamMethod<u64, u64>,
    over: Method<(), ()>,
    tasks: u64,
}

impl CallRank {
    /// Joins as `rank` and waits for all others.
    pub(crate) fn join(job: &Job, rank: u32) -> Self {
        let shm = job.join_with(rank, JoinOptions::default()).expect("the rank is free");
        let mut methods = Methods::<u64>::new();
        let differ = "the names differ";
        let empty = methods.function("empty", |_, _, ()| Ok::<(), Failure>(())).expect(differ);
        let structure = methods.function("structure", |_, _, same: Structure| Ok(same)).expect(differ);
        let bulk = methods.slices("bulk", |_, _, values: &[u64], answer| {
            answer.push(values[values.len() - 1]);
            Ok(())
        });
        let block = vec![7u64; LONGEST / 8];
        let bulk_back = methods.slices("bulk-back", move |_, _, values: &[u64], answer| {
            answer.extend_from_slice(&block[..values[0] as usize]);
            Ok(())
        });
        let text = methods.function("text", |_, _, text: String| Ok(text.len())).expect(differ);
        let count = methods.stream("count", |_: Context<u64>, numbers: u64, mut sink: Sink<u64>| async move {
            for number in 0..numbers {
                sink.send(&number).await.map_err(|error| Failure::new(error.to_string()))?;
            }
            Ok::<_, Failure>(())
        });
        let (bulk_back, count) = (bulk_back.expect(differ), count.expect(differ));
        let over = methods.function("over", |tasks: &mut u64, _, ()| {
            *tasks += 1;
            Ok(())
        });
        let (bulk, over) = (bulk.expect(differ), over.expect(differ));
        let mut handlers = Handlers::new();
        let calls = Calls::register(&mut handlers, methods, 0).expect(differ);
        let endpoint = Endpoint::attach(shm, handlers, calls).expect("all ranks run this program");
        Self { endpoint, empty, structure, bulk, bulk_back, text, count, over, tasks: 0 }
    }

    /// Leaves without a word to the others, who are leaving too.
    pub(crate) fn leave(self) {
        self.endpoint.leave();
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: CallTask, iterations: u64) -> Duration {
        let Self { endpoint, empty, structure, bulk, bulk_back, text: text_method, count, over, tasks } = self;
        let (to, expected) = (Rank(1), "the other serves");
        let (empty, over) = (*empty, *over);
        *tasks += 1;
        let start = Instant::now();
        if endpoint.rank() != Rank(0) {
            endpoint.serve_until(|over| *over == *tasks).expect("nobody is lost");
            return start.elapsed();
        }
        match task {
            CallTask::Empty => {
                for _ in 0..iterations {
                    endpoint.call(to, empty, &()).wait(endpoint).expect(expected);
                }
            }
            CallTask::EmptyAwaited => {
                let all = endpoint.run(async |context| {
                    for _ in 0..iterations {
                        context.call(to, empty, &()).await.expect(expected);
                    }
                });
                all.expect(expected);
            }
            CallTask::Structure => {
                let value = Structure { text: "twenty bytes of text".into(), numbers: (0..10).collect() };
                for _ in 0..iterations {
                    let answer = endpoint.call(to, *structure, &value).wait(endpoint).expect(expected);
                    assert_eq!(answer.numbers.len(), 10);
                }
            }
            CallTask::Pipelined => {
                let mut under_way: Vec<Call<Method<(), ()>>> = Vec::with_capacity(WINDOW as usize);
                let mut left = iterations;
                while left > 0 {
                    let window = left.min(WINDOW);
                    left -= window;
                    under_way.extend((0..window).map(|_| endpoint.call(to, empty, &())));
                    for call in under_way.drain(..) {
                        call.wait(endpoint).expect(expected);
                    }
                }
            }
            CallTask::Bulk { bytes } => {
                let values = vec![7u64; bytes / 8];
                for _ in 0..iterations {
                    let answer = endpoint.call(to, *bulk, &values).wait(endpoint).expect(expected);
                    assert_eq!(answer, [7]);
                }
            }
            CallTask::Text { bytes } => {
                let text = "text".repeat(bytes / 4);
                for _ in 0..iterations {
                    let length = endpoint.call(to, *text_method, &text).wait(endpoint).expect(expected);
                    assert_eq!(length, bytes);
                }
            }
            CallTask::BulkBack { bytes } => {
                let words = bytes as u64 / 8;
                for _ in 0..iterations {
                    let answer = endpoint.call(to, *bulk_back, &[words]).wait(endpoint).expect(expected);
                    assert_eq!(answer.len() as u64, words);
                }
            }
            CallTask::Stream => {
                let mut answers = endpoint.stream(to, *count, &iterations);
                for number in 0..iterations {
                    assert_eq!(answers.wait_next(endpoint), Some(Ok(number)));
                }
                assert_eq!(answers.wait_next(endpoint), None);
            }
        }
        let elapsed = start.elapsed();
        endpoint.call(to, over, &()).wait(endpoint).expect(expected);
        elapsed
    }
}
