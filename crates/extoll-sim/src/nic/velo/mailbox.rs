//! The mailbox of a process: a ring of 64-byte slots in its memory, as a state machine with no clock.
//!
//! The interface owns the write pointer, the process the read pointer. A message takes one to three slots; each is
//! 56 bytes of data and a status word that is written after them. The process takes a message by zeroing its
//! status words, and tells the interface how far it has read only every eight slots.

use super::status::Status;
use crate::nic::mutation::{Defects, Mutation};
use fabric_sim::bytes::PooledBytes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// The largest message.
pub(crate) const LONGEST: usize = 120;

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

/// A cache line, in the simulated machine as in the one that simulates it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    data: [u8; SLOT_DATA],
    status: u64,
}

const EMPTY: Slot = Slot { data: [0; SLOT_DATA], status: 0 };

/// Slots whose memory is taken at once.
const CHUNK: usize = 32;

type Chunk = Box<[Slot; CHUNK]>;

/// Memory of slots that are not in use, of all mailboxes of a machine: all of its slots are empty. What was read
/// last is written next, while the host's caches still have it.
#[derive(Clone, Default)]
pub(crate) struct Slots(Rc<RefCell<Vec<Chunk>>>);

impl Slots {
    fn take(&self) -> Chunk {
        self.0.borrow_mut().pop().unwrap_or_else(|| Box::new([EMPTY; CHUNK]))
    }
}

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

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// There is no complete message.
    Empty,
    /// There are messages, but none of the wanted type.
    NoMatch,
}

/// How many slots of a mailbox are valid: what a process can look at without asking its interface.
pub(crate) type Valid = Rc<Cell<u32>>;

/// The ring with both of its pointers. Positions count slots from the beginning of time.
pub(crate) struct Mailbox {
    chunks: Vec<Option<Chunk>>,
    spare: Slots,
    valid: Valid,
    capacity: u64,
    written: u64,
    /// The slots that come next: for the interface, and for the process.
    write_slot: u32,
    read_slot: u32,
    /// As far as the process has told.
    committed: u64,
    /// As far as the process has read without a gap, and what it has read beyond.
    read: u64,
    beyond: BTreeSet<u64>,
    defects: Defects,
}

impl Mailbox {
    pub(crate) fn new(segments: u32, defects: Defects, spare: &Slots, valid: &Valid) -> Self {
        valid.set(0);
        let capacity = u64::from(segments * SEGMENT_SLOTS);
        Self {
            chunks: vec![None; capacity as usize / CHUNK],
            spare: spare.clone(),
            valid: Rc::clone(valid),
            capacity,
            written: 0,
            write_slot: 0,
            read_slot: 0,
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
        // Rule 2 of the sheet: a slot is taken only once the read pointer has passed it.
        self.defects.has(Mutation::IgnoreReadPointer) || self.used() + u64::from(slots(len)) <= self.capacity
    }

    /// Claims the slots of a message and hands out the writes that put it there, in their order.
    fn claim(&mut self, status: Status, bytes: &[u8], mut write: impl FnMut(&mut Self, Store)) {
        let count = slots(bytes.len());
        for index in 0..count {
            let begin = index as usize * SLOT_DATA;
            let part = &bytes[begin.min(bytes.len())..(begin + SLOT_DATA).min(bytes.len())];
            let mut data = [0; SLOT_DATA];
            data[..part.len()].copy_from_slice(part);
            // Rule 3 of the sheet: the mark of the end is in the last slot alone.
            let end = index + 1 == count || self.defects.has(Mutation::EndEverywhere);
            let slot = self.write_slot as usize;
            self.write_slot = self.after(self.write_slot, 1);
            self.written += 1;
            let data = Store { slot, what: Written::Data(data) };
            let status = Store { slot, what: Written::Status(Status { end, ..status }.encode()) };
            // Rule 3 of the sheet: the data are written before the status.
            let order = if self.defects.has(Mutation::StatusFirst) { [status, data] } else { [data, status] };
            order.into_iter().for_each(|store| write(self, store));
        }
    }

    /// Writes a message at once.
    pub(crate) fn deposit(&mut self, status: Status, bytes: &[u8]) {
        self.claim(status, bytes, Self::store);
    }

    /// Appends the writes of a message, to be executed one by one.
    pub(crate) fn plan(&mut self, status: Status, bytes: &[u8], stores: &mut VecDeque<Store>) {
        self.claim(status, bytes, |_, store| stores.push_back(store));
    }

    /// The slot that lies so many after another; at most a round.
    #[inline]
    fn after(&self, slot: u32, count: u64) -> u32 {
        let slot = u64::from(slot) + count;
        (if slot >= self.capacity { slot - self.capacity } else { slot }) as u32
    }

    /// Executes a write.
    pub(crate) fn store(&mut self, store: Store) {
        let slot = self.slot(store.slot);
        match store.what {
            Written::Data(data) => slot.data = data,
            Written::Status(status) => {
                slot.status = status;
                self.valid.set(self.valid.get() + 1);
            }
        }
    }

    fn slot(&mut self, index: usize) -> &mut Slot {
        let Self { chunks, spare, .. } = self;
        &mut chunks[index / CHUNK].get_or_insert_with(|| spare.take())[index % CHUNK]
    }

    fn status(&self, slot: u32) -> Option<Status> {
        let chunk = self.chunks[slot as usize / CHUNK].as_ref()?;
        Status::decode(chunk[slot as usize % CHUNK].status)
    }

    /// The slots of the message that begins in a slot, if all of them are valid.
    fn complete(&self, mut slot: u32) -> Option<u64> {
        let mut count = 0;
        loop {
            count += 1;
            if self.status(slot)?.end {
                return Some(count);
            }
            slot = self.after(slot, 1);
        }
    }

    /// Takes the oldest message of a type, or of any; copies its bytes. What lies behind them in `data` is of no
    /// meaning.
    pub(crate) fn take(&mut self, mtt: Option<u8>, data: &mut [u8; LONGEST]) -> Result<Status, Nothing> {
        // Slots after the read pointer.
        let mut ahead = 0;
        let mut passed = false;
        loop {
            if !self.beyond.is_empty() && self.beyond.contains(&(self.read + ahead)) {
                ahead += 1;
                continue;
            }
            // A process that looks at its whole ring has seen everything.
            let slot = self.after(self.read_slot, ahead);
            let Some(count) = (if ahead >= self.capacity { None } else { self.complete(slot) }) else {
                return Err(if passed { Nothing::NoMatch } else { Nothing::Empty });
            };
            let status = self.status(slot).expect("a complete message has a first slot");
            if mtt.is_none_or(|mtt| mtt == status.mtt) {
                self.consume(ahead, slot, count, data);
                return Ok(status);
            }
            passed = true;
            ahead += count;
        }
    }

    fn consume(&mut self, ahead: u64, mut slot: u32, count: u64, data: &mut [u8; LONGEST]) {
        for index in 0..count {
            let found = self.slot(slot as usize);
            let begin = (index as usize * SLOT_DATA).min(LONGEST);
            let len = SLOT_DATA.min(LONGEST - begin);
            data[begin..begin + len].copy_from_slice(&found.data[..len]);
            found.status = 0;
            slot = self.after(slot, 1);
        }
        self.valid.set(self.valid.get() - count as u32);
        if ahead == 0 {
            self.pass(count);
            while self.beyond.remove(&self.read) {
                self.pass(1);
            }
        } else {
            let position = self.read + ahead;
            self.beyond.extend(position..position + count);
        }
    }

    fn pass(&mut self, count: u64) {
        let before = self.read_slot as usize / CHUNK;
        self.read += count;
        self.read_slot = self.after(self.read_slot, count);
        if before != self.read_slot as usize / CHUNK {
            // In a full ring the interface writes the next round to the same chunk already; and one that
            // overwrites what was not read leaves slots that are not empty.
            let next_round = self.read / CHUNK as u64 * CHUNK as u64 - CHUNK as u64 + self.capacity;
            if self.written <= next_round && !self.defects.has(Mutation::IgnoreReadPointer) {
                self.spare.0.borrow_mut().extend(self.chunks[before].take());
            }
        }
    }

    /// Tells the interface how far the process has read, if it has read eight slots since it told last. Returns
    /// whether it did.
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
pub(crate) struct Letter<D = PooledBytes> {
    pub(crate) tag: u8,
    pub(crate) mtt: u8,
    pub(crate) error: bool,
    pub(crate) data: D,
}

impl<D> Letter<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Letter<E> {
        let Self { tag, mtt, error, data } = self;
        Letter { tag, mtt, error, data: bytes(data) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(message: u8, len: usize) -> Status {
        Status { node: 1, vpid: 2, mtt: message % 4, end: false, error: false, tag: message, len: len as u8 }
    }

    fn bytes(message: u8, len: usize) -> Vec<u8> {
        (0..len).map(|index| message ^ index as u8).collect()
    }

    /// Looks at the mailbox after every single write.
    fn watch(defects: Defects, lens: &[usize]) -> Result<(), String> {
        let mut mailbox = Mailbox::new(1, defects, &Slots::default(), &Valid::default());
        let mut seen = 0;
        for (message, len) in lens.iter().enumerate() {
            let mut stores = VecDeque::new();
            mailbox.plan(status(message as u8, *len), &bytes(message as u8, *len), &mut stores);
            assert_eq!(stores.len() as u32, 2 * slots(*len));
            while let Some(store) = stores.pop_front() {
                mailbox.store(store);
                let mut data = [0; LONGEST];
                let Ok(found) = mailbox.take(None, &mut data) else { continue };
                mailbox.commit();
                if !stores.is_empty() {
                    return Err(format!("message {message} was there before its last write"));
                }
                if data[..*len] != bytes(message as u8, *len) || found.tag != seen {
                    return Err(format!("message {message} came as {found:?}, {data:?}"));
                }
                seen += 1;
            }
        }
        if usize::from(seen) == lens.len() { Ok(()) } else { Err("messages are missing".into()) }
    }

    #[test]
    fn messages_are_there_with_their_last_write() {
        let lens = [0, 1, 56, 57, 64, 112, 113, 120, 64, 64];
        watch(Defects::default(), &lens).unwrap();
        watch(Defects::of(Mutation::StatusFirst), &lens).unwrap_err();
        watch(Defects::of(Mutation::EndEverywhere), &lens).unwrap_err();
    }

    proptest! {
        /// Against a list: any order of arrivals and of taking by type, through many rounds of the ring.
        #[test]
        fn the_ring_is_a_list(steps in prop::collection::vec((any::<bool>(), 0usize..121, 0u8..5), 1..400)) {
            let mut mailbox = Mailbox::new(1, Defects::default(), &Slots::default(), &Valid::default());
            let mut model: Vec<(u8, usize)> = Vec::new();
            let mut message = 0u8;
            for round in 0..12 {
                for (arrives, len, mtt) in &steps {
                    if *arrives && mailbox.has_room(*len) {
                        mailbox.deposit(status(message, *len), &bytes(message, *len));
                        model.push((message, *len));
                        message = message.wrapping_add(1);
                    } else if !*arrives || round == 11 {
                        let mtt = (*mtt < 4).then_some(*mtt);
                        let found = model.iter().position(|(message, _)| mtt.is_none_or(|mtt| mtt == message % 4));
                        let mut data = [0; LONGEST];
                        match (mailbox.take(mtt, &mut data), found) {
                            (Ok(status), Some(index)) => {
                                let (message, len) = model.remove(index);
                                prop_assert_eq!(status.tag, message);
                                prop_assert_eq!(&data[..len], &bytes(message, len)[..]);
                                mailbox.commit();
                            }
                            (Err(Nothing::Empty), None) => prop_assert!(model.is_empty()),
                            (Err(Nothing::NoMatch), None) => prop_assert!(!model.is_empty()),
                            (taken, found) => prop_assert!(false, "{:?} instead of {:?}", taken, found),
                        }
                    }
                    let least: u64 = model.iter().map(|(_, len)| u64::from(slots(*len))).sum();
                    prop_assert!((least..=u64::from(SEGMENT_SLOTS)).contains(&mailbox.used()));
                }
            }
        }
    }
}
