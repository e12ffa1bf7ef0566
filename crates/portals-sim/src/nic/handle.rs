//! A rank's handle to its node's interface and to virtual time.

use super::device::{Counters, Portals, Shared};
use super::directory::ProcessId;
use super::p3::engine::{ALL, Interface};
use super::p3::{EqHandle, P3};
use super::p4::P4;
use super::wire::Wire;
use crate::model::{Costs, Parameters};
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{Context, DeviceContext, Handle, HostMemory, WaitFor};
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// What a rank's program gets from [`run`](crate::run): its interface and its time. Clones are handles to the same
/// rank.
#[derive(Clone)]
pub struct Nic<'a> {
    handle: Handle<'a, Portals>,
    pub(super) shared: Rc<Shared>,
    /// Losses of ranks that Portals 4 has been told of.
    losses: Rc<Cell<u32>>,
}

impl fmt::Debug for Nic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Deref for Nic<'a> {
    type Target = Handle<'a, Portals>;

    fn deref(&self) -> &Handle<'a, Portals> {
        &self.handle
    }
}

/// Work on an interface that finds everything delivered that has arrived.
fn caught_up<R>(
    work: impl FnOnce(&mut Portals, &mut DeviceContext<'_, Wire>, u32) -> R,
) -> impl FnOnce(&mut Portals, &mut DeviceContext<'_, Wire>, u32) -> R {
    |device, port, process| {
        device.catch_up(process, port);
        work(device, port, process)
    }
}

impl<'a> Nic<'a> {
    pub(crate) fn new(context: Context<'a, Portals>, shared: Rc<Shared>) -> Self {
        let id = shared.directory.of(context.rank());
        let alone = shared.directory.processes(id.nid) == 1;
        Self { handle: Handle::new(context, id.pid, alone), shared, losses: Rc::default() }
    }

    /// The identity of a rank's process; `None` outside the job.
    pub fn id(&self, rank: u32) -> Option<ProcessId> {
        self.shared.directory.address(rank)
    }

    /// The rank of a process, if there is one.
    pub fn rank_of(&self, id: ProcessId) -> Option<u32> {
        self.shared.directory.rank(id)
    }

    /// Portals 3.3.
    pub fn p3(&self) -> P3<'a> {
        P3 { nic: self.clone() }
    }

    /// Portals 4.
    pub fn p4(&self) -> P4<'a> {
        P4 { nic: self.clone() }
    }

    /// The machine's parameter table.
    pub fn parameters(&self) -> &Parameters {
        &self.shared.parameters
    }

    /// What the interface of this rank's node has counted so far.
    pub fn counters(&self) -> Counters {
        self.context().device(|device, _| device.counters())
    }

    /// Suspends the rank until its interface has something for it, a rank is known to be lost, or `until`;
    /// `wanted` is for deadlock reports. [`P3::idle`] is the way to wait for events.
    pub fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>) {
        self.sleep(until, ALL, wanted);
    }

    /// [`Nic::idle`] for a process that looks at nothing but some event queues of Portals 3.3: the run may let it
    /// go on later than its clock shows.
    pub(crate) fn idle_on(&self, until: Option<Instant>, queues: &[EqHandle], wanted: impl Into<WaitFor>) {
        let watched = if self.shared.portals_4.get() { ALL } else { Interface::bits(queues) };
        self.sleep(until, watched, wanted);
    }

    fn sleep(&self, until: Option<Instant>, watched: u64, wanted: impl Into<WaitFor>) {
        self.seen_unit(|device, port, process| device.sleep(process, until, watched, port));
        self.context().idle(until, wanted);
        self.seen_unit(|device, _, process| device.awake(process));
    }

    /// Tells the launcher that this rank has set itself up, and waits until all others have, except those that are
    /// lost. What arrives at a process before it has set itself up is dropped; this is how a job avoids that. It
    /// goes past the simulated network and takes no more of the processor than looking every microsecond.
    pub fn launched(&self) {
        self.sync();
        self.context().announce(0);
        let mut pause = Span::from_micros(1);
        while !self.all_launched() {
            self.idle(Some(self.now() + pause), WaitFor::Named("the launcher"));
            pause = Span((pause.0 * 2).min(Span::from_micros(16).0));
        }
    }

    fn all_launched(&self) -> bool {
        let (context, ranks) = (self.context(), self.ranks());
        let lost = |rank| matches!(context.known_status(rank), PeerStatus::Lost(_));
        let launched = context.announcements();
        launched == ranks
            || launched + context.losses() >= ranks
                && (0..ranks).all(|rank| context.announced(rank).is_some() || lost(rank))
    }

    /// [`Handle::unit`], with everything delivered that has arrived; so are the others.
    #[inline]
    pub(crate) fn unit<R>(&self, work: impl FnOnce(&mut Portals, &mut DeviceContext<'_, Wire>, u32) -> R) -> R {
        self.handle.unit(caught_up(work))
    }

    #[inline]
    pub(crate) fn seen_unit<R>(
        &self,
        work: impl FnOnce(&mut Portals, &mut DeviceContext<'_, Wire>, u32) -> R,
    ) -> R {
        self.handle.seen_unit(caught_up(work))
    }

    #[inline]
    pub(crate) fn own_unit<R>(
        &self,
        work: impl FnOnce(&mut Portals, &mut DeviceContext<'_, Wire>, u32) -> R,
    ) -> R {
        self.handle.own_unit(caught_up(work))
    }

    /// Copies from memory after everything up to this rank's time has happened.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn read(&self, memory: &HostMemory, at: usize, out: &mut [u8]) {
        self.unit(|_, _, _| memory.read(at, out));
    }

    /// Copies to memory after everything up to this rank's time has happened, so that what the interface reads at
    /// an earlier time is what was there before.
    ///
    /// # Panics
    /// If the range is outside the memory.
    pub fn write(&self, memory: &HostMemory, at: usize, source: &[u8]) {
        self.unit(|_, _, _| memory.write(at, source));
    }

    /// The processor's part of a command: it gives it, and waits for a DMA slot if none is free.
    #[inline]
    pub(crate) fn command(&self) {
        let costs = self.costs();
        self.charge(costs.command);
        if let Some(free) = self.own_unit(|device, port, _| device.slot(port.now())) {
            self.charge(free.since(self.now()));
            self.charge(costs.overload);
        }
    }

    /// Ends the operations of Portals 4 that wait for ranks that have become known to be lost.
    #[inline]
    pub(crate) fn notice_losses(&self) {
        let losses = self.context().losses();
        if losses != self.losses.get() {
            let awaited = self.seen_unit(|device, _, process| device.p4(process).awaited());
            awaited.into_iter().for_each(|rank| self.notice_loss(rank));
            self.losses.set(losses);
        }
    }

    /// Ends them for one rank, if it is known to be lost.
    #[inline]
    pub(crate) fn notice_loss(&self, rank: u32) {
        if self.context().losses() != 0 && matches!(self.context().known_status(rank), PeerStatus::Lost(_)) {
            self.seen_unit(|device, port, process| device.p4_fail(process, rank, port));
        }
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.shared.costs
    }

    /// Looks at what is known of the interface, without letting anything happen first.
    #[inline]
    pub(crate) fn seen<R>(&self, work: impl FnOnce(&mut Portals, u32) -> R) -> R {
        self.seen_unit(|device, _, process| work(device, process))
    }

    /// Looks at event queues, which takes some time of the processor. No packet's event gets into a queue sooner
    /// than a certain time after the packet's arrival: so as long after the last look at the whole machine
    /// everything is known that a look can find, and the rank need not let the others catch up.
    #[inline]
    pub(crate) fn look<R>(&self, cost: Span, work: impl FnOnce(&mut Portals, u32, Instant) -> R) -> R {
        let now = self.context().charged(cost);
        // Who is told that memory may change must not change it before the interface has read it.
        if self.shared.late_read || !self.foresees(now) {
            self.sync();
        }
        self.seen(|device, process| work(device, process, now))
    }
}
