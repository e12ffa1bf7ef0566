//! A rank's handle to its node's interface and to virtual time.

use super::address::Address;
use super::device::{Context as State, Counters, Exanet, Shared};
use super::errors::{Fault, MapError, Nack, PacketError, Progress, RdmaError};
use super::packetizer::{Channels, Message};
use super::sending::Order;
use super::transfer::{Notify, TransferId};
use super::translation::{Access, Paging};
use crate::model::{Costs, Parameters};
use am_core::PeerStatus;
use fabric_sim::{Context, Handle, HostMemory};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// What a rank's program gets from [`run`](crate::run): its interface and its time. Clones are handles to the same
/// rank.
///
/// [Idling](Handle::idle) ends for: packets in the mailbox, refused packets, ends of transfers, notifications,
/// room to send after FULL.
#[derive(Clone)]
pub struct Nic<'a> {
    handle: Handle<'a, Exanet>,
    shared: Rc<Shared>,
}

impl fmt::Debug for Nic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("rank", &self.rank()).finish_non_exhaustive()
    }
}

impl<'a> Deref for Nic<'a> {
    type Target = Handle<'a, Exanet>;

    fn deref(&self) -> &Handle<'a, Exanet> {
        &self.handle
    }
}

/// What there is for a process to look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    /// Packets in the mailbox.
    pub(crate) mail: bool,
    /// Channels whose packets were refused.
    pub(crate) refused: u64,
    /// Transfers that have ended.
    pub(crate) ended: bool,
}

impl<'a> Nic<'a> {
    pub(crate) fn new(context: Context<'a, Exanet>, shared: Rc<Shared>) -> Self {
        let address = shared.directory.of(context.rank());
        // The repair of losses uses what the rank's sending passes.
        let alone = !shared.lossy && shared.directory.processes(address.node.into()) == 1;
        Self { handle: Handle::new(context, address.context.into(), alone), shared }
    }

    /// Where a rank is; `None` outside the job.
    pub fn address(&self, rank: u32) -> Option<Address> {
        self.shared.directory.address(rank)
    }

    /// The rank at an address, if there is one.
    pub fn rank_at(&self, address: Address) -> Option<u32> {
        self.shared.directory.rank(address)
    }

    /// The machine's parameter table.
    pub fn parameters(&self) -> &Parameters {
        &self.shared.parameters
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.shared.costs
    }

    /// What the interface of this rank's node has counted so far.
    pub fn counters(&self) -> Counters {
        self.unit(|device, _, _| device.counters())
    }

    /// Opens this process's context: from now on others can send to it. Opening it twice changes nothing; one
    /// that has left cannot be opened again. Does not block.
    pub fn open(&self) -> Address {
        self.unit(|device, _, local| {
            let process = device.process(local);
            if process.context == State::NotYet {
                process.context = State::Open;
            }
            process.address
        })
    }

    /// Maps memory at an address of this process, a multiple of the page size. Costs no time. Does not block.
    ///
    /// # Errors
    /// [`MapError`]; nothing was mapped.
    pub fn map(&self, at: u64, memory: &HostMemory, access: Access, paging: Paging) -> Result<(), MapError> {
        self.unit(|device, _, local| {
            let process = device.process(local);
            if process.context != State::Open {
                return Err(MapError::NotOpen);
            }
            process.space.map(at, memory, access, paging)
        })
    }

    /// Forgets the mapping that begins at an address: transfers that use it fault from now on. Does not block.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub fn unmap(&self, at: u64) -> Result<(), MapError> {
        self.unit(|device, _, local| device.process(local).space.unmap(at))
    }

    /// Lets the system take away the page at an address of this process, unless it is pinned.
    pub fn evict(&self, at: u64) {
        self.unit(|device, _, local| device.process(local).space.evict(at));
    }

    /// Sends a control packet of at most 64 bytes. It occupies the channel that this returns until the other side
    /// has taken it (OK); one that is refused (NACK) stays there, and this rank is woken. Packets of a pair can
    /// overtake each other. Costs [`send_ns`](crate::model::PacketizerParameters) of the processor. Does not
    /// block.
    ///
    /// # Errors
    /// [`PacketError::Full`] if no channel is free: this rank is woken when one is. Others for what cannot be
    /// sent.
    pub fn pkt_send(&self, to: Address, bytes: &[u8]) -> Result<u32, PacketError> {
        self.charge(self.costs().send);
        match self.own_unit(|device, port, local| device.packet_send(local, to, bytes, port)) {
            // Channels may have become free since this rank last looked.
            Err(PacketError::Full { .. }) => {
                self.unit(|device, port, local| device.packet_send(local, to, bytes, port))
            }
            sent => sent,
        }
    }

    /// What the channels hold. Costs nothing: it is a register that the interface keeps in memory. A packet that
    /// was taken wakes nobody unless a send was [refused](PacketError::Full) for want of a channel: who waits for
    /// its end looks again after a time.
    pub fn pkt_channels(&self) -> Channels {
        self.unit(|device, _, local| device.process(local).packetizer.state())
    }

    /// Where the refused packet in a channel was to go, and why it was refused.
    pub fn pkt_refused(&self, channel: u32) -> Option<(u32, Nack)> {
        self.unit(|device, _, local| device.process(local).packetizer.refusal(channel))
    }

    /// Sends a refused packet again. Does not block.
    ///
    /// # Errors
    /// [`PacketError::Full`] if too much is under way to that node; the channel holds no refused packet.
    pub fn pkt_retry(&self, channel: u32) -> Result<(), PacketError> {
        self.charge(self.costs().send);
        self.unit(|device, port, local| device.packet_retry(local, channel, port))
    }

    /// Gives a refused packet up and frees its channel; returns why it was refused. Does not block.
    ///
    /// # Errors
    /// The channel holds no refused packet.
    pub fn pkt_cancel(&self, channel: u32) -> Result<Nack, PacketError> {
        let cancelled = self.unit(|device, _, local| device.process(local).packetizer.cancel(channel));
        cancelled.ok_or(PacketError::NotRefused(channel))
    }

    /// Takes the next packet out of the mailbox; `None` if it is empty. Costs
    /// [`receive_ns`](crate::model::PacketizerParameters), or an empty look. Does not block.
    pub fn mbox_poll(&self) -> Option<Message> {
        let message = self.unit(|device, _, local| device.process(local).mailbox.take());
        self.charge_look(message.is_some());
        message
    }

    /// Takes a packet that was in the mailbox when this rank last looked at its interface.
    pub(crate) fn mbox_take_seen(&self) -> Option<Message> {
        let message = self.seen_unit(|device, _, local| device.process(local).mailbox.take());
        if message.is_some() {
            self.charge_look(true);
        }
        message
    }

    /// One look at all that concerns this process: its words of states lie in one line of memory. Costs nothing.
    pub(crate) fn glance(&self) -> Glance {
        self.unit(|device, _, local| {
            let process = device.process(local);
            let (mail, refused) = (process.mailbox.len() != 0, process.packetizer.state().refused);
            Glance { mail, refused, ended: process.transfers.ended() != 0 }
        })
    }

    /// How far a transfer was when this rank last looked at its interface, at no cost. An end is told once.
    pub(crate) fn rdma_seen(&self, id: TransferId) -> Option<Progress> {
        self.seen_unit(|device, _, local| device.process(local).transfers.poll(id))
    }

    /// Gives a transfer up whose other side is gone, and with it its end.
    pub(crate) fn rdma_abandon(&self, id: TransferId) {
        self.unit(|device, _, local| {
            let transfers = &mut device.process(local).transfers;
            transfers.end(id, Err(Fault::Unreachable));
            transfers.poll(id);
        });
    }

    fn charge_look(&self, found: bool) {
        if found {
            self.charge(self.costs().receive);
        } else {
            self.charge_empty_poll();
        }
    }

    /// Writes `len` bytes at an address of this process to an address of another, and then, with `notify`, a word
    /// there. The source has to stay as it is until [`Nic::rdma_poll`] says that the transfer has ended: pages
    /// that are not there make the engine send parts of it again. Costs
    /// [`post_ns`](crate::model::RdmaParameters). Does not block.
    ///
    /// # Errors
    /// [`RdmaError::QueueFull`] if as many transfers as the context may have were not polled to their end; others
    /// for what cannot be written. Whether addresses are mapped shows later.
    pub fn rdma_write(
        &self,
        source: u64,
        to: Address,
        destination: u64,
        len: u64,
        notify: Option<Notify>,
    ) -> Result<TransferId, RdmaError> {
        self.charge(self.costs().post);
        let order = Order { local: source, to, remote: destination, len, notify };
        self.unit(|device, port, local| device.transfer(local, &order, true, port))
    }

    /// Reads `len` bytes at an address of another process to an address of this one, and then writes the word of
    /// `notify` here: the interface asks that of the other node to write, and where something can be lost now and
    /// then whether it still does. Costs and errors as [`Nic::rdma_write`]. Does not block.
    ///
    /// # Errors
    /// As [`Nic::rdma_write`].
    pub fn rdma_read(
        &self,
        from: Address,
        source: u64,
        destination: u64,
        len: u64,
        notify: Option<Notify>,
    ) -> Result<TransferId, RdmaError> {
        self.charge(self.costs().post);
        let order = Order { local: destination, to: from, remote: source, len, notify };
        self.unit(|device, port, local| device.transfer(local, &order, false, port))
    }

    /// How far a transfer is. An end is told once. Costs nothing where it is over, otherwise an empty look. Does
    /// not block.
    ///
    /// # Errors
    /// [`RdmaError::NoTransfer`] if its end was told before.
    pub fn rdma_poll(&self, id: TransferId) -> Result<Progress, RdmaError> {
        let progress = self.unit(|device, _, local| device.process(local).transfers.poll(id));
        if progress == Some(Progress::Pending) {
            self.charge_empty_poll();
        }
        progress.ok_or(RdmaError::NoTransfer)
    }

    /// Looks for a notification in memory: whether the word at an offset has this value. Costs
    /// [`notice_ns`](crate::model::RdmaParameters), or an empty look. Does not block.
    ///
    /// # Panics
    /// If the offset is no multiple of 8, or outside the memory.
    pub fn notified(&self, memory: &HostMemory, at: usize, value: u64) -> bool {
        self.sync();
        let found = memory.word(at) == value;
        if found {
            self.charge_notice();
        } else {
            self.charge_empty_poll();
        }
        found
    }

    /// Charges what noticing a notification costs.
    pub(crate) fn charge_notice(&self) {
        self.charge(self.costs().notice);
    }

    /// Leaves the job once everything that this process sent was taken, packets that are refused by a full mailbox
    /// included: its interface goes on without it. Then its context is closed. Only the first call counts. Does
    /// not block.
    pub fn depart(&self, status: PeerStatus) {
        self.unit(|device, port, local| device.depart(local, status, port));
    }
}
