//! Free parts of a range of offsets: best fit, with alignment, and neighbours merged.

use std::collections::BTreeMap;

/// The free parts of a range that can grow and shrink at its end. It knows nothing of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeList {
    begin: u64,
    end: u64,
    /// Length by offset. No two parts touch, and none touches the end.
    free: BTreeMap<u64, u64>,
}

/// What is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) total: u64,
    pub(super) largest: u64,
}

/// The next multiple of an alignment, or `None` beyond all numbers.
pub(super) fn align(offset: u64, alignment: u64) -> Option<u64> {
    offset.checked_next_multiple_of(alignment)
}

impl FreeList {
    /// An empty range.
    pub(super) fn new(begin: u64) -> Self {
        Self { begin, end: begin, free: BTreeMap::new() }
    }

    /// Where the range begins.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// Where the range ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Takes `len` bytes, at least one, at a multiple of an alignment: in the smallest free part that fits, the
    /// first of equal ones; else behind the range, which grows up to `limit`. Ranges with the same history take
    /// the same.
    pub(super) fn take(&mut self, len: u64, alignment: u64, limit: u64) -> Option<u64> {
        let place = |(offset, size): (&u64, &u64)| {
            let at = align(*offset, alignment)?;
            let fits = at.checked_add(len)? <= offset + size;
            fits.then_some((*size, *offset, at))
        };
        if let Some((size, offset, at)) = self.free.iter().filter_map(place).min() {
            self.free.remove(&offset);
            self.add(offset, at - offset);
            self.add(at + len, offset + size - (at + len));
            return Some(at);
        }
        let at = align(self.end, alignment)?;
        let end = at.checked_add(len).filter(|end| *end <= limit)?;
        self.add(self.end, at - self.end);
        self.end = end;
        Some(at)
    }

    /// Notes a free part without merging it.
    fn add(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.free.insert(offset, len);
        }
    }

    /// Gives back what was taken; the range ends earlier if that was its end.
    pub(super) fn give_back(&mut self, at: u64, len: u64) {
        let (mut begin, mut end) = (at, at + len);
        if let Some(before) = self.free.range(..at).next_back().map(|(offset, size)| (*offset, offset + size))
            && before.1 == begin
        {
            self.free.remove(&before.0);
            begin = before.0;
        }
        if let Some(size) = self.free.remove(&end) {
            end += size;
        }
        if end == self.end {
            self.end = begin;
        } else {
            self.free.insert(begin, end - begin);
        }
    }

    /// What is free, if the range may grow up to `limit`.
    pub(super) fn free(&self, limit: u64) -> Free {
        let behind = limit.saturating_sub(self.end);
        let largest = self.free.values().max().copied().unwrap_or(0);
        Free { total: self.free.values().sum::<u64>() + behind, largest: largest.max(behind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take { len: u64, alignment: u64 },
        GiveBack(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u64..60, 0u32..6).prop_map(|(len, power)| Step::Take { len, alignment: 1 << power }),
            any::<usize>().prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn parts_never_overlap(steps in prop::collection::vec(step(), 0..80), begin in 0u64..40) {
            const LIMIT: u64 = 512;
            let mut list = FreeList::new(begin);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { len, alignment } => match list.take(len, alignment, LIMIT) {
                        Some(at) => {
                            prop_assert!(at.is_multiple_of(alignment) && at >= begin && at + len <= LIMIT);
                            let apart = |(other, size): &(u64, u64)| at + len <= *other || other + size <= at;
                            prop_assert!(taken.iter().all(apart));
                            taken.push((at, len));
                        }
                        // A part that is large enough wherever it begins would have been found.
                        None => prop_assert!(list.free(LIMIT).largest < len + alignment - 1),
                    },
                    Step::GiveBack(index) if !taken.is_empty() => {
                        let (at, len) = taken.swap_remove(index % taken.len());
                        list.give_back(at, len);
                    }
                    Step::GiveBack(_) => {}
                }
                let used: u64 = taken.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(list.free(LIMIT).total, LIMIT - begin - used);
            }
            for (at, len) in taken {
                list.give_back(at, len);
            }
            prop_assert_eq!(&list.free, &BTreeMap::new());
            prop_assert_eq!(list.end(), begin);
        }
    }

    #[test]
    fn the_smallest_part_that_fits() {
        let mut list = FreeList::new(0);
        let parts: Vec<u64> = [10, 1, 6, 1, 8, 1].iter().filter_map(|len| list.take(*len, 1, 100)).collect();
        assert_eq!(parts, [0, 10, 11, 17, 18, 26]);
        [(0, 10), (11, 6), (18, 8)].iter().for_each(|(at, len)| list.give_back(*at, *len));
        assert_eq!(list.take(7, 1, 100), Some(18));
        assert_eq!(list.take(6, 4, 100), Some(0));
        assert_eq!(list.take(6, 1, 100), Some(11));
        assert_eq!(list.take(100, 1, 100), None);
        assert_eq!(list.free(100), Free { total: 4 + 1 + 73, largest: 73 });
        assert_eq!(list.take(u64::MAX, 1 << 40, 100), None);
    }
}
