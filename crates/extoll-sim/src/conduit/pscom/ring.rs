//! The RMA plugin: a connection as two rings of buffers, written by puts.
//!
//! The sender copies a chunk and its tail to the next send buffer and puts it to the end of the next receive
//! buffer of the peer, one put for each chunk, in order. The receiver sees the tail's marker, takes the chunk,
//! clears the marker and owes the token. Empty messages, which only return tokens, are a tail alone, sent by an
//! immediate put.
//!
//! What a buffer holds is forgotten once nobody needs it any more, so that the simulation keeps only what is under
//! way: 128 KB for each of very many connections would not fit.

use super::config::RingConfig;
use super::stream::Outgoing;
use super::tail::{TAIL_BYTES, Tail, TailError, UNUSED};
use super::tokens::{TokenError, Tokens};
use crate::nic::Address;
use crate::nic::rma::{Access, Connection, Nla, Notify, Region, Rma, RmaError};
use crate::nic::sparse::{Chunks, Marks, SparseMemory};
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

/// What a slot costs the processor that fills or empties it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotCosts {
    /// Whatever it holds.
    pub(super) software: Span,
    /// Copying each 64 bytes after the first.
    pub(super) copy_line: Span,
}

impl SlotCosts {
    fn of(self, bytes: usize) -> Span {
        let more = bytes.div_ceil(64).saturating_sub(1) as u64;
        Span(self.software.0 + more * self.copy_line.0)
    }
}

/// One end of a connection.
pub(super) struct Ring<'a> {
    rma: Rma<'a>,
    connection: Connection,
    config: RingConfig,
    costs: SlotCosts,
    tokens: Tokens,
    send: SparseMemory,
    send_region: Region,
    receive: SparseMemory,
    receive_region: Region,
    receive_nla: Nla,
    /// Where the peer's receive buffers are, once it has said so.
    remote: Option<Nla>,
    next_send: u16,
    next_remote: u16,
    next_receive: u16,
}

impl<'a> Ring<'a> {
    /// Allocates and registers the buffers of a connection. Whatever is written to the receive buffers marks the
    /// number.
    ///
    /// # Errors
    /// [`RmaError::NoMem`] where the translation table has no room for them; nothing stays registered then.
    pub(super) fn open(
        rma: &Rma<'a>,
        to: Address,
        config: RingConfig,
        costs: SlotCosts,
        chunks: &Chunks,
        (marks, number): (&Marks, u32),
    ) -> Result<Self, RmaError> {
        let bytes = |buffers: u16| usize::from(buffers) * config.buffer_bytes as usize;
        let send = SparseMemory::new(bytes(config.send_buffers), chunks);
        let receive = SparseMemory::marked(bytes(config.receive_buffers), chunks, marks, number);
        let connection = rma.connect(to)?;
        let send_region = rma.register_sparse(&send, Access::ReadOnly)?;
        let receive_region = match rma.register_sparse(&receive, Access::ReadWrite) {
            Ok(region) => region,
            Err(error) => {
                rma.unregister(send_region)?;
                rma.disconnect(connection)?;
                return Err(error);
            }
        };
        Ok(Self {
            rma: rma.clone(),
            connection,
            config,
            costs,
            tokens: Tokens::new(config.rules()),
            send,
            send_region,
            receive_nla: rma.nla(receive_region, 0)?,
            receive_region,
            receive,
            remote: None,
            next_send: 0,
            next_remote: 0,
            next_receive: 0,
        })
    }

    /// Gives everything back. Nothing has been sent, and nothing will come.
    pub(super) fn close(self) {
        let Self { rma, connection, send_region, receive_region, .. } = self;
        let given_back = [rma.unregister(send_region), rma.unregister(receive_region), rma.disconnect(connection)];
        debug_assert!(given_back.iter().all(Result::is_ok), "they are this ring's own");
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

    /// Whether a chunk can be sent: the peer is known, there is a token and a free buffer.
    pub(super) fn may_send(&self) -> bool {
        self.is_open() && self.tokens.may_send(true)
    }

    /// Whether tokens are to be returned as soon as that is possible.
    pub(super) fn must_return(&self) -> bool {
        self.tokens.must_return()
    }

    /// Sends the next chunk of a message; returns its length. `None`: busy, no buffer is free or the peer is not
    /// yet known. `scratch` has the size of a slot.
    pub(super) fn send(&mut self, message: &Outgoing, scratch: &mut [u8]) -> Result<Option<usize>, RingError> {
        let Some(remote) = self.remote.filter(|_| self.tokens.may_send(true)) else {
            return Ok(None);
        };
        let len = message.chunk(&mut scratch[..self.config.payload()]);
        let put = self.config.padding.put_bytes(len);
        let tail = Tail { token: self.tokens.owed(), payload: len as u16 };
        scratch[len..put - TAIL_BYTES].fill(0);
        scratch[put - TAIL_BYTES..put].copy_from_slice(&tail.encode());
        let from = usize::from(self.next_send) * self.slot();
        // The buffer's last put has been executed: its token has come back.
        self.send.store(from, &scratch[..put]);
        self.rma.nic.charge(self.costs.of(put));
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
        self.rma.nic.charge(self.costs.of(0));
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

    /// Takes the next slot if its tail says that it is there: hands the chunk to `feed`, which gets nothing of an
    /// empty message. Call after [`Nic::sync`](crate::nic::Nic::sync).
    pub(super) fn take(&mut self, scratch: &mut [u8], feed: impl FnOnce(&[u8])) -> Result<bool, RingError> {
        let slot = self.slot();
        let begin = usize::from(self.next_receive) * slot;
        let tail_at = begin + slot - TAIL_BYTES;
        let Some(tail) = Tail::decode(self.receive.word(tail_at).to_le_bytes(), slot)? else {
            return Ok(false);
        };
        self.rma.charge_receive();
        let len = usize::from(tail.payload);
        self.rma.nic.charge(self.costs.of(if len == 0 { 0 } else { self.config.padding.put_bytes(len) }));
        let in_use = self.tokens.buffers_used();
        self.tokens.arrive(tail.token)?;
        self.forget_sent(in_use);
        if len != 0 {
            let from = begin + slot - self.config.padding.put_bytes(len);
            self.receive.load(from, &mut scratch[..len]);
            feed(&scratch[..len]);
        }
        self.receive.store(tail_at + 4, &UNUSED.to_le_bytes());
        self.receive.discard(begin, slot);
        self.tokens.consume(len != 0);
        self.next_receive = (self.next_receive + 1) % self.config.receive_buffers;
        Ok(true)
    }

    /// Forgets what is in send buffers that have come back, of those that were in use.
    fn forget_sent(&self, in_use: u16) {
        let (slot, all) = (self.slot(), self.config.send_buffers);
        for back in 0..in_use - self.tokens.buffers_used() {
            // Those in use are the ones before the next; those that came back are the oldest of them.
            let index = (self.next_send + all - in_use + back) % all;
            self.send.discard(usize::from(index) * slot, slot);
        }
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
