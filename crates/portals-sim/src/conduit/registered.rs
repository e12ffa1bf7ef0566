//! Memory outside the segment: descriptors bound on demand and kept by the registration cache, and the staging
//! memory that payloads of Long messages leave from.

use super::firehose::{AllInUse, Firehose, FirehoseCounters, Found, Slot, Stretch};
use super::wire::{Descriptor, Wire};
use crate::nic::{HostMemory, Nic};
use am_core::Span;
use am_core::segment::Memory;

/// Bytes that are registered together.
pub(super) const PAGE: u64 = 4096;

/// The cache, with the descriptors that it keeps the books of.
#[derive(Debug)]
pub(super) struct Registered {
    cache: Firehose,
    bound: Vec<Option<Descriptor>>,
    /// Those of operations that may never be over.
    abandoned: Vec<Descriptor>,
    pin: Span,
}

/// Registrations that are kept aside at most.
const MOST_ABANDONED: usize = 512;

/// Bytes that a descriptor covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    pub(super) slot: Slot,
    pub(super) md: Descriptor,
    /// Where they are in the descriptor.
    pub(super) offset: u64,
}

impl Registered {
    pub(super) fn new(slots: u32, pages: u64, pin: Span) -> Self {
        Self { cache: Firehose::new(slots, pages), bound: vec![None; slots as usize], abandoned: Vec::new(), pin }
    }

    /// Registers bytes of some memory, unless they are already. The caller has checked that they are in it.
    ///
    /// # Errors
    /// [`AllInUse`] until operations end.
    pub(super) fn take(
        &mut self,
        nic: &Nic<'_>,
        wire: &Wire<'_>,
        memory: &HostMemory,
        at: u64,
        len: u64,
    ) -> Result<Covered, AllInUse> {
        let first = at / PAGE;
        let stretch = Stretch {
            memory: memory.words().as_ptr() as u64,
            first,
            end: (at + len).div_ceil(PAGE).max(first + 1),
        };
        let slot = match self.cache.take(stretch)? {
            Found::Bound(slot) => slot,
            Found::Bind(slot) => {
                while let Some(gone) = self.cache.evicted() {
                    let md = self.bound[gone.0 as usize].take();
                    wire.unbind(md.expect("what the cache lets go was bound"));
                }
                self.abandoned.retain(|md| !wire.is_unbound(*md));
                nic.charge(Span(self.pin.0 * stretch.pages()));
                let start = ((stretch.first * PAGE) as usize).min(memory.len());
                let length = ((stretch.end * PAGE) as usize).min(memory.len()) - start;
                self.bound[slot.0 as usize] = Some(wire.bind(memory, start, length, slot.0));
                slot
            }
        };
        let md = self.bound[slot.0 as usize].expect("the cache found a slot that is bound");
        let begin = self.cache.stretch(slot).expect("the slot was found").first * PAGE;
        Ok(Covered { slot, md, offset: at - begin })
    }

    /// An operation on such bytes is over.
    pub(super) fn give(&mut self, slot: Slot) {
        assert!(self.cache.give(slot), "an operation that ends was using its registration");
    }

    /// An operation on such bytes, and on no others of the registration, may never be over: the registration is
    /// kept aside until it is.
    pub(super) fn abandon(&mut self, slot: Slot) {
        if self.abandoned.len() == MOST_ABANDONED {
            // The interface has no more descriptors than that to lose. It stays in use.
            return;
        }
        assert!(self.cache.abandon(slot), "an operation that is given up was using its registration alone");
        self.abandoned.extend(self.bound[slot.0 as usize].take());
    }

    pub(super) const fn counters(&self) -> FirehoseCounters {
        self.cache.counters
    }
}

#[derive(Debug)]
struct Stage {
    memory: HostMemory,
    /// Its registration while it is in use.
    slot: Option<Slot>,
    busy: bool,
}

/// Staging memory, kept and used again.
#[derive(Debug)]
pub(super) struct Staging {
    stages: Vec<Stage>,
    most: usize,
    busy: usize,
}

impl Staging {
    pub(super) const fn new(most: u32) -> Self {
        Self { stages: Vec::new(), most: most as usize, busy: 0 }
    }

    /// Stages that can be taken.
    pub(super) const fn left(&self) -> usize {
        self.most - self.busy
    }

    /// Takes a stage of so many bytes at least; `None` while all are busy.
    pub(super) fn take(&mut self, len: usize) -> Option<(usize, HostMemory)> {
        let fitting = self.stages.iter().enumerate();
        let fitting = fitting.filter(|(_, stage)| !stage.busy && stage.memory.len() >= len);
        let index = match fitting.min_by_key(|(_, stage)| stage.memory.len()) {
            Some((index, _)) => index,
            None => {
                let memory = HostMemory::new(len.next_power_of_two().max(PAGE as usize));
                let fresh = Stage { memory, slot: None, busy: false };
                if self.stages.len() < self.most {
                    self.stages.push(fresh);
                    self.stages.len() - 1
                } else {
                    let small = self.stages.iter().position(|stage| !stage.busy)?;
                    self.stages[small] = fresh;
                    small
                }
            }
        };
        self.stages[index].busy = true;
        self.busy += 1;
        Some((index, self.stages[index].memory.clone()))
    }

    /// The stage's memory was registered.
    pub(super) fn register(&mut self, index: usize, slot: Slot) {
        self.stages[index].slot = Some(slot);
    }

    /// The memory of a stage.
    pub(super) fn memory(&self, index: usize) -> HostMemory {
        self.stages[index].memory.clone()
    }

    /// The stage is not used any more, or was not after all.
    pub(super) fn withdraw(&mut self, index: usize) {
        self.stages[index].busy = false;
        self.busy -= 1;
    }

    /// The stage is in use for ever, since its bytes may yet come from a peer that is gone; another takes its
    /// place.
    pub(super) fn abandon(&mut self, index: usize) {
        self.stages[index].memory = HostMemory::new(PAGE as usize);
        self.withdraw(index);
    }

    /// What was registered in this slot has left. Returns whether that was a stage.
    pub(super) fn left_from(&mut self, slot: Slot) -> bool {
        let found = self.stages.iter_mut().find(|stage| stage.busy && stage.slot == Some(slot));
        let known = found.is_some_and(|stage| {
            (stage.busy, stage.slot) = (false, None);
            true
        });
        self.busy -= usize::from(known);
        known
    }
}
