//! Updates waiting for their messages, gathered by destination within the look-ahead rule.

use super::hpcc::LOOK_AHEAD;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// One bucket of updates for each rank, all in the byte order of the wire.
///
/// All buckets together hold at most [`LOOK_AHEAD`] updates, and each of them may hold that many: which one fills first is
/// the stream's choice. With many destinations few ever hold more than some, so their room grows when one does.
pub struct Buckets {
    updates: Vec<U64>,
    filled: Vec<usize>,
    /// Room of each bucket.
    stride: usize,
}

/// Destinations up to which each bucket has room for all from the start.
const FEW: usize = 64;
/// Room of each of many buckets at first.
const SOME: usize = 16;

impl Buckets {
    /// Empty buckets for `ranks` destinations.
    pub fn new(ranks: u32) -> Self {
        let ranks = ranks as usize;
        let stride = if ranks <= FEW { LOOK_AHEAD } else { SOME };
        Self { updates: vec![U64::ZERO; ranks * stride], filled: vec![0; ranks], stride }
    }

    /// Stores one update; the only branch is one that is hardly ever taken.
    ///
    /// # Panics
    /// If that bucket holds [`LOOK_AHEAD`] updates, which [`Buckets::room`] forbids.
    #[inline(always)]
    pub fn push(&mut self, rank: u64, update: u64) {
        if self.filled[rank as usize] == self.stride {
            self.grow();
        }
        let filled = &mut self.filled[rank as usize];
        self.updates[rank as usize * self.stride..][..self.stride][*filled] = U64::new(update);
        *filled += 1;
    }

    /// Doubles every bucket's room.
    #[cold]
    fn grow(&mut self) {
        assert!(self.stride < LOOK_AHEAD, "more updates than the rule allows to hold");
        let mut updates = vec![U64::ZERO; 2 * self.updates.len()];
        for (new, old) in updates.chunks_mut(2 * self.stride).zip(self.updates.chunks(self.stride)) {
            new[..self.stride].copy_from_slice(old);
        }
        (self.updates, self.stride) = (updates, 2 * self.stride);
    }

    /// How many more updates may be stored.
    pub fn room(&self) -> usize {
        LOOK_AHEAD - self.filled.iter().sum::<usize>()
    }

    /// The updates stored for a rank.
    pub fn bucket(&self, rank: u32) -> &[U64] {
        let rank = rank as usize;
        &self.updates[rank * self.stride..][..self.filled[rank]]
    }

    /// The same as a message's payload.
    pub fn payload(&self, rank: u32) -> &[u8] {
        self.bucket(rank).as_bytes()
    }

    /// Forgets the updates stored for a rank.
    pub fn clear(&mut self, rank: u32) {
        self.filled[rank as usize] = 0;
    }

    /// The rank with the most updates, if there are any.
    pub fn fullest(&self) -> Option<u32> {
        let fullest = (0..self.filled.len()).max_by_key(|rank| self.filled[*rank])?;
        (self.filled[fullest] > 0).then_some(fullest as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_order_and_count_together() {
        let mut buckets = Buckets::new(3);
        assert_eq!((buckets.room(), buckets.fullest()), (LOOK_AHEAD, None));
        for update in 0..10 {
            buckets.push(update % 2 * 2, update);
        }
        buckets.push(2, 99);
        assert_eq!((buckets.room(), buckets.fullest()), (LOOK_AHEAD - 11, Some(2)));
        assert_eq!(buckets.bucket(2).iter().map(|u| u.get()).collect::<Vec<_>>(), [1, 3, 5, 7, 9, 99]);
        assert_eq!(buckets.payload(0)[8..16], [2, 0, 0, 0, 0, 0, 0, 0]);
        buckets.clear(2);
        assert_eq!((buckets.room(), buckets.fullest()), (LOOK_AHEAD - 5, Some(0)));
        assert!(buckets.bucket(1).is_empty() && buckets.bucket(2).is_empty());
    }

    #[test]
    fn one_bucket_can_hold_all_that_the_rule_allows() {
        for ranks in [2, 100] {
            let mut buckets = Buckets::new(ranks);
            (0..LOOK_AHEAD as u64).for_each(|update| buckets.push(1, update));
            assert_eq!((buckets.room(), buckets.bucket(1).len()), (0, LOOK_AHEAD));
            assert!(buckets.bucket(1).iter().map(|update| update.get()).eq(0..LOOK_AHEAD as u64));
        }
    }
}
