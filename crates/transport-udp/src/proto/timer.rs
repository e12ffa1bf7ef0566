//! The next deadline among all peers: a binary heap in which every peer has at most one place.

use am_core::Instant;

const ABSENT: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Timers {
    heap: Vec<(Instant, u32)>,
    /// Where each peer is in the heap.
    places: Vec<u32>,
}

impl Timers {
    pub(super) fn new(peers: usize) -> Self {
        Self { heap: Vec::with_capacity(peers), places: vec![ABSENT; peers] }
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// Takes the first peer away if its time has come.
    pub(super) fn expired(&mut self, now: Instant) -> Option<u32> {
        let (at, peer) = *self.heap.first()?;
        (at <= now).then(|| {
            self.set(peer, None);
            peer
        })
    }

    /// Sets or removes a peer's deadline.
    pub(super) fn set(&mut self, peer: u32, deadline: Option<Instant>) {
        let place = self.places[peer as usize];
        match (place, deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(at)) => {
                self.heap.push((at, peer));
                self.sift(self.heap.len() - 1);
            }
            (place, Some(at)) => {
                self.heap[place as usize].0 = at;
                self.sift(place as usize);
            }
            (place, None) => {
                self.places[peer as usize] = ABSENT;
                self.heap.swap_remove(place as usize);
                if (place as usize) < self.heap.len() {
                    self.sift(place as usize);
                }
            }
        }
    }

    fn sift(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note(at);
            at = (at - 1) / 2;
        }
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.heap[child] < self.heap[least] {
                    least = child;
                }
            }
            if least == at {
                self.note(at);
                return;
            }
            self.heap.swap(at, least);
            self.note(at);
            at = least;
        }
    }

    fn note(&mut self, at: usize) {
        self.places[self.heap[at].1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_first_is_always_the_first(
            steps in prop::collection::vec((0u32..12, prop::option::of(0u64..50)), 1..200)
        ) {
            let (mut timers, mut model) = (Timers::new(12), BTreeSet::new());
            for (peer, at) in steps {
                timers.set(peer, at.map(Instant));
                model.retain(|(_, other)| *other != peer);
                model.extend(at.map(|at| (Instant(at), peer)));
                prop_assert_eq!(timers.first(), model.first().map(|(at, _)| *at));
            }
            while let Some(peer) = timers.expired(Instant(50)) {
                prop_assert_eq!(model.pop_first().map(|(_, peer)| peer), Some(peer));
            }
            prop_assert!(model.is_empty());
        }
    }
}
