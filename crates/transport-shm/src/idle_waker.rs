//! Ending an endpoint's idling from another thread of its process.

use crate::job::Board;
use am_core::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// What a waker of an endpoint refers to.
#[derive(Debug)]
pub(crate) struct IdleWaker {
    woken: AtomicBool,
    board: Arc<Board>,
    me: Peer,
}

impl IdleWaker {
    pub(crate) fn new(board: Arc<Board>, me: Peer) -> Self {
        Self { woken: AtomicBool::new(false), board, me }
    }

    /// Whether the endpoint has been woken since the last look.
    pub(crate) fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // SeqCst: either the sleeper, who sets its word and then looks here, sees this, or we see its word.
        self.woken.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.board.parking[self.me.index()].wake();
    }
}
