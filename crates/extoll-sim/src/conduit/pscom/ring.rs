//! The RMA plugin: a connection as two rings of buffers, written by puts.
//!
//! The sender copies a chunk and its tail to the next send buffer and puts it to the end of the next receive buffer of the
//! peer, one put for each chunk, in order. The receiver sees the tail's marker, takes the chunk, clears the marker and owes
//! the token. Empty messages, which only return tokens, are a tail alone, sent by an immediate put.

use super::config::RingConfig;
use super::stream::Outgoing;
use super::tail::{TAIL_BYTES, Tail, TailError, UNUSED};
use super::tokens::{TokenError, Tokens};
use crate::nic::rma::{Access, Connection, Nla, Notify, Region, Rma, RmaError};
use crate::nic::{Address, HostMemory};
use am_core::Span;
use thiserror::Error;

/// Why a ring connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RingError {
    /// The peer wrote a tail that makes no sense.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// The peer returned tokens that it never had.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The interface refused a command.
    #[error(transparent)]
    Rma(#[from] RmaError),
}

/// One end of a connection.
pub(super) struct Ring<'a> {
    rma: Rma<'a>,
    connection: Connection,
    config: RingConfig,
    /// The software's part of sending or taking a slot.
    software: Span,
    tokens: Tokens,
    send: HostMemory,
    send_region: Region,
    receive: HostMemory,
    receive_nla: Nla,
    /// Where the peer's receive buffers are, once it has said so.
    remote: Option<Nla>,
    next_send: u16,
    next_remote: u16,
    next_receive: u16,
    /// A slot, between the memory and its buffer.
    scratch: Vec<u8>,
}

impl<'a> Ring<'a> {
    /// Allocates and registers the buffers of a connection.
    pub(super) fn open(rma: &Rma<'a>, to: Address, config: RingConfig, software: Span) -> Result<Self, RmaError> {
        let bytes = |buffers: u16| usize::from(buffers) * config.buffer_bytes as usize;
        let (send, receive) =
            (HostMemory::new(bytes(config.send_buffers)), HostMemory::new(bytes(config.receive_buffers)));
        let send_region = rma.register(&send, 0, send.len() as u64, Access::ReadOnly)?;
        let receive_region = rma.register(&receive, 0, receive.len() as u64, Access::ReadWrite)?;
        Ok(Self {
            rma: rma.clone(),
            connection: rma.connect(to)?,
            config,
            software,
            tokens: Tokens::new(config.rules()),
            send,
            send_region,
            receive_nla: rma.nla(receive_region, 0)?,
            receive,
            remote: None,
            next_send: 0,
            next_remote: 0,
            next_receive: 0,
            scratch: vec![0; config.buffer_bytes as usize],
        })
    }

    /// Where this end's receive buffers are, for the peer.
    pub(super) fn nla(&self) -> Nla {
        self.receive_nla
    }

    /// The RMA connection to the peer.
    pub(super) fn connection(&self) -> Connection {
        self.connection
    }

    /// The peer has said where its receive buffers are.
    pub(super) fn greet(&mut self, remote: Nla) {
        self.remote = Some(remote);
    }

    /// Whether the peer has said where its receive buffers are.
    pub(super) fn is_open(&self) -> bool {
        self.remote.is_some()
    }

    /// Sends the next chunk of a message; returns its length. `None`: busy, no buffer is free or the peer is not yet known.
    pub(super) fn send(&mut self, message: &Outgoing) -> Result<Option<usize>, RingError> {
        let Some(remote) = self.remote.filter(|_| self.tokens.may_send(true)) else {
            return Ok(None);
        };
        let len = message.chunk(&mut self.scratch[..self.config.payload()]);
        let put = self.config.padding.put_bytes(len);
        let tail = Tail { token: self.tokens.owed(), payload: len as u16 };
        self.scratch[len..put - TAIL_BYTES].fill(0);
        self.scratch[put - TAIL_BYTES..put].copy_from_slice(&tail.encode());
        let from = usize::from(self.next_send) * self.slot();
        // The buffer's last put has been executed: its token has come back.
        self.send.write(from, &self.scratch[..put]);
        self.rma.nic.charge(self.software);
        let to = self.slot_end(remote, put);
        let posted =
            self.rma.post_put_bt(self.connection, self.send_region, from as u64, put as u32, to, Notify::NONE);
        if self.refused(posted)? {
            return Ok(None);
        }
        self.tokens.send(true);
        self.next_send = (self.next_send + 1) % self.config.send_buffers;
        self.next_remote = (self.next_remote + 1) % self.config.receive_buffers;
        Ok(Some(len))
    }

    /// Returns tokens in an empty message if enough are owed; returns whether it did.
    pub(super) fn return_tokens(&mut self) -> Result<bool, RingError> {
        let Some(remote) = self.remote.filter(|_| self.tokens.must_return() && self.tokens.may_send(false)) else {
            return Ok(false);
        };
        let tail = Tail { token: self.tokens.owed(), payload: 0 }.encode();
        self.rma.nic.charge(self.software);
        let to = self.slot_end(remote, TAIL_BYTES);
        let value = u64::from_le_bytes(tail);
        let posted = self.rma.post_immediate_put(self.connection, value, TAIL_BYTES as u32, to, Notify::NONE);
        if self.refused(posted)? {
            return Ok(false);
        }
        self.tokens.send(false);
        self.next_remote = (self.next_remote + 1) % self.config.receive_buffers;
        Ok(true)
    }

    /// Takes the next slot if its tail says that it is there: hands the chunk to `feed`, which gets nothing of an empty
    /// message. Call after [`Nic::sync`](crate::nic::Nic::sync).
    pub(super) fn take(&mut self, feed: impl FnOnce(&[u8])) -> Result<bool, RingError> {
        let slot = self.slot();
        let begin = usize::from(self.next_receive) * slot;
        let tail_at = begin + slot - TAIL_BYTES;
        let Some(tail) = Tail::decode(self.receive.word(tail_at).to_le_bytes(), slot)? else {
            return Ok(false);
        };
        self.rma.charge_receive();
        self.rma.nic.charge(self.software);
        self.tokens.arrive(tail.token)?;
        let len = usize::from(tail.payload);
        if len != 0 {
            let from = begin + slot - self.config.padding.put_bytes(len);
            self.receive.read(from, &mut self.scratch[..len]);
            feed(&self.scratch[..len]);
        }
        self.receive.write(tail_at + 4, &UNUSED.to_le_bytes());
        self.tokens.consume(len != 0);
        self.next_receive = (self.next_receive + 1) % self.config.receive_buffers;
        Ok(true)
    }

    fn slot(&self) -> usize {
        self.config.buffer_bytes as usize
    }

    /// Where a put of `bytes` bytes goes so that it ends with the peer's next slot.
    fn slot_end(&self, remote: Nla, bytes: usize) -> Nla {
        let end = (usize::from(self.next_remote) + 1) * self.slot();
        Nla(remote.0 + (end - bytes) as u64)
    }

    /// Whether a command has to be posted again later.
    fn refused(&self, posted: Result<(), RmaError>) -> Result<bool, RingError> {
        match posted {
            Ok(()) => Ok(false),
            Err(RmaError::NoDescMem { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
