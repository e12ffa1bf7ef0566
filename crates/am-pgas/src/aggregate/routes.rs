//! The ways of items through a grid of ranks: one hop, two (bale's matrix) or three (its tensor).
//!
//! Ranks are numbered through a grid of up to three dimensions, and hop `k` of an item corrects coordinate `k`. So
//! every rank talks to some `hops * ranks^(1/hops)` others instead of all. The last layer of the grid may be
//! incomplete; a rank that is missing there is replaced by the one before it in the last dimension, which the last
//! hop corrects anyway. Whatever the way, an item that has come by hop `k` goes on by a later hop only.

/// The most hops of an item.
pub(super) const MOST_HOPS: usize = 3;

/// The grid that items find their way through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    ranks: u32,
    extents: [u32; MOST_HOPS],
    hops: usize,
}

/// The largest whole number whose `power`-th power is at most `value`.
fn root(value: u32, power: u32) -> u32 {
    let fits = |root: &u32| u64::from(*root).pow(power) <= u64::from(value);
    (1..=value.max(1)).take_while(fits).last().unwrap_or(1)
}

impl Grid {
    /// A grid of `ranks` ranks for 1 to 3 hops; fewer where so many make no sense.
    pub(super) fn new(ranks: u32, hops: usize) -> Self {
        let hops = hops.clamp(1, MOST_HOPS);
        // Every dimension but the last is complete.
        let mut extents = [1; MOST_HOPS];
        let mut rest = ranks;
        for (index, extent) in extents.iter_mut().enumerate().take(hops - 1) {
            *extent = root(rest, (hops - index) as u32);
            rest = (rest / *extent).max(1);
        }
        let layer: u32 = extents.iter().product();
        extents[hops - 1] = ranks.div_ceil(layer);
        Self { ranks, extents, hops }
    }

    /// Hops of an item at most.
    pub(super) fn hops(&self) -> usize {
        self.hops
    }

    /// Ranks between neighbours of dimension `hop`.
    fn stride(&self, hop: usize) -> u32 {
        self.extents[..hop].iter().product()
    }

    fn coordinate(&self, rank: u32, hop: usize) -> u32 {
        rank / self.stride(hop) % self.extents[hop]
    }

    /// Where hop `hop` of an item leads that is at `from` and has to get to coordinate `value`.
    fn target(&self, from: u32, hop: usize, value: u32) -> u32 {
        let stride = self.stride(hop);
        let to = from - self.coordinate(from, hop) * stride + value * stride;
        if to < self.ranks { to } else { to - self.stride(self.hops - 1) }
    }

    /// The next hop of an item from one rank to another and the rank that it leads to; `None` where it is there.
    pub(super) fn next(&self, from: u32, to: u32) -> Option<(usize, u32)> {
        let differs = |hop: &usize| self.coordinate(from, *hop) != self.coordinate(to, *hop);
        let hop = (0..self.hops).find(differs)?;
        Some((hop, self.target(from, hop, self.coordinate(to, hop))))
    }

    /// The ranks that hop `hop` of any item from here leads to, in the order of their coordinates.
    pub(super) fn targets(&self, from: u32, hop: usize) -> impl Iterator<Item = u32> + '_ {
        let own = self.coordinate(from, hop);
        let values = (0..self.extents[hop]).filter(move |value| *value != own);
        let last = hop == self.hops - 1;
        // The last hop only leads to ranks that there are.
        let stride = self.stride(hop);
        let there = move |value: &u32| !last || from - own * stride + value * stride < self.ranks;
        values.filter(there).map(move |value| self.target(from, hop, value))
    }

    /// The most ranks that hop `hop` leads to from any rank, and the most that it leads from to any.
    pub(super) fn most(&self, hop: usize) -> (usize, usize) {
        let others = self.extents[hop] as usize - 1;
        let complete = self.extents.iter().product::<u32>() == self.ranks;
        let replaced = hop + 1 < self.hops && !complete;
        (others, if replaced { 2 * others } else { others })
    }

    /// Whether hop `hop` of some item may lead from one rank to another.
    pub(super) fn leads(&self, from: u32, hop: usize, to: u32) -> bool {
        let value = self.coordinate(to, hop);
        value != self.coordinate(from, hop) && self.target(from, hop, value) == to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_ends_and_never_goes_back() {
        for ranks in 1..80 {
            for hops in 1..=3 {
                let grid = Grid::new(ranks, hops);
                assert!(grid.extents.iter().product::<u32>() >= ranks);
                for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                    let (mut at, mut last) = (from, None);
                    while let Some((hop, next)) = grid.next(at, to) {
                        assert!(last < Some(hop), "{grid:?}: {from} to {to} at {at}");
                        assert!(next < ranks && next != at);
                        assert!(grid.leads(at, hop, next), "{grid:?}: {at} to {next} by {hop}");
                        assert!(grid.targets(at, hop).any(|target| target == next));
                        (at, last) = (next, Some(hop));
                    }
                    assert_eq!(at, to);
                }
            }
        }
    }

    #[test]
    fn few_partners_of_many_ranks() {
        let partners = |ranks, hops| {
            let grid = Grid::new(ranks, hops);
            (0..grid.hops()).map(|hop| grid.targets(0, hop).count()).sum::<usize>()
        };
        assert_eq!(partners(1024, 1), 1023);
        assert_eq!(partners(1024, 2), 62);
        assert_eq!(partners(1000, 3), 27);
        assert_eq!(partners(1, 3), 0);
        assert_eq!(Grid::new(1000, 3).extents, [10, 10, 10]);
        assert_eq!(Grid::new(7, 2).extents, [2, 4, 1]);
    }

    #[test]
    fn ranks_that_may_send_are_known() {
        for ranks in [5, 7, 12, 30] {
            for hops in 1..=3 {
                let grid = Grid::new(ranks, hops);
                for (from, hop) in (0..ranks).flat_map(|from| (0..hops).map(move |hop| (from, hop))) {
                    let sources = (0..ranks).filter(|source| grid.leads(*source, hop, from)).count();
                    let (most_targets, most_sources) = grid.most(hop);
                    assert!(grid.targets(from, hop).count() <= most_targets && sources <= most_sources);
                    for to in 0..ranks {
                        let leads = grid.targets(from, hop).any(|target| target == to);
                        assert_eq!(leads, grid.leads(from, hop, to), "{grid:?}: {from} to {to} by {hop}");
                    }
                }
            }
        }
    }
}
