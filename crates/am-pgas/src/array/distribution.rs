//! Distributions: which rank owns an element of a global array, and where that keeps it. No communication.
//!
//! Each dimension is cut into blocks, which go round the places of a grid of ranks (ScaLAPACK's block-cyclic
//! distribution). One block for each place is the block distribution, blocks of one element are the cyclic one.

use super::divisor::Divisor;
use crate::allocator::digest;
use am_core::Rank;
use std::ops::Range;

/// How one dimension is distributed over its places of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One block of equal size for each place; the last places may have fewer elements, or none.
    #[default]
    Block,
    /// Element by element.
    Cyclic,
    /// Blocks of a size, which is not 0.
    BlockCyclic(u64),
}

/// A distribution is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// A dimension of the grid has no place.
    #[error("dimension {dimension} of the grid has no ranks")]
    EmptyGrid {
        /// The dimension.
        dimension: usize,
    },
    /// Blocks have no elements.
    #[error("blocks of dimension {dimension} have no elements")]
    EmptyBlocks {
        /// The dimension.
        dimension: usize,
    },
    /// The elements, or the ranks, cannot be counted. A dimension without elements counts as one of one element:
    /// an array that is empty for it is refused if the others are too large for one that is not.
    #[error("{elements} elements on a grid of {ranks} ranks: there are to be fewer than 2^60 and 2^32")]
    TooLarge {
        /// Elements of the array, or those that a rank keeps room for if they are more, with ghost cells.
        elements: u128,
        /// Ranks of the grid.
        ranks: u128,
    },
    /// The grid has more ranks than the job.
    #[error("a grid of {grid} ranks in a job of {ranks}")]
    TooManyRanks {
        /// Ranks of the grid.
        grid: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// Ghost cells lie around one block.
    #[error("ghost cells around dimension {dimension}, which is not distributed in one block for each rank")]
    NotBlock {
        /// The dimension.
        dimension: usize,
    },
}

/// One dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    len: u64,
    /// The same as a divisor of the numbers of elements.
    count: Divisor,
    block: Divisor,
    places: Divisor,
    /// Whether every place has one block at most.
    one_block: bool,
    /// The most elements of any place.
    capacity: u64,
}

impl Axis {
    fn new(len: u64, layout: Layout, places: u32) -> Option<Self> {
        let count = u64::from(places);
        let block = match layout {
            Layout::Block => len.div_ceil(count).max(1),
            Layout::Cyclic => 1,
            // Nobody keeps room for more than there is.
            Layout::BlockCyclic(block) => block.min(len.max(1)),
        };
        let blocks = len.div_ceil(block);
        let capacity = blocks.div_ceil(count).checked_mul(block)?;
        let (block, places) = (Divisor::new(block, len.max(capacity)), Divisor::new(count, blocks));
        let one_block = blocks <= count;
        Some(Self { len, count: Divisor::new(len.max(1), u64::MAX), block, places, one_block, capacity })
    }

    /// The place that owns an index, and where among its own elements it lies.
    #[inline]
    fn place(&self, index: u64) -> (u64, u64) {
        let (block, inside) = self.block.divide(index);
        if self.one_block {
            return (block, inside);
        }
        let (round, place) = self.places.divide(block);
        (place, round * self.block.get() + inside)
    }

    /// The index of an element of a place, which may lie behind the last.
    fn index(&self, place: u64, local: u64) -> u64 {
        let (round, inside) = self.block.divide(local);
        (round * self.places.get() + place) * self.block.get() + inside
    }

    /// How many elements a place owns.
    fn owned(&self, place: u64) -> u64 {
        let (block, places) = (self.block.get(), self.places.get());
        let (whole, rest) = (self.len / block, self.len % block);
        let rounds = whole / places + u64::from(place < whole % places);
        rounds * block + if whole % places == place { rest } else { 0 }
    }

    /// The indices from `index` on, at most up to `end`, that one place owns and keeps in a row.
    fn run(&self, index: u64, end: u64) -> u64 {
        let inside = self.block.divide(index).1;
        (self.block.get() - inside).min(end - index)
    }
}

/// Where an element lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementLocation {
    /// Its owner.
    pub rank: Rank,
    /// Its number among all that the owner keeps, ghost cells included.
    pub offset: u64,
}

/// A box of elements: an index range in each dimension.
pub type Section<const D: usize> = [Range<u64>; D];

/// Which rank owns an element of an array of 1 to 3 dimensions, and where that keeps it. The last dimension is
/// contiguous.
///
/// ```
/// use am_core::Rank;
/// use am_pgas::array::distribution::{Distribution, Layout, ElementLocation};
///
/// // 10 elements over 3 ranks, in blocks of 2: ranks 0, 0, 1, 1, 2, 2, 0, 0, 1, 1.
/// let cyclic = Distribution::new([10], [Layout::BlockCyclic(2)], [3])?;
/// assert_eq!(cyclic.place([7]), Some(ElementLocation { rank: Rank(0), offset: 3 }));
/// assert_eq!(cyclic.index(Rank(0), 3), Some([7]));
/// assert_eq!(cyclic.place([10]), None);
/// assert_eq!(cyclic.own_shape(Rank(2)), Some([2]));
/// # Ok::<(), am_pgas::array::distribution::DistributionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution<const D: usize> {
    axes: [Axis; D],
    /// Width of the ghost cells around a rank's elements.
    halo: u64,
}

/// A product in which 0 counts as 1, or the largest number below it.
fn counted(numbers: impl Iterator<Item = u64>) -> u128 {
    numbers.fold(1, |product: u128, number| product.saturating_mul(number.max(1).into()))
}

impl<const D: usize> Distribution<D> {
    /// An array of this shape over a grid of ranks, the first dimension of which varies slowest.
    ///
    /// # Errors
    /// [`DistributionError`]: a grid or blocks of nothing, or too much of everything, also of an array without
    /// elements whose other dimensions are too large ([`DistributionError::TooLarge`]).
    pub fn new(shape: [u64; D], layouts: [Layout; D], grid: [u32; D]) -> Result<Self, DistributionError> {
        const { assert!(D >= 1 && D <= 3, "arrays have 1 to 3 dimensions") };
        if let Some(dimension) = grid.iter().position(|places| *places == 0) {
            return Err(DistributionError::EmptyGrid { dimension });
        }
        if let Some(dimension) = layouts.iter().position(|layout| *layout == Layout::BlockCyclic(0)) {
            return Err(DistributionError::EmptyBlocks { dimension });
        }
        let mut axes = [Axis::new(0, Layout::Block, 1).expect("nothing can be counted"); D];
        for dimension in 0..D {
            let axis = Axis::new(shape[dimension], layouts[dimension], grid[dimension]);
            let too_large = || DistributionError::TooLarge {
                elements: counted(shape.into_iter()),
                ranks: counted(grid.into_iter().map(u64::from)),
            };
            axes[dimension] = axis.ok_or_else(too_large)?;
        }
        Self { axes, halo: 0 }.checked()
    }

    /// Blocks over all ranks of a job, in a grid as even as possible.
    ///
    /// # Errors
    /// As [`Distribution::new`].
    pub fn block(shape: [u64; D], ranks: u32) -> Result<Self, DistributionError> {
        Self::new(shape, [Layout::Block; D], Self::grid(ranks))
    }

    /// A grid for so many ranks whose places in each dimension are as even as possible, more in the first ones.
    pub fn grid(ranks: u32) -> [u32; D] {
        let mut rest = ranks.max(1);
        std::array::from_fn(|dimension| {
            let left = (D - dimension) as f64;
            let ideal = f64::from(rest).powf(1.0 / left).ceil() as u32;
            // The smallest divisor that is not below the root; the number itself is one.
            let places = (ideal.max(1)..=rest).find(|places| rest.is_multiple_of(*places)).unwrap_or(rest);
            rest /= places;
            places
        })
    }

    /// The same distribution, with ghost cells of this width around the elements of each rank.
    ///
    /// # Errors
    /// [`DistributionError::NotBlock`], [`DistributionError::TooLarge`].
    pub fn with_halo(self, width: u64) -> Result<Self, DistributionError> {
        if let Some(dimension) = self.axes.iter().position(|axis| width > 0 && !axis.one_block) {
            return Err(DistributionError::NotBlock { dimension });
        }
        Self { halo: width, ..self }.checked()
    }

    fn checked(mut self) -> Result<Self, DistributionError> {
        let all = counted(self.axes.iter().map(|axis| axis.len));
        let width = |axis: &Axis| axis.capacity.saturating_add(self.halo.saturating_mul(2));
        let elements = all.max(counted(self.axes.iter().map(width)));
        let ranks = counted(self.axes.iter().map(|axis| axis.places.get()));
        if elements >= 1 << 60 || ranks >= 1 << 32 {
            return Err(DistributionError::TooLarge { elements, ranks });
        }
        for axis in &mut self.axes {
            axis.count = Divisor::new(axis.len.max(1), all as u64);
        }
        Ok(self)
    }

    /// Elements in each dimension.
    pub fn shape(&self) -> [u64; D] {
        self.axes.map(|axis| axis.len)
    }

    /// Elements in all.
    pub fn len(&self) -> u64 {
        self.axes.iter().map(|axis| axis.len).product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ranks of the grid.
    pub fn ranks(&self) -> u32 {
        self.axes.iter().map(|axis| axis.places.get() as u32).product()
    }

    /// Width of the ghost cells.
    pub fn halo(&self) -> u64 {
        self.halo
    }

    /// What every rank keeps room for: the most elements of any, and ghost cells.
    pub fn capacity(&self) -> u64 {
        self.stored_shape().iter().product()
    }

    /// The shape of what a rank keeps room for, ghost cells included.
    pub fn stored_shape(&self) -> [u64; D] {
        self.axes.map(|axis| axis.capacity + 2 * self.halo)
    }

    /// Tells this distribution from all others; never 0.
    pub(super) fn digest(&self) -> u64 {
        let axes = self.axes.iter().flat_map(|axis| [axis.len, axis.block.get(), axis.places.get()]);
        digest([D as u64, self.halo].into_iter().chain(axes)).max(1)
    }

    /// The place of an element, or `None` outside the array.
    #[inline]
    pub fn place(&self, index: [u64; D]) -> Option<ElementLocation> {
        let inside = self.axes.iter().zip(&index).all(|(axis, index)| *index < axis.len);
        inside.then(|| self.place_inside(index))
    }

    /// The place of an element of the array.
    #[inline]
    pub(super) fn place_inside(&self, index: [u64; D]) -> ElementLocation {
        let (mut rank, mut offset) = (0, 0);
        for (axis, index) in self.axes.iter().zip(index) {
            let (place, local) = axis.place(index);
            rank = rank * axis.places.get() + place;
            offset = offset * (axis.capacity + 2 * self.halo) + local + self.halo;
        }
        ElementLocation { rank: Rank(rank as u32), offset }
    }

    /// Where each rank has one block, and its size is a power of two: that power. Block and place inside it are
    /// the bits of a number then.
    #[inline]
    pub(super) fn power_of_two_blocks(&self) -> Option<u32> {
        let axis = self.axes.first().filter(|axis| D == 1 && axis.one_block && self.halo == 0)?;
        let block = axis.block.get();
        block.is_power_of_two().then(|| block.trailing_zeros())
    }

    /// The place of the element with this number in row-major order, which is inside the array.
    #[inline]
    pub(super) fn place_of_number(&self, number: u64) -> ElementLocation {
        let (mut index, mut rest) = ([0; D], number);
        for dimension in (1..D).rev() {
            (rest, index[dimension]) = self.axes[dimension].count.divide(rest);
        }
        index[0] = rest;
        self.place_inside(index)
    }

    /// A rank's coordinates in the grid, or `None` if it is not in it.
    pub fn coordinates(&self, rank: Rank) -> Option<[u64; D]> {
        let (mut all, mut rest) = ([0; D], u64::from(rank.0));
        for (coordinate, axis) in all.iter_mut().zip(&self.axes).rev() {
            *coordinate = rest % axis.places.get();
            rest /= axis.places.get();
        }
        (rest == 0).then_some(all)
    }

    /// The shape of what a rank owns, or `None` if it is not in the grid.
    pub fn own_shape(&self, rank: Rank) -> Option<[u64; D]> {
        let coordinates = self.coordinates(rank)?;
        Some(std::array::from_fn(|dimension| self.axes[dimension].owned(coordinates[dimension])))
    }

    /// The index of the element that a rank keeps at an offset, or `None` if it is none of its own: a ghost cell,
    /// or room behind the last.
    pub fn index(&self, rank: Rank, offset: u64) -> Option<[u64; D]> {
        let (coordinates, own) = (self.coordinates(rank)?, self.own_shape(rank)?);
        let (mut index, mut rest) = ([0; D], offset);
        for dimension in (0..D).rev() {
            let axis = &self.axes[dimension];
            let width = axis.capacity + 2 * self.halo;
            // Nothing is kept of a dimension without elements.
            let local = rest.checked_rem(width)?.checked_sub(self.halo).filter(|local| *local < own[dimension])?;
            rest /= width;
            index[dimension] = axis.index(coordinates[dimension], local);
        }
        (rest == 0).then_some(index)
    }

    /// The elements that a rank owns, with their offsets, in the order of these.
    pub fn own(&self, rank: Rank) -> impl Iterator<Item = ([u64; D], u64)> + use<D> {
        let this = *self;
        let (coordinates, own) = match (self.coordinates(rank), self.own_shape(rank)) {
            (Some(coordinates), Some(own)) => (coordinates, own),
            _ => ([0; D], [0; D]),
        };
        let count: u64 = own.iter().product();
        let place = move |dimension: usize, local| this.axes[dimension].index(coordinates[dimension], local);
        let (mut local, mut offset) = ([0; D], this.stored([0; D]));
        let mut index = if count == 0 { [0; D] } else { std::array::from_fn(|dimension| place(dimension, 0)) };
        (0..count).map(move |_| {
            let here = (index, offset);
            local[D - 1] += 1;
            offset += 1;
            if local[D - 1] < own[D - 1] {
                index[D - 1] = place(D - 1, local[D - 1]);
                return here;
            }
            let next = (0..D - 1).rev().find(|dimension| local[*dimension] + 1 < own[*dimension]);
            if let Some(next) = next {
                local[next] += 1;
                local[next + 1..].fill(0);
                for dimension in next..D {
                    index[dimension] = place(dimension, local[dimension]);
                }
                offset = this.stored(local);
            }
            here
        })
    }

    /// The offset of an element by its own indices on its rank.
    pub(super) fn stored(&self, local: [u64; D]) -> u64 {
        let places = self.axes.iter().zip(local);
        places.fold(0, |offset, (axis, local)| offset * (axis.capacity + 2 * self.halo) + local + self.halo)
    }

    /// The box that a rank owns, if every dimension has one block for each place; `None` also outside the grid.
    pub fn own_box(&self, rank: Rank) -> Option<Section<D>> {
        let (coordinates, own) = (self.coordinates(rank)?, self.own_shape(rank)?);
        self.axes.iter().all(|axis| axis.one_block).then(|| {
            std::array::from_fn(|dimension| {
                let axis = &self.axes[dimension];
                let begin = coordinates[dimension].saturating_mul(axis.block.get()).min(axis.len);
                begin..begin + own[dimension]
            })
        })
    }

    /// The runs of the last dimension that a section consists of: place, and number of elements. The section is
    /// inside the array.
    pub(super) fn runs(&self, section: &Section<D>, mut f: impl FnMut(ElementLocation, u64)) {
        if section.iter().any(Range::is_empty) {
            return;
        }
        let mut index: [u64; D] = std::array::from_fn(|dimension| section[dimension].start);
        loop {
            let last = D - 1;
            while index[last] < section[last].end {
                let run = self.axes[last].run(index[last], section[last].end);
                f(self.place_inside(index), run);
                index[last] += run;
            }
            index[last] = section[last].start;
            let Some(dimension) =
                (0..last).rev().find(|dimension| index[*dimension] + 1 < section[*dimension].end)
            else {
                return;
            };
            index[dimension] += 1;
            for inner in dimension + 1..last {
                index[inner] = section[inner].start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn layout() -> impl Strategy<Value = Layout> {
        prop_oneof![Just(Layout::Block), Just(Layout::Cyclic), (1u64..9).prop_map(Layout::BlockCyclic)]
    }

    fn axis() -> impl Strategy<Value = (u64, Layout, u32)> {
        (0u64..20, layout(), 1u32..5)
    }

    fn indices<const D: usize>(shape: [u64; D]) -> Vec<[u64; D]> {
        let count: u64 = shape.iter().product();
        let index = |number| {
            let mut rest = number;
            let mut index = [0; D];
            for dimension in (0..D).rev() {
                index[dimension] = rest % shape[dimension];
                rest /= shape[dimension];
            }
            index
        };
        (0..count).map(index).collect()
    }

    /// Everything that a distribution says agrees with everything else, and with counting.
    fn check<const D: usize>(axes: [(u64, Layout, u32); D], halo: u64) {
        let distribution =
            Distribution::new(axes.map(|axis| axis.0), axes.map(|axis| axis.1), axes.map(|axis| axis.2)).unwrap();
        let distribution = distribution.with_halo(halo).unwrap_or(distribution);
        let all = indices(distribution.shape());
        assert_eq!(all.len() as u64, distribution.len());
        let mut seen = HashSet::new();
        for (number, index) in (0..).zip(&all) {
            let place = distribution.place(*index).unwrap();
            assert_eq!(distribution.place_of_number(number), place);
            assert!(place.rank.0 < distribution.ranks() && place.offset < distribution.capacity());
            assert!(seen.insert((place.rank.0, place.offset)), "two elements at one place");
            assert_eq!(distribution.index(place.rank, place.offset), Some(*index));
            // The rule, by counting.
            for dimension in 0..D {
                let (len, layout, places) = axes[dimension];
                let block = match layout {
                    Layout::Block => len.div_ceil(places.into()),
                    Layout::Cyclic => 1,
                    Layout::BlockCyclic(block) => block,
                };
                let owner = index[dimension] / block % u64::from(places);
                assert_eq!(distribution.coordinates(place.rank).unwrap()[dimension], owner);
            }
        }
        let mut owned = 0;
        for rank in (0..distribution.ranks()).map(Rank) {
            let own: Vec<_> = distribution.own(rank).collect();
            assert!(own.windows(2).all(|pair| pair[0].1 < pair[1].1));
            for (index, offset) in &own {
                assert_eq!(distribution.place(*index), Some(ElementLocation { rank, offset: *offset }));
            }
            assert_eq!(own.len() as u64, distribution.own_shape(rank).unwrap().iter().product::<u64>());
            if let Some(section) = distribution.own_box(rank) {
                let inside =
                    |index: &&[u64; D]| (0..D).all(|dimension| section[dimension].contains(&index[dimension]));
                assert_eq!(all.iter().filter(inside).count(), own.len());
                assert!(own.iter().all(|(index, _)| inside(&index)));
            }
            owned += own.len();
        }
        assert_eq!(owned, all.len());
        assert_eq!(distribution.coordinates(Rank(distribution.ranks())), None);
        for dimension in 0..D {
            let mut outside = [0; D];
            outside[dimension] = axes[dimension].0;
            assert_eq!(distribution.place(outside), None);
        }
    }

    /// The runs of a section are its elements in order.
    fn check_section<const D: usize>(axes: [(u64, Layout, u32); D], section: Section<D>) {
        let distribution =
            Distribution::new(axes.map(|axis| axis.0), axes.map(|axis| axis.1), axes.map(|axis| axis.2)).unwrap();
        let section = std::array::from_fn(|dimension| {
            let end = section[dimension].end.min(axes[dimension].0);
            section[dimension].start.min(end)..end
        });
        let mut found = Vec::new();
        distribution.runs(&section, |place, count| {
            found.extend((0..count).map(|at| ElementLocation { offset: place.offset + at, ..place }));
        });
        let inside = |index: &[u64; D]| (0..D).all(|dimension| section[dimension].contains(&index[dimension]));
        let all = indices(distribution.shape()).into_iter().filter(inside);
        assert_eq!(found, all.map(|index| distribution.place(index).unwrap()).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn one_dimension(x in axis(), halo in 0u64..4, range in (0u64..20, 0u64..24)) {
            check([x], halo);
            let range = range.0..range.0.max(range.1);
            check_section([x], [range]);
        }

        #[test]
        fn two_dimensions(
            x in axis(), y in axis(), halo in 0u64..3, from in (0u64..9, 0u64..9), to in (0u64..22, 0u64..22)
        ) {
            check([x, y], halo);
            check_section([x, y], [from.0..to.0, from.1..to.1]);
        }

        #[test]
        fn three_dimensions(
            x in (0u64..7, layout(), 1u32..4), y in (0u64..7, layout(), 1u32..4),
            z in (0u64..7, layout(), 1u32..4), halo in 0u64..3
        ) {
            check([x, y, z], halo);
            check_section([x, y, z], [1..6, 0..4, 2..9]);
        }

        #[test]
        fn grids_use_all_ranks(ranks in 1u32..200) {
            prop_assert_eq!(Distribution::<1>::grid(ranks), [ranks]);
            let [a, b] = Distribution::<2>::grid(ranks);
            prop_assert!(a * b == ranks && a >= b);
            prop_assert_eq!(Distribution::<3>::grid(ranks).iter().product::<u32>(), ranks);
        }
    }

    #[test]
    fn what_is_impossible_is_told() {
        use DistributionError::*;
        let block = Layout::Block;
        assert_eq!(Distribution::new([1, 1], [block; 2], [1, 0]), Err(EmptyGrid { dimension: 1 }));
        assert_eq!(Distribution::new([1], [Layout::BlockCyclic(0)], [1]), Err(EmptyBlocks { dimension: 0 }));
        let too_large = |elements, ranks| Some(TooLarge { elements, ranks });
        assert_eq!(Distribution::new([1 << 40, 1 << 40], [block; 2], [1, 1]).err(), too_large(1 << 80, 1));
        let cyclic = Layout::BlockCyclic(u64::MAX - 1);
        assert_eq!(Distribution::new([u64::MAX], [cyclic], [1]).err(), too_large(u64::MAX.into(), 1));
        assert_eq!(Distribution::new([4; 2], [block; 2], [1 << 16; 2]).err(), too_large(16, 1 << 32));
        assert_eq!(Distribution::new([1 << 63, 1 << 63, 0], [block; 3], [1; 3]).err(), too_large(1 << 126, 1));
        let haloed = Distribution::new([4], [block], [2]).unwrap().with_halo(1 << 59).err();
        assert_eq!(haloed, too_large((1 << 60) + 2, 2));
        let text = haloed.map_or(String::new(), |error| error.to_string());
        assert!(text.starts_with("1152921504606846978 elements on a grid of 2 ranks: "), "{text}");
        let cyclic = Distribution::new([9], [Layout::Cyclic], [3]).unwrap();
        assert_eq!(cyclic.with_halo(1), Err(NotBlock { dimension: 0 }));
        assert_eq!(Distribution::<3>::grid(8), [2, 2, 2]);
    }

    #[test]
    fn nothing_has_no_places() {
        let empty = Distribution::new([4, 0], [Layout::Block; 2], [2, 2]).unwrap();
        assert_eq!((empty.index(Rank(0), 0), empty.index(Rank(0), 7)), (None, None));
        assert_eq!((empty.own(Rank(0)).count(), empty.own_shape(Rank(0))), (0, Some([2, 0])));
        let halo = empty.with_halo(1).unwrap();
        assert!((0..halo.capacity()).all(|offset| halo.index(Rank(0), offset).is_none()));
    }

    #[test]
    fn blocks_are_no_larger_than_the_array() {
        let long = Distribution::new([10], [Layout::BlockCyclic(1 << 50)], [4]).unwrap();
        assert_eq!((long.capacity(), long.own_box(Rank(0)).map(|[range]| range)), (10, Some(0..10)));
        // A place times the size of a block exceeds 64 bits.
        let many = Distribution::new([1 << 59], [Layout::BlockCyclic(u64::MAX)], [1000]).unwrap();
        let own = many.own_box(Rank(999)).map(|[range]| range);
        assert_eq!((many.capacity(), own), (1 << 59, Some(1 << 59..1 << 59)));
        assert_eq!((many.own(Rank(999)).count(), many.index(Rank(999), 0)), (0, None));
    }

    #[test]
    fn digests_tell_distributions_apart() {
        let of = |layout, grid| Distribution::new([10], [layout], [grid]).unwrap();
        let all =
            [of(Layout::Block, 2), of(Layout::Cyclic, 2), of(Layout::BlockCyclic(2), 2), of(Layout::Block, 3)];
        let mut digests: Vec<u64> = all.iter().map(Distribution::digest).collect();
        digests.push(all[0].with_halo(1).unwrap().digest());
        digests.push(Distribution::new([10, 1], [Layout::Block; 2], [2, 1]).unwrap().digest());
        assert_eq!(digests.iter().collect::<HashSet<_>>().len(), digests.len());
    }
}
