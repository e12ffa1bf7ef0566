//! The core's one-sided operations: puts and gets of the RMA unit.
//!
//! A put leaves from the bounce buffers, so that its source can be reused; a get lands in buffers of its own, or
//! in this rank's segment. The completer notification of a get comes to this rank. That of a put would come to the
//! target, which takes it for one of a Long message, so native puts never ask for it. The requester notification
//! only tells that the source has been read; large puts ask for it, since the buffer is free then. A *fence* tells
//! the rest: a fetch-compare-and-add that changes nothing of a lock which nobody uses. The target's unit executes
//! it behind the puts of the pair, so its answer says that they are in memory. One fence per peer is under way;
//! puts that are posted meanwhile wait for the next one, and a flood of puts costs one fence for each round trip.
//!
//! Signals and atomic operations travel as messages: the unit's only atomic operation is on locks of 32 bits,
//! which lie outside memory.

use super::send::{BounceBuffers, Gone};
use super::transport::Gasnet;
use crate::nic::rma::{Access, Command, Connection, Event, MAX_LOCK, Nla, Notify, RmaError};
use am_core::segment::Memory;
use am_core::transport::{
    Brought, Capability, Completion, Done, Landing, NativeOneSided, OperationFault, Refused, Remote, Resource,
    Sink, Ticket,
};
use am_core::{Payload, Peer, PeerStatus};
use std::collections::VecDeque;

/// Operations that can be under way.
const MOST: usize = 256;
/// The lock of fences.
const FENCE: u32 = MAX_LOCK;
/// Bytes of a put from which on its buffer is worth a notification of its own.
const LARGE: usize = 1024;
/// What fences and gets ask for: the requester notification tells of a network that gives up.
const TELLS: Notify = Notify(Notify::REQUESTER.0 | Notify::COMPLETER.0);

/// Where an operation stands.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// A put to an address of the target: its bounce buffer, unless a notification tells of that; whether a fence
    /// that is under way covers it; whether it was refused.
    Put { target: Nla, block: Option<u32>, fenced: bool, refused: bool },
    /// A get to an address of this rank; whether that is in the landing buffers.
    Get { to: Nla, lands: bool },
}

type Outcome = Result<(), OperationFault>;

#[derive(Clone, Copy, Debug)]
struct Started {
    peer: u32,
    ticket: Ticket,
    len: u32,
    progress: Progress,
}

/// The end of an operation that the core was not told of yet.
#[derive(Clone, Copy, Debug)]
struct EndedOperation {
    ticket: Ticket,
    outcome: Outcome,
    /// The place and length of what it brings in the landing buffers.
    landed: Option<(u32, u32)>,
}

/// Operations of the core.
#[derive(Default)]
pub(super) struct Natives {
    started: Vec<Started>,
    /// Peers that have puts under way: a fence is under way to each of them, except to those in `unposted`.
    fenced: Vec<u32>,
    unposted: Vec<u32>,
    ended: VecDeque<EndedOperation>,
    landing: Option<BounceBuffers>,
    /// Departures and faulty peers whose operations were ended.
    swept: (u32, usize),
}

impl Natives {
    /// Whether there is something to look for.
    #[inline]
    pub(super) fn are_under_way(&self) -> bool {
        !self.started.is_empty()
    }

    /// Whether there are operations on a peer of which something holds.
    pub(super) fn wait_for(&self, peer: impl Fn(u32) -> bool) -> bool {
        self.started.iter().any(|started| peer(started.peer))
    }

    /// Gives a part of the landing buffers back.
    fn clear(&mut self, at: Nla) {
        if let Some(landing) = &mut self.landing
            && let Ok(at) = u32::try_from(at.0.wrapping_sub(landing.base.0))
        {
            landing.allocator.give(at);
        }
    }
}

impl Gasnet<'_> {
    /// Takes operations out of those under way, and notes for the core how they ended where something tells that.
    fn end_natives(&mut self, mut outcome: impl FnMut(&Started) -> Option<Outcome>) {
        let Natives { started, ended, landing, .. } = &mut self.natives;
        let (base, bounce) = (landing.as_ref().map_or(0, |landing| landing.base.0), &mut self.bounce);
        started.retain(|started| {
            let Some(outcome) = outcome(started) else { return true };
            let landed = match (started.progress, outcome) {
                (Progress::Get { to, lands: true }, Ok(()) | Err(OperationFault::Refused)) => {
                    Some(((to.0 - base) as u32, started.len))
                }
                // What was given up may land yet, and keeps its place.
                (Progress::Get { .. }, _) => None,
                (Progress::Put { block, .. }, _) => {
                    if let Some((block, bounce)) = block.zip(bounce.as_mut()) {
                        bounce.allocator.give(block);
                    }
                    None
                }
            };
            ended.push_back(EndedOperation { ticket: started.ticket, outcome, landed });
            false
        });
        self.presence.fresh = true;
    }

    /// Looks at what has become of operations under way.
    pub(super) fn look_at_natives(&mut self) {
        for _ in 0..self.natives.unposted.len() {
            let Some(peer) = self.natives.unposted.pop() else { break };
            self.post_fence(peer);
        }
        if self.take_notifications() < self.nic.parameters().rma.notifications as usize {
            self.sweep_natives();
        }
    }

    /// Ends operations on peers that are gone, after all notifications were taken.
    fn sweep_natives(&mut self) {
        let departures = self.presence.gone(self.nic.context());
        if std::mem::replace(&mut self.natives.swept, departures) == departures {
            return;
        }
        let gone = |gasnet: &Self| {
            let mut peers = gasnet.natives.started.iter().map(|started| started.peer);
            peers.find(|peer| gasnet.known_status(*peer) != PeerStatus::Active)
        };
        while let Some(peer) = gone(self) {
            self.give_up(peer, OperationFault::Gone);
        }
    }

    /// Nothing more comes of operations on a peer.
    fn give_up(&mut self, peer: u32, fault: OperationFault) {
        self.natives.fenced.retain(|fenced| *fenced != peer);
        self.natives.unposted.retain(|unposted| *unposted != peer);
        self.end_natives(|started| (started.peer == peer).then_some(Err(fault)));
    }

    /// Posts a fence behind all puts to a peer, or notes that one is due.
    fn post_fence(&mut self, peer: u32) {
        let posted = self.rma_connection(peer).map(|to| self.rma.post_lock(to, FENCE, -1, 0, TELLS));
        match posted {
            Ok(Ok(())) => {
                for started in self.natives.started.iter_mut().filter(|started| started.peer == peer) {
                    if let Progress::Put { fenced, .. } = &mut started.progress {
                        *fenced = true;
                    }
                }
            }
            Ok(Err(RmaError::NoDescMem { .. })) => self.natives.unposted.push(peer),
            _ => self.give_up(peer, OperationFault::Failed),
        }
    }

    /// A notification that is none of a Long message.
    pub(super) fn native_notified(&mut self, event: &Event) {
        let Some(peer) = self.nic.rank_at(event.partner) else { return };
        match (event.command, event.kind) {
            // The network has given up the peer.
            (_, Notify::REQUESTER) if event.error && self.natives.are_under_way() => {
                self.give_up(peer, OperationFault::Failed);
            }
            (Command::Lock, Notify::COMPLETER) => self.fence_answered(peer),
            (Command::Get, Notify::COMPLETER) => {
                let to = Nla(event.value);
                let found = self.natives.started.iter().position(|started| {
                    let here = matches!(started.progress, Progress::Get { to: own, .. } if own == to);
                    here && started.peer == peer && started.len == event.size
                });
                // It may have been given up meanwhile.
                let Some(index) = found else { return self.natives.clear(to) };
                let outcome = if event.error { Err(OperationFault::Refused) } else { Ok(()) };
                let mut at = 0..;
                self.end_natives(|_| (at.next() == Some(index)).then_some(outcome));
            }
            _ => {}
        }
    }

    /// The puts behind which a fence was posted are in memory, but for those that were refused.
    fn fence_answered(&mut self, peer: u32) {
        let Some(index) = self.natives.fenced.iter().position(|fenced| *fenced == peer) else { return };
        while let Some(refusal) = self.rma.take_refusal() {
            let by = self.nic.rank_at(refusal.partner);
            for started in &mut self.natives.started {
                if let Progress::Put { target, refused, .. } = &mut started.progress
                    && Some(started.peer) == by
                    && (*target, *refused) == (refusal.nla, false)
                {
                    *refused = true;
                    break;
                }
            }
        }
        self.end_natives(|started| match started.progress {
            Progress::Put { fenced: true, refused, .. } if started.peer == peer => {
                Some(if refused { Err(OperationFault::Refused) } else { Ok(()) })
            }
            _ => None,
        });
        let put = |started: &Started| started.peer == peer && matches!(started.progress, Progress::Put { .. });
        if self.natives.started.iter().any(put) {
            self.post_fence(peer);
        } else {
            self.natives.fenced.swap_remove(index);
        }
    }

    /// Tells the core of an operation that is over; whether there was one.
    pub(super) fn tell_completed<S: Sink>(&mut self, sink: &mut S) -> bool {
        let Some(EndedOperation { ticket, outcome, landed }) = self.natives.ended.pop_front() else {
            return false;
        };
        self.nic.charge(self.shared.costs.dispatch);
        let outcome = outcome.map(|()| Brought::NOTHING);
        let Some(((at, len), landing)) = landed.zip(self.natives.landing.as_mut()) else {
            sink.completed(Completion { ticket, outcome });
            return true;
        };
        self.nic.charge(self.shared.costs.copying(len as usize));
        let bytes = Payload::shared(landing.memory.words(), at as usize, len as usize);
        sink.completed(Completion { ticket, outcome: outcome.map(|brought| Brought { bytes, ..brought }) });
        landing.allocator.give(at);
        true
    }

    /// What a command to a peer needs: its connection and its segment.
    fn admit_native(&mut self, to: Peer) -> Result<(Connection, Nla), Refused> {
        self.known_status(to.0).active().map_err(Refused::Gone)?;
        if self.natives.started.len() >= MOST {
            self.look_at_natives();
            if self.natives.started.len() >= MOST {
                return Err(self.busy(Resource::Interface));
            }
        }
        let Some(segment) = self.segment_of(to.0) else { return Err(self.busy(Resource::Connection)) };
        match self.rma_connection(to.0) {
            Ok(connection) => Ok((connection, segment)),
            Err(Gone) => Err(Refused::Gone(self.known_status(to.0))),
        }
    }

    /// Room in the landing buffers.
    fn land(&mut self, len: u32) -> Option<u32> {
        let waits = |started: &Started| matches!(started.progress, Progress::Get { lands: true, .. });
        let used = |natives: &Natives| {
            natives.started.iter().any(waits) || natives.ended.iter().any(|operation| operation.landed.is_some())
        };
        for _ in 0..2 {
            let size = self.shared.config.bounce;
            let rma = &self.rma;
            let landing =
                self.natives.landing.get_or_insert_with(|| BounceBuffers::new(rma, size, Access::ReadWrite));
            let found = landing.allocator.take(len);
            if found.is_some() {
                return found;
            }
            if used(&self.natives) {
                return None;
            }
            // All of it waits for peers that are gone. What they may still send finds nothing registered.
            let landing = self.natives.landing.take()?;
            self.rma.unregister(landing.region).expect("the landing buffers are registered");
        }
        None
    }

    /// The most bytes of a put or get by way of buffers.
    pub(super) fn largest_put(&self) -> u32 {
        self.shared.config.put.min(self.shared.config.bounce / 4)
    }
}

impl NativeOneSided for Gasnet<'_> {
    fn capability(&self, _: Peer) -> Capability {
        let mut capability = Capability::default();
        (capability.put, capability.get) = (self.largest_put().into(), self.largest_put().into());
        (capability.get_into, capability.longest_get) = (self.shared.config.put.into(), u64::MAX);
        capability
    }

    fn put(&mut self, to: Remote, bytes: &[u8], _: Option<u64>, _: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: to, at, ticket } = to;
        let (connection, segment) = self.admit_native(to)?;
        let (len, target) = (bytes.len() as u32, Nla(segment.0 + at));
        self.make_bounce();
        let mut block = self.bounce.as_mut().and_then(|bounce| bounce.allocator.take(len));
        if block.is_none() {
            self.take_notifications();
            block = self.bounce.as_mut().and_then(|bounce| bounce.allocator.take(len));
        }
        let Some(block) = block else { return Err(self.busy(Resource::Interface)) };
        self.nic.charge(self.shared.costs.copying(bytes.len()));
        let bounce = self.bounce.as_mut().expect("the bounce buffers have been made");
        bounce.memory.write(block as usize, bytes);
        // Never a completer notification: see above.
        let notify = if bytes.len() < LARGE { Notify::NONE } else { Notify::REQUESTER };
        let posted = self.rma.post_put_bt(connection, bounce.region, block.into(), len, target, notify);
        if let Err(error) = posted {
            bounce.allocator.give(block);
            return Err(self.not_posted(to, error));
        }
        let block = (notify == Notify::NONE).then_some(block);
        let progress = Progress::Put { target, block, fenced: false, refused: false };
        self.natives.started.push(Started { peer: to.0, ticket, len, progress });
        if !self.natives.fenced.contains(&to.0) {
            self.natives.fenced.push(to.0);
            self.post_fence(to.0);
        }
        Ok(())
    }

    fn get(&mut self, from: Remote, len: u64, landing: Landing, _: &mut Done<'_>) -> Result<(), Refused> {
        let Remote { peer: from, at, ticket } = from;
        let (connection, segment) = self.admit_native(from)?;
        let (len, source) = (len as u32, Nla(segment.0 + at));
        let (sink, offset, lands) = match landing {
            Landing::Segment(into) => (self.region, into, false),
            Landing::Report => {
                let Some(block) = self.land(len) else { return Err(self.busy(Resource::Interface)) };
                let landing = self.natives.landing.as_ref().expect("the landing buffers have been made");
                (landing.region, block.into(), true)
            }
        };
        let to = self.rma.nla(sink, offset).expect("the core and the buffers keep to their memory");
        if let Err(error) = self.rma.post_get_bt(connection, sink, offset, len, source, TELLS) {
            if lands {
                self.natives.clear(to);
            }
            return Err(self.not_posted(from, error));
        }
        self.natives.started.push(Started { peer: from.0, ticket, len, progress: Progress::Get { to, lands } });
        Ok(())
    }
}

impl Gasnet<'_> {
    fn not_posted(&mut self, to: Peer, error: RmaError) -> Refused {
        match error {
            RmaError::NoDescMem { .. } => self.busy(Resource::Interface),
            _ => Refused::Gone(self.known_status(to.0)),
        }
    }
}
