//! The event queue, ordered by (time, sequence), so that events of one moment happen in the order in which they
//! were foreseen, and those that are to be the last of their moment behind them.
//!
//! The events of the present bucket are sorted; what is foreseen for before its end goes to a small heap. Later
//! events lie unsorted in buckets by time, and those beyond the buckets in a heap of their own (in the word's
//! other sense). When the present bucket and the small heap are empty, the next bucket is sorted. So most events
//! are moved twice and compared with a dozen others, however many there are. How wide buckets are follows from the
//! events themselves; it changes the cost of a run, never its order.

use std::cmp::Reverse;
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
    /// A scheduled fault scheduled_faults.
    Fault(u32),
    /// Departures become known.
    Notice,
    /// Something happens in a network with finite buffers.
    Buffers,
}

/// An event and its time in one number: 64 bits of time, 32 of sequence, 4 of kind, 28 of index.
type Entry = u128;

const INDEX_BITS: u32 = 28;
/// Sequences from here on belong to the last events of a moment, which have an order of their own.
const LAST: u32 = u32::MAX - (1 << 24);
const BUCKETS: usize = 512;
/// Events that a bucket should hold.
const DENSITY: u64 = 4;
/// With fewer events than this a heap is best.
const FEW: usize = 64;
/// When so many events are in the small heap, buckets are too wide.
const MANY: usize = 192;

/// Events to come.
pub(crate) struct Queue {
    /// The events of the present bucket, the next one last, and all others before `horizon`.
    present: Vec<Entry>,
    near: BinaryHeap<Reverse<Entry>>,
    horizon: u64,
    /// Bucket `i` holds events from `base + (i << shift)` on.
    base: u64,
    shift: u32,
    buckets: Box<[Vec<Entry>]>,
    /// A bit for each bucket that holds anything.
    filled: [u64; BUCKETS / 64],
    /// All events after the last bucket, in any order.
    far: Vec<Entry>,
    sequence: u32,
    /// When the event was that was taken last; kept where assertions are checked.
    last: u64,
    /// Events pushed since the buckets were last laid out, and by how much that made them wider than their events
    /// ask for.
    pushed: usize,
    widened: u32,
    /// Nodes and tokens of timers, and the places not in use.
    timers: Vec<(u32, u32)>,
    unused: Vec<u32>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            present: Vec::new(),
            near: BinaryHeap::new(),
            horizon: u64::MAX,
            base: 0,
            shift: 0,
            buckets: vec![Vec::new(); BUCKETS].into(),
            filled: [0; BUCKETS / 64],
            far: Vec::new(),
            sequence: 0,
            last: 0,
            pushed: 0,
            widened: 0,
            timers: Vec::new(),
            unused: Vec::new(),
        }
    }
}

#[inline]
fn time(entry: Entry) -> u64 {
    (entry >> 64) as u64
}

impl Queue {
    #[inline]
    fn code(&mut self, event: Event) -> u32 {
        let (kind, index) = match event {
            Event::Resume(rank) => (0, rank),
            Event::Alarm(rank) => (1, rank),
            Event::Inject(flight) => (2, flight),
            Event::Hop(flight) => (3, flight),
            Event::Arrive(flight) => (4, flight),
            Event::Deliver(flight) => (5, flight),
            Event::Due(flight) => (6, flight),
            Event::Timer { node, token } => (7, self.timer(node, token)),
            Event::Fault(fault) => (8, fault),
            Event::Notice => (9, 0),
            Event::Buffers => (10, 0),
        };
        assert!(index >> INDEX_BITS == 0, "more than {} packets are under way", 1 << INDEX_BITS);
        kind << INDEX_BITS | index
    }

    fn timer(&mut self, node: u32, token: u32) -> u32 {
        if let Some(index) = self.unused.pop() {
            self.timers[index as usize] = (node, token);
            return index;
        }
        self.timers.push((node, token));
        self.timers.len() as u32 - 1
    }

    #[inline]
    fn event(&self, entry: Entry) -> Event {
        let index = entry as u32 & ((1 << INDEX_BITS) - 1);
        match entry as u32 >> INDEX_BITS {
            0 => Event::Resume(index),
            1 => Event::Alarm(index),
            2 => Event::Inject(index),
            3 => Event::Hop(index),
            4 => Event::Arrive(index),
            5 => Event::Deliver(index),
            6 => Event::Due(index),
            7 => {
                let (node, token) = self.timers[index as usize];
                Event::Timer { node, token }
            }
            8 => Event::Fault(index),
            9 => Event::Notice,
            _ => Event::Buffers,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        debug_assert!(at >= self.last, "{event:?} at {at} comes after what happened at {}", self.last);
        let code = self.code(event);
        if self.sequence == LAST {
            self.renumber();
        }
        self.sequence += 1;
        self.insert(at, self.sequence, code);
    }

    /// An event that happens behind all other events of its moment, and among those like it by `order`, which is
    /// less than 2^24, whenever they were foreseen.
    pub(crate) fn push_last(&mut self, at: u64, order: u32, event: Event) {
        debug_assert!(at >= self.last && order < u32::MAX - LAST, "{event:?} at {at}, {order}");
        let code = self.code(event);
        self.insert(at, LAST + 1 + order, code);
    }

    fn insert(&mut self, at: u64, sequence: u32, code: u32) {
        self.pushed += 1;
        let entry = Entry::from(at) << 64 | Entry::from(sequence) << 32 | Entry::from(code);
        if at >= self.horizon {
            return self.put(entry);
        }
        self.near.push(Reverse(entry));
        if self.near.len() > MANY && self.pushed > 2 * (self.near.len() + self.far.len()) {
            self.spread();
        }
    }

    /// Puts an event that is not before the horizon into its bucket, or beyond them.
    #[inline]
    fn put(&mut self, entry: Entry) {
        let bucket = (time(entry) - self.base) >> self.shift;
        if bucket < BUCKETS as u64 {
            let bucket = bucket as usize;
            self.buckets[bucket].push(entry);
            self.filled[bucket / 64] |= 1 << (bucket % 64);
        } else {
            self.far.push(entry);
        }
    }

    /// Nothing more is taken: events may have any time.
    pub(crate) const fn end(&mut self) {
        self.last = 0;
    }

    /// Whether there is any event.
    pub(crate) fn is_empty(&self) -> bool {
        let buckets = self.filled.iter().all(|word| *word == 0);
        buckets && self.present.is_empty() && self.near.is_empty() && self.far.is_empty()
    }

    /// Takes the next event and its time, if that is not after another.
    #[inline]
    pub(crate) fn pop_until(&mut self, until: u64) -> Option<(u64, Event)> {
        if self.present.is_empty() && self.near.is_empty() {
            self.refill();
        }
        let entry = match (self.present.last(), self.near.peek()) {
            (Some(entry), near) if near.is_none_or(|near| *entry < near.0) => {
                let entry = *entry;
                if time(entry) > until {
                    return None;
                }
                self.present.pop();
                entry
            }
            (_, near) => {
                if time(near?.0) > until {
                    return None;
                }
                self.near.pop()?.0
            }
        };
        let event = self.event(entry);
        if let Event::Timer { .. } = event {
            self.unused.push(entry as u32 & ((1 << INDEX_BITS) - 1));
        }
        if cfg!(debug_assertions) {
            self.last = time(entry);
        }
        Some((time(entry), event))
    }

    /// When the next event is.
    pub(crate) fn next_time(&mut self) -> Option<u64> {
        if self.present.is_empty() && self.near.is_empty() {
            self.refill();
        }
        let entries = self.present.last().into_iter().chain(self.near.peek().map(|near| &near.0));
        entries.min().map(|entry| time(*entry))
    }

    /// Sorts the next bucket.
    fn refill(&mut self) {
        while self.near.is_empty() && self.present.is_empty() {
            if let Some(word) = self.filled.iter().position(|word| *word != 0) {
                let bucket = word * 64 + self.filled[word].trailing_zeros() as usize;
                self.filled[word] &= self.filled[word] - 1;
                self.horizon = self.begin(bucket + 1);
                std::mem::swap(&mut self.present, &mut self.buckets[bucket]);
                self.present.sort_unstable_by(|one, other| other.cmp(one));
            } else if self.far.is_empty() {
                self.horizon = u64::MAX;
                return;
            } else {
                // A layout that served few events for the work of making it was too narrow.
                let useful = self.pushed > self.far.len() / 2;
                self.widened = if useful { self.widened.saturating_sub(1) } else { self.widened + 1 };
                let far = std::mem::take(&mut self.far);
                self.lay_out(far);
            }
        }
    }

    /// When a bucket begins.
    fn begin(&self, bucket: usize) -> u64 {
        let offset = u128::from(self.base) + ((bucket as u128) << self.shift);
        u64::try_from(offset).unwrap_or(u64::MAX)
    }

    /// Spreads the events of an overfull heap over buckets that are narrower.
    fn spread(&mut self) {
        self.widened = 0;
        let mut near: Vec<_> = std::mem::take(&mut self.near).into_iter().map(|entry| entry.0).collect();
        near.append(&mut self.present);
        for bucket in &mut self.buckets {
            self.far.append(bucket);
        }
        self.filled = [0; BUCKETS / 64];
        let far = std::mem::take(&mut self.far);
        // The near events alone say how wide buckets should be; the others may be timers in a distant future.
        self.measure(&mut near);
        self.horizon = self.base;
        near.into_iter().chain(far).for_each(|entry| self.put(entry));
        self.refill();
    }

    /// Chooses buckets for events, none of which is in a bucket yet, and puts them there.
    fn lay_out(&mut self, mut all: Vec<Entry>) {
        if all.len() <= FEW {
            self.horizon = u64::MAX;
            self.near.extend(all.drain(..).map(Reverse));
            self.far = all;
            return;
        }
        self.measure(&mut all);
        self.horizon = self.base;
        all.into_iter().for_each(|entry| self.put(entry));
    }

    /// Lets buckets begin with the earliest of some events, as wide as the density of the first of them asks for.
    fn measure(&mut self, some: &mut [Entry]) {
        let first = (some.len() / 2).min(BUCKETS);
        let (earlier, median, _) = some.select_nth_unstable(first);
        let begin = earlier.iter().copied().min().map_or(time(*median), time);
        let width = (time(*median) - begin) / (first as u64 / DENSITY).max(1);
        self.base = begin;
        self.shift = (64 - width.leading_zeros() + self.widened).min(54);
        self.pushed = 0;
    }

    /// Numbers the events anew from one on, in their order, before the sequence overflows.
    fn renumber(&mut self) {
        let near = std::mem::take(&mut self.near).into_iter().map(|entry| entry.0);
        let mut all: Vec<_> = near.chain(self.present.drain(..)).chain(self.far.drain(..)).collect();
        self.buckets.iter_mut().for_each(|bucket| all.append(bucket));
        self.filled = [0; BUCKETS / 64];
        all.sort_unstable();
        self.sequence = 0;
        for entry in all.iter_mut().filter(|entry| (**entry >> 32) as u32 <= LAST) {
            self.sequence += 1;
            *entry = *entry & !(Entry::from(u32::MAX) << 32) | Entry::from(self.sequence) << 32;
        }
        self.lay_out(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Queue {
        fn pop(&mut self) -> Option<(u64, Event)> {
            self.pop_until(u64::MAX)
        }
    }

    /// What a queue should do, by brute force.
    #[derive(Default)]
    struct Model {
        all: Vec<(u64, u64, u32)>,
        sequence: u64,
    }

    /// The order of an event that is to be the last of its moment.
    fn order(index: u32) -> Option<u32> {
        index.is_multiple_of(5).then_some((1 << 24) - 1 - index)
    }

    impl Model {
        fn push(&mut self, at: u64, index: u32) {
            self.sequence += 1;
            let sequence = order(index).map_or(self.sequence, |order| (1 << 40) + u64::from(order));
            self.all.push((at, sequence, index));
        }

        fn pop(&mut self) -> Option<(u64, Event)> {
            let first = (0..self.all.len()).min_by_key(|index| self.all[*index])?;
            let (at, _, index) = self.all.swap_remove(first);
            Some((at, Event::Inject(index)))
        }
    }

    /// Pushes and pops at times that lie `spread` to the power of a draw after the last popped one.
    fn compare(steps: &[(bool, u8, u64)], begin: u32) {
        let (mut queue, mut model) = (Queue { sequence: begin, ..Queue::default() }, Model::default());
        let mut now = 0;
        for (index, (push, far, draw)) in steps.iter().enumerate() {
            if *push {
                let at = now + draw % [1, 4, 1_000, 1_000_000, 1 << 40][usize::from(*far) % 5];
                match order(index as u32) {
                    Some(order) => queue.push_last(at, order, Event::Inject(index as u32)),
                    None => queue.push(at, Event::Inject(index as u32)),
                }
                model.push(at, index as u32);
            } else {
                let expected = model.pop();
                let before = expected.and_then(|(at, _)| at.checked_sub(1));
                assert_eq!(before.and_then(|before| queue.pop_until(before)), None);
                assert_eq!(queue.pop(), expected);
                now = expected.map_or(now, |(at, _)| at);
            }
        }
        while let Some(expected) = model.pop() {
            assert_eq!(queue.pop(), Some(expected));
        }
        assert_eq!((queue.is_empty(), queue.pop()), (true, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn events_come_by_time_then_in_the_order_foreseen(
            grow in 1..4u8, steps in prop::collection::vec((0..4u8, any::<u8>(), any::<u64>()), 1..1500),
            early in 0..1500u32
        ) {
            // More pushes than pops let the queue grow; the sequence may overflow on the way.
            let steps: Vec<_> = steps.into_iter().map(|(draw, far, time)| (draw <= grow, far, time)).collect();
            compare(&steps, 0);
            compare(&steps, LAST - early);
        }

        #[test]
        fn equal_times_and_single_outliers_keep_the_order(count in 1..2000usize, apart in 0..3u64) {
            let steps: Vec<_> = (0..count).map(|index| (true, 4, apart * index as u64 / 100)).collect();
            compare(&steps, 0);
        }
    }

    #[test]
    fn the_end_of_time_comes_last() {
        let mut queue = Queue::default();
        for index in 0..500 {
            queue.push(u64::MAX, Event::Fault(index));
            queue.push(u64::MAX - 1, Event::Alarm(index));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        let expected = (0..500).map(Event::Alarm).chain((0..500).map(Event::Fault));
        assert_eq!(order, expected.collect::<Vec<_>>());
    }

    #[test]
    fn timers_keep_node_and_token() {
        let mut queue = Queue::default();
        for token in 0..3 {
            queue.push(5, Event::Timer { node: 7, token: u32::MAX - token });
            assert_eq!(queue.pop(), Some((5, Event::Timer { node: 7, token: u32::MAX - token })));
        }
        assert_eq!(queue.timers.len(), 1, "places are used again");
    }
}
