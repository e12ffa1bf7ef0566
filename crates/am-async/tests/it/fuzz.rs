//! The fuzz target as an ordinary test, with drawn inputs.

use am_async::fuzzing::hostile;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;

/// Plays so many duels; how many of them had an answered call.
fn duels(seeds: std::ops::Range<u64>) -> usize {
    let play = |seed: &u64| {
        let mut random = Pcg64::new((*seed).into(), 23);
        let mut data = vec![0; random.next_u64() as usize % 1200];
        random.fill_bytes(&mut data);
        let played = std::panic::catch_unwind(|| hostile(&data));
        played.unwrap_or_else(|panic| {
            eprintln!("seed {seed} fails");
            std::panic::resume_unwind(panic)
        })
    };
    seeds.filter(play).count()
}

#[test]
fn a_rank_that_breaks_the_protocol_breaks_nothing() {
    let answered = duels(0..120);
    assert!(answered > 15, "{answered} duels had an answered call");
}

/// `cargo test --release -p active-messages-async --test it -- --ignored full_ranks_that_break`
#[test]
#[ignore = "a hundred thousand duels take minutes"]
fn full_ranks_that_break_the_protocol_break_nothing() {
    duels(0..100_000);
}
