//! Why the interface does not do what a program asks for.

use super::address::Address;
use thiserror::Error;

/// Why the packetizer did not take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The process has not opened its context.
    #[error("the process has not opened its context")]
    NotOpen,
    /// More bytes than a control packet holds.
    #[error("a packet of {len} bytes exceeds the limit of 64")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// There is no such process.
    #[error("there is no process at {0}")]
    NoProcess(Address),
    /// FULL: every channel holds a packet that was not accepted yet, or too many are under way to that node.
    #[error(
        "full: {busy} of {channels} channels hold packets, and {under_way} of 64 units are under way to the node"
    )]
    Full {
        /// Channels in use.
        busy: u32,
        /// Channels that the context has.
        channels: u32,
        /// What is under way to the destination's node.
        under_way: u32,
    },
    /// The channel holds no packet that was refused.
    #[error("channel {0} holds no refused packet")]
    NotRefused(u32),
}

/// NACK: why the other side did not take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Nack {
    /// Its mailbox is full.
    #[error("the mailbox is full")]
    MailboxFull,
    /// The process has no open context.
    #[error("the process has no open context")]
    NoContext,
    /// Its node does not answer. The packet may have been taken all the same: sent again, it may come twice.
    #[error("the node does not answer")]
    Unreachable,
}

/// Why the RDMA engine did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// The process has not opened its context.
    #[error("the process has not opened its context")]
    NotOpen,
    /// A transfer has at least a byte, and its addresses do not wrap.
    #[error("a transfer of {len} bytes at {at:#x} is none")]
    BadLength {
        /// Its length in bytes.
        len: u64,
        /// The address that it begins at.
        at: u64,
    },
    /// There is no such process.
    #[error("there is no process at {0}")]
    NoProcess(Address),
    /// QUEUE_FULL: as many transfers as the context may have were not polled to their end.
    #[error("queue full: {0} transfers are under way")]
    QueueFull(u32),
    /// There is no such transfer, or its end was polled already.
    #[error("there is no such transfer")]
    NoTransfer,
}

/// Why memory was not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The process has not opened its context.
    #[error("the process has not opened its context")]
    NotOpen,
    /// A mapping begins with a page.
    #[error("address {at:#x} is not a multiple of the page size {page}")]
    Unaligned {
        /// The address.
        at: u64,
        /// The page size in bytes.
        page: u64,
    },
    /// Part of the addresses is in use, or they wrap.
    #[error("{len} bytes at {at:#x} are in use already")]
    InUse {
        /// The address.
        at: u64,
        /// The length in bytes.
        len: u64,
    },
    /// Nothing is mapped at that address.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(u64),
}

/// Why a transfer came to nothing. Its notification is never written, unless the other node could be reached and
/// its answers could not ([`Fault::Unreachable`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The source is not mapped.
    #[error("the source is not mapped")]
    Source,
    /// The destination, or the place of the notification, is not mapped for writing.
    #[error("the destination is not mapped for writing")]
    Destination,
    /// The process at the other side has no open context.
    #[error("the other process has no open context")]
    NoContext,
    /// The other node does not answer, or has given up answering a read. A write may have arrived all the same; a
    /// read writes nothing from now on.
    #[error("the other node does not answer")]
    Unreachable,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The source must stay as it is.
    Pending,
    /// Every byte is at its destination.
    Done,
    /// It came to nothing.
    Fault(Fault),
}
