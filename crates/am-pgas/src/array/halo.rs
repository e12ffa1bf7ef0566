//! Ghost cells: copies of the neighbours' elements around a rank's own.

use super::distribution::ElementLocation;
use super::rows::Row;
use super::{ArrayError, GlobalArray};
use crate::pointer::Element;
use am_core::one_sided::OneSided;
use am_core::{Endpoint, HasLayer, Transport};

/// Which ghost cells an exchange fills, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange<const D: usize> {
    /// Whether the array closes to a ring in a dimension; where not, ghost cells beyond its end keep their values.
    pub periodic: [bool; D],
    /// Whether ghost cells that are beyond the own elements in several dimensions are filled, too.
    pub corners: bool,
}

impl<const D: usize> Default for Exchange<D> {
    fn default() -> Self {
        Self { periodic: [false; D], corners: false }
    }
}

/// Cells in a row of one dimension that are elements in a row: the first cell, counted from the first own element,
/// the index of its element, and how many they are.
type Stretch = (i64, u64, u64);

/// The elements of cells `from..to` of a dimension of `len` elements, where cell 0 is element `begin`.
fn stretches(begin: u64, from: i64, to: i64, len: u64, periodic: bool) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for cell in from..to {
        let position = i128::from(begin) + i128::from(cell);
        let index = match u64::try_from(position).ok().filter(|index| *index < len) {
            Some(index) => index,
            None if periodic && len > 0 => position.rem_euclid(len.into()) as u64,
            None => continue,
        };
        match all.last_mut() {
            Some((first, start, count)) if *first + *count as i64 == cell && *start + *count == index => {
                *count += 1
            }
            _ => all.push((cell, index, 1)),
        }
    }
    all
}

impl<V: Element, const D: usize> GlobalArray<V, D> {
    /// Fills this rank's ghost cells with the elements that they stand for. Collective: it waits until all ranks
    /// have come here, so that all have written their elements and none reads its ghost cells any more, and again
    /// until all have been filled. Each rank is asked for all of its rows at once. Blocks; allocates.
    ///
    /// Ghost cells may be wider than the neighbours' parts; further ranks are asked then. Behind the elements of a
    /// rank that owns fewer than others, they follow the last of its own.
    ///
    /// # Errors
    /// [`ArrayError::Foreign`]; as [`GlobalArray::get_section`] and [`Endpoint::barrier`]; some ghost
    /// cells of this rank may have been filled then. An error of this rank alone, as of a handler, keeps no other
    /// from filling its own.
    pub fn exchange<T: Transport, S: HasLayer<OneSided>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        exchange: &Exchange<D>,
    ) -> Result<(), ArrayError> {
        if self.stored(endpoint, endpoint.rank()).is_none() {
            return Err(ArrayError::Foreign);
        }
        endpoint.barrier()?;
        let mut rows = self.ghost_rows(endpoint.rank(), exchange);
        let fetched = self.fetch(endpoint, &mut rows, |endpoint, at, values| {
            let own = self.stored(endpoint, endpoint.rank());
            own.expect("the array lies in this rank's segment").write(at, values);
        });
        // The others wait for this rank, whatever it could not fetch.
        let waited = endpoint.barrier();
        fetched?;
        Ok(waited?)
    }

    /// The rows of elements that a rank's ghost cells stand for.
    fn ghost_rows(&self, rank: am_core::Rank, exchange: &Exchange<D>) -> Vec<Row> {
        let mut rows = Vec::new();
        let (Some(own), halo) = (self.distribution.own_box(rank), self.distribution.halo() as i64) else {
            return rows;
        };
        if halo == 0 || own.iter().any(|range| range.is_empty()) {
            return rows;
        }
        let (shape, stored) = (self.distribution.shape(), self.distribution.stored_shape());
        // Before the own elements, at them, behind them: 0, 1, 2 in each dimension.
        for number in 0..3u32.pow(D as u32) {
            let side: [u32; D] = std::array::from_fn(|dimension| number / 3u32.pow(dimension as u32) % 3);
            let beyond = side.iter().filter(|side| **side != 1).count();
            if beyond == 0 || (beyond > 1 && !exchange.corners) {
                continue;
            }
            let parts: [Vec<Stretch>; D] = std::array::from_fn(|dimension| {
                let count = (own[dimension].end - own[dimension].start) as i64;
                let (from, to) = match side[dimension] {
                    0 => (-halo, 0),
                    1 => (0, count),
                    _ => (count, count + halo),
                };
                stretches(own[dimension].start, from, to, shape[dimension], exchange.periodic[dimension])
            });
            if parts.iter().any(Vec::is_empty) {
                continue;
            }
            let mut chosen = [0; D];
            loop {
                let part: [Stretch; D] = std::array::from_fn(|dimension| parts[dimension][chosen[dimension]]);
                self.ghost_box(part, &stored, halo, &mut rows);
                let next = (0..D).rev().find(|dimension| chosen[*dimension] + 1 < parts[*dimension].len());
                let Some(dimension) = next else { break };
                chosen[dimension] += 1;
                chosen[dimension + 1..].fill(0);
            }
        }
        rows
    }

    /// The rows of a box of elements that lies as a box in this rank's memory, too.
    fn ghost_box(&self, part: [Stretch; D], stored: &[u64; D], halo: i64, rows: &mut Vec<Row>) {
        let section = std::array::from_fn(|dimension| part[dimension].1..part[dimension].1 + part[dimension].2);
        let mut done = 0;
        self.distribution.runs(&section, |place: ElementLocation, len| {
            // The cell of the row's first element.
            let (mut rest, mut cell) = (done, [0; D]);
            for dimension in (0..D).rev() {
                cell[dimension] = (part[dimension].0 + halo) as u64 + rest % part[dimension].2;
                rest /= part[dimension].2;
            }
            let at = stored.iter().zip(cell).fold(0, |at, (width, cell)| at * width + cell);
            rows.push(Row { place, len, at });
            done += len;
        });
    }
}
