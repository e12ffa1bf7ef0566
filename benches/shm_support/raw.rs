//! The raw baselines: what two processes can do at best with one mapping and no library, hand-written and as
//! short as it gets. Rank 0 leads and times; rank 1 answers. No loop pauses, because a pause costs more than a round trip.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::mapping::{LINE_BYTES, Line, Shared};

/// Most ranks that the control lines have room for.
pub(crate) const MAX_RANKS: usize = 64;
/// Slots of the single-producer ring. 256 KiB of them run twice as fast as 64 KiB, whose lines still sit in the peer's first-level cache.
pub(crate) const RING_SLOTS: usize = 4096;
/// Bytes that the copying baselines and the long messages rotate over.
pub(crate) const BULK_BYTES: usize = 4 << 20;

const CONTROL: usize = 0;
const PING: usize = CONTROL + MAX_RANKS * LINE_BYTES;
/// A page apart from the ping lines, so that the adjacent-line prefetcher couples nothing.
const RING: usize = 64 << 10;
const BULK: usize = 2 << 20;
/// Bytes of the mapping that all of this needs.
pub(crate) const ARENA_BYTES: usize = BULK + BULK_BYTES;

/// Looks of a waiting loop before it begins to yield.
const SPINS: u32 = 1 << 14;
/// Slots filled before their index is published in the batched ring.
const BATCH: u64 = 32;

/// How a ring slot is announced to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Announce {
    /// A flag in the slot, set by the producer and cleared by the consumer.
    Flag,
    /// The lap number in the slot; the consumer returns room a quarter ring at a time.
    Lap,
    /// A shared index, published every 32 slots; room returns a quarter ring at a time.
    Index,
}

/// What is measured between the first two ranks without a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum RawTask {
    /// Round trips of one word in one cache line.
    Word,
    /// Round trips of a line each way with 56 bytes of payload.
    Line,
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
}

/// One rank's view of the shared arena.
pub(crate) struct Arena {
    memory: Shared,
    rank: usize,
    ranks: usize,
    round: u64,
}

impl Arena {
    /// A view of `memory` for `rank` of `ranks`.
    pub(crate) fn new(memory: Shared, rank: usize, ranks: usize) -> Self {
        assert!(rank < ranks && ranks <= MAX_RANKS, "rank {rank} of {ranks} ranks");
        Self { memory, rank, ranks, round: 0 }
    }

    /// Does this rank's part of `task` and returns its time; ranks beyond the first two only look on.
    pub(crate) fn perform(&mut self, task: RawTask, iterations: u64) -> Duration {
        if self.rank > 1 {
            self.barrier();
            return Duration::ZERO;
        }
        match task {
            RawTask::Word => self.ping_pong_word(iterations),
            RawTask::Line => self.ping_pong_payload(iterations),
            RawTask::Ring(announce) => self.ring(announce, iterations),
            RawTask::Copy { bytes, span, out } => self.copy_blocks(bytes, span, out, iterations),
            RawTask::Put { bytes } => self.put(bytes, iterations),
            RawTask::Get { bytes } => self.get(bytes, iterations),
        }
    }

    /// Waits until every rank has come here as often as this one. Sleeps after a while: the kernel may have woken a
    /// rank on the CPU of the one that gave it its order, and finds an idle CPU for whoever wakes next.
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

    /// Round trips of one word in one cache line.
    fn ping_pong_word(&mut self, rounds: u64) -> Duration {
        if self.rank == 0 {
            self.clear(self.memory.lines(PING, 1));
        }
        self.barrier();
        let word = &self.memory.lines(PING, 1)[0].0[0];
        let start = Instant::now();
        if self.rank == 0 {
            for round in 0..rounds {
                word.store(2 * round + 1, Release);
                wait(|| word.load(Acquire) == 2 * round + 2);
            }
        } else {
            for round in 0..rounds {
                wait(|| word.load(Acquire) == 2 * round + 1);
                word.store(2 * round + 2, Release);
            }
        }
        start.elapsed()
    }

    /// Round trips of a line each way: a sequence number and 56 bytes of payload, written and read in full.
    fn ping_pong_payload(&mut self, rounds: u64) -> Duration {
        if self.rank == 0 {
            self.clear(self.memory.lines(PING, 16));
        }
        self.barrier();
        let lines = self.memory.lines(PING, 16);
        let (out, back) = if self.rank == 0 { (&lines[0], &lines[8]) } else { (&lines[8], &lines[0]) };
        let mut sum = 0u64;
        let start = Instant::now();
        for round in 1..=rounds {
            if self.rank == 0 {
                fill(out, round, round ^ sum);
                sum = drain(back, round);
            } else {
                sum = drain(back, round);
                fill(out, round, round ^ sum);
            }
        }
        let elapsed = start.elapsed();
        black_box(sum);
        elapsed
    }

    /// A one-way stream of 64-byte slots, 56 bytes of payload written and read in each.
    fn ring(&mut self, announce: Announce, messages: u64) -> Duration {
        if self.rank == 0 {
            self.clear(self.memory.lines(PING, 32));
            self.clear(self.memory.lines(RING, RING_SLOTS));
        }
        self.barrier();
        let start = Instant::now();
        let lines = self.memory.lines(PING, 32);
        let slots = self.memory.lines(RING, RING_SLOTS);
        let (tail, head, done) = (&lines[0].0[0], &lines[8].0[0], &lines[16].0[0]);
        match (self.rank, announce) {
            (0, Announce::Flag) => produce_flags(slots, messages),
            (0, Announce::Lap) => produce_laps(slots, head, messages),
            (0, Announce::Index) => produce_indices(slots, tail, head, messages),
            (_, Announce::Flag) => consume_flags(slots, messages),
            (_, Announce::Lap) => consume_laps(slots, head, messages),
            (_, Announce::Index) => consume_indices(slots, tail, head, messages),
        }
        if self.rank == 0 {
            wait(|| done.load(Acquire) != 0);
        } else {
            done.store(1, Release);
        }
        start.elapsed()
    }

    /// A one-way stream of blocks: rank 0 copies each from a small, hot private buffer into the mapping, over `span`
    /// bytes in turn, and announces it; rank 1 acknowledges, after having copied it out if `out`.
    fn copy_blocks(&mut self, bytes: usize, span: usize, out: bool, blocks: u64) -> Duration {
        let mut private = vec![0x5a_u8; bytes];
        if self.rank == 0 {
            self.clear(self.memory.lines(PING, 32));
        }
        self.barrier();
        let start = Instant::now();
        let lines = self.memory.lines(PING, 32);
        let (ready, taken) = (&lines[0].0[0], &lines[8].0[0]);
        let slots = (span / bytes) as u64;
        if self.rank == 0 {
            let mut known = 0;
            for block in 0..blocks {
                known = wait_for(taken, known, |known| block - known < slots);
                self.memory.copy_in(place(block % slots, bytes), &private);
                ready.store(block + 1, Release);
            }
            wait(|| taken.load(Acquire) >= blocks);
        } else {
            let mut known = 0;
            for block in 0..blocks {
                known = wait_for(ready, known, |known| known > block);
                if out {
                    self.memory.copy_out(place(block % slots, bytes), &mut private);
                    black_box(&private);
                }
                taken.store(block + 1, Release);
            }
        }
        start.elapsed()
    }
}

impl Arena {
    fn put(&mut self, bytes: usize, blocks: u64) -> Duration {
        let private = vec![0x5a_u8; bytes];
        self.barrier();
        let start = Instant::now();
        if self.rank == 0 {
            for block in 0..blocks {
                self.memory.copy_in(place(block, bytes), &private);
            }
        }
        start.elapsed()
    }

    fn get(&mut self, bytes: usize, blocks: u64) -> Duration {
        let mut private = vec![0_u8; bytes];
        self.barrier();
        let start = Instant::now();
        if self.rank == 0 {
            for block in 0..blocks {
                self.memory.copy_out(place(block, bytes), &mut private);
                black_box(&private);
            }
        }
        start.elapsed()
    }
}

/// Spins without a pause until `ready`. After some ten microseconds the peer has surely lost its CPU, perhaps to this very
/// loop: from then on it gets the CPU, so that a bench on a busy machine or a single CPU is slow but not stuck.
#[inline(always)]
fn wait(mut ready: impl FnMut() -> bool) {
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
fn wait_for(index: &AtomicU64, mut known: u64, enough: impl Fn(u64) -> bool) -> u64 {
    if !enough(known) {
        wait(|| {
            // Acquire: pairs with the Release by which the peer published the index.
            known = index.load(Acquire);
            enough(known)
        });
    }
    known
}

/// Where block number `block` lies: all over the bulk memory in turn, each at a cache line of its own.
fn place(block: u64, bytes: usize) -> usize {
    let step = bytes.next_multiple_of(LINE_BYTES);
    BULK + (block % (BULK_BYTES / step) as u64) as usize * step
}

fn fill(line: &Line, sequence: u64, value: u64) {
    for word in &line.0[1..] {
        word.store(value, Relaxed);
    }
    // Release: pairs with the Acquire in `drain`; the payload is there before its number.
    line.0[0].store(sequence, Release);
}

fn drain(line: &Line, sequence: u64) -> u64 {
    wait(|| line.0[0].load(Acquire) == sequence);
    payload(line)
}

fn payload(line: &Line) -> u64 {
    line.0[1..].iter().fold(0, |sum, word| sum ^ word.load(Relaxed))
}

fn slot(slots: &[Line], message: u64) -> &Line {
    &slots[message as usize % RING_SLOTS]
}

fn produce_flags(slots: &[Line], messages: u64) {
    for message in 0..messages {
        let slot = slot(slots, message);
        wait(|| slot.0[0].load(Acquire) == 0);
        fill(slot, 1, message);
    }
}

fn consume_flags(slots: &[Line], messages: u64) {
    let mut sum = 0;
    for message in 0..messages {
        let slot = slot(slots, message);
        sum ^= drain(slot, 1);
        // Release: pairs with the producer's Acquire; the payload has been read.
        slot.0[0].store(0, Release);
    }
    black_box(sum);
}

fn produce_laps(slots: &[Line], head: &AtomicU64, messages: u64) {
    let mut known = 0;
    for message in 0..messages {
        known = wait_for(head, known, |known| message - known < RING_SLOTS as u64);
        fill(slot(slots, message), message / RING_SLOTS as u64 + 1, message);
    }
}

fn consume_laps(slots: &[Line], head: &AtomicU64, messages: u64) {
    let mut sum = 0;
    for message in 0..messages {
        sum ^= drain(slot(slots, message), message / RING_SLOTS as u64 + 1);
        return_room(head, message);
    }
    black_box(sum);
}

fn return_room(head: &AtomicU64, message: u64) {
    if (message + 1).is_multiple_of(RING_SLOTS as u64 / 4) {
        // Release: pairs with the producer's Acquire of `head`.
        head.store(message + 1, Release);
    }
}

fn produce_indices(slots: &[Line], tail: &AtomicU64, head: &AtomicU64, messages: u64) {
    let mut known = 0;
    for message in 0..messages {
        known = wait_for(head, known, |known| message - known < RING_SLOTS as u64);
        for word in &slot(slots, message).0[1..] {
            word.store(message, Relaxed);
        }
        if (message + 1).is_multiple_of(BATCH) || message + 1 == messages {
            // Release: pairs with the consumer's Acquire of `tail`.
            tail.store(message + 1, Release);
        }
    }
}

fn consume_indices(slots: &[Line], tail: &AtomicU64, head: &AtomicU64, messages: u64) {
    let (mut sum, mut known) = (0, 0);
    for message in 0..messages {
        known = wait_for(tail, known, |known| known > message);
        sum ^= payload(slot(slots, message));
        return_room(head, message);
    }
    black_box(sum);
}
