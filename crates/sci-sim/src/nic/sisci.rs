//! The SISCI interface as a trait: sessions, segments, programmed I/O, sequences, DMA, interrupts, waiting.

use super::code::{Code, RefusedObject};
use super::kinds::{
    ALIGNMENT, Callback, Counters, DmaState, Flags, Limits, NodeId, RemoteAddress, SegmentId, SegmentReason,
    SequenceStatus,
};
use am_core::segment::Memory;
use am_core::{Instant, PeerStatus, Span};
use fabric_sim::WaitFor;

/// How often `memcpy` stores before it gives up.
const TRIES: u32 = 64;

/// The most transfers of a DMA queue.
pub(crate) const MAX_TRANSFERS: usize = 65_536;

/// One process's way to its SCI adapter: the initialised library. One process uses a node's adapter.
///
/// The names are SISCI's. Implementations: [`Virtual`](super::Virtual), in virtual time, and
/// [`Mapped`](super::Mapped), between processes. Both keep these rules:
///
/// * What a call would use up, it consumes: a removed segment, an undone map, a closed session cannot be used
///   again; the program does not compile. A refusal hands the object back in [`RefusedObject`]. What is let go
///   without being removed stays in use until the library ends, which frees everything.
/// * Stores are posted: they return before they land, and up to [`Limits::outstanding`] lines may be under way.
///   Stores into one line land in their order. Stores into different lines may land in any order unless a
///   [`store_barrier`](Sisci::store_barrier) or a [`check_sequence`](Sisci::check_sequence) that waits lies
///   between.
/// * The last line stored to may lie in the processor's write-combining buffer until the next line is begun,
///   [`flush`](Sisci::flush), a barrier, a check, a blocking call or [`idle`](Sisci::idle).
/// * A store that did not land is known only to `check_sequence`. Of data whose sequence failed, any part may have
///   landed.
/// * Calls that wait say so; no other call blocks. Time passes where a call costs something in virtual time, and
///   in calls that wait.
/// * Nothing is allocated by stores, flags, sequences, local access, transfers and idling.
///
/// # What does not compile
///
/// A removed segment cannot be used:
///
/// ```compile_fail,E0382
/// # use sci_sim::nic::{Code, Sisci};
/// fn wrong<N: Sisci>(nic: &N, segment: N::LocalSegment) -> Result<(), Code> {
///     nic.remove_segment(segment)?;
///     nic.set_available(&segment)
/// }
/// ```
///
/// Nor can a map that has been undone, a connection that has ended, a queue that has been removed:
///
/// ```compile_fail,E0382
/// # use sci_sim::nic::{Code, Sisci};
/// fn wrong<N: Sisci>(nic: &N, map: N::RemoteMap) -> Result<(), Code> {
///     nic.unmap_remote(map)?;
///     nic.store(&map, 0, b"too late")
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use sci_sim::nic::{Code, Sisci};
/// fn wrong<N: Sisci>(nic: &N, remote: N::RemoteSegment) -> Result<(), Code> {
///     nic.disconnect_segment(remote)?;
///     Ok(nic.disconnect_segment(remote)?)
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use sci_sim::nic::{Code, Sisci};
/// fn wrong<N: Sisci>(nic: &N, mut queue: N::DmaQueue) -> Result<(), Code> {
///     nic.remove_dma_queue(queue)?;
///     nic.post(&mut queue)
/// }
/// ```
///
/// A map cannot be made of a segment of another kind, so nobody stores to what is not connected:
///
/// ```compile_fail,E0308
/// # use sci_sim::nic::{Code, Sisci};
/// fn wrong<N: Sisci>(nic: &N, segment: N::LocalSegment) -> Result<N::RemoteMap, Code> {
///     nic.map_remote(&segment, 0, 64)
/// }
/// ```
///
/// A refusal hands the object back, so that the right thing can be done next:
///
/// ```
/// # use sci_sim::nic::{Code, Sisci};
/// fn right<N: Sisci>(nic: &N, remote: N::RemoteSegment, map: N::RemoteMap) -> Result<(), Code> {
///     let kept = nic.disconnect_segment(remote).expect_err("it is mapped");
///     assert_eq!(kept.code, Code::Busy);
///     nic.unmap_remote(map)?;
///     Ok(nic.disconnect_segment(kept.object)?)
/// }
/// ```
pub trait Sisci: Sized {
    /// The memory of local segments.
    type Memory: Memory + Clone;
    /// A session (a virtual device, `sci_desc_t`).
    type Descriptor;
    /// A segment of this node.
    type LocalSegment;
    /// A local segment, or part of it, that this process sees.
    type LocalMap;
    /// A connection to a segment of another node (or this one).
    type RemoteSegment;
    /// A connected segment, or part of it, that this process can store to.
    type RemoteMap;
    /// What tells whether stores through a map have landed.
    type Sequence;
    /// A queue of DMA transfers.
    type DmaQueue;
    /// An interrupt of this node.
    type Interrupt;
    /// A connection to an interrupt of another node.
    type RemoteInterrupt;

    // Sessions.

    /// Opens a session.
    ///
    /// # Errors
    /// [`Code::NoSpace`] beyond 65,536 sessions.
    fn open(&self) -> Result<Self::Descriptor, Code>;

    /// Closes a session.
    ///
    /// # Errors
    /// [`Code::Busy`] while something made through it is in use.
    fn close(&self, descriptor: Self::Descriptor) -> Result<(), RefusedObject<Self::Descriptor>>;

    /// Ends the library.
    ///
    /// # Errors
    /// [`Code::Busy`] while a session is open.
    fn terminate(self) -> Result<(), RefusedObject<Self>>;

    /// Whether a node answers. Waits for its answer.
    ///
    /// # Errors
    /// [`Code::NoSuchNodeId`], [`Code::NoLinkAccess`], [`Code::NoRemoteLinkAccess`] (also if it is lost or not
    /// there yet).
    fn probe_node(&self, descriptor: &Self::Descriptor, node: NodeId) -> Result<(), Code>;

    /// This node.
    fn node(&self) -> NodeId;

    /// The sizes of the interface.
    fn limits(&self) -> Limits;

    // Local segments.

    /// Makes a segment of `size` bytes, a multiple of 4, zero at first. Knows [`Flags::USE_CALLBACK`]. Allocates.
    ///
    /// # Errors
    /// [`Code::SizeAlignment`] (also for size 0), [`Code::NoSpace`] beyond the largest segment or the node's
    /// memory, [`Code::SegmentIdUsed`], [`Code::IllegalFlag`], [`Code::System`].
    fn create_segment(
        &self,
        descriptor: &Self::Descriptor,
        id: SegmentId,
        size: usize,
        flags: Flags,
    ) -> Result<Self::LocalSegment, Code>;

    /// Makes a segment accessible to the adapter.
    ///
    /// # Errors
    /// [`Code::Busy`] if it is prepared already; [`Code::NoSpace`] or [`Code::System`] if its memory cannot be
    /// had.
    fn prepare_segment(&self, segment: &Self::LocalSegment) -> Result<(), Code>;

    /// Lets this process see a part of a segment.
    ///
    /// # Errors
    /// [`Code::SegmentNotPrepared`], [`Code::OffsetAlignment`] (multiples of 8 here), [`Code::SizeAlignment`],
    /// [`Code::OutOfRange`].
    fn map_local(&self, segment: &Self::LocalSegment, offset: usize, size: usize) -> Result<Self::LocalMap, Code>;

    /// Undoes a map. What [`memory`](Sisci::memory) handed out stays valid.
    ///
    /// # Errors
    /// [`Code::Busy`] while other nodes are connected to the segment.
    fn unmap_local(&self, map: Self::LocalMap) -> Result<(), RefusedObject<Self::LocalMap>>;

    /// Lets other nodes connect. No effect if they could already.
    ///
    /// # Errors
    /// [`Code::SegmentNotPrepared`].
    fn set_available(&self, segment: &Self::LocalSegment) -> Result<(), Code>;

    /// Lets no more nodes connect; connections stay. No effect if they could not.
    ///
    /// # Errors
    /// [`Code::SegmentNotPrepared`].
    fn set_unavailable(&self, segment: &Self::LocalSegment) -> Result<(), Code>;

    /// Removes a segment.
    ///
    /// # Errors
    /// [`Code::Busy`] while it is mapped, other nodes are connected to it, or a DMA queue uses it.
    fn remove_segment(&self, segment: Self::LocalSegment) -> Result<(), RefusedObject<Self::LocalSegment>>;

    /// Waits until something happens to a local segment: which node, and what. Without a timeout for ever.
    ///
    /// # Errors
    /// [`Code::Timeout`]; [`Code::IllegalOperation`] for a segment with [`Flags::USE_CALLBACK`].
    fn wait_for_local_segment_event(
        &self,
        segment: &Self::LocalSegment,
        timeout: Option<Span>,
    ) -> Result<(NodeId, SegmentReason), Code>;

    // Remote segments.

    /// Connects to a segment. Waits for the other node's answer, not for the segment to become available. Knows
    /// [`Flags::USE_CALLBACK`]. Allocates.
    ///
    /// # Errors
    /// [`Code::NoSuchNodeId`], [`Code::NoSuchSegment`], [`Code::ConnectionRefused`] if it is not available,
    /// [`Code::Timeout`], [`Code::NoLinkAccess`], [`Code::NoRemoteLinkAccess`], [`Code::IllegalFlag`],
    /// [`Code::NoSpace`] if the segment has as many connections as it can have, [`Code::System`].
    fn connect_segment(
        &self,
        descriptor: &Self::Descriptor,
        node: NodeId,
        id: SegmentId,
        timeout: Span,
        flags: Flags,
    ) -> Result<Self::RemoteSegment, Code>;

    /// Size in bytes of a connected segment.
    fn remote_segment_size(&self, segment: &Self::RemoteSegment) -> usize;

    /// Lets this process store to a part of a connected segment.
    ///
    /// # Errors
    /// [`Code::OffsetAlignment`], [`Code::SizeAlignment`], [`Code::OutOfRange`].
    fn map_remote(
        &self,
        segment: &Self::RemoteSegment,
        offset: usize,
        size: usize,
    ) -> Result<Self::RemoteMap, Code>;

    /// Undoes a map. Stores under way still land.
    ///
    /// # Errors
    /// [`Code::Busy`] while it has a sequence.
    fn unmap_remote(&self, map: Self::RemoteMap) -> Result<(), RefusedObject<Self::RemoteMap>>;

    /// Ends a connection. Waits for what is under way.
    ///
    /// # Errors
    /// [`Code::Busy`] while it is mapped or a DMA queue uses it.
    fn disconnect_segment(&self, segment: Self::RemoteSegment) -> Result<(), RefusedObject<Self::RemoteSegment>>;

    /// Waits until something happens to a connected segment. Without a timeout for ever.
    ///
    /// # Errors
    /// [`Code::Timeout`]; [`Code::IllegalOperation`] for a connection with [`Flags::USE_CALLBACK`].
    fn wait_for_remote_segment_event(
        &self,
        segment: &Self::RemoteSegment,
        timeout: Option<Span>,
    ) -> Result<SegmentReason, Code>;

    /// The next callback of segments that were created or connected with [`Flags::USE_CALLBACK`]. Does not block.
    fn next_callback(&self) -> Option<Callback>;

    /// Where in the global address space a byte of a map lies.
    ///
    /// # Errors
    /// [`Code::OutOfRange`].
    fn remote_address(&self, map: &Self::RemoteMap, offset: usize) -> Result<RemoteAddress, Code>;

    // Programmed I/O.

    /// Stores bytes, at any offset and of any number. Posted. Blocks only while the most lines are outstanding.
    ///
    /// # Errors
    /// [`Code::OutOfRange`]; nothing is stored then.
    fn store(&self, map: &Self::RemoteMap, offset: usize, bytes: &[u8]) -> Result<(), Code>;

    /// Stores one byte as a whole, for the receiver's [`flag`](Sisci::flag) and [`take_flag`](Sisci::take_flag).
    /// Posted.
    ///
    /// # Errors
    /// [`Code::OutOfRange`].
    fn store_flag(&self, map: &Self::RemoteMap, offset: usize, value: u8) -> Result<(), Code>;

    /// Sends what lies in the processor's write-combining buffer on its way. Does not wait.
    fn flush(&self);

    /// Returns when every store before it has landed or failed: what is stored afterwards lands afterwards. Waits.
    fn store_barrier(&self);

    /// Wakes the process at the other end of a map if it idles for a byte that was stored: to be called after the
    /// last store of a message. Costs no virtual time, where the adapter's write itself does that.
    fn alert(&self, map: &Self::RemoteMap);

    /// Copies bytes through a sequence's map; offset and number are multiples of 4. Knows [`Flags::ERROR_CHECK`],
    /// with which it waits, and repeats what was [`Retriable`](SequenceStatus::Retriable) up to 64 times.
    ///
    /// # Errors
    /// [`Code::OutOfRange`], [`Code::OffsetAlignment`], [`Code::SizeAlignment`], [`Code::IllegalFlag`]; with the
    /// check [`Code::TransferFailed`], after which `start_sequence` tells how bad it is, and
    /// [`Code::IllegalOperation`] if the sequence has to be started first.
    fn memcpy(
        &self,
        sequence: &mut Self::Sequence,
        map: &Self::RemoteMap,
        offset: usize,
        bytes: &[u8],
        flags: Flags,
    ) -> Result<(), Code> {
        flags.only(Flags::ERROR_CHECK)?;
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(Code::OffsetAlignment);
        }
        if !bytes.len().is_multiple_of(ALIGNMENT) {
            return Err(Code::SizeAlignment);
        }
        if !flags.has(Flags::ERROR_CHECK) {
            return self.store(map, offset, bytes);
        }
        for _ in 0..TRIES {
            self.store(map, offset, bytes)?;
            match self.check_sequence(sequence, Flags::NONE)? {
                SequenceStatus::Ok => return Ok(()),
                SequenceStatus::Retriable => {}
                SequenceStatus::NotRetriable | SequenceStatus::Pending => break,
            }
        }
        Err(Code::TransferFailed)
    }

    /// Reads bytes of another node: line by line, and waits for each. Counted in [`Counters::remote_reads`].
    ///
    /// # Errors
    /// [`Code::OutOfRange`]; [`Code::TransferFailed`] if a line does not come.
    fn read_remote(&self, map: &Self::RemoteMap, offset: usize, out: &mut [u8]) -> Result<(), Code>;

    // Sequences.

    /// Makes a sequence for a map.
    ///
    /// # Errors
    /// [`Code::NoSpace`] if this process has as many as it can have.
    fn create_map_sequence(&self, map: &Self::RemoteMap) -> Result<Self::Sequence, Code>;

    /// Gives a sequence up.
    fn remove_sequence(&self, sequence: Self::Sequence);

    /// Begins a sequence of stores: afterwards `check_sequence` is about the stores from here on. After
    /// [`NotRetriable`](SequenceStatus::NotRetriable) and [`Pending`](SequenceStatus::Pending) it asks the driver
    /// how things are, and says [`Ok`](SequenceStatus::Ok) once stores can work again. Never
    /// [`Retriable`](SequenceStatus::Retriable).
    fn start_sequence(&self, sequence: &mut Self::Sequence) -> SequenceStatus;

    /// Whether the stores through the sequence's map since the start, or since the last check, have landed. Waits
    /// for them unless [`Flags::NO_STORE_BARRIER`] is given; knows that and [`Flags::NO_FLUSH`].
    ///
    /// # Errors
    /// [`Code::IllegalFlag`]; [`Code::IllegalOperation`] if the sequence has to be started first.
    fn check_sequence(&self, sequence: &mut Self::Sequence, flags: Flags) -> Result<SequenceStatus, Code>;

    // Local memory.

    /// The memory that a map shows, for access at any time: what stores of other nodes have landed as of the last
    /// call that looked ([`flag`](Sisci::flag), [`take_flag`](Sisci::take_flag), [`sync`](Sisci::sync)) is there.
    fn memory(&self, map: &Self::LocalMap) -> Self::Memory;

    /// The byte at an offset, as of now. What was stored before it, in order, is in [`memory`](Sisci::memory)
    /// then.
    ///
    /// # Panics
    /// If the offset is outside the map.
    fn flag(&self, map: &Self::LocalMap, offset: usize) -> u8;

    /// Clears the byte at an offset and returns what it was, in one step. Whoever stores to it afterwards is seen
    /// by the next look; what was stored before it, by the looks that follow.
    ///
    /// # Panics
    /// If the offset is outside the map.
    fn take_flag(&self, map: &Self::LocalMap, offset: usize) -> u8;

    /// Idling ends, or does not begin, while the byte at an offset is not zero. Allocates.
    ///
    /// # Errors
    /// [`Code::OutOfRange`].
    fn watch(&self, map: &Self::LocalMap, offset: usize) -> Result<(), Code>;

    /// Lets everything that has happened up to now be seen in local memory.
    fn sync(&self);

    // DMA.

    /// Makes a queue for up to `max` transfers. Allocates.
    ///
    /// # Errors
    /// [`Code::NoSpace`] for more than 65,536, or none.
    fn create_dma_queue(&self, descriptor: &Self::Descriptor, max: usize) -> Result<Self::DmaQueue, Code>;

    /// Adds a transfer of `size` bytes from a local to a connected segment; no allocation. Idle or Gather ->
    /// Gather.
    ///
    /// # Errors
    /// [`Code::Busy`] in any other state; [`Code::NoSpace`] if the queue is full, [`Code::SegmentNotPrepared`],
    /// [`Code::OffsetAlignment`], [`Code::SizeAlignment`] (also for size 0), [`Code::OutOfRange`].
    fn enqueue(
        &self,
        queue: &mut Self::DmaQueue,
        local: &Self::LocalSegment,
        local_offset: usize,
        remote: &Self::RemoteSegment,
        remote_offset: usize,
        size: usize,
    ) -> Result<(), Code>;

    /// Starts the transfers, one after the other. Gather -> Posted. What is to be sent must not change until it is
    /// done: bytes that the same queue reads and writes may be read before or after.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] in any other state.
    fn post(&self, queue: &mut Self::DmaQueue) -> Result<(), Code>;

    /// The state of a queue now.
    fn dma_state(&self, queue: &Self::DmaQueue) -> DmaState;

    /// Waits until a posted queue is Done, Error or Aborted. Without a timeout for ever.
    ///
    /// # Errors
    /// [`Code::Timeout`]; [`Code::TransferFailed`] for Error; [`Code::Cancelled`] for Aborted;
    /// [`Code::IllegalOperation`] if it was not posted.
    fn wait_for_dma_queue(&self, queue: &mut Self::DmaQueue, timeout: Option<Span>) -> Result<(), Code>;

    /// Empties a queue: any state but Posted -> Idle.
    ///
    /// # Errors
    /// [`Code::Busy`] while it is Posted.
    fn reset(&self, queue: &mut Self::DmaQueue) -> Result<(), Code>;

    /// Ends what is under way: Posted -> Aborted, unless it is done already; data may have landed in part.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] if it is not posted.
    fn abort(&self, queue: &mut Self::DmaQueue) -> Result<(), Code>;

    /// Removes a queue.
    ///
    /// # Errors
    /// [`Code::Busy`] while it is Posted.
    fn remove_dma_queue(&self, queue: Self::DmaQueue) -> Result<(), RefusedObject<Self::DmaQueue>>;

    // Interrupts.

    /// Makes an interrupt with a number that is unique on the node.
    ///
    /// # Errors
    /// [`Code::SegmentIdUsed`] (which is also `INTNO_USED` in SISCI); [`Code::NoSpace`] beyond 64 interrupts.
    fn create_interrupt(&self, descriptor: &Self::Descriptor, number: u32) -> Result<Self::Interrupt, Code>;

    /// Removes an interrupt; connections to it find nobody then.
    fn remove_interrupt(&self, interrupt: Self::Interrupt);

    /// Connects to an interrupt of another node. Waits for its answer.
    ///
    /// # Errors
    /// As [`connect_segment`](Sisci::connect_segment).
    fn connect_interrupt(
        &self,
        descriptor: &Self::Descriptor,
        node: NodeId,
        number: u32,
        timeout: Span,
    ) -> Result<Self::RemoteInterrupt, Code>;

    /// Gives a connection to an interrupt up.
    fn disconnect_interrupt(&self, interrupt: Self::RemoteInterrupt);

    /// Triggers an interrupt. Does not wait; an interrupt to a lost node is lost.
    ///
    /// # Errors
    /// [`Code::NoSuchSegment`] if the interrupt is known to have been removed.
    fn trigger_interrupt(&self, interrupt: &Self::RemoteInterrupt) -> Result<(), Code>;

    /// Waits for an interrupt, and takes one: each trigger ends one wait. Without a timeout for ever.
    ///
    /// # Errors
    /// [`Code::Timeout`].
    fn wait_for_interrupt(&self, interrupt: &Self::Interrupt, timeout: Option<Span>) -> Result<(), Code>;

    // Waiting and time.

    /// Waits until a watched byte is not zero, something happens to a segment or an interrupt, a node departs, or
    /// `until`. Returns at once if something came since the last idling, and may return early. In virtual time it
    /// suspends the rank; a process spins, then yields, then sleeps.
    fn idle(&self, until: Option<Instant>, wanted: impl Into<WaitFor>);

    /// The time now.
    fn now(&self) -> Instant;

    /// Accounts for computation; passes virtual time, and is nothing in a process.
    fn charge(&self, cost: Span);

    /// Accounts for a look that found nothing, so that a loop of looks passes virtual time.
    fn charge_empty_poll(&self);

    /// Leaves the job: other nodes learn it once everything sent so far has landed. Only the first departure
    /// counts.
    fn depart(&self, how: PeerStatus);

    /// What is known of a node: [`PeerStatus::Active`] also before it has come.
    fn status(&self, node: NodeId) -> PeerStatus;

    /// How many nodes are known to be lost; cheap.
    fn losses(&self) -> u32;

    /// What this process has counted so far.
    fn counters(&self) -> Counters;
}
