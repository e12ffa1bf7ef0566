//! What one rank of a crew holds and every task it knows: the raw arena, the raw table and its active-message rank.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::mapping::Shared;
use super::raw::{ARENA_BYTES, Announce, Arena};
use super::table::RawTable;

/// Words of the raw table for each of its two ranks.
pub(crate) const TABLE_WORDS_PER_RANK: u64 = 1 << 24;

/// The shape of a crew, and the descriptors its ranks inherit once it has been created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorldPlan {
    /// Processes of the crew, this one included.
    pub(crate) processes: usize,
    /// Words of the raw table for each rank; 0 for none.
    pub(crate) table_words: u64,
    arena: RawFd,
    table: RawFd,
}

impl WorldPlan {
    /// A crew of `processes`, without a raw table.
    pub(crate) fn new(processes: usize) -> Self {
        Self { processes, table_words: 0, arena: -1, table: -1 }
    }

    /// The same with a raw table of `words` words for each rank, a power of two.
    pub(crate) fn with_table(self, words: u64) -> Self {
        Self { table_words: words, ..self }
    }

    /// Creates the shared memory of the crew.
    pub(crate) fn create(mut self) -> Resources {
        let arena = Shared::create(ARENA_BYTES, false).expect("the system has room for the raw arena");
        self.arena = arena.descriptor();
        let table = (self.table_words > 0)
            .then(|| Shared::create(self.table_bytes(), true).expect("the system has room for the raw table"));
        self.table = table.as_ref().map_or(-1, Shared::descriptor);
        Resources { plan: self, arena, table }
    }

    /// Takes up the shared memory that the parent created.
    pub(crate) fn inherit(self) -> Resources {
        // SAFETY: the parent left this descriptor open for us, and this is the only place that takes it.
        let arena = unsafe { Shared::inherit(self.arena, false) }.expect("the raw arena is inherited");
        let table = (self.table >= 0).then(|| {
            // SAFETY: as above.
            unsafe { Shared::inherit(self.table, true) }.expect("the raw table is inherited")
        });
        Resources { plan: self, arena, table }
    }

    fn table_bytes(&self) -> usize {
        self.processes * self.table_words as usize * 8
    }
}

/// The shared memory of a crew, before this process has a rank in it.
pub(crate) struct Resources {
    plan: WorldPlan,
    arena: Shared,
    table: Option<Shared>,
}

impl Resources {
    /// The plan with the descriptors filled in.
    pub(crate) fn plan(&self) -> &WorldPlan {
        &self.plan
    }

    /// Takes the place of `rank`.
    pub(crate) fn join(self, rank: usize) -> World {
        let ranks = self.plan.processes;
        World {
            rank,
            arena: Arena::new(self.arena, rank, ranks),
            table: self.table.map(|memory| RawTable::new(memory, self.plan.table_words, rank, ranks)),
        }
    }
}

/// Work that all ranks of a crew do together; the iterations are counted per rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Round trips of one word in one cache line.
    RawWord,
    /// Round trips of a line each way with 56 bytes of payload.
    RawPayload,
    /// A one-way stream through a ring of 64-byte slots.
    RawRing(Announce),
    /// A one-way stream of blocks copied into the mapping.
    RawCopy {
        /// Bytes of one block.
        bytes: usize,
        /// Bytes of the mapping used in turn.
        span: usize,
        /// Whether the receiver copies each block out.
        out: bool,
    },
    /// Updates of the shared table by every rank.
    RawTable,
}

/// One rank of a crew.
pub(crate) struct World {
    rank: usize,
    arena: Arena,
    table: Option<RawTable>,
}

impl World {
    /// Does this rank's part of `task` and returns its time from the common start on.
    pub(crate) fn perform(&mut self, task: &Task, iterations: u64) -> Duration {
        let elapsed = self.work(task, iterations);
        self.arena.publish_cpu();
        elapsed
    }

    fn work(&mut self, task: &Task, iterations: u64) -> Duration {
        match *task {
            Task::RawWord => self.arena.ping_pong_word(iterations),
            Task::RawPayload => self.arena.ping_pong_payload(iterations),
            Task::RawRing(announce) => self.arena.ring(announce, iterations),
            Task::RawCopy { bytes, span, out } => self.arena.copy_blocks(bytes, span, out, iterations),
            Task::RawTable => {
                let table = self.table.as_mut().expect("the plan has a table");
                table.fill();
                self.arena.barrier();
                table.touch();
                self.arena.barrier();
                let start = Instant::now();
                table.update(iterations);
                self.arena.barrier();
                start.elapsed()
            }
        }
    }

    /// The rank of this process.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The CPUs on which the ranks stood at the end of the last task.
    pub(crate) fn cpus(&self) -> Vec<u64> {
        self.arena.cpus()
    }
}
