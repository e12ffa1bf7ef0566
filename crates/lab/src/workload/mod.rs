//! What the programs under `examples/` work on: numbers, graphs and matrices of which every rank makes its own
//! part, and the sequential program that a parallel one is compared with.

mod kronecker;
mod triangular;

pub use kronecker::{Adjacency, Bits, Kronecker, NONE, Progress, Reached, Searches, Spread, Tree};
pub use triangular::Triangular;

/// A well mixed number for each number (splitmix64's finalizer; Steele, Lea and Flood, 2014).
pub fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
