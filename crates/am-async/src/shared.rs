//! What the endpoint and everyone who calls through it share.

use crate::buffers;
use crate::config::CallConfig;
use crate::doorbell::Doorbell;
use crate::meter::{End, Meter};
use crate::outcome::Wakers;
use crate::room::Room;
use crate::table::Table;
use crate::trace::Tracer;
use am_core::Address;
use am_core::slab::Key;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

#[derive(Debug)]
pub(crate) struct Shared {
    table: Mutex<Table>,
    pub(crate) bell: Arc<Doorbell>,
    /// The endpoint's methods.
    pub(crate) methods: Vec<Known>,
    #[cfg(feature = "metrics")]
    pub(crate) meter: Meter,
    pub(crate) tracer: Tracer,
}

/// What callers know of a method.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) digest: u32,
    /// Bytes that a request is expected to have, for its buffer. Relaxed: an old number does no harm.
    expected: AtomicUsize,
}

impl Known {
    pub(crate) fn new(digest: u32) -> Self {
        Self { digest, expected: AtomicUsize::new(Self::UNKNOWN) }
    }

    /// No request was made yet: its buffer is one that goes round, which a new one would join.
    const UNKNOWN: usize = 1;

    /// A buffer for a request; none where no request has had any bytes.
    #[inline]
    pub(crate) fn buffer(&self) -> Vec<u8> {
        match self.expected.load(Ordering::Relaxed) {
            0 => Vec::new(),
            expected => buffers::take_for(expected),
        }
    }

    /// A request has so many bytes.
    #[inline]
    pub(crate) fn had(&self, bytes: usize) {
        let before = self.expected.load(Ordering::Relaxed);
        let expected = match (before, bytes) {
            (0 | Self::UNKNOWN, 0) => 0,
            // Once there were bytes, there may be some again: a buffer is taken for them from then on.
            _ => buffers::expect(before, bytes).max(Self::UNKNOWN + 1),
        };
        if expected != before {
            self.expected.store(expected, Ordering::Relaxed);
        }
    }
}

impl Shared {
    pub(crate) fn new(
        config: CallConfig,
        methods: Vec<Known>,
        room: &Arc<Room>,
        meter: Meter,
        tracer: Tracer,
    ) -> Self {
        let mut table = Table::new(config, Arc::clone(room), meter.clone());
        table.envelope = tracer.envelope();
        Self {
            table: Mutex::new(table),
            bell: Arc::default(),
            methods,
            #[cfg(feature = "metrics")]
            meter,
            tracer,
        }
    }

    /// The endpoint has this address.
    #[inline]
    pub(crate) fn is_at(&self, address: Address) {
        self.tracer.is_at(address);
        #[cfg(feature = "metrics")]
        self.meter.is_at(address.rank);
    }

    /// A call of a method that was counted as ended so has ended otherwise.
    #[cold]
    pub(crate) fn recount(&self, method: u16, from: End, to: End) {
        #[cfg(feature = "metrics")]
        if from != to {
            self.meter.recount(method, from, to);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (method, from, to);
    }

    /// The calls. Of the program's nothing runs while they are locked but its transport, which may be asked for
    /// the time and to send.
    #[inline]
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything that waits.
    pub(crate) fn close(&self) {
        let mut wakers = Wakers::default();
        self.table().close(&mut wakers);
        wakers.others.into_iter().for_each(Waker::wake);
    }
}

/// Tasks that can go on.
#[derive(Debug)]
pub(crate) struct Ready {
    tasks: Mutex<Vec<Key>>,
    any: AtomicBool,
    bell: Arc<Doorbell>,
}

impl Ready {
    pub(crate) fn new(bell: &Arc<Doorbell>) -> Arc<Self> {
        Arc::new(Self { tasks: Mutex::default(), any: AtomicBool::new(false), bell: Arc::clone(bell) })
    }

    fn push(&self, task: Key) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        // Release: pairs with the Acquire in `swap`, which the ring below lets happen later.
        self.any.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `push`.
        !self.any.load(Ordering::Acquire)
    }

    /// Exchanges the list with an empty one.
    pub(crate) fn swap(&self, tasks: &mut Vec<Key>) {
        if !self.is_empty() {
            let mut waiting = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::Release);
            std::mem::swap(&mut *waiting, tasks);
        }
    }
}

/// Wakes a task: the same for all tasks that have the same place one after the other.
#[derive(Debug)]
pub(crate) struct TaskWaker {
    task: Mutex<Key>,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    pub(crate) fn new(ready: &Arc<Ready>, task: Key) -> Arc<Self> {
        Arc::new(Self { task: Mutex::new(task), queued: AtomicBool::new(false), ready: Arc::clone(ready) })
    }

    /// The place has a new task, which is to be polled.
    pub(crate) fn renew(&self, task: Key) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = task;
        self.queued.store(true, Ordering::SeqCst);
        self.ready.push(task);
    }

    /// The task is about to be polled: a wake from now on queues it again.
    pub(crate) fn polled(&self) {
        self.queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) {
            let task = *self.task.lock().unwrap_or_else(PoisonError::into_inner);
            self.ready.push(task);
        }
    }
}

/// Wakes the future that an endpoint runs.
#[derive(Debug)]
pub(crate) struct Root {
    woken: AtomicBool,
    /// Woken by the endpoint. Relaxed: its own thread alone looks.
    woken_here: AtomicBool,
    shared: Arc<Shared>,
}

impl Root {
    /// Of a future that is to be polled.
    pub(crate) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        let (woken, woken_here) = (AtomicBool::new(false), AtomicBool::new(true));
        Arc::new(Self { woken, woken_here, shared: Arc::clone(shared) })
    }

    /// Whether the future is to be polled, which its caller does then.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        if self.woken_here.load(Ordering::Relaxed) {
            self.woken_here.store(false, Ordering::Relaxed);
            return true;
        }
        // Acquire: pairs with the Release of who wakes.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Has the future polled, by the endpoint's own thread, which looks at that before it sleeps.
    #[inline]
    pub(crate) fn wake_here(&self) {
        self.woken_here.store(true, Ordering::Relaxed);
    }

    /// Whether the future is to be polled.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.woken_here.load(Ordering::Relaxed) || self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the Acquire in `take`; what is awaited is there before.
        self.woken.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}
