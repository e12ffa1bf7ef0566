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

use super::mapping::LINE_BYTES;
use super::raw::Places;
use super::table::BATCH;

/// Segment bytes beside the table, and bytes of memory that is no segment: puts and gets go round in them.
pub(crate) const SPARE: usize = 4 << 20;
/// Words of a cache line.
const LINE: usize = LINE_BYTES / 8;

/// What is measured among all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PgasTask {
    /// Values of eight bytes stored in another rank's segment.
    Put(Places),
    /// Values of eight bytes loaded from another rank's segment.
    Get(Places),
    /// Blocks stored in another rank's segment, out of memory in which the places are the same.
    PutBlock(Places),
    /// Barriers of the world.
    Barrier,
    /// Sums of one number of each rank.
    Allreduce,
    /// A few bytes of one rank after the other for everyone.
    BroadcastSmall,
    /// A block of one rank after the other for everyone, which it has just written. The time is that of the
    /// operation, until all have the block.
    Broadcast {
        /// Bytes of each.
        bytes: usize,
    },
    /// A part of every rank for everyone, which it has just written, timed like [`Self::Broadcast`].
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
        let (block, all, indices) = (vec![1; SPARE / 8], vec![0; SPARE / 8], Vec::with_capacity(BATCH));
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
            PgasTask::Put(_) | PgasTask::Get(_) | PgasTask::PutBlock(_) if self.endpoint.rank() != Rank(0) => {}
            PgasTask::Put(places) => self.puts(places, iterations),
            PgasTask::Get(places) => self.gets(places, iterations),
            PgasTask::PutBlock(places) => self.blocks(places, iterations),
            PgasTask::Histogram => self.batches(iterations, true),
            PgasTask::IndexGather => self.batches(iterations, false),
            PgasTask::Broadcast { bytes } => return self.give(bytes, false, iterations),
            PgasTask::Allgather { bytes } => return self.give(bytes, true, iterations),
            PgasTask::BroadcastSmall => (0..iterations).for_each(|turn| self.broadcast_small(turn)),
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

    /// A place in rank 1's segment behind the table.
    fn spare(&self, at: usize) -> GlobalPtr<u64> {
        let end = self.endpoint.segment_len(Rank(1)).expect("there are two ranks");
        GlobalPtr::new(Rank(1), end - SPARE as u64 + at as u64)
    }

    fn puts(&mut self, places: Places, count: u64) {
        let (first, wrap) = (self.spare(0), places.wrap());
        for index in 0..count {
            let to = GlobalPtr::<u64>::new(first.rank(), first.offset() + places.at(index, wrap) as u64);
            self.endpoint.put_value(to, index).expect("the place is inside");
        }
    }

    fn gets(&mut self, places: Places, count: u64) {
        let (first, wrap) = (self.spare(0), places.wrap());
        for index in 0..count {
            let from = GlobalPtr::<u64>::new(first.rank(), first.offset() + places.at(index, wrap) as u64);
            black_box(self.endpoint.get_value(from).expect("the place is inside"));
        }
    }

    fn blocks(&mut self, places: Places, count: u64) {
        let (words, wrap) = (places.step / 8, places.wrap());
        for index in 0..count {
            let at = places.at(index, wrap);
            let from = &self.block[at / 8..][..words];
            self.endpoint.put_slice(self.spare(at).slice(words as u64), from).expect("the place is inside");
        }
    }

    fn together(&mut self, task: PgasTask) {
        let Self { endpoint, world, .. } = self;
        let done = match task {
            PgasTask::Barrier => world.barrier(endpoint),
            PgasTask::Allreduce => world.allreduce_one(endpoint, 1.0_f64, Sum).map(|sum| {
                black_box(sum);
            }),
            other => unreachable!("{other:?} is no collective operation"),
        };
        done.expect("nobody is lost");
    }

    fn broadcast_small(&mut self, turn: u64) {
        let (root, mut given) = ((turn % u64::from(self.world.size())) as u32, [turn]);
        self.world.broadcast(&mut self.endpoint, root, &mut given).expect("nobody is lost");
        black_box(given);
    }

    /// Ranks take turns to give a block, or all give a part of one. Who gives has just written every line.
    fn give(&mut self, bytes: usize, all_give: bool, turns: u64) -> Duration {
        let (words, ranks, me) = (bytes / 8, self.world.size() as usize, self.world.me() as usize);
        let mut took = Duration::ZERO;
        for turn in 0..turns {
            let root = (turn % ranks as u64) as usize;
            let own = if all_give { words / ranks } else { words };
            if all_give || root == me {
                self.block[..own].chunks_mut(LINE).for_each(|line| line[0] = turn);
                black_box(&mut self.block);
            }
            self.meet();
            let start = Instant::now();
            let Self { endpoint, world, block, all, .. } = self;
            let (block, all) = (&mut block[..own], &mut all[..own * if all_give { ranks } else { 1 }]);
            let done = match all_give {
                true => world.allgather(endpoint, block, all),
                false if root == me => world.broadcast(endpoint, root as u32, block),
                false => world.broadcast(endpoint, root as u32, all),
            };
            done.expect("nobody is lost");
            self.meet();
            took += start.elapsed();
            let got = if all_give || root != me { &self.all } else { &self.block };
            assert!([0, words - LINE].iter().all(|at| got[*at] == turn), "what was given has come");
        }
        took
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
