//! Permits: places among the calls that may be under way, set aside before the call is made. Who asks for one
//! waits in the queue of its peer, like a call.

use super::{PeerCalls, Queued, Table};
use crate::outcome::{Polled, Waiter, Wakers};
use am_core::Address;
use am_core::slab::{Key, Slab};
use std::task::Waker;

#[derive(Debug, Default)]
struct PeerPermits {
    given: u32,
    /// Calls with permits that are queued.
    queued: u32,
}

#[derive(Debug)]
struct Permit {
    peer: u32,
    waiter: Waiter,
    given: bool,
}

/// Permits that were given, and those that wait in the queues of their peers.
#[derive(Debug, Default)]
pub(super) struct Permits {
    all: Slab<Permit>,
    peers: Vec<PeerPermits>,
    given: u32,
    /// Calls with permits that are queued.
    queued: u32,
}

impl Permits {
    /// Places that are set aside: those to a peer, and all.
    #[inline]
    pub(super) fn reserved(&self, peer: u32) -> (u32, u32) {
        let of_peer = self.peers.get(peer as usize).map_or(0, |peer| peer.given + peer.queued);
        (of_peer, self.given + self.queued)
    }

    /// A call with a permit is queued no longer.
    pub(super) fn is_sent(&mut self, peer: u32) {
        self.peers[peer as usize].queued -= 1;
        self.queued -= 1;
    }
}

/// There are no permits any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Table {
    /// A permit for a call, which `permit` names from now on, also while it is waited for. Where there can be no
    /// call, none is needed.
    pub(crate) fn permit(
        &mut self,
        to: Address,
        permit: &mut Option<Key>,
        waker: &Waker,
    ) -> Result<Polled<()>, Closed> {
        if self.closed {
            return Err(Closed);
        }
        if let Some(permit) = permit.and_then(|key| self.permits.all.get_mut(key)) {
            return Ok(if permit.given {
                Polled::Ready(())
            } else {
                Polled::Pending(permit.waiter.keep(Some(waker), self.root.as_ref()))
            });
        }
        let Some(peer) = self.shape.and_then(|shape| shape.peer(to)) else { return Ok(Polled::Ready(())) };
        let (peer, peers) = (peer.0, self.peers.len());
        self.permits.peers.resize_with(peers, PeerPermits::default);
        let given = self.has_place(peer);
        let waiter = if given { Waiter::Nobody } else { Waiter::new(waker, self.root.as_ref()) };
        let key = self.permits.all.insert(Permit { peer, waiter, given });
        *permit = Some(key);
        if given {
            self.permits.peers[peer as usize].given += 1;
            self.permits.given += 1;
            return Ok(Polled::Ready(()));
        }
        self.peers[peer as usize].queue.push_back(Queued::Permit(key));
        self.list(peer);
        Ok(Polled::Pending(None))
    }

    /// Whether a call to a peer would be sent without waiting for others, permits that wait among them.
    fn has_place(&self, peer: u32) -> bool {
        let (calls, given) = (&self.peers[peer as usize], self.permits.peers[peer as usize].given);
        // Those that are queued with permits are among the queued.
        let queued = |calls: &PeerCalls| calls.queue.len().saturating_sub(calls.stale as usize);
        let to_peer = calls.under_way as usize + queued(calls) + given as usize;
        let all_queued: usize = self.turns.iter().map(|peer| queued(&self.peers[*peer as usize])).sum();
        let all = self.under_way as usize + all_queued + self.permits.given as usize;
        to_peer < self.config.calls_per_peer.max(1) as usize && all < self.config.calls.max(1) as usize
    }

    /// Gives a permit that waited for its turn.
    pub(super) fn give_permit(&mut self, key: Key, wakers: &mut Wakers) {
        let Permits { all, peers, given, .. } = &mut self.permits;
        let permit = all.get_mut(key).expect("a permit that ends leaves its queue");
        permit.given = true;
        wakers.add(&mut permit.waiter);
        peers[permit.peer as usize].given += 1;
        *given += 1;
    }

    /// A permit is not needed any more: its call will not be made. Returns its waker, to be dropped once nothing
    /// is locked, and whether others wait.
    pub(crate) fn end_permit(&mut self, key: Key) -> (Option<Waker>, bool) {
        let Permits { all, peers, given, .. } = &mut self.permits;
        let Some(permit) = all.remove(key) else { return (None, false) };
        if permit.given {
            peers[permit.peer as usize].given -= 1;
            *given -= 1;
            self.list(permit.peer);
        } else {
            self.peers[permit.peer as usize].queue.retain(|queued| *queued != Queued::Permit(key));
        }
        (permit.waiter.waker(), !self.turns.is_empty())
    }

    /// Has a call go with a permit, if it was given.
    pub(super) fn use_permit(&mut self, key: Key) -> bool {
        let Permits { all, peers, given, queued, .. } = &mut self.permits;
        if !all.get(key).is_some_and(|permit| permit.given) {
            return false;
        }
        let Some(permit) = all.remove(key) else { return false };
        let of_peer = &mut peers[permit.peer as usize];
        (of_peer.given, *given) = (of_peer.given - 1, *given - 1);
        (of_peer.queued, *queued) = (of_peer.queued + 1, *queued + 1);
        true
    }

    /// Everyone who waits learns that the endpoint is gone.
    pub(super) fn close_permits(&mut self, wakers: &mut Wakers) {
        let all: Vec<Key> = self.permits.all.iter().map(|(key, _)| key).collect();
        for key in all {
            if let Some(permit) = self.permits.all.get_mut(key) {
                wakers.add(&mut permit.waiter);
            }
        }
    }
}
