//! Timers: a binary heap in which every entry knows its place, so that it can be taken out before it is due. What
//! has ended early leaves nothing behind, however far off its deadline was.

use am_core::Instant;
use am_core::slab::{Key, Slab};

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    /// Tells timers of one instant apart: the one that was set first is due first.
    sequence: u64,
    key: Key,
    what: T,
}

/// Timers with what they are for. Allocates while it grows only.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    heap: Vec<Entry<T>>,
    /// Where in the heap each timer is.
    places: Slab<usize>,
    sequence: u64,
}

impl<T> Timers<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), places: Slab::new(), sequence: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// When the first timer is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|first| first.at)
    }

    pub(crate) fn insert(&mut self, at: Instant, what: T) -> Key {
        let place = self.heap.len();
        let key = self.places.insert(place);
        self.heap.push(Entry { at, sequence: self.sequence, key, what });
        self.sequence += 1;
        self.rise(place);
        key
    }

    /// Takes a timer out, unless it was due before.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.remove(key)?;
        let last = self.heap.len() - 1;
        if place != last {
            self.swap(place, last);
        }
        let removed = self.heap.pop()?;
        if place != last {
            let place = self.rise(place);
            self.sink(place);
        }
        Some(removed.what)
    }

    /// Takes out a timer that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<T> {
        let first = self.heap.first().filter(|first| first.at <= now)?;
        let key = first.key;
        self.remove(key)
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let order = |place: usize| (self.heap[place].at, self.heap[place].sequence);
        order(a) < order(b)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            if let Some(known) = self.places.get_mut(self.heap[place].key) {
                *known = place;
            }
        }
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.reduce(|a, b| if self.before(b, a) { b } else { a }) else { return };
            if !self.before(least, place) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against an ordered map: timers are due in order of time, then of setting, and removed ones never.
        #[test]
        fn agrees_with_an_ordered_map(steps in prop::collection::vec((0u8..3, 0u64..20), 1..200)) {
            let (mut timers, mut map, mut keys) = (Timers::new(), BTreeMap::new(), Vec::new());
            for (number, (step, value)) in (0u64..).zip(steps) {
                match step {
                    0 => {
                        map.insert((Instant(value), number), number);
                        keys.push((timers.insert(Instant(value), number), (Instant(value), number)));
                    }
                    1 if !keys.is_empty() => {
                        let (key, place) = keys[value as usize % keys.len()];
                        prop_assert_eq!(timers.remove(key), map.remove(&place));
                    }
                    _ => {
                        let first = map.first_key_value().map(|(key, _)| *key);
                        let due = first.filter(|(at, _)| *at <= Instant(value));
                        prop_assert_eq!(timers.pop(Instant(value)), due.and_then(|key| map.remove(&key)));
                    }
                }
                prop_assert_eq!(timers.next(), map.keys().next().map(|(at, _)| *at));
                prop_assert_eq!(timers.is_empty(), map.is_empty());
            }
        }
    }
}
