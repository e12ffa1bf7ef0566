//! VELO, the unit for small messages: its programming interface.
//!
//! A process opens its port, of which it has one, and with it a mailbox that all senders share. It sends packets
//! of up to the MTU to processes that it has connected to, and receives from its mailbox, filtered by message type
//! (MTT) if it likes. Packets of a pair of processes arrive in the order in which they were sent. Nothing orders
//! them with the RMA unit's.
//!
//! ```
//! use extoll_sim::{ExtollConfig, nic::velo::VeloError};
//!
//! let report = extoll_sim::run(&ExtollConfig::pair(), |nic| {
//!     let velo = nic.velo();
//!     let own = velo.open().unwrap();
//!     if nic.rank() == 0 {
//!         let peer = velo.connect(nic.address(1).unwrap()).unwrap();
//!         assert_eq!(velo.send(peer, &[0; 65], 0, 0), Err(VeloError::InvMsg { len: 65, mtu: 64 }));
//!         velo.send(peer, b"hello", 7, 2).unwrap();
//!         return None;
//!     }
//!     let message = velo.recv(Some(2)).unwrap();
//!     assert_eq!((message.data(), message.tag, own.node), (&b"hello"[..], 7, 1));
//!     assert_eq!(velo.probe_recv(None).unwrap_err(), VeloError::NoMsg);
//!     Some(message.from)
//! })?;
//! assert_eq!(report.results[1].unwrap().unwrap().node, 0);
//! # Ok::<(), fabric_sim::RunError>(())
//! ```

pub(crate) mod mailbox;
mod status;
pub(crate) mod unit;

pub use mailbox::{COMMIT_EVERY, SEGMENT_SLOTS, SLOT_DATA, slots};
pub use status::Status;

use super::address::Address;
use super::handle::Nic;
use fabric_sim::WaitFor;
use mailbox::LONGEST;
use std::fmt;
use thiserror::Error;

/// The results of the programming interface that are not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VeloError {
    /// `INV_MSG`: the message is longer than the MTU.
    #[error("a message of {len} bytes exceeds the MTU of {mtu} bytes")]
    InvMsg {
        /// Its length in bytes.
        len: usize,
        /// The longest that the interface takes.
        mtu: usize,
    },
    /// `ERROR`: the port is open already or not at all, the connection does not exist, or its receiver is out of
    /// reach.
    #[error("{0}")]
    Error(&'static str),
    /// `NO_MSG`: the mailbox is empty.
    #[error("the mailbox is empty")]
    NoMsg,
    /// `NO_MATCH`: the mailbox has messages, but none of this type.
    #[error("no message of type {mtt} in the mailbox")]
    NoMatch {
        /// The type asked for.
        mtt: u8,
    },
    /// `INVALID_MBOX`: the process has no mailbox, because its port is not open.
    #[error("there is no mailbox: the port is not open")]
    InvalidMbox,
    /// `INVALID_NODE`: no such node or no such process there.
    #[error("there is no process at {0}")]
    InvalidNode(Address),
    /// `TRY_AGAIN`: out of credit, or a replay is under way. The rank is woken when it has become worth while.
    #[error("try again: {uncommitted} packets are uncommitted{}", if *.replay { " and a replay is under way" } else { "" })]
    TryAgain {
        /// Packets of this connection that their receiver has not committed.
        uncommitted: u8,
        /// Whether the retry flag is up.
        replay: bool,
    },
    /// `INV_MTT`: a message type has two bits.
    #[error("message type {mtt} exceeds the limit of 3")]
    InvMtt {
        /// The type asked for.
        mtt: u8,
    },
}

/// A mapped requester page: where a process may send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection(pub(crate) u32);

/// A received message. Its bytes lie in it, so that it outlives its slots.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
    pub from: Address,
    /// Its tag.
    pub tag: u8,
    /// Its type, 0 to 3.
    pub mtt: u8,
    /// Whether it was spoilt on its way. An interface that is as it should be never says so: it lets spoilt
    /// packets be sent again.
    pub error: bool,
    pub(crate) len: u8,
    pub(crate) bytes: [u8; LONGEST],
}

impl Message {
    /// A place for a message.
    pub(crate) const NONE: Self =
        Self { from: Address { node: 0, vpid: 0 }, tag: 0, mtt: 0, error: false, len: 0, bytes: [0; LONGEST] };

    /// The message's bytes.
    pub fn data(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(LONGEST)]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, tag, mtt, error, .. } = self;
        write!(f, "Message {{ from: {from}, tag: {tag}, mtt: {mtt}, error: {error}, data: {:?} }}", self.data())
    }
}

/// The VELO port of a rank. Handles are cheap; all of a rank's are the same port.
#[derive(Clone, Debug)]
pub struct Velo<'a> {
    pub(crate) nic: Nic<'a>,
}

impl Velo<'_> {
    /// Opens the port and its mailbox; returns the process's own address. Messages that came before have waited.
    ///
    /// # Errors
    /// [`VeloError::Error`] if it is open already.
    pub fn open(&self) -> Result<Address, VeloError> {
        self.nic.unit(|device, port, local| device.velo_open(local, port))
    }

    /// Closes the port. Messages in the mailbox and those to come are dropped.
    ///
    /// # Errors
    /// [`VeloError::InvalidMbox`] if it is not open.
    pub fn close(&self) -> Result<(), VeloError> {
        self.nic.unit(|device, port, local| device.velo_close(local, port))
    }

    /// Maps the requester page for a process. There is no handshake: the receiver need not have opened its port.
    ///
    /// # Errors
    /// [`VeloError::InvalidNode`] if there is no such process; [`VeloError::Error`] if the port is not open.
    pub fn connect(&self, to: Address) -> Result<Connection, VeloError> {
        self.nic.unit(|device, _, local| device.velo_connect(local, to))
    }

    /// Unmaps a requester page.
    ///
    /// # Errors
    /// [`VeloError::Error`] if there is no such connection.
    pub fn disconnect(&self, connection: Connection) -> Result<(), VeloError> {
        self.nic.unit(|device, _, local| device.velo_disconnect(local, connection))
    }

    /// Sends a packet. Does not block; takes `velo.send_ns` of the processor, also when it is refused for want of
    /// credit.
    ///
    /// # Errors
    /// [`VeloError::InvMsg`], [`VeloError::InvMtt`], [`VeloError::Error`] for a connection that does not exist or
    /// has given up, [`VeloError::TryAgain`]. Nothing is sent then.
    pub fn send(&self, connection: Connection, message: &[u8], tag: u8, mtt: u8) -> Result<(), VeloError> {
        self.nic.charge(self.nic.costs().velo_send);
        let kind = (tag, mtt);
        let sent =
            self.nic.own_unit(|device, port, local| device.velo_send(local, connection, message, kind, port));
        if !matches!(sent, Err(VeloError::TryAgain { .. })) {
            return sent;
        }
        // The rank may have run ahead of reports that make room.
        self.nic.unit(|device, port, local| device.velo_send(local, connection, message, kind, port))
    }

    /// Takes the oldest message, or the oldest of a type; waits for it. Messages of other types stay.
    ///
    /// # Errors
    /// [`VeloError::InvalidMbox`], [`VeloError::InvMtt`].
    pub fn recv(&self, mtt: Option<u8>) -> Result<Message, VeloError> {
        loop {
            match self.take(mtt) {
                Err(VeloError::NoMsg | VeloError::NoMatch { .. }) => {
                    self.nic.idle(None, WaitFor::Named("a VELO message"));
                }
                other => return other,
            }
        }
    }

    /// Takes the oldest message, or the oldest of a type, if there is one. Does not block.
    ///
    /// # Errors
    /// [`VeloError::NoMsg`], [`VeloError::NoMatch`], [`VeloError::InvalidMbox`], [`VeloError::InvMtt`].
    pub fn probe_recv(&self, mtt: Option<u8>) -> Result<Message, VeloError> {
        let taken = self.take(mtt);
        if taken.is_err() {
            self.nic.charge_empty_poll();
        }
        taken
    }

    /// [`Velo::probe_recv`] of any type, into a place of one's own; returns whether there was a message.
    #[inline]
    pub(crate) fn probe_into(&self, message: &mut Message) -> bool {
        self.nic.sync();
        let taken = self.take_seen_into(message);
        if !taken {
            self.nic.charge_empty_poll();
        }
        taken
    }

    /// Takes the oldest message that was there when the process last looked, if there is one, into a place of
    /// one's own; a look that finds nothing costs nothing. For the rest of a batch, behind a [`Velo::probe_recv`]
    /// that has looked.
    #[inline]
    pub(crate) fn take_seen_into(&self, message: &mut Message) -> bool {
        if !self.nic.has_mail() {
            return false;
        }
        let taken = self.nic.seen_unit(|device, port, local| device.velo_take(local, None, message, port));
        if taken.is_ok() {
            self.charge_received(message);
        }
        taken.is_ok()
    }

    fn take(&self, mtt: Option<u8>) -> Result<Message, VeloError> {
        let mut message = Message::NONE;
        self.take_into(mtt, &mut message)?;
        Ok(message)
    }

    #[inline]
    fn take_into(&self, mtt: Option<u8>, message: &mut Message) -> Result<(), VeloError> {
        self.nic.unit(|device, port, local| device.velo_take(local, mtt, message, port))?;
        self.charge_received(message);
        Ok(())
    }

    #[inline]
    fn charge_received(&self, message: &Message) {
        let units = message.data().len().div_ceil(64).max(1) as u64;
        self.nic.charge(am_core::Span(self.nic.costs().velo_receive.0 * units));
    }
}
