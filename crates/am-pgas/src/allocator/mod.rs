//! Memory of segments, handed out: the same place on all ranks, or a place in one's own segment.
//!
//! [`SegmentAllocation`] gives an [`Endpoint`] two kinds of allocation from one segment. *Symmetric* ones are
//! collective and grow from the segment's beginning: every rank asks for the same, and gets the same offset, so
//! that a rank knows where a value lies in everybody's segment ([`SymmetricArray::on`]). *Local* ones grow from
//! the end and concern nobody else. Both take the smallest free part that fits, and what lies between them is free
//! for either.
//!
//! A [`SymmetricArray`] is freed by a collective call that consumes it, a [`LocalArray`] when it is dropped;
//! neither can be used afterwards. The global pointers that they give are plain data: one that is kept longer
//! points to whatever is there then. Operations that nobody has waited for may still write to memory that was
//! freed, and handed out again: [`Endpoint::quiet`] before freeing ends those of this rank.
//!
//! The allocator hands out all of the segment behind [`leave_alone`](SegmentAllocation::leave_alone). Collective
//! calls are those of all endpoints: where ranks have several, each of these calls, and all get the same place.
//! Local memory is allocated by the first endpoint of a rank.
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use am_pgas::allocator::SegmentAllocation;
//! use am_pgas::{Pgas, memory::GlobalMemory};
//!
//! let config = loopback::LoopbackConfig::default().segment(4096);
//! let ranks = loopback::network(2, config).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<Pgas>::new();
//!         let pgas = Pgas::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
//!
//!         let row = endpoint.allocate_symmetric::<f64>(100)?;
//!         let (me, other) = (endpoint.rank(), Rank(1 - endpoint.rank().0));
//!         endpoint.put_value(row.on(other).at(7).unwrap(), f64::from(me.0))?;
//!         endpoint.barrier()?;
//!         assert_eq!(endpoint.get_value(row.on(me).at(7).unwrap())?, f64::from(other.0));
//!         endpoint.free_symmetric(row)?;
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use am_core::{Endpoint, HasLayer, Transport};
//! # use am_pgas::allocator::{SegmentAllocation, SegmentAllocator};
//! # fn f<T: Transport, S: HasLayer<SegmentAllocator>>(mut endpoint: Endpoint<T, S>) {
//! let row = endpoint.allocate_symmetric::<f64>(100).unwrap();
//! endpoint.free_symmetric(row).unwrap();
//! row.on(endpoint.rank()); // it is free
//! # }
//! ```

mod free_list;

use crate::pointer::{Element, GlobalPtr, GlobalSlice};
use am_core::{Endpoint, HasLayer, LossCause, PeerStatus, PollError, Rank, Transport, WaitError};
use free_list::{Free, FreeList};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a cache line, which allocations are aligned to if nothing else is asked for.
pub(crate) const LINE: u64 = 64;

/// Offsets of local allocations are counted down from here, a multiple of every alignment.
const TOP: u64 = 1 << 62;

/// Bytes of an allocation are at most these.
const LARGEST: u64 = (1 << 56) - 1;

/// What a rank asks for in a collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Memory for every rank.
    Allocate {
        /// Values for each.
        len: u64,
        /// Bytes of a value.
        size: u64,
        /// What the offset is a multiple of.
        alignment: u64,
        /// A digest of the distribution of a [global array](crate::array::GlobalArray); 0 of other memory.
        distribution: u64,
    },
    /// To free the memory at an offset.
    Free {
        /// The offset, in bytes.
        offset: u64,
    },
}

/// What stands before the offset of a call to free; alignments are smaller.
const FREE: u64 = u64::MAX - 1;

impl Call {
    pub(crate) fn allocate<V>(len: u64, alignment: u64, distribution: u64) -> Self {
        let alignment = alignment_for(alignment);
        Self::Allocate { len, size: size_of::<V>() as u64, alignment, distribution }
    }

    fn encode(self) -> [u64; 4] {
        match self {
            Self::Allocate { len, size, alignment, distribution } => [alignment, len, size, distribution],
            Self::Free { offset } => [FREE, offset, 0, 0],
        }
    }

    fn decode([first, len, size, distribution]: [u64; 4]) -> Self {
        match first {
            FREE => Self::Free { offset: len },
            alignment => Self::Allocate { len, size, alignment, distribution },
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { len, size, alignment, distribution } => {
                write!(f, "asks for {len} values of {size} bytes aligned to {alignment}")?;
                if *distribution == 0 { Ok(()) } else { write!(f, ", distributed as {distribution:#x}") }
            }
            Self::Free { offset } => write!(f, "frees what is at offset {offset}"),
        }
    }
}

/// Numbers in one number, which tells different ones apart but for one case in 2^64: each goes through the
/// finalizer of SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) fn digest(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, |all, number| {
        let mut mixed = (all ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Memory was not allocated or freed. Nothing has changed then, except after [`AllocationError::Wait`] in a
/// collective call, which leaves the memory taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// No free part of the segment is large enough.
    #[error(
        "{bytes} bytes aligned to {alignment} do not fit: {total} bytes are free, in one part at most {largest}"
    )]
    Exhausted {
        /// Bytes asked for.
        bytes: u64,
        /// What the offset has to be a multiple of.
        alignment: u64,
        /// Bytes of the largest free part; of a symmetric allocation the smallest on any rank.
        largest: u64,
        /// Free bytes, likewise.
        total: u64,
    },
    /// Ranks called for different things together.
    #[error("a collective call differs: rank {a} {in_a}, rank {b} {in_b}")]
    CallsDiffer {
        /// A rank.
        a: Rank,
        /// What it called for.
        in_a: Call,
        /// Another rank.
        b: Rank,
        /// What that called for.
        in_b: Call,
    },
    /// Another rank was in a barrier, or left by one, in place of this call.
    #[error("a collective call differs: this rank {mine}, another has come to a barrier")]
    Barrier {
        /// What this rank called for.
        mine: Call,
    },
    /// Ranks have left different parts of their segments alone.
    #[error("the ranks leave between {least} and {most} bytes of their segments alone")]
    BeginningsDiffer {
        /// The smallest number of bytes.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// Something is allocated.
    #[error("part of the segment can only be left alone while nothing is allocated")]
    TooLate,
    /// The array was allocated by another endpoint.
    #[error("the array was allocated by another endpoint")]
    Foreign,
    /// Local memory is allocated by the first endpoint of a rank.
    #[error("endpoint {endpoint} of a rank cannot allocate local memory, endpoint 0 can")]
    OtherEndpoint {
        /// The endpoint.
        endpoint: u16,
    },
    /// The other ranks were waited for in vain.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl AllocationError {
    /// The rank whose loss made the operation fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

/// A collective call did not free an array. It holds the array, which is still taken on this rank; after
/// [`AllocationError::Wait`] others may have freed theirs. Becomes its error by `?`.
pub struct FreeError<A> {
    /// Why.
    pub error: AllocationError,
    /// What was to be freed.
    pub array: Box<A>,
}

impl<A> fmt::Debug for FreeError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<A> fmt::Display for FreeError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<A> std::error::Error for FreeError<A> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<A> From<FreeError<A>> for AllocationError {
    fn from(unfreed: FreeError<A>) -> Self {
        unfreed.error
    }
}

/// Local memory that was dropped, until its allocator takes note.
type GivenBack = Arc<Mutex<Vec<(u64, u64)>>>;

/// What is handed out of this rank's segment; the state behind [`SegmentAllocation`].
#[derive(Debug, Default)]
pub struct SegmentAllocator {
    heap: Option<Heap>,
    /// Bytes at the segment's beginning that are left alone.
    beginning: u64,
}

#[derive(Debug)]
struct Heap {
    symmetric: FreeList,
    /// Offsets count down from [`TOP`].
    local: FreeList,
    given_back: GivenBack,
}

impl SegmentAllocator {
    fn heap(&mut self, segment: usize) -> &mut Heap {
        let beginning = self.beginning;
        self.heap.get_or_insert_with(|| Heap {
            symmetric: FreeList::new(beginning),
            local: FreeList::new(TOP - segment as u64),
            given_back: GivenBack::default(),
        })
    }
}

impl Heap {
    /// Whether nothing is taken.
    fn is_unused(&mut self) -> bool {
        self.take_note();
        self.symmetric.end() == self.symmetric.begin() && self.local.end() == self.local.begin()
    }

    /// Where local memory begins.
    fn ceiling(&self) -> u64 {
        TOP - self.local.end()
    }

    /// Frees the local memory that was dropped.
    fn take_note(&mut self) {
        let returned = std::mem::take(&mut *self.given_back.lock().unwrap_or_else(PoisonError::into_inner));
        returned.into_iter().for_each(|(at, len)| self.local.give_back(at, len));
    }

    fn take_local(&mut self, bytes: u64, alignment: u64) -> Result<u64, AllocationError> {
        self.take_note();
        let limit = TOP - self.symmetric.end();
        let taken = self.local.take(bytes, alignment, limit);
        taken.ok_or_else(|| exhausted(bytes, alignment, self.local.free(limit)))
    }
}

fn exhausted(bytes: u64, alignment: u64, Free { total, largest }: Free) -> AllocationError {
    AllocationError::Exhausted { bytes, alignment, largest, total }
}

/// Bytes that an allocation takes: a multiple of its alignment, and never none.
fn bytes_for<V>(len: u64, alignment: u64) -> u64 {
    let bytes = len.saturating_mul(size_of::<V>() as u64).clamp(1, LARGEST);
    bytes.next_multiple_of(alignment)
}

/// A power of two of at least 8.
fn alignment_for(asked: u64) -> u64 {
    asked.clamp(8, 1 << 40).next_power_of_two()
}

/// Memory at one offset of every rank's segment. It is freed by [`SegmentAllocation::free_symmetric`] alone;
/// dropped, it stays taken until its endpoint ends.
#[must_use = "symmetric memory that is dropped stays taken"]
pub struct SymmetricArray<V> {
    offset: u64,
    len: u64,
    bytes: u64,
    /// Of the endpoint that allocated it.
    owner: GivenBack,
    of: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for SymmetricArray<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymmetricArray").field("offset", &self.offset).field("len", &self.len).finish()
    }
}

impl<V> SymmetricArray<V> {
    /// Values on each rank.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte offset of the first value, on every rank.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The values of one rank.
    #[inline]
    pub fn on(&self, rank: Rank) -> GlobalSlice<V> {
        GlobalPtr::new(rank, self.offset).slice(self.len)
    }
}

/// Memory of this rank's own segment, which is free again once this is dropped.
pub struct LocalArray<V> {
    slice: GlobalSlice<V>,
    /// As the allocator counts.
    taken: (u64, u64),
    given_back: GivenBack,
}

impl<V> fmt::Debug for LocalArray<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalArray").field(&self.slice).finish()
    }
}

impl<V> LocalArray<V> {
    /// Where the values lie.
    #[inline]
    pub fn slice(&self) -> GlobalSlice<V> {
        self.slice
    }
}

impl<V> Drop for LocalArray<V> {
    fn drop(&mut self) {
        self.given_back.lock().unwrap_or_else(PoisonError::into_inner).push(self.taken);
    }
}

mod sealed {
    pub trait Sealed {}

    impl<T: am_core::Transport, S> Sealed for am_core::Endpoint<T, S> {}
}

/// Memory of segments; see the [module](self).
pub trait SegmentAllocation: sealed::Sealed {
    /// Leaves the first bytes of the segment to the program. All ranks leave the same.
    ///
    /// # Errors
    /// [`AllocationError::TooLate`] while something is allocated.
    fn leave_alone(&mut self, bytes: u64) -> Result<(), AllocationError>;

    /// Allocates `len` zero values in every rank's segment, at the same offset, a multiple of 64. Collective: all
    /// ranks ask for the same. When it returns, the memory can be used on all ranks. Blocks; allocates; writes all
    /// of the memory.
    ///
    /// # Errors
    /// [`AllocationError::CallsDiffer`] names two ranks and what they asked for, [`AllocationError::Exhausted`]
    /// says what is free on the rank with the least, both on all ranks alike; [`AllocationError::Barrier`] where
    /// another rank calls [`Endpoint::barrier`] instead, which fails there; [`AllocationError::Wait`], as
    /// [`Endpoint::barrier`].
    fn allocate_symmetric<V: Element>(&mut self, len: u64) -> Result<SymmetricArray<V>, AllocationError> {
        self.allocate_symmetric_aligned(len, LINE)
    }

    /// As [`allocate_symmetric`](Self::allocate_symmetric), at a multiple of an alignment, which is rounded up to
    /// a power of two of 8 to 2^40.
    ///
    /// # Errors
    /// As [`allocate_symmetric`](Self::allocate_symmetric).
    fn allocate_symmetric_aligned<V: Element>(
        &mut self,
        len: u64,
        alignment: u64,
    ) -> Result<SymmetricArray<V>, AllocationError>;

    /// Frees a symmetric array. Collective: it waits until all ranks have come here, so that none uses it any
    /// more. Operations on it that were started and not waited for may still write to it afterwards:
    /// [`Endpoint::quiet`] comes first. Blocks.
    ///
    /// # Errors
    /// As [`allocate_symmetric`](Self::allocate_symmetric); [`AllocationError::Foreign`], without waiting. The
    /// array stays taken then, and [`FreeError`] holds it (allocates).
    fn free_symmetric<V>(&mut self, array: SymmetricArray<V>) -> Result<(), FreeError<SymmetricArray<V>>>;

    /// Allocates `len` zero values in this rank's segment, at a multiple of 64. No communication; allocates;
    /// writes all of the memory.
    ///
    /// # Errors
    /// [`AllocationError::Exhausted`]; [`AllocationError::OtherEndpoint`].
    fn allocate_local<V: Element>(&mut self, len: u64) -> Result<LocalArray<V>, AllocationError> {
        self.allocate_local_aligned(len, LINE)
    }

    /// As [`allocate_local`](Self::allocate_local), at a multiple of an alignment, which is rounded up to a power
    /// of two of 8 to 2^40.
    ///
    /// # Errors
    /// As [`allocate_local`](Self::allocate_local).
    fn allocate_local_aligned<V: Element>(
        &mut self,
        len: u64,
        alignment: u64,
    ) -> Result<LocalArray<V>, AllocationError>;
}

/// Has all ranks agree on a call, or tells which two differ.
pub(crate) fn agree<T: Transport, S>(endpoint: &mut Endpoint<T, S>, call: Call) -> Result<(), AllocationError> {
    let mine = call.encode();
    // A barrier brings 0.
    let word = digest(mine).max(1);
    let [least, most] = endpoint.minima([word, !word])?;
    let most = !most;
    if least == 0 {
        return Err(AllocationError::Barrier { mine: call });
    }
    if least == most {
        return Ok(());
    }
    let me = u64::from(endpoint.rank().0);
    let who = |ours: bool| if ours { me } else { u64::MAX };
    let ranks = endpoint.minima([who(word == least), who(word == most)])?;
    let tells = [word == least && ranks[0] == me, word == most && ranks[1] == me];
    let mut told = [[0; 4]; 2];
    for (at, number) in mine.into_iter().enumerate() {
        let numbers = endpoint.minima(tells.map(|tells| if tells { number } else { u64::MAX }))?;
        (told[0][at], told[1][at]) = (numbers[0], numbers[1]);
    }
    let call = |index: usize| (Rank(u32::try_from(ranks[index]).unwrap_or(u32::MAX)), Call::decode(told[index]));
    let (first, second) = if ranks[0] <= ranks[1] { (0, 1) } else { (1, 0) };
    let ((a, in_a), (b, in_b)) = (call(first), call(second));
    Err(AllocationError::CallsDiffer { a, in_a, b, in_b })
}

/// Allocates what all ranks have agreed on.
pub(crate) fn allocate_agreed<T: Transport, S: HasLayer<SegmentAllocator>, V>(
    endpoint: &mut Endpoint<T, S>,
    len: u64,
    alignment: u64,
) -> Result<SymmetricArray<V>, AllocationError> {
    let alignment = alignment_for(alignment);
    let bytes = bytes_for::<V>(len, alignment);
    let segment = endpoint.segment().len();
    let heap = endpoint.layer_unscheduled::<SegmentAllocator>().heap(segment);
    heap.take_note();
    let (ceiling, beginning) = (heap.ceiling(), heap.symmetric.begin());
    // The least room on any rank, and whether all count from the same place.
    let [limit, most] = endpoint.minima([ceiling, !beginning])?;
    let [least, _] = endpoint.minima([beginning, u64::MAX])?;
    if least != !most {
        return Err(AllocationError::BeginningsDiffer { least, most: !most });
    }
    let heap = endpoint.layer_unscheduled::<SegmentAllocator>().heap(segment);
    let taken = heap.symmetric.take(bytes, alignment, limit);
    let offset = taken.ok_or_else(|| exhausted(bytes, alignment, heap.symmetric.free(limit)))?;
    let owner = Arc::clone(&heap.given_back);
    clear(endpoint, offset, bytes);
    endpoint.barrier()?;
    Ok(SymmetricArray { offset, len, bytes, owner, of: PhantomData })
}

/// Writes zeros to bytes of this rank's segment, which the allocator knows to be inside.
fn clear<T: Transport, S>(endpoint: &Endpoint<T, S>, offset: u64, bytes: u64) {
    let zeros = [0; 4096];
    let end = offset + bytes;
    for at in (offset..end).step_by(zeros.len()) {
        let piece = &zeros[..(end - at).min(zeros.len() as u64) as usize];
        endpoint.segment().write(at, piece).expect("the allocator hands out memory of the segment");
    }
}

impl<T: Transport, S: HasLayer<SegmentAllocator>> SegmentAllocation for Endpoint<T, S> {
    fn leave_alone(&mut self, bytes: u64) -> Result<(), AllocationError> {
        let allocator = self.layer_unscheduled::<SegmentAllocator>();
        if allocator.heap.as_mut().is_some_and(|heap| !heap.is_unused()) {
            return Err(AllocationError::TooLate);
        }
        *allocator = SegmentAllocator { heap: None, beginning: bytes.min(LARGEST) };
        Ok(())
    }

    fn allocate_symmetric_aligned<V: Element>(
        &mut self,
        len: u64,
        alignment: u64,
    ) -> Result<SymmetricArray<V>, AllocationError> {
        agree(self, Call::allocate::<V>(len, alignment, 0))?;
        allocate_agreed(self, len, alignment)
    }

    fn free_symmetric<V>(&mut self, array: SymmetricArray<V>) -> Result<(), FreeError<SymmetricArray<V>>> {
        let segment = self.segment().len();
        let heap = self.layer_unscheduled::<SegmentAllocator>().heap(segment);
        let agreed = if Arc::ptr_eq(&array.owner, &heap.given_back) {
            agree(self, Call::Free { offset: array.offset })
        } else {
            Err(AllocationError::Foreign)
        };
        if let Err(error) = agreed {
            return Err(FreeError { error, array: Box::new(array) });
        }
        self.layer_unscheduled::<SegmentAllocator>().heap(segment).symmetric.give_back(array.offset, array.bytes);
        Ok(())
    }

    fn allocate_local_aligned<V: Element>(
        &mut self,
        len: u64,
        alignment: u64,
    ) -> Result<LocalArray<V>, AllocationError> {
        let endpoint = self.address().endpoint;
        if endpoint != 0 {
            return Err(AllocationError::OtherEndpoint { endpoint });
        }
        let address = self.address();
        if let Some(PeerStatus::Lost(cause @ LossCause::Forked)) = self.status(address) {
            // The memory is its parent's, which nothing is written to here.
            return Err(WaitError::Poll(PollError::PeerLost { rank: address.rank, cause }).into());
        }
        let (segment, me) = (self.segment().len(), self.rank());
        let alignment = alignment_for(alignment);
        let bytes = bytes_for::<V>(len, alignment);
        let heap = self.layer_unscheduled::<SegmentAllocator>().heap(segment);
        let at = heap.take_local(bytes, alignment)?;
        let (offset, given_back) = (TOP - at - bytes, Arc::clone(&heap.given_back));
        clear(self, offset, bytes);
        Ok(LocalArray { slice: GlobalPtr::new(me, offset).slice(len), taken: (at, bytes), given_back })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::GlobalArray;
    use crate::array::distribution::Distribution;
    use crate::memory::GlobalMemory;
    use crate::on_ranks::{Ranks, on_ranks, run_ranks};
    use am_core::loopback::LoopbackConfig;

    fn free(endpoint: &mut Ranks) -> u64 {
        let Err(AllocationError::Exhausted { total, .. }) = endpoint.allocate_local::<u8>(1 << 40) else {
            panic!("nobody has so much memory");
        };
        total
    }

    #[test]
    fn symmetric_memory_is_at_the_same_place() {
        on_ranks(3, |endpoint| {
            let me = endpoint.rank();
            let all = free(endpoint);
            // Local memory differs from rank to rank, and is in nobody's way.
            let local: Vec<_> = (0..me.0).map(|_| endpoint.allocate_local::<u32>(5).unwrap()).collect();
            let first = endpoint.allocate_symmetric::<u64>(10).unwrap();
            let second = endpoint.allocate_symmetric_aligned::<u8>(3, 1000).unwrap();
            assert_eq!((first.offset(), second.offset()), (0, 1024));
            assert!(local.iter().all(|array| array.slice().offset().is_multiple_of(64)));
            for rank in (0..3).map(Rank) {
                endpoint.put_value(first.on(rank).at(me.0.into()).unwrap(), u64::from(me.0) + 1).unwrap();
            }
            endpoint.barrier().unwrap();
            let mut found = [9; 10];
            endpoint.get_slice(first.on(me), &mut found).unwrap();
            assert_eq!(found[..4], [1, 2, 3, 0]);
            endpoint.free_symmetric(first).unwrap();
            let third = endpoint.allocate_symmetric::<u64>(2).unwrap();
            assert_eq!(endpoint.get_value(third.on(me).at(0).unwrap()), Ok(0), "memory is handed out as zeros");
            endpoint.free_symmetric(second).unwrap();
            endpoint.free_symmetric(third).unwrap();
            drop(local);
            assert_eq!(free(endpoint), all);
        });
    }

    #[test]
    fn calls_that_differ_name_both() {
        on_ranks(3, |endpoint| {
            let me = endpoint.rank().0;
            let odd = u64::from(me == 1);
            let call = |len| Call::Allocate { len, size: 1, alignment: 64, distribution: 0 };
            // Both take 64 bytes.
            let error = endpoint.allocate_symmetric::<u8>(10 + 10 * odd).unwrap_err();
            let expected = AllocationError::CallsDiffer { a: Rank(0), in_a: call(10), b: Rank(1), in_b: call(20) };
            assert_eq!(error, expected);
            assert!(error.to_string().ends_with("rank 1 asks for 20 values of 1 bytes aligned to 64"), "{error}");
            let error = if odd == 1 {
                endpoint.allocate_symmetric::<[u8; 2]>(5).unwrap_err()
            } else {
                endpoint.allocate_symmetric::<u8>(10).unwrap_err()
            };
            let in_b = Call::Allocate { len: 5, size: 2, alignment: 64, distribution: 0 };
            assert_eq!(error, AllocationError::CallsDiffer { a: Rank(0), in_a: call(10), b: Rank(1), in_b });
            let array = endpoint.allocate_symmetric::<u8>(100).unwrap();
            let (error, array) = if me == 2 {
                (endpoint.allocate_symmetric::<u8>(64).map(drop).unwrap_err(), array)
            } else {
                let unfreed = endpoint.free_symmetric(array).unwrap_err();
                (unfreed.error, *unfreed.array)
            };
            let (in_a, in_b) = (Call::Free { offset: 0 }, call(64));
            assert_eq!(error, AllocationError::CallsDiffer { a: Rank(0), in_a, b: Rank(2), in_b });
            assert_eq!(endpoint.leave_alone(8), Err(AllocationError::TooLate));
            // What was not freed can be freed.
            endpoint.free_symmetric(array).unwrap();
            endpoint.leave_alone(8).unwrap();
            assert_eq!(endpoint.allocate_symmetric_aligned::<u8>(1, 8).unwrap().offset(), 8);
            endpoint.barrier().unwrap();
        });
    }

    /// Allocating, freeing and making arrays beside a barrier: all ranks learn of it, and go on in step.
    #[test]
    fn barriers_beside_them_are_told() {
        on_ranks(3, |endpoint| {
            let me = endpoint.rank().0;
            let array = endpoint.allocate_symmetric::<u64>(3).unwrap();
            let mut array = Some(array);
            for odd in 0..3 {
                let mine = Call::Allocate { len: 10, size: 8, alignment: 64, distribution: 0 };
                if me == odd {
                    assert_eq!(endpoint.barrier(), Err(WaitError::OtherCall));
                    assert_eq!(endpoint.barrier(), Err(WaitError::OtherCall));
                    assert_eq!(endpoint.barrier(), Err(WaitError::OtherCall));
                } else {
                    let found = endpoint.allocate_symmetric::<u64>(10).map(drop);
                    assert_eq!(found, Err(AllocationError::Barrier { mine }));
                    let unfreed = endpoint.free_symmetric(array.take().unwrap()).unwrap_err();
                    assert!(matches!(unfreed.error, AllocationError::Barrier { mine: Call::Free { offset: 0 } }));
                    array = Some(*unfreed.array);
                    assert!(GlobalArray::<u8>::new(endpoint, Distribution::block([9], 3).unwrap()).is_err());
                }
                endpoint.barrier().unwrap();
            }
            endpoint.free_symmetric(array.unwrap()).unwrap();
            endpoint.barrier().unwrap();
        });
    }

    #[test]
    fn what_does_not_fit_is_told_with_numbers() {
        on_ranks(2, |endpoint| {
            let segment = endpoint.segment().len() as u64;
            endpoint.leave_alone(100).unwrap();
            // Rank 1 has less room, and so nobody has more.
            let local = (endpoint.rank() == Rank(1)).then(|| endpoint.allocate_local::<u8>(1024).unwrap());
            let room = segment - 1024 - 100;
            let bytes = segment.next_multiple_of(64);
            let error = endpoint.allocate_symmetric::<u8>(segment).unwrap_err();
            assert_eq!(error, AllocationError::Exhausted { bytes, alignment: 64, largest: room, total: room });
            let array = endpoint.allocate_symmetric::<u8>(room / 64 * 64).unwrap();
            assert_eq!(array.offset(), 128);
            assert!(endpoint.allocate_symmetric::<u8>(1).is_err());
            endpoint.barrier().unwrap();
            drop(local);
            let more = endpoint.allocate_symmetric::<u8>(1000).unwrap();
            endpoint.free_symmetric(array).unwrap();
            assert_eq!(more.len(), 1000);
        });
    }

    #[test]
    fn beginnings_differ() {
        on_ranks(2, |endpoint| {
            endpoint.leave_alone(8 * u64::from(endpoint.rank().0)).unwrap();
            let error = endpoint.allocate_symmetric::<u8>(1).unwrap_err();
            assert_eq!(error, AllocationError::BeginningsDiffer { least: 0, most: 8 });
        });
    }

    /// All endpoints of all ranks call, and get the same.
    #[test]
    fn several_endpoints_call_together() {
        let config = LoopbackConfig::default().endpoints(2);
        let run = |endpoint: &mut Ranks| {
            let first = endpoint.address().endpoint == 0;
            let local = first.then(|| endpoint.allocate_local::<u8>(100).unwrap());
            let array = endpoint.allocate_symmetric::<u64>(9).unwrap();
            assert_eq!(array.offset(), 0);
            let other = GlobalArray::<u32>::new(endpoint, Distribution::block([100], 2).unwrap()).unwrap();
            assert_eq!(other.pointer([0]).map(|at| at.offset()), Some(128));
            if !first {
                other.put(endpoint, [u64::from(endpoint.rank().0) * 60], 7).unwrap();
                assert_eq!(
                    endpoint.allocate_local::<u8>(1).unwrap_err(),
                    AllocationError::OtherEndpoint { endpoint: 1 }
                );
            }
            endpoint.barrier().unwrap();
            assert_eq!((other.get(endpoint, [0]), other.get(endpoint, [60])), (Ok(7), Ok(7)));
            other.free(endpoint).unwrap();
            endpoint.free_symmetric(array).unwrap();
            drop(local);
        };
        run_ranks(2, config, &run);
    }

    #[test]
    fn arrays_are_freed_where_they_were_allocated() {
        let arrays = Mutex::new(Vec::new());
        let run = |endpoint: &mut Ranks| {
            let array = endpoint.allocate_symmetric::<u8>(1).unwrap();
            if endpoint.rank() == Rank(0) {
                arrays.lock().unwrap().push(array);
                endpoint.barrier().unwrap();
                endpoint.barrier().unwrap();
                let back = arrays.lock().unwrap().pop().unwrap();
                endpoint.free_symmetric(back).unwrap();
            } else {
                endpoint.barrier().unwrap();
                let foreign = arrays.lock().unwrap().pop().unwrap();
                let unfreed = endpoint.free_symmetric(foreign).unwrap_err();
                assert_eq!(unfreed.error, AllocationError::Foreign);
                arrays.lock().unwrap().push(*unfreed.array);
                endpoint.barrier().unwrap();
                endpoint.free_symmetric(array).unwrap();
            }
        };
        run_ranks(2, LoopbackConfig::default(), &run);
    }
}
