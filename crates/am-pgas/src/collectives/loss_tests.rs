//! Ranks that are lost while teams are made or shrunk, teams of other endpoints, and bits that come again.

use super::tests::{LONG, Ranks, play_over, tuned};
use super::{CollectiveError, Collectives, Max, Product, Sum};
use crate::Team;
use am_core::loopback::single;
use am_core::{Endpoint, Handlers, Rank, Span};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// The world, once all have it.
fn world_of_all(endpoint: &mut Ranks, made: &AtomicU32) -> Team {
    let world = Team::world(endpoint).unwrap();
    made.fetch_add(1, Ordering::Relaxed);
    while made.load(Ordering::Relaxed) < world.size() {
        let _ = endpoint.poll();
        thread::yield_now();
    }
    world
}

type Making = fn(&Team, &mut Ranks) -> Result<Option<Team>, CollectiveError>;

/// The ways to make a team of all members.
const MAKING: [Making; 4] = [
    |team, endpoint| team.split(endpoint, Some(0), 0),
    |team, endpoint| team.select(endpoint, &[0, 1, 2]),
    |team, endpoint| team.duplicate(endpoint).map(Some),
    |team, endpoint| team.split_by_host(endpoint).map(Some),
];

/// Whoever waits for a team that a lost rank does not make learns of the loss, and the others shrink what they
/// have.
#[test]
fn making_teams_ends_with_a_loss() {
    for (way, making) in MAKING.into_iter().enumerate() {
        for direct in [false, true] {
            let made = AtomicU32::new(0);
            let found = play_over(3, tuned(false, direct), |endpoint| {
                let world = world_of_all(endpoint, &made);
                if world.me() == 1 {
                    return None;
                }
                let lost = making(&world, endpoint).and_then(|team| team.unwrap().barrier(endpoint)).unwrap_err();
                let team = world.shrink(endpoint).unwrap();
                Some((lost.loss().map(|(rank, _)| rank), team.allreduce_one(endpoint, 1u32, Sum).unwrap()))
            });
            let expected = Some((Some(Rank(1)), 2));
            assert_eq!(found, [expected, None, expected], "way {way}, direct: {direct}");
        }
    }
}

/// A rank that takes part in shrinking a team is lost before the others are through.
#[test]
fn shrinking_loses_one_that_takes_part() {
    for lost in [1, 2] {
        let (made, voted) = (AtomicU32::new(0), AtomicU32::new(0));
        let found = play_over(4, tuned(false, true), |endpoint| {
            let world = world_of_all(endpoint, &made);
            let me = world.me();
            if me == 3 {
                return None;
            }
            if me == lost {
                // Its voice is heard, and no more of it.
                endpoint.set_timeout(Some(Span::from_millis(20)));
                let shrunk = world.shrink(endpoint);
                assert!(matches!(shrunk, Err(CollectiveError::Wait(_))), "{shrunk:?}");
                voted.store(1, Ordering::Relaxed);
                return None;
            }
            while voted.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            endpoint.set_timeout(Some(LONG));
            let team = world.shrink(endpoint).unwrap();
            Some((team.ranks().to_vec(), team.allreduce_one(endpoint, 1u32, Sum).unwrap()))
        });
        let survivors: Vec<_> = [0, 1, 2].into_iter().filter(|rank| *rank != lost).map(Rank).collect();
        for rank in &survivors {
            assert_eq!(found[rank.0 as usize], Some((survivors.clone(), 2)), "rank {rank}");
        }
    }
}

/// A team is of use with its own endpoint alone.
#[test]
fn teams_of_other_endpoints_are_refused() {
    let attach = || {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register(&mut handlers).unwrap();
        Endpoint::attach(single(), handlers, collectives).unwrap()
    };
    let (mut own, mut other) = (attach(), attach());
    let world = Team::world(&mut own).unwrap();
    let refused = CollectiveError::NotInTeam;
    assert_eq!(world.barrier(&mut other), Err(refused.clone()));
    assert_eq!(world.allreduce_one(&mut other, 1u32, Max), Err(refused.clone()));
    assert_eq!(world.broadcast(&mut other, 0, &mut [0u64; 100]), Err(refused.clone()));
    assert_eq!(world.allgather(&mut other, &[1u8], &mut []), Err(refused.clone()));
    assert_eq!(world.duplicate(&mut other).map(drop), Err(refused.clone()));
    assert_eq!(world.shrink(&mut other).map(drop), Err(refused.clone()));
    assert_eq!(world.clone().destroy(&mut other), Err(refused.clone()));
    let begun = world.allreduce_nb(&mut own, vec![7u32], Sum).unwrap();
    assert_eq!(begun.test(&mut other), Err(refused.clone()));
    assert_eq!(begun.wait(&mut other).map(drop), Err(refused));
    world.barrier(&mut own).unwrap();
}

/// Reductions of floating-point numbers have the same bits in every run, and allreduce on every rank, whatever
/// carries them.
#[test]
fn reductions_have_the_same_bits_again() {
    for direct in [false, true] {
        for count in [1, 3, 700, 20_000] {
            let reduce = || {
                play_over(5, tuned(false, direct), |endpoint| {
                    let world = Team::world(endpoint).unwrap();
                    let own = |at: usize| 1e9f64.powi(world.me() as i32 - 2) / (at + 3) as f64;
                    let own: Vec<f64> = (0..5 * count).map(own).collect();
                    let mut all = own[..count].to_vec();
                    world.allreduce(endpoint, &mut all, Sum).unwrap();
                    let mut root = own[..count].to_vec();
                    world.reduce(endpoint, 3, &mut root, Sum).unwrap();
                    let mut scanned = own[..count].to_vec();
                    world.scan(endpoint, &mut scanned, Product).unwrap();
                    let mut part = vec![0.0; count];
                    world.reduce_scatter(endpoint, &own, &mut part, Sum).unwrap();
                    let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
                    Some([all, root, scanned, part].map(bits))
                })
            };
            let (first, second) = (reduce(), reduce());
            assert!(first == second, "{count} elements, direct: {direct}");
            let all = first.iter().flatten().map(|[all, ..]| all);
            assert!(
                all.clone().all(|bits| Some(bits) == all.clone().next()),
                "{count} elements, direct: {direct}"
            );
        }
    }
}
