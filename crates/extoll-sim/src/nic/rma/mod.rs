//! RMA, the unit for remote memory access: its programming interface.
//!
//! A process registers memory and tells others its network logical addresses (NLAs) by whatever means it has.
//! Commands are posted and executed by the interfaces; notifications tell who asked for it how far they have come.
//! Data is read and written at the virtual times at which the interfaces would, fragment by fragment. The commands
//! of a process to another are executed in the order of posting; answers to gets are not ordered with puts, and
//! nothing is with VELO.
//!
//! ```
//! use extoll_sim::{ExtollConfig, nic::{HostMemory, rma::{Access, Notify}}};
//!
//! let report = extoll_sim::run(&ExtollConfig::pair(), |nic| {
//!     let (rma, memory) = (nic.rma(), HostMemory::new(8192));
//!     rma.open().unwrap();
//!     let region = rma.register(&memory, 0, 8192, Access::ReadWrite).unwrap();
//!     if nic.rank() == 0 {
//!         memory.write(0, b"remote");
//!         let peer = rma.connect(nic.address(1).unwrap()).unwrap();
//!         // Both ranks register alike, so that their addresses are the same.
//!         let to = rma.nla(region, 100).unwrap();
//!         rma.post_put_bt(peer, region, 0, 6, to, Notify::REQUESTER | Notify::COMPLETER).unwrap();
//!         let done = rma.noti_get_block(None).unwrap();
//!         assert_eq!((done.kind, done.error), (Notify::REQUESTER, false));
//!         rma.noti_free(done).unwrap();
//!         return String::new();
//!     }
//!     let came = rma.noti_get_block(None).unwrap();
//!     assert_eq!((came.kind, came.size), (Notify::COMPLETER, 6));
//!     rma.noti_free(came).unwrap();
//!     let mut bytes = [0; 6];
//!     nic.read(&memory, 100, &mut bytes);
//!     String::from_utf8_lossy(&bytes).into_owned()
//! })?;
//! assert_eq!(report.results[1].as_deref(), Some("remote"));
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

pub(crate) mod atu;
pub(crate) mod command_queue;
pub(crate) mod notification;
pub(crate) mod unit;
pub(crate) mod wire;

pub use atu::{Access, AtuFault, Nla, PageSize};
pub use notification::{Command, Event, Notification, Notify};

use super::HostMemory;
use super::address::Address;
use super::handle::Nic;
use super::memory::Registrable;
use super::sparse::SparseMemory;
use am_core::{Instant, Span};
use command_queue::{Order, Work};
use fabric_sim::WaitFor;
use thiserror::Error;

/// Bytes of a page as the system pins it.
const PINNED: u64 = 4096;

/// The longest put or get in bytes.
pub const MAX_SIZE: u32 = 8_388_608;

/// Locks have numbers of 24 bits.
pub const MAX_LOCK: u32 = (1 << 24) - 1;

/// The results of the programming interface that are not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RmaError {
    /// `INV_HANDLE`: no such region of this process.
    #[error("there is no region {region} of this process")]
    InvHandle {
        /// Its number.
        region: u32,
    },
    /// `INV_PORT`: the port is not open.
    #[error("the port is not open")]
    InvPort,
    /// `INV_VALUE`: a number outside its limits.
    #[error("{what} is {value}, but must be from {least} to {most}")]
    InvValue {
        /// What it is of.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// `NO_ROUTE`: no such node.
    #[error("there is no route to node {node}")]
    NoRoute {
        /// The node.
        node: u16,
    },
    /// `PORTS_USED`: the process has its port already, or all of the node's ports are taken.
    #[error("all {ports} ports that there are have been opened")]
    PortsUsed {
        /// Ports that could be opened.
        ports: u32,
    },
    /// `NO_MEM`: the translation table has no room for these pages.
    #[error("{pages} pages do not fit into the translation table of {limit} pages, of which {used} are used")]
    NoMem {
        /// Pages wanted.
        pages: u64,
        /// Pages in use.
        used: u64,
        /// Pages of the table.
        limit: u64,
    },
    /// `NO_NOTI`: no notification has come.
    #[error("there is no notification")]
    NoNoti,
    /// `POLL_EXCEEDED`: no notification came in time.
    #[error("no notification came in time")]
    PollExceeded,
    /// `WRONG_ARG`: an offset outside its region, or numbers that the command cannot take.
    #[error("{what} is {value}, but must be {limit}")]
    WrongArg {
        /// What it is of.
        what: &'static str,
        /// The number.
        value: u64,
        /// What is allowed.
        limit: &'static str,
    },
    /// `NO_DESC_MEM`: too many commands are outstanding. The rank is woken when there is room.
    #[error("{outstanding} commands are outstanding, which is the limit")]
    NoDescMem {
        /// Commands that have not been executed.
        outstanding: u32,
    },
    /// `NO_MATCH`: notifications have come, but none that fits.
    #[error("no notification fits")]
    NoMatch,
    /// `WRONG_CMD`: the command cannot give the notifications that were asked for.
    #[error("a {command:?} command gives no such notification")]
    WrongCmd {
        /// The command.
        command: Command,
    },
    /// `NO_DEVICE`: the interface has no RMA unit.
    #[error("the interface has no RMA unit")]
    NoDevice,
    /// `NO_CONNECT`: no such connection, or no such process at the node.
    #[error("there is no connection {connection}")]
    NoConnect {
        /// The connection, or the vpid that does not exist.
        connection: u32,
    },
    /// `ATU`: the address translation refuses.
    #[error(transparent)]
    Atu(#[from] AtuFault),
}

/// A registered part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub(crate) number: u32,
    pub(crate) base: Nla,
    pub(crate) size: u64,
}

impl Region {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Where a process may post commands to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection(pub(crate) u32);

/// The last command that the unit could not execute for this process, at either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The command.
    pub command: Command,
    /// The other process.
    pub partner: Address,
    /// Why.
    pub fault: AtuFault,
    /// Failures so far.
    pub count: u64,
}

/// A put, immediate put or notification of this process that another one's unit could not execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The process that refused it.
    pub partner: Address,
    /// The address there.
    pub nla: Nla,
}

/// The RMA port of a rank. Handles are cheap; all of a rank's are the same port.
#[derive(Clone, Debug)]
pub struct Rma<'a> {
    pub(crate) nic: Nic<'a>,
}

impl Rma<'_> {
    /// Opens the port and its notification queue; returns the process's own address.
    ///
    /// # Errors
    /// [`RmaError::PortsUsed`], [`RmaError::NoDevice`].
    pub fn open(&self) -> Result<Address, RmaError> {
        self.nic.unit(|device, port, local| device.rma_open(local, port))
    }

    /// Closes the port: regions and connections end, notifications are dropped, and so is what comes later.
    ///
    /// # Errors
    /// [`RmaError::InvPort`].
    pub fn close(&self) -> Result<(), RmaError> {
        self.nic.unit(|device, port, local| device.rma_close(local, port))
    }

    /// Prepares for commands to a process. There is no handshake.
    ///
    /// # Errors
    /// [`RmaError::InvPort`]; [`RmaError::NoRoute`] to a node that does not exist, [`RmaError::NoConnect`] if it
    /// has no such process.
    pub fn connect(&self, to: Address) -> Result<Connection, RmaError> {
        self.nic.unit(|device, _, local| device.rma_connect(local, to))
    }

    /// Ends a connection. What is posted is still executed.
    ///
    /// # Errors
    /// [`RmaError::NoConnect`].
    pub fn disconnect(&self, connection: Connection) -> Result<(), RmaError> {
        self.nic.unit(|device, _, local| device.rma_disconnect(local, connection))
    }

    /// Registers `size` bytes from byte `at` on, with the smallest pages that need no more than a thousand
    /// entries. The whole pages around the range become accessible, as far as the memory goes.
    ///
    /// # Errors
    /// [`RmaError::InvPort`]; [`RmaError::WrongArg`] outside the memory; [`RmaError::NoMem`].
    pub fn register(&self, memory: &HostMemory, at: u64, size: u64, access: Access) -> Result<Region, RmaError> {
        self.register_pages(memory, at, size, access, atu::Atu::<Registrable>::fitting(size))
    }

    /// [`Rma::register`] with a page size of one's own. Memory begins at a page boundary of any size.
    ///
    /// # Errors
    /// As [`Rma::register`].
    pub fn register_pages(
        &self,
        memory: &HostMemory,
        at: u64,
        size: u64,
        access: Access,
        pages: PageSize,
    ) -> Result<Region, RmaError> {
        let memory = Registrable::Plain(memory.clone());
        self.charge_registration(size);
        self.nic.unit(|device, _, local| device.rma_register(local, memory, (at, size), access, pages))
    }

    /// Registers the whole of a memory that takes room only where it is in use.
    pub(crate) fn register_sparse(&self, memory: &SparseMemory, access: Access) -> Result<Region, RmaError> {
        let (memory, size) = (Registrable::Sparse(memory.clone()), memory.len() as u64);
        let pages = atu::Atu::<Registrable>::fitting(size);
        self.charge_registration(size);
        self.nic.unit(|device, _, local| device.rma_register(local, memory, (0, size), access, pages))
    }

    fn charge_registration(&self, size: u64) {
        let costs = self.nic.costs();
        let pages = Span(costs.register_page.0.saturating_mul(size.div_ceil(PINNED)));
        self.nic.charge(Span(costs.register.0.saturating_add(pages.0)));
    }

    /// Ends a registration. Commands that come later fail.
    ///
    /// # Errors
    /// [`RmaError::InvHandle`].
    pub fn unregister(&self, region: Region) -> Result<(), RmaError> {
        self.charge_registration(0);
        self.nic.unit(|device, _, local| device.rma_unregister(local, region))
    }

    /// Changes the rights of the page that an address of this process lies in.
    ///
    /// # Errors
    /// [`RmaError::Atu`] if it lies in none.
    pub fn protect(&self, nla: Nla, access: Access) -> Result<(), RmaError> {
        self.nic.unit(|device, _, local| device.rma_protect(local, nla, access))
    }

    /// The address of a byte of a region, for use by anyone.
    ///
    /// # Errors
    /// [`RmaError::WrongArg`] outside the region.
    pub fn nla(&self, region: Region, offset: u64) -> Result<Nla, RmaError> {
        if offset >= region.size {
            return Err(RmaError::WrongArg { what: "offset", value: offset, limit: "inside the region" });
        }
        Ok(Nla(region.base.0 + offset))
    }

    /// Posts a put of 1 to [`MAX_SIZE`] bytes ("byte transfer"). Does not block; takes `rma.post_ns` of the
    /// processor, as all commands do. The interface reads the source later; see [`Notify::REQUESTER`].
    ///
    /// # Errors
    /// [`RmaError::InvPort`], [`RmaError::NoConnect`], [`RmaError::InvValue`] for the size, [`RmaError::WrongArg`]
    /// for the offset, [`RmaError::WrongCmd`] for a responder notification, [`RmaError::NoDescMem`]. What only an
    /// address translation can see shows as the error bit of the completer notification, and in [`Rma::failure`]
    /// on both sides.
    pub fn post_put_bt(
        &self,
        connection: Connection,
        source: Region,
        offset: u64,
        size: u32,
        to: Nla,
        notify: Notify,
    ) -> Result<(), RmaError> {
        let from = self.local(source, offset, size)?;
        no_responder(Command::Put, notify)?;
        let work = Work::Put { from, to, size, answer: false };
        self.post(connection, Order { notify, work, region: Some(source.number) })
    }

    /// [`Rma::post_put_bt`] for whole 64-bit words ("quad words"): size and addresses are multiples of 8.
    ///
    /// # Errors
    /// As [`Rma::post_put_bt`]; [`RmaError::WrongArg`] off alignment.
    pub fn post_put_qw(
        &self,
        connection: Connection,
        source: Region,
        offset: u64,
        size: u32,
        to: Nla,
        notify: Notify,
    ) -> Result<(), RmaError> {
        aligned(self.nla(source, offset)?, to, size)?;
        self.post_put_bt(connection, source, offset, size, to, notify)
    }

    /// Posts a get of 1 to [`MAX_SIZE`] bytes from another process's memory into this one's. The requester
    /// notification says that the request is on its way, the completer's (here as well) that the data has come.
    ///
    /// # Errors
    /// As [`Rma::post_put_bt`], but the responder can notify.
    pub fn post_get_bt(
        &self,
        connection: Connection,
        sink: Region,
        offset: u64,
        size: u32,
        from: Nla,
        notify: Notify,
    ) -> Result<(), RmaError> {
        let to = self.local(sink, offset, size)?;
        self.post(connection, Order { notify, work: Work::Get { from, to, size }, region: Some(sink.number) })
    }

    /// [`Rma::post_get_bt`] for whole 64-bit words.
    ///
    /// # Errors
    /// As [`Rma::post_get_bt`]; [`RmaError::WrongArg`] off alignment.
    pub fn post_get_qw(
        &self,
        connection: Connection,
        sink: Region,
        offset: u64,
        size: u32,
        from: Nla,
        notify: Notify,
    ) -> Result<(), RmaError> {
        aligned(self.nla(sink, offset)?, from, size)?;
        self.post_get_bt(connection, sink, offset, size, from, notify)
    }

    /// Posts a put of 1 to 8 bytes that lie in the command itself: the low bytes of `value`.
    ///
    /// # Errors
    /// As [`Rma::post_put_bt`].
    pub fn post_immediate_put(
        &self,
        connection: Connection,
        value: u64,
        size: u32,
        to: Nla,
        notify: Notify,
    ) -> Result<(), RmaError> {
        check("size", size.into(), 1, 8)?;
        no_responder(Command::ImmediatePut, notify)?;
        self.post(connection, Order { notify, work: Work::Immediate { value, size, to }, region: None })
    }

    /// Posts a fetch-compare-and-add on one of the other process's locks, 32-bit numbers that begin at zero: if
    /// its value is at most `compare`, `add` is added. The completer notification here brings the old value and
    /// whether it was.
    ///
    /// # Errors
    /// [`RmaError::InvPort`], [`RmaError::NoConnect`], [`RmaError::InvValue`] above [`MAX_LOCK`],
    /// [`RmaError::NoDescMem`].
    pub fn post_lock(
        &self,
        connection: Connection,
        lock: u32,
        compare: i32,
        add: i32,
        notify: Notify,
    ) -> Result<(), RmaError> {
        check("lock", lock.into(), 0, MAX_LOCK.into())?;
        self.post(connection, Order { notify, work: Work::Lock { lock, compare, add }, region: None })
    }

    /// Posts a notification by itself: 64 bits and a class for the other process's queue, behind the puts posted
    /// before.
    ///
    /// # Errors
    /// [`RmaError::InvPort`], [`RmaError::NoConnect`], [`RmaError::NoDescMem`]; [`RmaError::WrongCmd`] unless
    /// `notify` has the completer and not the responder.
    pub fn post_notification(
        &self,
        connection: Connection,
        value: u64,
        class: u8,
        notify: Notify,
    ) -> Result<(), RmaError> {
        no_responder(Command::Notification, notify)?;
        if !notify.has(Notify::COMPLETER) {
            return Err(RmaError::WrongCmd { command: Command::Notification });
        }
        self.post(connection, Order { notify, work: Work::Notification { value, class }, region: None })
    }

    /// Takes the next notification, if there is one. Does not block; takes `rma.receive_ns`, or an empty poll.
    ///
    /// # Errors
    /// [`RmaError::NoNoti`], [`RmaError::InvPort`].
    pub fn noti_probe(&self) -> Result<Notification, RmaError> {
        self.polled(self.take(&|_| true))
            .map_err(|error| if error == RmaError::NoMatch { RmaError::NoNoti } else { error })
    }

    /// Takes the next notification; waits for it, at most until a time.
    ///
    /// # Errors
    /// [`RmaError::PollExceeded`], [`RmaError::InvPort`].
    pub fn noti_get_block(&self, until: Option<Instant>) -> Result<Notification, RmaError> {
        loop {
            match self.take(&|_| true) {
                Err(RmaError::NoNoti) if until.is_some_and(|until| until <= self.nic.now()) => {
                    return Err(RmaError::PollExceeded);
                }
                Err(RmaError::NoNoti) => self.nic.idle(until, WaitFor::Named("an RMA notification")),
                other => return other,
            }
        }
    }

    /// Takes the first notification that fits, if there is one; others stay where they are. Does not block.
    ///
    /// # Errors
    /// [`RmaError::NoMatch`] if there are others, [`RmaError::NoNoti`] if there are none, [`RmaError::InvPort`].
    pub fn noti_match(&self, fits: impl Fn(&Event) -> bool) -> Result<Notification, RmaError> {
        self.polled(self.take(&fits))
    }

    /// Gives a notification's entry in the queue back.
    ///
    /// # Errors
    /// [`RmaError::InvPort`].
    pub fn noti_free(&self, notification: Notification) -> Result<(), RmaError> {
        self.nic.unit(|device, port, local| device.rma_free(local, &notification, port))
    }

    /// The last failure that concerns this process, as initiator or as target, if there was any.
    pub fn failure(&self) -> Option<Failure> {
        self.nic.unit(|device, _, local| device.rma_failure(local))
    }

    /// The oldest refusal that was not taken yet. It is known before the answer to any lock that was posted behind
    /// the refused command. The port keeps as many as its queue has entries, and forgets older ones.
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.nic.unit(|device, _, local| device.rma_take_refusal(local))
    }

    /// Charges `rma.receive_ns`: for a process that has noticed data by looking at its memory.
    pub fn charge_receive(&self) {
        self.nic.charge(self.nic.costs().rma_receive);
    }

    fn take(&self, fits: &dyn Fn(&Event) -> bool) -> Result<Notification, RmaError> {
        let taken = self.nic.unit(|device, _, local| device.rma_take(local, fits))?;
        self.charge_receive();
        Ok(taken)
    }

    fn polled(&self, taken: Result<Notification, RmaError>) -> Result<Notification, RmaError> {
        if taken.is_err() {
            self.nic.charge_empty_poll();
        }
        taken
    }

    fn local(&self, region: Region, offset: u64, size: u32) -> Result<Nla, RmaError> {
        check("size", size.into(), 1, MAX_SIZE.into())?;
        if offset.checked_add(u64::from(size)).is_none_or(|end| end > region.size) {
            return Err(RmaError::WrongArg {
                what: "offset",
                value: offset,
                limit: "inside the region with all bytes",
            });
        }
        Ok(Nla(region.base.0 + offset))
    }

    fn post(&self, connection: Connection, order: Order) -> Result<(), RmaError> {
        self.nic.charge(self.nic.costs().rma_post);
        self.nic.unit(|device, port, local| device.rma_post(local, connection, order, port))
    }
}

fn check(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), RmaError> {
    let inside = (least..=most).contains(&value);
    if inside { Ok(()) } else { Err(RmaError::InvValue { what, value, least, most }) }
}

fn no_responder(command: Command, notify: Notify) -> Result<(), RmaError> {
    if notify.has(Notify::RESPONDER) { Err(RmaError::WrongCmd { command }) } else { Ok(()) }
}

fn aligned(local: Nla, remote: Nla, size: u32) -> Result<(), RmaError> {
    for (what, value) in [("size", size.into()), ("local address", local.0), ("remote address", remote.0)] {
        if !u64::is_multiple_of(value, 8) {
            return Err(RmaError::WrongArg { what, value, limit: "a multiple of 8" });
        }
    }
    Ok(())
}
