//! A rank's handle to its node's interface and to virtual time.

use super::address::Address;
use super::channel::Wire;
use super::device::{Counters, Extoll, Shared};
use super::memory::HostMemory;
use super::rma::Rma;
use super::velo::Velo;
use super::velo::mailbox::Valid;
use crate::model::{Costs, Parameters};
use am_core::{Instant, Span};
use fabric_sim::{Context, Port, WaitFor};
use std::fmt;
use std::rc::Rc;

/// What a rank's program gets from [`run`](crate::run): its interface and its time. Clones are handles to the same rank.
#[derive(Clone)]
pub struct Nic<'a> {
    context: Context<'a, Extoll>,
    shared: Rc<Shared>,
    /// Which of its node's processes the rank is.
    local: u32,
    /// No other rank shares its interface, and no packet is lost.
    alone: bool,
    /// How many slots of its mailbox are valid.
    valid: Valid,
}

impl fmt::Debug for Nic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Nic<'a> {
    pub(crate) fn new(context: Context<'a, Extoll>, shared: Rc<Shared>) -> Self {
        let address = shared.directory.address(context.rank()).expect("every rank has its place in the machine");
        let alone = !shared.lossy && shared.directory.processes(address.node) == 1;
        let local = u32::from(address.vpid);
        let valid = context.local(|device, _| device.processes[local as usize].post.valid.clone());
        Self { context, shared, local, alone, valid }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.context.rank()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.context.ranks()
    }

    /// Where a rank is; `None` outside the job.
    pub fn address(&self, rank: u32) -> Option<Address> {
        self.shared.directory.address(rank)
    }

    /// The rank at an address, if there is one.
    pub fn rank_at(&self, address: Address) -> Option<u32> {
        self.shared.directory.rank(address)
    }

    /// The VELO unit.
    pub fn velo(&self) -> Velo<'a> {
        Velo { nic: self.clone() }
    }

    /// The RMA unit.
    pub fn rma(&self) -> Rma<'a> {
        Rma { nic: self.clone() }
    }

    /// The machine's parameter table.
    pub fn parameters(&self) -> &Parameters {
        &self.shared.parameters
    }

    /// What the interface of this rank's node has counted so far.
    pub fn counters(&self) -> Counters {
        self.context.device(|device, _| device.counters())
    }

    /// This rank's clock, and what else the simulation offers a rank: departures, statuses.
    pub fn context(&self) -> &Context<'a, Extoll> {
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

    /// Suspends the rank until its interface has something for it or `until`; `wanted` is for deadlock reports. Returns at
    /// once if something came since the last idling. Wakes for: messages in the mailbox, notifications, writes to the rank's
    /// memory that are complete, room to send after a refusal.
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

    /// Copies to memory after everything up to this rank's time has happened, so that what the interface reads at an earlier
    /// time is what was there before.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn write(&self, memory: &HostMemory, at: usize, source: &[u8]) {
        self.sync();
        memory.write(at, source);
    }

    /// Whether there was something in the mailbox when the rank last looked at its interface.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.valid.get() != 0
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.shared.costs
    }

    /// Works on the interface after everything earlier has happened.
    #[inline]
    pub(crate) fn unit<R>(&self, work: impl FnOnce(&mut Extoll, &mut Port<'_, Wire>, u32) -> R) -> R {
        self.context.device(|device, port| work(device, port, self.local))
    }

    /// Works on the interface as it was when it was last looked at.
    #[inline]
    pub(crate) fn seen_unit<R>(&self, work: impl FnOnce(&mut Extoll, &mut Port<'_, Wire>, u32) -> R) -> R {
        self.context.local(|device, port| work(device, port, self.local))
    }

    /// Works on what belongs to this rank alone. Where other ranks share the units, or where losses need repair, everything
    /// earlier has to happen first; otherwise only this rank uses what its sending passes, and it may run ahead.
    #[inline]
    pub(crate) fn own_unit<R>(&self, work: impl FnOnce(&mut Extoll, &mut Port<'_, Wire>, u32) -> R) -> R {
        if self.alone {
            return self.context.local(|device, port| work(device, port, self.local));
        }
        self.unit(work)
    }
}
