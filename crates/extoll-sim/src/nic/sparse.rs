//! Memory of which only what is in use takes room: the buffers of rings, of which a job of many ranks has very
//! many.

use std::cell::RefCell;
use std::rc::Rc;

/// Bytes that come and go together: two small messages to a ring's slot, or a part of a large one.
pub(crate) const CHUNK: usize = 256;

type Chunk = Box<[u8; CHUNK]>;

/// Chunks that are not in use, for all sparse memories of a rank: so nothing is allocated once there are enough.
#[derive(Clone, Default)]
pub(crate) struct Chunks(Rc<RefCell<Vec<Chunk>>>);

/// Which of a rank's memories have been written since they were last looked at, by numbers of its own.
#[derive(Clone, Default)]
pub(crate) struct Marks(Rc<RefCell<Vec<u64>>>);

impl Marks {
    fn set(&self, number: u32) {
        let mut words = self.0.borrow_mut();
        let word = (number / 64) as usize;
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= 1 << (number % 64);
    }

    /// Takes a mark away.
    pub(crate) fn clear(&self, number: u32) {
        if let Some(word) = self.0.borrow_mut().get_mut((number / 64) as usize) {
            *word &= !(1 << (number % 64));
        }
    }

    /// The first marked number from one on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let (words, first) = (self.0.borrow(), (from / 64) as usize);
        let mut keep = u64::MAX << (from % 64);
        for (index, word) in words.iter().enumerate().skip(first) {
            let found = word & std::mem::replace(&mut keep, u64::MAX);
            if found != 0 {
                return Some(index as u32 * 64 + found.trailing_zeros());
            }
        }
        None
    }
}

/// Memory of one rank that reads as zero wherever nothing was written, or was discarded. Clones are handles to the
/// same memory.
#[derive(Clone)]
pub(crate) struct SparseMemory(Rc<Inner>);

struct Inner {
    len: usize,
    /// What has been written, by number; in order.
    chunks: RefCell<Vec<(u32, Chunk)>>,
    spare: Chunks,
    /// What is marked by every write, and under which number.
    marks: Option<(Marks, u32)>,
}

impl SparseMemory {
    /// Memory of `len` bytes.
    pub(crate) fn new(len: usize, spare: &Chunks) -> Self {
        Self(Rc::new(Inner { len, chunks: RefCell::default(), spare: spare.clone(), marks: None }))
    }

    /// The same, whose writes set a mark.
    pub(crate) fn marked(len: usize, spare: &Chunks, marks: &Marks, number: u32) -> Self {
        let marks = Some((marks.clone(), number));
        Self(Rc::new(Inner { len, chunks: RefCell::default(), spare: spare.clone(), marks }))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub(crate) fn store(&self, at: usize, mut source: &[u8]) {
        self.check(at, source.len());
        if let Some((marks, number)) = &self.0.marks {
            marks.set(*number);
        }
        let mut chunks = self.0.chunks.borrow_mut();
        let mut at = at;
        while !source.is_empty() {
            let (number, within) = ((at / CHUNK) as u32, at % CHUNK);
            let index = chunks.binary_search_by_key(&number, |(number, _)| *number).unwrap_or_else(|index| {
                chunks.insert(index, (number, self.0.spare.take()));
                index
            });
            let (now, rest) = source.split_at(source.len().min(CHUNK - within));
            chunks[index].1[within..within + now.len()].copy_from_slice(now);
            (at, source) = (at + now.len(), rest);
        }
    }

    /// Copies bytes from an offset on.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub(crate) fn load(&self, at: usize, mut out: &mut [u8]) {
        self.check(at, out.len());
        let chunks = self.0.chunks.borrow();
        let mut at = at;
        while !out.is_empty() {
            let (number, within) = ((at / CHUNK) as u32, at % CHUNK);
            let len = out.len().min(CHUNK - within);
            let (now, rest) = out.split_at_mut(len);
            match chunks.binary_search_by_key(&number, |(number, _)| *number) {
                Ok(index) => now.copy_from_slice(&chunks[index].1[within..within + now.len()]),
                Err(_) => now.fill(0),
            }
            (at, out) = (at + now.len(), rest);
        }
    }

    /// The little-endian word at an offset.
    ///
    /// # Panics
    /// If it is outside the memory.
    pub(crate) fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        self.load(at, &mut word);
        u64::from_le_bytes(word)
    }

    /// What the range held is of no more use. Whole chunks read as zero from now on and take no room.
    pub(crate) fn discard(&self, at: usize, len: usize) {
        let (first, end) = (at.div_ceil(CHUNK) as u32, ((at + len) / CHUNK) as u32);
        let mut chunks = self.0.chunks.borrow_mut();
        let begin = chunks.partition_point(|(number, _)| *number < first);
        let end = chunks.partition_point(|(number, _)| *number < end).max(begin);
        self.0.spare.0.borrow_mut().extend(chunks.drain(begin..end).map(|(_, chunk)| chunk));
    }

    fn check(&self, at: usize, len: usize) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.0.len);
        assert!(inside, "{len} bytes at offset {at} lie in the memory of {} bytes", self.0.len);
    }
}

impl Chunks {
    /// A chunk of zeros.
    fn take(&self) -> Chunk {
        match self.0.borrow_mut().pop() {
            Some(mut chunk) => {
                chunk.fill(0);
                chunk
            }
            None => Box::new([0; CHUNK]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against plain memory, of which discarded chunks are zeroed.
        #[test]
        fn it_is_memory(steps in prop::collection::vec((0usize..3000, 0usize..1500, 0u8..4), 1..60)) {
            let memory = SparseMemory::new(3000, &Chunks::default());
            let mut model = vec![0; 3000];
            for (index, (at, len, what)) in steps.into_iter().enumerate() {
                let end = (at + len).min(3000);
                match what {
                    0 | 1 => {
                        let bytes: Vec<u8> = (at..end).map(|at| (at + index) as u8).collect();
                        memory.store(at, &bytes);
                        model[at..end].copy_from_slice(&bytes);
                    }
                    2 => {
                        memory.discard(at, end - at);
                        let (from, to) = (at.next_multiple_of(CHUNK), end / CHUNK * CHUNK);
                        model[from.min(to)..to].fill(0);
                    }
                    _ => {
                        let mut found = vec![9; end - at];
                        memory.load(at, &mut found);
                        prop_assert_eq!(&found[..], &model[at..end]);
                    }
                }
            }
            let mut all = vec![0; 3000];
            memory.load(0, &mut all);
            prop_assert_eq!(all, model);
        }
    }

    #[test]
    fn marks_are_found_in_order() {
        let marks = Marks::default();
        assert_eq!(marks.next(0), None);
        for number in [200, 3, 64, 63] {
            SparseMemory::marked(8, &Chunks::default(), &marks, number).store(0, &[1]);
        }
        let all = |marks: &Marks| -> Vec<u32> {
            std::iter::successors(marks.next(0), |number| marks.next(number + 1)).collect()
        };
        assert_eq!(all(&marks), [3, 63, 64, 200]);
        marks.clear(64);
        marks.clear(1000);
        assert_eq!(all(&marks), [3, 63, 200]);
    }

    #[test]
    fn discarded_chunks_are_used_again() {
        let spare = Chunks::default();
        let (one, other) = (SparseMemory::new(4 * CHUNK, &spare), SparseMemory::new(CHUNK, &spare));
        one.store(CHUNK, &[7; 2 * CHUNK]);
        one.discard(CHUNK + 1, 3 * CHUNK - 1);
        assert_eq!((spare.0.borrow().len(), one.word(CHUNK), one.word(2 * CHUNK)), (1, 0x0707_0707_0707_0707, 0));
        other.store(0, &[1]);
        assert_eq!((spare.0.borrow().len(), other.word(0)), (0, 1));
    }
}
