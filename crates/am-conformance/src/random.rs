//! Reproducible randomness: a named generator, and payload bytes that are a function of where they belong.

use am_core::{Payload, Words};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;

/// A PCG generator with the few draws that the suite needs.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64);

impl Random {
    /// The generator of a seed and a stream; equal pairs draw equal numbers on every rank.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg64::new(u128::from(seed) << 64 | u128::from(stream), u128::from(stream)))
    }

    /// Any 64-bit number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `bound - 1`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for the bounds used here.
        self.0.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// A length from 0 to `max`, both included.
    pub(crate) fn length(&mut self, max: usize) -> usize {
        self.below(max as u64 + 1) as usize
    }

    /// `count` random argument words, at most sixteen.
    pub(crate) fn words(&mut self, count: usize) -> Words {
        let words: Vec<u32> = (0..count).map(|_| self.number() as u32).collect();
        Words::from_slice(&words).expect("the suite asks for at most sixteen words")
    }

    /// Puts the items in random order.
    pub(crate) fn shuffle<I>(&mut self, items: &mut [I]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// One number out of several, well mixed (the finaliser of splitmix64 after each).
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |mixed, number| {
        let mut z = (mixed ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// `len` bytes that are a function of a salt and of each byte's position.
pub(crate) fn pattern(salt: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    let mut word = mix(&[salt]);
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        // A multiplier of full period (Knuth's, from MMIX): cheap, since there are many bytes.
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    bytes.truncate(len);
    bytes
}

/// Where a payload differs from the [`pattern`] of a salt, in words; `None` if it doesn't.
pub(crate) fn deviation(payload: &Payload<'_>, salt: u64) -> Option<String> {
    let (found, expected) = (payload.to_vec(), pattern(salt, payload.len()));
    if found == expected {
        return None;
    }
    let at = found.iter().zip(&expected).position(|(a, b)| a != b)?;
    Some(format!("byte {at} of {} is {:#04x} instead of {:#04x}", found.len(), found[at], expected[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_depend_on_salt_and_position_alone() {
        assert_eq!(pattern(3, 100)[..40], pattern(3, 40));
        assert_ne!(pattern(3, 100), pattern(4, 100));
        let mut bytes = pattern(5, 33);
        assert_eq!(deviation(&Payload::own(&bytes), 5), None);
        bytes[32] ^= 1;
        assert!(deviation(&Payload::own(&bytes), 5).is_some_and(|text| text.starts_with("byte 32 of 33")));
    }

    #[test]
    fn draws_repeat_and_stay_in_bounds() {
        let draw = |seed| {
            let mut random = Random::new(seed, 7);
            let mut order: Vec<u32> = (0..10).collect();
            random.shuffle(&mut order);
            (order, random.below(5), random.length(9), random.words(16))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut random = Random::new(1, 1);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.length(4) <= 4 && random.below(0) == 0));
    }
}
