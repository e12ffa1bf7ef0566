//! Portals 4: its programming interface.
//!
//! A portal table entry has a priority list and an overflow list. A message goes to the first entry of the priority list that it
//! matches; if there is none, to the first of the overflow list, and leaves an unexpected header behind: an entry that comes into
//! the priority list later finds it. Events tell of operations, counting events only count, and trigger commands that were made
//! in advance. A portal table entry with flow control that lacks entries or room for events disables itself instead of losing
//! anything; its initiators learn it by their acknowledgements.
//!
//! ```
//! use portals_sim::PortalsConfig;
//! use portals_sim::nic::{HostMemory, p4::*};
//!
//! let report = portals_sim::run(&PortalsConfig::pair(), |nic| {
//!     let (p4, memory) = (nic.p4(), HostMemory::new(64));
//!     p4.init(None).unwrap();
//!     let eq = p4.eq_alloc(16).unwrap();
//!     let pt_index = p4.pt_alloc(PtOptions::NONE, Some(eq), Some(5)).unwrap();
//!     let md = p4.md_bind(&Md { eq: Some(eq), ..Md::new(&memory) }).unwrap();
//!     if nic.rank() == 1 {
//!         // Nobody expects the message yet.
//!         p4.me_append(pt_index, &Me::new(&memory, MeOptions::OP_PUT, 0, u64::MAX), List::Overflow, 0).unwrap();
//!         assert_eq!(p4.eq_wait(eq, None).unwrap().kind, EventKind::Link);
//!         nic.launched();
//!         let came = p4.eq_wait(eq, None).unwrap();
//!         assert_eq!((came.kind, came.list), (EventKind::Put, List::Overflow));
//!         let me = Me::new(&memory, MeOptions::OP_PUT | MeOptions::USE_ONCE, 0xcafe, 0);
//!         p4.me_append(pt_index, &me, List::Priority, 7).unwrap();
//!         let found = p4.eq_wait(eq, None).unwrap();
//!         assert_eq!((found.kind, found.user_ptr, found.mlength), (EventKind::PutOverflow, 7, 8));
//!         return found.hdr_data;
//!     }
//!     nic.launched();
//!     let process = nic.id(1).unwrap().into();
//!     let target = Target { process, pt_index, match_bits: 0xcafe, offset: 0 };
//!     let from = Region { md, offset: 0 };
//!     p4.put(&Put { from, length: 8, ack: Ack::Request, target, user_ptr: 0, hdr_data: 42 }).unwrap();
//!     assert_eq!(p4.eq_wait(eq, None).unwrap().kind, EventKind::Send);
//!     assert_eq!(p4.eq_wait(eq, None).unwrap().kind, EventKind::Ack);
//!     0
//! })?;
//! assert_eq!(report.results[1], Some(42));
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

mod atomic;
mod counter;
pub(crate) mod engine;
mod error;
mod lists;
mod types;
pub(crate) mod unit;

pub use crate::model::NiLimits;
pub use atomic::{AtomicOp, Datatype};
pub use error::P4Error;
pub use types::{
    Ack, Atomic, Command, CtEvent, CtHandle, EqHandle, Event, EventKind, FetchAtomic, Get, Le, List, Md, MdHandle,
    MdOptions, Me, MeHandle, MeOptions, NiFail, Process, PtOptions, Put, Region, Search, Source, Status, Swap,
    Target,
};

use super::directory::ProcessId;
use super::handle::Nic;
use am_core::Instant;
use fabric_sim::WaitFor;

/// A rank's Portals 4 interface. Handles are cheap; all of a rank's are the same interface.
///
/// No call blocks but those whose names end in `wait` and `poll`. Calls that append, bind and free take `nic.list_ns` of the
/// processor, commands `nic.command_ns`, and every look at an event queue or counter `nic.eq_get_ns` of the
/// [parameters](crate::model::Parameters). A command that finds all DMA slots of the node taken takes until one is free. Every call returns [`P4Error::NoInit`] before [`P4::init`], and
/// [`P4Error::ArgInvalid`] for handles of what is gone.
#[derive(Clone, Debug)]
pub struct P4<'a> {
    pub(crate) nic: Nic<'a>,
}

impl P4<'_> {
    /// `PtlNIInit`: opens the interface, or finds it open. What comes before is dropped.
    ///
    /// # Errors
    /// [`P4Error::PidInUse`] if another process of the node has the number asked for, [`P4Error::ArgInvalid`] if none can.
    pub fn init(&self, pid: Option<u32>) -> Result<NiLimits, P4Error> {
        let own = self.id();
        match pid {
            Some(pid) if pid != own.pid && self.nic.rank_of(ProcessId { pid, ..own }).is_some() => {
                Err(P4Error::PidInUse { pid })
            }
            Some(pid) if pid != own.pid => {
                let (what, value) = ("pid", pid.into());
                Err(P4Error::ArgInvalid { what, value, limit: "that of a process of the job" })
            }
            _ => Ok(self.nic.unit(|device, _, local| device.p4(local).init())),
        }
    }

    /// `PtlNIFini`: closes the interface. Everything ends, and what comes later is dropped.
    ///
    /// # Errors
    /// [`P4Error::NoInit`].
    pub fn fini(&self) -> Result<(), P4Error> {
        self.nic.unit(|device, _, local| device.p4(local).fini())
    }

    /// `PtlNIStatus`: what has been counted.
    ///
    /// # Errors
    /// [`P4Error::NoInit`].
    pub fn status(&self) -> Result<Status, P4Error> {
        self.nic.unit(|device, _, local| device.p4(local).status())
    }

    /// `PtlGetPhysId`: this process.
    pub fn id(&self) -> ProcessId {
        self.nic.id(self.nic.rank()).expect("every rank has its place in the machine")
    }

    /// `PtlGetUid`: the user that this process belongs to; all processes of a job have the same.
    pub fn uid(&self) -> u32 {
        0
    }

    /// `PtlSetMap`: the processes by their logical numbers, for [`Process::Logical`].
    ///
    /// # Errors
    /// [`P4Error::Ignored`] if there is a map already.
    pub fn set_map(&self, map: &[ProcessId]) -> Result<(), P4Error> {
        self.nic.unit(|device, _, local| device.p4(local).set_map(map))
    }

    /// `PtlGetMap`: the map. Allocates.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`] if there is none.
    pub fn map(&self) -> Result<Vec<ProcessId>, P4Error> {
        self.nic.unit(|device, _, local| device.p4(local).map().map(<[ProcessId]>::to_vec))
    }

    /// `PtlHandleIsEqual`.
    ///
    /// # Errors
    /// [`P4Error::Fail`] if they are not.
    pub fn handles_equal<H: PartialEq>(&self, one: H, other: H) -> Result<(), P4Error> {
        if one == other { Ok(()) } else { Err(P4Error::Fail) }
    }

    // Portal table entries.

    /// `PtlPTAlloc`: a portal table entry, a given one or any that is free. Its events go to a queue.
    ///
    /// # Errors
    /// [`P4Error::PtFull`], [`P4Error::PtInUse`], [`P4Error::PtEqNeeded`], [`P4Error::ArgInvalid`].
    pub fn pt_alloc(&self, options: PtOptions, eq: Option<EqHandle>, wanted: Option<u32>) -> Result<u32, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| {
            let interface = device.p4(local);
            interface.opened()?;
            if let Some(eq) = eq {
                interface.eq_next(eq)?;
            }
            interface.table.pt_alloc(options, eq, wanted)
        })
    }

    /// `PtlPTFree`: a portal table entry ends.
    ///
    /// # Errors
    /// [`P4Error::PtInUse`] while it has entries, [`P4Error::ArgInvalid`].
    pub fn pt_free(&self, pt_index: u32) -> Result<(), P4Error> {
        self.list();
        self.table(|table| table.pt_free(pt_index))
    }

    /// `PtlPTEnable`: a portal table entry takes messages again.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn pt_enable(&self, pt_index: u32) -> Result<(), P4Error> {
        self.list();
        self.table(|table| table.pt_enable(pt_index, true))
    }

    /// `PtlPTDisable`: a portal table entry refuses messages until it is enabled.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn pt_disable(&self, pt_index: u32) -> Result<(), P4Error> {
        self.list();
        self.table(|table| table.pt_enable(pt_index, false))
    }

    // List entries.

    /// `PtlMEAppend`: a match entry at the end of a list. One for the priority list first takes the unexpected headers that it
    /// matches; with [`MeOptions::USE_ONCE`] it is not linked if there was one.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`], [`P4Error::ListTooLong`], [`P4Error::NoSpace`].
    pub fn me_append(&self, pt_index: u32, me: &Me, list: List, user_ptr: u64) -> Result<MeHandle, P4Error> {
        self.append(pt_index, me.clone(), list, user_ptr, true)
    }

    /// `PtlLEAppend`: a list entry at the end of a list. A portal table entry has match entries or list entries, not both.
    ///
    /// # Errors
    /// As [`P4::me_append`].
    pub fn le_append(&self, pt_index: u32, le: &Le, list: List, user_ptr: u64) -> Result<MeHandle, P4Error> {
        self.append(pt_index, Me::from(le), list, user_ptr, false)
    }

    fn append(
        &self,
        pt_index: u32,
        me: Me,
        list: List,
        user_ptr: u64,
        matching: bool,
    ) -> Result<MeHandle, P4Error> {
        self.list();
        self.nic.unit(|device, port, local| {
            let interface = device.p4(local);
            if let Some(ct) = me.ct {
                interface.ct(ct)?;
            }
            interface.opened()?;
            let appended = interface.table.append(pt_index, me, list, user_ptr, matching);
            let now = port.now();
            device.p4_effects(local, now, now, port);
            appended
        })
    }

    /// `PtlMEUnlink`, `PtlLEUnlink`: an entry ends.
    ///
    /// # Errors
    /// [`P4Error::InUse`] while an overflow entry has unexpected headers, [`P4Error::ArgInvalid`].
    pub fn me_unlink(&self, me: MeHandle) -> Result<(), P4Error> {
        self.list();
        self.table(|table| table.me_unlink(me))
    }

    /// `PtlMESearch`: looks for unexpected headers that an entry would match: all of them, or the first with
    /// [`MeOptions::USE_ONCE`]. [`EventKind::Search`] tells of each that stays, and with [`NiFail::NoMatch`] if there is none;
    /// what is taken makes the events of an entry that is appended.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn me_search(&self, pt_index: u32, me: &Me, search: Search, user_ptr: u64) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, port, local| {
            let interface = device.p4(local);
            interface.opened()?;
            interface.table.search(pt_index, me, search, user_ptr)?;
            let now = port.now();
            device.p4_effects(local, now, now, port);
            Ok(())
        })
    }

    // Memory descriptors and commands.

    /// `PtlMDBind`: a memory descriptor for operations of this process.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`], [`P4Error::NoSpace`].
    pub fn md_bind(&self, md: &Md) -> Result<MdHandle, P4Error> {
        self.list();
        self.nic.own_unit(|device, _, local| device.p4(local).md_bind(md))
    }

    /// `PtlMDRelease`: a memory descriptor ends.
    ///
    /// # Errors
    /// [`P4Error::InUse`] while operations of it have not left or are not answered, [`P4Error::ArgInvalid`].
    pub fn md_release(&self, md: MdHandle) -> Result<(), P4Error> {
        self.list();
        let now = self.nic.now();
        self.nic.unit(|device, _, local| device.p4(local).md_release(md, now))
    }

    /// `PtlPut`: sends bytes. The program leaves them alone until [`EventKind::Send`]. Does not block.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`]. Nothing is sent then.
    pub fn put(&self, put: &Put) -> Result<(), P4Error> {
        self.command(&Command::Put(*put))
    }

    /// `PtlGet`: fetches bytes; [`EventKind::Reply`] tells that they have come.
    ///
    /// # Errors
    /// As [`P4::put`].
    pub fn get(&self, get: &Get) -> Result<(), P4Error> {
        self.command(&Command::Get(*get))
    }

    /// `PtlAtomic`: combines bytes with the target's.
    ///
    /// # Errors
    /// As [`P4::put`]; also if the operation does not [work on](AtomicOp::works_on) the datatype or belongs to [`P4::swap`], or
    /// the length is not one of whole elements.
    pub fn atomic(&self, atomic: &Atomic) -> Result<(), P4Error> {
        self.command(&Command::Atomic(*atomic))
    }

    /// `PtlFetchAtomic`: combines bytes with the target's, and fetches what was there before.
    ///
    /// # Errors
    /// As [`P4::atomic`].
    pub fn fetch_atomic(&self, fetch: &FetchAtomic) -> Result<(), P4Error> {
        self.command(&Command::FetchAtomic(*fetch))
    }

    /// `PtlSwap`: exchanges bytes with the target's; one element if there is an operand.
    ///
    /// # Errors
    /// As [`P4::atomic`], with operations that belong here.
    pub fn swap(&self, swap: &Swap) -> Result<(), P4Error> {
        self.command(&Command::Swap(*swap))
    }

    /// `PtlTriggeredPut` and the others: a command that the interface executes by itself when a counter's successes reach a
    /// threshold; at once if they have. Commands of a counter are executed once, by threshold, those of equal thresholds in
    /// the order of making. One that cannot be executed when its time comes is dropped and counted.
    ///
    /// # Errors
    /// Those of the command, [`P4Error::NoSpace`].
    pub fn triggered(&self, command: &Command, ct: CtHandle, threshold: u64) -> Result<(), P4Error> {
        self.nic.command();
        self.nic.unit(|device, port, local| {
            device.p4_check(local, command)?;
            device.p4(local).trigger(ct, threshold, *command)?;
            device.p4_fire(local, ct, port);
            Ok(())
        })
    }

    fn command(&self, command: &Command) -> Result<(), P4Error> {
        self.nic.command();
        let to = self.nic.own_unit(|device, port, local| {
            let to = device.p4_check(local, command)?;
            device.p4_execute(local, command, port).map(|()| to)
        })?;
        if let Some(to) = to {
            self.nic.notice_loss(to);
        }
        Ok(())
    }

    // Event queues.

    /// `PtlEQAlloc`: an event queue with room for `count` events. It takes memory only for those that come.
    ///
    /// # Errors
    /// [`P4Error::NoSpace`], [`P4Error::ArgInvalid`] for no events.
    pub fn eq_alloc(&self, count: u32) -> Result<EqHandle, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).eq_alloc(count))
    }

    /// `PtlEQFree`: an event queue ends; descriptors that name it go on without events.
    ///
    /// # Errors
    /// [`P4Error::InUse`] while portal table entries use it, [`P4Error::ArgInvalid`].
    pub fn eq_free(&self, eq: EqHandle) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).eq_free(eq))
    }

    /// `PtlEQGet`: takes the oldest event of a queue.
    ///
    /// # Errors
    /// [`P4Error::EqEmpty`]; [`P4Error::EqDropped`] with an event if others have been written over; [`P4Error::ArgInvalid`].
    pub fn eq_get(&self, eq: EqHandle) -> Result<Event, P4Error> {
        self.look();
        let now = self.nic.now();
        self.nic.unit(|device, _, local| device.p4(local).eq_get(eq, now))
    }

    /// `PtlEQWait`: [`P4::eq_get`], but waits until there is an event or until a time.
    ///
    /// # Errors
    /// As [`P4::eq_get`]; [`P4Error::EqEmpty`] only at that time.
    pub fn eq_wait(&self, eq: EqHandle, until: Option<Instant>) -> Result<Event, P4Error> {
        self.eq_poll(&[eq], until).map(|(event, _)| event)
    }

    /// `PtlEQPoll`: takes an event from the first of some queues that has one; waits until there is one or until a time. Returns
    /// also which queue it was.
    ///
    /// # Errors
    /// As [`P4::eq_wait`].
    pub fn eq_poll(&self, queues: &[EqHandle], until: Option<Instant>) -> Result<(Event, usize), P4Error> {
        loop {
            for (which, eq) in queues.iter().enumerate() {
                match self.eq_get(*eq) {
                    Err(P4Error::EqEmpty) => {}
                    found => return found.map(|event| (event, which)),
                }
            }
            if until.is_some_and(|until| until <= self.nic.now()) {
                return Err(P4Error::EqEmpty);
            }
            self.idle(queues, until, WaitFor::Named("an event"))?;
        }
    }

    /// Suspends the rank until one of some queues has an event, something else concerns it, or `until`; `wanted` is for deadlock
    /// reports. Returns at once if an event is there. Something else is: an event in another queue, a peer's operation, a
    /// counter that has moved, a rank that is known to be lost. Costs no time of the processor.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn idle(
        &self,
        queues: &[EqHandle],
        until: Option<Instant>,
        wanted: impl Into<WaitFor>,
    ) -> Result<(), P4Error> {
        let next = self.nic.unit(|device, _, local| {
            let mut next = until;
            for eq in queues {
                let event = device.p4(local).eq_next(*eq)?;
                next = [next, event].into_iter().flatten().min();
            }
            Ok(next)
        })?;
        self.nic.idle(next, wanted);
        self.nic.notice_losses();
        Ok(())
    }

    // Counting events.

    /// `PtlCTAlloc`: a counting event, at zero.
    ///
    /// # Errors
    /// [`P4Error::NoSpace`].
    pub fn ct_alloc(&self) -> Result<CtHandle, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_alloc())
    }

    /// `PtlCTFree`: a counting event ends, with the commands that wait for it.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_free(&self, ct: CtHandle) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_free(ct))
    }

    /// `PtlCTCancelTriggered`: forgets the commands that wait for a counter; returns how many.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_cancel_triggered(&self, ct: CtHandle) -> Result<u32, P4Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p4(local).ct_cancel(ct))
    }

    /// `PtlCTGet`: a counter's value.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_get(&self, ct: CtHandle) -> Result<CtEvent, P4Error> {
        self.look();
        self.nic.unit(|device, _, local| device.p4(local).ct(ct).map(|counter| counter.value()))
    }

    /// `PtlCTWait`: waits until a counter's successes reach a number, or it has counted a failure.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_wait(&self, ct: CtHandle, test: u64) -> Result<CtEvent, P4Error> {
        self.ct_poll(&[(ct, test)], None).map(|(value, _)| value)
    }

    /// `PtlCTPoll`: waits until the successes of one of some counters reach its number, or it has counted a failure, or until a
    /// time. Returns also which it was.
    ///
    /// # Errors
    /// [`P4Error::CtNoneReached`] at that time, [`P4Error::ArgInvalid`].
    pub fn ct_poll(
        &self,
        counters: &[(CtHandle, u64)],
        until: Option<Instant>,
    ) -> Result<(CtEvent, usize), P4Error> {
        loop {
            for (which, (ct, test)) in counters.iter().enumerate() {
                let value = self.ct_get(*ct)?;
                if value.success >= *test || value.failure != 0 {
                    return Ok((value, which));
                }
            }
            if until.is_some_and(|until| until <= self.nic.now()) {
                return Err(P4Error::CtNoneReached);
            }
            self.idle(&[], until, WaitFor::Named("a counter"))?;
        }
    }

    /// `PtlCTSet`: gives a counter a value.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_set(&self, ct: CtHandle, value: CtEvent) -> Result<(), P4Error> {
        self.list();
        self.nic.unit(|device, port, local| device.p4_execute(local, &Command::CtSet(ct, value), port))
    }

    /// `PtlCTInc`: adds to a counter: successes or failures, not both.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`].
    pub fn ct_inc(&self, ct: CtHandle, by: CtEvent) -> Result<(), P4Error> {
        if by.success != 0 && by.failure != 0 {
            let (what, value) = ("increment", by.failure);
            return Err(P4Error::ArgInvalid { what, value, limit: "of successes or of failures" });
        }
        self.list();
        self.nic.unit(|device, port, local| device.p4_execute(local, &Command::CtInc(ct, by), port))
    }

    fn table<R>(&self, work: impl FnOnce(&mut lists::Table) -> Result<R, P4Error>) -> Result<R, P4Error> {
        self.nic.unit(|device, _, local| {
            let interface = device.p4(local);
            interface.opened()?;
            work(&mut interface.table)
        })
    }

    fn look(&self) {
        self.nic.charge(self.nic.costs().eq_get);
        self.nic.notice_losses();
    }

    fn list(&self) {
        self.nic.charge(self.nic.costs().list);
    }
}

impl From<&Le> for Me {
    fn from(le: &Le) -> Self {
        let Le { memory, start, length, options, ct, uid } = le.clone();
        let (min_free, source, match_bits, ignore_bits) = (0, Source::Any, 0, u64::MAX);
        Self { memory, start, length, options, min_free, ct, uid, source, match_bits, ignore_bits }
    }
}
