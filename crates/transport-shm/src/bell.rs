//! Calling a waker when something may have come while the endpoint does not look: a thread sleeps on the endpoint's word in
//! its stead. It exists from the first [`Bell::arm`] on, and an endpoint that only polls has none and pays nothing.

use crate::job::Board;
use am_core::Peer;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, panic, thread};

/// Whom to call, and for how long at most to sleep before that.
#[derive(Debug, Default)]
struct Armed {
    waker: Option<(Waker, Duration)>,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    board: Arc<Board>,
    me: Peer,
    armed: Mutex<Armed>,
    changed: Condvar,
}

impl Shared {
    fn armed(&self) -> MutexGuard<'_, Armed> {
        // Nothing panics while it holds the lock.
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
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
            self.board.parking[self.me.index()].doze(longest);
            // Whoever was armed last is called, at times for nothing: when the longest sleep is over, a look is due.
            let waker = self.armed().waker.take();
            if let Some((waker, _)) = waker {
                // A waker that panics does so in vain, and must not keep later ones from being called.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            armed = self.armed();
        }
    }
}

/// The thread that sleeps for one endpoint.
#[derive(Debug)]
pub(crate) struct Bell {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Bell {
    /// Starts the thread.
    pub(crate) fn start(board: Arc<Board>, me: Peer) -> io::Result<Self> {
        let shared = Arc::new(Shared { board, me, armed: Mutex::default(), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("am-bell-{}", me.0)).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Some(thread), process: std::process::id() })
    }

    /// Has a waker called when the endpoint's word is no longer set, or after `longest`. To be called once the word is set and
    /// the last look has found nothing.
    pub(crate) fn arm(&self, waker: Waker, longest: Duration) {
        let earlier = self.shared.armed().waker.replace((waker, longest));
        self.shared.changed.notify_one();
        // Foreign code, so not under the lock.
        drop(earlier);
    }

    /// Whether a waker is to be called.
    pub(crate) fn is_armed(&self) -> bool {
        self.shared.armed().waker.is_some()
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
        self.shared.armed().stop = true;
        self.shared.changed.notify_one();
        self.shared.board.parking[self.shared.me.index()].rouse();
        if let Some(thread) = thread
            // A waker may drop the endpoint, on this very thread, which then ends by itself.
            && thread.thread().id() != thread::current().id()
        {
            // A panic of the thread has been told already.
            let _ = thread.join();
        }
    }
}
