//! Models of calling wakers: whatever ends the announced sleep has the armed waker called, and the thread ends
//! when it is to. A call that never comes is a deadlock, which loom reports.

use super::loom_park::{cells, parking};
use super::{View, Weak, check, fails, fails_without};
use crate::calls::Calls;
use crate::park::{LONGEST, Parking};
use crate::ring::{Cell, Reader, Writer};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::task::Wake;

/// Counts calls, for an endpoint that waits for them.
struct Called(Mutex<u32>, Condvar);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        *self.0.lock().expect("no model panics while it holds the lock") += 1;
        self.1.notify_one();
    }
}

impl Called {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(0), Condvar::new()))
    }

    /// Waits for a call.
    fn wait(&self) {
        let mut calls = self.0.lock().expect("no model panics while it holds the lock");
        while *calls == 0 {
            calls = self.1.wait(calls).expect("no model panics while it holds the lock");
        }
        *calls -= 1;
    }
}

/// An endpoint, the ring that it reads, and the thread that sleeps in its stead.
struct Endpoint {
    word: Arc<Parking>,
    calls: Arc<Calls>,
    ring: View<Cell>,
    called: Arc<Called>,
}

impl Endpoint {
    fn new() -> (Self, JoinHandle<()>) {
        let endpoint =
            Self { word: parking(), calls: Arc::new(Calls::new()), ring: cells(2), called: Called::new() };
        let (calls, word) = (Arc::clone(&endpoint.calls), Arc::clone(&endpoint.word));
        (endpoint, thread::spawn(move || calls.serve(&word)))
    }

    /// A peer that sends some frames.
    fn sender(&self, frames: u32, fenced: bool) -> JoinHandle<()> {
        let (ring, word) = (self.ring.clone(), Arc::clone(&self.word));
        thread::spawn(move || {
            let mut writer = Writer::new(&ring);
            for _ in 0..frames {
                writer.push(&ring, 0x100, &[], &[]);
                word.notify(fenced);
            }
        })
    }

    /// Has the waker called, unless `work` is there.
    fn arm(&self, fenced: bool, work: impl FnOnce() -> bool) -> bool {
        let Some(longest) = self.word.arm(fenced, LONGEST, work) else { return false };
        self.calls.arm(Arc::clone(&self.called).into(), longest);
        true
    }

    /// Takes frames, and waits for a call before each look but the first.
    fn take(&self, frames: u32, fenced: bool) {
        let mut reader = Reader::new(&self.ring);
        for _ in 0..frames {
            while reader.peek(&self.ring).is_none() {
                if self.arm(fenced, || reader.peek(&self.ring).is_some()) {
                    self.called.wait();
                }
            }
            reader.advance(1);
        }
    }
}

/// A peer sends one frame; its waker is called.
fn frame(fenced: bool) -> impl Fn() + Send + Sync {
    move || {
        let (endpoint, thread) = Endpoint::new();
        let sender = endpoint.sender(1, fenced);
        endpoint.take(1, fenced);
        endpoint.calls.stop(&endpoint.word);
        sender.join().expect("the sender is done");
        thread.join().expect("the thread has ended");
    }
}

#[test]
fn a_frame_calls_the_waker() {
    check(frame(false));
    check(frame(true));
}

#[test]
fn an_endpoint_that_goes_on_is_called_again() {
    check(|| {
        let (endpoint, thread) = Endpoint::new();
        let sender = endpoint.sender(2, false);
        // The first look after arming does not wait for the call, so that the next arming finds the thread asleep
        // or at it.
        assert!(endpoint.arm(false, || false));
        endpoint.take(2, false);
        endpoint.calls.stop(&endpoint.word);
        sender.join().expect("the sender is done");
        thread.join().expect("the thread has ended");
    });
}

#[test]
fn stopping_ends_the_thread() {
    for armed in [false, true] {
        check(move || {
            let (endpoint, thread) = Endpoint::new();
            if armed {
                assert!(endpoint.arm(false, || false));
            }
            endpoint.calls.stop(&endpoint.word);
            thread.join().expect("the thread has ended");
        });
    }
}

#[test]
fn missing_fences_lose_a_call() {
    fails_without(Weak::Fences, "deadlock", frame(false));
    fails_without(Weak::Fences, "deadlock", frame(true));
}

#[test]
fn arming_without_a_last_look_loses_a_call() {
    fails("deadlock", || {
        let (endpoint, thread) = Endpoint::new();
        let sender = endpoint.sender(1, false);
        while Reader::new(&endpoint.ring).peek(&endpoint.ring).is_none() {
            assert!(endpoint.arm(false, || false));
            endpoint.called.wait();
        }
        endpoint.calls.stop(&endpoint.word);
        sender.join().expect("the sender is done");
        thread.join().expect("the thread has ended");
    });
}

#[test]
fn a_stop_that_rouses_nobody_is_found() {
    fails("deadlock", || {
        let (endpoint, thread) = Endpoint::new();
        assert!(endpoint.arm(false, || false));
        // As a stop before the thread sleeps, which then is roused too early.
        endpoint.word.rouse();
        assert!(endpoint.arm(false, || false));
        thread.join().expect("the thread has ended");
    });
}
