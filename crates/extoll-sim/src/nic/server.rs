//! Times of parameter tables in the simulation's picoseconds.

/// Whole picoseconds of a number of nanoseconds, if it is one that can be.
pub(crate) fn picos(nanos: f64) -> Option<u64> {
    (0.0..=1e15).contains(&nanos).then(|| (nanos * 1e3).round() as u64)
}
