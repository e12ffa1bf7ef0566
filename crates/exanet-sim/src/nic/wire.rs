//! What travels between interfaces.

use super::address::Address;
use super::errors::Fault;
use super::sequence::Answer;
use super::transfer::{Notify, TransferId};
use fabric_sim::bytes::PooledBytes;

/// What packets of the simulation carry.
#[derive(Clone, Debug)]
pub struct Wire<D = PooledBytes>(pub(crate) Body<D>);

#[derive(Clone, Debug)]
pub(crate) enum Body<D = PooledBytes> {
    /// Something that is answered.
    Unit(u32, Content<D>),
    /// The answer to it; `None` says that a page is being fetched.
    Answer(u32, Option<Answer>),
    /// A notification on its way to memory.
    Notify(Notify),
}

#[derive(Clone, Debug)]
pub(crate) enum Content<D = PooledBytes> {
    /// A control packet.
    Packet(Address, D),
    /// Asks the other side to write.
    Read(ReadRequest),
    /// What was asked for cannot be read.
    ReadFault(TransferId, Fault),
    /// Asks whether a read is still being served.
    Watch(TransferId),
    /// Cells of a block.
    Cells(Cells<D>),
}

impl<D> Wire<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Wire<E> {
        Wire(match self.0 {
            Body::Unit(number, content) => Body::Unit(number, content.map(bytes)),
            Body::Answer(number, answer) => Body::Answer(number, answer),
            Body::Notify(notify) => Body::Notify(notify),
        })
    }
}

impl<D> Content<D> {
    fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Content<E> {
        match self {
            Self::Packet(address, data) => Content::Packet(address, bytes(data)),
            Self::Read(request) => Content::Read(request),
            Self::ReadFault(id, fault) => Content::ReadFault(id, fault),
            Self::Watch(id) => Content::Watch(id),
            Self::Cells(cells) => {
                let Cells { data, at, first, block_len, transfer, blocks, floor, notify, read } = cells;
                let data = bytes(data);
                Content::Cells(Cells { data, at, first, block_len, transfer, blocks, floor, notify, read })
            }
        }
    }
}

/// An emulated read: the transfer that the other side is to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) id: TransferId,
    /// Where the bytes are, in the process that is asked.
    pub(crate) source: u64,
    /// Where they go, in the process that asks.
    pub(crate) destination: u64,
    pub(crate) len: u64,
    pub(crate) notify: Option<Notify>,
}

/// Some cells of a block of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Cells<D = PooledBytes> {
    pub(crate) data: D,
    /// Where they go.
    pub(crate) at: u64,
    /// The first of them, of its block.
    pub(crate) first: u32,
    /// Bytes of the block.
    pub(crate) block_len: u32,
    /// The transfer's number, its blocks, and the oldest transfer to that node that has not ended.
    pub(crate) transfer: u32,
    pub(crate) blocks: u64,
    pub(crate) floor: u32,
    pub(crate) notify: Option<Notify>,
    /// Of the read that it answers.
    pub(crate) read: Option<TransferId>,
}
