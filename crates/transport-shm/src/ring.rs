//! The ring that frames travel in: one writer, one reader, 64-byte cells, one cache-line transfer per small frame
//! or per several of them.
//!
//! A cell is eight words. Word 0 is a header, whose lowest byte is the **lap**: how often the ring has been gone
//! round when the cell was written, plus one, modulo 256. Every cell is written exactly once per lap and always
//! with a header, so the reader knows a new cell by its lap alone: no index is shared on the way of a message, and
//! memory fresh from the kernel (all zero) reads as empty. A frame is one cell, or two when its words do not fit
//! one; the second cell is written first.
//!
//! **Packing.** A writer far ahead of its reader puts several frames into a cell, one behind the other, each
//! with a header of its own. A header with [`OPEN`] says that the next frame may come in the same cell,
//! directly behind this one. There the writer has put the lap byte of the lap before, which means that nothing
//! has come yet; it replaces it by a frame's header or, when it goes on with the next cell, by a header of
//! nothing but the lap. So there is at any time one word in which the next frame will appear, and frames wait
//! for nothing: a cell that is open keeps its reader from no frame in it. A writer that is not far ahead opens
//! no cell, since its reader would take the line away while it is still written to.
//!
//! Positions count words, eight for each cell. The way back is one word, the position up to which the reader has
//! read, stored once per batch and read by the writer only when it has used up what it knew of, and now and then
//! while it packs. Bytes of a byte ring and room set aside for replies come back in such words of their own,
//! running totals all of them.
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

/// Words of a cell, which positions count.
const WORDS: u64 = 1 + CELL_WORDS as u64;

/// The lowest byte of a header.
const LAP: u64 = 0xff;

/// A reader that is so many cells behind, or fewer, is near: its writer packs nothing.
const NEAR: u64 = 32;

/// Cells after which a writer looks for its reader.
const LOOK: u64 = 128;

/// Words after which a reader tells how far it is, though more frames wait.
pub(crate) fn told_after(cells: &[Cell]) -> u64 {
    WORDS * (cells.len() as u64 / 16).max(1)
}

/// In a header: the next frame may come in the same cell.
pub(crate) const OPEN: u64 = 1 << 60;

/// The other side broke the ring's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The lap byte of the cell at a position of a ring of `1 << log` words.
#[inline]
fn lap(position: u64, log: u32) -> u64 {
    ((position >> log) + 1) & LAP
}

/// The lap byte where the next frame of a cell has not come.
#[inline]
fn before(position: u64, log: u32) -> u64 {
    (position >> log) & LAP
}

#[inline]
fn cell(cells: &[Cell], position: u64) -> &Cell {
    &cells[(position / WORDS) as usize & (cells.len() - 1)]
}

/// Where the cell behind a position begins.
#[inline]
fn next_cell(position: u64) -> u64 {
    (position | (WORDS - 1)) + 1
}

/// Cells from one position to another that is not before it, with those that are begun.
pub(crate) fn cells_between(from: u64, to: u64) -> u64 {
    (to.div_ceil(WORDS)).wrapping_sub(from / WORDS)
}

fn log_of_words(cells: &[Cell]) -> u32 {
    debug_assert!(cells.len().is_power_of_two(), "the layout makes rings of a power of two");
    cells.len().trailing_zeros() + WORDS.trailing_zeros()
}

/// The writing side: where it writes next, and how far it may go.
#[derive(Debug)]
pub(crate) struct Writer {
    tail: u64,
    limit: u64,
    log: u32,
    /// The position up to which frames are packed before the reader's is looked at again; zero if they are not.
    packs_to: u64,
    /// Where the reader is known to have been.
    known: u64,
}

impl Writer {
    /// A writer at the start of an empty ring.
    pub(crate) fn new(cells: &[Cell]) -> Self {
        Self { tail: 0, limit: WORDS * cells.len() as u64, log: log_of_words(cells), packs_to: 0, known: 0 }
    }

    /// Packs whatever is small from now on, however near the reader is.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn always_pack(&mut self) {
        self.packs_to = u64::MAX;
    }

    /// Whether `need` whole cells are free, looking at `done` (how far the reader has read) if not known yet.
    #[inline]
    pub(crate) fn room(&mut self, cells: &[Cell], done: &AtomicU64, need: u64) -> Result<bool, Broken> {
        // The limit is the beginning of a cell, so that this holds behind an open cell as well.
        if self.limit - self.tail >= WORDS * need {
            return Ok(true);
        }
        self.refresh(cells, done)?;
        if self.packs_to == 0 {
            self.packs_to = self.far_ahead(cells);
        }
        Ok(self.limit - self.tail >= WORDS * need)
    }

    /// Learns how far the reader is.
    #[cold]
    pub(crate) fn refresh(&mut self, cells: &[Cell], done: &AtomicU64) -> Result<(), Broken> {
        self.known = given_back(done, self.known, self.tail)?;
        // What the reader has begun to read is not free. The writer looks again soon, since it may pack as soon as
        // the reader has fallen behind.
        let all = self.known / WORDS * WORDS + WORDS * cells.len() as u64;
        self.limit = all.min(next_cell(self.tail) + WORDS * LOOK);
        Ok(())
    }

    /// Up to where frames can be packed, by what is known of the reader, before it can have come near; zero if it
    /// may be near now.
    fn far_ahead(&self, cells: &[Cell]) -> u64 {
        let near = told_after(cells) + WORDS * NEAR;
        let ahead = (self.tail - self.known).saturating_sub(near);
        // It may read cells of one frame faster than others of several are written.
        if ahead == 0 { 0 } else { self.tail + ahead / 4 + WORDS }
    }

    /// The position behind what has been written.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.tail
    }

    /// The number of the cell that is written next or is open.
    #[inline]
    pub(crate) fn cell(&self) -> u64 {
        self.tail / WORDS
    }

    /// The reader's position as far as it is known.
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// Whether the next small frame is for [`Writer::pack`]: the reader is far behind, or a cell is open.
    #[inline]
    pub(crate) fn packs(&self) -> bool {
        self.packs_to != 0
    }

    /// Writes a frame of one cell: words, then bytes; `header` has a zero lap byte. The caller has seen room for
    /// it, and that no cell is open.
    #[inline(always)]
    pub(crate) fn push(&mut self, cells: &[Cell], header: u64, words: &[u64], bytes: &[u8]) {
        let target = cell(cells, self.tail);
        fill(&target.0[1..], words, bytes);
        // Release: pairs with the Acquire in `Reader::peek`; the words above, and any payload, come first.
        target.0[0].store(header | lap(self.tail, self.log), Release);
        self.tail += WORDS;
    }

    /// Writes a frame of one cell or less behind the last one of its cell, if that is open and has room, else into
    /// the next cell, which it leaves open if another one like it fits there. The caller has seen room for a cell.
    #[inline(always)]
    pub(crate) fn pack(&mut self, cells: &[Cell], done: &AtomicU64, header: u64, words: &[u64], bytes: &[u8]) {
        let need = 1 + words.len() + bytes.len().div_ceil(8);
        if 2 * need > WORDS as usize {
            // It has a cell to itself in any case, and so the reader is not looked at for it.
            self.close(cells);
            return self.push(cells, header, words, bytes);
        }
        if self.tail % WORDS + need as u64 > WORDS || self.tail >= self.packs_to {
            self.look_again(cells, done, need);
            if !self.packs() {
                return self.push(cells, header, words, bytes);
            }
        }
        let at = (self.tail % WORDS) as usize;
        let target = cell(cells, self.tail);
        fill(&target.0[at + 1..], words, bytes);
        let open = at + 2 * need <= WORDS as usize;
        if open {
            target.0[at + need].store(before(self.tail, self.log), Relaxed);
        }
        // Release: as in `push`, and the word behind this frame, where the next one will appear, comes first.
        let header = header | lap(self.tail, self.log) | if open { OPEN } else { 0 };
        target.0[at].store(header, Release);
        self.tail = if open { self.tail + need as u64 } else { next_cell(self.tail) };
    }

    /// Closes a cell without room for `need` words, and decides anew whether to pack if it is time.
    #[inline(never)]
    fn look_again(&mut self, cells: &[Cell], done: &AtomicU64, need: usize) {
        if self.tail >= self.packs_to {
            // A reader that breaks the protocol is found out when room is looked for.
            self.packs_to = if self.refresh(cells, done).is_ok() { self.far_ahead(cells) } else { 0 };
        }
        if !self.packs() || self.tail % WORDS + need as u64 > WORDS {
            self.close(cells);
        }
    }

    /// Tells the reader to go on with the next cell, if a cell is open.
    #[inline]
    pub(crate) fn close(&mut self, cells: &[Cell]) {
        let at = self.tail % WORDS;
        if at != 0 {
            // Release: pairs with the Acquire in `Reader::peek`, though nothing need come before.
            cell(cells, self.tail).0[at as usize].store(lap(self.tail, self.log), Release);
            self.tail = next_cell(self.tail);
        }
    }

    /// Writes a frame of two cells. The caller has seen room for both, and that no cell is open.
    pub(crate) fn push_two(&mut self, cells: &[Cell], header: u64, words: &[u64]) {
        let (first, second) = words.split_at(words.len().min(CELL_WORDS));
        let behind = self.tail + WORDS;
        let target = cell(cells, behind);
        fill(&target.0[1..], second, &[]);
        // Relaxed: the Release store of the first cell's header makes it visible. The reader never looks for a
        // frame here before that, because it reads cells in order.
        target.0[0].store(lap(behind, self.log), Relaxed);
        self.push(cells, header, first, &[]);
        self.tail += WORDS;
    }

    /// Skips the room check; for lanes whose room is set aside in advance.
    #[inline]
    pub(crate) fn assume_room(&mut self, cells: &[Cell]) {
        self.limit = self.tail + WORDS * cells.len() as u64;
    }
}

/// Stores a frame's words, then its bytes.
#[inline(always)]
fn fill(target: &[AtomicU64], words: &[u64], bytes: &[u8]) {
    for (slot, word) in target.iter().zip(words) {
        slot.store(*word, Relaxed);
    }
    if !bytes.is_empty() {
        let slots = &target[words.len()..];
        let (whole, rest) = bytes.as_chunks::<8>();
        for (slot, bytes) in slots.iter().zip(whole) {
            slot.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        if !rest.is_empty() {
            let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            slots[whole.len()].store(word, Relaxed);
        }
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
        Self { head: 0, published: 0, log: log_of_words(cells) }
    }

    /// The next frame's words, of which the first is its header, up to the end of its first cell, and the header,
    /// if one has arrived.
    #[inline]
    pub(crate) fn peek<'a>(&self, cells: &'a [Cell]) -> Option<(&'a [AtomicU64], u64)> {
        let words = self.first(cells);
        // Acquire: pairs with the Release in `Writer::push`, `pack` and `close`.
        let header = words[0].load(Acquire);
        (header & LAP == lap(self.head, self.log)).then_some((words, header))
    }

    /// The words of the frame that `peek` found, up to the end of its first cell.
    #[inline]
    pub(crate) fn first<'a>(&self, cells: &'a [Cell]) -> &'a [AtomicU64] {
        &cell(cells, self.head).0[(self.head % WORDS) as usize..]
    }

    /// The second cell of the frame that `peek` found.
    #[inline]
    pub(crate) fn second<'a>(&self, cells: &'a [Cell]) -> Result<&'a Cell, Broken> {
        let position = self.head + WORDS;
        let cell = cell(cells, position);
        let expected = lap(position, self.log);
        if cell.0[0].load(Relaxed) & LAP == expected { Ok(cell) } else { Err(Broken) }
    }

    /// Where the next frame will be, in a ring whose first word has index `base`, and the lap byte that is there
    /// until then, in one word: what a glance at many rings compares.
    #[inline]
    pub(crate) fn watch(&self, cells: &[Cell], base: usize) -> u64 {
        let index = base as u64 + (self.head & (WORDS * cells.len() as u64 - 1));
        index << 8 | before(self.head, self.log)
    }

    /// Whether the word that has no new frame looks as the previous lap left it, or whoever opened its cell;
    /// anything else is a faulty writer.
    #[cold]
    pub(crate) fn sound(&self, cells: &[Cell]) -> bool {
        let found = self.first(cells)[0].load(Relaxed) & LAP;
        found == lap(self.head, self.log) || found == before(self.head, self.log)
    }

    /// Whether the cell `ahead` cells behind the one that is read has been written to.
    pub(crate) fn is_written(&self, cells: &[Cell], ahead: u64) -> bool {
        let position = self.head + WORDS * ahead;
        // Relaxed: only a hint.
        cell(cells, position).0[0].load(Relaxed) & LAP == lap(position, self.log)
    }

    /// Whether the frame that `peek` found is in a cell with others before it.
    #[inline]
    pub(crate) fn within(&self) -> bool {
        !self.head.is_multiple_of(WORDS)
    }

    /// Steps over a frame of one cell or less, of which `words` words follow its header.
    #[inline]
    pub(crate) fn step(&mut self, header: u64, words: usize) {
        if header & OPEN == 0 { self.leave() } else { self.stay(words) }
    }

    /// Steps over the last frame of a cell.
    #[inline(always)]
    pub(crate) fn leave(&mut self) {
        self.head = next_cell(self.head);
    }

    /// Steps over a frame in an open cell, of which `words` words follow its header.
    #[inline(always)]
    pub(crate) fn stay(&mut self, words: usize) {
        self.head += 1 + words as u64;
    }

    /// Steps over a header that stands for no frame, but for the end of an open cell; whether it is one.
    #[inline]
    pub(crate) fn step_out(&mut self, header: u64) -> bool {
        let ends = header & !LAP == 0 && self.within();
        if ends {
            self.leave();
        }
        ends
    }

    /// Steps over a frame of `count` whole cells.
    #[inline]
    pub(crate) fn advance(&mut self, count: u64) {
        self.head += WORDS * count;
    }

    /// Cells read so far, and begun.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.head / WORDS
    }

    /// Words read so far and not yet told to the writer.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Tells the writer how far has been read.
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

/// Whether the frame that a [`Reader::watch`] word stands for may have arrived; `words` are those that its index
/// counts. It is told from any change, so that a word of long ago does not hide what has come since.
#[inline(always)]
pub(crate) fn arrived(words: &[AtomicU64], watch: u64) -> bool {
    // Relaxed: only a hint; `Reader::peek` looks again.
    words.get((watch >> 8) as usize).is_some_and(|word| (word.load(Relaxed) ^ watch) & LAP != 0)
}

/// A [`Reader::watch`] word for the header of the cell that it watches a word of.
#[inline(always)]
pub(crate) fn whole_cell(watch: u64) -> u64 {
    watch & !((WORDS - 1) << 8)
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
        done.store(4 * WORDS + 1, Relaxed);
        assert_eq!(writer.room(&cells, &done, 1), Err(Broken));
        // A cell that is not read to its end is not free.
        done.store(WORDS - 1, Relaxed);
        assert_eq!(writer.room(&cells, &done, 1), Ok(false));
        done.store(WORDS, Relaxed);
        assert_eq!(writer.room(&cells, &done, 1), Ok(true));
        assert_eq!(writer.room(&cells, &done, 2), Ok(false));
    }

    /// A writer packs once its reader is far behind, and no longer once it may be near.
    #[test]
    fn frames_are_packed_behind_a_reader_that_lags() {
        let (cells, done) = (ring(1024), AtomicU64::new(0));
        let mut writer = Writer::new(&cells);
        let send = |writer: &mut Writer| {
            assert_eq!(writer.room(&cells, &done, 1), Ok(true));
            match writer.packs() {
                true => writer.pack(&cells, &done, 0x100, &[1], &[]),
                false => writer.push(&cells, 0x100, &[1], &[]),
            }
        };
        // Nothing is packed for a reader that keeps up.
        for _ in 0..10_000 {
            send(&mut writer);
            assert!(!writer.packs());
            done.store(writer.written(), Relaxed);
        }
        // One that stands still is noticed soon.
        let mut sent = 0;
        while !writer.packs() {
            send(&mut writer);
            sent += 1;
            if sent == 900 {
                done.store(done.load(Relaxed) + 100 * WORDS, Relaxed);
            }
        }
        assert!(sent <= 1100, "{sent}");
        let before = writer.written();
        (0..40).for_each(|_| send(&mut writer));
        assert_eq!(writer.written() - before, 10 * WORDS, "four frames of two words in a cell");
        // Once it has caught up, the writer is back at a cell for each within a few cells.
        let mut packed = 0;
        while writer.packs() {
            done.store(writer.written(), Relaxed);
            send(&mut writer);
            packed += 1;
        }
        assert!(packed < 1024, "{packed}");
        let before = writer.written();
        assert!(before.is_multiple_of(WORDS), "no cell is left open");
        (0..10).for_each(|_| send(&mut writer));
        assert_eq!(writer.written() - before, 10 * WORDS);
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
        /// Frames come out as they went in, over many laps (the lap byte wraps too), whatever the interleaving,
        /// and whether they are packed or not. Old words of a cell are never taken for a frame.
        #[test]
        fn frames_survive(
            steps in prop::collection::vec((any::<bool>(), 0usize..=14, 0usize..=20, any::<bool>()), 1..4000),
            log in 2u32..5
        ) {
            let (cells, done) = (ring(1 << log), AtomicU64::new(0));
            let (mut writer, mut reader) = (Writer::new(&cells), Reader::new(&cells));
            let mut model: VecDeque<(Vec<u64>, Vec<u8>)> = VecDeque::new();
            let mut value = 0;
            for (write, len, bytes, packs) in steps {
                let need = if len > CELL_WORDS { 2 } else { 1 };
                if write && writer.room(&cells, &done, need).unwrap() {
                    // Values whose lowest bytes are laps that have been or will be.
                    let words: Vec<u64> = (0..len as u64).map(|index| value + index).collect();
                    let bytes: Vec<u8> = (0..bytes.min(8 * CELL_WORDS.saturating_sub(len)) as u8).collect();
                    let header = (len as u64) << 8 | (bytes.len() as u64) << 16 | 1 << 24;
                    if need == 2 {
                        writer.close(&cells);
                        writer.push_two(&cells, header, &words);
                    } else if packs {
                        writer.always_pack();
                        writer.pack(&cells, &done, header, &words, &bytes);
                    } else {
                        writer.close(&cells);
                        writer.push(&cells, header, &words, &bytes);
                    }
                    model.push_back((words, bytes));
                    value += 1;
                } else if let Some((first, header)) = reader.peek(&cells) {
                    if reader.step_out(header) {
                        continue;
                    }
                    let (len, bytes) = ((header >> 8 & 0xff) as usize, (header >> 16 & 0xff) as usize);
                    let mut words: Vec<u64> = first[1..].iter().map(|word| word.load(Relaxed)).collect();
                    let held = if len > CELL_WORDS {
                        prop_assert!(!reader.within());
                        words.extend(reader.second(&cells).unwrap().0[1..].iter().map(|word| word.load(Relaxed)));
                        reader.advance(2);
                        Vec::new()
                    } else {
                        reader.step(header, len + bytes.div_ceil(8));
                        words[len..].iter().flat_map(|word| word.to_le_bytes()).take(bytes).collect()
                    };
                    prop_assert_eq!((words[..len].to_vec(), held), model.pop_front().unwrap());
                    reader.publish(&done);
                } else {
                    prop_assert!(model.is_empty() && reader.sound(&cells) || write);
                }
                let watch = reader.watch(&cells, 0);
                let flat: Vec<AtomicU64> =
                    cells.iter().flat_map(|cell| &cell.0).map(|word| AtomicU64::new(word.load(Relaxed))).collect();
                prop_assert_eq!(arrived(&flat, watch), reader.peek(&cells).is_some());
            }
            // A writer and a reader that are done agree on where they are.
            while let Some((_, header)) = reader.peek(&cells) {
                if reader.step_out(header) {
                    continue;
                }
                let (len, bytes) = ((header >> 8 & 0xff) as usize, (header >> 16 & 0xff) as usize);
                if len > CELL_WORDS { reader.advance(2) } else { reader.step(header, len + bytes.div_ceil(8)) }
                model.pop_front();
            }
            reader.publish(&done);
            prop_assert!(model.is_empty());
            prop_assert_eq!(done.load(Relaxed), writer.written());
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
