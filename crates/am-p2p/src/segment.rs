//! Messages from memory of segments and into it: what MPI offers by memory of `MPI_Alloc_mem` and of windows.
//!
//! Memory that a rank has allocated in its segment ([`LocalArray`], [`SymmetricArray`]) is where its peers can
//! read and write. So a long message from there is copied once, by its receiver and without a call of the system,
//! where both see the segments as memory (ranks of one host, protocols [`Read`](crate::Protocol::Read) and
//! [`Elided`](crate::Protocol::Elided)); and a long message into there is written where it stays, over any network
//! and by any protocol that writes, so that nobody copies it out; between two segments of one host, the sender
//! copies it from one to the other. Elsewhere a message from there takes one copy more than one from a slice, a
//! part at a time, since networks take slices. Short ones travel as others do.
//!
//! | form | memory |
//! |---|---|
//! | [`send_segment`](Communicator::send_segment), [`synchronous_send_segment`](Communicator::synchronous_send_segment) | borrowed until the call returns, whatever it returns |
//! | [`immediate_send_segment`](Communicator::immediate_send_segment), [`immediate_receive_segment`](Communicator::immediate_receive_segment), [`receive_segment`](Communicator::receive_segment) | owned until the message is over, and given back then |
//! | [`send_segment_init`](Communicator::send_segment_init), [`receive_segment_init`](Communicator::receive_segment_init) | owned, and looked at between two messages |
//!
//! Receives always own their memory, so that a message that is still being written when a call fails meets memory
//! that is nobody else's: a request that is dropped, and a call that fails or unwinds, leave the memory with the
//! message until that is over. What is owned may be an [`Arc`], of which the program keeps another; or a
//! [`GlobalSlice`], which only names a place and keeps nothing: the program answers for that.
//!
//! Segments are open to all ranks of the job, which may write there at any time: what a message brings is what is
//! there when it is looked at, and no access is ever undefined. Sends to oneself work like others.
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, loopback};
//! use am_p2p::{Communicator, P2p};
//! use am_pgas::allocator::SegmentAllocation;
//! use am_pgas::memory::GlobalMemory;
//!
//! let config = loopback::LoopbackConfig::default().segment(1 << 20);
//! let ranks = loopback::network(2, config).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<P2p>::new();
//!         let p2p = P2p::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, p2p)?;
//!         let world = Communicator::world(&mut endpoint)?;
//!         let row = endpoint.allocate_local::<f64>(10_000)?;
//!         if world.rank() == 0 {
//!             endpoint.local(row.slice())?.expect("it is in the own segment").fill(2.5);
//!             world.send_segment(&mut endpoint, 1, 7, &row)?;
//!         } else {
//!             let (row, status) = world.receive_segment(&mut endpoint, 0, 7, row)?;
//!             assert_eq!(status.count::<f64>(), 10_000);
//!             let values = endpoint.local(row.slice())?.expect("it is in the own segment");
//!             assert_eq!(values.load(9_999), 2.5);
//!         }
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```

mod requests;

pub use requests::{SegmentReceive, SegmentSend};

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedBytes, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Awaited, Messages};
use crate::machine::{MessageInfo, Mode, NOWHERE, PIECE, Readable, Source as Lies};
use crate::messages::{Begun, Outgoing};
use crate::request::SendRequest;
use am_core::slab::Key;
use am_core::transport::{Lent, LentFault};
use am_core::{Address, Endpoint, HasLayer, Rank, SegmentError, Transport};
use am_pgas::allocator::{LocalArray, SymmetricArray};
use am_pgas::pointer::{Element, GlobalSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Memory of a rank's own segment that messages are sent from and received to.
pub trait SegmentMemory {
    /// The type of its values.
    type Value: Element;

    /// Where the values lie on rank `me`, this one.
    ///
    /// # Errors
    /// [`MessageError::Outside`] for a [`Part`] that is not inside its whole.
    fn slice_on(&self, me: Rank) -> Result<GlobalSlice<Self::Value>, MessageError>;
}

impl<V: Element> SegmentMemory for GlobalSlice<V> {
    type Value = V;

    fn slice_on(&self, _: Rank) -> Result<GlobalSlice<V>, MessageError> {
        Ok(*self)
    }
}

impl<V: Element> SegmentMemory for LocalArray<V> {
    type Value = V;

    fn slice_on(&self, _: Rank) -> Result<GlobalSlice<V>, MessageError> {
        Ok(self.slice())
    }
}

impl<V: Element> SegmentMemory for SymmetricArray<V> {
    type Value = V;

    fn slice_on(&self, me: Rank) -> Result<GlobalSlice<V>, MessageError> {
        Ok(self.on(me))
    }
}

impl<A: SegmentMemory + ?Sized> SegmentMemory for &A {
    type Value = A::Value;

    fn slice_on(&self, me: Rank) -> Result<GlobalSlice<A::Value>, MessageError> {
        (**self).slice_on(me)
    }
}

impl<A: SegmentMemory + ?Sized> SegmentMemory for Arc<A> {
    type Value = A::Value;

    fn slice_on(&self, me: Rank) -> Result<GlobalSlice<A::Value>, MessageError> {
        (**self).slice_on(me)
    }
}

/// A part of some memory, whose owner it keeps: of an [`Arc`], several parts can be under way at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<A> {
    /// The whole.
    pub of: A,
    /// Which of its values.
    pub range: Range<u64>,
}

impl<A: SegmentMemory> Part<A> {
    /// The values of `of` in a range, which is looked at when a message uses it.
    pub fn new(of: A, range: Range<u64>) -> Self {
        Self { of, range }
    }
}

impl<A: SegmentMemory> SegmentMemory for Part<A> {
    type Value = A::Value;

    fn slice_on(&self, me: Rank) -> Result<GlobalSlice<A::Value>, MessageError> {
        let whole = self.of.slice_on(me)?;
        let told = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
        let (lowest, highest) = (told(self.range.start), told(self.range.end.saturating_sub(1)));
        whole.range(self.range.clone()).ok_or(MessageError::Outside { lowest, highest, len: whole.len() })
    }
}

/// Bytes of this rank's segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// Where memory lies, which has to be in this rank's segment.
pub(crate) fn place<T: Transport, S, A: SegmentMemory>(
    endpoint: &Endpoint<T, S>,
    memory: &A,
) -> Result<Bytes, MessageError> {
    let (me, segment) = (endpoint.rank(), endpoint.segment().len() as u64);
    let slice = memory.slice_on(me)?;
    let (rank, offset, bytes) = (slice.rank(), slice.offset(), slice.bytes());
    match bytes.and_then(|bytes| offset.checked_add(bytes)) {
        Some(end) if end <= segment && rank == me => Ok(Bytes { at: offset, len: end - offset }),
        _ => Err(MessageError::Place { rank, offset, bytes: bytes.unwrap_or(u64::MAX), me, segment }),
    }
}

/// Looks at the proof of a loan of a segment whose bytes have been read; `read` copies from that segment.
fn prove(
    lent: &Lent,
    read: impl FnOnce(u64, &mut [u8]) -> Option<Result<(), SegmentError>>,
) -> Result<(), LentFault> {
    if lent.proof_at == NOWHERE {
        return Ok(());
    }
    // Acquire: pairs with the fence of a call that takes its memory back, behind which other bytes are written.
    fence(Ordering::Acquire);
    let mut word = [0; 8];
    copied(read(lent.proof_at, &mut word))?;
    if u64::from_le_bytes(word) == lent.proof() { Ok(()) } else { Err(LentFault::Withdrawn) }
}

/// What copying from a segment has come to.
fn copied(copied: Option<Result<(), SegmentError>>) -> Result<(), LentFault> {
    match copied {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) => Err(LentFault::NoMemory),
        None => Err(LentFault::Refused),
    }
}

/// Copies bytes of a loan of a segment, from a byte on; `read` copies from that segment.
pub(crate) fn read_proven(
    lent: &Lent,
    at: u64,
    out: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> Option<Result<(), SegmentError>>,
) -> Result<(), LentFault> {
    let from = lent.address.checked_add(at).ok_or(LentFault::NoMemory)?;
    copied(read(from, out))?;
    prove(lent, read)
}

/// A blocking call that sends from memory of the segment: where it ends before the message, that goes on with a
/// copy of the bytes.
struct Call<'e, T: Transport, S: HasLayer<Messages>> {
    endpoint: &'e mut Endpoint<T, S>,
    key: Key,
    bytes: Bytes,
    over: bool,
}

impl<T: Transport, S: HasLayer<Messages>> Drop for Call<'_, T, S> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut copy = vec![0; self.bytes.len as usize];
        self.endpoint.segment().read(self.bytes.at, &mut copy).expect("it was checked");
        self.withdraw();
        let machine = &mut self.endpoint.layer_mut::<Messages>().machine;
        machine.adopt(self.key, &copy);
        machine.drop_send(self.key);
    }
}

impl<T: Transport, S: HasLayer<Messages>> Call<'_, T, S> {
    /// Ends the loan: who has not read the bytes by now finds no proof of it.
    fn withdraw(&mut self) {
        let proof =
            self.endpoint.layer_unscheduled::<Messages>().proof.as_ref().map(|proof| proof.slice().offset());
        if let Some(word) = proof.and_then(|at| self.endpoint.segment().word(at).ok()) {
            word.store(0, Ordering::SeqCst);
            // What the program writes to the bytes comes behind the store; pairs with the fence of readers.
            fence(Ordering::SeqCst);
        }
    }
}

impl Communicator {
    /// Copies bytes that a peer lends of its segment, from a byte on.
    pub(crate) fn read_segment<T: Transport, S: HasLayer<Messages>>(
        endpoint: &Endpoint<T, S>,
        from: u32,
        lent: &Lent,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), LentFault> {
        let segment = endpoint.mapped_segment(Rank(from)).ok_or(LentFault::Refused)?;
        read_proven(lent, at, out, |offset, out| Some(segment.read(offset, out)))
    }

    /// Copies the message of a receive out of its sender's segment to the receive's memory, a piece at a time,
    /// from byte `at` on, if it lies there. Whether all of it is there.
    fn copy_segment<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        key: Key,
        into: Bytes,
        at: &mut u64,
    ) -> bool {
        let number = endpoint.address().endpoint;
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        let Some(Readable { from, len, lent }) = machine.readable(key) else { return false };
        if len > into.len {
            return false;
        }
        machine.begin_reading(key);
        let end = len.min(*at + PIECE as u64);
        let copied = match (&lent, endpoint.mapped_segment(Rank(from))) {
            (Lies::Segment(lent), Some(theirs)) => {
                let (own, count) = (endpoint.segment(), (end - *at) as usize);
                let source = lent.address.checked_add(*at).ok_or(LentFault::NoMemory);
                let copy = |source| theirs.copy_to(source, own, into.at + *at, count);
                source
                    .and_then(|source| copied(Some(copy(source))))
                    .and_then(|()| prove(lent, |offset, out| Some(theirs.read(offset, out))))
            }
            _ => Err(LentFault::Refused),
        };
        match copied {
            Ok(()) => *at = end,
            Err(_) => {
                *at = 0;
                endpoint.layer_mut::<Messages>().machine.cannot_read(key, false);
                return false;
            }
        }
        if end < len {
            endpoint.layer_mut::<Messages>().machine.part_read = true;
            return false;
        }
        Self::tell_read(endpoint, key, Address { rank: Rank(from), endpoint: number });
        true
    }

    /// Begins to send bytes of the segment. Those of a call that borrows them are lent by a proof.
    fn begin_segment<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        outgoing: Outgoing,
        bytes: Bytes,
        borrowed: bool,
    ) -> Result<Begun, MessageError> {
        let Outgoing { to, envelope, mode } = outgoing;
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        if !machine.is_long(bytes.len) {
            let mut copy = machine.buffer();
            copy.resize(bytes.len as usize, 0);
            endpoint.segment().read(bytes.at, &mut copy).expect("it was checked");
            let begun = Self::begin(endpoint, outgoing, &copy, false);
            endpoint.layer_unscheduled::<Messages>().machine.recycle(copy);
            return begun;
        }
        if machine.is_closed(envelope.context) {
            return Err(MessageError::freed(to.0, envelope.tag, AskedBytes::Are(bytes.len)));
        }
        let reads = machine.reads_segments() && endpoint.mapped_segment(to).is_some();
        let lent = match (reads, borrowed) {
            (false, _) => None,
            (true, false) => Some(Lies::owned(bytes.at)),
            (true, true) => Self::lend_segment(endpoint, bytes),
        };
        let machine = &mut endpoint.layer_mut::<Messages>().machine;
        let key = machine.begin_placed((to.0, envelope, mode), (bytes.at, bytes.len), lent);
        Ok(Begun::UnderWay(key, None))
    }

    /// Lends bytes of the segment for as long as the proof stays: one call at a time does.
    fn lend_segment<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        bytes: Bytes,
    ) -> Option<Lies> {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let proof_at = layer.proof.as_ref()?.slice().offset();
        layer.tickets = layer.tickets.wrapping_add(1);
        let lent = Lent::new(bytes.at, proof_at, layer.tickets);
        // Readers learn of it by a message.
        endpoint.segment().word(proof_at).ok()?.store(lent.proof(), Ordering::SeqCst);
        Some(Lies::Segment(lent))
    }

    /// Waits until a message has been sent from borrowed memory of the segment. `meanwhile` is called before each
    /// step.
    fn finish_segment<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        Outgoing { to, envelope, .. }: Outgoing,
        key: Key,
        bytes: Bytes,
        mut meanwhile: impl FnMut(&mut Endpoint<T, S>),
    ) -> Result<(), MessageError> {
        let mut call = Call { endpoint, key, bytes, over: false };
        let waited = layer::wait(call.endpoint, Awaited::One(to), |endpoint| {
            meanwhile(endpoint);
            Ok(endpoint.layer_unscheduled::<Messages>().machine.take_sent(key))
        });
        call.over = waited.is_ok();
        if matches!(waited, Ok(Err(_))) {
            // Its peer may live, and be reading.
            call.withdraw();
        }
        drop(call);
        let info = MessageInfo { from: to.0, tag: envelope.tag, len: bytes.len, kind: envelope.kind };
        waited?.map_err(|failure| MessageError::of(failure, (info, true), envelope.kind, 0))
    }

    fn send_segment_as<T: Transport, S: HasLayer<Messages>, A: SegmentMemory>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: (u32, i32),
        memory: &A,
        mode: Mode,
    ) -> Result<(), MessageError> {
        let (outgoing, bytes) = self.outgoing_segment(endpoint, to, memory, mode)?;
        match Self::begin_segment(endpoint, outgoing, bytes, true)? {
            Begun::Sent => Ok(()),
            Begun::UnderWay(key, _) => Self::finish_segment(endpoint, outgoing, key, bytes, |_| ()),
        }
    }

    fn outgoing_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: (u32, i32),
        memory: &A,
        mode: Mode,
    ) -> Result<(Outgoing, Bytes), MessageError> {
        let outgoing = self.outgoing(endpoint, to, ElementType::of::<A::Value>(), mode)?;
        Ok((outgoing, place(endpoint, memory)?))
    }

    /// Sends the values of memory in this rank's segment. Blocks until the memory can be used again; allocates
    /// only where the call fails while the message is under way, which goes on with a copy then.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`MessageError::Place`] for memory that is not in this rank's segment,
    /// [`MessageError::Outside`] for a part outside its whole.
    pub fn send_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        memory: &A,
    ) -> Result<(), MessageError> {
        self.send_segment_as(endpoint, (to, tag), memory, Mode::Standard)
    }

    /// As [`send_segment`](Self::send_segment), and waits until the message has met its receive.
    ///
    /// # Errors
    /// As [`send_segment`](Self::send_segment).
    pub fn synchronous_send_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        memory: &A,
    ) -> Result<(), MessageError> {
        self.send_segment_as(endpoint, (to, tag), memory, Mode::Synchronous)
    }

    fn immediate_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory + Send + 'static>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: (u32, i32),
        memory: A,
        mode: Mode,
    ) -> Result<SegmentSend<A>, MessageError> {
        let (outgoing, bytes) = self.outgoing_segment(endpoint, to, &memory, mode)?;
        let begun = Self::begin_segment(endpoint, outgoing, bytes, false)?;
        Ok(SegmentSend { request: SendRequest::new(endpoint, begun, outgoing, bytes.len), memory: Some(memory) })
    }

    /// Begins to send the values of memory in this rank's segment, which the request owns. Does not block; nothing
    /// long is copied. The values are to stay as they are until the request is over: what is written meanwhile may
    /// or may not be sent.
    ///
    /// # Errors
    /// As [`send_segment`](Self::send_segment), but for losses and time-outs, of which the request tells.
    pub fn immediate_send_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory + Send + 'static>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        memory: A,
    ) -> Result<SegmentSend<A>, MessageError> {
        self.immediate_segment(endpoint, (to, tag), memory, Mode::Standard)
    }

    /// As [`immediate_send_segment`](Self::immediate_send_segment); the request is over when the message has met
    /// its receive.
    ///
    /// # Errors
    /// As [`immediate_send_segment`](Self::immediate_send_segment).
    pub fn immediate_synchronous_send_segment<T, S, A>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        memory: A,
    ) -> Result<SegmentSend<A>, MessageError>
    where
        T: Transport,
        S: HasLayer<Messages>,
        A: SegmentMemory + Send + 'static,
    {
        self.immediate_segment(endpoint, (to, tag), memory, Mode::Synchronous)
    }

    /// Begins to receive at most as many values as memory in this rank's segment has. Does not block. The request
    /// owns the memory, which changes while the message comes. A wildcard costs an exchange of messages, as of all
    /// long receives, and no copy.
    ///
    /// # Errors
    /// As [`immediate_receive`](Self::immediate_receive); [`MessageError::Place`] and [`MessageError::Outside`] as
    /// of [`send_segment`](Self::send_segment).
    pub fn immediate_receive_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory + Send + 'static>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        memory: A,
    ) -> Result<SegmentReceive<A>, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        self.check_endpoint(endpoint)?;
        let (kind, bytes) = (ElementType::of::<A::Value>(), place(endpoint, &memory)?);
        let layer = endpoint.layer_mut::<Messages>();
        let key = layer.machine.post_placed(selector, kind.number(), bytes.len, bytes.at);
        Ok(SegmentReceive::made(self.clone(), selector, key, bytes, memory))
    }

    /// Receives at most as many values as memory in this rank's segment has, and gives the memory back. The rest
    /// of it stays as it is; where the receive fails, any of it may be changed. Blocks.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into); [`MessageError::Place`] and [`MessageError::Outside`] as of
    /// [`send_segment`](Self::send_segment). The memory goes then, once nothing is written to it any more: give an
    /// [`Arc`] of it to keep it.
    pub fn receive_segment<T: Transport, S: HasLayer<Messages>, A: SegmentMemory + Send + 'static>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        memory: A,
    ) -> Result<(A, Status), MessageError> {
        self.immediate_receive_segment(endpoint, source, tag, memory)?.wait(endpoint)
    }

    /// Sends from memory of this rank's segment to one member and receives to other such memory from one, both at
    /// once: never waits for itself. Gives back what was received to.
    ///
    /// # Errors
    /// As [`send_segment`](Self::send_segment) and [`receive_segment`](Self::receive_segment).
    pub fn send_receive_segment<T, S, A, B>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, send_tag): (u32, i32),
        memory: &A,
        (source, receive_tag): (impl Into<Source>, impl Into<Tag>),
        into: B,
    ) -> Result<(B, Status), MessageError>
    where
        T: Transport,
        S: HasLayer<Messages>,
        A: SegmentMemory,
        B: SegmentMemory + Send + 'static,
    {
        let (outgoing, bytes) = self.outgoing_segment(endpoint, (to, send_tag), memory, Mode::Standard)?;
        let receive = self.immediate_receive_segment(endpoint, source, receive_tag, into)?;
        let (key, into, mut read) = (receive.key(), receive.bytes, 0);
        if let Begun::UnderWay(send, _) = Self::begin_segment(endpoint, outgoing, bytes, true)? {
            // The other may send before it reads what this rank lends.
            Self::finish_segment(endpoint, outgoing, send, bytes, |endpoint| {
                Self::copy_segment(endpoint, key, into, &mut read);
            })?;
        }
        receive.wait_from(endpoint, read)
    }
}

#[cfg(test)]
mod tests;
