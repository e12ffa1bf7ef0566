//! The tasks of the pgas bench: one-sided access, collective operations and arrays among all ranks of a crew, over
//! a job of their own with segments for the table.

use std::hint::black_box;
use std::time::{Duration, Instant};

use active_messages::pgas::array::GlobalArray;
use active_messages::pgas::array::distribution::Distribution;
use active_messages::pgas::collectives::Sum;
use active_messages::pgas::memory::GlobalMemory;
use active_messages::pgas::pointer::GlobalPtr;
use active_messages::pgas::{Pgas, Team};
use active_messages::shm::{Job, JoinOptions, Shm};
use active_messages::{Endpoint, Handlers, Rank};
use lab::random_access::hpcc;
use serde::{Deserialize, Serialize};

use super::table::BATCH;

/// Segment bytes beside the table, for puts and gets.
const SPARE: usize = 4 << 20;

/// What is measured among all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PgasTask {
    /// Values of eight bytes stored in another rank's segment.
    Put,
    /// Values of eight bytes loaded from another rank's segment.
    Get,
    /// Blocks stored in another rank's segment.
    PutBlock {
        /// Bytes of each.
        bytes: usize,
    },
    /// Barriers of the world.
    Barrier,
    /// Sums of one number of each rank.
    Allreduce,
    /// Blocks of rank 0 for everyone.
    Broadcast {
        /// Bytes of each.
        bytes: usize,
    },
    /// A block of every rank for everyone.
    Allgather {
        /// Bytes of all of them together.
        bytes: usize,
    },
    /// Ones added to random elements of an array, iterations counted per rank.
    Histogram,
    /// Random elements of an array, iterations counted per rank.
    IndexGather,
}

/// One rank.
pub(crate) struct PgasRank {
    endpoint: Endpoint<Shm, Pgas>,
    world: Team,
    table: GlobalArray<u64>,
    block: Vec<u64>,
    all: Vec<u64>,
    indices: Vec<u64>,
    stream: u64,
}

impl PgasRank {
    /// Joins as `rank`, with `words` words of the table, and waits for all others.
    pub(crate) fn join(job: &Job, rank: u32, words: u64) -> Self {
        let segment_bytes = SPARE + 8 * words as usize;
        let options = JoinOptions::default().segment_bytes(segment_bytes);
        let shm = job.join_with(rank, options).expect("the rank is free");
        let mut handlers = Handlers::<Pgas>::new();
        let pgas = Pgas::register(&mut handlers).expect("the names differ");
        let mut endpoint = Endpoint::attach(shm, handlers, pgas).expect("all ranks run this program");
        let world = Team::world(&mut endpoint).expect("nobody is lost");
        let ranks = endpoint.ranks();
        let shape = Distribution::block([words * u64::from(ranks)], ranks).expect("a power of two");
        let table = GlobalArray::new(&mut endpoint, shape).expect("the segment has room");
        let stream = hpcc::starts(4 * i64::from(rank) * words as i64);
        let (block, all, indices) = (vec![1; SPARE / 16], vec![0; SPARE / 16], Vec::with_capacity(BATCH));
        Self { endpoint, world, table, block, all, indices, stream }
    }

    /// Leaves without a word to the others, who are leaving too.
    pub(crate) fn leave(self) {
        self.endpoint.leave();
    }

    /// Does this rank's part of `task`; the time from the common start to the common end.
    pub(crate) fn perform(&mut self, task: PgasTask, iterations: u64) -> Duration {
        self.meet();
        let start = Instant::now();
        match task {
            PgasTask::Put | PgasTask::Get | PgasTask::PutBlock { .. } if self.endpoint.rank() != Rank(0) => {}
            PgasTask::Put => self.puts(iterations),
            PgasTask::Get => self.gets(iterations),
            PgasTask::PutBlock { bytes } => self.blocks(bytes, iterations),
            PgasTask::Histogram => self.batches(iterations, true),
            PgasTask::IndexGather => self.batches(iterations, false),
            collective => (0..iterations).for_each(|_| self.together(collective)),
        }
        if matches!(task, PgasTask::Histogram | PgasTask::IndexGather) {
            self.meet();
        }
        start.elapsed()
    }

    fn meet(&mut self) {
        self.world.barrier(&mut self.endpoint).expect("nobody is lost");
    }

    /// The last bytes of rank 1's segment, which nothing else uses.
    fn spare(&self, index: u64) -> GlobalPtr<u64> {
        let end = self.endpoint.segment_len(Rank(1)).expect("there are two ranks");
        GlobalPtr::new(Rank(1), end - (SPARE / 2) as u64 + 8 * (index % (SPARE / 16) as u64))
    }

    fn puts(&mut self, count: u64) {
        for index in 0..count {
            let to = self.spare(index);
            self.endpoint.put_value(to, index).expect("the place is inside");
        }
    }

    fn gets(&mut self, count: u64) {
        for index in 0..count {
            let from = self.spare(index);
            black_box(self.endpoint.get_value(from).expect("the place is inside"));
        }
    }

    fn blocks(&mut self, bytes: usize, count: u64) {
        for _ in 0..count {
            let to = self.spare(0).slice(bytes as u64 / 8);
            self.endpoint.put_slice(to, &self.block[..bytes / 8]).expect("the place is inside");
        }
    }

    fn together(&mut self, task: PgasTask) {
        let Self { endpoint, world, block, all, .. } = self;
        let ranks = world.size() as usize;
        let done = match task {
            PgasTask::Barrier => world.barrier(endpoint),
            PgasTask::Allreduce => world.allreduce_one(endpoint, 1.0_f64, Sum).map(|sum| {
                black_box(sum);
            }),
            PgasTask::Broadcast { bytes } => world.broadcast(endpoint, 0, &mut block[..bytes / 8]),
            PgasTask::Allgather { bytes } => {
                let own = bytes / 8 / ranks;
                world.allgather(endpoint, &block[..own], &mut all[..own * ranks])
            }
            other => unreachable!("{other:?} is no collective operation"),
        };
        done.expect("nobody is lost");
    }

    fn batches(&mut self, count: u64, add: bool) {
        let len = self.table.distribution().len();
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH as u64);
            left -= batch;
            self.indices.clear();
            for _ in 0..batch {
                self.stream = hpcc::step(self.stream);
                self.indices.push(self.stream & (len - 1));
            }
            if add {
                self.table.batch_add(&mut self.endpoint, &self.indices, 1).expect("the indices are inside");
            } else {
                let out = &mut self.all[..batch as usize];
                self.table.batch_load(&mut self.endpoint, &self.indices, out).expect("the indices are inside");
                black_box(out);
            }
        }
    }
}
