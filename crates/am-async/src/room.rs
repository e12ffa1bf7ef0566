//! Memory for long requests and long answers on their way here: one limit for both, one order in which they get
//! it, and a share for each peer.
//!
//! A peer may have memory for one message, and for more as long as it has no more than half of what the others
//! leave. One that is granted memory and then computes, or stops, keeps that part, and the others go on with the
//! rest, if there is any: as few peers as the limit holds messages of the largest size can keep all of it.

use am_core::Address;
use am_core::slab::Key;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Requests of others to this rank.
    Requests,
    /// Answers to calls of this rank.
    Answers,
}

/// Whoever gives memory back on another thread rings the doorbell afterwards, and the endpoint looks again.
#[derive(Debug)]
pub(crate) struct Room {
    books: Mutex<Books>,
    /// Whether those that wait may have their turn now. Relaxed: it guards nothing but itself.
    freed: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    /// Its place in the order of all.
    ticket: u64,
    side: Side,
    bytes: u64,
    key: Key,
}

/// The messages of a peer that wait, of both sides in one order; none is empty.
#[derive(Debug)]
struct Queue {
    peer: Address,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Books {
    limit: u64,
    used: u64,
    /// Bytes of each peer that has ever had some.
    of_peers: BTreeMap<Address, u64>,
    tickets: u64,
    waiting: Vec<Queue>,
    /// Empty ones, for others.
    spare: Vec<VecDeque<Waiter>>,
}

impl Books {
    /// Whether a peer may have so much more, where there is memory.
    fn is_share(&self, peer: Address, bytes: u64) -> bool {
        let mine = self.of_peers.get(&peer).copied().unwrap_or(0);
        let left = self.limit.saturating_sub(self.used - mine);
        mine == 0 || mine.saturating_add(bytes) <= left / 2
    }

    /// Whether there is so much. One message always has room.
    fn has(&self, bytes: u64) -> bool {
        self.used == 0 || self.used.saturating_add(bytes) <= self.limit
    }

    fn place_of(&self, peer: Address) -> Option<usize> {
        self.waiting.iter().position(|queue| queue.peer == peer)
    }

    /// Keeps an empty queue for others.
    fn tidy(&mut self, place: usize) {
        if self.waiting[place].waiters.is_empty() {
            self.spare.push(self.waiting.swap_remove(place).waiters);
        }
    }
}

impl Room {
    pub(crate) fn new(limit: u64) -> Self {
        let (of_peers, waiting, spare) = (BTreeMap::new(), Vec::new(), Vec::new());
        let books = Books { limit, used: 0, of_peers, tickets: 0, waiting, spare };
        Self { books: Mutex::new(books), freed: AtomicBool::new(false) }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer's message of so many bytes waits, behind all others of both sides.
    pub(crate) fn add(&self, side: Side, peer: Address, bytes: u64, key: Key) {
        let mut books = self.books();
        let waiter = Waiter { ticket: books.tickets, side, bytes, key };
        books.tickets += 1;
        match books.place_of(peer) {
            Some(place) => books.waiting[place].waiters.push_back(waiter),
            None => {
                let mut waiters = books.spare.pop().unwrap_or_default();
                waiters.push_back(waiter);
                books.waiting.push(Queue { peer, waiters });
            }
        }
    }

    /// A peer's message waits no longer, and has no memory.
    pub(crate) fn remove(&self, side: Side, peer: Address, key: Key) {
        let mut books = self.books();
        if let Some(place) = books.place_of(peer) {
            books.waiting[place].waiters.retain(|waiter| (waiter.key, waiter.side) != (key, side));
            books.tidy(place);
        }
        self.look_again();
    }

    /// The message of a side that has memory from now on, if one can have it. To be called until there is none.
    ///
    /// Of the messages whose peers have not had their share, the one that has waited longest is first, and keeps
    /// all behind it waiting, at both sides. Looks at each peer of which something waits.
    pub(crate) fn next(&self, side: Side) -> Option<Key> {
        let mut books = self.books();
        let fronts = books.waiting.iter().enumerate().filter_map(|(place, queue)| {
            let front = queue.waiters.front()?;
            books.is_share(queue.peer, front.bytes).then_some((place, *front))
        });
        let (place, Waiter { bytes, key, side: of, .. }) = fronts.min_by_key(|(_, front)| front.ticket)?;
        if !books.has(bytes) {
            return None;
        }
        if of != side {
            self.look_again();
            return None;
        }
        let peer = books.waiting[place].peer;
        books.used += bytes;
        *books.of_peers.entry(peer).or_default() += bytes;
        books.waiting[place].waiters.pop_front();
        books.tidy(place);
        Some(key)
    }

    /// Gives memory of a peer's message back.
    pub(crate) fn give(&self, peer: Address, bytes: u64) {
        let mut books = self.books();
        books.used -= bytes;
        if let Some(mine) = books.of_peers.get_mut(&peer) {
            *mine -= bytes;
        }
        if !books.waiting.is_empty() {
            self.look_again();
        }
    }

    /// Has those that wait looked at again.
    fn look_again(&self) {
        self.freed.store(true, Relaxed);
    }

    /// Whether those that wait are to be looked at again.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Relaxed)
    }

    /// [`Room::is_freed`], until it is so again. To be called before looking.
    pub(crate) fn take_freed(&self) -> bool {
        self.is_freed() && self.freed.swap(false, Relaxed)
    }

    /// Bytes in use.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn used(&self) -> u64 {
        self.books().used
    }

    /// Messages that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.books().waiting.iter().map(|queue| queue.waiters.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Rank;

    const LIMIT: u64 = 128;

    struct Played {
        room: Room,
        added: u64,
    }

    impl Played {
        fn new() -> Self {
            Self { room: Room::new(LIMIT), added: 0 }
        }

        /// A message of so many bytes of a rank, by its number.
        fn add(&mut self, side: Side, rank: u32, bytes: u64) -> u64 {
            self.added += 1;
            self.room.add(side, Rank(rank).into(), bytes, Key::from_u64(self.added));
            self.added
        }

        fn give(&self, rank: u32, bytes: u64) {
            self.room.give(Rank(rank).into(), bytes);
        }

        fn next(&self, side: Side) -> Option<u64> {
            self.room.next(side).map(Key::to_u64)
        }

        /// All that have their turn now, in order, as the layer looks at them.
        fn all(&self) -> Vec<u64> {
            let mut all = Vec::new();
            loop {
                let before = all.len();
                for side in [Side::Answers, Side::Requests] {
                    all.extend(std::iter::from_fn(|| self.next(side)));
                }
                if all.len() == before {
                    self.room.take_freed();
                    return all;
                }
            }
        }
    }

    #[test]
    fn both_sides_share_one_limit_in_order() {
        let mut played = Played::new();
        let first = played.add(Side::Requests, 0, 90);
        assert_eq!(played.all(), [first]);
        let second = played.add(Side::Answers, 1, 50);
        let third = played.add(Side::Requests, 2, 5);
        // The second does not fit, and keeps the third, which would, behind it.
        assert_eq!((played.next(Side::Answers), played.next(Side::Requests)), (None, None));
        assert!(!played.room.take_freed());
        played.give(0, 90);
        assert!(played.room.take_freed() && !played.room.is_freed());
        // Who is behind at its side has the other one looked at.
        assert_eq!(played.next(Side::Requests), None);
        assert!(played.room.take_freed());
        assert_eq!((played.next(Side::Answers), played.next(Side::Answers)), (Some(second), None));
        assert!(played.room.take_freed());
        assert_eq!(played.next(Side::Requests), Some(third));
        played.give(1, 50);
        played.give(2, 5);
        assert_eq!((played.room.used(), played.room.waiting(), played.room.is_freed()), (0, 0, false));
        // One message has room, however long it is.
        let fourth = played.add(Side::Requests, 3, 1000);
        assert_eq!(played.all(), [fourth]);
    }

    /// A peer that has had its share waits, and those behind it go on.
    #[test]
    fn a_peer_has_half_of_what_others_leave() {
        let mut played = Played::new();
        let quarter = LIMIT / 4;
        let greedy = [0; 5].map(|_| played.add(Side::Requests, 1, quarter));
        assert_eq!(played.all(), greedy[..2]);
        let patient = [played.add(Side::Requests, 2, quarter), played.add(Side::Answers, 3, quarter)];
        assert_eq!(played.all(), patient);
        // The share is of both sides together, and what the others give back is not all for the greedy one.
        let answer = played.add(Side::Answers, 1, 1);
        played.give(2, quarter);
        played.give(3, quarter);
        assert!(played.room.take_freed());
        assert_eq!(played.all(), [0; 0]);
        let again = played.add(Side::Answers, 2, 2 * quarter);
        assert_eq!(played.all(), [again]);
        played.give(2, 2 * quarter);
        // In order, whichever side is looked at first.
        for next in &greedy[2..] {
            played.give(1, quarter);
            assert_eq!(played.all(), [*next]);
        }
        played.give(1, quarter);
        assert_eq!(played.all(), [answer]);
    }

    #[test]
    fn who_waits_no_longer_is_forgotten() {
        let mut played = Played::new();
        let all = [0, 1, 2].map(|rank| played.add(Side::Answers, rank, LIMIT));
        assert_eq!(played.all(), all[..1]);
        played.room.remove(Side::Answers, Rank(1).into(), Key::from_u64(all[1]));
        assert!(played.room.take_freed());
        played.give(0, LIMIT);
        assert_eq!(played.all(), all[2..]);
        assert_eq!(played.room.waiting(), 0);
    }
}
