//! How ranks agree that all have said done, and that everything pushed has been handled.
//!
//! Ranks form a binomial tree. A rank that has said done tells its parent how many ranks of its part of the tree
//! have, and how many items these have pushed and handled since it last told. Rank 0 adds up. What ranks that have
//! said done push is fixed, and what is handled never exceeds it, so that once all have said done and both sums
//! are equal, everything has been handled; rank 0 then tells everyone. A rank that knows why this cannot come
//! tells its neighbours in the tree, and they theirs. Sums go on from one time to the next, so that nothing has to
//! be reset.

use am_core::Rank;

/// Sums over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Times that a rank has said done.
    pub(super) done: u64,
    /// Items pushed.
    pub(super) pushed: u64,
    /// Items handled.
    pub(super) handled: u64,
}

impl Sums {
    fn plus(self, other: Self) -> Self {
        Self {
            done: self.done.wrapping_add(other.done),
            pushed: self.pushed.wrapping_add(other.pushed),
            handled: self.handled.wrapping_add(other.handled),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            done: self.done.wrapping_sub(other.done),
            pushed: self.pushed.wrapping_sub(other.pushed),
            handled: self.handled.wrapping_sub(other.handled),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Child {
    rank: u32,
    /// Ranks of its part of the tree.
    ranks: u64,
    done: u64,
}

/// Why there is no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The rank has left without having learned of the end.
    Gone(Rank),
    /// Items in a message of the rank were refused.
    Refused(Rank),
}

/// One rank's part in the agreement.
#[derive(Debug)]
pub(super) struct Agreement {
    me: u32,
    ranks: u32,
    children: Vec<Child>,
    /// How often this rank has said done.
    said: u64,
    /// How often all have, and everything had been handled.
    over: u64,
    /// What the children have told so far.
    received: Sums,
    /// What this rank has told its parent so far.
    reported: Sums,
    /// Children that have been told of the latest end.
    told: usize,
    /// Why there is no end any more, and how many neighbours have been told.
    broken: Option<Broken>,
    warned: usize,
}

/// What has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To the parent.
    Report { to: Rank, sums: Sums },
    /// To a child, that it is over for the so many-th time.
    Over { to: Rank, times: u64 },
    /// To a neighbour, that there is no end.
    Broken { to: Rank, why: Broken },
}

impl Agreement {
    pub(super) fn new(me: u32, ranks: u32) -> Self {
        let below = if me == 0 { u32::BITS } else { me.trailing_zeros() };
        let bits = (0..below).map_while(|bit| 1u32.checked_shl(bit)).take_while(|bit| *bit < ranks - me);
        let child = |bit: u32| Child { rank: me + bit, ranks: u64::from(bit.min(ranks - me - bit)), done: 0 };
        let children = bits.map(child).collect();
        Self {
            me,
            ranks,
            children,
            said: 0,
            over: 0,
            received: Sums::default(),
            reported: Sums::default(),
            told: 0,
            broken: None,
            warned: 0,
        }
    }

    fn parent(&self) -> Rank {
        Rank(self.me & self.me.wrapping_sub(1))
    }

    /// Says done, unless this rank has.
    pub(super) fn say(&mut self) {
        if self.is_over() {
            self.said += 1;
            self.told = 0;
        }
    }

    /// Whether this rank has said done, and does not know yet that it is over.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.said > self.over
    }

    /// Whether it is over, and the children have been told.
    pub(super) fn is_over(&self) -> bool {
        !self.is_open() && (self.told == self.children.len() || self.over == 0)
    }

    /// Takes in what a rank reports; whether it is a child.
    pub(super) fn reported(&mut self, from: u32, sums: Sums) -> bool {
        let Some(child) = self.children.iter_mut().find(|child| child.rank == from) else { return false };
        child.done = child.done.wrapping_add(sums.done);
        self.received = self.received.plus(sums);
        true
    }

    /// Takes in that it is over; whether that is the parent's to say.
    pub(super) fn ended(&mut self, from: u32, times: u64) -> bool {
        let right = self.me != 0 && Rank(from) == self.parent() && times == self.said && self.is_open();
        if right {
            self.over = times;
        }
        right
    }

    /// Notes why there is no end; the first reason counts.
    pub(super) fn break_off(&mut self, why: Broken) {
        self.broken.get_or_insert(why);
    }

    /// Why there is no end, once that is known.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Takes in from a rank why there is no end; whether it is a neighbour's to say.
    pub(super) fn warned(&mut self, from: u32, why: Broken) -> bool {
        let (Broken::Gone(rank) | Broken::Refused(rank)) = why;
        let right = rank.0 < self.ranks && self.neighbours().any(|neighbour| neighbour.0 == from);
        if right {
            self.break_off(why);
        }
        right
    }

    /// What to send now, given what this rank has pushed and handled.
    pub(super) fn step(&mut self, pushed: u64, handled: u64) -> Option<Step> {
        if let Some(why) = self.broken
            && let Some(to) = self.neighbours().nth(self.warned)
        {
            return Some(Step::Broken { to, why });
        }
        if self.is_open() {
            let heard = |child: &Child| child.done >= child.ranks * self.said;
            if !self.children.iter().all(heard) {
                return None;
            }
            let sums = self.received.plus(Sums { done: self.said, pushed, handled });
            if self.me != 0 {
                let new = sums.minus(self.reported);
                return (new != Sums::default()).then(|| Step::Report { to: self.parent(), sums: new });
            }
            if sums.done != self.said * u64::from(self.ranks) || sums.pushed != sums.handled {
                return None;
            }
            self.over = self.said;
        }
        let child = self.children.get(self.told).filter(|_| self.over != 0)?;
        Some(Step::Over { to: Rank(child.rank), times: self.over })
    }

    /// Notes that a step has been sent.
    pub(super) fn sent(&mut self, step: Step) {
        match step {
            Step::Report { sums, .. } => self.reported = self.reported.plus(sums),
            Step::Over { .. } => self.told += 1,
            Step::Broken { .. } => self.warned += 1,
        }
    }

    /// The parent and the children. While it is open, none of them leaves but before the end: children learn of it
    /// here.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = Rank> + '_ {
        let parent = (self.me != 0).then(|| self.parent());
        parent.into_iter().chain(self.children.iter().map(|child| Rank(child.rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ranks say done and handle items in any order, and messages travel in any order between different ranks.
        #[test]
        fn it_is_over_exactly_when_all_is_handled(ranks in 1u32..40, seed in any::<u64>()) {
            let mut seed = seed;
            let mut random = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % below
            };
            let mut all: Vec<Agreement> = (0..ranks).map(|me| Agreement::new(me, ranks)).collect();
            let (mut pushed, mut handled) = (vec![0u64; ranks as usize], vec![0u64; ranks as usize]);
            for times in 1..4u64 {
                let mut open: Vec<u64> = (0..ranks).map(|_| random(5)).collect();
                let total: u64 = open.iter().sum();
                let mut left = total;
                let mut flying: Vec<(u32, Step)> = Vec::new();
                let mut idle = 0;
                while !all.iter().all(|one| one.is_over() && one.over == times) {
                    idle += 1;
                    prop_assert!(idle < 100_000, "it never ends: {all:?}");
                    let rank = random(u64::from(ranks)) as usize;
                    match random(4) {
                        0 if open[rank] > 0 => {
                            open[rank] -= 1;
                            pushed[rank] += 1;
                        }
                        0 if all[rank].over < times => all[rank].say(),
                        1 if left > open.iter().sum() => {
                            left -= 1;
                            handled[rank] += 1;
                        }
                        2 if !flying.is_empty() => {
                            let (from, step) = flying.swap_remove(random(flying.len() as u64) as usize);
                            match step {
                                Step::Report { to, sums } => {
                                    prop_assert!(all[to.0 as usize].reported(from, sums));
                                }
                                Step::Over { to, times } => {
                                    prop_assert!(all[to.0 as usize].ended(from, times));
                                }
                                Step::Broken { .. } => prop_assert!(false, "nothing is wrong"),
                            }
                        }
                        _ => {
                            if let Some(step) = all[rank].step(pushed[rank], handled[rank]) {
                                all[rank].sent(step);
                                flying.push((rank as u32, step));
                            }
                        }
                    }
                    if all.iter().any(|one| one.over == times) {
                        prop_assert!(left == 0 && open.iter().all(|open| *open == 0));
                        prop_assert!(all.iter().all(|one| one.said == times));
                    }
                }
            }
        }
    }

    #[test]
    fn every_rank_learns_that_there_is_no_end() {
        for (ranks, first) in (1..40).flat_map(|ranks| (0..ranks).map(move |first| (ranks, first))) {
            let mut all: Vec<Agreement> = (0..ranks).map(|me| Agreement::new(me, ranks)).collect();
            let why = Broken::Refused(Rank(ranks - 1));
            assert!(!all[first as usize].warned(first, why) && !all[0].warned(1, Broken::Gone(Rank(ranks))));
            all[first as usize].break_off(why);
            let mut rounds = 0;
            while !all.iter().all(|one| one.broken() == Some(why)) {
                for rank in 0..ranks {
                    while let Some(step) = all[rank as usize].step(0, 0) {
                        let Step::Broken { to, why } = step else { panic!("{step:?}") };
                        assert!(all[to.0 as usize].warned(rank, why));
                        all[rank as usize].sent(step);
                    }
                }
                rounds += 1;
                assert!(rounds < ranks);
            }
        }
    }

    #[test]
    fn parts_of_the_tree_add_up() {
        for ranks in 1..70 {
            let all: Vec<Agreement> = (0..ranks).map(|me| Agreement::new(me, ranks)).collect();
            let mut parents = vec![0; ranks as usize];
            for one in &all {
                let below: u64 = one.children.iter().map(|child| child.ranks).sum();
                for child in &one.children {
                    assert_eq!(all[child.rank as usize].parent(), Rank(one.me));
                    parents[child.rank as usize] += 1;
                    let part = &all[child.rank as usize].children;
                    assert_eq!(child.ranks, 1 + part.iter().map(|child| child.ranks).sum::<u64>());
                }
                assert!(one.me != 0 || below + 1 == u64::from(ranks));
            }
            assert!(parents.iter().enumerate().all(|(rank, parents)| *parents == u32::from(rank != 0)));
        }
    }
}
