//! Memory for long requests and long answers on their way here: one limit for both, of which each peer has its
//! part, and one order in which they get it.

use am_core::Address;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Requests of others to this rank.
    Requests = 0,
    /// Answers to calls of this rank.
    Answers = 1,
}

impl Side {
    const fn other(self) -> usize {
        1 - self as usize
    }
}

/// What became of a wish for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Yes,
    /// Its peer has its part: those behind it go before.
    PeerHasPart,
    /// There is none, or another one has waited longer.
    NotNow,
}

/// Nobody waits.
const NOBODY: u64 = u64::MAX;

#[derive(Debug)]
struct Shares {
    used: u64,
    /// Of these, those of each peer that ever had some.
    of_peers: BTreeMap<Address, u64>,
    /// The first ticket that waits at each side for its turn.
    first: [u64; 2],
    /// Whether any waits at each side, also one whose peer has its part.
    waiting: [bool; 2],
}

/// A peer that has some memory gets more as long as it has at most half of what the others leave, so that one
/// whose messages do not come, since it computes, keeps nobody else's waiting for long.
///
/// Who gives memory back on another thread rings the doorbell afterwards, and the endpoint looks again.
#[derive(Debug)]
pub(crate) struct Room {
    limit: u64,
    next: AtomicU64,
    shares: Mutex<Shares>,
    /// Whether one that waited before may have its turn now. Relaxed: whoever looks takes the lock.
    freed: AtomicBool,
}

impl Room {
    pub(crate) fn new(limit: u64) -> Self {
        let shares = Shares { used: 0, of_peers: BTreeMap::new(), first: [NOBODY; 2], waiting: [false; 2] };
        Self { limit, next: AtomicU64::new(0), shares: Mutex::new(shares), freed: AtomicBool::new(false) }
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the order.
    pub(crate) fn ticket(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Takes memory for a message of a peer, if it is there and no other has waited longer. A peer that has none
    /// gets some for one message, and one message always has room.
    pub(crate) fn take(&self, side: Side, ticket: u64, peer: Address, bytes: u64) -> Given {
        let mut shares = self.shares();
        shares.waiting[side as usize] = true;
        let held = shares.of_peers.get(&peer).copied().unwrap_or(0);
        let part = self.limit.saturating_sub(shares.used - held) / 2;
        if held != 0 && held.saturating_add(bytes) > part {
            return Given::PeerHasPart;
        }
        self.set_first(&mut shares, side, ticket);
        let fits = shares.used == 0 || shares.used.saturating_add(bytes) <= self.limit;
        if shares.first[side.other()] < ticket || !fits {
            return Given::NotNow;
        }
        shares.used += bytes;
        *shares.of_peers.entry(peer).or_insert(0) += bytes;
        Given::Yes
    }

    fn set_first(&self, shares: &mut Shares, side: Side, ticket: u64) {
        let before = std::mem::replace(&mut shares.first[side as usize], ticket);
        if before < ticket && shares.waiting[side.other()] {
            self.freed.store(true, Relaxed);
        }
    }

    /// Nobody waits at a side for its turn; some may wait whose peers have their parts.
    pub(crate) fn nobody_first(&self, side: Side, waiting: bool) {
        let mut shares = self.shares();
        self.set_first(&mut shares, side, NOBODY);
        shares.waiting[side as usize] = waiting;
    }

    /// Whether one waits at a side for its turn, before all that come.
    pub(crate) fn is_waited_for(&self, side: Side) -> bool {
        self.shares().first[side as usize] != NOBODY
    }

    /// Has those that wait looked at again: one that was first has gone.
    pub(crate) fn look_again(&self) {
        self.freed.store(true, Relaxed);
    }

    /// Gives memory of a peer's message back.
    pub(crate) fn give(&self, peer: Address, bytes: u64) {
        let mut shares = self.shares();
        shares.used -= bytes;
        if let Some(held) = shares.of_peers.get_mut(&peer) {
            *held -= bytes;
        }
        if shares.waiting.contains(&true) {
            self.freed.store(true, Relaxed);
        }
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
        self.shares().used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::Rank;

    fn peer(rank: u32) -> Address {
        Rank(rank).into()
    }

    #[test]
    fn both_sides_share_one_limit_in_order() {
        let room = Room::new(100);
        let tickets: Vec<u64> = (0..4).map(|_| room.ticket()).collect();
        assert_eq!(room.take(Side::Requests, tickets[0], peer(0), 90), Given::Yes);
        room.nobody_first(Side::Requests, false);
        // The second does not fit, and keeps the third, which would, behind it.
        assert_eq!(room.take(Side::Answers, tickets[1], peer(1), 20), Given::NotNow);
        assert_eq!(room.take(Side::Requests, tickets[2], peer(2), 5), Given::NotNow);
        assert!(!room.take_freed());
        room.give(peer(0), 90);
        assert!(room.take_freed() && !room.is_freed());
        assert_eq!(room.take(Side::Answers, tickets[1], peer(1), 20), Given::Yes);
        // Whoever waited behind is told once the first has gone.
        room.nobody_first(Side::Answers, false);
        assert!(room.take_freed());
        assert_eq!(room.take(Side::Requests, tickets[2], peer(2), 5), Given::Yes);
        room.nobody_first(Side::Requests, false);
        room.give(peer(1), 20);
        room.give(peer(2), 5);
        assert_eq!(room.used(), 0);
        // One message has room, however long it is.
        assert_eq!(room.take(Side::Requests, tickets[3], peer(3), 1000), Given::Yes);
    }

    #[test]
    fn a_peer_has_half_of_what_others_leave() {
        let room = Room::new(100);
        let mut ticket = 0;
        let mut take = |rank, bytes| {
            ticket += 1;
            room.take(Side::Requests, ticket, peer(rank), bytes)
        };
        assert_eq!((take(0, 30), take(0, 20), take(0, 1)), (Given::Yes, Given::Yes, Given::PeerHasPart));
        // Those of others go before, also a long one, which is the only one of its peer.
        assert_eq!((take(1, 20), take(1, 5), take(1, 1)), (Given::Yes, Given::Yes, Given::PeerHasPart));
        assert_eq!(take(2, 25), Given::Yes);
        room.nobody_first(Side::Requests, true);
        room.give(peer(0), 20);
        assert!(room.take_freed());
        assert_eq!((take(0, 1), take(1, 1)), (Given::PeerHasPart, Given::PeerHasPart));
        room.give(peer(2), 25);
        assert!(room.take_freed());
        assert_eq!((take(0, 1), take(1, 1)), (Given::Yes, Given::Yes));
    }
}
