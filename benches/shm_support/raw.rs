//! The raw baselines: what two processes can do at best with one mapping and no library, hand-written and as short
//! as it gets. Rank 0 leads and times; rank 1 answers; further ranks look on. No loop pauses unless told: a pause
//! costs a good part of a round trip.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::mapping::{LINE_BYTES, Line, Shared, futex_wait, futex_wake};
use super::pass::Pass;
use super::ring::{self, Announce, Ring};
use super::tokio_calls::PAUSE;

/// Most ranks that the control lines have room for.
const MAX_RANKS: usize = 64;
/// Bytes that the copying baselines rotate over at most.
pub(super) const BULK_BYTES: usize = 4 << 20;

const CONTROL: usize = 0;
pub(super) const PING: usize = CONTROL + MAX_RANKS * LINE_BYTES;
/// Pages apart from the ping lines, so that the adjacent-line prefetcher couples nothing.
const RING: usize = 64 << 10;
pub(super) const BULK: usize = 2 << 20;
/// Bytes of the mapping that all of this needs.
pub(crate) const ARENA_BYTES: usize = BULK + BULK_BYTES;

/// Looks of a waiting loop before it begins to yield.
const SPINS: u32 = 1 << 14;

/// Places in memory that are used one after the other, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Places {
    /// Bytes from one to the next.
    pub(crate) step: usize,
    /// Bytes of all: a power of two of steps.
    pub(crate) span: usize,
}

impl Places {
    /// What [`Places::at`] needs, so that loops divide by nothing: a division takes longer than a store.
    pub(crate) fn wrap(self) -> u64 {
        let count = (self.span / self.step) as u64;
        assert!(count.is_power_of_two(), "{count} places");
        count - 1
    }

    /// The byte where place number `index` begins.
    #[inline(always)]
    pub(crate) fn at(self, index: u64, wrap: u64) -> usize {
        (index & wrap) as usize * self.step
    }
}

/// What is measured between the first two ranks without a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum RawTask {
    /// Round trips of one word in one cache line.
    Word,
    /// Round trips of a line each way with 56 bytes of payload.
    Line {
        /// Whether the waiting side pauses between looks, so that it leaves the line to the writer for longer.
        pause: bool,
    },
    /// Round trips of a word that each side sleeps for (futex); before each, both have been asleep for a while.
    Asleep,
    /// A one-way stream through a ring of 64-byte slots.
    Ring(Announce),
    /// A one-way stream of blocks copied into the mapping.
    Copy {
        /// Bytes of one block.
        bytes: usize,
        /// Bytes of the mapping used in turn.
        span: usize,
        /// Whether the receiver copies each block out.
        out: bool,
    },
    /// Stores of a word in the mapping.
    Store(Places),
    /// Loads of a word of the mapping.
    Load(Places),
    /// Copies into the mapping that nobody is told of.
    Put {
        /// Bytes of each.
        bytes: usize,
    },
    /// Copies out of the mapping.
    Get {
        /// Bytes of each.
        bytes: usize,
    },
    /// Copies into the mapping out of memory that goes round, too, so that neither end is in a cache.
    PutAfresh {
        /// Bytes of each.
        bytes: usize,
    },
    /// Copies from one place to another, which stay in the cache.
    CopyInCache {
        /// Bytes of each.
        bytes: usize,
    },
    /// Rank 1 copies a block of rank 0's into its own, and rank 0 copies it back: each reads what the other has
    /// just written.
    Echo {
        /// Bytes of the block.
        bytes: usize,
    },
    /// Blocks to and fro between the memory of two processes.
    Pass {
        /// Bytes of each.
        bytes: usize,
        /// How it gets there.
        pass: Pass,
    },
    /// What one rank, or each, has just written into its part of the mapping is copied out by all others, until
    /// they have it. Ranks take turns to give. The time is that of the copies alone.
    Give {
        /// Bytes that each rank gets.
        bytes: usize,
        /// Whether every rank gives an equal part of them.
        all: bool,
    },
}

/// One rank's view of the shared arena.
pub(crate) struct Arena {
    pub(super) memory: Shared,
    pub(super) rank: usize,
    ranks: usize,
    round: u64,
}

impl Arena {
    /// A view of `memory` for `rank` of `ranks`.
    pub(crate) fn new(memory: Shared, rank: usize, ranks: usize) -> Self {
        assert!(rank < ranks && ranks <= MAX_RANKS, "rank {rank} of {ranks} ranks");
        Self { memory, rank, ranks, round: 0 }
    }

    /// Does this rank's part of `task` and returns its time.
    pub(crate) fn perform(&mut self, task: RawTask, iterations: u64) -> Duration {
        if self.rank == 0 {
            self.clear(self.memory.lines(PING, 8 * self.ranks.max(4)));
            if matches!(task, RawTask::Ring(_)) {
                self.clear(self.memory.lines(RING, ring::SLOTS));
            }
        }
        self.barrier();
        if self.rank > 1 && !matches!(task, RawTask::Give { .. }) {
            return Duration::ZERO;
        }
        match task {
            RawTask::Word => self.ping_pong_word(iterations),
            RawTask::Line { pause: false } => self.ping_pong_payload(iterations, drain),
            RawTask::Line { pause: true } => self.ping_pong_payload(iterations, drain_pausing),
            RawTask::Asleep => self.ping_pong_asleep(iterations),
            RawTask::Ring(announce) => self.stream(announce, iterations),
            RawTask::Copy { bytes, span, out } => self.copy_blocks(bytes, span, out, iterations),
            RawTask::Store(places) => self.store(places, iterations),
            RawTask::Load(places) => self.load(places, iterations),
            RawTask::Put { bytes } => self.put(bytes, iterations),
            RawTask::Get { bytes } => self.get(bytes, iterations),
            RawTask::PutAfresh { bytes } => self.put_afresh(bytes, iterations),
            RawTask::CopyInCache { bytes } => self.copy_in_cache(bytes, iterations),
            RawTask::Echo { bytes } => self.echo(bytes, iterations),
            RawTask::Pass { bytes, pass } => self.pass(bytes, pass, iterations),
            RawTask::Give { bytes, all } => self.give(bytes, all, iterations),
        }
    }

    /// Waits until every rank has come here as often as this one. Sleeps after a while: the kernel may have woken
    /// a rank on the CPU of the one that gave it its order, and finds an idle CPU for whoever wakes next.
    pub(crate) fn barrier(&mut self) {
        self.round += 1;
        let control = self.memory.lines(CONTROL, self.ranks);
        // Release: pairs with the Acquire below on every other rank.
        control[self.rank].0[0].store(self.round, Release);
        for line in control {
            let mut spins = 0;
            while line.0[0].load(Acquire) < self.round {
                spins += 1;
                if spins > SPINS {
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
        }
    }

    /// Tells the others how long this rank took and on which CPU it stands.
    pub(crate) fn publish(&self, elapsed: Duration) {
        let cpu = nix::sched::sched_getcpu().map_or(u64::MAX, |cpu| cpu as u64);
        let line = &self.memory.lines(CONTROL, self.ranks)[self.rank];
        line.0[1].store(cpu, Relaxed);
        // Release: pairs with the Acquire in `reports`, though the answer over the pipe orders the two anyway.
        line.0[2].store(elapsed.as_nanos() as u64, Release);
    }

    /// What each rank published last: its time, and its CPU.
    pub(crate) fn reports(&self) -> Vec<(Duration, u64)> {
        let report = |line: &Line| (Duration::from_nanos(line.0[2].load(Acquire)), line.0[1].load(Relaxed));
        self.memory.lines(CONTROL, self.ranks).iter().map(report).collect()
    }

    fn clear(&self, lines: &[Line]) {
        for line in lines {
            line.0.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    fn ping_pong_word(&self, rounds: u64) -> Duration {
        let word = &self.memory.lines(PING, 1)[0].0[0];
        let start = Instant::now();
        for round in 0..rounds {
            let (request, reply) = (2 * round + 1, 2 * round + 2);
            if self.rank == 0 {
                word.store(request, Release);
                wait(|| word.load(Acquire) == reply);
            } else {
                wait(|| word.load(Acquire) == request);
                word.store(reply, Release);
            }
        }
        start.elapsed()
    }

    #[inline(always)]
    fn ping_pong_payload(&self, rounds: u64, receive: impl Fn(&Line, u64) -> u64) -> Duration {
        let lines = self.memory.lines(PING, 16);
        let (out, back) = if self.rank == 0 { (&lines[0], &lines[8]) } else { (&lines[8], &lines[0]) };
        let mut sum = 0;
        let start = Instant::now();
        for round in 1..=rounds {
            if self.rank == 0 {
                fill(out, round, round ^ sum);
                sum = receive(back, round);
            } else {
                sum = receive(back, round);
                fill(out, round, round ^ sum);
            }
        }
        let elapsed = start.elapsed();
        black_box(sum);
        elapsed
    }

    fn ping_pong_asleep(&self, rounds: u64) -> Duration {
        let lines = self.memory.lines(PING, 16);
        let (asked, answered) = (&lines[0].0[0], &lines[8].0[0]);
        let send = |word: &AtomicU64, round: u64| {
            word.store(round, Release);
            futex_wake(word);
        };
        let receive = |word: &AtomicU64, round: u64| {
            loop {
                let seen = word.load(Acquire);
                if seen == round {
                    return;
                }
                futex_wait(word, seen as u32);
            }
        };
        let mut took = Duration::ZERO;
        for round in 1..=rounds {
            if self.rank == 0 {
                std::thread::sleep(PAUSE);
                let start = Instant::now();
                send(asked, round);
                receive(answered, round);
                took += start.elapsed();
            } else {
                receive(asked, round);
                send(answered, round);
            }
        }
        took
    }

    fn stream(&self, announce: Announce, messages: u64) -> Duration {
        let start = Instant::now();
        let lines = self.memory.lines(PING, 32);
        let (tail, head, done) = (&lines[0].0[0], &lines[8].0[0], &lines[16].0[0]);
        let ring = Ring { slots: self.memory.lines(RING, ring::SLOTS), tail, head };
        if self.rank == 0 {
            ring.produce(announce, messages);
            wait(|| done.load(Acquire) != 0);
        } else {
            ring.consume(announce, messages);
            done.store(1, Release);
        }
        start.elapsed()
    }

    /// Rank 0 copies each block from a small, hot private buffer and announces it; rank 1 acknowledges it, after
    /// having copied it out if `out`.
    fn copy_blocks(&self, bytes: usize, span: usize, out: bool, blocks: u64) -> Duration {
        let mut private = vec![0x5a_u8; bytes];
        let start = Instant::now();
        let lines = self.memory.lines(PING, 32);
        let (ready, taken) = (&lines[0].0[0], &lines[8].0[0]);
        let slots = (span / bytes) as u64;
        let mut known = 0;
        for block in 0..blocks {
            if self.rank == 0 {
                known = wait_for(taken, known, |known| block - known < slots);
                self.memory.copy_in(place(block % slots, bytes), &private);
                ready.store(block + 1, Release);
            } else {
                known = wait_for(ready, known, |known| known > block);
                if out {
                    self.memory.copy_out(place(block % slots, bytes), &mut private);
                    black_box(&private);
                }
                taken.store(block + 1, Release);
            }
        }
        wait(|| taken.load(Acquire) == blocks);
        start.elapsed()
    }

    fn store(&self, places: Places, words: u64) -> Duration {
        let (memory, wrap) = (self.memory.words(BULK, places.span / 8), places.wrap());
        let words = if self.rank == 0 { words } else { 0 };
        let start = Instant::now();
        for word in 0..words {
            memory[places.at(word, wrap) / 8].store(word, Relaxed);
        }
        start.elapsed()
    }

    fn load(&self, places: Places, words: u64) -> Duration {
        let (memory, wrap) = (self.memory.words(BULK, places.span / 8), places.wrap());
        let words = if self.rank == 0 { words } else { 0 };
        let start = Instant::now();
        for word in 0..words {
            black_box(memory[places.at(word, wrap) / 8].load(Relaxed));
        }
        start.elapsed()
    }

    fn put(&self, bytes: usize, blocks: u64) -> Duration {
        let private = vec![0x5a_u8; bytes];
        let blocks = if self.rank == 0 { blocks } else { 0 };
        let start = Instant::now();
        for block in 0..blocks {
            self.memory.copy_in(place(block, bytes), &private);
        }
        start.elapsed()
    }

    fn get(&self, bytes: usize, blocks: u64) -> Duration {
        let mut private = vec![0_u8; bytes];
        let blocks = if self.rank == 0 { blocks } else { 0 };
        let start = Instant::now();
        for block in 0..blocks {
            self.memory.copy_out(place(block, bytes), &mut private);
            black_box(&private);
        }
        start.elapsed()
    }

    fn put_afresh(&self, bytes: usize, blocks: u64) -> Duration {
        let private = vec![0x5a_u8; BULK_BYTES];
        let blocks = if self.rank == 0 { blocks } else { 0 };
        let start = Instant::now();
        for block in 0..blocks {
            let at = place(block, bytes);
            self.memory.copy_in(at, &private[at - BULK..][..bytes]);
        }
        start.elapsed()
    }

    fn copy_in_cache(&self, bytes: usize, blocks: u64) -> Duration {
        let (from, mut to) = (vec![0x5a_u8; bytes], vec![0_u8; bytes]);
        let blocks = if self.rank == 0 { blocks } else { 0 };
        let start = Instant::now();
        for _ in 0..blocks {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        start.elapsed()
    }

    fn echo(&self, bytes: usize, trips: u64) -> Duration {
        let own = |rank: usize| BULK + rank * BULK_BYTES / 2;
        assert!(bytes <= BULK_BYTES / 2, "{bytes} bytes of each rank");
        let lines = self.memory.lines(PING, 16);
        let (mine, theirs) = (&lines[8 * self.rank].0[0], &lines[8 - 8 * self.rank].0[0]);
        let start = Instant::now();
        for trip in 1..=trips {
            // Rank 0 announces its block, and waits for the other's.
            if self.rank == 0 {
                mine.store(trip, Release);
            }
            wait(|| theirs.load(Acquire) == trip);
            self.memory.copy_within(own(1 - self.rank), own(self.rank), bytes);
            if self.rank == 1 {
                mine.store(trip, Release);
            }
        }
        // Rank 0 has copied the last block, too.
        start.elapsed()
    }

    fn give(&self, bytes: usize, all: bool, turns: u64) -> Duration {
        let part = if all { bytes / self.ranks } else { bytes };
        assert!(part * self.ranks <= BULK_BYTES && part.is_multiple_of(LINE_BYTES), "{part} bytes of each rank");
        let given = |rank: usize| BULK + rank * part;
        let mut private = vec![0_u8; bytes];
        let mut took = Duration::ZERO;
        for turn in 0..turns {
            let root = (turn % self.ranks as u64) as usize;
            if all || root == self.rank {
                let lines = self.memory.lines(given(self.rank), part / LINE_BYTES);
                lines.iter().for_each(|line| line.0[0].store(turn, Relaxed));
            }
            self.meet(2 * turn + 1);
            let start = Instant::now();
            if all {
                for (rank, out) in private.chunks_mut(part).enumerate() {
                    self.memory.copy_out(given(rank), out);
                }
            } else if root != self.rank {
                self.memory.copy_out(given(root), &mut private);
            }
            black_box(&mut private);
            self.meet(2 * turn + 2);
            took += start.elapsed();
        }
        took
    }

    /// Waits until every rank has come to this round of a task, by lines that the task began with as zeros.
    fn meet(&self, round: u64) {
        let lines = self.memory.lines(PING, 8 * self.ranks);
        // Release: pairs with the Acquire below on every other rank.
        lines[8 * self.rank].0[0].store(round, Release);
        for other in 0..self.ranks {
            wait(|| lines[8 * other].0[0].load(Acquire) >= round);
        }
    }
}

/// Where block number `block` lies: all over the bulk memory in turn, each at a cache line of its own.
fn place(block: u64, bytes: usize) -> usize {
    let step = bytes.next_multiple_of(LINE_BYTES);
    BULK + (block % (BULK_BYTES / step) as u64) as usize * step
}

/// Spins until `ready`. After some ten microseconds the peer has surely lost its CPU, perhaps to this very loop:
/// from then on it gets the CPU, so that a bench on a busy machine or a single CPU is slow but not stuck.
#[inline(always)]
pub(super) fn wait(mut ready: impl FnMut() -> bool) {
    let mut spins = 0u32;
    while !ready() {
        spins = spins.saturating_add(1);
        if spins > SPINS {
            std::thread::yield_now();
        }
    }
}

/// Waits until `index`, last known as `known`, is `enough`, and returns it; without a look at it if it already is.
#[inline(always)]
pub(super) fn wait_for(index: &AtomicU64, mut known: u64, enough: impl Fn(u64) -> bool) -> u64 {
    if !enough(known) {
        wait(|| {
            // Acquire: pairs with the Release by which the peer published the index.
            known = index.load(Acquire);
            enough(known)
        });
    }
    known
}

/// Writes a payload of seven words of `value` and then the line's number.
pub(super) fn fill(line: &Line, sequence: u64, value: u64) {
    for word in &line.0[1..] {
        word.store(value, Relaxed);
    }
    // Release: pairs with the Acquire in `drain`; the payload is there before its number.
    line.0[0].store(sequence, Release);
}

/// Waits for the line of this number and reads its payload.
pub(super) fn drain(line: &Line, sequence: u64) -> u64 {
    wait(|| line.0[0].load(Acquire) == sequence);
    payload(line)
}

fn drain_pausing(line: &Line, sequence: u64) -> u64 {
    let look = || line.0[0].load(Acquire) == sequence;
    wait(|| {
        let arrived = look();
        if !arrived {
            std::hint::spin_loop();
        }
        arrived
    });
    payload(line)
}

/// Reads the seven words of a payload.
pub(super) fn payload(line: &Line) -> u64 {
    line.0[1..].iter().fold(0, |sum, word| sum ^ word.load(Relaxed))
}
