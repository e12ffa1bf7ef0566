//! Operations under way: what they still wait for, and what they have brought.

use super::atomic::AtomicValue;
use super::{Failures, OneSidedError};
use crate::address::{Address, Rank};
use crate::payload::Payload;
use crate::transport::{Completion, OperationFault, Ticket};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::{FromBytes, IntoBytes};

/// What an operation yields when it is done: nothing, the values of a get, or the value before an atomic.
pub trait Output: Sized {
    /// From what has come: the value of an atomic as bits, and bytes.
    #[doc(hidden)]
    fn take(value: u64, bytes: Vec<u8>) -> Self;
}

impl Output for () {
    fn take(_: u64, _: Vec<u8>) -> Self {}
}

/// Values of any kind, copied out of the bytes unless they are bytes themselves; a rest that is no whole value is
/// let go.
impl<V: FromBytes + IntoBytes + 'static> Output for Vec<V> {
    fn take(_: u64, bytes: Vec<u8>) -> Self {
        let mut bytes = Some(bytes);
        if let Some(same) = (&mut bytes as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return same.take().unwrap_or_default();
        }
        let bytes = bytes.unwrap_or_default();
        // A size of 0 has no values; every other chunk is one.
        let size = size_of::<V>().max(1);
        let value = |bytes| V::read_from_bytes(bytes).expect("a chunk has the size of a value");
        if size_of::<V>() == 0 { Self::new() } else { bytes.chunks_exact(size).map(value).collect() }
    }
}

macro_rules! output {
    ($($value:ty)*) => {$(
        impl Output for $value {
            fn take(value: u64, _: Vec<u8>) -> Self {
                <$value as AtomicValue>::from_bits(value)
            }
        }
    )*};
}

mod values {
    use super::{AtomicValue, Output};
    output! { u32 i32 u64 i64 f32 f64 }
}

/// An operation under way. [`Endpoint::wait`](crate::Endpoint::wait) yields what it brings,
/// [`Endpoint::test`](crate::Endpoint::test) tells whether it is done.
///
/// Dropped, the operation goes on by itself, and what it brings is let go; [`Endpoint::quiet`] waits for it, too.
///
/// [`Endpoint::quiet`]: crate::Endpoint::quiet
#[must_use = "a dropped operation goes on, and nobody learns how it fared"]
pub struct Operation<R> {
    pub(super) state: State,
    output: PhantomData<fn() -> R>,
}

/// Where an operation stands.
pub(super) enum State {
    /// Done when it was started.
    Done { value: u64, bytes: Vec<u8> },
    /// Under way.
    Pending { id: u64, dropped: Arc<Dropped> },
    /// Over, since its target, or some of those of a region, have not done it.
    Failed(Failures),
}

impl<R> fmt::Debug for Operation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Pending { id, .. } => write!(f, "Operation({id:#x})"),
            State::Done { .. } => f.write_str("Operation(done)"),
            State::Failed(failures) => write!(f, "Operation({failures})"),
        }
    }
}

impl<R> Operation<R> {
    pub(super) fn done(value: u64, bytes: Vec<u8>) -> Self {
        Self { state: State::Done { value, bytes }, output: PhantomData }
    }

    pub(super) fn pending(id: u64, dropped: &Arc<Dropped>) -> Self {
        Self { state: State::Pending { id, dropped: Arc::clone(dropped) }, output: PhantomData }
    }
}

impl Operation<Vec<u8>> {
    /// The same operation, whose bytes [`Endpoint::wait`](crate::Endpoint::wait) returns as values of another
    /// type, without those that are no whole value.
    pub fn of<V: FromBytes + IntoBytes + 'static>(mut self) -> Operation<Vec<V>> {
        let taken = State::Done { value: 0, bytes: Vec::new() };
        Operation { state: std::mem::replace(&mut self.state, taken), output: PhantomData }
    }
}

impl<R> Drop for Operation<R> {
    fn drop(&mut self) {
        if let State::Pending { id, dropped } = &self.state {
            dropped.push(*id);
        }
    }
}

/// A wait for an operation failed; the operation can be waited for again. Becomes a [`OneSidedError`] by `?`,
/// which lets the operation go on by itself.
#[non_exhaustive]
pub struct Unfinished<R> {
    /// What the wait failed with.
    pub error: OneSidedError,
    /// The operation: still under way, of another endpoint, or over because its target is gone.
    pub operation: Operation<R>,
}

impl<R> fmt::Debug for Unfinished<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfinished").field("error", &self.error).field("operation", &self.operation).finish()
    }
}

impl<R> fmt::Display for Unfinished<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<R> std::error::Error for Unfinished<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<R> From<Unfinished<R>> for OneSidedError {
    fn from(unfinished: Unfinished<R>) -> Self {
        unfinished.error
    }
}

/// Operations whose handles were dropped, until the layer takes note.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    ids: Mutex<Vec<u64>>,
    any: AtomicBool,
}

impl Dropped {
    fn push(&self, id: u64) {
        // A panic elsewhere cannot leave the list half changed.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push(id);
        self.any.store(true, Ordering::Relaxed);
    }

    fn pop(&self) -> Option<u64> {
        // Relaxed: the lock orders what matters, and the next look sees a push that this one misses.
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ids.pop();
        self.any.store(!ids.is_empty(), Ordering::Relaxed);
        id
    }
}

/// Whoever learns that an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A handle.
    Handle,
    /// The next `quiet`, or the access region that is open.
    Quiet,
    /// An access region.
    Region(u64),
    /// Nobody: its handle was dropped.
    Nobody,
}

/// Bytes of a buffer that a slot keeps for its next use.
const KEPT: usize = 64 << 10;

/// One operation, or an access region.
#[derive(Debug)]
struct Slot {
    /// Tells this use of the slot from others.
    generation: u32,
    target: Address,
    /// Messages that have not been answered, and of a region its operations, and one more while it is open; 0 once
    /// it is done.
    missing: u32,
    region: bool,
    /// The target if it was found gone or refused the operation, and how; of a region, those of all its
    /// operations.
    failed: Failures,
    /// Whether the slot is in use.
    used: bool,
    /// Whether not all of it was sent, so that what was goes on alone.
    broken_off: bool,
    /// How many operations had begun before it.
    number: u64,
    owner: Owner,
    value: u64,
    bytes: Vec<u8>,
}

/// All operations under way of an endpoint, and those done but not yet waited for.
#[derive(Debug, Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// How many have begun.
    begun: u64,
    /// Operations that the next `quiet` waits for, those whose handle was dropped, and those that failed.
    quiet: u32,
    let_go: u32,
    failed: Failures,
    /// The access region that is open.
    open: Option<u64>,
    pub(super) dropped: Arc<Dropped>,
}

impl Operations {
    /// Begins an operation of `parts` messages for `bytes` bytes to bring; returns its number. Allocates if more
    /// are under way than ever before.
    pub(super) fn begin(&mut self, target: Address, parts: u32, bytes: usize, owner: Owner) -> u64 {
        self.take_note();
        let owner = match (owner, self.open) {
            (Owner::Quiet, Some(region)) => Owner::Region(region),
            (owner, _) => owner,
        };
        match owner {
            Owner::Quiet => self.quiet += 1,
            Owner::Region(region) => self.slot(region).expect("an open region has its slot").missing += 1,
            Owner::Handle | Owner::Nobody => {}
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                target,
                missing: 0,
                region: false,
                failed: Failures::default(),
                used: false,
                broken_off: false,
                number: 0,
                owner,
                value: 0,
                bytes: Vec::new(),
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        (slot.target, slot.missing, slot.used, slot.owner, slot.value) = (target, parts, true, owner, 0);
        (slot.region, slot.broken_off, slot.number) = (false, false, self.begun);
        self.begun += 1;
        slot.failed.clear();
        slot.bytes.clear();
        slot.bytes.resize(bytes, 0);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Opens an access region, or `None` if one is open.
    pub(super) fn open_region(&mut self, me: Address) -> Option<()> {
        if self.open.is_some() {
            return None;
        }
        let id = self.begin(me, 1, 0, Owner::Handle);
        self.slot(id)?.region = true;
        self.open = Some(id);
        Some(())
    }

    /// Closes the access region that is open; its number.
    pub(super) fn close_region(&mut self) -> Option<u64> {
        let id = self.open.take()?;
        self.slot(id)?.missing -= 1;
        Some(id)
    }

    /// A target of a region's operations, from the slot with this index on, and the index after it.
    pub(super) fn region_target(&self, region: u64, from: usize) -> Option<(Address, usize)> {
        let mut rest = self.slots.iter().enumerate().skip(from);
        let (index, slot) = rest.find(|(_, slot)| slot.used && slot.owner == Owner::Region(region))?;
        Some((slot.target, index + 1))
    }

    /// Takes the operation in a slot out of its region: it ends, or the next `quiet` waits for it.
    pub(super) fn leave_to_quiet(&mut self, index: usize, end: bool) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Owner::Region(region) = slot.owner else { return };
        let id = u64::from(slot.generation) << 32 | index as u64;
        if end {
            self.end(id);
            return;
        }
        slot.owner = Owner::Quiet;
        self.quiet += 1;
        self.leave_region(region);
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        (slot.used && slot.generation == (id >> 32) as u32).then_some(slot)
    }

    /// Frees the slot of an operation; what comes for it later is ignored.
    pub(super) fn end(&mut self, id: u64) -> (u64, Vec<u8>) {
        let Some(slot) = self.slot(id) else { return (0, Vec::new()) };
        let (value, bytes) = (slot.value, std::mem::take(&mut slot.bytes));
        self.free(id);
        (value, bytes)
    }

    /// Frees the slot of a get and copies out what it has brought.
    pub(super) fn end_into(&mut self, id: u64, out: &mut [u8]) {
        let Some(slot) = self.slot(id) else { return };
        if slot.bytes.len() == out.len() {
            out.copy_from_slice(&slot.bytes);
        }
        if slot.bytes.capacity() > KEPT {
            slot.bytes = Vec::new();
        }
        self.free(id);
    }

    fn free(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        (slot.used, slot.generation) = (false, slot.generation.wrapping_add(1));
        let owner = slot.owner;
        self.free.push(id as u32);
        match owner {
            Owner::Quiet => self.quiet -= 1,
            Owner::Region(region) => self.leave_region(region),
            Owner::Nobody => self.let_go -= 1,
            Owner::Handle => {}
        }
    }

    /// An operation of a region has ended; the region may have been waited for in vain before.
    fn leave_region(&mut self, region: u64) {
        let Some(slot) = self.slot(region) else { return };
        slot.missing -= 1;
        if slot.missing == 0 && slot.owner != Owner::Handle {
            self.end(region);
        }
    }

    /// Ends an operation whose target is gone; the region that it belongs to, or the next `quiet`, tells of that.
    pub(super) fn strand(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        let (owner, rank, counted) = (slot.owner, slot.target.rank, !slot.failed.is_empty());
        if !counted {
            self.tell(owner, rank, OperationFault::Gone);
        }
        self.end(id);
    }

    /// Keeps a failure of an operation until whoever waits for it asks.
    fn tell(&mut self, owner: Owner, rank: Rank, fault: OperationFault) {
        match owner {
            Owner::Quiet => self.failed.add(rank, fault),
            Owner::Region(region) => {
                self.slot(region).into_iter().for_each(|slot| slot.failed.add(rank, fault));
            }
            Owner::Handle | Owner::Nobody => {}
        }
    }

    /// What an operation, or those of a region, failed of so far.
    pub(super) fn failures(&mut self, id: u64) -> Failures {
        self.slot(id).map(|slot| slot.failed.clone()).unwrap_or_default()
    }

    /// The operations for the next `quiet` that failed. They are told once.
    pub(super) fn take_failed(&mut self) -> Failures {
        std::mem::take(&mut self.failed)
    }

    /// The network has done a part of an operation, or failed to.
    pub(super) fn part_completed(&mut self, completion: &Completion<'_>) {
        let Completion { ticket: Ticket { id, part }, outcome } = completion;
        let Some(slot) = self.slot(*id) else { return };
        let target = slot.target;
        match outcome {
            Ok(brought) if brought.bytes.is_empty() => self.part_done(target, *id, brought.value),
            Ok(brought) => self.part_got(target, *id, *part, &brought.bytes),
            Err(fault) => {
                let owner = slot.owner;
                // An operation of several parts fails once.
                if slot.failed.is_empty() {
                    slot.failed.add(target.rank, *fault);
                    self.tell(owner, target.rank, *fault);
                }
                self.part_done(target, *id, 0);
            }
        }
    }

    /// A part of an operation has been done by a rank. What any other than its target says is ignored.
    pub(super) fn part_done(&mut self, from: Address, id: u64, value: u64) {
        let Some(slot) = self.slot(id).filter(|slot| slot.target == from) else { return };
        slot.value = value;
        slot.missing = slot.missing.saturating_sub(1);
        if slot.missing == 0 && slot.owner != Owner::Handle {
            self.end(id);
        }
    }

    /// An operation under way gets one more message.
    pub(super) fn expect_more(&mut self, id: u64) {
        if let Some(slot) = self.slot(id) {
            slot.missing += 1;
        }
    }

    /// The message that an operation was begun with is no message, but kept it under way until all were sent.
    pub(super) fn all_sent(&mut self, id: u64) {
        if let Some(target) = self.slot(id).map(|slot| slot.target) {
            self.part_done(target, id, 0);
        }
    }

    /// A part of a get has brought its bytes.
    pub(super) fn part_got(&mut self, from: Address, id: u64, at: u64, bytes: &Payload<'_>) {
        let Some(slot) = self.slot(id).filter(|slot| slot.target == from) else { return };
        let room = usize::try_from(at).ok().and_then(|at| slot.bytes.get_mut(at..)?.get_mut(..bytes.len()));
        if let Some(room) = room {
            bytes.copy_to(room);
            self.part_done(from, id, 0);
        }
    }

    /// Lets those operations go on alone whose handles were dropped.
    fn take_note(&mut self) {
        while let Some(id) = self.dropped.pop() {
            self.abandon(id);
        }
    }

    /// Lets an operation go on alone: nobody is told how it fares.
    pub(super) fn abandon(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        if slot.missing == 0 {
            self.end(id);
            return;
        }
        match std::mem::replace(&mut slot.owner, Owner::Nobody) {
            Owner::Quiet => self.quiet -= 1,
            Owner::Region(region) => self.leave_region(region),
            Owner::Nobody => self.let_go -= 1,
            Owner::Handle => {}
        }
        self.let_go += 1;
    }

    /// The last message of an operation was not sent. Those before it go on alone.
    pub(super) fn break_off(&mut self, id: u64) {
        let Some(slot) = self.slot(id) else { return };
        slot.missing = slot.missing.saturating_sub(1);
        slot.broken_off = true;
        self.abandon(id);
    }

    /// How many operations have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether operations are under way that were broken off and had begun when so many had before.
    pub(super) fn has_broken_off(&self, begun: u64) -> bool {
        let broken_off = |slot: &Slot| slot.used && slot.broken_off && slot.number >= begun;
        self.let_go != 0 && self.slots.iter().any(broken_off)
    }

    /// Whether an operation is done.
    pub(super) fn is_done(&mut self, id: u64) -> bool {
        self.slot(id).is_none_or(|slot| slot.missing == 0)
    }

    /// The target of an operation, and whether it is a region, which has others.
    pub(super) fn target(&self, id: u64) -> Option<(Address, bool)> {
        let slot = self.slots.get(id as u32 as usize)?;
        (slot.used && slot.generation == (id >> 32) as u32).then_some((slot.target, slot.region))
    }

    /// Whether the next `quiet` has nothing to wait for.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.take_note();
        self.quiet == 0 && self.let_go == 0
    }

    /// An operation that no handle waits for and whose target is gone.
    pub(super) fn stranded(&mut self, gone: impl Fn(Address) -> bool) -> Option<u64> {
        self.take_note();
        let mut waiting =
            self.slots.iter().enumerate().filter(|(_, slot)| slot.used && slot.owner != Owner::Handle);
        let (index, slot) = waiting.find(|(_, slot)| gone(slot.target))?;
        Some(u64::from(slot.generation) << 32 | index as u64)
    }

    pub(super) fn under_way(&self) -> usize {
        self.slots.iter().filter(|slot| slot.used && slot.missing != 0 && !slot.region).count()
    }
}
