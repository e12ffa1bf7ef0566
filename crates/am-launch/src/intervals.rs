//! Lists of numbers as people read them.

use std::fmt;

use nix::sched::CpuSet;

/// Numbers in ascending order, shown as `0-3 5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals(pub Vec<u32>);

impl Intervals {
    /// The numbers of the processors in a set.
    pub(crate) fn of_processors(set: &CpuSet) -> Self {
        let listed = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false));
        Self(listed.map(|cpu| cpu as u32).collect())
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [one] => write!(f, "{space}{one}")?,
                [first, .., last] => write!(f, "{space}{first}-{last}")?,
                [] => {}
            }
            space = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_intervals() {
        assert_eq!(Intervals(vec![0, 1, 2, 4, 6, 7]).to_string(), "0-2 4 6-7");
    }
}
