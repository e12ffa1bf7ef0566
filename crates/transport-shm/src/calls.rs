//! Which waker to call when the sleep ends that an endpoint has announced: what the endpoint and the thread that
//! sleeps in its stead share. Checked with loom.

use crate::park::Parking;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::panic::{self, AssertUnwindSafe};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

/// Whom to call, and for how long at most to sleep before that.
#[derive(Debug)]
struct Armed {
    waker: Option<(Waker, Duration)>,
    stop: bool,
}

/// The waker to call, and the thread that waits for one.
#[derive(Debug)]
pub(crate) struct Calls {
    armed: Mutex<Armed>,
    changed: Condvar,
}

impl Calls {
    /// No waker yet.
    pub(crate) fn new() -> Self {
        Self { armed: Mutex::new(Armed { waker: None, stop: false }), changed: Condvar::new() }
    }

    fn armed(&self) -> MutexGuard<'_, Armed> {
        // Nothing panics while it holds the lock.
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a waker called when the endpoint's word is no longer set, or after `longest`. To be called once the
    /// word is set and the last look has found nothing.
    pub(crate) fn arm(&self, waker: Waker, longest: Duration) {
        let earlier = self.armed().waker.replace((waker, longest));
        self.changed.notify_one();
        // Foreign code, so not under the lock.
        drop(earlier);
    }

    /// Whether a waker is to be called.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed().waker.is_some()
    }

    /// The thread's work: sleeps on the endpoint's word whenever a waker is armed, then calls it, until
    /// [`Calls::stop`].
    pub(crate) fn serve(&self, word: &Parking) {
        let mut armed = self.armed();
        loop {
            if armed.stop {
                return;
            }
            let Some((_, longest)) = &armed.waker else {
                armed = self.changed.wait(armed).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let longest = *longest;
            drop(armed);
            word.doze(longest);
            // Whoever was armed last is called, at times for nothing: when the longest sleep is over, a look is
            // due.
            let waker = self.armed().waker.take();
            if let Some((waker, _)) = waker {
                // A waker that panics does so in vain, and must not keep later ones from being called.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            armed = self.armed();
        }
    }

    /// Ends the thread's work. The endpoint announces no more sleep.
    pub(crate) fn stop(&self, word: &Parking) {
        self.armed().stop = true;
        self.changed.notify_one();
        word.rouse();
    }
}
