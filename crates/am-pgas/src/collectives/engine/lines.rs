//! The memory that members of a team on one host share: lines by which they do small operations, and blocks
//! through which the data of large ones pass.
//!
//! Each member writes its own lines and blocks, in its [auxiliary segment](am_core::Endpoint::auxiliary), and
//! reads those of the others. An operation has a slot by its number, in which a member says what it called and
//! gives up to 32 bytes. A slot is used again once all members are [done](Lines::tell_done) with the operation
//! that had it before.
//!
//! Data of large operations pass in rounds, which all members number alike: in a round each member that gives
//! fills one of its blocks. A block is used again once all members have passed the round that had it before.
//! Givers that lend their elements fill no blocks unless they are asked ([`passing`](super::passing)).
//!
//! Every word that others wait for names the team, so that what another team left in the same place is never taken
//! for it: teams get ever larger numbers. A faulty member can make results wrong, and nothing else.
//!
//! Operations and rounds are counted in 32 bits, of which only differences count. Every member tells its counts in
//! each large operation, whatever its part in it, and looks at those of the others ([`Lines::begin_rounds`]); of
//! operations both is done every 2^24 of them ([`Lines::refresh`]). So no count that is compared is 2^31 old.

use crate::collectives::error::Call;
use am_core::Segment;
use am_core::segment::AnyMemory;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

/// Operations that a member may be ahead of another, of which it may know half as many late. Models look at every
/// order of what little they do.
pub(super) const SLOTS: u32 = if cfg!(am_loom) { 2 } else { 8 };

/// Words from one line to the next: two lines, because processors fetch lines in pairs.
pub(super) const LINE: usize = if cfg!(am_loom) { 8 } else { 16 };

/// Most bytes that a member gives in its line.
pub(super) const SMALL: usize = 32;

/// Lines of a team besides its slots: what is done, filled and passed.
const COUNTS: usize = 3;

/// Bytes of a team's lines.
pub(super) const LINES: usize = (SLOTS as usize + COUNTS) * LINE * 8;

/// Bytes of the smallest segment with room for lines and for the blocks behind them.
#[cfg(all(test, am_loom))]
pub(super) const BLOCK_LINES: usize = 4 * LINES;

/// Most bytes of a team's blocks, and how many there are.
const BLOCKS: usize = 256 << 10;
pub(super) const DEPTH: u32 = if cfg!(am_loom) { 2 } else { 4 };

/// Operations after which counts that were looked at once are looked at again.
const REFRESH: u32 = 1 << 24;

/// A word that members share: the standard atomic, or loom's in its models.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// Memory that members share: a segment, or what stands for it in the models.
pub(super) trait Shared {
    type Word: Word;

    /// Size in bytes.
    fn size(&self) -> usize;

    /// The memory as words.
    fn all_words(&self) -> &[Self::Word];

    /// Copies bytes in at a byte offset.
    fn put(&self, at: u64, bytes: &[u8]);

    /// Copies bytes out from a byte offset on.
    fn get(&self, at: u64, out: &mut [u8]);
}

impl Shared for Segment<AnyMemory> {
    type Word = AtomicU64;

    fn size(&self) -> usize {
        self.len()
    }

    #[inline]
    fn all_words(&self) -> &[AtomicU64] {
        self.words()
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.write(at, bytes).expect("blocks lie inside the segments");
    }

    fn get(&self, at: u64, out: &mut [u8]) {
        self.read(at, out).expect("blocks lie inside the segments");
    }
}

#[derive(Clone, Copy)]
enum Count {
    Done,
    Filled,
    Passed,
    /// In the line of those that passed.
    Asked,
}

impl Count {
    /// Its line behind the slots, and its word there.
    const fn place(self) -> (usize, usize) {
        match self {
            Self::Done => (0, 0),
            Self::Filled => (1, 0),
            Self::Passed => (2, 0),
            Self::Asked => (2, 1),
        }
    }
}

/// Where a team's lines and blocks are in a member's auxiliary segment, in lines from its start and plus one; 0
/// for none.
pub(crate) type Offer = [u32; 2];

/// A member's lines and blocks.
#[derive(Debug)]
struct Place<M> {
    memory: M,
    /// The first word.
    lines: usize,
    /// The first byte.
    blocks: usize,
    /// How many operations it is known to be done with, and how many rounds it has passed.
    done: Cell<u32>,
    passed: Cell<u32>,
}

/// The lines and blocks of a team.
#[derive(Debug)]
pub(super) struct Lines<M = Segment<AnyMemory>> {
    number: u32,
    me: usize,
    places: Vec<Place<M>>,
    offer: Offer,
    /// Bytes of a block; 0 if there are none.
    block: usize,
    /// Rounds of all large operations that have begun.
    rounds: u32,
}

impl<M: Shared> Lines<M> {
    /// The lines of a team whose members, by position, have offered theirs; `None` unless all have.
    pub(super) fn open(
        number: u32,
        me: usize,
        offers: &[Offer],
        mut memory: impl FnMut(usize) -> Option<M>,
    ) -> Option<Self> {
        let (mut places, mut room) = (Vec::with_capacity(offers.len()), usize::MAX);
        for (member, offer) in offers.iter().enumerate() {
            let memory = memory(member)?;
            let [lines, blocks] = offer.map(|at| (at as usize).checked_sub(1).map(|at| at * LINE * 8));
            let lines = lines.filter(|at| at + LINES <= memory.size())?;
            let bytes = blocks_bytes(memory.size());
            room = room.min(match blocks {
                Some(at) if at + bytes <= memory.size() => bytes,
                _ => 0,
            });
            let (lines, blocks) = (lines / 8, blocks.unwrap_or(0));
            places.push(Place { memory, lines, blocks, done: Cell::new(0), passed: Cell::new(0) });
        }
        let block = room / DEPTH as usize;
        let lines = Self { number, me, places, offer: offers[me], block, rounds: 0 };
        let counts = [Count::Done, Count::Filled, Count::Passed, Count::Asked];
        counts.into_iter().for_each(|count| lines.set(count, 0));
        Some(lines)
    }

    fn size(&self) -> usize {
        self.places.len()
    }

    /// The largest part that passes in one round.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    pub(super) fn offer(&self) -> Offer {
        self.offer
    }

    #[inline]
    fn line(&self, member: usize, line: usize) -> &[M::Word] {
        let place = &self.places[member];
        &place.memory.all_words()[place.lines + line * LINE..][..LINE]
    }

    /// A count of this team, as a word that no other team writes.
    #[inline]
    fn word(&self, count: u32) -> u64 {
        !(u64::from(self.number) << 32 | u64::from(count))
    }

    #[inline]
    fn set(&self, which: Count, count: u32) {
        let (line, word) = which.place();
        // Release: pairs with the Acquire in `count`.
        self.line(self.me, SLOTS as usize + line)[word].store(self.word(count), Release);
    }

    /// What a member has counted; nothing before it has come to the team.
    #[inline]
    fn count(&self, member: usize, which: Count) -> u32 {
        let (line, word) = which.place();
        // Acquire: pairs with the Release in `set`, so that what was filled can be read, and what was read filled.
        let word = !self.line(member, SLOTS as usize + line)[word].load(Acquire);
        if (word >> 32) as u32 == self.number { word as u32 } else { 0 }
    }

    #[inline]
    fn slot(&self, member: usize, sequence: u32) -> &[M::Word] {
        self.line(member, (sequence % SLOTS) as usize)
    }

    /// Whether all members are done with the operation that had the slot of an operation before.
    #[inline]
    pub(super) fn has_slot(&self, sequence: u32) -> bool {
        let within = |done: u32| (sequence.wrapping_sub(done) as i32) < SLOTS as i32;
        for member in (0..self.size()).filter(|member| *member != self.me) {
            let done = &self.places[member].done;
            if within(done.get()) {
                continue;
            }
            done.set(self.count(member, Count::Done));
            if !within(done.get()) {
                return false;
            }
        }
        true
    }

    /// Looks at what the others are done with, and tells with what this member is, every so many operations.
    #[inline]
    pub(super) fn refresh(&self, sequence: u32, done: u32) {
        if sequence.is_multiple_of(REFRESH) {
            self.tell_done(done);
            for (member, place) in self.places.iter().enumerate().filter(|(member, _)| *member != self.me) {
                place.done.set(self.count(member, Count::Done));
            }
        }
    }

    /// Tells what this member has called, and gives bytes for it, at most 32; zeros follow them.
    #[inline]
    pub(super) fn publish(&self, sequence: u32, call: Call, bytes: &[u8]) {
        let line = self.slot(self.me, sequence);
        line[1..4].iter().zip(call.head()).for_each(|(word, value)| word.store(value, Relaxed));
        // By words, as they are read: a processor hands on what it has just written only whole.
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let payload = words.iter().chain([&last]).chain(std::iter::repeat(&[0; 8]));
        for (word, bytes) in line[4..8].iter().zip(payload) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        // Release: pairs with the Acquire in `has_come`.
        line[0].store(self.word(sequence), Release);
    }

    /// Whether a member has come to an operation.
    #[inline]
    pub(super) fn has_come(&self, member: usize, sequence: u32) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.slot(member, sequence)[0].load(Acquire) == self.word(sequence)
    }

    /// Whether a member has come to an operation, and then whether it has called this there.
    #[inline]
    pub(super) fn has_called(&self, member: usize, sequence: u32, call: [u64; 3]) -> Option<bool> {
        let line = self.slot(member, sequence);
        // Acquire: pairs with the Release in `publish`.
        let has_come = line[0].load(Acquire) == self.word(sequence);
        has_come.then(|| call.iter().zip(&line[1..4]).all(|(head, word)| word.load(Relaxed) == *head))
    }

    /// What a member that has come to an operation has called; nothing if that makes no sense.
    pub(super) fn called(&self, member: usize, sequence: u32) -> Option<Call> {
        let line = self.slot(member, sequence);
        let [[a, b], [c, d], [e, g]] = [1, 2, 3].map(|at: usize| {
            let word = line[at].load(Relaxed);
            [word as u32, (word >> 32) as u32]
        });
        Call::decode([a, b, c, d, e, g])
    }

    /// What a member that has come to an operation has given for it: as many bytes as `out` has, at most 32.
    #[inline]
    pub(super) fn take(&self, member: usize, sequence: u32, out: &mut [u8]) {
        let line = self.slot(member, sequence);
        for (bytes, word) in out.chunks_mut(8).zip(&line[4..8]) {
            let word = word.load(Relaxed).to_le_bytes();
            match <&mut [u8; 8]>::try_from(&mut *bytes) {
                Ok(whole) => *whole = word,
                Err(_) => bytes.copy_from_slice(&word[..bytes.len()]),
            }
        }
    }

    /// [`take`](Self::take) of all bytes.
    pub(super) fn given(&self, member: usize, sequence: u32) -> [u8; SMALL] {
        let mut payload = [0; SMALL];
        self.take(member, sequence, &mut payload);
        payload
    }

    /// Tells that this member needs no line of an operation before this one any more.
    #[inline]
    pub(super) fn tell_done(&self, sequence: u32) {
        self.set(Count::Done, sequence);
    }

    /// Whether the others need the lines no more, after the last operation.
    pub(super) fn is_over(&self, last: u32) -> bool {
        (0..self.size()).all(|member| {
            let stored = self.line(member, SLOTS as usize + Count::Done.place().0)[0].load(Acquire);
            let word = !stored;
            let team = (word >> 32) as u32;
            // A place that was never used belongs to a member that has still to come. A place is next used for a
            // team with a larger number.
            stored != 0
                && (team > self.number || team == self.number && (last.wrapping_sub(word as u32) as i32) <= 0)
        })
    }

    /// Numbers the rounds of a large operation in which members give up to so many bytes; the first of them, and
    /// how many.
    pub(super) fn begin_rounds(&mut self, bytes: usize) -> (u32, u32) {
        let (first, rounds) = (self.rounds, bytes.div_ceil(self.block) as u32);
        self.rounds = first.wrapping_add(rounds);
        for (member, place) in self.places.iter().enumerate().filter(|(member, _)| *member != self.me) {
            place.passed.set(self.count(member, Count::Passed));
        }
        (first, rounds)
    }

    /// Whether this member may fill its block of a round.
    pub(super) fn may_fill(&self, round: u32) -> bool {
        let within = |passed: u32| (round.wrapping_sub(passed) as i32) < DEPTH as i32;
        for member in (0..self.size()).filter(|member| *member != self.me) {
            let passed = &self.places[member].passed;
            if within(passed.get()) {
                continue;
            }
            passed.set(self.count(member, Count::Passed));
            if !within(passed.get()) {
                return false;
            }
        }
        true
    }

    fn block_at(&self, member: usize, round: u32) -> u64 {
        (self.places[member].blocks + (round % DEPTH) as usize * self.block) as u64
    }

    /// Fills this member's block of a round.
    pub(super) fn fill(&self, round: u32, bytes: &[u8]) {
        self.places[self.me].memory.put(self.block_at(self.me, round), bytes);
        self.set(Count::Filled, round.wrapping_add(1));
    }

    /// Whether a member has filled its block of a round.
    pub(super) fn is_filled(&self, member: usize, round: u32) -> bool {
        (round.wrapping_sub(self.count(member, Count::Filled)) as i32) < 0
    }

    /// Reads a member's block of a round, which is filled.
    pub(super) fn read(&self, member: usize, round: u32, out: &mut [u8]) {
        self.places[member].memory.get(self.block_at(member, round), out);
    }

    /// Tells that this member needs nothing of a round any more, nor of those before.
    pub(super) fn pass(&self, round: u32) {
        self.set(Count::Passed, round.wrapping_add(1));
    }

    /// Tells that this member neither gives nor needs anything before a round, the first after a large operation.
    pub(super) fn leave(&self, round: u32) {
        self.set(Count::Passed, round);
        self.set(Count::Filled, round);
    }

    /// Asks those who lend what they give to the operation with a last round for blocks.
    pub(super) fn ask(&self, last: u32) {
        self.set(Count::Asked, last.wrapping_add(1));
    }

    /// Whether a member has asked for blocks of the operation with a last round.
    pub(super) fn is_asked(&self, last: u32) -> bool {
        let asks = |member: usize| self.count(member, Count::Asked) == last.wrapping_add(1);
        (0..self.size()).any(|member| member != self.me && asks(member))
    }

    /// Whether a member has passed a round.
    pub(super) fn has_passed(&self, member: usize, round: u32) -> bool {
        (round.wrapping_sub(self.count(member, Count::Passed)) as i32) < 0
    }
}

/// Bytes of a team's blocks in a segment.
fn blocks_bytes(segment: usize) -> usize {
    (segment * 3 / 4).min(BLOCKS)
}

/// The own auxiliary segment of an endpoint, shared out among its teams. The first quarter is for lines.
#[derive(Debug, Default)]
pub(super) struct Auxiliary {
    lines: Vec<u32>,
    blocks: Vec<u32>,
    /// The lines of teams that are no more, until the others need them no more, and their last operations.
    retired: Vec<(Lines, u32)>,
    known: bool,
}

impl Auxiliary {
    /// Takes room for a team in a segment of so many bytes.
    pub(super) fn offer(&mut self, segment: usize) -> Offer {
        let unit = LINE * 8;
        if !std::mem::replace(&mut self.known, true) {
            let (quarter, bytes) = (segment / 4, blocks_bytes(segment));
            self.lines = (0..quarter / LINES).rev().map(|at| (at * LINES / unit) as u32 + 1).collect();
            let starts = (0..(segment - quarter) / bytes.max(unit)).rev().map(|at| quarter + at * bytes);
            self.blocks = starts.map(|at| (at / unit) as u32 + 1).collect();
        }
        let retired = std::mem::take(&mut self.retired);
        for (lines, last) in retired {
            if lines.is_over(last) {
                self.give_back(lines.offer());
            } else {
                self.retired.push((lines, last));
            }
        }
        match self.lines.pop() {
            Some(lines) => [lines, self.blocks.pop().unwrap_or(0)],
            None => [0; 2],
        }
    }

    pub(super) fn give_back(&mut self, [lines, blocks]: Offer) {
        self.lines.extend((lines > 0).then_some(lines));
        self.blocks.extend((blocks > 0).then_some(blocks));
    }

    /// Takes the lines of a team that is no more, whose last operation is told, until the others need them no
    /// more.
    pub(super) fn retire(&mut self, lines: Lines, last: u32) {
        self.retired.push((lines, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::call;
    use crate::collectives::error::Operation;
    use am_core::loopback::segment;

    fn called() -> Call {
        Call { ordered: true, ..call::<u64>(Operation::Scan, (7 << 32) + 3, Some(4)) }
    }

    fn teams(number: u32, memory: &[Segment<AnyMemory>; 2], offer: Offer) -> [Lines; 2] {
        [0, 1].map(|me| Lines::open(number, me, &[offer; 2], |member| Some(memory[member].clone())).unwrap())
    }

    #[test]
    fn lines_are_of_their_operation_alone() {
        let memory = [(); 2].map(|()| segment(128 << 10).erase());
        let offer = Auxiliary::default().offer(128 << 10);
        let [first, second] = teams(0, &memory, offer);
        assert!(!second.has_come(0, 0), "zeros are of no team");
        first.publish(0, called(), b"some bytes");
        assert!(second.has_come(0, 0) && !second.has_come(0, SLOTS) && !second.has_come(1, 0));
        assert_eq!((second.called(0, 0), &second.given(0, 0)[..10]), (Some(called()), &b"some bytes"[..]));
        assert!(first.has_slot(SLOTS - 1) && !first.has_slot(SLOTS));
        second.tell_done(1);
        assert!(first.has_slot(SLOTS) && !first.has_slot(SLOTS + 1) && second.has_slot(0));
        // Another team in the same place knows nothing of it.
        let [_, second] = teams(1, &memory, offer);
        assert!(!second.has_come(0, 0) && first.count(1, Count::Done) == 0);
    }

    /// Counts of members that have nothing to tell for 2^31 rounds and operations.
    #[test]
    fn counts_never_get_old() {
        let memory = [(); 2].map(|()| segment(128 << 10).erase());
        let offer = Auxiliary::default().offer(128 << 10);
        let [mut first, mut second] = teams(2, &memory, offer);
        // The first gives all the time, the second never; both leave each operation.
        let mut round = 0;
        for rounds in [1 << 30, (1 << 30) - 1, 3] {
            for lines in [&mut first, &mut second] {
                assert_eq!(lines.begin_rounds(lines.block() * rounds as usize), (round, rounds));
                lines.leave(round.wrapping_add(rounds));
            }
            round = round.wrapping_add(rounds);
        }
        assert_eq!(round, (1 << 31) + 2);
        assert_eq!(
            (first.begin_rounds(9 * first.block()).0, second.begin_rounds(9 * first.block()).0),
            (round, round)
        );
        assert!(!first.is_filled(1, round), "the second has not begun to give");
        for round in round..round + DEPTH {
            assert!(second.may_fill(round));
            second.fill(round, &[1]);
            assert!(first.is_filled(1, round));
        }
        assert!(!second.may_fill(round + DEPTH), "the first has passed none of them");
        // 2^31 operations by messages have passed since the lines were used.
        let sequence = 1 << 31;
        first.refresh(sequence, sequence);
        second.refresh(sequence, sequence);
        first.refresh(sequence, sequence);
        assert!(first.has_slot(sequence + SLOTS - 1) && !first.has_slot(sequence + SLOTS));
    }

    #[test]
    fn blocks_are_filled_again_once_all_have_passed() {
        let memory = [(); 2].map(|()| segment(128 << 10).erase());
        let offer = Auxiliary::default().offer(128 << 10);
        let [mut first, mut second] = teams(3, &memory, offer);
        assert_eq!(first.begin_rounds(first.block() * 5 + 1), (0, 6));
        assert_eq!(second.begin_rounds(second.block() * 6), (0, 6));
        for round in 0..DEPTH {
            assert!(first.may_fill(round) && !second.is_filled(0, round));
            first.fill(round, &[round as u8; 9]);
        }
        assert!(!first.may_fill(DEPTH));
        let mut found = [0; 9];
        second.read(0, 1, &mut found);
        assert!(second.is_filled(0, 3) && found == [1; 9]);
        second.pass(0);
        assert!(first.may_fill(DEPTH) && !first.may_fill(DEPTH + 1) && first.has_passed(1, 0));
        assert!(!first.has_passed(1, 1));
    }

    #[test]
    fn room_is_used_again_when_no_member_needs_it() {
        let mut auxiliary = Auxiliary::default();
        let memory = [(); 2].map(|()| segment(8 << 10).erase());
        let offer = auxiliary.offer(8 << 10);
        assert!(offer[0] > 0 && offer[1] > 0);
        assert_eq!(auxiliary.offer(8 << 10), [0; 2], "there is room for one team");
        let [first, second] = teams(5, &memory, offer);
        first.tell_done(9);
        auxiliary.retire(first, 9);
        assert_eq!(auxiliary.offer(8 << 10), [0; 2], "the other member has not done everything");
        second.tell_done(9);
        assert_eq!(auxiliary.offer(8 << 10), offer);
        // A member whose place is used by a later team needs it no more, either.
        let [first, _] = teams(6, &memory, offer);
        first.tell_done(2);
        auxiliary.retire(first, 2);
        assert_eq!(auxiliary.offer(8 << 10), [0; 2]);
        let later = Lines::open(7, 1, &[offer; 2], |member| Some(memory[member].clone())).unwrap();
        assert_eq!(auxiliary.offer(8 << 10), offer);
        drop(later);
    }
}
