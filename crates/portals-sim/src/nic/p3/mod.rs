//! Portals 3.3: its programming interface.
//!
//! A process puts match entries into lists, one list for each entry of its portal table, and gives each a memory
//! descriptor. A peer's put or get names a portal table entry and match bits; it goes to the first match entry of
//! that list that fits it and whose descriptor accepts it, and is dropped if there is none. Event queues tell of
//! what has happened, in the order in which it did; a queue that is too small loses events, and says so. Messages
//! from one process to another are matched in the order of sending. Lengths and offsets are in bytes.
//!
//! ```
//! use portals_sim::PortalsConfig;
//! use portals_sim::nic::{HostMemory, p3::{Ack, Criteria, EventKind, Md, Options, Position, Unlink}};
//!
//! let report = portals_sim::run(&PortalsConfig::pair(), |nic| {
//!     let (p3, memory) = (nic.p3(), HostMemory::new(4096));
//!     p3.init().unwrap();
//!     let eq = p3.eq_alloc(16).unwrap();
//!     let me = p3.me_attach(4, Criteria::bits(0x10, 0xf), Unlink::Retain, Position::After).unwrap();
//!     // Each message goes behind the one before.
//!     let options = Options::OP_PUT | Options::EVENT_START_DISABLE;
//!     p3.md_attach(me, &Md { eq: Some(eq), ..Md::new(&memory, options) }, Unlink::Retain).unwrap();
//!     nic.launched();
//!     if nic.rank() == 0 {
//!         let mine = HostMemory::new(8);
//!         mine.write(0, b"message.");
//!         let md = Md { eq: Some(eq), ..Md::new(&mine, Options::EVENT_START_DISABLE) };
//!         let md = p3.md_bind(&md, Unlink::Retain).unwrap();
//!         let peer = nic.id(1).unwrap();
//!         p3.put(md, 0, 8, Ack::Request, peer, 4, 0x13, 0, 7).unwrap();
//!         assert_eq!(p3.eq_wait(eq, None).unwrap().kind, EventKind::SendEnd);
//!         assert_eq!(p3.eq_wait(eq, None).unwrap().kind, EventKind::Ack);
//!         return String::new();
//!     }
//!     let event = p3.eq_wait(eq, None).unwrap();
//!     assert_eq!((event.kind, event.match_bits, event.hdr_data), (EventKind::PutEnd, 0x13, 7));
//!     let mut bytes = vec![0; event.mlength as usize];
//!     nic.read(&memory, event.offset as usize, &mut bytes);
//!     String::from_utf8_lossy(&bytes).into_owned()
//! })?;
//! assert_eq!(report.results[1].as_deref(), Some("message."));
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

pub(crate) mod engine;
mod error;
mod types;
pub(crate) mod unit;

pub use crate::model::NiLimits;
pub use error::P3Error;
pub use types::{
    Ack, Criteria, EqHandle, Event, EventKind, Md, MdHandle, MeHandle, Options, Position, Status, Threshold,
    Unlink,
};

use super::directory::ProcessId;
pub use super::directory::Source;
use super::handle::Nic;
use am_core::Instant;
use fabric_sim::WaitFor;

/// A rank's Portals 3.3 interface. Handles are cheap; all of a rank's are the same interface.
///
/// No call blocks but [`P3::eq_wait`] and [`P3::eq_poll`]. Calls that attach, bind and unlink take `nic.list_ns`
/// of the processor, commands `nic.command_ns`, and every look at an event queue `nic.eq_get_ns` of the
/// [parameters](crate::model::Parameters). A command that finds all DMA slots of the node taken takes until one is
/// free.
#[derive(Clone, Debug)]
pub struct P3<'a> {
    pub(crate) nic: Nic<'a>,
}

impl P3<'_> {
    /// `PtlNIInit`: opens the interface. What comes before is dropped.
    ///
    /// # Errors
    /// [`P3Error::IfaceDup`] if it is open.
    pub fn init(&self) -> Result<NiLimits, P3Error> {
        self.nic.unit(|device, _, local| device.p3(local).init())
    }

    /// `PtlNIFini`: closes the interface. Everything is unlinked, and what comes later is dropped.
    ///
    /// # Errors
    /// [`P3Error::NoInit`].
    pub fn fini(&self) -> Result<(), P3Error> {
        self.nic.unit(|device, _, local| device.p3(local).fini())
    }

    /// `PtlNIStatus`: what has been counted.
    ///
    /// # Errors
    /// [`P3Error::NoInit`].
    pub fn status(&self) -> Result<Status, P3Error> {
        self.nic.unit(|device, _, local| device.p3(local).status())
    }

    /// [`Status::dropped`] alone, as of the last time the machine was looked at, which is had for less; 0 before
    /// the interface is opened.
    pub fn dropped(&self) -> u64 {
        self.nic.seen(|device, local| device.p3(local).dropped())
    }

    /// `PtlEQAlloc`: an event queue with room for `count` events. It takes memory only for those that come.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::NoSpace`].
    pub fn eq_alloc(&self, count: u32) -> Result<EqHandle, P3Error> {
        self.nic.unit(|device, _, local| device.p3(local).eq_alloc(count))
    }

    /// `PtlEQFree`: an event queue ends, with the events in it; descriptors that name it go on without events.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::EqInvalid`].
    pub fn eq_free(&self, eq: EqHandle) -> Result<(), P3Error> {
        self.nic.unit(|device, _, local| device.p3(local).eq_free(eq))
    }

    /// `PtlEQGet`: takes the oldest event of a queue. Takes `nic.eq_get_ns` of the processor, whether there is one
    /// or not.
    ///
    /// # Errors
    /// [`P3Error::EqEmpty`]; [`P3Error::EqDropped`] with an event if others have been lost; [`P3Error::NoInit`],
    /// [`P3Error::EqInvalid`].
    pub fn eq_get(&self, eq: EqHandle) -> Result<Event, P3Error> {
        self.nic.look(self.nic.costs().eq_get, |device, local, now| device.p3(local).eq_get(eq, now))
    }

    /// `PtlEQWait`: [`P3::eq_get`], but waits until there is an event or until a time.
    ///
    /// # Errors
    /// As [`P3::eq_get`]; [`P3Error::EqEmpty`] only at that time.
    pub fn eq_wait(&self, eq: EqHandle, until: Option<Instant>) -> Result<Event, P3Error> {
        self.eq_poll(&[eq], until).map(|(event, _)| event)
    }

    /// `PtlEQPoll`: takes an event from the first of some queues that has one; waits until there is one or until a
    /// time. Returns also which queue it was.
    ///
    /// # Errors
    /// As [`P3::eq_wait`].
    pub fn eq_poll(&self, queues: &[EqHandle], until: Option<Instant>) -> Result<(Event, usize), P3Error> {
        loop {
            for (which, eq) in queues.iter().enumerate() {
                match self.eq_get(*eq) {
                    Err(P3Error::EqEmpty) => {}
                    found => return found.map(|event| (event, which)),
                }
            }
            if until.is_some_and(|until| until <= self.nic.now()) {
                return Err(P3Error::EqEmpty);
            }
            self.idle(queues, until, WaitFor::Named("an event"))?;
        }
    }

    /// Suspends the rank until one of some queues has an event, something else concerns it, or `until`; `wanted`
    /// is for deadlock reports. Returns at once if an event is there. Something else is: a peer's put without an
    /// event, a message that finds no place, a rank that is known to be lost. The way to wait for a program that
    /// looks at its queues itself; costs no time of the processor.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::EqInvalid`].
    pub fn idle(
        &self,
        queues: &[EqHandle],
        until: Option<Instant>,
        wanted: impl Into<WaitFor>,
    ) -> Result<(), P3Error> {
        // What is not known yet wakes the rank while it idles.
        loop {
            let (next, kept) = self.nic.seen(|device, local| {
                let mut next = until;
                for eq in queues {
                    let event = device.p3(local).eq_next(*eq)?;
                    next = [next, event].into_iter().flatten().min();
                }
                Ok((next, device.kept_event(local)))
            })?;
            match (next, kept) {
                // What was kept may be for one of the queues, or not.
                (next, Some(kept)) if next.is_none_or(|next| kept < next) && self.nic.knows(kept) => {
                    self.nic.context().skip_to(kept);
                }
                (Some(next), _) if self.nic.knows(next) => {
                    self.nic.context().skip_to(next);
                    return Ok(());
                }
                (next, _) => {
                    self.nic.idle_on(next, queues, wanted);
                    return Ok(());
                }
            }
        }
    }

    /// `PtlMEAttach`: a match entry at the beginning or the end of the list of a portal table entry. Without a
    /// memory descriptor it takes nothing. With [`Unlink::Unlink`] it goes with its memory descriptor.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::PtIndexInvalid`], [`P3Error::NoSpace`].
    pub fn me_attach(
        &self,
        pt_index: u32,
        criteria: Criteria,
        unlink: Unlink,
        position: Position,
    ) -> Result<MeHandle, P3Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p3(local).me_attach(pt_index, criteria, unlink, position))
    }

    /// `PtlMEInsert`: a match entry right before or behind another.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MeInvalid`], [`P3Error::NoSpace`].
    pub fn me_insert(
        &self,
        base: MeHandle,
        criteria: Criteria,
        unlink: Unlink,
        position: Position,
    ) -> Result<MeHandle, P3Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p3(local).me_insert(base, criteria, unlink, position))
    }

    /// `PtlMEUnlink`: a match entry ends, with its memory descriptor.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MeInvalid`]; [`P3Error::MeInUse`] if the descriptor has pending operations.
    pub fn me_unlink(&self, me: MeHandle) -> Result<(), P3Error> {
        self.list();
        let now = self.nic.now();
        self.nic.unit(|device, _, local| device.p3(local).me_unlink(me, now))
    }

    /// `PtlMDAttach`: gives a match entry its memory descriptor. With [`Unlink::Unlink`] the descriptor goes when
    /// it has become inactive, which an [`EventKind::Unlink`] tells.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MeInvalid`], [`P3Error::MeInUse`] if it has one, [`P3Error::MdIllegal`],
    /// [`P3Error::EqInvalid`], [`P3Error::NoSpace`].
    pub fn md_attach(&self, me: MeHandle, md: &Md, unlink: Unlink) -> Result<MdHandle, P3Error> {
        self.list();
        self.nic.unit(|device, _, local| device.p3(local).md_attach(me, md, unlink))
    }

    /// `PtlMDBind`: a memory descriptor for operations of this process only.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MdIllegal`], [`P3Error::EqInvalid`], [`P3Error::NoSpace`].
    pub fn md_bind(&self, md: &Md, unlink: Unlink) -> Result<MdHandle, P3Error> {
        self.list();
        let now = self.nic.now();
        self.nic.own_unit(|device, _, local| device.p3(local).md_bind(md, unlink, now))
    }

    /// `PtlMDUnlink`: a memory descriptor ends, and its match entry if that wants to.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MdInvalid`]; [`P3Error::MdInUse`] while a put of it has not left or a get
    /// of it is not answered. Acknowledgements that come later are dropped.
    pub fn md_unlink(&self, md: MdHandle) -> Result<(), P3Error> {
        self.list();
        let now = self.nic.now();
        self.nic.unit(|device, _, local| device.p3(local).md_unlink(md, now))
    }

    /// `PtlPutRegion`: sends `length` bytes at `local_offset` of a descriptor. The program leaves them alone until
    /// [`EventKind::SendEnd`]. Does not block; takes `nic.command_ns` of the processor. Events:
    /// [`EventKind::SendEnd`]; [`EventKind::Ack`] if asked for and something has taken the message.
    ///
    /// # Errors
    /// [`P3Error::NoInit`], [`P3Error::MdInvalid`], [`P3Error::MdIllegal`], [`P3Error::ProcessInvalid`],
    /// [`P3Error::PtIndexInvalid`]. Nothing is sent then.
    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    pub fn put(
        &self,
        md: MdHandle,
        local_offset: u64,
        length: u32,
        ack: Ack,
        target: ProcessId,
        pt_index: u32,
        match_bits: u64,
        remote_offset: u64,
        hdr_data: u64,
    ) -> Result<(), P3Error> {
        let to = self.target(target)?;
        let order = unit::Order { md, local_offset, length, to, pt_index, match_bits, remote_offset, hdr_data };
        self.nic.command();
        self.nic.own_unit(|device, port, local| device.p3_put(local, &order, ack == Ack::Request, port))
    }

    /// `PtlGetRegion`: fetches `length` bytes to `local_offset` of a descriptor. Event: [`EventKind::ReplyEnd`] if
    /// something has answered.
    ///
    /// # Errors
    /// As [`P3::put`].
    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    pub fn get(
        &self,
        md: MdHandle,
        local_offset: u64,
        length: u32,
        target: ProcessId,
        pt_index: u32,
        match_bits: u64,
        remote_offset: u64,
    ) -> Result<(), P3Error> {
        let to = self.target(target)?;
        let hdr_data = 0;
        let order = unit::Order { md, local_offset, length, to, pt_index, match_bits, remote_offset, hdr_data };
        self.nic.command();
        self.nic.own_unit(|device, port, local| device.p3_get(local, &order, port))
    }

    fn target(&self, target: ProcessId) -> Result<u32, P3Error> {
        self.nic.rank_of(target).ok_or(P3Error::ProcessInvalid { id: target })
    }

    fn list(&self) {
        self.nic.charge(self.nic.costs().list);
    }
}
