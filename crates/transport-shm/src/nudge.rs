//! Ending an endpoint's idling from another thread of its process.

use crate::job::Board;
use am_core::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// What a waker of an endpoint refers to.
#[derive(Debug)]
pub(crate) struct Nudge {
    rung: AtomicBool,
    board: Arc<Board>,
    me: Peer,
}

impl Nudge {
    pub(crate) fn new(board: Arc<Board>, me: Peer) -> Self {
        Self { rung: AtomicBool::new(false), board, me }
    }

    /// Whether the endpoint has been nudged since the last look.
    pub(crate) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SeqCst: either the sleeper, who sets its word and then looks here, sees this, or we see its word.
        self.rung.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.board.parking[self.me.index()].wake();
    }
}
