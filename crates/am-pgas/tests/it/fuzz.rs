//! The fuzz target as an ordinary test, with drawn inputs.

use crate::aggregate::random;
use am_pgas::fuzzing::hostile;

/// Plays so many duels; how many messages were changed.
fn duels(seeds: std::ops::Range<u64>) -> usize {
    let play = |first: u64| {
        let mut seed = first;
        let len = random(&mut seed, 1500);
        let data: Vec<u8> = (0..len).map(|_| random(&mut seed, 256) as u8).collect();
        let played = std::panic::catch_unwind(|| hostile(&data));
        played.unwrap_or_else(|panic| {
            eprintln!("seed {first} fails");
            std::panic::resume_unwind(panic)
        })
    };
    seeds.map(play).sum()
}

#[test]
fn a_rank_that_breaks_the_protocols_breaks_nothing() {
    let changed = duels(0..40);
    assert!(changed > 200, "{changed} messages were changed");
}

/// `cargo test --release -p active-messages-pgas --test it -- --ignored full_ranks_that_break`
#[test]
#[ignore = "fifty thousand duels take minutes"]
fn full_ranks_that_break_the_protocols_break_nothing() {
    duels(0..50_000);
}
