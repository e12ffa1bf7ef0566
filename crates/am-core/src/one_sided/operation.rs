//! Operations under way: what they still wait for, and what they have brought.

use super::OneSidedError;
use super::atomic::AtomicValue;
use crate::address::{Address, Rank};
use crate::payload::Payload;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What an operation yields when it is done: nothing, the bytes of a get, or the value before an atomic.
pub trait Output: Sized {
    /// From what has come: the value of an atomic as bits, and bytes.
    #[doc(hidden)]
    fn take(value: u64, bytes: Vec<u8>) -> Self;
}

impl Output for () {
    fn take(_: u64, _: Vec<u8>) -> Self {}
}

impl Output for Vec<u8> {
    fn take(_: u64, bytes: Vec<u8>) -> Self {
        bytes
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
/// Dropped, the operation goes on by itself, and what it brings is let go.
#[must_use = "a dropped operation goes on, and nobody learns when it is done"]
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
    /// Over, since its target is gone.
    Gone(Rank),
}

impl<R> fmt::Debug for Operation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Pending { id, .. } => write!(f, "Operation({id:#x})"),
            State::Done { .. } => f.write_str("Operation(done)"),
            State::Gone(rank) => write!(f, "Operation(rank {rank} is gone)"),
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

impl<R> Drop for Operation<R> {
    fn drop(&mut self) {
        if let State::Pending { id, dropped } = &self.state {
            dropped.push(*id);
        }
    }
}

/// A wait for an operation failed; the operation can be waited for again. Becomes a [`OneSidedError`] by `?`, which lets
/// the operation go on by itself.
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
    /// The next `quiet`.
    Quiet,
    /// Nobody: its handle was dropped.
    Nobody,
}

/// One operation.
#[derive(Debug)]
struct Slot {
    /// Tells this use of the slot from others.
    generation: u32,
    target: Address,
    /// Messages that have not been answered; 0 once it is done.
    missing: u32,
    /// Whether the slot is in use.
    used: bool,
    owner: Owner,
    value: u64,
    bytes: Vec<u8>,
}

/// All operations under way of an endpoint, and those done but not yet waited for.
#[derive(Debug, Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Operations that the next `quiet` waits for.
    quiet: u32,
    pub(super) dropped: Arc<Dropped>,
}

impl Operations {
    /// Begins an operation of `parts` messages for `bytes` bytes to bring; returns its number. Allocates if more are under
    /// way than ever before.
    pub(super) fn begin(&mut self, target: Address, parts: u32, bytes: usize, owner: Owner) -> u64 {
        self.take_note();
        let index = self.free.pop().unwrap_or_else(|| {
            let bytes = Vec::new();
            self.slots.push(Slot { generation: 0, target, missing: 0, used: false, owner, value: 0, bytes });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        (slot.target, slot.missing, slot.used, slot.owner, slot.value) = (target, parts, true, owner, 0);
        slot.bytes.clear();
        slot.bytes.resize(bytes, 0);
        self.quiet += u32::from(owner == Owner::Quiet);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        (slot.used && slot.generation == (id >> 32) as u32).then_some(slot)
    }

    /// Frees the slot of an operation; what comes for it later is ignored.
    pub(super) fn end(&mut self, id: u64) -> (u64, Vec<u8>) {
        let Some(slot) = self.slot(id) else { return (0, Vec::new()) };
        (slot.used, slot.generation) = (false, slot.generation.wrapping_add(1));
        let (value, bytes, owner) = (slot.value, std::mem::take(&mut slot.bytes), slot.owner);
        self.quiet -= u32::from(owner == Owner::Quiet);
        self.free.push(id as u32);
        (value, bytes)
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
            let Some(slot) = self.slot(id) else { continue };
            slot.owner = Owner::Nobody;
            if slot.missing == 0 {
                self.end(id);
            }
        }
    }

    /// Whether an operation is done.
    pub(super) fn is_done(&mut self, id: u64) -> bool {
        self.slot(id).is_none_or(|slot| slot.missing == 0)
    }

    /// The target of an operation.
    pub(super) fn target(&mut self, id: u64) -> Option<Address> {
        self.slot(id).map(|slot| slot.target)
    }

    /// Whether the next `quiet` has nothing to wait for.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet == 0
    }

    /// An operation that no handle waits for and whose target is gone, with that, and whether `quiet` tells of it.
    pub(super) fn stranded(&mut self, gone: impl Fn(Address) -> bool) -> Option<(u64, Address, bool)> {
        self.take_note();
        let mut waiting =
            self.slots.iter().enumerate().filter(|(_, slot)| slot.used && slot.owner != Owner::Handle);
        let (index, slot) = waiting.find(|(_, slot)| gone(slot.target))?;
        Some((u64::from(slot.generation) << 32 | index as u64, slot.target, slot.owner == Owner::Quiet))
    }

    pub(super) fn under_way(&self) -> usize {
        self.slots.iter().filter(|slot| slot.used && slot.missing != 0).count()
    }
}
