//! Models of the rings: frames and their payloads arrive whole and in order, room is used again only when it is
//! free.

use super::{Weak, check, fails, fails_without};
use crate::model::View;
use crate::ring::{
    Broken, CELL_WORDS, Cell, GRANULE, OPEN, Position, Reader, Writer, give_back, given_back, newly_given_back,
};
use crate::sync::{AtomicU64, Relaxed};
use loom::cell::UnsafeCell;
use loom::thread;

/// Memory that both sides access without atomics, as they do payloads. Loom reports accesses that are not ordered.
#[derive(Debug)]
struct Piece(UnsafeCell<()>);

// SAFETY: there is no data inside; loom follows who accesses it and panics when two accesses are not ordered.
unsafe impl Sync for Piece {}

impl Piece {
    fn write(&self) {
        self.0.with_mut(|_| ());
    }

    fn read(&self) {
        self.0.with(|_| ());
    }
}

/// What both ends of a lane share: cells, a ring of bytes, and the words for what has been given back.
#[derive(Clone, Debug)]
struct Lane {
    cells: View<Cell>,
    /// One word for each granule of the ring of bytes, and the bytes themselves.
    granules: View<(AtomicU64, Piece)>,
    /// Cells, bytes.
    back: View<AtomicU64>,
}

impl Lane {
    fn new(cells: usize, granules: usize) -> Self {
        let word = || AtomicU64::new(0);
        Self {
            cells: View::of((0..cells).map(|_| Cell(std::array::from_fn(|_| word())))),
            granules: View::of((0..granules).map(|_| (word(), Piece(UnsafeCell::new(()))))),
            back: View::of((0..2).map(|_| word())),
        }
    }

    fn capacity(&self) -> usize {
        self.granules.len() * GRANULE
    }
}

/// One frame of a script: its number of words, and whether it has a payload of one granule.
#[derive(Clone, Copy, Debug)]
struct Item(usize, bool);

/// Whether a writer puts several frames into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packs {
    Never,
    Always,
}

impl Item {
    fn cells(self) -> u64 {
        if self.0 > CELL_WORDS { 2 } else { 1 }
    }

    fn header(self) -> u64 {
        (self.0 as u64) << 8 | u64::from(self.1) << 16
    }

    /// The words of frame number `index`. Their lowest bytes are laps of these scripts, so that an old word looks
    /// like a header.
    fn words(self, index: usize) -> Vec<u64> {
        (0..self.0)
            .map(|word| (index as u64 + 1) << 16 | (word as u64) << 12 | 1 + (index + word) as u64 % 3)
            .collect()
    }
}

fn value(index: usize) -> u64 {
    7 + index as u64
}

fn write_all(lane: &Lane, script: &[Item], packs: Packs) {
    let mut writer = Writer::new(&lane.cells);
    if packs != Packs::Never {
        writer.always_pack();
    }
    let (mut position, mut bytes_done) = (Position::default(), 0);
    for (index, item) in script.iter().enumerate() {
        while !writer.room(&lane.cells, &lane.back[0], item.cells()).expect("the reader keeps to the protocol") {
            thread::yield_now();
        }
        if item.1 {
            let (start, next) = position.place(GRANULE, lane.capacity());
            while next.bytes() - bytes_done > lane.capacity() as u64 {
                let back = given_back(&lane.back[1], bytes_done, position.bytes());
                let before = std::mem::replace(&mut bytes_done, back.expect("the reader keeps to the protocol"));
                if before == bytes_done {
                    thread::yield_now();
                }
            }
            let (word, piece) = &lane.granules[start / GRANULE];
            piece.write();
            word.store(value(index), Relaxed);
            position = next;
        }
        let (header, words) = (item.header(), item.words(index));
        if packs != Packs::Never && item.cells() == 1 && !item.1 {
            writer.pack(&lane.cells, &lane.back[0], header, &words, &[]);
            continue;
        }
        writer.close(&lane.cells);
        match item.cells() {
            1 => writer.push(&lane.cells, header, &words, &[]),
            _ => writer.push_two(&lane.cells, header, &words),
        }
    }
}

/// Reads a script's frames and gives back after every `batch` of them; `early` gives back before reading, which is
/// wrong.
fn read_all(lane: &Lane, script: &[Item], batch: usize, early: bool) {
    let mut reader = Reader::new(&lane.cells);
    let mut position = Position::default();
    for (index, item) in script.iter().enumerate() {
        let (first, header) = loop {
            match reader.peek(&lane.cells) {
                Some((_, header)) if reader.step_out(header) => {}
                Some(found) => break found,
                None => thread::yield_now(),
            }
        };
        assert_eq!(header & !(0xff | OPEN), item.header());
        let second = (item.cells() == 2).then(|| reader.second(&lane.cells).expect("the second cell came first"));
        let place = item.1.then(|| position.place(GRANULE, lane.capacity()));
        match item.cells() {
            1 => reader.step(header, item.0),
            count => reader.advance(count),
        }
        position = place.map_or(position, |(_, next)| next);
        let publish = |reader: &mut Reader| {
            give_back(&lane.back[1], position.bytes());
            reader.publish(&lane.back[0]);
        };
        if early {
            publish(&mut reader);
        }
        if let Some((start, _)) = place {
            let (word, piece) = &lane.granules[start / GRANULE];
            assert_eq!(word.load(Relaxed), value(index), "stale payload");
            piece.read();
        }
        let words = first[1..].iter().chain(second.map_or(&[][..], |cell| &cell.0[1..]));
        let words: Vec<u64> = words.take(item.0).map(|word| word.load(Relaxed)).collect();
        assert_eq!(words, item.words(index), "stale words");
        if (index + 1).is_multiple_of(batch) || index + 1 == script.len() {
            publish(&mut reader);
        }
    }
}

/// Runs a script over a lane.
fn lane(cells: usize, granules: usize, script: &'static [Item], batch: usize) -> impl Fn() + Send + Sync {
    packed(cells, granules, script, batch, Packs::Never)
}

fn packed(
    cells: usize,
    granules: usize,
    script: &'static [Item],
    batch: usize,
    packs: Packs,
) -> impl Fn() + Send + Sync {
    move || {
        let ours = Lane::new(cells, granules);
        let theirs = ours.clone();
        let writer = thread::spawn(move || write_all(&theirs, script, packs));
        read_all(&ours, script, batch, false);
        writer.join().expect("the writer is done");
    }
}

const SMALL: &[Item] = &[Item(1, false), Item(2, false), Item(1, false), Item(1, false), Item(1, false)];
const LARGE: &[Item] = &[Item(0, false), Item(8, false), Item(1, false), Item(8, false)];
const PAYLOADS: &[Item] = &[Item(0, true), Item(1, true), Item(0, false), Item(0, true)];

#[test]
fn small_frames_go_round_two_cells() {
    check(lane(2, 1, SMALL, 1));
}

#[test]
fn small_frames_go_round_four_cells_in_batches() {
    check(lane(4, 1, SMALL, 2));
}

#[test]
fn frames_of_two_cells_go_round_two_cells() {
    check(lane(2, 1, LARGE, 1));
}

#[test]
fn frames_of_two_cells_go_round_four_cells() {
    check(lane(4, 1, LARGE, 1));
}

#[test]
fn payloads_are_there_with_their_frames() {
    check(lane(4, 2, PAYLOADS, 1));
}

#[test]
fn payloads_go_round_a_ring_of_one_granule() {
    check(lane(2, 1, PAYLOADS, 1));
}

/// Two or three in a cell, then a frame that does not fit behind them, and round again.
const PACKED: &[Item] = &[Item(1, false), Item(1, false), Item(3, false), Item(2, false), Item(1, false)];
const MIXED: &[Item] = &[Item(1, false), Item(1, true), Item(2, false), Item(8, false)];

#[test]
fn packed_frames_go_round_two_cells() {
    check(packed(2, 1, PACKED, 1, Packs::Always));
}

/// In its second lap the first cell has short frames, behind which old words look like headers of that lap.
const STALE: &[Item] =
    &[Item(3, false), Item(3, false), Item(3, false), Item(3, false), Item(1, false), Item(1, false)];

#[test]
fn old_words_behind_packed_frames_are_no_frames() {
    check(packed(2, 1, STALE, 1, Packs::Always));
}

#[test]
fn packed_frames_go_round_four_cells_in_batches() {
    check(packed(4, 1, PACKED, 2, Packs::Always));
}

#[test]
fn packed_frames_and_others_take_turns() {
    check(packed(4, 2, MIXED, 1, Packs::Always));
}

#[test]
fn a_relaxed_header_of_a_packed_frame_is_found() {
    let words = || packed(4, 1, &[Item(1, false), Item(1, false)], 1, Packs::Always);
    fails_without(Weak::Stores, "stale words", words());
    fails_without(Weak::Loads, "stale words", words());
}

#[test]
fn a_relaxed_header_is_found() {
    let words = || lane(4, 2, &[Item(1, false)], 1);
    fails_without(Weak::Stores, "stale words", words());
    fails_without(Weak::Loads, "stale words", words());
    let payload = || lane(4, 2, &[Item(0, true)], 1);
    fails_without(Weak::Stores, "Causality violation", payload());
    fails_without(Weak::Loads, "Causality violation", payload());
}

#[test]
fn a_give_back_before_reading_is_found() {
    let early = |script: &'static [Item]| {
        move || {
            let ours = Lane::new(2, 1);
            let theirs = ours.clone();
            let writer = thread::spawn(move || write_all(&theirs, script, Packs::Never));
            read_all(&ours, script, 1, true);
            writer.join().expect("the writer is done");
        }
    };
    fails("stale words", early(&[Item(1, false), Item(1, false), Item(1, false)]));
    fails("Causality violation", early(&[Item(0, true), Item(0, true)]));
}

/// The cells come round on time by themselves, since their words are checked by value; the payload is accessed
/// plainly, so loom sees that nothing orders its next writing after its reading.
#[test]
fn a_relaxed_give_back_is_found() {
    const SCRIPT: &[Item] = &[Item(0, true), Item(0, true)];
    fails("Causality violation", || {
        let ours = Lane::new(2, 1);
        let theirs = ours.clone();
        let reader = thread::spawn(move || {
            let mut reader = Reader::new(&theirs.cells);
            while reader.peek(&theirs.cells).is_none() {
                thread::yield_now();
            }
            theirs.granules[0].1.read();
            reader.advance(1);
            theirs.back[1].store(GRANULE as u64, Relaxed);
            reader.publish(&theirs.back[0]);
        });
        write_all(&ours, SCRIPT, Packs::Never);
        reader.join().expect("the reader is done");
    });
}

#[test]
fn a_second_cell_written_last_is_found() {
    fails("the second cell came first", || {
        let ours = Lane::new(4, 1);
        let theirs = ours.clone();
        let writer = thread::spawn(move || {
            let (item, mut writer) = (Item(8, false), Writer::new(&theirs.cells));
            let words = item.words(0);
            writer.push(&theirs.cells, item.header(), &words[..CELL_WORDS], &[]);
            writer.push(&theirs.cells, 0, &words[CELL_WORDS..], &[]);
        });
        read_all(&ours, &[Item(8, false)], 1, false);
        writer.join().expect("the writer is done");
    });
}

/// One side gives room for replies back without a reply, the other takes it in; both words are running totals.
/// What the handlers did before is visible with it.
fn bare() {
    let (totals, effect) = (View::of([AtomicU64::new(0), AtomicU64::new(0)]), View::of([AtomicU64::new(0)]));
    let (theirs, done) = (totals.clone(), effect.clone());
    let answerer = thread::spawn(move || {
        for round in 1..=2 {
            done[0].store(round, Relaxed);
            give_back(&theirs[0], 2 * round);
            give_back(&theirs[1], 64 * round);
        }
    });
    let (mut seen, mut sums) = ([0; 2], [0; 2]);
    while sums != [4, 128] {
        for word in 0..2 {
            sums[word] += newly_given_back(&totals[word], &mut seen[word]).expect("totals never shrink");
        }
        assert!(sums[0] <= 4 && sums[1] <= 128, "nothing comes back twice");
        assert!(effect[0].load(Relaxed) >= u64::from(sums[0] / 2), "credit that came back early");
        if sums != [4, 128] {
            thread::yield_now();
        }
    }
    answerer.join().expect("the answerer is done");
}

#[test]
fn bare_credits_come_back_once_and_after_their_handlers() {
    check(bare);
    fails_without(Weak::Stores, "credit that came back early", bare);
    fails_without(Weak::Loads, "credit that came back early", bare);
}

#[test]
fn totals_that_cannot_be_are_refused() {
    check(|| {
        let word = AtomicU64::new(u64::MAX);
        assert_eq!(given_back(&word, 0, 0), Err(Broken));
        word.store(4, Relaxed);
        assert_eq!((given_back(&word, 5, 9), given_back(&word, 4, 4)), (Err(Broken), Ok(4)));
    });
}
