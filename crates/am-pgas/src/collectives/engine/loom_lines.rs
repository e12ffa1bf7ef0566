//! Models of the lines and blocks: every member reads what the others gave for the operation that it is in,
//! whatever the order in which they come, run ahead and use slots and blocks again.

use super::lines::{BLOCK_LINES, DEPTH, LINE, LINES, Lines, SLOTS, Shared, Word};
use crate::collectives::error::Call;
use crate::collectives::{Operation, call as called};
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

/// Memory of a member: its words are loom's.
#[derive(Clone)]
struct Memory(Arc<[AtomicU64]>);

impl Memory {
    fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Shared for Memory {
    type Word = AtomicU64;

    fn size(&self) -> usize {
        8 * self.0.len()
    }

    fn all_words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        for (word, bytes) in self.0[at as usize / 8..].iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    fn get(&self, at: u64, out: &mut [u8]) {
        for (word, bytes) in self.0[at as usize / 8..].iter().zip(out.as_chunks_mut::<8>().0) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
    }
}

/// What a member calls in an operation, which is never the same twice.
fn call(member: usize, sequence: u32) -> Call {
    let count = (sequence as usize) << 8 | member;
    called::<u64>(Operation::Allreduce, count, None)
}

/// What it gives.
fn given(member: usize, sequence: u32) -> [u8; 8] {
    (u64::from(sequence) << 32 | member as u64 | 1 << 20).to_le_bytes()
}

/// Both members' lines, with blocks or without.
fn team(blocks: bool) -> [Lines<Memory>; 2] {
    let words = if blocks { BLOCK_LINES / 8 } else { LINES / 8 };
    let memory = [(); 2].map(|()| Memory::new(words));
    let offer = [1, if blocks { (LINES / LINE / 8) as u32 + 1 } else { 0 }];
    [0, 1].map(|me| {
        Lines::open(7, me, &[offer; 2], |member| Some(memory[member].clone())).expect("both have offered")
    })
}

/// Waits in the model for a word of another member.
fn until(mut ready: impl FnMut() -> bool) {
    while !ready() {
        thread::yield_now();
    }
}

/// One operation of a member: it gives, and looks at what the other one called and gave.
fn operate(lines: &Lines<Memory>, me: usize, sequence: u32) {
    let other = 1 - me;
    until(|| lines.has_slot(sequence));
    lines.publish(sequence, call(me, sequence), &given(me, sequence));
    until(|| lines.has_come(other, sequence));
    assert_eq!(lines.called(other, sequence), Some(call(other, sequence)));
    assert_eq!(lines.given(other, sequence)[..8], given(other, sequence));
    lines.tell_done(sequence + 1);
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Both members give and read, with one operation more than there are slots.
#[test]
fn loom_slots_are_read_before_they_are_used_again() {
    check(|| {
        let [first, second] = team(false);
        let other = thread::spawn(move || (0..=SLOTS).for_each(|sequence| operate(&second, 1, sequence)));
        (0..=SLOTS).for_each(|sequence| operate(&first, 0, sequence));
        other.join().expect("the other member is done");
    });
}

/// A root that waits for nobody but for slots runs ahead of a reader.
#[test]
fn loom_roots_run_ahead() {
    check(|| {
        let [first, second] = team(false);
        let root = thread::spawn(move || {
            for sequence in 0..=SLOTS + 1 {
                until(|| first.has_slot(sequence));
                first.publish(sequence, call(0, sequence), &given(0, sequence));
                first.tell_done(sequence + 1);
            }
        });
        for sequence in 0..=SLOTS + 1 {
            until(|| second.has_come(0, sequence));
            assert_eq!(second.called(0, sequence), Some(call(0, sequence)));
            assert_eq!(second.given(0, sequence)[..8], given(0, sequence));
            second.tell_done(sequence + 1);
        }
        root.join().expect("the root is done");
    });
}

/// Blocks of a giver, with rounds more than there are, and then of the other member.
#[test]
fn loom_blocks_are_read_before_they_are_filled_again() {
    check(|| {
        let [mut first, mut second] = team(true);
        let rounds = DEPTH + 1;
        let bytes = first.block() * rounds as usize;
        let giver = thread::spawn(move || {
            let (from, rounds) = first.begin_rounds(bytes);
            for round in from..from + rounds {
                until(|| first.may_fill(round));
                first.fill(round, &given(0, round));
            }
            first.leave(from + rounds);
            let (from, _) = first.begin_rounds(1);
            until(|| first.is_filled(1, from));
            let mut found = [0; 8];
            first.read(1, from, &mut found);
            assert_eq!(found, given(1, from));
            first.leave(from + 1);
        });
        let (from, rounds) = second.begin_rounds(bytes);
        for round in from..from + rounds {
            until(|| second.is_filled(0, round));
            let mut found = [0; 8];
            second.read(0, round, &mut found);
            assert_eq!(found, given(0, round));
            second.pass(round);
        }
        second.leave(from + rounds);
        let (from, _) = second.begin_rounds(1);
        until(|| second.may_fill(from));
        second.fill(from, &given(1, from));
        second.leave(from + 1);
        giver.join().expect("the giver is done");
    });
}

/// The model finds a member that tells that it is done before it has read.
#[test]
#[should_panic]
fn loom_done_before_reading_is_found() {
    check(|| {
        let [first, second] = team(false);
        let root = thread::spawn(move || {
            for sequence in 0..=SLOTS {
                until(|| first.has_slot(sequence));
                first.publish(sequence, call(0, sequence), &given(0, sequence));
                first.tell_done(sequence + 1);
            }
        });
        until(|| second.has_come(0, 0));
        second.tell_done(1);
        assert_eq!(second.given(0, 0)[..8], given(0, 0));
        root.join().expect("the root is done");
    });
}
