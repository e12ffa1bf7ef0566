//! A child of a process whose drivers sleep has no thread that wakes it up, and starts its own.

use crate::support::attach;
use am_async::{CallConfig, drive};
use am_core::Span;
use am_core::loopback::single;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives an endpoint of its own until a sleep is over, in this thread alone.
fn sleep(span: Span) {
    let (caller, driver) = drive(attach(single(), CallConfig::default()).0);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let (mut driver, mut sleep) = (pin!(driver), pin!(caller.sleep(span)));
    while sleep.as_mut().poll(&mut context).is_pending() {
        assert!(matches!(driver.as_mut().poll(&mut context), Poll::Pending));
        std::thread::park();
    }
}

#[test]
fn a_child_has_a_thread_of_its_own() {
    let (begin, begun) = std::sync::mpsc::channel();
    // The parent's thread is there, and has somebody to wake up for the whole test.
    let other = std::thread::spawn(move || {
        begin.send(()).unwrap();
        sleep(Span::from_millis(900));
    });
    begun.recv().unwrap();
    sleep(Span::from_millis(5));
    // It sleeps again, and holds no lock.
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: the child of this program with several threads uses an endpoint that it makes itself, and exits.
    // The one lock that it has in common with its parent is free while all who sleep do. The C library keeps its
    // allocator usable in children.
    match unsafe { fork() }.expect("a process may fork") {
        ForkResult::Child => {
            // A child that nobody wakes up is ended, which the parent sees.
            alarm::set(60);
            sleep(Span::from_millis(5));
            std::process::exit(0);
        }
        ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
    }
    other.join().unwrap();
}
