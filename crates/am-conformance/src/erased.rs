//! A transport of any kind behind a trait object, so that the cases are compiled once and not for each transport
//! anew.
//!
//! [`Local`] takes every transport; [`Sendable`] can go from thread to thread. What a call costs more than on the
//! transport itself: an indirect call, and an allocation for each reserved message. Tests that count allocations
//! use the transport itself.

use crate::cases::Threaded;
use am_core::address::Shape;
use am_core::transport::{
    Arrival, Body, Completion, CreditSnapshot, Departure, Lent, LentFault, Limits, Membership, NativeOneSided,
    Notify, Owed, PeerStatus, PendingKey, Refused, ReplyPath, RequestHeader, Sink, Slot, WaitReason, Waiting,
};
use am_core::{AnyMemory, Instant, Memory, Payload, PayloadWriter, Peer, Rank, Segment};
use am_core::{SegmentError, Span, Transport, Words};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

/// A transport behind a trait object.
pub(crate) struct Erased<C: ?Sized>(Box<C>);

/// A transport of any kind.
pub(crate) type Local<'a> = Erased<dyn Carrier<Memory = LocalMemory<'a>> + 'a>;

/// A transport that can go from thread to thread.
pub(crate) type Sendable = Erased<dyn Carrier<Memory = AnyMemory> + Send>;

impl<'a> Local<'a> {
    /// Takes a transport.
    pub(crate) fn new<T: Transport + 'a>(transport: T) -> Self {
        Self(Box::new(Adapter::new(transport, |memory: &T::Memory| LocalMemory(Rc::new(memory.clone())))))
    }
}

impl Sendable {
    /// Takes a transport.
    pub(crate) fn threaded<T: Threaded>(transport: T) -> Self {
        Self(Box::new(Adapter::new(transport, |memory: &T::Memory| -> AnyMemory { Arc::new(memory.clone()) })))
    }
}

/// Memory of any kind that stays on its thread.
#[derive(Clone)]
pub(crate) struct LocalMemory<'a>(Rc<dyn Memory + 'a>);

impl Memory for LocalMemory<'_> {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn store(&self, at: usize, source: &[u8]) {
        self.0.store(at, source);
    }

    fn load(&self, at: usize, out: &mut [u8]) {
        self.0.load(at, out);
    }

    fn prefetch(&self, at: usize) {
        self.0.prefetch(at);
    }
}

/// The parts of a transport that a trait object can have as they are.
pub(crate) trait Network: Membership + Waiting {}

impl<T: Membership + Waiting> Network for T {}

/// [`Transport`] with neither type parameters nor types of the transport's own.
pub(crate) trait Carrier {
    type Memory: Memory + Clone;

    fn network(&self) -> &dyn Network;
    fn network_mut(&mut self) -> &mut dyn Network;
    fn limits(&self, peer: Peer) -> &Limits;
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused>;
    /// Takes room, which [`Carrier::slot`] turns into a slot.
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<(), Refused>;
    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> ErasedSlot<'_>;
    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused>;
    fn poll(&mut self, budget: usize, sink: &mut dyn Sink) -> usize;
    fn promising(&mut self) -> bool;
    fn round(&self) -> u32;
    /// Calls `reply` once.
    fn answer(&mut self, key: PendingKey, reply: &mut dyn FnMut(&mut dyn ReplyPath));
    fn flush(&mut self);
    fn quiet(&mut self) -> bool;
    fn segment(&self) -> &Segment<Self::Memory>;
    fn placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError>;
    fn segment_len(&self, rank: Rank) -> u64;
    fn remote_segment(&self, rank: Rank) -> Option<&Segment<Self::Memory>>;
    fn reads(&mut self, of: Peer) -> bool;
    fn read(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault>;
    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>>;
    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)>;
    fn credits(&self, peer: Peer) -> CreditSnapshot;
    fn owed(&self, peer: Peer) -> Option<Owed>;
    fn bare_credits(&self) -> u64;
}

/// A transport with its segments behind memory of kind `M`.
struct Adapter<T: Transport, M> {
    transport: T,
    erase: fn(&T::Memory) -> M,
    /// Between `reserve` and `slot`.
    room: Option<T::Room>,
    segment: Segment<M>,
    /// The segments that have been asked for, by rank.
    remote: Vec<OnceCell<Segment<M>>>,
}

impl<T: Transport, M: Memory> Adapter<T, M> {
    fn new(transport: T, erase: fn(&T::Memory) -> M) -> Self {
        let segment = transport.segment();
        let segment = Segment::new(erase(segment.memory()), segment.len());
        let remote = (0..transport.shape().ranks).map(|_| OnceCell::new()).collect();
        Self { transport, erase, room: None, segment, remote }
    }
}

impl<T: Transport, M: Memory + Clone> Carrier for Adapter<T, M> {
    type Memory = M;

    fn network(&self) -> &dyn Network {
        &self.transport
    }

    fn network_mut(&mut self) -> &mut dyn Network {
        &mut self.transport
    }

    fn limits(&self, peer: Peer) -> &Limits {
        self.transport.limits(peer)
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.transport.send(to, head, args, body)
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<(), Refused> {
        self.room = Some(self.transport.reserve(to, head, args, len)?);
        Ok(())
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> ErasedSlot<'_> {
        let room = self.room.take().expect("a slot is made of room that has just been reserved");
        ErasedSlot(Box::new(self.transport.slot(to, head, args, len, room)))
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.transport.control(to, args, payload)
    }

    fn poll(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.transport.poll(budget, &mut ErasedSink(sink))
    }

    fn promising(&mut self) -> bool {
        self.transport.may_deliver()
    }

    fn round(&self) -> u32 {
        self.transport.polls_per_sweep()
    }

    fn answer(&mut self, key: PendingKey, reply: &mut dyn FnMut(&mut dyn ReplyPath)) {
        self.transport.reply_detached(key, reply);
    }

    fn flush(&mut self) {
        self.transport.flush();
    }

    fn quiet(&mut self) -> bool {
        self.transport.is_quiescent()
    }

    fn segment(&self) -> &Segment<M> {
        &self.segment
    }

    fn placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        self.transport.read_placed(offset, out)
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.transport.segment_len(rank)
    }

    fn remote_segment(&self, rank: Rank) -> Option<&Segment<M>> {
        let segment = self.transport.remote_segment(rank)?;
        let cell = self.remote.get(rank.0 as usize)?;
        Some(cell.get_or_init(|| Segment::new((self.erase)(segment.memory()), segment.len())))
    }

    fn reads(&mut self, of: Peer) -> bool {
        self.transport.reads_lent(of)
    }

    fn read(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        self.transport.read_lent(of, lent, at, out)
    }

    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        self.transport.auxiliary(of)
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        self.transport.native(to)
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        self.transport.credits(peer)
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        self.transport.owed(peer)
    }

    fn bare_credits(&self) -> u64 {
        self.transport.bare_credits()
    }
}

/// A sink of a known type, which [`Transport::poll`] asks for.
struct ErasedSink<'a>(&'a mut dyn Sink);

impl Sink for ErasedSink<'_> {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.0.request(arrival, path);
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.0.reply(arrival);
    }

    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>) {
        self.0.control(from, args, payload);
    }

    fn completed(&mut self, completion: Completion<'_>) {
        self.0.completed(completion);
    }
}

/// [`Slot`] for trait objects.
trait BoxedSlot: PayloadWriter {
    fn commit(self: Box<Self>);
}

impl<S: Slot> BoxedSlot for S {
    fn commit(self: Box<Self>) {
        Slot::commit(*self);
    }
}

/// A reserved message of a transport of any kind.
pub(crate) struct ErasedSlot<'a>(Box<dyn BoxedSlot + 'a>);

impl PayloadWriter for ErasedSlot<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0.write(at, bytes);
    }

    fn write_u64(&mut self, index: usize, value: u64) {
        self.0.write_u64(index, value);
    }
}

impl Slot for ErasedSlot<'_> {
    fn commit(self) {
        self.0.commit();
    }
}

impl<C: Carrier + ?Sized> Membership for Erased<C> {
    fn local_peer(&self) -> Peer {
        self.0.network().local_peer()
    }

    fn shape(&self) -> Shape {
        self.0.network().shape()
    }

    fn losses(&self) -> u32 {
        self.0.network().losses()
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        self.0.network().status(peer)
    }

    fn writes_no_more(&self, peer: Peer) -> bool {
        self.0.network().writes_no_more(peer)
    }

    fn is_fork(&self) -> bool {
        self.0.network().is_fork()
    }

    fn all_depart(&mut self) {
        self.0.network_mut().all_depart();
    }

    fn depart(&mut self, how: Departure) {
        self.0.network_mut().depart(how);
    }
}

impl<C: Carrier + ?Sized> Waiting for Erased<C> {
    fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        self.0.network_mut().idle(until, reason);
    }

    fn idle_unless(&mut self, until: Option<Instant>, reason: WaitReason, changed: &mut dyn FnMut() -> bool) {
        self.0.network_mut().idle_unless(until, reason, changed);
    }

    fn wake_peer(&mut self, peer: Peer) {
        self.0.network_mut().wake_peer(peer);
    }

    fn spins(&self) -> bool {
        self.0.network().spins()
    }

    fn waker(&self) -> Option<Waker> {
        self.0.network().waker()
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        self.0.network_mut().notify(waker)
    }

    fn descriptor(&mut self) -> Option<std::os::fd::OwnedFd> {
        self.0.network_mut().descriptor()
    }

    fn notify_readable(&mut self, waker: &Waker) -> Notify {
        self.0.network_mut().notify_readable(waker)
    }

    fn end_notify(&mut self) {
        self.0.network_mut().end_notify();
    }

    fn now(&self) -> Instant {
        self.0.network().now()
    }

    fn charge(&mut self, cost: Span) {
        self.0.network_mut().charge(cost);
    }
}

impl<C: Carrier + ?Sized> Transport for Erased<C> {
    type Memory = C::Memory;
    type Room = ();
    type Slot<'a>
        = ErasedSlot<'a>
    where
        Self: 'a;

    fn limits(&self, peer: Peer) -> &Limits {
        self.0.limits(peer)
    }

    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.0.send(to, head, args, body)
    }

    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<(), Refused> {
        self.0.reserve(to, head, args, len)
    }

    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, (): ()) -> ErasedSlot<'_> {
        self.0.slot(to, head, args, len)
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.0.control(to, args, payload)
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.0.poll(budget, sink)
    }

    fn may_deliver(&mut self) -> bool {
        self.0.promising()
    }

    fn polls_per_sweep(&self) -> u32 {
        self.0.round()
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        let (mut reply, mut result) = (Some(reply), None);
        self.0.answer(key, &mut |path| result = reply.take().map(|reply| reply(path)));
        result.expect("a transport opens a detached way back once")
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn is_quiescent(&mut self) -> bool {
        self.0.quiet()
    }

    fn segment(&self) -> &Segment<C::Memory> {
        self.0.segment()
    }

    fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
        self.0.placed(offset, out)
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.0.segment_len(rank)
    }

    fn remote_segment(&self, rank: Rank) -> Option<&Segment<C::Memory>> {
        self.0.remote_segment(rank)
    }

    fn reads_lent(&mut self, of: Peer) -> bool {
        self.0.reads(of)
    }

    fn read_lent(&mut self, of: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        self.0.read(of, lent, at, out)
    }

    fn auxiliary(&self, of: Peer) -> Option<Segment<AnyMemory>> {
        self.0.auxiliary(of)
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        self.0.native(to)
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        self.0.credits(peer)
    }

    fn owed(&self, peer: Peer) -> Option<Owed> {
        self.0.owed(peer)
    }

    fn bare_credits(&self) -> u64 {
        self.0.bare_credits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use am_core::loopback::{Loopback, LoopbackConfig, network};

    /// A transport that changes what others leave as it is.
    struct Unusual {
        inner: Loopback,
    }

    impl Membership for Unusual {
        am_core::forward!(inner: local_peer, shape, losses, status, writes_no_more, is_fork, all_depart, depart);
    }

    impl Waiting for Unusual {
        am_core::forward!(inner: idle, idle_unless, wake_peer, spins, waker, now, charge);
        am_core::forward!(inner: notify, descriptor, notify_readable, end_notify);
    }

    impl Transport for Unusual {
        type Memory = <Loopback as Transport>::Memory;
        type Room = <Loopback as Transport>::Room;
        type Slot<'a>
            = <Loopback as Transport>::Slot<'a>
        where
            Self: 'a;
        am_core::forward!(inner:
            limits, send, reserve, slot, control, poll, reply_detached, flush, is_quiescent, segment, segment_len,
            remote_segment, auxiliary, native, credits, owed, bare_credits,
        );

        fn may_deliver(&mut self) -> bool {
            false
        }

        fn polls_per_sweep(&self) -> u32 {
            7
        }

        fn read_placed(&self, offset: u64, out: &mut [u8]) -> Result<(), SegmentError> {
            out.fill(offset as u8);
            Ok(())
        }

        fn reads_lent(&mut self, of: Peer) -> bool {
            of == Peer(0)
        }

        fn read_lent(&mut self, _: Peer, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
            out.fill((lent.address + at) as u8);
            Ok(())
        }
    }

    /// What transports may do in another way than most is theirs here, too.
    #[test]
    fn nothing_is_swallowed() {
        let inner = network(1, LoopbackConfig::default()).into_iter().next().expect("there is a rank");
        let mut erased = Local::new(Unusual { inner });
        assert_eq!((erased.may_deliver(), erased.polls_per_sweep()), (false, 7));
        assert_eq!((erased.reads_lent(Peer(0)), erased.reads_lent(Peer(1))), (true, false));
        let mut bytes = [0; 2];
        assert_eq!((erased.read_placed(3, &mut bytes), bytes), (Ok(()), [3; 2]));
        assert_eq!((erased.read_lent(Peer(0), &Lent::new(4, 0, 0), 5, &mut bytes), bytes), (Ok(()), [9; 2]));
    }
}
