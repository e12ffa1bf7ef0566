//! Puts and gets directly on segments, beside active messages.
//!
//! The operation's number travels in match bits that match entries ignore, and comes back in the events that tell
//! of its progress. The local side is this rank's segment (RARSRC) or any other memory, which the registration
//! cache binds (TMPMD).

use super::codec::Target;
use super::events::Origin;
use super::firehose::{FirehoseCounters, Slot};
use super::native::Started;
use super::registered::Registered;
use super::transport::Shared;
use super::wire::Wire;
use crate::nic::p4::NiFail;
use crate::nic::{HostMemory, Nic};
use am_core::Rank;
use am_core::slab::{Key, Slab};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use thiserror::Error;

/// The local side of a put or get.
#[derive(Clone, Copy, Debug)]
pub enum Local<'m> {
    /// This rank's segment, from this byte on.
    Segment(u64),
    /// Other memory, from this byte on.
    Memory(&'m HostMemory, u64),
}

/// A put or get that was begun; see [`OneSided::is_done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "nothing else tells when the operation is over"]
pub struct Operation(Key);

/// A put or get that was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OneSidedError {
    /// There is no such rank.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The bytes are not all in the memory.
    #[error("{len} bytes at offset {offset} are outside the {size} bytes of the {what}")]
    OutOfRange {
        /// Which memory.
        what: &'static str,
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
        /// Size of the memory in bytes.
        size: u64,
    },
    /// Too many operations are under way: let the transport make progress, and try again.
    #[error("all {operations} operations, or all registrations, are under way")]
    Busy {
        /// Operations that can be under way.
        operations: u32,
    },
}

/// A put, get or atomic under way.
#[derive(Debug)]
struct Entry {
    /// The bytes may change (put).
    left: bool,
    /// It is over at the other end (put), or here (get).
    done: bool,
    slot: Option<Slot>,
    /// What the core is told, if it began the operation.
    native: Option<Started>,
}

/// What became free when an operation was over.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// A registration that it does not use any more.
    pub(super) slot: Option<Slot>,
    /// What the core is to be told, and whether it was done.
    pub(super) told: Option<(Started, Result<(), NiFail>)>,
    /// A stage whose bytes have left.
    pub(super) stage: Option<usize>,
}

/// Operations under way.
#[derive(Debug)]
pub(super) struct Operations {
    most: u32,
    entries: Slab<Entry>,
    /// Those that the core began.
    natives: u32,
}

impl Operations {
    pub(super) const fn new(most: u32) -> Self {
        Self { most, entries: Slab::new(), natives: 0 }
    }

    /// Operations that can be begun.
    pub(super) fn left(&self) -> u32 {
        self.most - self.under_way()
    }

    fn under_way(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Operations of the core that are under way.
    pub(super) const fn natives(&self) -> u32 {
        self.natives
    }

    /// Begins an operation, unless as many as can be are under way.
    pub(super) fn begin(&mut self, is_put: bool, slot: Option<Slot>, native: Option<Started>) -> Option<Key> {
        if self.left() == 0 {
            return None;
        }
        self.natives += u32::from(native.is_some());
        Some(self.entries.insert(Entry { left: !is_put, done: false, slot, native }))
    }

    /// Where what an atomic found comes.
    pub(super) fn found_at(&mut self, key: Key, place: u32) {
        let native = self.entries.get_mut(key).and_then(|entry| entry.native.as_mut());
        native.into_iter().for_each(|native| native.found_at(place));
    }

    /// An operation is over on one side; once it is on both, its entry is free.
    fn settle(&mut self, key: Key, told: Option<(Started, Result<(), NiFail>)>) -> Ended {
        let over = self.entries.get(key).is_some_and(|entry| entry.left && entry.done);
        let Some(entry) = over.then(|| self.entries.remove(key)).flatten() else {
            return Ended { told, ..Ended::default() };
        };
        self.natives -= u32::from(entry.native.is_some());
        let stage = entry
            .native
            .and_then(|native| native.stage)
            .filter(|_| !entry.native.is_some_and(|native| native.reports));
        Ended { slot: entry.slot, told, stage }
    }

    /// A put's bytes have left.
    pub(super) fn left_by(&mut self, bits: u64) -> Ended {
        let key = key_of(bits);
        let Some(entry) = self.entries.get_mut(key) else { return Ended::default() };
        entry.left = true;
        self.settle(key, None)
    }

    /// A put is delivered, or a get's bytes are here, or neither will ever be.
    pub(super) fn done(&mut self, bits: u64, outcome: Result<(), NiFail>) -> Ended {
        self.end(key_of(bits), Some(outcome))
    }

    fn end(&mut self, key: Key, outcome: Option<Result<(), NiFail>>) -> Ended {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.done) else { return Ended::default() };
        entry.done = true;
        let told = entry.native.zip(outcome);
        self.settle(key, told)
    }

    /// Ends the core's operations on peers that are gone, of which nothing more comes. The core is not told.
    pub(super) fn sweep(&mut self, gone: impl Fn(u32) -> bool) -> Vec<(Started, Ended)> {
        let natives = self.entries.iter().filter_map(|(key, entry)| Some((key, entry.native?)));
        let swept: Vec<_> = natives.filter(|(_, native)| gone(native.to)).collect();
        swept.into_iter().map(|(key, native)| (native, self.end(key, None))).collect()
    }
}

/// Match bits of an operation: target, place, generation.
pub(super) const fn bits_of(key: Key) -> u64 {
    let number = key.to_u64();
    number >> 32 << 24 | (number & 0xffff) << 8 | Target::Rar as u64
}

/// The operation in match bits.
const fn key_of(bits: u64) -> Key {
    Key::from_u64(bits >> 24 << 32 | bits >> 8 & 0xffff)
}

/// What one-sided operations share with the transport.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) operations: Operations,
    pub(super) registered: Registered,
}

/// A rank's puts and gets. Handles are cheap; the transport that this comes from makes their progress: poll it, or
/// its endpoint.
#[derive(Clone)]
pub struct OneSided<'a> {
    pub(super) nic: Nic<'a>,
    pub(super) wire: Wire<'a>,
    pub(super) direct: Rc<RefCell<Direct>>,
    pub(super) shared: Rc<Shared>,
}

impl fmt::Debug for OneSided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneSided").field("direct", &self.direct).finish_non_exhaustive()
    }
}

impl OneSided<'_> {
    /// Begins a put of `len` bytes to byte `at` of a rank's segment. Does not block. The local bytes may change
    /// when [`OneSided::has_left`] says so.
    ///
    /// # Errors
    /// [`OneSidedError`]; nothing was begun.
    pub fn put(&self, to: Rank, at: u64, local: Local<'_>, len: u32) -> Result<Operation, OneSidedError> {
        self.begin(to, at, local, len, false)
    }

    /// Begins a get of `len` bytes from byte `at` of a rank's segment. Does not block.
    ///
    /// # Errors
    /// [`OneSidedError`]; nothing was begun.
    pub fn get(&self, from: Rank, at: u64, local: Local<'_>, len: u32) -> Result<Operation, OneSidedError> {
        self.begin(from, at, local, len, true)
    }

    /// Whether a put is in its destination's segment, or a get's bytes are here.
    pub fn is_done(&self, operation: Operation) -> bool {
        self.look(operation, |entry| entry.done)
    }

    /// Whether the local bytes of a put may change.
    pub fn has_left(&self, operation: Operation) -> bool {
        self.look(operation, |entry| entry.left)
    }

    /// Operations that are not over.
    pub fn under_way(&self) -> u32 {
        self.direct.borrow().operations.under_way()
    }

    /// What the registration cache has done so far.
    pub fn firehose(&self) -> FirehoseCounters {
        self.direct.borrow().registered.counters()
    }

    fn look(&self, operation: Operation, test: impl Fn(&Entry) -> bool) -> bool {
        self.direct.borrow().operations.entries.get(operation.0).is_none_or(test)
    }

    fn begin(
        &self,
        rank: Rank,
        at: u64,
        local: Local<'_>,
        len: u32,
        is_get: bool,
    ) -> Result<Operation, OneSidedError> {
        let (ranks, segment) = (self.nic.ranks(), self.shared.config.segment);
        if rank.0 >= ranks {
            return Err(OneSidedError::UnknownRank { rank: rank.0, ranks });
        }
        let inside = |what, offset: u64, size: u64| match offset.checked_add(len.into()) {
            Some(end) if end <= size => Ok(()),
            _ => Err(OneSidedError::OutOfRange { what, offset, len, size }),
        };
        inside("segment", at, segment)?;
        let mut direct = self.direct.borrow_mut();
        let Direct { operations, registered } = &mut *direct;
        let busy = OneSidedError::Busy { operations: operations.most };
        if operations.left() == 0 {
            return Err(busy);
        }
        let (md, offset, slot) = match local {
            Local::Segment(offset) => {
                inside("segment", offset, segment)?;
                (None, offset, None)
            }
            Local::Memory(memory, offset) => {
                inside("memory", offset, memory.len() as u64)?;
                let covered = registered.take(&self.nic, &self.wire, memory, offset, len.into());
                let covered = covered.map_err(|_| busy)?;
                (Some(covered.md), covered.offset, Some(covered.slot))
            }
        };
        let key = operations.begin(!is_get, slot, None).ok_or(busy)?;
        let bits = bits_of(key);
        if is_get {
            self.wire.get_direct(rank.0, md, offset, len, at, bits);
        } else {
            self.wire.put_direct(rank.0, md, offset, len, at, bits, true);
        }
        Ok(Operation(key))
    }
}

/// Whether an event of some origin is one of a put's or get's, told by its match bits.
pub(super) const fn is_direct(origin: Origin, bits: u64) -> bool {
    matches!(origin, Origin::Segment | Origin::Temporary(_)) && bits as u8 == Target::Rar as u8
}
