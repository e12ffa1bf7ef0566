//! Buffer memory: fixed pages shared by all peers, and the byte queues made of them.
//!
//! A pool grows to the most pages that were ever in use at once and never shrinks; what bounds it is the admission
//! of messages (set-aside replies, granted windows, send queues), which is counted in bytes elsewhere.

use std::collections::VecDeque;

/// Bytes of a page.
pub(super) const PAGE: usize = 2048;
const NONE: u32 = u32::MAX;

/// The pages of one purpose.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pages: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Pool {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.pages.push(vec![0; PAGE].into_boxed_slice());
            (self.pages.len() - 1) as u32
        })
    }

    /// Bytes of all pages, used or not.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// Bytes of the pages in use.
    pub(super) fn used(&self) -> usize {
        (self.pages.len() - self.free.len()) * PAGE
    }
}

/// A window of a byte stream, `start()..end()`, whose bytes may be written in any order.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    pages: VecDeque<u32>,
    start: u64,
    end: u64,
}

impl Fifo {
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn first_page(&self) -> u64 {
        self.start / PAGE as u64
    }

    /// Writes bytes at a position at or after `start()`, taking pages as needed.
    ///
    /// # Panics
    /// If the position is before `start()`.
    #[inline]
    pub(super) fn write(&mut self, pool: &mut Pool, position: u64, bytes: &[u8]) {
        if position == self.end {
            self.append(pool, bytes);
        } else {
            self.write_anywhere(pool, position, bytes);
        }
    }

    fn write_anywhere(&mut self, pool: &mut Pool, mut position: u64, mut bytes: &[u8]) {
        assert!(position >= self.start, "released bytes are not written again");
        while !bytes.is_empty() {
            let (index, skew) = self.place(position);
            while self.pages.len() <= index {
                self.pages.push_back(NONE);
            }
            let page = &mut self.pages[index];
            if *page == NONE {
                *page = pool.take();
            }
            let (now, later) = bytes.split_at(bytes.len().min(PAGE - skew));
            pool.pages[*page as usize][skew..skew + now.len()].copy_from_slice(now);
            position += now.len() as u64;
            bytes = later;
        }
        self.end = self.end.max(position);
    }

    /// Adds bytes at the end.
    #[inline]
    pub(super) fn append(&mut self, pool: &mut Pool, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let skew = (self.end % PAGE as u64) as usize;
        // Most messages are small and find room in the page of the one before. No byte beyond the end was written
        // before it.
        if let Some(space) = self.last_page(pool, skew).and_then(|page| page.get_mut(skew..skew + bytes.len())) {
            space.copy_from_slice(bytes);
            self.end += bytes.len() as u64;
            return;
        }
        self.write_anywhere(pool, self.end, bytes);
    }

    /// The page that the end lies in, at this place of it.
    #[inline]
    fn last_page<'a>(&mut self, pool: &'a mut Pool, skew: usize) -> Option<&'a mut [u8]> {
        if self.pages.is_empty() {
            // All was released, and the page with it.
            self.pages.push_back(pool.take());
        } else if skew == 0 {
            return None;
        }
        pool.pages.get_mut(*self.pages.back()? as usize).map(|page| &mut **page)
    }

    /// Moves the end without writing what lies before it.
    pub(super) fn extend(&mut self, to: u64) {
        if to > self.end {
            let (index, _) = self.place(to - 1);
            while self.pages.len() <= index {
                self.pages.push_back(NONE);
            }
            self.end = to;
        }
    }

    /// Adds bytes at the end that are written in place, at most `N`; how many, `write` says. `None` if the last
    /// page has no room.
    #[inline]
    pub(super) fn append_with<const N: usize>(
        &mut self,
        pool: &mut Pool,
        write: impl FnOnce(&mut [u8; N]) -> usize,
    ) -> Option<usize> {
        let skew = (self.end % PAGE as u64) as usize;
        let len = write(self.last_page(pool, skew)?.get_mut(skew..)?.first_chunk_mut()?);
        self.end += len as u64;
        Some(len)
    }

    /// The bytes from a position to the end of its page, all of which may be read as far as they were written.
    #[inline]
    pub(super) fn peek<'a>(&self, pool: &'a Pool, position: u64) -> &'a [u8] {
        let (index, skew) = self.place(position);
        let page = self.pages.get(index).and_then(|page| pool.pages.get(*page as usize));
        page.and_then(|page| page.get(skew..)).unwrap_or(&[])
    }

    fn place(&self, position: u64) -> (usize, usize) {
        ((position / PAGE as u64 - self.first_page()) as usize, (position % PAGE as u64) as usize)
    }

    /// Copies bytes out that were written before.
    ///
    /// # Panics
    /// If they were not.
    pub(super) fn read(&self, pool: &Pool, mut position: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let (index, skew) = self.place(position);
            let (now, later) = out.split_at_mut(out.len().min(PAGE - skew));
            now.copy_from_slice(&pool.pages[self.pages[index] as usize][skew..skew + now.len()]);
            position += now.len() as u64;
            out = later;
        }
    }

    /// Gives the pages before a position back; it becomes `start()`.
    #[inline]
    pub(super) fn release(&mut self, pool: &mut Pool, to: u64) {
        if to / PAGE as u64 == self.first_page() && to < self.end {
            self.start = self.start.max(to);
            return;
        }
        if to >= self.end {
            (self.start, self.end) = (self.start.max(to), self.end.max(to));
            self.clear(pool);
            return;
        }
        let drop = (to / PAGE as u64).saturating_sub(self.first_page()) as usize;
        for page in self.pages.drain(..drop.min(self.pages.len())) {
            pool.free.extend((page != NONE).then_some(page));
        }
        self.start = self.start.max(to);
        self.end = self.end.max(self.start);
        if self.start == self.end {
            self.clear(pool);
        }
    }

    /// Gives all pages back and keeps the position.
    #[inline]
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        while let Some(page) = self.pages.pop_front() {
            if page != NONE {
                pool.free.push(page);
            }
        }
        self.start = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a queue is to be: its window, and what has been written of it.
    #[derive(Default)]
    struct Model {
        start: u64,
        end: u64,
        bytes: Vec<Option<u8>>,
    }

    impl Model {
        fn write(&mut self, at: u64, bytes: &[u8]) {
            let (from, to) = (at as usize, at as usize + bytes.len());
            self.bytes.resize(self.bytes.len().max(to), None);
            self.bytes[from..to].iter_mut().zip(bytes).for_each(|(byte, new)| *byte = Some(*new));
            self.end = self.end.max(to as u64);
        }

        fn release(&mut self, to: u64) {
            (self.start, self.end) = (self.start.max(to), self.end.max(to));
        }

        /// Checks a queue against this, byte for byte, whichever way it is read.
        fn check(&self, fifo: &Fifo, pool: &Pool) {
            assert_eq!((fifo.start(), fifo.end()), (self.start, self.end));
            let mut at = self.start;
            while at < self.end {
                let most = PAGE as u64 - at % PAGE as u64;
                let rest = self.bytes.iter().skip(at as usize).take(most as usize);
                let run: Vec<u8> = rest.map_while(|byte| *byte).collect();
                let mut read = vec![0; run.len()];
                fifo.read(pool, at, &mut read);
                assert!(read == run && (run.is_empty() || fifo.peek(pool, at).starts_with(&run)), "at {at}");
                at += (run.len() as u64).max(1);
            }
        }
    }

    /// Each page is in one place: a queue, or the row of the free ones.
    fn check_pages(fifos: &[Fifo], pool: &Pool) {
        let taken = fifos.iter().flat_map(|fifo| fifo.pages.iter().copied()).filter(|page| *page != NONE);
        let mut places: Vec<u32> = taken.chain(pool.free.iter().copied()).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..pool.pages.len() as u32), "{fifos:?} {:?}", pool.free);
        for fifo in fifos {
            assert!(fifo.start < fifo.end || fifo.pages.is_empty(), "{fifo:?}");
        }
    }

    proptest! {
        /// Two queues that share a pool, used in any order, hold each its own bytes, and no page is lost, in two
        /// places or kept by an empty queue.
        #[test]
        fn queues_hold_their_own_bytes(
            steps in prop::collection::vec(
                (0usize..2, 0u8..8, 0u64..5000, prop_oneof![0usize..90, 0usize..5000]), 1..80
            )
        ) {
            let (mut pool, mut fifos) = (Pool::default(), <[Fifo; 2]>::default());
            let mut models = <[Model; 2]>::default();
            for (number, (which, action, place, len)) in steps.into_iter().enumerate() {
                let (fifo, model) = (&mut fifos[which], &mut models[which]);
                let bytes: Vec<u8> = (0..len).map(|i| (7 * number + i + 100 * which) as u8).collect();
                match action {
                    0 | 1 => {
                        fifo.append(&mut pool, &bytes);
                        model.write(model.end, &bytes);
                    }
                    2 | 3 if len > 0 => {
                        let part = &bytes[..len.min(64)];
                        let written = fifo.append_with(&mut pool, |space: &mut [u8; 64]| {
                            space[..part.len()].copy_from_slice(part);
                            part.len()
                        });
                        if written.is_none() {
                            fifo.append(&mut pool, part);
                        }
                        model.write(model.end, part);
                    }
                    4 if len > 0 => {
                        fifo.write(&mut pool, model.start + place, &bytes);
                        model.write(model.start + place, &bytes);
                    }
                    5 => {
                        fifo.extend(model.end + place);
                        model.end += place;
                    }
                    6 | 7 => {
                        let to = if action == 6 { model.end + place % 3 } else { model.start + place };
                        fifo.release(&mut pool, to);
                        model.release(to);
                    }
                    _ => {}
                }
                model.check(&fifos[which], &pool);
                check_pages(&fifos, &pool);
            }
            fifos.iter_mut().for_each(|fifo| fifo.clear(&mut pool));
            check_pages(&fifos, &pool);
            prop_assert_eq!(pool.used(), 0);
        }
    }

    #[test]
    fn bytes_come_back_in_any_order_and_pages_are_reused() {
        let (mut pool, mut fifo) = (Pool::default(), Fifo::default());
        let bytes: Vec<u8> = (0..30_000u32).map(|i| (i % 251) as u8).collect();
        for round in 0..10u64 {
            let start = fifo.start();
            assert_eq!(start, round * 30_000);
            fifo.write(&mut pool, start + 7_000, &bytes[7_000..]);
            fifo.write(&mut pool, start, &bytes[..7_100]);
            let mut out = vec![0; 30_000];
            fifo.read(&pool, start, &mut out);
            assert!(out == bytes);
            fifo.release(&mut pool, start + 12_345);
            let mut out = [0; 100];
            fifo.read(&pool, start + 12_345, &mut out);
            assert_eq!(out, bytes[12_345..12_445]);
            fifo.release(&mut pool, start + 30_000);
            assert_eq!(pool.used(), 0);
        }
        assert!(pool.bytes() <= 30_000 + 2 * PAGE);
    }
}
