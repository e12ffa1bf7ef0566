//! Permits: places among the calls that may be under way, set aside before the call is made. Who asks for one
//! waits in order.

use super::{PeerCalls, Table};
use crate::outcome::{Polled, Waiter, Wakers};
use am_core::Address;
use am_core::slab::{Key, Slab};
use std::collections::VecDeque;
use std::task::Waker;

#[derive(Debug, Default)]
struct PeerPermits {
    given: u32,
    /// Calls with permits that are queued.
    queued: u32,
    waiting: u32,
}

#[derive(Debug)]
struct Permit {
    peer: u32,
    waiter: Waiter,
    given: bool,
}

/// Permits that were given, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Permits {
    all: Slab<Permit>,
    peers: Vec<PeerPermits>,
    given: u32,
    /// Calls with permits that are queued.
    queued: u32,
    order: VecDeque<Key>,
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
        // Nobody overtakes those who wait.
        let given = self.permits.peers[peer as usize].waiting == 0 && self.has_place(peer);
        let waiter = if given { Waiter::Nobody } else { Waiter::new(waker, self.root.as_ref()) };
        let key = self.permits.all.insert(Permit { peer, waiter, given });
        *permit = Some(key);
        let of_peer = &mut self.permits.peers[peer as usize];
        if given {
            of_peer.given += 1;
            self.permits.given += 1;
            return Ok(Polled::Ready(()));
        }
        of_peer.waiting += 1;
        self.permits.order.push_back(key);
        Ok(Polled::Pending(None))
    }

    /// Whether a call to a peer would be sent without waiting for others.
    fn has_place(&self, peer: u32) -> bool {
        let (calls, given) = (&self.peers[peer as usize], self.permits.peers[peer as usize].given);
        // Those that are queued with permits are among the queued.
        let queued = |calls: &PeerCalls| calls.queue.len().saturating_sub(calls.stale as usize);
        let to_peer = calls.under_way as usize + queued(calls) + given as usize;
        let all_queued: usize = self.turns.iter().map(|peer| queued(&self.peers[*peer as usize])).sum();
        let all = self.under_way as usize + all_queued + self.permits.given as usize;
        to_peer < self.config.calls_per_peer.max(1) as usize && all < self.config.calls.max(1) as usize
    }

    /// Whether anyone waits for a permit.
    #[inline]
    pub(super) fn awaits_permits(&self) -> bool {
        !self.permits.order.is_empty()
    }

    /// Gives permits to those who wait, as far as there are places; whether it gave any.
    pub(crate) fn give_permits(&mut self, wakers: &mut Wakers) -> bool {
        let before = self.permits.given;
        for _ in 0..self.permits.order.len() {
            let Some(key) = self.permits.order.pop_front() else { break };
            let Some(peer) = self.permits.all.get(key).map(|permit| permit.peer) else { continue };
            if !self.has_place(peer) {
                self.permits.order.push_back(key);
                continue;
            }
            let Permits { all, peers, given, .. } = &mut self.permits;
            let Some(permit) = all.get_mut(key) else { continue };
            permit.given = true;
            wakers.add(&mut permit.waiter);
            let of_peer = &mut peers[peer as usize];
            (of_peer.given, of_peer.waiting, *given) = (of_peer.given + 1, of_peer.waiting - 1, *given + 1);
        }
        self.permits.given != before
    }

    /// A permit is not needed any more: its call will not be made. Returns its waker, to be dropped once nothing
    /// is locked, and whether others wait.
    pub(crate) fn end_permit(&mut self, key: Key) -> (Option<Waker>, bool) {
        let Permits { all, peers, given, order, .. } = &mut self.permits;
        let Some(permit) = all.remove(key) else { return (None, false) };
        let of_peer = &mut peers[permit.peer as usize];
        if permit.given {
            of_peer.given -= 1;
            *given -= 1;
            let calls = &mut self.peers[permit.peer as usize];
            if !calls.queue.is_empty() && !calls.listed {
                calls.listed = true;
                self.turns.push_back(permit.peer);
            }
        } else {
            of_peer.waiting -= 1;
            order.retain(|waiting| *waiting != key);
        }
        (permit.waiter.waker(), !(order.is_empty() && self.turns.is_empty()))
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
        while let Some(key) = self.permits.order.pop_front() {
            if let Some(permit) = self.permits.all.get_mut(key) {
                wakers.add(&mut permit.waiter);
            }
        }
    }
}
