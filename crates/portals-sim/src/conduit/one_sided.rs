//! Puts and gets directly on segments, beside active messages.
//!
//! The operation's number travels in match bits that match entries ignore, and comes back in the events that tell
//! of its progress. The local side is this rank's segment (RARSRC) or any other memory, which the registration
//! cache binds (TMPMD).

use super::codec::Target;
use super::events::Origin;
use super::firehose::{FirehoseCounters, Slot};
use super::registered::Registered;
use super::send_slots::Pieces;
use super::transport::Shared;
use super::wire::Wire;
use crate::nic::{HostMemory, Nic};
use am_core::Rank;
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
pub struct Operation {
    id: u32,
    serial: u32,
}

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

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    serial: u32,
    /// The bytes may change (put).
    left: bool,
    /// It is over at the other end (put), or here (get).
    done: bool,
    busy: bool,
    slot: Option<Slot>,
}

/// Operations under way.
#[derive(Debug)]
pub(super) struct Operations {
    ids: Pieces,
    most: u32,
    entries: Vec<Entry>,
    under_way: u32,
}

impl Operations {
    pub(super) const fn new(most: u32) -> Self {
        Self { ids: Pieces::new(most), most, entries: Vec::new(), under_way: 0 }
    }

    fn begin(&mut self, is_get: bool, slot: Option<Slot>) -> Option<Operation> {
        let id = self.ids.take(0)?;
        if self.entries.len() <= id as usize {
            self.entries.resize(id as usize + 1, Entry::default());
        }
        let entry = &mut self.entries[id as usize];
        *entry = Entry { serial: entry.serial.wrapping_add(1), left: is_get, done: false, busy: true, slot };
        self.under_way += 1;
        Some(Operation { id, serial: entry.serial })
    }

    /// Takes note of an event; returns the registration that nothing uses any more.
    fn note(&mut self, id: u32, change: impl FnOnce(&mut Entry)) -> Option<Slot> {
        let entry = self.entries.get_mut(id as usize).filter(|entry| entry.busy)?;
        change(entry);
        if !(entry.left && entry.done) {
            return None;
        }
        entry.busy = false;
        let slot = entry.slot.take();
        self.ids.give(id);
        self.under_way -= 1;
        slot
    }

    /// A put's bytes have left.
    pub(super) fn left(&mut self, bits: u64) -> Option<Slot> {
        self.note(id_of(bits), |entry| entry.left = true)
    }

    /// A put is delivered, or a get's bytes are here.
    pub(super) fn done(&mut self, bits: u64) -> Option<Slot> {
        self.note(id_of(bits), |entry| entry.done = true)
    }
}

/// The number in match bits.
const fn id_of(bits: u64) -> u32 {
    (bits >> 8) as u32
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
        self.direct.borrow().operations.under_way
    }

    /// What the registration cache has done so far.
    pub fn firehose(&self) -> FirehoseCounters {
        self.direct.borrow().registered.counters()
    }

    fn look(&self, operation: Operation, test: impl Fn(&Entry) -> bool) -> bool {
        let direct = self.direct.borrow();
        let entry = &direct.operations.entries[operation.id as usize];
        // A number is used again only after its operation was over.
        entry.serial != operation.serial || !entry.busy || test(entry)
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
        if operations.ids.left() == 0 {
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
        let operation = operations.begin(is_get, slot).ok_or(busy)?;
        let bits = u64::from(operation.id) << 8 | Target::Rar as u64;
        if is_get {
            self.wire.get_direct(rank.0, md, offset, len, at, bits);
        } else {
            self.wire.put_direct(rank.0, md, offset, len, at, bits);
        }
        Ok(operation)
    }
}

/// Whether an event of some origin is one of a put's or get's, told by its match bits.
pub(super) const fn is_direct(origin: Origin, bits: u64) -> bool {
    matches!(origin, Origin::Segment | Origin::Temporary(_)) && bits as u8 == Target::Rar as u8
}
