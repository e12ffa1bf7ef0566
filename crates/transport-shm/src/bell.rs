//! Calling a waker when something may have come while the endpoint does not look: a thread sleeps on the
//! endpoint's word in its stead. It exists from the first [`Bell::arm`] on, and an endpoint that only polls has
//! none and pays nothing.

use crate::calls::Calls;
use crate::job::Board;
use am_core::Peer;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

/// The thread that sleeps for one endpoint.
#[derive(Debug)]
pub(crate) struct Bell {
    board: Arc<Board>,
    me: Peer,
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Bell {
    /// Starts the thread.
    pub(crate) fn start(board: Arc<Board>, me: Peer) -> io::Result<Self> {
        let calls = Arc::new(Calls::new());
        let (theirs, word) = (Arc::clone(&calls), Arc::clone(&board));
        let serve = move || theirs.serve(&word.parking[me.index()]);
        let thread = thread::Builder::new().name(format!("am-bell-{}", me.0)).spawn(serve)?;
        Ok(Self { board, me, calls, thread: Some(thread), process: std::process::id() })
    }

    /// As [`Calls::arm`].
    pub(crate) fn arm(&self, waker: Waker, longest: Duration) {
        self.calls.arm(waker, longest);
    }

    /// Whether a waker is to be called.
    pub(crate) fn is_armed(&self) -> bool {
        self.calls.is_armed()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.process != std::process::id() {
            // A fork has no thread to join.
            std::mem::forget(thread);
            return;
        }
        self.calls.stop(&self.board.parking[self.me.index()]);
        if let Some(thread) = thread
            // A waker may drop the endpoint, on this very thread, which then ends by itself.
            && thread.thread().id() != thread::current().id()
        {
            // A panic of the thread has been told already.
            let _ = thread.join();
        }
    }
}
