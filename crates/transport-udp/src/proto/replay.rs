//! Which datagrams have arrived: refuses each number's second coming, and says what to acknowledge.

use super::wire::AckRanges;

/// Numbers that are remembered behind the largest.
pub(super) const WINDOW: u64 = 4096;
const WORDS: usize = (WINDOW / 64) as usize;

/// Why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// It has been here.
    Seen,
    /// Too old to tell.
    Old,
}

/// The numbers of one session, one direction.
#[derive(Debug)]
pub(super) struct Replay {
    bits: Box<[u64; WORDS]>,
    /// One more than the largest number seen.
    next: u64,
    /// Everything from here up to `next` has been seen; what is before may have been, too.
    solid: u64,
    /// What was last acknowledged; kept so that it need not be made anew each time.
    ranges: AckRanges,
}

impl Default for Replay {
    fn default() -> Self {
        Self { bits: Box::new([0; WORDS]), next: 0, solid: 0, ranges: AckRanges::EMPTY }
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize % WORDS, 1 << (number % 64))
}

impl Replay {
    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.bits[word] & bit != 0
    }

    /// Looks, without remembering.
    pub(super) fn check(&self, number: u64) -> Result<(), Stale> {
        if number >= self.next {
            return Ok(());
        }
        if self.next - number > WINDOW - 64 {
            return Err(Stale::Old);
        }
        if self.has(number) { Err(Stale::Seen) } else { Ok(()) }
    }

    /// Remembers an authentic number that [`Replay::check`] let pass; returns whether it came in order.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let in_order = number == self.next;
        if number >= self.next {
            // Words that come into use are cleared; beyond a whole window that is all of them.
            let (old, new) = (self.next.div_ceil(64), number / 64 + 1);
            for word in old..new.min(old + WORDS as u64) {
                self.bits[word as usize % WORDS] = 0;
            }
            self.next = number + 1;
            if !in_order {
                self.solid = number;
            }
        }
        let (word, bit) = place(number);
        self.bits[word] |= bit;
        in_order
    }

    /// The newest ranges of what has arrived.
    pub(super) fn ranges(&mut self) -> &AckRanges {
        self.ranges.clear();
        let floor = self.next.saturating_sub(WINDOW - 64);
        // What is known to be solid need not be looked at: usually that is everything.
        let newest = self.next.checked_sub(1);
        let mut number = self.solid.max(floor);
        while number > floor && self.has(number - 1) {
            number -= 1;
        }
        self.solid = number;
        let mut last = newest;
        while number > floor {
            number -= 1;
            match (self.has(number), last) {
                (true, None) => last = Some(number),
                (false, Some(end)) => {
                    last = None;
                    if !self.ranges.push(number + 1, end) {
                        return &self.ranges;
                    }
                }
                // A whole word of neighbours at once.
                (true, Some(_))
                    if number % 64 == 63 && number - 63 >= floor && self.bits[place(number).0] == u64::MAX =>
                {
                    number -= 63;
                }
                _ => {}
            }
        }
        if let Some(end) = last {
            self.ranges.push(number, end);
        }
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn remembers_what_a_set_remembers(
            steps in prop::collection::vec(prop_oneof![20 => 0u64..5, 5 => 0u64..100, 1 => 0u64..9000], 1..300),
            back in prop::collection::vec(0u64..5000, 300)
        ) {
            let (mut replay, mut set, mut top) = (Replay::default(), BTreeSet::new(), 0u64);
            for (step, back) in steps.iter().zip(&back) {
                top += step;
                for number in [top, top.saturating_sub(*back)] {
                    match replay.check(number) {
                        Ok(()) => { replay.insert(number); prop_assert!(set.insert(number)); }
                        Err(Stale::Seen) => prop_assert!(set.contains(&number)),
                        Err(Stale::Old) => prop_assert!(number + WINDOW - 64 < replay.next),
                    }
                }
                let ranges = replay.ranges();
                prop_assert_eq!(ranges.largest(), set.last().copied());
                for (first, last) in ranges.iter() {
                    prop_assert!((first..=last).all(|number| set.contains(&number)));
                    prop_assert!(!set.contains(&(last + 1)));
                }
            }
        }
    }
}
