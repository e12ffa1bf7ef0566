//! The protocol over a seeded network with faults of every kind: everything arrives once, in order and unharmed,
//! with bounded memory. A failure prints the seed that repeats it.

use crate::common::World;
use am_core::{Peer, Span};
use transport_udp::sim::SplitMix64;

/// A run under one seed, which decides the faults too. Returns the trace of the run.
fn run(seed: u64) -> u64 {
    let mut choice = SplitMix64(seed ^ 0x5eed);
    let ranks = 2 + choice.below(3) as u32;
    let small = choice.chance(300);
    let mut world = World::new(seed, ranks, |config| {
        if small {
            // Little room: windows of a few hundred bytes, loans for everything else.
            config.medium = 6000;
            (config.send_queue, config.send_budget) = (8000, 16000);
            (config.receive_budget, config.bulk_queue) = (14_000, 4096);
            (config.reply_window, config.reply_budget) = (8000, 12_000);
        }
    });
    world.late = seed % 2 == 1;
    let loss = [0, 10, 100, 300][choice.below(4) as usize];
    world.net.each_link(|_, _, link| {
        link.delay = Span::from_micros(5 + choice.below(2000));
        link.jitter = Span::from_micros(choice.below(3000) * choice.below(2));
        link.loss = choice.below(loss + 1) as u32;
        link.duplication = choice.below(100) as u32;
        link.corruption = choice.below(50) as u32;
        link.largest = 1200 + choice.below(400) as usize;
        link.bandwidth = choice.below(2) * 10_000_000;
    });
    let most = if small { 6000 } else { 20_000 };
    for _ in 0..60 * ranks {
        let (from, to) = (Peer(choice.below(ranks.into()) as u32), Peer(choice.below(ranks.into()) as u32));
        // What is refused now may be accepted in the next round; giving up after a while keeps runs short.
        for _ in 0..40 {
            if world.send(from, to, most).is_ok() {
                break;
            }
            let until = world.net.now() + Span::from_millis(5);
            world.step(until);
        }
        if choice.chance(100) {
            let (a, b) = (Peer(0), Peer(1));
            let down = world.net.link(a, b).down;
            world.net.link(a, b).down = !down && choice.chance(300);
        }
    }
    world.net.each_link(|_, _, link| link.down = false);
    world.run(Span::from_secs(120), World::complete);
    for rank in 0..ranks {
        assert_eq!(world.machine(rank).losses(), 0);
    }
    world.run(Span::from_secs(60), |world| (0..ranks).all(|rank| world.machine(rank).settled()));
    for rank in 0..ranks {
        assert_eq!(world.machine(rank).buffer_bytes_used(), 0, "all memory has come back");
    }
    // Long replies are queued whole, in addition to the budgets.
    let slack = 2048 * 6 * ranks as usize + 64 * 5000;
    let budget = if small { 14_000 + 16_000 + 24_000 + 4096 * 4 } else { (8 + 4 + 8 + 4) << 20 };
    assert!(world.peak <= budget + slack, "{} bytes", world.peak);
    world.net.trace()
}

fn seeds(range: std::ops::Range<u64>) {
    for seed in range {
        let result = std::panic::catch_unwind(|| run(seed));
        if result.is_err() {
            panic!("seed {seed} failed");
        }
    }
}

#[test]
fn everything_arrives_under_60_seeds() {
    seeds(0..60);
}

#[test]
#[ignore = "the full profile, for release builds"]
fn full_everything_arrives_under_3000_seeds() {
    seeds(60..3060);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
