//! A triangular matrix whose rows and columns got other numbers, as bale's `toposort` has to bring it back.

use super::scramble;

/// A matrix of a power of two of rows and as many columns. Before they were renumbered, every row had an entry on
/// the diagonal and all others before it.
#[derive(Clone, Copy, Debug)]
pub struct Triangular {
    /// Rows, a power of two.
    pub rows: u64,
    /// Entries of a row before the diagonal, at most.
    pub per_row: u64,
}

impl Triangular {
    /// The numbers of a row and of a column.
    fn renumbered(&self, row: u64, column: u64) -> [u32; 2] {
        let name = |odd: u64, number: u64| (number.wrapping_mul(odd).wrapping_add(999) & (self.rows - 1)) as u32;
        [name(0x9e37_79b1, row), name(0x85eb_ca6b, column)]
    }

    fn row(self, row: u64) -> impl Iterator<Item = [u32; 2]> {
        let mut columns: Vec<u64> =
            (0..self.per_row).map(|n| scramble(row * self.per_row + n) % (row + 1)).collect();
        columns.push(row);
        columns.sort_unstable();
        columns.dedup();
        columns.into_iter().map(move |column| self.renumbered(row, column))
    }

    /// The entries that one of several ranks makes: row and column.
    pub fn entries(self, rank: u32, ranks: u32) -> impl Iterator<Item = [u32; 2]> {
        (u64::from(rank)..self.rows).step_by(ranks as usize).flat_map(move |row| self.row(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triangle_is_hidden_in_it() {
        let matrix = Triangular { rows: 64, per_row: 4 };
        let mut all: Vec<_> = (0..5).flat_map(|rank| matrix.entries(rank, 5)).collect();
        all.sort_unstable();
        let mut once: Vec<_> = matrix.entries(0, 1).collect();
        once.sort_unstable();
        assert_eq!(all, once);
        // The old numbers of rows and columns.
        let (mut row, mut column) = ([0; 64], [0; 64]);
        for old in 0..64 {
            let [new_row, new_column] = matrix.renumbered(old, old);
            (row[new_row as usize], column[new_column as usize]) = (old, old);
        }
        assert!(all.iter().all(|[r, c]| column[*c as usize] <= row[*r as usize]));
        let diagonal = all.iter().filter(|[r, c]| column[*c as usize] == row[*r as usize]);
        assert_eq!(diagonal.count(), 64);
    }
}
