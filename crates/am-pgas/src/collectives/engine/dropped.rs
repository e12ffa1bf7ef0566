//! Operations whose handles were dropped, which may happen on any thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Operations whose handles were dropped, until the engine takes note.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    ids: Mutex<Vec<u64>>,
    any: AtomicBool,
}

impl Dropped {
    pub(crate) fn push(&self, id: u64) {
        // A panic elsewhere cannot leave the list half changed.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push(id);
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn pop(&self) -> Option<u64> {
        // Relaxed: the lock orders what matters, and the next look sees a push that this one misses.
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ids.pop();
        self.any.store(!ids.is_empty(), Ordering::Relaxed);
        id
    }
}
