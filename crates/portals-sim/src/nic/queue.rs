//! Event queues, as a state machine that is told the time: events that are under way to a queue, those that are in
//! it, and what becomes of those that find it full.

use am_core::Instant;
use std::collections::VecDeque;

/// What happens to an event that finds its queue full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// It is lost (Portals 3.3).
    Refuse,
    /// It takes the place of the oldest (Portals 4).
    Overwrite,
}

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken<E> {
    Empty,
    Event(E),
    /// An event, behind so many that have been lost.
    Behind(E, u64),
}

/// An event queue. It takes memory for as many events as there ever were in it.
pub(crate) struct Queue<E> {
    /// By the time at which they get into the queue.
    entries: VecDeque<(Instant, E)>,
    /// The first of them are there.
    there: usize,
    capacity: u32,
    full: Full,
    /// Events lost that nobody has been told of.
    lost: u64,
    pub(crate) all_lost: u64,
}

impl<E: Copy> Queue<E> {
    pub(crate) const fn new(capacity: u32, full: Full) -> Self {
        Self { entries: VecDeque::new(), there: 0, capacity, full, lost: 0, all_lost: 0 }
    }

    /// Lets an event come at a time. Those of one time come in the order of the calls.
    #[inline]
    pub(crate) fn post(&mut self, at: Instant, event: E) {
        match self.entries.back() {
            Some((last, _)) if *last > at => {
                self.entries.insert(self.place(at), (at, event));
            }
            _ => self.entries.push_back((at, event)),
        }
    }

    /// Where an event goes that comes before the last: usually it is among the next, before many that are foreseen
    /// for when the interface will have sent what it was given.
    fn place(&self, at: Instant) -> usize {
        let (mut begin, mut step) = (self.there, 1);
        while let Some((time, _)) = self.entries.get(begin + step - 1)
            && *time <= at
        {
            (begin, step) = (begin + step, 2 * step);
        }
        let mut end = (begin + step - 1).min(self.entries.len());
        while begin < end {
            let middle = begin.midpoint(end);
            if self.entries[middle].0 <= at {
                begin = middle + 1;
            } else {
                end = middle;
            }
        }
        begin
    }

    /// Events that are there or under way.
    pub(crate) fn used(&self) -> usize {
        self.entries.len()
    }

    /// When the next event can be taken.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.front().map(|(at, _)| *at)
    }

    /// Lets come what comes up to a time.
    #[inline]
    fn advance(&mut self, now: Instant) {
        while let Some((at, _)) = self.entries.get(self.there)
            && *at <= now
        {
            if self.there < self.capacity as usize {
                self.there += 1;
                continue;
            }
            let victim = if self.full == Full::Refuse { self.there } else { 0 };
            self.entries.remove(victim);
            (self.lost, self.all_lost) = (self.lost + 1, self.all_lost + 1);
        }
    }

    /// Takes the oldest event that is there at a time.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> Taken<E> {
        self.advance(now);
        if self.there == 0 {
            return Taken::Empty;
        }
        self.there -= 1;
        let (_, event) = self.entries.pop_front().expect("what is there has been posted");
        match std::mem::take(&mut self.lost) {
            0 => Taken::Event(event),
            lost => Taken::Behind(event, lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(full: Full, events: &[(u64, u32)]) -> Queue<u32> {
        let mut queue = Queue::new(2, full);
        events.iter().for_each(|(at, event)| queue.post(Instant(*at), *event));
        queue
    }

    #[test]
    fn events_come_by_time_then_in_order() {
        let mut queue = filled(Full::Refuse, &[(5, 1), (9, 4), (3, 0), (5, 2)]);
        assert_eq!(queue.next(), Some(Instant(3)));
        assert_eq!(queue.take(Instant(2)), Taken::Empty);
        assert_eq!([3, 5, 5].map(|now| queue.take(Instant(now))), [0, 1, 2].map(Taken::Event));
        assert_eq!((queue.take(Instant(8)), queue.take(Instant(9))), (Taken::Empty, Taken::Event(4)));
    }

    #[test]
    fn a_full_queue_loses_the_newest_or_the_oldest() {
        let events = [(1, 1), (2, 2), (3, 3), (4, 4)];
        let mut refusing = filled(Full::Refuse, &events);
        assert_eq!(
            [9; 3].map(|now| refusing.take(Instant(now))),
            [Taken::Behind(1, 2), Taken::Event(2), Taken::Empty]
        );
        let mut writing_over = filled(Full::Overwrite, &events);
        let taken = [9; 3].map(|now| writing_over.take(Instant(now)));
        assert_eq!(taken, [Taken::Behind(3, 2), Taken::Event(4), Taken::Empty]);
        // Who looks in time loses nothing.
        let mut watched = filled(Full::Refuse, &events);
        assert_eq!([1, 3, 3, 4].map(|now| watched.take(Instant(now))), [1, 2, 3, 4].map(Taken::Event));
    }
}
