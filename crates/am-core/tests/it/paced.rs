//! A transport over loopback whose time passes where it idles, and whose count of losses may lag behind what it knows.

use am_core::loopback::{Loopback, LoopbackSlot};
use am_core::transport::{
    Body, CreditSnapshot, Departure, Membership, NativeOneSided, Notify, PendingKey, Refused, ReplyPath,
    RequestHeader, Sink, WaitReason, Waiting,
};
use am_core::{Instant, Limits, Peer, PeerStatus, Rank, Segment, Shape, Transport, Words};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

/// When the layer's alarm is due, where none is.
pub(crate) const NONE: u64 = u64::MAX;

/// What the test, the transport and the layer share: the time, when the alarm is due, and when it rang.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) now: AtomicU64,
    pub(crate) due: AtomicU64,
    pub(crate) rang: AtomicU64,
    pub(crate) rings: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Self::default();
        clock.due.store(NONE, SeqCst);
        Arc::new(clock)
    }

    pub(crate) fn due(&self) -> Option<u64> {
        Some(self.due.load(SeqCst)).filter(|due| *due != NONE)
    }
}

/// A loopback transport whose time passes where it idles, and only as far as it is told to.
pub(crate) struct Paced {
    pub(crate) inner: Loopback,
    pub(crate) clock: Arc<Clock>,
    pub(crate) spins: bool,
    /// Whether losses are never counted, as if each had just happened.
    pub(crate) uncounted: bool,
}

impl Membership for Paced {
    fn local_peer(&self) -> Peer {
        self.inner.local_peer()
    }
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    fn losses(&self) -> u32 {
        if self.uncounted { 0 } else { self.inner.losses() }
    }
    fn status(&self, peer: Peer) -> PeerStatus {
        self.inner.status(peer)
    }
    fn depart(&mut self, how: Departure) {
        self.inner.depart(how);
    }
}

impl Waiting for Paced {
    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        if let Some(due) = self.clock.due() {
            let until = until.expect("an alarm limits the idling").0;
            assert!(until <= due, "idling until {until}, past the alarm at {due}");
            self.clock.now.fetch_max(until, SeqCst);
        }
        thread::yield_now();
    }
    fn spins(&self) -> bool {
        self.spins
    }
    fn notify(&mut self, _: &std::task::Waker) -> Notify {
        self.clock.now.fetch_add(1_000_000, SeqCst);
        Notify::Ready
    }
    fn now(&self) -> Instant {
        Instant(self.clock.now.load(SeqCst))
    }
}

impl Transport for Paced {
    type Memory = <Loopback as Transport>::Memory;
    type Room = ();
    type Slot<'a> = LoopbackSlot<'a>;
    fn limits(&self, peer: Peer) -> &Limits {
        self.inner.limits(peer)
    }
    fn send(&mut self, to: Peer, head: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.inner.send(to, head, args, body)
    }
    fn reserve(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize) -> Result<(), Refused> {
        self.inner.reserve(to, head, args, len)
    }
    fn slot(&mut self, to: Peer, head: RequestHeader, args: &Words, len: usize, room: ()) -> LoopbackSlot<'_> {
        self.inner.slot(to, head, args, len, room)
    }
    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.inner.control(to, args, payload)
    }
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        self.inner.poll(budget, sink)
    }
    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        self.inner.reply_detached(key, reply)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn is_quiescent(&mut self) -> bool {
        self.inner.is_quiescent()
    }
    fn segment(&self) -> &Segment<Self::Memory> {
        self.inner.segment()
    }
    fn segment_len(&self, rank: Rank) -> u64 {
        self.inner.segment_len(rank)
    }
    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        self.inner.native(to)
    }
    fn credits(&self, peer: Peer) -> CreditSnapshot {
        self.inner.credits(peer)
    }
    fn bare_credits(&self) -> u64 {
        self.inner.bare_credits()
    }
}
