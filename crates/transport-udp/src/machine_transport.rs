//! The transport: what an endpoint of the core calls, on a machine and any [`Driver`].

use crate::driver::Driver;
use crate::proto::{BorrowedPayload, Config, Machine};
use am_core::arguments::Words;
use am_core::transport::{
    Body, CreditSnapshot, Departure, Limits, Membership, Notify, NullReplyPath, Owed, PayloadWriter, PeerStatus,
    PendingKey, Refused, ReplyPath, RequestHeader, Resource, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{Instant, LossCause, Memory, Peer, Rank, Segment, Shape, Span};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

/// Memory of this process alone.
pub type OwnMemory = Arc<[AtomicU64]>;

/// A transport over a machine and its driver.
#[derive(Debug)]
pub struct MachineTransport<D: Driver, M: Memory = OwnMemory> {
    driver: D,
    me: Peer,
    shape: Shape,
    limits: Limits,
    segment: Segment<M>,
    /// The payload of a reserved request while it is being filled.
    scratch: Vec<u8>,
    departed: bool,
}

impl<D: Driver, M: Memory> MachineTransport<D, M> {
    /// A transport whose driver holds a machine with these settings and this segment.
    pub(crate) fn new(driver: D, config: &Config, segment: Segment<M>) -> Self {
        let medium = config.medium as usize;
        let limits = Limits::uniform(medium, u64::MAX);
        let (me, shape, scratch) = (config.me, config.shape, Vec::with_capacity(medium));
        Self { driver, me, shape, limits, segment, scratch, departed: false }
    }

    fn leave(&mut self, how: Departure) {
        self.departed = true;
        if self.driver.failure().is_some() {
            return;
        }
        self.driver.with(|machine, _| machine.depart(how));
        self.driver.depart();
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Looks at the protocol's state: counters, estimates of paths, sizes of datagrams.
    pub fn machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        self.driver.look(look)
    }

    /// Everybody is gone for an endpoint that can be used no more.
    #[inline]
    fn usable(&self) -> Result<(), Refused> {
        self.driver.failure().map_or(Ok(()), |cause| Err(Refused::Gone(PeerStatus::Lost(cause))))
    }

    fn medium(&mut self, to: Peer, head: RequestHeader, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.usable()?;
        let accepted = self.driver.with(|machine, now| machine.request(now, to, head, args, Some(payload)));
        // A refusal may have begun a handshake, which has to leave, too.
        self.driver.accepted();
        accepted
    }
}

impl<D: Driver, M: Memory> MachineTransport<D, M> {
    fn long(
        &mut self,
        to: Peer,
        head: RequestHeader,
        args: &Words,
        payload: &[u8],
        at: u64,
    ) -> Result<(), Refused> {
        self.usable()?;
        let len = payload.len() as u64;
        let begun = self.driver.with(|machine, now| machine.long(now, to, head, args, len, at));
        self.driver.accepted();
        begun?;
        let lent = BorrowedPayload { to, payload };
        let mut kept = self.driver.with(|machine, _| machine.buffer_tail(lent))?;
        while !kept {
            // Longer than the queue: machines acknowledge whatever their applications do, so room comes.
            kept = self.driver.round(Some(lent), |machine, _| machine.buffer_tail(lent))?;
            if !kept {
                self.driver.idle(None, WaitReason::Room(to, Resource::RequestBytes));
                self.usable()?;
            }
        }
        self.driver.accepted();
        Ok(())
    }
}

/// A reserved Medium request.
#[derive(Debug)]
pub struct Claim<'a, D: Driver, M: Memory = OwnMemory> {
    transport: &'a mut MachineTransport<D, M>,
    to: Peer,
    head: RequestHeader,
    args: Words,
}

impl<D: Driver, M: Memory> PayloadWriter for Claim<'_, D, M> {
    fn len(&self) -> usize {
        self.transport.scratch.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.transport.scratch[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl<D: Driver, M: Memory> Slot for Claim<'_, D, M> {
    fn commit(self) {
        let payload = std::mem::take(&mut self.transport.scratch);
        // Room was found when it was claimed, and only this endpoint could have used it since. What is refused now
        // is for a peer that was lost meanwhile, to which messages are lost anyway.
        let _ = self.transport.medium(self.to, self.head, &self.args, &payload);
        self.transport.scratch = payload;
    }
}

impl<D: Driver, M: Memory + Clone> Membership for MachineTransport<D, M> {
    fn local_peer(&self) -> Peer {
        self.me
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn losses(&self) -> u32 {
        self.driver.losses().saturating_add(self.usable().is_err().into())
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.driver.failure().map_or_else(|| self.driver.status(peer), PeerStatus::Lost)
    }

    fn writes_no_more(&self, peer: Peer) -> bool {
        // The machine places what comes, and takes nothing more of a peer that has ended.
        self.driver.failure().is_none() && self.driver.status(peer) != PeerStatus::Active
    }

    fn is_fork(&self) -> bool {
        self.driver.failure() == Some(LossCause::Forked)
    }

    fn depart(&mut self, how: Departure) {
        self.leave(how);
    }
}

impl<D: Driver, M: Memory + Clone> Waiting for MachineTransport<D, M> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        if self.usable().is_err() {
            return;
        }
        self.driver.send_out(None);
        self.driver.idle(until, reason);
    }

    fn spins(&self) -> bool {
        self.driver.spins()
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        if self.usable().is_err() {
            return Notify::Ready;
        }
        self.driver.send_out(None);
        self.driver.notify(waker)
    }

    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn charge(&mut self, cost: Span) {
        self.driver.charge(cost);
    }
}

impl<D: Driver, M: Memory + Clone> Transport for MachineTransport<D, M> {
    type Memory = M;
    type Room = ();
    type Slot<'a>
        = Claim<'a, D, M>
    where
        Self: 'a;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        match body {
            Body::None => {
                self.usable()?;
                self.driver.short(to, head, args)
            }
            Body::Copy(payload) => self.medium(to, head, args, payload),
            Body::Place(payload, at) => self.long(to, head, args, payload, at),
        }
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, _: &Words, len: usize) -> Result<(), Refused> {
        self.usable()?;
        let room = self.driver.with(|machine, now| machine.check(now, to, head, len));
        if room.is_err() {
            self.driver.accepted();
        }
        room
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, (): ()) -> Claim<'_, D, M> {
        self.scratch.clear();
        self.scratch.resize(len, 0);
        Claim { transport: self, to, head, args: *args }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.usable()?;
        let accepted = self.driver.with(|machine, now| machine.control(now, to, args, payload));
        self.driver.accepted();
        accepted
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        if self.usable().is_err() {
            return 0;
        }
        self.driver.poll(budget, sink)
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        if self.usable().is_err() {
            let bound = self.limits.medium_reply;
            return reply(&mut NullReplyPath::new(bound, u64::MAX, key));
        }
        let result = self.driver.answer(key, reply);
        self.driver.accepted();
        result
    }

    fn flush(&mut self) {
        if self.usable().is_ok() {
            self.driver.send_out(None);
        }
    }

    fn is_quiescent(&mut self) -> bool {
        if self.usable().is_err() {
            return false;
        }
        self.driver.take_in();
        self.driver.with(|machine, _| machine.quiet())
    }

    fn segment(&self) -> &Segment<Self::Memory> {
        &self.segment
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.driver.segment_len(rank)
    }

    fn remote_segment(&self, _: Rank) -> Option<&Segment<Self::Memory>> {
        None
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        if self.usable().is_err() {
            return CreditSnapshot::default();
        }
        self.driver.look(|machine| machine.credits(peer))
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        if self.usable().is_err() {
            return Some(Owed::default());
        }
        Some(self.driver.look(|machine| machine.owed(peer)))
    }

    fn bare_credits(&self) -> u64 {
        if self.usable().is_err() {
            return 0;
        }
        self.driver.look(Machine::bare_credits)
    }
}

impl<D: Driver, M: Memory> Drop for MachineTransport<D, M> {
    fn drop(&mut self) {
        if !self.departed {
            self.leave(Departure::of_drop());
        }
    }
}
