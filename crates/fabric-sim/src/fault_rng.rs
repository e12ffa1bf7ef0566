//! Draws: what the links do to packets, and the random order of places, from named streams of one generator.

use crate::faults::LinkRules;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// Probabilities as thresholds of 64-bit draws, and the generator.
pub(crate) struct FaultRng {
    pub(crate) random: Pcg64,
    pub(crate) duplication: u64,
    pub(crate) reordering: u64,
    pub(crate) delay: u64,
    pub(crate) reorder: u64,
    pub(crate) pause: u64,
    pub(crate) retry: Option<u64>,
    /// Whether any draw can come out badly.
    pub(crate) any: bool,
}

pub(crate) fn random(seed: u64, stream: u64) -> Pcg64 {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[16..24].copy_from_slice(&stream.to_le_bytes());
    Pcg64::from_seed(bytes)
}

/// A number below `bound` (0 for 0); the bias is below 2^-64 of its size.
pub(crate) fn below(random: &mut Pcg64, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// The order of `count` things after a shuffle by a seed.
pub(crate) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let (mut random, mut all) = (random(seed, 2), (0..count).collect::<Vec<_>>());
    for index in (1..all.len()).rev() {
        all.swap(index, below(&mut random, index as u64 + 1) as usize);
    }
    all
}

/// How one try over a link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    Good,
    Lost,
    Spoilt,
}

impl FaultRng {
    fn hit(&mut self, threshold: u64) -> bool {
        threshold != 0 && self.random.next_u64() < threshold
    }

    pub(crate) fn cross(&mut self, link: &LinkRules) -> Try {
        if self.hit(link.loss) {
            Try::Lost
        } else if self.hit(link.corruption) {
            Try::Spoilt
        } else {
            Try::Good
        }
    }

    pub(crate) fn doubled(&mut self) -> bool {
        self.hit(self.duplication)
    }

    /// How long a link pauses, in picoseconds.
    pub(crate) fn pause(&mut self) -> u64 {
        if self.hit(self.delay) { below(&mut self.random, self.pause + 1) } else { 0 }
    }

    /// How long a packet is held back, in picoseconds.
    pub(crate) fn held_back(&mut self) -> u64 {
        if self.hit(self.reordering) { below(&mut self.random, self.reorder + 1) } else { 0 }
    }
}
