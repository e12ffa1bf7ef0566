//! A partitioned global address space on active messages: typed one-sided access, teams and their collectives,
//! aggregation of small updates, and global arrays, as [layers](am_core::layer) on [`am_core`] alone.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pointer`](mod@pointer) | global pointers and slices: a rank, an offset and a type |
//! | [`memory`] | typed put and get in all forms, signals, atomic domains |
//! | [`sections`] | vectored, indexed and strided access |
//! | [`allocator`] | symmetric and local memory of segments |
//! | [`local`] | the own segment as values of a type |
//! | [`array`](mod@array) | global arrays: distributions, sections, batches, ghost cells |
//! | [`aggregate`] | aggregation of small updates, by one to three hops |
//! | [`Team`], [`collectives`] | teams of ranks, and what their members do together |
//!
//! [`Pgas`] is all of these layers together. A program with a state of its own puts it into that and says so with
//! [`pgas_state!`](crate::pgas_state).
//!
//! # Example
//!
//! ```
//! use am_core::one_sided::AtomicOp;
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use am_pgas::Pgas;
//!
//! let transport = loopback::network(1, loopback::LoopbackConfig::default().segment(64)).remove(0);
//! let mut handlers = Handlers::<Pgas>::new();
//! let pgas = Pgas::register(&mut handlers)?;
//! let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
//! endpoint.atomic(Rank(0), 0, AtomicOp::Add(5u64))?;
//! assert_eq!(endpoint.atomic(Rank(0), 0, AtomicOp::<u64>::Get)?, 5);
//! endpoint.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod allocator;
pub mod array;
pub mod collectives;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod local;
pub mod memory;
#[cfg(test)]
mod on_ranks;
pub mod pointer;
pub mod sections;
mod team;

pub use team::Team;

use aggregate::Aggregation;
use allocator::SegmentAllocator;
use am_core::one_sided::OneSided;
use am_core::{Handlers, HasLayer, RegisterError};
use collectives::{Collectives, Tuning};

/// All layers of this crate, as one part of an endpoint's state.
#[derive(Debug)]
pub struct Pgas {
    one_sided: OneSided,
    allocator: SegmentAllocator,
    aggregation: Aggregation,
    collectives: Collectives,
}

impl Pgas {
    /// Registers the layers and makes their states. Allocates.
    ///
    /// # Errors
    /// [`RegisterError`] if one of the layers is there already, or the table is full.
    pub fn register<S>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError>
    where
        S: HasLayer<OneSided> + HasLayer<Aggregation> + HasLayer<Collectives>,
    {
        Self::register_tuned(handlers, Tuning::default())
    }

    /// As [`register`](Self::register), with a tuning of collective operations, the same on all ranks:
    ///
    /// ```
    /// use am_core::Handlers;
    /// use am_pgas::Pgas;
    /// use am_pgas::collectives::{Allreduce, Row, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// // Up to 4 KiB by recursive doubling, more than that around a ring.
    /// let short = Row::new(usize::MAX, 4096, Allreduce::RecursiveDoubling);
    /// tuning.allreduce = vec![short, Row::any(Allreduce::Ring)];
    /// let mut handlers = Handlers::<Pgas>::new();
    /// let pgas = Pgas::register_tuned(&mut handlers, tuning)?;
    /// # drop(pgas);
    /// # Ok::<(), am_core::RegisterError>(())
    /// ```
    ///
    /// # Errors
    /// As [`register`](Self::register).
    ///
    /// # Panics
    /// As [`Collectives::register_tuned`].
    pub fn register_tuned<S>(handlers: &mut Handlers<S>, tuning: Tuning) -> Result<Self, RegisterError>
    where
        S: HasLayer<OneSided> + HasLayer<Aggregation> + HasLayer<Collectives>,
    {
        Ok(Self {
            one_sided: OneSided::register(handlers)?,
            allocator: SegmentAllocator::default(),
            aggregation: Aggregation::register(handlers)?,
            collectives: Collectives::register_tuned(handlers, tuning)?,
        })
    }
}

/// Says where a program's state owns its [`Pgas`]: `pgas_state!(State, field)` implements [`HasLayer`] for every
/// layer of this crate.
#[macro_export]
macro_rules! pgas_state {
    ($state:ty, $field:ident) => {
        $crate::pgas_state!(
            @ $state, $field,
            $crate::layers::OneSided, $crate::layers::SegmentAllocator, $crate::layers::Aggregation,
            $crate::layers::Collectives
        );
    };
    (@ $state:ty, $field:ident, $($layer:ty),+) => {$(
        impl $crate::layers::HasLayer<$layer> for $state {
            fn as_layer(&self) -> &$layer {
                $crate::layers::HasLayer::<$layer>::as_layer(&self.$field)
            }

            fn as_layer_mut(&mut self) -> &mut $layer {
                $crate::layers::HasLayer::<$layer>::as_layer_mut(&mut self.$field)
            }
        }
    )+};
}

/// What programs use most.
pub mod prelude {
    pub use crate::aggregate::{Aggregate, Aggregator, AggregatorConfig};
    pub use crate::allocator::{LocalArray, SegmentAllocation, SymmetricArray};
    pub use crate::array::GlobalArray;
    pub use crate::array::distribution::{Distribution, Layout};
    pub use crate::collectives::{Max, Min, Ordered, Sum, Tuning};
    pub use crate::memory::{AtomicDomain, GlobalMemory, Operations};
    pub use crate::pointer::{Element, GlobalPtr, GlobalSlice};
    pub use crate::sections::{Sections, Strided};
    pub use crate::{Pgas, Team, pgas_state};
}

/// The layers that [`Pgas`] consists of, for states that own only some of them.
pub mod layers {
    pub use crate::aggregate::Aggregation;
    pub use crate::allocator::SegmentAllocator;
    pub use crate::collectives::Collectives;
    pub use am_core::HasLayer;
    pub use am_core::one_sided::OneSided;
}

pgas_state!(@ Pgas, one_sided, OneSided);
pgas_state!(@ Pgas, allocator, SegmentAllocator);
pgas_state!(@ Pgas, aggregation, Aggregation);
pgas_state!(@ Pgas, collectives, Collectives);
