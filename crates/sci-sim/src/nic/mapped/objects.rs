//! What programs hold: sessions, segments, maps, sequences, interrupts; and what a map knows of its lines.

use super::node::Peer;
use super::region::View;
use super::segment::{Local, Remote};
use crate::nic::errors::Failure;
use crate::nic::kinds::LINE;
use crate::nic::sequence::SequenceState;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// A session.
#[derive(Debug)]
pub struct Descriptor(pub(super) Arc<AtomicU32>);

/// A segment of this node.
#[derive(Debug)]
pub struct LocalSegment(pub(super) Arc<Local>);

/// A map of a segment of this node.
#[derive(Debug)]
pub struct LocalMap {
    pub(super) segment: Arc<Local>,
    pub(super) offset: usize,
    pub(super) memory: View,
}

/// A connection to a segment of another node.
#[derive(Debug)]
pub struct RemoteSegment(pub(super) Arc<Remote>);

/// A map of a connected segment.
#[derive(Debug)]
pub struct RemoteMap {
    pub(super) segment: Arc<Remote>,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) memory: View,
    pub(super) shared: Arc<Lines>,
}

/// What a map and its sequences know of its lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) sequences: AtomicU32,
    /// Whether there is a failure, so that nothing has to be locked where there never is.
    failed: AtomicU32,
    failure: Mutex<Option<Failure>>,
}

/// A map sequence.
#[derive(Debug)]
pub struct Sequence {
    pub(super) lines: Arc<Lines>,
    pub(super) peer: Arc<Peer>,
    pub(super) state: SequenceState,
}

/// An interrupt of this node.
#[derive(Debug)]
pub struct Interrupt {
    pub(super) session: Arc<AtomicU32>,
    pub(super) slot: usize,
}

/// A connection to an interrupt of another node.
#[derive(Debug)]
pub struct RemoteInterrupt {
    pub(super) peer: Arc<Peer>,
    pub(super) slot: usize,
    pub(super) mark: u64,
}

impl Lines {
    #[cold]
    pub(super) fn fail(&self, failure: Failure) {
        let mut known = self.failure.lock().expect("nobody panics with a failure in hand");
        Failure::worsen(&mut known, failure);
        self.failed.store(1, Relaxed);
    }

    #[inline]
    pub(super) fn take(&self) -> Option<Failure> {
        if self.failed.load(Relaxed) == 0 {
            return None;
        }
        self.failed.store(0, Relaxed);
        self.failure.lock().expect("nobody panics with a failure in hand").take()
    }
}

/// Lines that a range touches.
pub(super) fn lines(at: usize, len: usize) -> u64 {
    if len == 0 { 0 } else { ((at + len - 1) / LINE - at / LINE + 1) as u64 }
}
