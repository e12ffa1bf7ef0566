//! The registration cache for memory outside the segment: which stretches have a memory descriptor now.
//!
//! The interface moves bytes only where a memory descriptor is bound, and binding one makes the system pin its
//! pages, which takes longer than most transfers. So descriptors are kept when a transfer is over, and the next
//! one from the same stretch finds its own. What is kept is bounded, in descriptors and in pages; the one that was
//! not used for longest goes first, never one that is in use. A pure state machine: whoever holds it binds and
//! unlinks as it says.

use std::fmt;

/// Where a descriptor is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

/// A stretch of some memory, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Which memory.
    pub(super) memory: u64,
    /// The first page, and the one behind the last.
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Stretch {
    fn covers(&self, other: &Self) -> bool {
        self.memory == other.memory && self.first <= other.first && other.end <= self.end
    }

    pub(super) const fn pages(&self) -> u64 {
        self.end - self.first
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    stretch: Stretch,
    users: u32,
    /// When it was last let go.
    used: u64,
}

/// What to do for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This descriptor covers it.
    Bound(Slot),
    /// Bind a new one here, after [`Firehose::evicted`] was emptied.
    Bind(Slot),
}

/// Everything that could be let go is in use: wait for a transfer to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllInUse;

/// What the cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirehoseCounters {
    /// Transfers that found their memory registered.
    pub hits: u64,
    /// Registrations.
    pub misses: u64,
    /// Registrations that made room for others.
    pub evictions: u64,
}

/// The cache's books.
pub(super) struct Firehose {
    entries: Vec<Option<Entry>>,
    evicted: Vec<Slot>,
    pages: u64,
    most_pages: u64,
    clock: u64,
    pub(super) counters: FirehoseCounters,
}

impl fmt::Debug for Firehose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Firehose")
            .field("pages", &self.pages)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Firehose {
    /// A cache of so many descriptors, over so many pages in all.
    pub(super) fn new(slots: u32, most_pages: u64) -> Self {
        let (entries, evicted) = (vec![None; slots as usize], Vec::with_capacity(slots as usize));
        Self { entries, evicted, pages: 0, most_pages, clock: 0, counters: FirehoseCounters::default() }
    }

    /// Finds or makes room for a stretch and uses it. A single stretch may be larger than the bound on pages: then
    /// it is the only one.
    pub(super) fn take(&mut self, stretch: Stretch) -> Result<Found, AllInUse> {
        let found =
            self.entries.iter().position(|entry| entry.is_some_and(|entry| entry.stretch.covers(&stretch)));
        if let Some(index) = found {
            let entry = self.entries[index].as_mut().expect("it was found");
            entry.users += 1;
            self.counters.hits += 1;
            return Ok(Found::Bound(Slot(index as u32)));
        }
        // Whether enough can be let go, before anything is.
        let in_use: u64 =
            self.entries.iter().flatten().filter(|entry| entry.users > 0).map(|e| e.stretch.pages()).sum();
        let free = self.entries.iter().any(|entry| entry.is_none_or(|entry| entry.users == 0));
        if !free || in_use > 0 && in_use + stretch.pages() > self.most_pages {
            return Err(AllInUse);
        }
        loop {
            let room = self.pages == 0 || self.pages + stretch.pages() <= self.most_pages;
            let index = self.entries.iter().position(Option::is_none);
            if let (true, Some(index)) = (room, index) {
                self.entries[index] = Some(Entry { stretch, users: 1, used: 0 });
                self.pages += stretch.pages();
                self.counters.misses += 1;
                return Ok(Found::Bind(Slot(index as u32)));
            }
            self.evict();
        }
    }

    fn evict(&mut self) {
        let idle = self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
        let oldest = idle.filter(|(_, entry)| entry.users == 0).min_by_key(|(_, entry)| entry.used);
        let (index, entry) = oldest.expect("it was seen that enough is idle");
        self.pages -= entry.stretch.pages();
        self.entries[index] = None;
        self.evicted.push(Slot(index as u32));
        self.counters.evictions += 1;
    }

    /// The next descriptor to be unlinked.
    pub(super) fn evicted(&mut self) -> Option<Slot> {
        self.evicted.pop()
    }

    /// A transfer is over. Returns whether there was one.
    pub(super) fn give(&mut self, slot: Slot) -> bool {
        self.clock += 1;
        let clock = self.clock;
        let entry = self.entries.get_mut(slot.0 as usize).and_then(Option::as_mut);
        entry.filter(|entry| entry.users > 0).is_some_and(|entry| {
            entry.users -= 1;
            entry.used = clock;
            true
        })
    }

    /// Takes out a descriptor whose only transfer may never be over. Returns whether there was one.
    pub(super) fn abandon(&mut self, slot: Slot) -> bool {
        let entry =
            self.entries.get_mut(slot.0 as usize).and_then(|entry| entry.take_if(|entry| entry.users == 1));
        entry.inspect(|entry| self.pages -= entry.stretch.pages()).is_some()
    }

    /// Where a descriptor's stretch begins.
    pub(super) fn stretch(&self, slot: Slot) -> Option<Stretch> {
        Some(self.entries.get(slot.0 as usize)?.as_ref()?.stretch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stretch(memory: u64, first: u64, end: u64) -> Stretch {
        Stretch { memory, first, end }
    }

    #[test]
    fn the_oldest_registration_goes_first() {
        let mut cache = Firehose::new(2, 100);
        assert_eq!(cache.take(stretch(1, 0, 4)), Ok(Found::Bind(Slot(0))));
        assert_eq!(cache.take(stretch(1, 1, 3)), Ok(Found::Bound(Slot(0))), "a part of it");
        assert_eq!(cache.take(stretch(2, 0, 4)), Ok(Found::Bind(Slot(1))));
        assert_eq!(cache.take(stretch(1, 0, 5)), Err(AllInUse));
        assert!(cache.give(Slot(0)) && cache.give(Slot(1)) && cache.give(Slot(0)) && !cache.give(Slot(0)));
        assert_eq!(cache.take(stretch(1, 0, 5)), Ok(Found::Bind(Slot(1))), "slot 1 was let go before slot 0");
        assert_eq!((cache.evicted(), cache.evicted()), (Some(Slot(1)), None));
        assert_eq!(cache.counters, FirehoseCounters { hits: 1, misses: 3, evictions: 1 });
    }

    #[test]
    fn pages_are_bounded_unless_one_stretch_alone_is_larger() {
        let mut cache = Firehose::new(8, 10);
        for memory in 0..3 {
            let Ok(Found::Bind(slot)) = cache.take(stretch(memory, 0, 5)) else { panic!() };
            cache.give(slot);
        }
        assert_eq!(cache.counters.evictions, 1);
        assert!(cache.take(stretch(9, 0, 50)).is_ok());
        assert_eq!((cache.counters.evictions, cache.pages), (3, 50));
        assert_eq!(cache.take(stretch(0, 0, 1)), Err(AllInUse));
    }

    proptest! {
        /// Against a plain model: hits are covered by what is bound, what is in use never goes, bounds hold.
        #[test]
        fn nothing_in_use_is_evicted_and_bounds_hold(
            steps in prop::collection::vec((0u64..4, 0u64..12, 1u64..6, any::<bool>()), 1..200)
        ) {
            let mut cache = Firehose::new(4, 16);
            let mut bound: Vec<Option<Stretch>> = vec![None; 4];
            let mut using: Vec<(Slot, Stretch)> = Vec::new();
            for (memory, first, pages, give) in steps {
                if give && !using.is_empty() {
                    let (slot, _) = using.remove(first as usize % using.len());
                    prop_assert!(cache.give(slot));
                    continue;
                }
                let wanted = stretch(memory, first, first + pages);
                match cache.take(wanted) {
                    Ok(Found::Bound(slot)) => {
                        prop_assert!(bound[slot.0 as usize].unwrap().covers(&wanted));
                        using.push((slot, wanted));
                    }
                    Ok(Found::Bind(slot)) => {
                        while let Some(gone) = cache.evicted() {
                            prop_assert!(using.iter().all(|(used, _)| *used != gone));
                            prop_assert!(bound[gone.0 as usize].take().is_some());
                        }
                        prop_assert!(bound[slot.0 as usize].replace(wanted).is_none());
                        using.push((slot, wanted));
                    }
                    Err(AllInUse) => prop_assert!(!using.is_empty()),
                }
                let pages: u64 = bound.iter().flatten().map(Stretch::pages).sum();
                prop_assert!(pages <= 16);
                for (slot, wanted) in &using {
                    prop_assert!(bound[slot.0 as usize].unwrap().covers(wanted));
                    prop_assert_eq!(cache.stretch(*slot), bound[slot.0 as usize]);
                }
            }
        }
    }
}
