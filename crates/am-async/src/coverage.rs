//! Which bytes of a long request or answer have come. They are told by place and not only counted: memory goes
//! round, and what a part has not overwritten may be of another peer's message.

use std::collections::VecDeque;

/// Parts with gaps before them at most. A network that changes their order has no more under way.
const MOST: usize = 4096;

/// A part that no honest peer sends: some of its bytes have come before, or too many are missing before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Faulty;

/// The bytes that have come.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// All before this one.
    to: u64,
    /// Ranges beyond a gap, in order and apart.
    ahead: VecDeque<(u64, u64)>,
}

impl Coverage {
    /// Notes `len` bytes from `at` on, and returns how many have come without a gap. Allocates only where parts
    /// change their order.
    pub(crate) fn note(&mut self, at: u64, len: u64) -> Result<u64, Faulty> {
        let end = at.checked_add(len).ok_or(Faulty)?;
        if len == 0 {
            return Ok(self.to);
        }
        let place = self.ahead.partition_point(|range| range.0 < at);
        let before = place.checked_sub(1).map_or(self.to, |before| self.ahead[before].1);
        let after = self.ahead.get(place).map_or(u64::MAX, |range| range.0);
        if at < before || end > after || self.ahead.len() >= MOST {
            return Err(Faulty);
        }
        if at > self.to {
            self.ahead.insert(place, (at, end));
            return Ok(self.to);
        }
        self.to = end;
        while let Some((_, end)) = self.ahead.front().copied().filter(|range| range.0 == self.to) {
            self.ahead.pop_front();
            self.to = end;
        }
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_covers_all() {
        // Five parts in all orders, against a map of bytes.
        let parts = [(0, 3), (3, 1), (4, 4), (8, 1), (9, 7)];
        let mut order = [0, 1, 2, 3, 4];
        for turn in 0..120 {
            let (mut rest, mut left) = (turn, vec![0, 1, 2, 3, 4]);
            for (place, choice) in order.iter_mut().enumerate() {
                *choice = left.remove(rest % (5 - place));
                rest /= 5 - place;
            }
            let (mut coverage, mut map) = (Coverage::default(), [false; 16]);
            for part in order {
                let (at, len) = parts[part];
                map[at..at + len].fill(true);
                let gap = map.iter().position(|there| !there).unwrap_or(16);
                assert_eq!(coverage.note(at as u64, len as u64), Ok(gap as u64), "{order:?}");
            }
            assert_eq!(coverage.note(15, 1), Err(Faulty), "{order:?}");
        }
    }

    #[test]
    fn no_byte_comes_twice() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.note(0, 4), Ok(4));
        assert_eq!(coverage.note(8, 4), Ok(4));
        assert_eq!(coverage.note(6, 0), Ok(4), "nothing is no part");
        for (at, len) in [(0, 4), (3, 1), (4, 5), (7, 2), (8, 4), (11, 1), (5, 20), (u64::MAX, 2)] {
            assert_eq!(coverage.note(at, len), Err(Faulty), "{at} {len}");
        }
        assert_eq!(coverage.note(4, 4), Ok(12));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut coverage = Coverage::default();
        for gap in 1..=MOST as u64 {
            assert_eq!(coverage.note(2 * gap, 1), Ok(0));
        }
        assert_eq!(coverage.note(1 << 40, 1), Err(Faulty));
    }
}
