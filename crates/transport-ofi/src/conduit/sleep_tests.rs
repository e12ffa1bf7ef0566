//! Waiting over a wire with a descriptor, on which nothing happens until a test says so.

use super::{Conduit, Settings};
use crate::memory::OfiMemory;
use crate::wire::{Event, Fault, Receipt, Sizes, Wire};
use am_core::transport::{Notify, WaitReason, Waiting};
use am_core::{Peer, Segment, Shape, Span};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::time::Duration;

/// What a test sees of the wire, and what it has it do.
#[derive(Default)]
struct Seen {
    polls: AtomicU32,
    breaks: AtomicBool,
}

/// A wire on which nothing arrives; it breaks when its other end is written to and the test wants it to.
struct Still {
    end: UnixStream,
    descriptor: Arc<OwnedFd>,
    seen: Arc<Seen>,
}

impl Wire for Still {
    fn sizes(&self) -> Sizes {
        Sizes { frames: 2, frame_bytes: 256, chunks: 1, chunk_bytes: 4096, slots: 0, slot_bytes: 256, inject: 0 }
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        unreachable!("nothing is sent")
    }

    fn send(&mut self, _: u32, _: u32, _: usize) -> Result<(), Fault> {
        Err(Fault::Again)
    }

    fn inject(&mut self, _: u32, _: u32, _: usize) -> Result<(), Fault> {
        Err(Fault::Again)
    }

    fn write(&mut self, _: u32, _: u32, _: usize, _: u64) -> Result<(), Fault> {
        Err(Fault::Again)
    }

    fn read(&mut self, _: u32, _: u32, _: usize, _: u64) -> Result<(), Fault> {
        Err(Fault::Again)
    }

    fn post(&mut self, _: u32) -> Result<(), Fault> {
        Ok(())
    }

    fn arrived(&self, _: &Receipt) -> &[u8] {
        unreachable!("nothing arrives")
    }

    fn poll(&mut self, _: &mut Vec<Event>) -> Result<(), i32> {
        self.seen.polls.fetch_add(1, SeqCst);
        let read = self.end.read(&mut [0; 8]).unwrap_or(0);
        if read != 0 && self.seen.breaks.load(SeqCst) { Err(5) } else { Ok(()) }
    }

    fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        Some(Arc::clone(&self.descriptor))
    }

    fn may_sleep(&mut self) -> bool {
        true
    }
}

/// An endpoint over such a wire, the wire's other end, and what is seen of it.
fn still() -> (Conduit<Still>, UnixStream, Arc<Seen>) {
    let (end, far) = UnixStream::pair().unwrap();
    end.set_nonblocking(true).unwrap();
    let (descriptor, seen) = (Arc::new(end.as_fd().try_clone_to_owned().unwrap()), Arc::new(Seen::default()));
    let settings = Settings {
        me: Peer(0),
        shape: Shape::new(2),
        tag: 1,
        window: 1,
        medium: 64,
        segments: vec![64; 2],
        linger: Span::ZERO,
        backoff: Span::from_secs(1),
    };
    let segment = Segment::new(OfiMemory::new(64).unwrap(), 64);
    let wire = Still { end, descriptor, seen: Arc::clone(&seen) };
    (Conduit::new(wire, settings, segment).unwrap(), far, seen)
}

fn wait_for(conduit: &mut Conduit<Still>, span: Span) {
    let until = conduit.now() + span;
    while conduit.now() < until {
        conduit.idle(Some(until), WaitReason::Message);
    }
}

/// A sleep ends every 20 ms; without the descriptor there are hundreds of looks in this time.
#[test]
fn a_rank_that_waits_sleeps() {
    let (mut conduit, mut far, seen) = still();
    // Past spinning and yielding.
    wait_for(&mut conduit, Span::from_millis(2));
    seen.polls.store(0, SeqCst);
    wait_for(&mut conduit, Span::from_millis(200));
    assert!(seen.polls.load(SeqCst) < 200, "{} looks", seen.polls.load(SeqCst));
    // What comes ends a sleep that would have taken an hour together with others.
    seen.breaks.store(true, SeqCst);
    far.write_all(b"a").unwrap();
    while !conduit.lock().broken {
        let until = conduit.now() + Span::from_secs(3600);
        conduit.idle(Some(until), WaitReason::Message);
    }
}

/// A program that computes after a wait is one that the helper looks for.
#[test]
fn a_program_that_goes_on_sleeps_no_longer() {
    let (conduit, _far, seen) = still();
    let mut conduit = conduit.with_helper(Duration::from_millis(2)).unwrap();
    wait_for(&mut conduit, Span::from_millis(60));
    // The wait is over without a poll, as one is that a flag ends; the program sends, and computes.
    drop(conduit.lock());
    seen.polls.store(0, SeqCst);
    while seen.polls.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It would say that it leaves.
    std::mem::forget(conduit);
}

struct Tell(mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// The helper looks when something has come; it would look every 100 us without the descriptor.
#[test]
fn the_helper_sleeps_and_calls() {
    let (conduit, mut far, seen) = still();
    let mut conduit = conduit.with_helper(Duration::from_millis(2)).unwrap();
    let (tell, told) = mpsc::channel();
    assert_eq!(conduit.notify(&Waker::from(Arc::new(Tell(tell)))), Notify::Armed);
    assert!(told.recv_timeout(Duration::from_millis(200)).is_err());
    assert!(seen.polls.load(SeqCst) < 60, "{} looks", seen.polls.load(SeqCst));
    seen.breaks.store(true, SeqCst);
    far.write_all(b"a").unwrap();
    told.recv().expect("the helper calls");
}
