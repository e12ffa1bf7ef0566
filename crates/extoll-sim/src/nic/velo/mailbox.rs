//! The mailbox of a process: a ring of 64-byte slots in its memory, as a state machine with no clock.
//!
//! The interface owns the write pointer, the process the read pointer. A message takes one to three slots; each is 56 bytes
//! of data and a status word that is written after them. The process takes a message by zeroing its status words, and tells
//! the interface how far it has read only every eight slots.

use super::status::Status;
use crate::nic::bytes::{Bytes, INLINE};
use crate::nic::mutation::{Defects, Mutation};
use std::collections::{BTreeSet, VecDeque};

/// Bytes of data in a slot.
pub const SLOT_DATA: usize = 56;

/// Slots in a segment of 64 KB.
pub const SEGMENT_SLOTS: u32 = 1024;

/// Slots that the process reads before it commits the read pointer.
pub const COMMIT_EVERY: u64 = 8;

/// Slots of a message: up to 56 bytes one, up to 112 two, else three. A 64-byte packet takes two.
pub const fn slots(len: usize) -> u32 {
    match len {
        0..=56 => 1,
        57..=112 => 2,
        _ => 3,
    }
}

#[derive(Clone, Copy)]
struct Slot {
    data: [u8; SLOT_DATA],
    status: u64,
}

const EMPTY: Slot = Slot { data: [0; SLOT_DATA], status: 0 };

/// Slots whose memory is taken at once.
const CHUNK: usize = 32;

/// One write of the interface to the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    slot: usize,
    what: Written,
}

#[derive(Clone, Copy, Debug)]
enum Written {
    Data([u8; SLOT_DATA]),
    Status(u64),
}

/// A message as it lies in the mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) status: Status,
    pub(crate) data: [u8; INLINE],
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// There is no complete message.
    Empty,
    /// There are messages, but none of the wanted type.
    NoMatch,
}

/// The ring with both of its pointers. Positions count slots from the beginning of time.
pub(crate) struct Mailbox {
    chunks: Vec<Option<Box<[Slot; CHUNK]>>>,
    capacity: u64,
    written: u64,
    /// As far as the process has told.
    committed: u64,
    /// As far as the process has read without a gap, and what it has read beyond.
    read: u64,
    beyond: BTreeSet<u64>,
    defects: Defects,
}

impl Mailbox {
    pub(crate) fn new(segments: u32, defects: Defects) -> Self {
        let capacity = u64::from(segments * SEGMENT_SLOTS);
        Self {
            chunks: vec![None; capacity as usize / CHUNK],
            capacity,
            written: 0,
            committed: 0,
            read: 0,
            beyond: BTreeSet::new(),
            defects,
        }
    }

    /// Slots that are taken, as far as the interface knows.
    pub(crate) fn used(&self) -> u64 {
        self.written - self.committed
    }

    /// Whether a message of this length finds room.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.defects.has(Mutation::IgnoreReadPointer) || self.used() + u64::from(slots(len)) <= self.capacity
    }

    /// Claims the slots of a message and appends the writes that put it there, in their order.
    pub(crate) fn claim(&mut self, status: Status, bytes: &[u8], stores: &mut VecDeque<Store>) {
        let count = slots(bytes.len());
        for index in 0..count {
            let begin = index as usize * SLOT_DATA;
            let part = &bytes[begin.min(bytes.len())..(begin + SLOT_DATA).min(bytes.len())];
            let mut data = [0; SLOT_DATA];
            data[..part.len()].copy_from_slice(part);
            let end = index + 1 == count || self.defects.has(Mutation::EndEverywhere);
            let slot = (self.written % self.capacity) as usize;
            self.written += 1;
            let data = Store { slot, what: Written::Data(data) };
            let status = Store { slot, what: Written::Status(Status { end, ..status }.encode()) };
            stores.extend(if self.defects.has(Mutation::StatusFirst) { [status, data] } else { [data, status] });
        }
    }

    /// Executes a write.
    pub(crate) fn store(&mut self, store: Store) {
        let slot = self.slot(store.slot);
        match store.what {
            Written::Data(data) => slot.data = data,
            Written::Status(status) => slot.status = status,
        }
    }

    fn slot(&mut self, index: usize) -> &mut Slot {
        &mut self.chunks[index / CHUNK].get_or_insert_with(|| Box::new([EMPTY; CHUNK]))[index % CHUNK]
    }

    fn status(&self, position: u64) -> Option<Status> {
        let index = (position % self.capacity) as usize;
        let chunk = self.chunks[index / CHUNK].as_ref()?;
        Status::decode(chunk[index % CHUNK].status)
    }

    /// The slots of the message that begins at a position, if all of them are valid.
    fn complete(&self, position: u64) -> Option<u64> {
        let mut count = 0;
        loop {
            let status = self.status(position + count)?;
            count += 1;
            if status.end {
                return Some(count);
            }
        }
    }

    /// Takes the oldest message of a type, or of any.
    pub(crate) fn take(&mut self, mtt: Option<u8>) -> Result<Taken, Nothing> {
        let mut position = self.read;
        let mut passed = false;
        loop {
            if self.beyond.contains(&position) {
                position += 1;
                continue;
            }
            // A process that looks at its whole ring has seen everything.
            let round = position - self.read >= self.capacity;
            let Some(count) = (if round { None } else { self.complete(position) }) else {
                return Err(if passed { Nothing::NoMatch } else { Nothing::Empty });
            };
            let status = self.status(position).expect("a complete message has a first slot");
            if mtt.is_none_or(|mtt| mtt == status.mtt) {
                return Ok(self.consume(position, count, status));
            }
            passed = true;
            position += count;
        }
    }

    fn consume(&mut self, position: u64, count: u64, status: Status) -> Taken {
        let mut data = [0; INLINE];
        for index in 0..count {
            let slot = self.slot(((position + index) % self.capacity) as usize);
            let begin = index as usize * SLOT_DATA;
            let len = SLOT_DATA.min(INLINE.saturating_sub(begin));
            data[begin.min(INLINE)..][..len].copy_from_slice(&slot.data[..len]);
            slot.status = 0;
        }
        if position == self.read {
            self.read += count;
            while self.beyond.remove(&self.read) {
                self.read += 1;
            }
        } else {
            self.beyond.extend(position..position + count);
        }
        Taken { status, data }
    }

    /// Tells the interface how far the process has read, if it has read eight slots since it told last. Returns whether it
    /// did.
    pub(crate) fn commit(&mut self) -> bool {
        let due = self.read - self.committed >= COMMIT_EVERY;
        if due {
            self.committed = self.read;
        }
        due
    }
}

/// A message on its way to a mailbox.
#[derive(Clone)]
pub(crate) struct Letter {
    pub(crate) tag: u8,
    pub(crate) mtt: u8,
    pub(crate) error: bool,
    pub(crate) data: Bytes,
}
