//! Several transports in one job: a near one that reaches some of the ranks, and a far one that reaches all.
//!
//! A rank's peers on the same host are usually near (shared memory), all others far (a network). Both transports
//! carry the same segment. Nesting serves more than two. While nothing comes from afar, the far transport is left
//! to watch itself, so that near messages do not pay for it.

mod far;
mod reply_path;
mod slot;

pub use slot::{SelectRoom, SelectSlot};

use crate::address::{Peer, Rank, Shape};
use crate::arguments::Words;
use crate::segment::{AnyMemory, Segment, SegmentError};
use crate::time::{Instant, Span};
use crate::transport::{
    Body, CreditSnapshot, Departure, Lent, LentFault, Limits, Membership, NativeOneSided, Notify, Owed,
    PeerStatus, PendingKey, Refused, ReplyPath, RequestHeader, Sink, Transport, WaitReason, Waiting,
};
use far::Far;
use reply_path::{Mapped, MappedReplyPath};
use std::os::fd::OwnedFd;
use std::task::Waker;

/// The route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// By the near transport, which knows the peer by this number.
    Near(Peer),
    Far,
}

/// Two transports that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The near transport's ranks must be listed one for one.
    #[error("{listed} ranks are listed for a near transport of {ranks}")]
    Ranks {
        /// Ranks of the near transport.
        ranks: u32,
        /// Ranks listed.
        listed: usize,
    },
    /// Both must have the same number of endpoints per rank.
    #[error("the near transport has {near} endpoints per rank, the far one {far}")]
    Endpoints {
        /// Endpoints per rank of the near transport.
        near: u16,
        /// Endpoints per rank of the far transport.
        far: u16,
    },
    /// A listed rank is outside the far transport's job.
    #[error("rank {rank} is listed as near in a job of {ranks} ranks")]
    Outside {
        /// The rank.
        rank: Rank,
        /// Ranks of the job.
        ranks: u32,
    },
    /// A rank is listed twice.
    #[error("rank {rank} is listed twice as near")]
    Twice {
        /// The rank.
        rank: Rank,
    },
    /// The near transport is another endpoint's.
    #[error("the near transport belongs to endpoint {near}, the far one to endpoint {far}")]
    Different {
        /// Whose the near transport is.
        near: crate::Address,
        /// Whose the far transport is.
        far: crate::Address,
    },
    /// The segments are not the same memory.
    #[error("the near segment has {near} bytes, the far one {far}, or they are not the same memory")]
    Segments {
        /// Bytes of the near segment.
        near: usize,
        /// Bytes of the far segment.
        far: usize,
    },
}

/// A transport that is a near one, a far one, or both: near where possible, far where needed.
#[derive(Debug)]
pub struct Select<N, F>(Choice<N, F>);

#[derive(Debug)]
enum Choice<N, F> {
    Near(N),
    Far(F),
    Both(Box<Both<N, F>>),
}

#[derive(Debug)]
struct Both<N, F> {
    near: N,
    far: Far<F>,
    /// The route to each endpoint of the job.
    routes: Vec<Route>,
    /// The endpoint of the job that each endpoint of the near transport is.
    up: Vec<Peer>,
    /// The limits towards each endpoint of the job. The default bound of replies is the same for all.
    limits: Vec<Limits>,
    /// Whether the next poll begins with the far transport.
    far_first: bool,
}

impl<N, F> Select<N, F> {
    /// The near transport alone: all of the job is near.
    pub fn near(near: N) -> Self {
        Self(Choice::Near(near))
    }

    /// The far transport alone.
    pub fn far(far: F) -> Self {
        Self(Choice::Far(far))
    }

    /// Whether a peer is reached by the near transport.
    ///
    /// # Panics
    /// If both transports are there and the job has no such peer.
    pub fn is_near(&self, peer: Peer) -> bool {
        match &self.0 {
            Choice::Near(_) => true,
            Choice::Far(_) => false,
            Choice::Both(both) => both.routes[peer.index()] != Route::Far,
        }
    }
}

impl<N: Transport, F: Transport<Memory = N::Memory>> Select<N, F> {
    /// Both transports. `ranks` lists, for each rank of the near transport, which rank of the job it is; all
    /// others, and all ranks for which `allow` is false, are far. All ranks of the job must decide alike.
    /// Allocates.
    ///
    /// # Errors
    /// [`SelectError`] if the two are not of the same endpoint, shape or segment.
    pub fn both(near: N, far: F, ranks: &[Rank], allow: impl Fn(Rank) -> bool) -> Result<Self, SelectError> {
        let (inner, outer) = (near.shape(), far.shape());
        if inner.ranks as usize != ranks.len() {
            return Err(SelectError::Ranks { ranks: inner.ranks, listed: ranks.len() });
        }
        if inner.endpoints != outer.endpoints {
            return Err(SelectError::Endpoints { near: inner.endpoints, far: outer.endpoints });
        }
        let mut routes = vec![Route::Far; outer.peers() as usize];
        let mut up = Vec::with_capacity(inner.peers() as usize);
        for local in (0..inner.peers()).map(Peer) {
            let address = inner.address(local);
            let rank = ranks[address.rank.0 as usize];
            let global = outer.peer(crate::Address { rank, ..address });
            let global = global.ok_or(SelectError::Outside { rank, ranks: outer.ranks })?;
            up.push(global);
            if std::mem::replace(&mut routes[global.index()], Route::Near(local)) != Route::Far {
                return Err(SelectError::Twice { rank });
            }
        }
        if up[near.local_peer().index()] != far.local_peer() {
            let (near, far) = (outer.address(up[near.local_peer().index()]), outer.address(far.local_peer()));
            return Err(SelectError::Different { near, far });
        }
        let (a, b) = (near.segment(), far.segment());
        if a.len() != b.len() || !a.words().as_ptr_range().eq(&b.words().as_ptr_range()) {
            return Err(SelectError::Segments { near: a.len(), far: b.len() });
        }
        for (index, route) in routes.iter_mut().enumerate() {
            if !allow(outer.address(Peer(index as u32)).rank) {
                *route = Route::Far;
            }
        }
        let default_reply =
            near.limits(near.local_peer()).default_reply.min(far.limits(far.local_peer()).default_reply);
        let limits = routes.iter().enumerate().map(|(index, route)| match route {
            Route::Near(peer) => Limits { default_reply, ..*near.limits(*peer) },
            Route::Far => Limits { default_reply, ..*far.limits(Peer(index as u32)) },
        });
        let limits = limits.collect();
        let far = Far::new(far, near.waker());
        Ok(Self(Choice::Both(Box::new(Both { near, far, routes, up, limits, far_first: false }))))
    }
}

/// Calls the transport that leads to a peer; `$peer` is the peer by that transport's numbering.
macro_rules! towards {
    ($self:expr, $to:expr, |$transport:ident, $peer:ident| $call:expr) => {
        match &mut $self.0 {
            Choice::Near($transport) => {
                let $peer = $to;
                $call
            }
            Choice::Far($transport) => {
                let $peer = $to;
                $call
            }
            Choice::Both(both) => match both.routes[$to.index()] {
                Route::Near($peer) => {
                    let $transport = &mut both.near;
                    $call
                }
                Route::Far => {
                    let ($transport, $peer) = (&mut both.far.transport, $to);
                    let sent = $call;
                    both.far.sent(sent.is_ok());
                    sent
                }
            },
        }
    };
}

/// The same without a change: what is known of a peer.
macro_rules! known_of {
    ($self:expr, $to:expr, |$transport:ident, $peer:ident| $call:expr) => {
        match &$self.0 {
            Choice::Near($transport) => {
                let $peer = $to;
                $call
            }
            Choice::Far($transport) => {
                let $peer = $to;
                $call
            }
            Choice::Both(both) => match both.routes[$to.index()] {
                Route::Near($peer) => {
                    let $transport = &both.near;
                    $call
                }
                Route::Far => {
                    let ($transport, $peer) = (&both.far.transport, $to);
                    $call
                }
            },
        }
    };
}

/// Asks whichever transport knows about the rank itself.
macro_rules! own {
    ($self:expr, $near:ident => $of_near:expr, $far:ident => $of_far:expr) => {
        match &$self.0 {
            Choice::Near($near) => $of_near,
            Choice::Far($far) => $of_far,
            Choice::Both(both) => {
                let $near = &both.near;
                $of_near
            }
        }
    };
}

impl<N: Transport, F: Transport<Memory = N::Memory>> Membership for Select<N, F> {
    fn local_peer(&self) -> Peer {
        match &self.0 {
            Choice::Near(near) => near.local_peer(),
            Choice::Far(far) => far.local_peer(),
            Choice::Both(both) => both.far.transport.local_peer(),
        }
    }

    fn shape(&self) -> Shape {
        match &self.0 {
            Choice::Near(near) => near.shape(),
            Choice::Far(far) => far.shape(),
            Choice::Both(both) => both.far.transport.shape(),
        }
    }

    #[inline]
    fn losses(&self) -> u32 {
        match &self.0 {
            Choice::Near(near) => near.losses(),
            Choice::Far(far) => far.losses(),
            Choice::Both(both) => both.near.losses() + both.far.transport.losses(),
        }
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        known_of!(self, peer, |transport, known| transport.status(known))
    }

    fn writes_no_more(&self, peer: Peer) -> bool {
        known_of!(self, peer, |transport, known| transport.writes_no_more(known))
    }

    #[inline]
    fn is_fork(&self) -> bool {
        own!(self, near => near.is_fork(), far => far.is_fork())
    }

    fn all_depart(&mut self) {
        match &mut self.0 {
            Choice::Near(near) => near.all_depart(),
            Choice::Far(far) => far.all_depart(),
            Choice::Both(both) => {
                both.near.all_depart();
                both.far.transport.all_depart();
            }
        }
    }

    fn depart(&mut self, how: Departure) {
        match &mut self.0 {
            Choice::Near(near) => near.depart(how),
            Choice::Far(far) => far.depart(how),
            Choice::Both(both) => {
                both.near.depart(how);
                both.far.transport.depart(how);
            }
        }
    }
}

impl<N: Transport, F: Transport<Memory = N::Memory>> Waiting for Select<N, F> {
    #[inline]
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        match &mut self.0 {
            Choice::Near(near) => near.idle(until, reason),
            Choice::Far(far) => far.idle(until, reason),
            Choice::Both(both) => {
                if both.far.rest() {
                    both.near.idle(until, reason);
                }
            }
        }
    }

    #[inline]
    fn idle_unless(&mut self, until: Option<Instant>, reason: WaitReason, changed: &mut dyn FnMut() -> bool) {
        match &mut self.0 {
            Choice::Near(near) => near.idle_unless(until, reason, changed),
            Choice::Far(far) => far.idle_unless(until, reason, changed),
            Choice::Both(both) => {
                if both.far.rest() {
                    both.near.idle_unless(until, reason, changed);
                }
            }
        }
    }

    #[inline]
    fn wake_peer(&mut self, peer: Peer) {
        match &mut self.0 {
            Choice::Near(near) => near.wake_peer(peer),
            Choice::Far(far) => far.wake_peer(peer),
            Choice::Both(both) => match both.routes[peer.index()] {
                Route::Near(peer) => both.near.wake_peer(peer),
                Route::Far => both.far.transport.wake_peer(peer),
            },
        }
    }

    #[inline]
    fn spins(&self) -> bool {
        own!(self, near => near.spins(), far => far.spins())
    }

    fn waker(&self) -> Option<Waker> {
        own!(self, near => near.waker(), far => far.waker())
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        match &mut self.0 {
            Choice::Near(near) => near.notify(waker),
            Choice::Far(far) => far.notify(waker),
            Choice::Both(both) => {
                let near = both.near.notify(waker);
                both.and_far(near, waker)
            }
        }
    }

    fn descriptor(&mut self) -> Option<OwnedFd> {
        match &mut self.0 {
            Choice::Near(near) => near.descriptor(),
            Choice::Far(far) => far.descriptor(),
            Choice::Both(both) => both.near.descriptor(),
        }
    }

    fn notify_readable(&mut self, waker: &Waker) -> Notify {
        match &mut self.0 {
            Choice::Near(near) => near.notify_readable(waker),
            Choice::Far(far) => far.notify_readable(waker),
            Choice::Both(both) => {
                let near = both.near.notify_readable(waker);
                both.and_far(near, waker)
            }
        }
    }

    fn end_notify(&mut self) {
        match &mut self.0 {
            Choice::Near(near) => near.end_notify(),
            Choice::Far(far) => far.end_notify(),
            Choice::Both(both) => {
                both.near.end_notify();
                both.far.transport.end_notify();
            }
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        own!(self, near => near.now(), far => far.now())
    }

    fn charge(&mut self, cost: Span) {
        match &mut self.0 {
            Choice::Near(near) => near.charge(cost),
            Choice::Far(far) => far.charge(cost),
            Choice::Both(both) => both.near.charge(cost),
        }
    }
}

impl<N: Transport, F: Transport<Memory = N::Memory>> Transport for Select<N, F> {
    type Memory = N::Memory;
    type Room = SelectRoom<N::Room, F::Room>;
    type Slot<'a>
        = SelectSlot<N::Slot<'a>, F::Slot<'a>>
    where
        Self: 'a;

    fn limits(&self, peer: Peer) -> &Limits {
        match &self.0 {
            Choice::Near(near) => near.limits(peer),
            Choice::Far(far) => far.limits(peer),
            Choice::Both(both) => &both.limits[peer.index()],
        }
    }

    #[inline(always)]
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        towards!(self, to, |transport, peer| transport.send(peer, head, args, body))
    }

    #[inline]
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<Self::Room, Refused> {
        match &mut self.0 {
            Choice::Near(near) => near.reserve(to, head, args, len).map(SelectRoom::Near),
            Choice::Far(far) => far.reserve(to, head, args, len).map(SelectRoom::Far),
            Choice::Both(both) => match both.routes[to.index()] {
                Route::Near(peer) => both.near.reserve(peer, head, args, len).map(SelectRoom::Near),
                Route::Far => {
                    let room = both.far.transport.reserve(to, head, args, len);
                    both.far.sent(room.is_ok());
                    room.map(SelectRoom::Far)
                }
            },
        }
    }

    #[inline]
    fn slot(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        len: usize,
        room: Self::Room,
    ) -> Self::Slot<'_> {
        let (near, far, to) = match &mut self.0 {
            Choice::Near(near) => (Some(near), None, to),
            Choice::Far(far) => (None, Some(far), to),
            Choice::Both(both) => match both.routes[to.index()] {
                Route::Near(peer) => (Some(&mut both.near), None, peer),
                Route::Far => (None, Some(&mut both.far.transport), to),
            },
        };
        match (near, far, room) {
            (Some(near), _, SelectRoom::Near(room)) => SelectSlot::Near(near.slot(to, head, args, len, room)),
            (_, Some(far), SelectRoom::Far(room)) => SelectSlot::Far(far.slot(to, head, args, len, room)),
            _ => unreachable!("room is turned into a slot of the peer that it was reserved for"),
        }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        towards!(self, to, |transport, peer| transport.control(peer, args, payload))
    }

    #[inline]
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        match &mut self.0 {
            Choice::Near(near) => near.poll(budget, sink),
            Choice::Far(far) => far.poll(budget, sink),
            Choice::Both(both) => both.poll(budget, sink),
        }
    }

    fn polls_per_sweep(&self) -> u32 {
        match &self.0 {
            Choice::Near(near) => near.polls_per_sweep(),
            Choice::Far(far) => far.polls_per_sweep(),
            Choice::Both(both) => both.near.polls_per_sweep().max(both.far.transport.polls_per_sweep()),
        }
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        match &mut self.0 {
            Choice::Near(near) => near.reply_detached(key, reply),
            Choice::Far(far) => far.reply_detached(key, reply),
            Choice::Both(both) => match both.routes[key.to.index()] {
                Route::Near(to) => both.near.reply_detached(PendingKey { to, ..key }, |path| {
                    reply(&mut MappedReplyPath { path, requester: key.to })
                }),
                Route::Far => {
                    both.far.sent(true);
                    both.far.transport.reply_detached(key, reply)
                }
            },
        }
    }

    fn flush(&mut self) {
        match &mut self.0 {
            Choice::Near(near) => near.flush(),
            Choice::Far(far) => far.flush(),
            Choice::Both(both) => {
                both.near.flush();
                both.far.asked();
                both.far.transport.flush();
            }
        }
    }

    fn is_quiescent(&mut self) -> bool {
        match &mut self.0 {
            Choice::Near(near) => near.is_quiescent(),
            Choice::Far(far) => far.is_quiescent(),
            Choice::Both(both) => {
                both.far.asked();
                both.near.is_quiescent() && both.far.transport.is_quiescent()
            }
        }
    }

    #[inline]
    fn segment(&self) -> &Segment<Self::Memory> {
        own!(self, near => near.segment(), far => far.segment())
    }

    fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        own!(self, near => near.read_placed(offset, out), far => far.read_placed(offset, out))
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        match &self.0 {
            Choice::Near(near) => near.segment_len(rank),
            Choice::Far(far) => far.segment_len(rank),
            Choice::Both(both) => both.far.transport.segment_len(rank),
        }
    }

    #[inline]
    fn remote_segment(&self, rank: Rank) -> Option<&Segment<Self::Memory>> {
        match &self.0 {
            Choice::Near(near) => near.remote_segment(rank),
            Choice::Far(far) => far.remote_segment(rank),
            Choice::Both(both) => {
                let shape = both.far.transport.shape();
                match both.routes[shape.peer(rank.into())?.index()] {
                    Route::Near(peer) => both.near.remote_segment(both.near.shape().address(peer).rank),
                    Route::Far => both.far.transport.remote_segment(rank),
                }
            }
        }
    }

    fn reads_lent(&mut self, of: Peer) -> bool {
        match &mut self.0 {
            Choice::Near(near) => near.reads_lent(of),
            Choice::Far(far) => far.reads_lent(of),
            Choice::Both(both) => match both.routes[of.index()] {
                Route::Near(peer) => both.near.reads_lent(peer),
                Route::Far => both.far.transport.reads_lent(of),
            },
        }
    }

    fn read_lent(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        match &mut self.0 {
            Choice::Near(near) => near.read_lent(of, lent, at, out),
            Choice::Far(far) => far.read_lent(of, lent, at, out),
            Choice::Both(both) => match both.routes[of.index()] {
                Route::Near(peer) => both.near.read_lent(peer, lent, at, out),
                Route::Far => both.far.transport.read_lent(of, lent, at, out),
            },
        }
    }

    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        match &self.0 {
            Choice::Near(near) => near.auxiliary(of),
            Choice::Far(far) => far.auxiliary(of),
            Choice::Both(both) => match both.routes[of.index()] {
                Route::Near(peer) => both.near.auxiliary(peer),
                // A wait idles in the near transport, which the far one cannot end.
                Route::Far => None,
            },
        }
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        match &mut self.0 {
            Choice::Near(near) => near.native(to),
            Choice::Far(far) => far.native(to),
            Choice::Both(both) => match both.routes[to.index()] {
                Route::Near(peer) => both.near.native(peer),
                Route::Far => {
                    // What is started ends by a poll.
                    both.far.sent(true);
                    both.far.transport.native(to)
                }
            },
        }
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        known_of!(self, peer, |transport, known| transport.credits(known))
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        known_of!(self, peer, |transport, known| transport.owed(known))
    }

    fn bare_credits(&self) -> u64 {
        match &self.0 {
            Choice::Near(near) => near.bare_credits(),
            Choice::Far(far) => far.bare_credits(),
            Choice::Both(both) => both.near.bare_credits() + both.far.transport.bare_credits(),
        }
    }
}

impl<N: Transport, F: Transport<Memory = N::Memory>> Both<N, F> {
    /// Has the far transport call a waker, too, once the near one has been asked.
    fn and_far(&mut self, near: Notify, waker: &Waker) -> Notify {
        if near == Notify::Armed {
            // This waker takes the bell's place, so that the far transport is polled again.
            self.far.watch.end();
            return self.far.transport.notify(waker);
        }
        near
    }

    #[inline]
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let mut done = 0;
        if self.far_first {
            done += self.far.poll(budget, sink);
        }
        if done < budget {
            done += self.near.poll(budget - done, &mut Mapped { sink, up: &self.up });
        }
        if !self.far_first && done < budget {
            done += self.far.poll(budget - done, sink);
        }
        // Whoever used up the budget comes last the next time.
        if done >= budget {
            self.far_first = !self.far_first;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackConfig, network, network_over};

    #[test]
    fn transports_that_do_not_go_together_are_refused() {
        let config = LoopbackConfig::default();
        let far = |me: usize| network(3, config).swap_remove(me);
        let near = |me: usize, of: u32| network(of, config).swap_remove(me);
        let both = |near, far, ranks: &[u32]| {
            let ranks: Vec<_> = ranks.iter().copied().map(Rank).collect();
            Select::both(near, far, &ranks, |_| true).map(drop).unwrap_err()
        };
        assert_eq!(both(near(0, 2), far(0), &[0]), SelectError::Ranks { ranks: 2, listed: 1 });
        assert_eq!(both(near(0, 2), far(0), &[0, 3]), SelectError::Outside { rank: Rank(3), ranks: 3 });
        assert_eq!(both(near(0, 2), far(0), &[0, 0]), SelectError::Twice { rank: Rank(0) });
        let [near_me, far_me] = [Rank(2).into(), Rank(0).into()];
        assert_eq!(both(near(1, 2), far(0), &[0, 2]), SelectError::Different { near: near_me, far: far_me });
        assert_eq!(both(near(0, 2), far(0), &[0, 2]), SelectError::Segments { near: 1 << 16, far: 1 << 16 });
        let two = config.endpoints(2);
        let near = network(1, two).swap_remove(0);
        assert_eq!(both(near, far(0), &[0]), SelectError::Endpoints { near: 2, far: 1 });
    }

    #[test]
    fn peers_that_are_not_allowed_near_are_far() {
        let far = network(3, LoopbackConfig::default()).swap_remove(2);
        let segments = [crate::loopback::segment(8), far.segment().clone()];
        let near = network_over(segments.into(), LoopbackConfig::default()).swap_remove(1);
        let both = Select::both(near, far, &[Rank(0), Rank(2)], |rank| rank != Rank(0)).unwrap();
        assert_eq!([0, 1, 2].map(|peer| both.is_near(Peer(peer))), [false, false, true]);
    }
}
