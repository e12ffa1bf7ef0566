//! What packets pass one after the other at a rate: a link, or a node's port into or out of its links.
//!
//! A *single* is a packet of one piece; singles go first come, first served. A *train* is a long message that the
//! machine carries in many pieces and the simulation as one packet, whatever its length. Pieces of trains and
//! singles take turns: so a single that finds a train waits for a piece of it and not for its end, and trains that
//! meet share the rate and end later than each would alone. Only times are kept: the end of a train moves when
//! others come, and what that delays is told to whoever keeps the packet. A queue without trains is two
//! comparisons and an addition.

use crate::lane_order::Lane;

/// A train on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    /// The packet's index, and its number, since indices are used again.
    pub(crate) index: u32,
    pub(crate) number: u64,
    /// What it belongs to: trains of one lane follow each other, and have a share together.
    pub(crate) lane: Lane,
    /// No train of its lane is behind it.
    pub(crate) last: bool,
    /// When its last bit enters the queue.
    pub(crate) end: u64,
    /// Latency of the queues that the packet has passed before this one.
    pub(crate) passed: u64,
}

/// The trains of a queue.
#[derive(Debug, Default)]
struct Trains {
    /// When the queue became busy with trains: pieces begin at multiples of their time after that.
    since: u64,
    /// When the last bit of the last of them has entered.
    until: u64,
    all: Vec<Train>,
    /// Scratch: what is left of each train, by its end.
    order: Vec<(u64, usize)>,
}

/// A transmit queue.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    /// When the last single has entered.
    free_at: u64,
    trains: Option<Box<Trains>>,
}

/// When a packet's first bit enters a queue and when its last bit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) enters: u64,
    pub(crate) left: u64,
}

impl TransmitQueue {
    /// Whether a single that comes now meets no train.
    #[inline]
    pub(crate) fn is_plain(&self, now: u64) -> bool {
        self.trains.as_ref().is_none_or(|trains| trains.until <= now)
    }

    /// When the last of the singles has entered; how long packets wait.
    #[inline]
    pub(crate) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// How long it is busy after a time at which nothing comes any more.
    pub(crate) fn left_at(&self, time: u64) -> u64 {
        let trains = self.trains.as_ref().map_or(0, |trains| trains.until);
        self.free_at.max(trains).saturating_sub(time)
    }

    #[cfg(test)]
    fn until(&self) -> u64 {
        self.trains.as_ref().map_or(0, |trains| trains.until)
    }

    /// A single on a queue without trains.
    #[inline]
    pub(crate) fn pass(&mut self, now: u64, length: u64) -> Entry {
        let enters = now.max(self.free_at);
        self.free_at = enters + length;
        Entry { enters, left: self.free_at }
    }

    /// Keeps the queue busy for longer: with what is sent again.
    pub(crate) fn occupy_until(&mut self, time: u64) {
        self.free_at = self.free_at.max(time);
    }

    /// A single. `piece` is the time of a piece of a train. `late` is told of each train that it delays.
    pub(crate) fn cut_in(&mut self, now: u64, length: u64, piece: u64, mut late: impl FnMut(&Train)) -> Entry {
        let Some(trains) = self.trains.as_mut().filter(|trains| trains.until > now) else {
            return self.pass(now, length);
        };
        let Trains { since, until, all, .. } = &mut **trains;
        all.retain(|train| train.end > now);
        if now < *since {
            // The single is there before the trains, and only what it takes of their time delays them.
            let entry = self.free_at.max(now);
            let over = (entry + length).saturating_sub(*since).min(length);
            self.free_at = entry + length;
            if over != 0 {
                for train in all.iter_mut() {
                    train.end += over;
                    *until = (*until).max(train.end);
                    late(train);
                }
                *since += over;
            }
            return Entry { enters: entry, left: self.free_at };
        }
        let turns = all.iter().filter(|train| train.last).count() as u64;
        let enters = if self.free_at > now {
            // Between two singles each train sends a piece.
            self.free_at + turns * piece
        } else {
            now + rest_of_piece(now, *since, piece)
        };
        // What is left of the trains may be less than their turn.
        let enters = enters.min((*until).max(self.free_at).max(now));
        self.free_at = enters + length;
        for train in all.iter_mut().filter(|train| train.end > enters) {
            train.end += length;
            *until = (*until).max(train.end);
            late(train);
        }
        *since += length;
        Entry { enters, left: self.free_at }
    }

    /// A train of so much time, which shares the queue with the trains that are there. `late` is told of each of
    /// those that it delays.
    pub(crate) fn join(
        &mut self,
        now: u64,
        length: u64,
        piece: u64,
        train: Train,
        mut late: impl FnMut(&Train),
    ) -> Entry {
        let trains = self.trains.get_or_insert_default();
        let Trains { since, until, all, order } = &mut **trains;
        all.retain(|train| train.end > now);
        let queue = self.free_at.saturating_sub(now);
        let mut sharing = all.iter().filter(|train| train.last).count() as u64;
        let enters = now + queue.max(sharing * piece);
        if all.is_empty() {
            *since = enters;
            all.push(Train { end: enters + length, ..train });
            *until = enters + length;
            return Entry { enters, left: enters + length };
        }
        // What is left of each: trains share the rate, so that the first to end has had as much as every other.
        order.clear();
        order.extend(all.iter().enumerate().map(|(place, train)| (train.end, place)));
        order.sort_unstable();
        let (mut before, mut share) = (now, 0);
        for (left, place) in order.iter_mut() {
            share += (*left - before) / sharing.max(1);
            before = *left;
            sharing -= u64::from(all[*place].last);
            *left = share;
        }
        // The same with the new one, which also waits for the singles that are there.
        let ahead = all.iter().rposition(|known| known.lane == train.lane);
        let first = ahead.and_then(|ahead| {
            all[ahead].last = false;
            order.iter().find(|(_, place)| *place == ahead).map(|(left, _)| *left)
        });
        all.push(train);
        // One behind a train of its own lane waits for that one's bytes, which have waited for the singles.
        order.push((length + first.unwrap_or(queue), all.len() - 1));
        order.sort_unstable();
        let mut sharing = all.iter().filter(|train| train.last).count() as u64;
        let (mut end, mut share) = (now, 0);
        for (left, place) in &*order {
            end += (left - share) * sharing;
            share = *left;
            let known = &mut all[*place];
            sharing -= u64::from(known.last);
            if end > known.end {
                known.end = end;
                if *place + 1 != order.len() {
                    late(known);
                }
            }
        }
        *until = (*until).max(end);
        let left = all.last().map_or(end, |train| train.end);
        // What shares the rate with it, or is there before it, has done so with the one ahead of it.
        let enters = ahead.map_or(enters, |ahead| all[ahead].end);
        Entry { enters: enters.min(left), left }
    }
}

/// How long a piece that is under way still takes.
fn rest_of_piece(now: u64, since: u64, piece: u64) -> u64 {
    if piece == 0 || now < since {
        return 0;
    }
    match (now - since) % piece {
        0 => 0,
        begun => piece - begun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: u64 = 10;

    fn train(index: u32) -> Train {
        Train { index, number: index.into(), lane: (index, 0, 0), last: true, end: 0, passed: 0 }
    }

    /// A queue and when its trains end.
    #[derive(Default)]
    struct Lab {
        transmit: TransmitQueue,
        ends: std::collections::BTreeMap<u32, u64>,
    }

    impl Lab {
        fn join(&mut self, now: u64, length: u64) -> Entry {
            let index = self.ends.len() as u32;
            let ends = &mut self.ends;
            let entry = self.transmit.join(now, length, PIECE, train(index), |late| {
                ends.insert(late.index, late.end);
            });
            self.ends.insert(index, entry.left);
            entry
        }

        fn cut_in(&mut self, now: u64, length: u64) -> Entry {
            let ends = &mut self.ends;
            self.transmit.cut_in(now, length, PIECE, |late| {
                ends.insert(late.index, late.end);
            })
        }
    }

    #[test]
    fn singles_wait_for_a_piece_only() {
        let mut lab = Lab::default();
        assert_eq!(lab.join(100, 1000), Entry { enters: 100, left: 1100 });
        assert_eq!(lab.cut_in(503, 10), Entry { enters: 510, left: 520 });
        assert_eq!(lab.ends[&0], 1110, "the train is as much later");
        // Two that come together have a piece of the train between them.
        assert_eq!(lab.cut_in(700, 10), Entry { enters: 700, left: 710 });
        assert_eq!(lab.cut_in(700, 10), Entry { enters: 720, left: 730 });
        assert_eq!(lab.ends[&0], 1130);
    }

    #[test]
    fn trains_share_the_rate() {
        let mut lab = Lab::default();
        lab.join(0, 1000);
        // 500 are left of the first: both send by turns until it is through, at 500 + 2 x 500.
        assert_eq!(lab.join(500, 800).left, 1800);
        assert_eq!(lab.ends[&0], 1500);
        // 250 are left of the first now and 550 of the second.
        assert_eq!(lab.join(1000, 100).left, 1300);
        assert_eq!((lab.ends[&0], lab.ends[&1]), (1600, 1900));
    }

    /// One that joins right before the end of the one ahead of it goes on without a gap: a long message that is
    /// several trains is as fast as one.
    #[test]
    fn trains_of_a_lane_follow_without_a_gap() {
        let mut lab = Lab::default();
        let mut follow = |index: u32, now| {
            let own = Train { lane: (0, 0, 0), ..train(index) };
            lab.transmit.join(now, 160, PIECE, own, |_| ())
        };
        assert_eq!(follow(0, 0), Entry { enters: 0, left: 160 });
        assert_eq!(follow(1, 159), Entry { enters: 160, left: 320 });
        assert_eq!(follow(2, 319), Entry { enters: 320, left: 480 });
    }

    proptest! {
        /// Whatever comes, nothing ends sooner than it would alone, and in no time does more pass than the rate
        /// allows.
        #[test]
        fn no_lane_carries_more_than_its_rate(
            steps in prop::collection::vec((any::<bool>(), 0..60u64, 1..40u64), 1..60)
        ) {
            let (mut lab, mut now, mut work, mut first) = (Lab::default(), 0, 0, 0);
            let mut singles = Vec::new();
            for (long, pause, length) in steps {
                now += pause;
                if lab.transmit.is_plain(now) && lab.transmit.free_at() <= now {
                    (first, work) = (now, 0);
                }
                let length = if long { 10 * length } else { length };
                let entry = if long { lab.join(now, length) } else { lab.cut_in(now, length) };
                work += length;
                prop_assert!(entry.enters >= now && entry.left >= now + length, "{entry:?}");
                if !long {
                    prop_assert_eq!(entry.left, entry.enters + length);
                    singles.push(entry);
                }
                let last = lab.transmit.until().max(lab.transmit.free_at());
                prop_assert!(last + 1 + lab.ends.len() as u64 * 64 >= first + work, "{last} {first} {work}");
            }
            prop_assert!(singles.windows(2).all(|pair| pair[0].left <= pair[1].enters));
        }
    }
}
