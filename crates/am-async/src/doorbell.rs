//! The doorbell: how whoever has work for an endpoint, on any thread, tells it, and how the endpoint sleeps
//! without missing that.
//!
//! The endpoint's side enters before it looks for work and leaves when it has found no more; a leave says whether
//! the bell was rung meanwhile. A ring that comes while the endpoint is inside calls nobody: the leave sees it. A
//! ring that comes later calls the waker, which ends the endpoint's sleep. Either the leave sees the ring, or the
//! ring sees the leave: each side writes its own flag, then reads the other's, all sequentially consistent.
//!
//! What the endpoint's own future rings for, on the thread that polls it, takes neither: a [`Polling`] sees it.

#[cfg(all(test, am_loom))]
use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
#[cfg(not(all(test, am_loom)))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};
use std::task::Waker;

/// Between a side's write and its look at the other's: sequentially consistent accesses need nothing there, but
/// loom knows sequential consistency of fences alone.
#[inline(always)]
fn between() {
    #[cfg(all(test, am_loom))]
    loom::sync::atomic::fence(SeqCst);
}

#[derive(Debug)]
pub(crate) struct Doorbell {
    rung: AtomicBool,
    /// Whether the endpoint looks before it sleeps.
    inside: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Whether the future that the endpoint polls has rung. Relaxed: only the thread that polls it looks.
    rung_by_poll: AtomicBool,
    /// Polls of the endpoint's future. Relaxed: one thread at a time polls it.
    polls: AtomicU64,
}

impl Default for Doorbell {
    fn default() -> Self {
        let [rung, inside, rung_by_poll] = std::array::from_fn(|_| AtomicBool::new(false));
        Self { rung, inside, waker: Mutex::new(None), rung_by_poll, polls: AtomicU64::new(0) }
    }
}

/// A poll of a future by its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Polled {
    /// Tells the endpoint's bell from others, and the future's waker.
    bell: usize,
    waker: usize,
    /// Which of the endpoint's polls it is, from 1 on.
    number: u64,
}

impl Polled {
    const NONE: Self = Self { bell: 0, waker: 0, number: 0 };
}

thread_local! {
    /// What this thread polls.
    static POLLED: Cell<Polled> = const { Cell::new(Polled::NONE) };
}

/// The poll of a future by the endpoint of a bell.
pub(crate) struct Polling<'a>(&'a Doorbell);

impl Polling<'_> {
    /// Whether the future has rung.
    #[inline]
    pub(crate) fn rang(&self) -> bool {
        let rang = self.0.rung_by_poll.load(Relaxed);
        if rang {
            self.0.rung_by_poll.store(false, Relaxed);
        }
        rang
    }
}

impl Drop for Polling<'_> {
    #[inline]
    fn drop(&mut self) {
        // Not what was there before: a poll that this one interrupts may have ended since, and rings are heard
        // without this, too.
        POLLED.set(Polled::NONE);
        if self.rang() {
            self.0.ring();
        }
    }
}

impl Doorbell {
    /// Tells that there is work. To be called after the work can be seen.
    #[inline]
    pub(crate) fn ring(&self) {
        if POLLED.get().bell == self.name() {
            self.rung_by_poll.store(true, Relaxed);
            return;
        }
        // Of several rings before the endpoint looks, the first one calls.
        let before = self.rung.swap(true, SeqCst);
        between();
        if !before && !self.inside.load(SeqCst) {
            self.call();
        }
    }

    /// The endpoint polls its future, on this thread, until what is returned is dropped.
    #[inline]
    pub(crate) fn poll(&self, waker: &Waker) -> Polling<'_> {
        let number = self.polls.load(Relaxed) + 1;
        self.polls.store(number, Relaxed);
        POLLED.set(Polled { bell: self.name(), waker: waker.data().addr(), number });
        Polling(self)
    }

    /// Tells bells apart while they are there.
    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Which poll of the endpoint's future this thread is in, 0 if in none. Nothing that the endpoint does happens
    /// during a poll.
    #[inline]
    pub(crate) fn current_poll(&self) -> u64 {
        let polled = POLLED.get();
        if polled.bell == self.name() { polled.number } else { 0 }
    }

    /// Whether this thread is in this poll of the endpoint's future, whose waker this is.
    #[inline]
    pub(crate) fn is_polled(&self, number: u64, waker: &Waker) -> bool {
        number != 0 && POLLED.get() == Polled { bell: self.name(), waker: waker.data().addr(), number }
    }

    /// Calls the waker.
    #[cold]
    pub(crate) fn call(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Who is called from now on.
    pub(crate) fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = waker;
    }

    /// The endpoint looks for work from now on. Returns whether it was inside before.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.inside.swap(true, SeqCst)
    }

    /// Whether the bell was rung since this was last asked. To be called before looking for the work.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.rung.load(SeqCst) && self.rung.swap(false, SeqCst)
    }

    /// Whether the bell was rung.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(SeqCst)
    }

    /// The endpoint looks no longer, unless it did before its last [`enter`](Self::enter). Whether the bell was
    /// rung meanwhile.
    #[inline]
    pub(crate) fn leave(&self, before: bool) -> bool {
        if !before {
            self.inside.store(false, SeqCst);
        }
        between();
        self.is_rung()
    }
}

/// `RUSTFLAGS="--cfg am_loom" cargo test --release -p active-messages-async --lib --target-dir target/loom loom`
#[cfg(all(test, am_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;
    use std::task::Wake;

    /// A sleep that a call ends, also one that comes before it: what a transport's waker does.
    struct Bed {
        called: Mutex<bool>,
        changed: Condvar,
    }

    impl Bed {
        fn new() -> Arc<Self> {
            Arc::new(Self { called: Mutex::new(false), changed: Condvar::new() })
        }

        /// Sleeps until a call; nothing else ends it, so that loom finds whoever is not called.
        fn sleep(&self) {
            let mut called = self.called.lock().unwrap();
            while !std::mem::take(&mut *called) {
                called = self.changed.wait(called).unwrap();
            }
        }
    }

    impl Wake for Bed {
        fn wake(self: Arc<Self>) {
            *self.called.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    /// The endpoint's side: looks for work, sleeps when there is none and nobody rang, and goes on until `due`
    /// items are done.
    fn serve(bell: &Doorbell, bed: &Bed, work: &AtomicU32, due: u32) {
        let mut done = 0;
        while done < due {
            let before = bell.enter();
            bell.take();
            done += work.swap(0, SeqCst);
            if bell.leave(before) || done == due {
                continue;
            }
            bed.sleep();
        }
    }

    fn check(ringers: u32, rings: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let (bell, bed, work) = (Arc::new(Doorbell::default()), Bed::new(), Arc::new(AtomicU32::new(0)));
            bell.set_waker(Some(Arc::clone(&bed).into()));
            let threads: Vec<_> = (0..ringers)
                .map(|_| {
                    let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
                    loom::thread::spawn(move || {
                        for _ in 0..rings {
                            work.fetch_add(1, SeqCst);
                            bell.ring();
                        }
                    })
                })
                .collect();
            serve(&bell, &bed, &work, ringers * rings);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn loom_no_ring_is_missed() {
        check(1, 2);
    }

    #[test]
    fn loom_no_ring_of_two_callers_is_missed() {
        check(2, 1);
    }
}
