//! The elements of a global array that a rank owns, as memory, and the ghost cells around them.

use super::distribution::Distribution;
use crate::local::LocalSlice;
use crate::pointer::Element;
use am_core::{Memory, Rank};
use std::fmt;

/// A rank's own elements of a global array. Values are copied in and out, since peers may write them meanwhile.
pub struct OwnedElements<'a, V, M, const D: usize> {
    stored: LocalSlice<'a, V, M>,
    distribution: Distribution<D>,
    rank: Rank,
    shape: [u64; D],
}

impl<V, M, const D: usize> Clone for OwnedElements<'_, V, M, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, M, const D: usize> Copy for OwnedElements<'_, V, M, D> {}

impl<V, M, const D: usize> fmt::Debug for OwnedElements<'_, V, M, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedElements")
            .field("rank", &self.rank)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl<'a, V: Element, M: Memory, const D: usize> OwnedElements<'a, V, M, D> {
    pub(super) fn new(stored: LocalSlice<'a, V, M>, distribution: Distribution<D>, rank: Rank) -> Self {
        let shape = distribution.own_shape(rank).unwrap_or([0; D]);
        Self { stored, distribution, rank, shape }
    }

    /// Number of own elements in each dimension.
    #[inline]
    pub fn shape(&self) -> [u64; D] {
        self.shape
    }

    /// Number of own elements.
    pub fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The own elements with their global indices.
    pub fn iter(&self) -> impl Iterator<Item = ([u64; D], V)> + use<'a, V, M, D> {
        let stored = self.stored;
        self.distribution.own(self.rank).map(move |(index, offset)| (index, stored.load(offset)))
    }

    /// Stores what a function makes of each own element's global index and value.
    pub fn update(&self, mut f: impl FnMut([u64; D], V) -> V) {
        for (index, offset) in self.distribution.own(self.rank) {
            self.stored.store(offset, f(index, self.stored.load(offset)));
        }
    }

    /// The offset of a cell: an own element by its index among the own ones, or a ghost cell at a negative index
    /// or behind the last. `None` beyond the ghost cells.
    #[inline]
    pub fn offset(&self, cell: [i64; D]) -> Option<u64> {
        let (halo, stored) = (self.distribution.halo(), self.distribution.stored_shape());
        let mut offset = 0;
        for dimension in 0..D {
            let at = cell[dimension].checked_add_unsigned(halo).and_then(|at| u64::try_from(at).ok())?;
            if at >= self.shape[dimension] + 2 * halo {
                return None;
            }
            offset = offset * stored[dimension] + at;
        }
        Some(offset)
    }

    /// The value of a cell; see [`OwnedElements::offset`].
    ///
    /// # Panics
    /// Beyond the ghost cells.
    #[inline]
    pub fn load(&self, cell: [i64; D]) -> V {
        self.stored.load(self.inside(cell))
    }

    /// Stores the value of a cell; see [`OwnedElements::offset`].
    ///
    /// # Panics
    /// Beyond the ghost cells.
    #[inline]
    pub fn store(&self, cell: [i64; D], value: V) {
        self.stored.store(self.inside(cell), value);
    }

    #[inline]
    fn inside(&self, cell: [i64; D]) -> u64 {
        let beyond = || panic!("cell {cell:?} is not among {:?} with ghost cells", self.shape);
        self.offset(cell).unwrap_or_else(beyond)
    }

    /// Everything that the rank keeps, by [offset](OwnedElements::offset): a row of the last dimension is
    /// contiguous.
    #[inline]
    pub fn stored(&self) -> LocalSlice<'a, V, M> {
        self.stored
    }
}
