//! The doorbell: how whoever has work for an endpoint, on any thread, tells it, and how the endpoint sleeps without missing that.
//!
//! The endpoint's side enters before it looks for work and leaves when it has found no more; a leave says whether the bell was rung
//! meanwhile. A ring that comes while the endpoint is inside calls nobody: the leave sees it. A ring that comes later calls the waker,
//! which ends the endpoint's sleep. Either the leave sees the ring, or the ring sees the leave: each side writes its own flag, then reads
//! the other's, all sequentially consistent.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    rung: AtomicBool,
    /// Whether the endpoint looks before it sleeps.
    inside: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Doorbell {
    /// Tells that there is work. To be called after the work can be seen.
    #[inline]
    pub(crate) fn ring(&self) {
        // Of several rings before the endpoint looks, the first one calls.
        if !self.rung.swap(true, SeqCst) && !self.inside.load(SeqCst) {
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

    /// The endpoint looks no longer, unless it did before its last [`enter`](Self::enter). Whether the bell was rung meanwhile.
    #[inline]
    pub(crate) fn leave(&self, before: bool) -> bool {
        if !before {
            self.inside.store(false, SeqCst);
        }
        self.is_rung()
    }
}
