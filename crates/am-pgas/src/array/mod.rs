//! Global arrays: one array over the segments of all ranks.
//!
//! A [`GlobalArray`] of 1 to 3 dimensions is distributed over a grid of ranks by a [`Distribution`]. Any rank
//! reads and writes any element, range or section; a rank sees its own elements as memory ([`OwnedElements`]);
//! [batches](GlobalArray::batch_add) of single elements go together to the ranks that own them; and [ghost
//! cells](GlobalArray::exchange) bring a rank its neighbours' edges.
//!
//! Everything is unordered with what other ranks do meanwhile. [`Endpoint::barrier`] separates a phase in which
//! elements are written from one in which others read them; every operation here is done at its targets when it
//! returns.
//!
//! # Losses
//!
//! Where the memory of a lost rank is seen, it stays, and operations and batches on its elements end well, as puts
//! do. Over messages they fail, and [`ArrayError::lost_rank`] names the rank. A batch, range or section may be
//! done in part then, and nothing of it is under way any more, unless the endpoint's time-out ran out.
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, loopback};
//! use am_pgas::Pgas;
//! use am_pgas::array::{GlobalArray, distribution::Distribution};
//!
//! let ranks = loopback::network(2, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<Pgas>::new();
//!         let pgas = Pgas::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
//!
//!         // A histogram: everyone counts multiples of 7 and 11.
//!         let counts = GlobalArray::<u64>::new(&mut endpoint, Distribution::block([1000], 2)?)?;
//!         let found: Vec<u64> = (0..1000).filter(|n| n % 7 == 0 || n % 11 == 0).collect();
//!         counts.batch_add(&mut endpoint, &found, 1u64)?;
//!         endpoint.barrier()?;
//!         assert_eq!(counts.get(&mut endpoint, [77])?, 2);
//!         let expected = |n| if n % 7 == 0 || n % 11 == 0 { 2 } else { 0 };
//!         assert!(counts.own(&endpoint).iter().all(|([n], count)| count == expected(n)));
//!         let mut some = [0; 5];
//!         counts.get_range(&mut endpoint, 498..503, &mut some)?;
//!         assert_eq!(some, [0, 0, 0, 0, 0]);
//!         counts.free(&mut endpoint)?;
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```

mod batch;
pub mod distribution;
mod divisor;
mod halo;
#[cfg(test)]
mod loss_tests;
mod owned;
mod pending;
mod rows;
#[cfg(test)]
mod tests;
mod words;

pub use batch::Values;
pub use halo::Exchange;
pub use owned::OwnedElements;

use crate::allocator::{
    self, AllocationError, Call, FreeError, LINE, SegmentAllocation, SegmentAllocator, SymmetricArray,
};
use crate::local::LocalSlice;
use crate::memory::GlobalMemory;
use crate::pointer::{Element, GlobalPtr};
use am_core::one_sided::atomic::Number;
use am_core::one_sided::{AtomicOp, AtomicValue, OneSided, OneSidedError, Output, Unfinished};
use am_core::{Endpoint, HasLayer, LossCause, Rank, Transport, WaitError};
use distribution::{Distribution, DistributionError};
use std::fmt;

#[cfg(doc)]
use crate::pointer::GlobalSlice;

/// An operation on a global array could not be done. An index, section or length that is refused changes nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// The array cannot be distributed so.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    /// There is no memory for it.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// An index is outside the array.
    #[error("index {index} of dimension {dimension} is outside an array with {len} there")]
    OutOfRange {
        /// The dimension; of a batch, which counts elements in row-major order, 0.
        dimension: usize,
        /// The index.
        index: u64,
        /// Elements in this dimension; of a batch in all.
        len: u64,
    },
    /// A range, or a dimension of a section, reaches beyond the array or ends before it begins.
    #[error("the range {start}..{end} of dimension {dimension} is none of an array with {len} elements there")]
    Section {
        /// The dimension.
        dimension: usize,
        /// Where the range begins.
        start: u64,
        /// Where it ends, exclusive.
        end: u64,
        /// Elements in this dimension.
        len: u64,
    },
    /// A buffer has another number of values than elements are asked for.
    #[error("{given} values for {needed} elements")]
    Lengths {
        /// Values of the buffer.
        given: u64,
        /// Elements.
        needed: u64,
    },
    /// A rank has too many elements for a batch, which counts them with 32 bits.
    #[error("batches need fewer than 2^32 elements on each rank, and ranks have {elements}")]
    TooLargeForBatches {
        /// Elements that each rank keeps room for.
        elements: u64,
    },
    /// The array is not one of the endpoint's job: a segment ends before it.
    #[error("the array lies beyond a segment of the endpoint's job: it is another job's")]
    Foreign,
    /// A one-sided operation failed.
    #[error(transparent)]
    Access(#[from] OneSidedError),
    /// The other ranks were waited for in vain.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl ArrayError {
    /// The rank whose loss made the operation fail and how it was lost, if one did.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Allocation(error) => error.loss(),
            Self::Access(error) => error.loss(),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

impl<R> From<Unfinished<R>> for ArrayError {
    fn from(unfinished: Unfinished<R>) -> Self {
        Self::Access(unfinished.into())
    }
}

impl<A> From<FreeError<A>> for ArrayError {
    fn from(unfreed: FreeError<A>) -> Self {
        Self::Allocation(unfreed.error)
    }
}

/// An array over the segments of the ranks of a job; see the [module](self).
///
/// It is freed by [`GlobalArray::free`], which consumes it; dropped, its memory stays taken.
#[must_use = "a global array that is dropped keeps its memory"]
pub struct GlobalArray<V, const D: usize = 1> {
    distribution: Distribution<D>,
    memory: SymmetricArray<V>,
}

impl<V, const D: usize> fmt::Debug for GlobalArray<V, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalArray").field("shape", &self.distribution.shape()).finish_non_exhaustive()
    }
}

impl<V: Element, const D: usize> GlobalArray<V, D> {
    /// Allocates an array of zeros. Collective: all ranks name the same distribution. Blocks; allocates symmetric
    /// memory, also on ranks outside the grid.
    ///
    /// # Errors
    /// [`AllocationError::CallsDiffer`], also where only the distributions differ;
    /// [`DistributionError::TooManyRanks`]; as [`SegmentAllocation::allocate_symmetric`]. On all ranks alike.
    pub fn new<T: Transport, S: HasLayer<SegmentAllocator>>(
        endpoint: &mut Endpoint<T, S>,
        distribution: Distribution<D>,
    ) -> Result<Self, ArrayError> {
        let (grid, ranks, capacity) = (distribution.ranks(), endpoint.ranks(), distribution.capacity());
        allocator::agree(endpoint, Call::allocate::<V>(capacity, LINE, distribution.digest()))?;
        if grid > ranks {
            return Err(DistributionError::TooManyRanks { grid, ranks }.into());
        }
        let memory = allocator::allocate_agreed(endpoint, capacity, LINE)?;
        Ok(Self { distribution, memory })
    }

    /// Frees the array. Collective; blocks until no rank uses it any more. Operations on its pointers that were
    /// started and not waited for may still write afterwards: [`Endpoint::quiet`] comes first.
    ///
    /// # Errors
    /// As [`SegmentAllocation::free_symmetric`]; [`FreeError`] holds the array.
    pub fn free<T: Transport, S: HasLayer<SegmentAllocator>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), FreeError<Self>> {
        let Self { distribution, memory } = self;
        endpoint.free_symmetric(memory).map_err(|FreeError { error, array }| {
            let array = Box::new(Self { distribution, memory: *array });
            FreeError { error, array }
        })
    }

    /// Where its elements are.
    #[inline]
    pub fn distribution(&self) -> &Distribution<D> {
        &self.distribution
    }

    /// Where an element lies, or `None` outside the array.
    #[inline]
    pub fn pointer(&self, index: [u64; D]) -> Option<GlobalPtr<V>> {
        let place = self.distribution.place(index)?;
        self.memory.on(place.rank).at(place.offset)
    }

    /// Where it ends in every rank's segment, in bytes.
    fn end(&self) -> u64 {
        self.memory.offset() + self.memory.len() * size_of::<V>() as u64
    }

    fn inside(&self, index: [u64; D]) -> Result<GlobalPtr<V>, ArrayError> {
        self.pointer(index).ok_or_else(|| self.outside(index))
    }

    #[cold]
    fn outside(&self, index: [u64; D]) -> ArrayError {
        let shape = self.distribution.shape();
        let dimension = (0..D).find(|dimension| index[*dimension] >= shape[*dimension]).unwrap_or(0);
        ArrayError::OutOfRange { dimension, index: index[dimension], len: shape[dimension] }
    }

    /// Reads an element. Over shared memory this is a load.
    ///
    /// # Errors
    /// [`ArrayError::OutOfRange`]; as [`GlobalMemory::get_value`].
    #[inline]
    pub fn get<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        index: [u64; D],
    ) -> Result<V, ArrayError> {
        Ok(endpoint.get_value(self.inside(index)?)?)
    }

    /// Writes an element and waits until it is there. Over shared memory this is a store.
    ///
    /// # Errors
    /// [`ArrayError::OutOfRange`]; as [`GlobalMemory::put_value`].
    #[inline]
    pub fn put<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        index: [u64; D],
        value: V,
    ) -> Result<(), ArrayError> {
        Ok(endpoint.put_value(self.inside(index)?, value)?)
    }

    /// Does an atomic operation on an element and returns what was there.
    ///
    /// # Errors
    /// [`ArrayError::OutOfRange`]; as [`Endpoint::atomic`].
    #[inline]
    pub fn atomic<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        index: [u64; D],
        op: AtomicOp<V>,
    ) -> Result<V, ArrayError>
    where
        V: AtomicValue + Number + Output,
    {
        let at = self.inside(index)?;
        Ok(endpoint.atomic(at.rank(), at.offset(), op)?)
    }

    /// What a rank keeps of the array, if this process sees its memory: all that [`Distribution::stored_shape`]
    /// says, ghost cells and unused room included.
    pub fn stored<'e, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &'e Endpoint<T, S>,
        rank: Rank,
    ) -> Option<LocalSlice<'e, V, T::Memory>> {
        endpoint.local(self.memory.on(rank)).ok()?
    }

    /// This rank's own elements; none on ranks outside the grid.
    ///
    /// # Panics
    /// On an endpoint of another job, whose segment is smaller; in a fork of the endpoint's process, where
    /// [`stored`](GlobalArray::stored) is `None`.
    pub fn own<'e, T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &'e Endpoint<T, S>,
    ) -> OwnedElements<'e, V, T::Memory, D> {
        let stored = self.stored(endpoint, endpoint.rank());
        OwnedElements::new(
            stored.expect("the array lies in this rank's segment, and a fork has none"),
            self.distribution,
            endpoint.rank(),
        )
    }
}
