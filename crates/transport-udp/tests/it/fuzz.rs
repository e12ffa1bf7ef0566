//! The entries of the fuzz targets as ordinary tests with many seeds: what peers and strangers may send, and what
//! a program may do, in any order. A failure prints the seed that repeats it.

use crate::entries::{datagrams, noise, operations, stranger};

fn each_seed(seeds: std::ops::Range<u64>, mut entry: impl FnMut(u64)) {
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| entry(seed)));
        assert!(result.is_ok(), "seed {seed} failed");
    }
}

#[test]
fn mutated_datagrams_never_break_a_machine() {
    let (mut taken, mut malformed) = (0, 0);
    each_seed(0..40, |seed| {
        let counts = datagrams(&noise(seed, 6000));
        (taken, malformed) = (taken + counts.0, malformed + counts.1);
    });
    assert!(malformed > 300 && taken > 300, "{malformed} {taken}");
}

#[test]
fn strangers_and_replays_change_nothing() {
    let mut dropped = 0;
    each_seed(0..40, |seed| dropped += stranger(&noise(seed, 4000)));
    assert!(dropped > 5000, "{dropped}");
}

#[test]
fn random_operations_never_break_a_machine() {
    each_seed(0..80, |seed| operations(&noise(seed, 600)));
}

/// `cargo test --release -p active-messages-udp --test it -- --ignored fuzz::`
#[test]
#[ignore = "the full profile takes minutes"]
fn many_seeds() {
    each_seed(1000..6000, |seed| {
        datagrams(&noise(seed, 6000));
    });
    each_seed(1000..6000, |seed| {
        stranger(&noise(seed, 4000));
    });
    each_seed(1000..6000, |seed| operations(&noise(seed, 600)));
}
