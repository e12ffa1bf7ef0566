//! Sleeping and waking: how an endpoint that has nothing to do gives its processor away and is called back.
//!
//! Whoever wants to sleep sets its word, makes everyone fence, looks once more for work, and sleeps on the word.
//! Whoever has made work reads the word. Fencing everyone (membarrier) is what lets the senders do without a fence
//! of their own: either the sleeper's last look finds the work, or the sender's look finds the word set. Checked
//! with loom, where the fence of everyone is one fence on each side.
//!
//! The word lies in memory that every rank can write. A faulty one could clear it and so keep a sleeper from
//! being woken, which is why no sleep is longer than the endpoint says, [`LONGEST`] unless a program says
//! otherwise. The kernel's sleep for an event loop has no such end: there whoever drives the loop looks by
//! itself after that time.

#[cfg(am_loom)]
use crate::model::{View, sys};
use crate::sync::{Acquire, AtomicU32, Relaxed, Release, SeqCst, compiler_fence, fence};
#[cfg(not(am_loom))]
use crate::{region::View, sys};
use std::time::Duration;

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// The longest sleep unless a program says otherwise: after it the sleeper looks for itself. Rare enough to cost
/// nothing.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The word that one endpoint sleeps on.
#[derive(Clone, Debug)]
pub(crate) struct Parking {
    word: View<AtomicU32>,
}

impl Parking {
    pub(crate) fn new(word: View<AtomicU32>) -> Self {
        Self { word }
    }

    /// Announces sleep of at most `longest`; returns how long it may be.
    fn announce(&self, fenced: bool, longest: Duration) -> Duration {
        self.word[0].store(PARKED, SeqCst);
        let everyone = !fenced && sys::fence_everyone();
        fence(SeqCst);
        // Without membarrier, and with senders that do not know, a sleep must be short.
        if fenced || everyone { longest } else { longest.min(Duration::from_millis(1)) }
    }

    /// Announces sleep, then asks `work` for a last look; sleeps if it sees none, at most for `longest`.
    pub(crate) fn park(&self, fenced: bool, longest: Duration, work: impl FnOnce() -> bool) {
        let longest = self.announce(fenced, longest);
        if !work() {
            self.doze(longest);
        }
        self.end();
    }

    /// Announces sleep of at most `longest` for another thread of this process, which dozes in the endpoint's
    /// stead, at most for as long as this returns; `None` if the last look sees work.
    pub(crate) fn arm(&self, fenced: bool, longest: Duration, work: impl FnOnce() -> bool) -> Option<Duration> {
        let longest = self.announce(fenced, longest);
        if work() {
            self.end();
            return None;
        }
        Some(longest)
    }

    /// Announces sleep no more.
    pub(crate) fn end(&self) {
        // Relaxed: only this endpoint sets the word, and a waker that clears it a moment later is harmless.
        self.word[0].store(AWAKE, Relaxed);
    }

    /// Has the kernel sleep in the endpoint's stead while sleep is announced.
    ///
    /// # Errors
    /// As [`sys::Uring::sleep`].
    #[cfg(any(am_loom, feature = "event-loop"))]
    pub(crate) fn doze_in(&self, kernel: &mut sys::Uring) -> std::io::Result<()> {
        kernel.sleep(&self.word[0], PARKED)
    }

    /// Sleeps while sleep is announced, at most for `longest`.
    pub(crate) fn doze(&self, longest: Duration) {
        sys::futex_wait(&self.word[0], PARKED, longest);
    }

    /// Ends the sleep of whoever dozes, announced or not.
    #[cold]
    pub(crate) fn rouse(&self) {
        self.word[0].store(AWAKE, SeqCst);
        sys::futex_wake(&self.word[0]);
    }

    /// Wakes the endpoint if it sleeps or is about to. To be called after the work is visible; with `fenced`,
    /// senders fence for themselves because not everyone can be made to.
    #[inline]
    pub(crate) fn notify(&self, fenced: bool) {
        if fenced {
            fence(SeqCst);
        } else {
            // The sleeper's membarrier stands in for a fence between the caller's stores and this load; the
            // compiler must keep their order too.
            compiler_fence(SeqCst);
        }
        if self.word[0].load(Relaxed) == PARKED {
            self.wake();
        }
    }

    /// Moves whoever dozes to another word, as a faulty rank may; how many.
    #[cfg(all(test, not(am_loom), feature = "event-loop"))]
    pub(crate) fn move_sleepers(&self, to: &AtomicU32) -> i64 {
        sys::futex_requeue(&self.word[0], to)
    }

    /// Moves whoever the kernel sleeps for to another word, as a faulty rank may.
    #[cfg(all(test, am_loom))]
    pub(crate) fn move_sleepers(&self, to: &AtomicU32) {
        self.word[0].move_sleepers(to);
    }

    /// Wakes the endpoint if it sleeps.
    #[cold]
    pub(crate) fn wake(&self) {
        // Release: the woken endpoint sees what made us wake it; Acquire for symmetry with the sleeper's store.
        let parked = self.word[0].compare_exchange(PARKED, AWAKE, Release, Acquire).is_ok();
        if parked {
            sys::futex_wake(&self.word[0]);
        }
    }
}

/// Wakes all endpoints that sleep or are about to, after news that they look for have been made visible.
#[cold]
pub(crate) fn wake_all(everyone: &[Parking]) {
    // SeqCst: pairs with the fence in `park`. Whoever tells news may be a launcher, which no membarrier reaches.
    fence(SeqCst);
    everyone.iter().for_each(Parking::wake);
}
