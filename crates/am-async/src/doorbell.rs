//! The doorbell: how whoever has work for an endpoint, on any thread, tells it, and how the endpoint sleeps
//! without missing that.
//!
//! The endpoint's side enters before it looks for work and leaves when it has found no more; a leave says whether
//! the bell was rung meanwhile. A ring that comes while the endpoint is inside calls nobody: the leave sees it. A
//! ring that comes later calls the waker, which ends the endpoint's sleep. Either the leave sees the ring, or the
//! ring sees the leave: each side writes its own flag, then reads the other's, all sequentially consistent.

#[cfg(all(test, am_loom))]
use loom::sync::{Mutex, atomic::AtomicBool};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
#[cfg(not(all(test, am_loom)))]
use std::sync::{Mutex, atomic::AtomicBool};
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
}

impl Default for Doorbell {
    fn default() -> Self {
        Self { rung: AtomicBool::new(false), inside: AtomicBool::new(false), waker: Mutex::new(None) }
    }
}

impl Doorbell {
    /// Tells that there is work. To be called after the work can be seen.
    #[inline]
    pub(crate) fn ring(&self) {
        // Of several rings before the endpoint looks, the first one calls.
        let before = self.rung.swap(true, SeqCst);
        between();
        if !before && !self.inside.load(SeqCst) {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
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
