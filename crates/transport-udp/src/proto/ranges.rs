//! Sets of byte positions as sorted, disjoint, half-open ranges: what of a stream was received, acknowledged or
//! lost.

/// A bounded set of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet {
    ranges: Vec<(u64, u64)>,
}

impl RangeSet {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.ranges.first().copied()
    }

    /// Index of the first range that ends at `position` or later.
    fn at(&self, position: u64) -> usize {
        self.ranges.partition_point(|(_, end)| *end < position)
    }

    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.at(start);
        let to = from + self.ranges[from..].partition_point(|(first, _)| *first <= end);
        let merged = self.ranges[from..to].iter().fold((start, end), |(a, b), (c, d)| (a.min(*c), b.max(*d)));
        self.ranges.splice(from..to, [merged]);
    }

    pub(super) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let mut index = self.at(start);
        while let Some((first, last)) = self.ranges.get(index).copied().filter(|(first, _)| *first < end) {
            if last <= start {
                index += 1;
                continue;
            }
            match (first < start, last > end) {
                (true, true) => {
                    self.ranges[index].1 = start;
                    self.ranges.insert(index + 1, (end, last));
                    return;
                }
                (true, false) => {
                    self.ranges[index].1 = start;
                    index += 1;
                }
                (false, true) => {
                    self.ranges[index].0 = end;
                    return;
                }
                (false, false) => {
                    self.ranges.remove(index);
                }
            }
        }
    }

    /// Calls `f` with the parts of a range that are not in the set, in order.
    pub(super) fn for_each_gap(&self, start: u64, end: u64, mut f: impl FnMut(u64, u64)) {
        let mut from = start;
        for (first, last) in self.ranges.iter().skip(self.at(start)) {
            if *first >= end {
                break;
            }
            if from < *first {
                f(from, *first);
            }
            from = from.max(*last);
        }
        if from < end {
            f(from, end);
        }
    }

    /// Takes the range away that begins at or before `start`, and returns where it ends; `start` if there is none.
    pub(super) fn advance(&mut self, start: u64) -> u64 {
        match self.first() {
            Some((first, end)) if first <= start => {
                self.ranges.remove(0);
                end.max(start)
            }
            _ => start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 1..40)
        ) {
            let (mut set, mut model) = (RangeSet::default(), [false; 80]);
            for (add, start, len) in steps {
                let end = start + len;
                let (mut gaps, mut expected) = (Vec::new(), Vec::new());
                set.for_each_gap(start, end, |a, b| gaps.extend(a..b));
                expected.extend((start..end).filter(|i| !model[*i as usize]));
                prop_assert_eq!(gaps, expected);
                if add { set.insert(start, end) } else { set.remove(start, end) }
                model[start as usize..end as usize].fill(add);
                let members: Vec<u64> = set.ranges.iter().flat_map(|(a, b)| *a..*b).collect();
                let expected: Vec<u64> = (0..80).filter(|i| model[*i as usize]).collect();
                prop_assert_eq!(members, expected);
                prop_assert!(set.ranges.windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
    }
}
