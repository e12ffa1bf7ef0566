//! The operations of an [`Endpoint`].

use super::atomic::{Atomic, AtomicOp, AtomicValue, Number};
use super::operation::{Operation, Output, Owner};
use super::{OneSided, OneSidedError, PIECE};
use crate::address::{Address, Rank};
use crate::endpoint::Endpoint;
use crate::error::SendError;
use crate::layer::HasLayer;
use crate::segment::SegmentError;
use crate::time::Span;
use crate::transport::{Capability, Category, Landing, Lane, Ticket, Transport};
use std::sync::atomic::{Ordering, fence};

/// The number of an operation that travels as messages, and how sending them went.
type Begun = (u64, Result<(), SendError>);

/// How long a wait for a signal sleeps at most before it looks again: a peer's store wakes nobody.
const GLANCE: Span = Span::from_micros(20);

/// How an operation counts what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// It is one message.
    One,
    /// Each message is counted before it is sent, and the operation until all were.
    Counted,
}

/// Breaks an operation off that a panic keeps from being sent in full, as of a handler that a call serves
/// meanwhile: nobody would answer the message that waited for room. What was sent before goes on alone.
struct Sending<'e, T: Transport, S: HasLayer<OneSided>> {
    endpoint: &'e mut Endpoint<T, S>,
    id: u64,
    parts: Parts,
}

impl<T: Transport, S: HasLayer<OneSided>> Drop for Sending<'_, T, S> {
    fn drop(&mut self) {
        let operations = &mut self.endpoint.layer_unscheduled::<OneSided>().operations;
        if self.parts == Parts::Counted {
            operations.all_sent(self.id);
        }
        operations.break_off(self.id);
    }
}

/// Bytes of a part, as far as memory can hold them.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl<T: Transport, S: HasLayer<OneSided>> Endpoint<T, S> {
    /// Checks a range of a rank's segment.
    #[inline]
    pub(super) fn place(&self, rank: Rank, offset: u64, len: u64) -> Result<(), OneSidedError> {
        let Some(segment) = self.segment_len(rank) else {
            return Err(OneSidedError::NoSuchRank { rank, ranks: self.ranks() });
        };
        if offset.checked_add(len).is_none_or(|end| end > segment) {
            let source = SegmentError::OutOfRange { offset, len, segment };
            return Err(OneSidedError::Segment { rank, source });
        }
        Ok(())
    }

    /// The endpoint that a rank's operations go to, its first.
    pub(super) fn target(&self, rank: Rank) -> Result<Address, OneSidedError> {
        let address = Address::from(rank);
        let peer = self.shape().peer(address);
        peer.map(|_| address).ok_or(OneSidedError::NoSuchRank { rank, ranks: self.ranks() })
    }

    pub(super) fn begin(
        &mut self,
        target: Address,
        parts: usize,
        bytes: usize,
        owner: Owner,
    ) -> (u64, super::Requests) {
        let layer = self.layer_unscheduled::<OneSided>();
        let parts = u32::try_from(parts).expect("an operation has fewer than 2^32 parts");
        (layer.operations.begin(target, parts, bytes, owner), layer.requests)
    }

    /// Sends the messages of an operation that has begun.
    pub(super) fn sending(
        &mut self,
        id: u64,
        parts: Parts,
        send: impl FnOnce(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let sending = Sending { endpoint: self, id, parts };
        let sent = send(sending.endpoint);
        std::mem::forget(sending);
        sent
    }

    /// What a started operation is to its caller; after an error of sending, what was sent before goes on alone.
    pub(super) fn started<R>(
        &mut self,
        id: u64,
        owner: Owner,
        sent: Result<(), SendError>,
    ) -> Result<Operation<R>, OneSidedError> {
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        match sent {
            Ok(()) if owner == Owner::Handle => Ok(Operation::pending(id, &operations.dropped)),
            Ok(()) => Ok(Operation::done(0, Vec::new())),
            Err(error) => {
                operations.break_off(id);
                Err(error.into())
            }
        }
    }

    #[inline(never)]
    fn put_as(
        &mut self,
        rank: Rank,
        offset: u64,
        bytes: &[u8],
        owner: Owner,
    ) -> Result<Operation<()>, OneSidedError> {
        if let Some(memory) = self.mapped_segment(rank) {
            memory.write(offset, bytes).map_err(|source| OneSidedError::Segment { rank, source })?;
            return Ok(Operation::done(0, Vec::new()));
        }
        self.place(rank, offset, bytes.len() as u64)?;
        let to = self.target(rank)?;
        let (id, _) = self.begin(to, 1, 0, owner);
        let sent = self.sending(id, Parts::Counted, |endpoint| endpoint.put_pieces(to, id, offset, bytes));
        self.layer_unscheduled::<OneSided>().operations.all_sent(id);
        self.started(id, owner, sent)
    }

    /// What the network does by itself towards a target.
    fn native(&mut self, to: Address) -> Capability {
        if self.layer::<OneSided>().native { self.capability(to) } else { Capability::default() }
    }

    /// Starts the parts of a put that has begun: at least one, if they are messages.
    pub(super) fn put_pieces(&mut self, to: Address, id: u64, offset: u64, bytes: &[u8]) -> Result<(), SendError> {
        let native = self.native(to);
        if native.put != 0 {
            for (index, part) in (0..).zip(bytes.chunks(size(native.put))) {
                let place = (offset + index * native.put, Ticket { id, part: 0 });
                self.expect_more(id);
                self.start_native(to, place, part.len() as u64, |network, to, done| {
                    network.put(to, part, None, done)
                })?;
            }
            return Ok(());
        }
        let (piece, put) = (self.long_piece(to), self.layer::<OneSided>().requests.put);
        let (first, rest) = bytes.split_at(piece.min(bytes.len()));
        self.expect_more(id);
        self.request_long(to, put, id, first, offset)?;
        for (index, part) in (1..).zip(rest.chunks(piece)) {
            self.expect_more(id);
            self.request_long(to, put, id, part, offset + (index * piece) as u64)?;
        }
        Ok(())
    }

    /// Bytes that one Long message to a peer places at most.
    fn long_piece(&self, to: Address) -> usize {
        let most = self.max_payload(to, Category::Long, Lane::Request, 2).unwrap_or(u64::MAX);
        usize::try_from(most).unwrap_or(usize::MAX).max(1)
    }

    /// Writes bytes to a byte offset of a rank's segment and waits until they are there.
    ///
    /// # Errors
    /// A place outside the job or segment, a rank that is gone, an error of sending or waiting.
    #[inline(always)]
    pub fn put(&mut self, rank: Rank, offset: u64, bytes: &[u8]) -> Result<(), OneSidedError> {
        match self.mapped_segment(rank) {
            // Nothing is checked twice, and no operation made, where this is a store.
            Some(memory) => memory.write(offset, bytes).map_err(|source| OneSidedError::Segment { rank, source }),
            None => self.put_by_message(rank, offset, bytes),
        }
    }

    /// Apart, so that a put to memory is compiled into its callers.
    #[inline(never)]
    fn put_by_message(&mut self, rank: Rank, offset: u64, bytes: &[u8]) -> Result<(), OneSidedError> {
        let operation = self.put_as(rank, offset, bytes, Owner::Handle)?;
        Ok(self.wait(operation)?)
    }

    /// Begins to write bytes to a byte offset of a rank's segment. The source can be reused when this returns.
    ///
    /// # Errors
    /// As [`Endpoint::put`].
    pub fn put_nb(&mut self, rank: Rank, offset: u64, bytes: &[u8]) -> Result<Operation<()>, OneSidedError> {
        self.put_as(rank, offset, bytes, Owner::Handle)
    }

    /// As [`Endpoint::put_nb`], waited for by [`Endpoint::quiet`].
    ///
    /// # Errors
    /// As [`Endpoint::put`].
    #[inline]
    pub fn put_nbi(&mut self, rank: Rank, offset: u64, bytes: &[u8]) -> Result<(), OneSidedError> {
        match self.mapped_segment(rank) {
            Some(memory) => memory.write(offset, bytes).map_err(|source| OneSidedError::Segment { rank, source }),
            None => self.put_as(rank, offset, bytes, Owner::Quiet).map(drop),
        }
    }

    /// Begins to write bytes, and to add one to the 64-bit counter at byte `counter` of the same segment once they
    /// are there. The target sees it with [`Endpoint::wait_signal`].
    ///
    /// # Errors
    /// As [`Endpoint::put`]; in particular if the counter is misaligned, or the bytes exceed what one Long message
    /// places.
    pub fn put_signal(
        &mut self,
        rank: Rank,
        offset: u64,
        bytes: &[u8],
        counter: u64,
    ) -> Result<Operation<()>, OneSidedError> {
        self.place(rank, offset, bytes.len() as u64)?;
        self.aligned(rank, counter, 8, 8)?;
        if let Some(memory) = self.mapped_segment(rank) {
            let at = |source| OneSidedError::Segment { rank, source };
            memory.write(offset, bytes).map_err(at)?;
            // Release: whoever sees the counter sees the bytes; pairs with the fence in `wait_signal`.
            fence(Ordering::Release);
            memory.atomic(counter, &Atomic::new(AtomicOp::Add(1u64))).map_err(at)?;
            return Ok(Operation::done(0, Vec::new()));
        }
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, 0, Owner::Handle);
        let native = self.native(to);
        let sent = if native.signal && bytes.len() as u64 <= native.put {
            let place = (offset, Ticket { id, part: 0 });
            self.sending(id, Parts::One, |endpoint| {
                endpoint.start_native(to, place, bytes.len() as u64, |network, to, done| {
                    network.put(to, bytes, Some(counter), done)
                })
            })
        } else {
            let (put, args) = (requests.put_signal, (id, counter));
            self.sending(id, Parts::One, |endpoint| endpoint.request_long(to, put, args, bytes, offset))
        };
        self.started(id, Owner::Handle, sent)
    }

    /// Waits until the 64-bit counter at a byte offset of this rank's own segment is at least `value`, serving
    /// incoming messages meanwhile; returns what it is.
    ///
    /// # Errors
    /// A misaligned counter, and what [`Endpoint::wait_until`] fails with.
    pub fn wait_signal(&mut self, counter: u64, value: u64) -> Result<u64, OneSidedError> {
        let me = self.rank();
        self.aligned(me, counter, 8, 8)?;
        let get = Atomic::new(AtomicOp::<u64>::Get);
        let look = |endpoint: &Self| endpoint.segment().atomic(counter, &get).unwrap_or(0);
        self.wait_glancing(GLANCE, |endpoint| look(endpoint) >= value)?;
        // Acquire: pairs with the Release in `put_signal`.
        fence(Ordering::Acquire);
        Ok(look(self))
    }

    /// Checks a range of a rank's segment and that it is aligned.
    pub(super) fn aligned(&self, rank: Rank, offset: u64, len: u64, alignment: u64) -> Result<(), OneSidedError> {
        self.place(rank, offset, len)?;
        if offset.is_multiple_of(alignment) {
            return Ok(());
        }
        Err(OneSidedError::Segment { rank, source: SegmentError::Misaligned { offset, alignment } })
    }

    /// Reads bytes at a byte offset of a rank's segment.
    ///
    /// # Errors
    /// As [`Endpoint::put`]; `out` may be changed in part then.
    #[inline(always)]
    pub fn get(&mut self, rank: Rank, offset: u64, out: &mut [u8]) -> Result<(), OneSidedError> {
        match self.mapped_segment(rank) {
            Some(memory) => memory.read(offset, out).map_err(|source| OneSidedError::Segment { rank, source }),
            None => self.get_by_message(rank, offset, out),
        }
    }

    #[inline(never)]
    fn get_by_message(&mut self, rank: Rank, offset: u64, out: &mut [u8]) -> Result<(), OneSidedError> {
        let (id, sent) = self.begin_get(rank, offset, out.len())?;
        self.take_get(id, sent, out)
    }

    /// Waits for a get that has begun, and copies out what it brings.
    pub(super) fn take_get(
        &mut self,
        id: u64,
        sent: Result<(), SendError>,
        out: &mut [u8],
    ) -> Result<(), OneSidedError> {
        if let Err(error) = sent {
            self.layer_unscheduled::<OneSided>().operations.break_off(id);
            return Err(error.into());
        }
        let waited = self.wait_pending(id);
        let operations = &mut self.layer_unscheduled::<OneSided>().operations;
        // What it brings later is let go.
        match &waited {
            Ok(failed) if failed.is_empty() => {
                operations.end_into(id, out);
                return Ok(());
            }
            Ok(_) => drop(operations.end(id)),
            Err(_) => operations.abandon(id),
        }
        self.fail(waited?)
    }

    /// Begins to read `len` bytes at a byte offset of a rank's segment; [`Endpoint::wait`] returns them. Allocates
    /// their buffer.
    ///
    /// # Errors
    /// As [`Endpoint::put`].
    pub fn get_nb(&mut self, rank: Rank, offset: u64, len: usize) -> Result<Operation<Vec<u8>>, OneSidedError> {
        if self.mapped_segment(rank).is_some() {
            self.place(rank, offset, len as u64)?;
            let mut bytes = vec![0; len];
            self.get(rank, offset, &mut bytes)?;
            return Ok(Operation::done(0, bytes));
        }
        let (id, sent) = self.begin_get(rank, offset, len)?;
        self.started(id, Owner::Handle, sent)
    }

    /// Begins to read over messages; the operation's number, and whether all of its requests were sent.
    fn begin_get(&mut self, rank: Rank, offset: u64, len: usize) -> Result<Begun, OneSidedError> {
        self.place(rank, offset, len as u64)?;
        let to = self.target(rank)?;
        let (id, _) = self.begin(to, 1, len, Owner::Handle);
        let sent = self.sending(id, Parts::Counted, |endpoint| endpoint.get_pieces(to, id, offset, len, 0));
        self.layer_unscheduled::<OneSided>().operations.all_sent(id);
        Ok((id, sent))
    }

    /// Sends the messages of a get that has begun, whose bytes belong at `into` of its buffer.
    pub(super) fn get_pieces(
        &mut self,
        to: Address,
        id: u64,
        offset: u64,
        len: usize,
        into: u64,
    ) -> Result<(), SendError> {
        let native = self.native(to);
        if native.get != 0 && len as u64 <= native.longest_get {
            for at in (0..len as u64).step_by(size(native.get)) {
                let (part, ticket) = ((len as u64 - at).min(native.get), Ticket { id, part: into + at });
                self.expect_more(id);
                self.start_native(to, (offset + at, ticket), part, |network, from, done| {
                    network.get(from, part, Landing::Report, done)
                })?;
            }
            return Ok(());
        }
        // The handler's bound is what every endpoint of the job permits.
        let get = self.layer::<OneSided>().requests.get;
        let most = self.max_payload(to, Category::Medium, Lane::Reply, 4).unwrap_or(0);
        let piece = most.min(self.reply_bound(get).unwrap_or(0).into()).clamp(1, PIECE as u64) as usize;
        for at in (0..len).step_by(piece) {
            let part = (len - at).min(piece) as u32;
            self.expect_more(id);
            self.request(to, get.reply_up_to(part), (id, offset + at as u64, part, into + at as u64))?;
        }
        Ok(())
    }

    /// Begins to read `len` bytes at a byte offset of a rank's segment into this rank's own segment; waited for by
    /// [`Endpoint::quiet`]. Both ranges may lie in this rank's own segment and overlap: `into` then gets what the
    /// other range held before.
    ///
    /// # Errors
    /// As [`Endpoint::put`], for both segments.
    pub fn get_nbi(&mut self, rank: Rank, offset: u64, len: usize, into: u64) -> Result<(), OneSidedError> {
        self.place(rank, offset, len as u64)?;
        self.place(self.rank(), into, len as u64)?;
        if let Some(memory) = self.mapped_segment(rank) {
            // No piece is written over bytes of the source that have still to be read.
            let backwards = rank == self.rank() && offset < into;
            let (mut piece, pieces) = ([0; 4096], len.div_ceil(4096));
            for index in 0..pieces {
                let at = if backwards { pieces - 1 - index } else { index } * 4096;
                let piece = &mut piece[..(len - at).min(4096)];
                let moved = memory.read(offset + at as u64, piece);
                let moved = moved.and_then(|()| self.segment().write(into + at as u64, piece));
                moved.map_err(|source| OneSidedError::Segment { rank, source })?;
            }
            return Ok(());
        }
        let to = self.target(rank)?;
        if len == 0 {
            return Ok(());
        }
        let (id, _) = self.begin(to, 1, 0, Owner::Quiet);
        let sent = self
            .sending(id, Parts::Counted, |endpoint| endpoint.get_pieces_into(to, id, offset, len as u64, into));
        self.layer_unscheduled::<OneSided>().operations.all_sent(id);
        self.started::<()>(id, Owner::Quiet, sent).map(drop)
    }

    /// Sends the messages of a get that has begun, whose bytes belong at `into` of this rank's own segment.
    pub(super) fn get_pieces_into(
        &mut self,
        to: Address,
        id: u64,
        offset: u64,
        len: u64,
        into: u64,
    ) -> Result<(), SendError> {
        let native = self.native(to);
        if native.get_into != 0 && len <= native.longest_get {
            for at in (0..len).step_by(size(native.get_into)) {
                let (part, ticket) = ((len - at).min(native.get_into), Ticket { id, part: 0 });
                self.expect_more(id);
                self.start_native(to, (offset + at, ticket), part, |network, from, done| {
                    network.get(from, part, Landing::Segment(into + at), done)
                })?;
            }
            return Ok(());
        }
        let most = self.max_payload(to, Category::Long, Lane::Reply, 2).unwrap_or(u64::MAX);
        let (piece, get) = (most.clamp(1, PIECE as u64), self.layer::<OneSided>().requests.get_into);
        for at in (0..len).step_by(size(piece)) {
            self.expect_more(id);
            self.request(to, get, (id, offset + at, (len - at).min(piece) as u32, into + at))?;
        }
        Ok(())
    }

    /// Does an atomic operation where the segment is memory.
    #[inline]
    fn atomic_direct<V: AtomicValue + Number>(
        &self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
    ) -> Option<Result<u64, OneSidedError>> {
        let memory = self.mapped_segment(rank)?;
        let atomic = Atomic::new(op);
        if !atomic.is_supported() {
            return Some(Err(OneSidedError::Unsupported { code: atomic.code, kind: atomic.kind }));
        }
        Some(memory.atomic(offset, &atomic).map_err(|source| OneSidedError::Segment { rank, source }))
    }

    fn atomic_as<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
        owner: Owner,
    ) -> Result<Operation<V>, OneSidedError> {
        if let Some(old) = self.atomic_direct(rank, offset, op) {
            return Ok(Operation::done(old?, Vec::new()));
        }
        let atomic = Atomic::new(op);
        if !atomic.is_supported() {
            return Err(OneSidedError::Unsupported { code: atomic.code, kind: atomic.kind });
        }
        self.aligned(rank, offset, V::KIND.size(), V::KIND.size())?;
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, 0, owner);
        let sent = if self.native(to).does(&atomic) {
            let (fetch, place) = (owner == Owner::Handle, (offset, Ticket { id, part: 0 }));
            self.sending(id, Parts::One, |endpoint| {
                endpoint.start_native(to, place, V::KIND.size(), |network, to, done| {
                    network.atomic(to, &atomic, fetch, done)
                })
            })
        } else {
            let args = (id, offset, atomic.number(), atomic.operand, atomic.expected);
            self.sending(id, Parts::One, |endpoint| endpoint.request(to, requests.atomic, args))
        };
        self.started(id, owner, sent)
    }

    /// Does an atomic operation on the value at a byte offset of a rank's segment and returns what was there.
    ///
    /// # Errors
    /// As [`Endpoint::put`]; a misaligned place; an operation that the type does not have.
    #[inline]
    pub fn atomic<V: AtomicValue + Number + Output>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
    ) -> Result<V, OneSidedError> {
        match self.atomic_direct(rank, offset, op) {
            Some(old) => old.map(V::from_bits),
            None => self.atomic_by_message(rank, offset, op),
        }
    }

    #[inline(never)]
    fn atomic_by_message<V: AtomicValue + Number + Output>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
    ) -> Result<V, OneSidedError> {
        let operation = self.atomic_as(rank, offset, op, Owner::Handle)?;
        Ok(self.wait(operation)?)
    }

    /// Begins an atomic operation; [`Endpoint::wait`] returns what was there.
    ///
    /// # Errors
    /// As [`Endpoint::atomic`].
    pub fn atomic_nb<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
    ) -> Result<Operation<V>, OneSidedError> {
        self.atomic_as(rank, offset, op, Owner::Handle)
    }

    /// Begins an atomic operation whose old value nobody needs; waited for by [`Endpoint::quiet`].
    ///
    /// # Errors
    /// As [`Endpoint::atomic`].
    #[inline]
    pub fn atomic_nbi<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
    ) -> Result<(), OneSidedError> {
        self.atomic_as(rank, offset, op, Owner::Quiet).map(drop)
    }
}
