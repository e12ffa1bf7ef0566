//! The event queue: a binary heap ordered by (time, sequence), so that events of one moment happen in the order in which
//! they were foreseen.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens. Packets, ranks, nodes and faults are indices into the machine's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A rank goes on, unless its node has stopped.
    Resume(u32),
    /// The timer of a rank's wait runs out.
    Alarm(u32),
    /// A packet enters its sender's interface.
    Inject(u32),
    /// The head of a packet reaches a node or switch and wants the next link.
    Hop(u32),
    /// The tail of a packet reaches the destination's interface.
    Arrive(u32),
    /// A packet has passed the destination's interface.
    Deliver(u32),
    /// What a device has set aside comes to its time.
    Due(u32),
    /// A device's timer.
    Timer { node: u32, token: u32 },
    /// A scheduled fault strikes.
    Fault(u32),
    /// Departures become known.
    Notice,
}

#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    sequence: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> (u64, u64) {
        (self.time, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap's greatest entry is the earliest event.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Events to come.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl Queue {
    #[inline]
    pub(crate) fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Entry { time, sequence: self.sequence, event });
    }

    /// The time and kind of the next event.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(u64, Event)> {
        self.heap.peek().map(|entry| (entry.time, entry.event))
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.time, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_then_in_the_order_foreseen(times in prop::collection::vec(0u64..20, 1..200)) {
            let mut queue = Queue::default();
            for (index, time) in times.iter().enumerate() {
                queue.push(*time, Event::Inject(index as u32));
            }
            let mut expected: Vec<_> = times.iter().enumerate().map(|(index, time)| (*time, index as u32)).collect();
            expected.sort_unstable();
            for (time, index) in expected {
                prop_assert_eq!(queue.pop(), Some((time, Event::Inject(index))));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
