//! A process's way to the interface of its node: what the handles of all simulated interfaces have in common.

use crate::context::Context;
use crate::device::Device;
use crate::device_context::DeviceContext;
use crate::error::WaitFor;
use crate::memory::HostMemory;
use am_core::{Instant, Span};
use std::fmt;

/// A rank's time, and its place among the processes that share its node's interface. The programming interface of
/// a simulated interface builds on it. Clones are handles to the same rank.
pub struct Handle<'a, D: Device> {
    context: Context<'a, D>,
    process: u32,
    alone: bool,
}

impl<D: Device> Clone for Handle<'_, D> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), ..*self }
    }
}

impl<D: Device> fmt::Debug for Handle<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a, D: Device> Handle<'a, D> {
    /// The handle of a rank that is the device's process of this number. It is `alone` if nobody else uses what
    /// its sending passes, so that it may run ahead there.
    pub fn new(context: Context<'a, D>, process: u32, alone: bool) -> Self {
        Self { context, process, alone }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.context.rank()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.context.ranks()
    }

    /// Which of its node's processes the rank is.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// This rank's clock, and what else the simulation offers a rank: departures, statuses.
    pub fn context(&self) -> &Context<'a, D> {
        &self.context
    }

    /// This rank's time.
    pub fn now(&self) -> Instant {
        self.context.now()
    }

    /// Lets time pass in which the processor computes. Does not suspend the rank.
    pub fn charge(&self, cost: Span) {
        self.context.charge(cost);
    }

    /// Charges for a look that found nothing. What loops without idling calls this, or its time never ends.
    pub fn charge_empty_poll(&self) {
        self.context.charge_empty_poll();
    }

    /// Lets everything happen that happens up to this rank's time.
    pub fn sync(&self) {
        self.context.sync();
    }

    /// Suspends the rank until its interface has something for it, a rank is known to be lost, or `until`;
    /// `wanted` is for deadlock reports. Returns at once if something came since the last idling.
    pub fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>) {
        self.context.idle(until, wanted);
    }

    /// Copies from memory after everything up to this rank's time has happened.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, memory: &HostMemory, at: usize, out: &mut [u8]) {
        self.sync();
        memory.read(at, out);
    }

    /// Copies to memory after everything up to this rank's time has happened, so that what the interface reads at
    /// an earlier time is what was there before.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn write(&self, memory: &HostMemory, at: usize, source: &[u8]) {
        self.sync();
        memory.write(at, source);
    }

    /// Works on the interface, as this [process](Handle::process), after everything earlier has happened.
    #[inline]
    pub fn unit<R>(&self, work: impl FnOnce(&mut D, &mut DeviceContext<'_, D::Body>, u32) -> R) -> R {
        self.context.device(|device, port| work(device, port, self.process))
    }

    /// Works on the interface as it was when it was last looked at.
    #[inline]
    pub fn seen_unit<R>(&self, work: impl FnOnce(&mut D, &mut DeviceContext<'_, D::Body>, u32) -> R) -> R {
        self.context.local(|device, port| work(device, port, self.process))
    }

    /// Works on what belongs to this rank alone. Where others use the units too, everything earlier has to happen
    /// first; otherwise only this rank uses what its sending passes, and it may run ahead.
    #[inline]
    pub fn own_unit<R>(&self, work: impl FnOnce(&mut D, &mut DeviceContext<'_, D::Body>, u32) -> R) -> R {
        if self.alone { self.seen_unit(work) } else { self.unit(work) }
    }
}
