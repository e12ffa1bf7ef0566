//! The generator of the streams of ranks, nodes and injectors: one word of state each. What the links do is drawn
//! from [`fault_rng`](crate::fault_rng).

/// The next number of a stream (SplitMix64), whose state may begin as any word.
#[inline]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the generator's authors publish them for a state of 1234567.
    #[test]
    fn the_published_numbers_come() {
        let mut state = 1_234_567;
        let numbers = [(); 3].map(|()| splitmix64(&mut state));
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
