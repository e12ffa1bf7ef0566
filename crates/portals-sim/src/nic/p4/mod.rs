//! Portals 4: its programming interface.
//!
//! A portal table entry has a priority list and an overflow list. A message goes to the first entry of the
//! priority list that it matches; if there is none, to the first of the overflow list, and leaves an unexpected
//! header behind: an entry that comes into the priority list later finds it. Events tell of operations, counting
//! events only count, and trigger commands that were made in advance. A portal table entry with flow control that
//! lacks entries or room for events disables itself instead of losing anything; its initiators learn it by their
//! acknowledgements.
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
mod command;
mod counter;
pub(crate) mod engine;
mod error;
mod events;
mod lists;
mod options;
mod types;
pub(crate) mod unit;

pub use crate::model::NiLimits;
pub use atomic::{AtomicOp, Datatype};
pub use command::{Atomic, Command, FetchAtomic, Get, Process, Put, Region, Swap, Target};
pub use error::P4Error;
pub use options::{MdOptions, MeOptions, PtOptions};
pub use types::{
    Ack, CtEvent, CtHandle, EqHandle, Event, EventKind, Le, List, Md, MdHandle, Me, MeHandle, NiFail, Search,
    Status,
};

use super::directory::ProcessId;
pub use super::directory::Source;
use super::handle::Nic;

/// A rank's Portals 4 interface. Handles are cheap; all of a rank's are the same interface.
///
/// No call blocks but those whose names end in `wait` and `poll`. Calls that append, bind and free take
/// `nic.list_ns` of the processor, commands `nic.command_ns`, and every look at an event queue or counter
/// `nic.eq_get_ns` of the [parameters](crate::model::Parameters). A command that finds all DMA slots of the node
/// taken takes until one is free. Every call returns [`P4Error::NoInit`] before [`P4::init`], and
/// [`P4Error::ArgInvalid`] for handles of what is gone.
#[derive(Clone, Debug)]
pub struct P4<'a> {
    pub(crate) nic: Nic<'a>,
}

impl P4<'_> {
    /// `PtlNIInit`: opens the interface, or finds it open. What comes before is dropped.
    ///
    /// # Errors
    /// [`P4Error::PidInUse`] if another process of the node has the number asked for, [`P4Error::ArgInvalid`] if
    /// none can.
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
            _ => {
                self.nic.expect_portals_4();
                Ok(self.nic.unit(|device, _, local| device.p4(local).init()))
            }
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

    /// `PtlMEAppend`: a match entry at the end of a list. One for the priority list first takes the unexpected
    /// headers that it matches; with [`MeOptions::USE_ONCE`] it is not linked if there was one.
    ///
    /// # Errors
    /// [`P4Error::ArgInvalid`], [`P4Error::ListTooLong`], [`P4Error::NoSpace`].
    pub fn me_append(&self, pt_index: u32, me: &Me, list: List, user_ptr: u64) -> Result<MeHandle, P4Error> {
        self.append(pt_index, me.clone(), list, user_ptr, true)
    }

    /// `PtlLEAppend`: a list entry at the end of a list. A portal table entry has match entries or list entries,
    /// not both.
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
    /// [`MeOptions::USE_ONCE`]. [`EventKind::Search`] tells of each that stays, and with [`NiFail::NoMatch`] if
    /// there is none; what is taken makes the events of an entry that is appended.
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
    /// As [`P4::put`]; also if the operation does not [work on](AtomicOp::works_on) the datatype or belongs to
    /// [`P4::swap`], or the length is not one of whole elements.
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

    /// `PtlTriggeredPut` and the others: a command that the interface executes by itself when a counter's
    /// successes reach a threshold; at once if they have. Commands of a counter are executed once, by threshold,
    /// those of equal thresholds in the order of making. One that cannot be executed when its time comes is
    /// dropped and counted.
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
