//! The operations of an [`Endpoint`].

use super::atomic::{Atomic, AtomicOp, AtomicValue, Number};
use super::operation::{Operation, Output, Owner, State, Unfinished};
use super::{OneSided, OneSidedError, PIECE};
use crate::address::{Address, Peer, Rank};
use crate::endpoint::Endpoint;
use crate::error::{SendError, WaitError};
use crate::layer::HasLayer;
use crate::segment::{Segment, SegmentError};
use crate::time::Span;
use crate::transport::{Category, Lane, PeerStatus, Transport};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Steps of a wait between two looks at its target's status.
const LOOKS: u32 = 64;

/// How long a wait for a signal sleeps at most before it looks again: a peer's store wakes nobody.
const GLANCE: Span = Span::from_micros(20);

impl<T: Transport, S: HasLayer<OneSided>> Endpoint<T, S> {
    /// Checks a range of a rank's segment.
    #[inline]
    fn place(&self, rank: Rank, offset: u64, len: u64) -> Result<(), OneSidedError> {
        let Some(segment) = self.segment_len(rank) else {
            return Err(OneSidedError::NoSuchRank { rank, ranks: self.ranks() });
        };
        if offset.checked_add(len).is_none_or(|end| end > segment) {
            let source = SegmentError::OutOfRange { offset, len, segment };
            return Err(OneSidedError::Segment { rank, source });
        }
        Ok(())
    }

    /// A rank's segment as memory, if this process sees it.
    #[inline]
    fn memory(&self, rank: Rank) -> Option<&Segment<T::Memory>> {
        if rank == self.rank() { Some(self.segment()) } else { self.remote_segment(rank) }
    }

    /// The endpoint that a rank's operations go to, its first.
    fn target(&self, rank: Rank) -> Result<Address, OneSidedError> {
        let address = Address::from(rank);
        let peer = self.shape().peer(address);
        peer.map(|_| address).ok_or(OneSidedError::NoSuchRank { rank, ranks: self.ranks() })
    }

    fn begin(&mut self, target: Address, parts: usize, bytes: usize, owner: Owner) -> (u64, super::Requests) {
        let layer = self.state_quietly().as_layer_mut();
        let parts = u32::try_from(parts).expect("an operation has fewer than 2^32 parts");
        (layer.operations.begin(target, parts, bytes, owner), layer.requests)
    }

    /// What a started operation is to its caller; on an error of sending it has ended.
    fn started<R>(
        &mut self,
        id: u64,
        owner: Owner,
        sent: Result<(), SendError>,
    ) -> Result<Operation<R>, OneSidedError> {
        let operations = &mut self.state_quietly().as_layer_mut().operations;
        match sent {
            Ok(()) if owner == Owner::Handle => Ok(Operation::pending(id, &operations.dropped)),
            Ok(()) => Ok(Operation::done(0, Vec::new())),
            Err(error) => {
                operations.end(id);
                Err(error.into())
            }
        }
    }

    fn put_as(
        &mut self,
        rank: Rank,
        offset: u64,
        bytes: &[u8],
        owner: Owner,
    ) -> Result<Operation<()>, OneSidedError> {
        self.place(rank, offset, bytes.len() as u64)?;
        if let Some(memory) = self.memory(rank) {
            memory.write(offset, bytes).map_err(|source| OneSidedError::Segment { rank, source })?;
            return Ok(Operation::done(0, Vec::new()));
        }
        let to = self.target(rank)?;
        let piece = self.long_piece(to);
        let (id, requests) = self.begin(to, bytes.len().div_ceil(piece).max(1), 0, owner);
        let mut sent =
            if bytes.is_empty() { self.request_long(to, requests.put, id, bytes, offset) } else { Ok(()) };
        for (index, part) in bytes.chunks(piece).enumerate() {
            sent =
                sent.and_then(|()| self.request_long(to, requests.put, id, part, offset + (index * piece) as u64));
        }
        self.started(id, owner, sent)
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
    #[inline]
    pub fn put(&mut self, rank: Rank, offset: u64, bytes: &[u8]) -> Result<(), OneSidedError> {
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
        self.put_as(rank, offset, bytes, Owner::Quiet).map(drop)
    }

    /// Begins to write bytes, and to add one to the 64-bit counter at byte `counter` of the same segment once they are
    /// there. The target sees it with [`Endpoint::wait_signal`].
    ///
    /// # Errors
    /// As [`Endpoint::put`]; in particular if the counter is misaligned, or the bytes exceed what one Long message places.
    pub fn put_signal(
        &mut self,
        rank: Rank,
        offset: u64,
        bytes: &[u8],
        counter: u64,
    ) -> Result<Operation<()>, OneSidedError> {
        self.place(rank, offset, bytes.len() as u64)?;
        self.aligned(rank, counter, 8)?;
        if let Some(memory) = self.memory(rank) {
            let at = |source| OneSidedError::Segment { rank, source };
            memory.write(offset, bytes).map_err(at)?;
            // Release: whoever sees the counter sees the bytes; pairs with the fence in `wait_signal`.
            fence(Ordering::Release);
            memory.atomic(counter, &Atomic::new(AtomicOp::Add(1u64))).map_err(at)?;
            return Ok(Operation::done(0, Vec::new()));
        }
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, 0, Owner::Handle);
        let sent = self.request_long(to, requests.put_signal, (id, counter), bytes, offset);
        self.started(id, Owner::Handle, sent)
    }

    /// Waits until the 64-bit counter at a byte offset of this rank's own segment is at least `value`, serving incoming
    /// messages meanwhile; returns what it is.
    ///
    /// # Errors
    /// A misaligned counter, and what [`Endpoint::wait_until`] fails with.
    pub fn wait_signal(&mut self, counter: u64, value: u64) -> Result<u64, OneSidedError> {
        let me = self.rank();
        self.aligned(me, counter, 8)?;
        let get = Atomic::new(AtomicOp::<u64>::Get);
        let look = |endpoint: &Self| endpoint.segment().atomic(counter, &get).unwrap_or(0);
        self.wait_glancing(GLANCE, |endpoint| look(endpoint) >= value)?;
        // Acquire: pairs with the Release in `put_signal`.
        fence(Ordering::Acquire);
        Ok(look(self))
    }

    fn aligned(&self, rank: Rank, offset: u64, size: u64) -> Result<(), OneSidedError> {
        self.place(rank, offset, size)?;
        if offset.is_multiple_of(size) {
            return Ok(());
        }
        Err(OneSidedError::Segment { rank, source: SegmentError::Misaligned { offset, alignment: size } })
    }

    /// Reads bytes at a byte offset of a rank's segment.
    ///
    /// # Errors
    /// As [`Endpoint::put`]; `out` may be changed in part then.
    #[inline]
    pub fn get(&mut self, rank: Rank, offset: u64, out: &mut [u8]) -> Result<(), OneSidedError> {
        self.place(rank, offset, out.len() as u64)?;
        if let Some(memory) = self.memory(rank) {
            return memory.read(offset, out).map_err(|source| OneSidedError::Segment { rank, source });
        }
        let operation = self.get_nb(rank, offset, out.len())?;
        out.copy_from_slice(&self.wait(operation)?);
        Ok(())
    }

    /// Begins to read `len` bytes at a byte offset of a rank's segment; [`Endpoint::wait`] returns them. Allocates their
    /// buffer.
    ///
    /// # Errors
    /// As [`Endpoint::put`].
    pub fn get_nb(&mut self, rank: Rank, offset: u64, len: usize) -> Result<Operation<Vec<u8>>, OneSidedError> {
        self.place(rank, offset, len as u64)?;
        if let Some(memory) = self.memory(rank) {
            let mut bytes = vec![0; len];
            memory.read(offset, &mut bytes).map_err(|source| OneSidedError::Segment { rank, source })?;
            return Ok(Operation::done(0, bytes));
        }
        let to = self.target(rank)?;
        // The handler's bound is what every endpoint of the job permits.
        let bound = self.reply_bound(self.state().as_layer().requests.get);
        let most = self.max_payload(to, Category::Medium, Lane::Reply, 4).unwrap_or(0).min(bound.into());
        let piece = most.clamp(1, PIECE as u64) as usize;
        let (id, requests) = self.begin(to, len.div_ceil(piece), len, Owner::Handle);
        let mut sent = Ok(());
        for at in (0..len).step_by(piece) {
            let part = (len - at).min(piece) as u32;
            let args = (id, offset + at as u64, part, at as u64);
            sent = sent.and_then(|()| self.request(to, requests.get.reply_up_to(part), args));
        }
        self.started(id, Owner::Handle, sent)
    }

    /// Begins to read `len` bytes at a byte offset of a rank's segment into this rank's own segment; waited for by
    /// [`Endpoint::quiet`]. What overlapping ranges of one segment hold afterwards is unspecified.
    ///
    /// # Errors
    /// As [`Endpoint::put`], for both segments.
    pub fn get_nbi(&mut self, rank: Rank, offset: u64, len: usize, into: u64) -> Result<(), OneSidedError> {
        self.place(rank, offset, len as u64)?;
        self.place(self.rank(), into, len as u64)?;
        let mut at = 0;
        if let Some(memory) = self.memory(rank) {
            let mut piece = [0; 4096];
            while at < len {
                let piece = &mut piece[..(len - at).min(4096)];
                let moved = memory.read(offset + at as u64, piece);
                let moved = moved.and_then(|()| self.segment().write(into + at as u64, piece));
                moved.map_err(|source| OneSidedError::Segment { rank, source })?;
                at += piece.len();
            }
            return Ok(());
        }
        let to = self.target(rank)?;
        if len == 0 {
            return Ok(());
        }
        let most = self.max_payload(to, Category::Long, Lane::Reply, 2).unwrap_or(u64::MAX);
        let piece = usize::try_from(most).unwrap_or(usize::MAX).clamp(1, PIECE);
        let (id, requests) = self.begin(to, len.div_ceil(piece), 0, Owner::Quiet);
        let mut sent = Ok(());
        for at in (0..len).step_by(piece) {
            let args = (id, offset + at as u64, (len - at).min(piece) as u32, into + at as u64);
            sent = sent.and_then(|()| self.request(to, requests.get_into, args));
        }
        self.started::<()>(id, Owner::Quiet, sent).map(drop)
    }

    fn atomic_as<V: AtomicValue + Number>(
        &mut self,
        rank: Rank,
        offset: u64,
        op: AtomicOp<V>,
        owner: Owner,
    ) -> Result<Operation<V>, OneSidedError> {
        let atomic = Atomic::new(op);
        if !atomic.is_supported() {
            return Err(OneSidedError::Unsupported { code: atomic.code, kind: atomic.kind });
        }
        self.aligned(rank, offset, V::KIND.size())?;
        if let Some(memory) = self.memory(rank) {
            let old = memory.atomic(offset, &atomic).map_err(|source| OneSidedError::Segment { rank, source })?;
            return Ok(Operation::done(old, Vec::new()));
        }
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, 0, owner);
        let args = (id, offset, atomic.number(), atomic.operand, atomic.expected);
        let sent = self.request(to, requests.atomic, args);
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

    /// Waits until an operation is done, serving incoming messages meanwhile, and returns what it brings.
    ///
    /// # Errors
    /// [`Unfinished`] holds the operation, to be waited for again, and why this wait failed: [`OneSidedError::Gone`] if the
    /// target is gone, which no other wait will change; an operation of another endpoint; what
    /// [`Endpoint::wait_until`] fails with.
    #[inline]
    pub fn wait<R: Output>(&mut self, mut operation: Operation<R>) -> Result<R, Unfinished<R>> {
        let id = match &mut operation.state {
            State::Done { value, bytes } => return Ok(R::take(*value, std::mem::take(bytes))),
            State::Gone(rank) => {
                let error = OneSidedError::Gone { rank: *rank };
                return Err(Unfinished { error, operation });
            }
            State::Pending { dropped, .. }
                if !Arc::ptr_eq(dropped, &self.layer::<OneSided>().operations.dropped) =>
            {
                return Err(Unfinished { error: OneSidedError::Foreign, operation });
            }
            State::Pending { id, .. } => *id,
        };
        let over = match self.wait_pending(id) {
            Ok(true) => None,
            Ok(false) => {
                let target = self.state_quietly().as_layer_mut().operations.target(id);
                Some(target.map_or(self.rank(), |target| target.rank))
            }
            Err(error) => return Err(Unfinished { error: error.into(), operation }),
        };
        let (value, bytes) = self.state_quietly().as_layer_mut().operations.end(id);
        let Some(rank) = over else {
            operation.state = State::Done { value, bytes: Vec::new() };
            return Ok(R::take(value, bytes));
        };
        operation.state = State::Gone(rank);
        Err(Unfinished { error: OneSidedError::Gone { rank }, operation })
    }

    /// Waits until an operation is done, or its target is gone without having done it; whether it is done.
    fn wait_pending(&mut self, id: u64) -> Result<bool, WaitError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        self.wait_for(|endpoint| {
            if endpoint.state_quietly().as_layer_mut().operations.is_done(id) {
                return Ok::<_, WaitError>(Some(true));
            }
            steps = steps.wrapping_add(1);
            // Asking for a peer's status may cost more than a step.
            if steps != 1 && !steps.is_multiple_of(LOOKS) && endpoint.losses() == losses {
                return Ok(None);
            }
            losses = endpoint.losses();
            if !endpoint.is_stranded(id) {
                return Ok(None);
            }
            // What the target sent before it went has arrived.
            endpoint.serve_rest()?;
            Ok(Some(endpoint.state_quietly().as_layer_mut().operations.is_done(id)))
        })
    }

    /// Whether an operation's target is gone.
    fn is_stranded(&mut self, id: u64) -> bool {
        let target = self.state_quietly().as_layer_mut().operations.target(id);
        target.is_some_and(|target| self.status(target) != Some(PeerStatus::Active))
    }

    /// Serves what has arrived and tells whether [`Endpoint::wait`] returns at once: the operation is done, or its target is
    /// gone.
    ///
    /// # Errors
    /// What [`Endpoint::poll`] fails with; an operation of another endpoint.
    pub fn test<R>(&mut self, operation: &Operation<R>) -> Result<bool, OneSidedError> {
        self.poll().map_err(WaitError::from)?;
        let State::Pending { id, dropped } = &operation.state else { return Ok(true) };
        let operations = &mut self.state_quietly().as_layer_mut().operations;
        if !Arc::ptr_eq(dropped, &operations.dropped) {
            return Err(OneSidedError::Foreign);
        }
        Ok(operations.is_done(*id) || self.is_stranded(*id))
    }

    /// Waits until all operations of the `nbi` forms are done, serving incoming messages meanwhile. To be called before
    /// [`Endpoint::barrier`] where other ranks are to see what they did.
    ///
    /// # Errors
    /// [`OneSidedError::Gone`] names a target that is gone; its operations are over, and the others go on. What
    /// [`Endpoint::wait_until`] fails with.
    pub fn quiet(&mut self) -> Result<(), OneSidedError> {
        let (mut steps, mut losses) = (0u32, self.losses());
        let gone = self.wait_for(|endpoint| {
            if endpoint.layer::<OneSided>().operations.is_quiet() {
                return Ok::<_, WaitError>(Some(None));
            }
            steps = steps.wrapping_add(1);
            if steps != 1 && !steps.is_multiple_of(LOOKS) && endpoint.losses() == losses {
                return Ok(None);
            }
            losses = endpoint.losses();
            endpoint.let_stranded_go().map(|gone| gone.map(Some))
        });
        match gone? {
            Some(rank) => Err(OneSidedError::Gone { rank }),
            None => Ok(()),
        }
    }

    /// Ends the operations that no handle waits for and whose targets are gone; returns one that `quiet` tells of.
    fn let_stranded_go(&mut self) -> Result<Option<Rank>, WaitError> {
        let shape = self.shape();
        let everyone = (0..shape.peers()).map(|peer| shape.address(Peer(peer)));
        let gone: Vec<Address> = everyone.filter(|peer| self.status(*peer) != Some(PeerStatus::Active)).collect();
        if gone.is_empty() {
            return Ok(None);
        }
        // What the targets sent before they went has arrived.
        self.serve_rest()?;
        let operations = &mut self.state_quietly().as_layer_mut().operations;
        let mut told = None;
        while let Some((id, target, tell)) = operations.stranded(|target| gone.contains(&target)) {
            told = if tell { Some(target.rank) } else { told };
            operations.end(id);
        }
        Ok(told)
    }
}
