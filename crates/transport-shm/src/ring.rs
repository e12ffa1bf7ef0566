//! The ring that frames travel in: one writer, one reader, 64-byte cells, one cache-line transfer per small frame.
//!
//! A cell is eight words. Word 0 is its header, whose lowest byte is the **lap**: how often the ring has been gone
//! round when the cell was written, plus one, modulo 256. Every cell is written exactly once per lap and always
//! with a header, so the reader knows a new cell by its lap alone: no index is shared on the way of a message, and
//! memory fresh from the kernel (all zero) reads as empty. A frame is one cell, or two when its words do not fit
//! one; the second cell is written first.
//!
//! The way back is one word, the number of cells that the reader is done with, stored once per batch and read by
//! the writer only when it has used up what it knew of. Bytes of a byte ring and room set aside for replies come
//! back in such words of their own, running totals all of them.
//!
//! There is no `unsafe` here, and a reader or writer that does not keep to this protocol can only produce wrong
//! words, which the layer above checks.

use crate::sync::{Acquire, AtomicU64, Relaxed, Release};

/// Words of a cell after its header.
pub(crate) const CELL_WORDS: usize = 7;

/// One cache line of a ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Cell(pub(crate) [AtomicU64; 8]);

/// The lowest byte of a header.
const LAP: u64 = 0xff;

/// The other side broke the ring's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The lap byte of the cell at a position of a ring of `1 << log` cells.
#[inline]
fn lap(position: u64, log: u32) -> u64 {
    ((position >> log) + 1) & LAP
}

#[inline]
fn cell(cells: &[Cell], position: u64) -> &Cell {
    &cells[position as usize & (cells.len() - 1)]
}

/// The writing side: where it writes next, and how far it may go.
#[derive(Debug)]
pub(crate) struct Writer {
    tail: u64,
    limit: u64,
    log: u32,
}

impl Writer {
    /// A writer at the start of an empty ring.
    pub(crate) fn new(cells: &[Cell]) -> Self {
        debug_assert!(cells.len().is_power_of_two(), "the layout makes rings of a power of two");
        Self { tail: 0, limit: cells.len() as u64, log: cells.len().trailing_zeros() }
    }

    /// Whether `need` cells are free, looking at `done` (cells that the reader is done with) if not known yet.
    #[inline]
    pub(crate) fn room(&mut self, cells: &[Cell], done: &AtomicU64, need: u64) -> Result<bool, Broken> {
        if self.limit - self.tail >= need {
            return Ok(true);
        }
        self.refresh(cells, done)?;
        Ok(self.limit - self.tail >= need)
    }

    /// Learns what the reader is done with.
    #[cold]
    pub(crate) fn refresh(&mut self, cells: &[Cell], done: &AtomicU64) -> Result<(), Broken> {
        let known = self.limit - cells.len() as u64;
        self.limit = given_back(done, known, self.tail)? + cells.len() as u64;
        Ok(())
    }

    /// Cells known to be free.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.limit - self.tail
    }

    /// Cells written so far.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.tail
    }

    /// Writes a frame of one cell: words, then bytes; `header` has a zero lap byte. The caller has seen room for
    /// it.
    #[inline(always)]
    pub(crate) fn push(&mut self, cells: &[Cell], header: u64, words: &[u64], bytes: &[u8]) {
        let target = cell(cells, self.tail);
        for (slot, word) in target.0[1..].iter().zip(words) {
            slot.store(*word, Relaxed);
        }
        if !bytes.is_empty() {
            let slots = &target.0[1 + words.len()..];
            let (whole, rest) = bytes.as_chunks::<8>();
            for (slot, bytes) in slots.iter().zip(whole) {
                slot.store(u64::from_le_bytes(*bytes), Relaxed);
            }
            if !rest.is_empty() {
                let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                slots[whole.len()].store(word, Relaxed);
            }
        }
        // Release: pairs with the Acquire in `Reader::peek`; the words above, and any payload, come first.
        target.0[0].store(header | lap(self.tail, self.log), Release);
        self.tail += 1;
    }

    /// Writes a frame of two cells. The caller has seen room for both.
    pub(crate) fn push_two(&mut self, cells: &[Cell], header: u64, words: &[u64]) {
        let (first, second) = words.split_at(words.len().min(CELL_WORDS));
        let target = cell(cells, self.tail + 1);
        for (slot, word) in target.0[1..].iter().zip(second) {
            slot.store(*word, Relaxed);
        }
        // Relaxed: the Release store of the first cell's header makes it visible. The reader never looks for a
        // frame here before that, because it reads cells in order.
        target.0[0].store(lap(self.tail + 1, self.log), Relaxed);
        self.push(cells, header, first, &[]);
        self.tail += 1;
    }

    /// Skips the room check; for lanes whose room is set aside in advance.
    #[inline]
    pub(crate) fn assume_room(&mut self, cells: &[Cell]) {
        self.limit = self.tail + cells.len() as u64;
    }
}

/// The reading side: where it reads next, and what it has told the writer.
#[derive(Debug)]
pub(crate) struct Reader {
    head: u64,
    published: u64,
    log: u32,
}

impl Reader {
    /// A reader at the start of an empty ring.
    pub(crate) fn new(cells: &[Cell]) -> Self {
        Self { head: 0, published: 0, log: cells.len().trailing_zeros() }
    }

    /// The next frame's first cell and header, if one has arrived.
    #[inline]
    pub(crate) fn peek<'a>(&self, cells: &'a [Cell]) -> Option<(&'a Cell, u64)> {
        let cell = cell(cells, self.head);
        // Acquire: pairs with the Release in `Writer::push`.
        let header = cell.0[0].load(Acquire);
        (header & LAP == lap(self.head, self.log)).then_some((cell, header))
    }

    /// The first cell of the frame that `peek` found.
    #[inline]
    pub(crate) fn first<'a>(&self, cells: &'a [Cell]) -> &'a Cell {
        cell(cells, self.head)
    }

    /// The second cell of the frame that `peek` found.
    #[inline]
    pub(crate) fn second<'a>(&self, cells: &'a [Cell]) -> Result<&'a Cell, Broken> {
        let cell = cell(cells, self.head + 1);
        let expected = lap(self.head + 1, self.log);
        if cell.0[0].load(Relaxed) & LAP == expected { Ok(cell) } else { Err(Broken) }
    }

    /// Where the next frame will be, in a ring whose first cell has index `base`, and the lap byte that is there
    /// until then, in one word: what a glance at many rings compares.
    #[inline]
    pub(crate) fn watch(&self, cells: &[Cell], base: usize) -> u64 {
        let index = base + (self.head as usize & (cells.len() - 1));
        (index as u64) << 8 | lap(self.head, self.log).wrapping_sub(1) & LAP
    }

    /// Whether the cell that has no new frame looks as the previous lap left it; anything else is a faulty writer.
    #[cold]
    pub(crate) fn sound(&self, cells: &[Cell]) -> bool {
        let found = cell(cells, self.head).0[0].load(Relaxed) & LAP;
        let now = lap(self.head, self.log);
        found == now || found == now.wrapping_sub(1) & LAP
    }

    /// Steps over a frame of `count` cells.
    #[inline]
    pub(crate) fn advance(&mut self, count: u64) {
        self.head += count;
    }

    /// Cells read so far.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.head
    }

    /// Cells read so far and not yet given back.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Gives the cells read so far back to the writer.
    #[inline]
    pub(crate) fn publish(&mut self, done: &AtomicU64) {
        self.published = self.head;
        give_back(done, self.head);
    }
}

/// Tells the other side the new total of what it has back.
#[inline]
pub(crate) fn give_back(word: &AtomicU64, total: u64) {
    // Release: pairs with the Acquire in `given_back` and `newly_given_back`; what was done with it before is
    // over.
    word.store(total, Release);
}

/// The total that the other side has given back. It cannot be less than it was, or more than was ever used.
#[inline]
pub(crate) fn given_back(word: &AtomicU64, known: u64, used: u64) -> Result<u64, Broken> {
    // Acquire: pairs with the Release in `give_back`; the other side's loads of what it gave back are over.
    let total = word.load(Acquire);
    if (known..=used).contains(&total) { Ok(total) } else { Err(Broken) }
}

/// What the other side has given back since `seen`, which follows. Whether it had so much is for the caller's
/// account to tell.
#[inline]
pub(crate) fn newly_given_back(word: &AtomicU64, seen: &mut u64) -> Result<u32, Broken> {
    // Acquire: pairs with the Release in `give_back`.
    let total = word.load(Acquire);
    let fresh = total.wrapping_sub(std::mem::replace(seen, total));
    u32::try_from(fresh).map_err(|_| Broken)
}

/// Whether the frame that a [`Reader::watch`] word stands for may have arrived; `cells` are those that its index
/// counts. It is told from any change, so that a word of long ago does not hide what has come since.
#[inline(always)]
pub(crate) fn arrived(cells: &[Cell], watch: u64) -> bool {
    // Relaxed: only a hint; `Reader::peek` looks again.
    cells.get((watch >> 8) as usize).is_some_and(|cell| (cell.0[0].load(Relaxed) ^ watch) & LAP != 0)
}

/// Positions in a byte ring whose pieces are contiguous: both sides compute them alike from the lengths alone.
///
/// Pieces are rounded up to 64 bytes. One that does not fit before the end starts over at the beginning; the gap
/// counts as used until the piece is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position(u64);

/// Granule of the byte ring.
pub(crate) const GRANULE: usize = 64;

impl Position {
    /// Where a piece of `len` bytes starts, and the position after it, in a ring of `capacity` bytes.
    #[inline]
    pub(crate) fn place(self, len: usize, capacity: usize) -> (usize, Self) {
        let (rounded, capacity) = (len.next_multiple_of(GRANULE) as u64, capacity as u64);
        let at = self.0 & (capacity - 1);
        let start = if at + rounded > capacity { self.0 + (capacity - at) } else { self.0 };
        ((start & (capacity - 1)) as usize, Self(start + rounded))
    }

    /// The position as a number of bytes since the beginning.
    #[inline]
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(am_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring(cells: usize) -> Vec<Cell> {
        (0..cells).map(|_| Cell(std::array::from_fn(|_| AtomicU64::new(0)))).collect()
    }

    #[test]
    fn a_writer_stops_at_a_full_ring_and_distrusts_the_reader() {
        let (cells, done) = (ring(4), AtomicU64::new(0));
        let mut writer = Writer::new(&cells);
        for _ in 0..4 {
            assert_eq!(writer.room(&cells, &done, 1), Ok(true));
            writer.push(&cells, 0x100, &[1], &[]);
        }
        assert_eq!(writer.room(&cells, &done, 1), Ok(false));
        done.store(5, Relaxed);
        assert_eq!(writer.room(&cells, &done, 1), Err(Broken));
        done.store(1, Relaxed);
        assert_eq!(writer.room(&cells, &done, 1), Ok(true));
        assert_eq!(writer.room(&cells, &done, 2), Ok(false));
    }

    #[test]
    fn garbage_is_told_from_an_empty_ring() {
        let cells = ring(4);
        let reader = Reader::new(&cells);
        assert!(reader.peek(&cells).is_none() && reader.sound(&cells));
        cells[0].0[0].store(77, Relaxed);
        assert!(reader.peek(&cells).is_none() && !reader.sound(&cells));
    }

    proptest! {
        /// Frames come out as they went in, over many laps (the lap byte wraps too), whatever the interleaving.
        #[test]
        fn frames_survive(steps in prop::collection::vec((any::<bool>(), 0usize..=14), 1..4000), log in 1u32..4) {
            let (cells, done) = (ring(1 << log), AtomicU64::new(0));
            let (mut writer, mut reader) = (Writer::new(&cells), Reader::new(&cells));
            let mut model: VecDeque<Vec<u64>> = VecDeque::new();
            let mut value = 0;
            for (write, len) in steps {
                let need = if len > CELL_WORDS { 2 } else { 1 };
                if write && writer.room(&cells, &done, need).unwrap() {
                    let words: Vec<u64> = (0..len as u64).map(|index| value ^ index).collect();
                    let header = (len as u64) << 8;
                    if need == 2 {
                        writer.push_two(&cells, header, &words)
                    } else {
                        writer.push(&cells, header, &words, &[])
                    }
                    model.push_back(words);
                    value += 97;
                } else if let Some((first, header)) = reader.peek(&cells) {
                    let len = (header >> 8) as usize;
                    let mut words: Vec<u64> = first.0[1..].iter().map(|word| word.load(Relaxed)).collect();
                    if len > CELL_WORDS {
                        words.extend(reader.second(&cells).unwrap().0[1..].iter().map(|word| word.load(Relaxed)));
                    }
                    prop_assert_eq!(&words[..len], model.pop_front().unwrap());
                    reader.advance(if len > CELL_WORDS { 2 } else { 1 });
                    reader.publish(&done);
                } else {
                    prop_assert!(model.is_empty() && reader.sound(&cells) || write);
                }
            }
        }

        /// Pieces under way never overlap while their total, rounded, leaves the largest piece's room free.
        #[test]
        fn pieces_fit(lens in prop::collection::vec(0usize..=256, 1..300), keep in 0usize..4) {
            let capacity = 1024;
            let (mut tail, mut head) = (Position::default(), Position::default());
            let mut live: VecDeque<(usize, usize)> = VecDeque::new();
            for len in lens {
                let taken = |live: &VecDeque<(usize, usize)>| -> usize {
                    live.iter().map(|(_, len)| len.next_multiple_of(64)).sum()
                };
                while live.len() > keep || taken(&live) + len.next_multiple_of(64) > capacity - 256 {
                    let (start, old) = live.pop_front().unwrap();
                    let (expected, next) = head.place(old, capacity);
                    prop_assert_eq!(start, expected);
                    head = next;
                }
                let (start, next) = tail.place(len, capacity);
                prop_assert!(start + len <= capacity);
                prop_assert!(next.bytes() - head.bytes() <= capacity as u64);
                for (other, old) in &live {
                    prop_assert!(start + len <= *other || other + old <= start);
                }
                tail = next;
                live.push_back((start, len));
            }
        }
    }
}
