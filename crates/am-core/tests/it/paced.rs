//! A transport over loopback whose time passes where it idles, and whose count of losses may lag behind what it
//! knows.

use am_core::loopback::{Loopback, LoopbackSlot};
use am_core::transport::{Membership, Notify, Sink, WaitReason, Waiting};
use am_core::{Instant, Transport};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
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
    /// Where the next poll meets another thread twice: when it begins, and when it may look.
    pub(crate) meeting: Mutex<Option<Arc<Barrier>>>,
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
    am_core::forward!(inner: local_peer, shape, status, depart);
    fn losses(&self) -> u32 {
        if self.uncounted { 0 } else { self.inner.losses() }
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
    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let meeting = self.clock.meeting.lock().unwrap().take();
        for _ in 0..2 {
            meeting.iter().for_each(|meeting| _ = meeting.wait());
        }
        self.inner.poll(budget, sink)
    }
    am_core::forward!(inner:
        limits, send, reserve, slot, control, reply_detached, flush, is_quiescent,
        segment, segment_len, native, credits, bare_credits,
    );
}
