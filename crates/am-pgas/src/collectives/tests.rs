//! Ranks as threads over the loopback transport: what the layer's state holds, which programs do not see.

use super::{Collectives, Sum, Tuning};
use crate::Team;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Span};
use std::thread;

type Ranks = Endpoint<Loopback, Collectives>;

/// Runs `part` on every rank.
fn run<R: Send>(ranks: u32, direct: bool, part: impl Fn(&mut Ranks, &Team) -> R + Sync) -> Vec<R> {
    let transports = network(ranks, LoopbackConfig { direct, ..LoopbackConfig::default() });
    let play = |transport| {
        let mut handlers = Handlers::<Collectives>::new();
        let collectives = Collectives::register(&mut handlers).unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, collectives).unwrap();
        let world = Team::world(&mut endpoint).unwrap();
        let outcome = part(&mut endpoint, &world);
        world.barrier(&mut endpoint).unwrap();
        endpoint.finish().unwrap();
        outcome
    };
    thread::scope(|scope| {
        let threads: Vec<_> = transports.into_iter().map(|transport| scope.spawn(|| play(transport))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// One rank begins thousands of broadcasts that the others have not come to: what waits at them stays within the window.
#[test]
fn what_waits_is_bounded_however_far_a_rank_is_ahead() {
    const AHEAD: u32 = 20_000;
    let waited = run(3, true, |endpoint, world| {
        let other = world.duplicate(endpoint).unwrap();
        let mut handles = Vec::new();
        if world.me() == 0 {
            for value in 0..AHEAD {
                handles.push(world.broadcast_nb(endpoint, 0, vec![value; 2]).unwrap());
            }
        }
        // What the other team does takes several polls, and comes through.
        for _ in 0..10 {
            other.allreduce_one(endpoint, 1u32, Sum).unwrap();
        }
        let _ = endpoint.wait_until_for(Span::from_millis(5), |_| false);
        let waited = endpoint.layer::<Collectives>().waiting();
        for value in 0..if world.me() == 0 { 0 } else { AHEAD } {
            let mut found = [0; 2];
            world.broadcast(endpoint, 0, &mut found).unwrap();
            assert_eq!(found, [value; 2]);
        }
        for (handle, value) in handles.into_iter().zip(0..) {
            assert_eq!(handle.wait(endpoint).unwrap(), [value; 2]);
        }
        waited
    });
    let window = Tuning::default().window as usize;
    for (messages, bytes) in &waited[1..] {
        // Rank 2 has rank 0 or rank 1 as its parent; nobody else sends.
        assert!(*messages <= window && *bytes == 8 * messages, "{messages} messages of {bytes} bytes");
    }
    assert_eq!(waited[1].0, window, "rank 0 sends as much as it may");
}

/// A handle that is dropped lets its operation go on, as the others need it.
#[test]
fn dropped_operations_go_on() {
    let sums = run(3, false, |endpoint, world| {
        let handle = world.allreduce_nb(endpoint, vec![1u64; 2000], Sum).unwrap();
        if world.me() == 1 {
            drop(handle);
            world.barrier(endpoint).unwrap();
            return None;
        }
        let sum = handle.wait(endpoint).unwrap();
        world.barrier(endpoint).unwrap();
        Some(sum)
    });
    assert_eq!(sums, [Some(vec![3; 2000]), None, Some(vec![3; 2000])]);
}

/// Teams whose last clone is gone leave nothing behind.
#[test]
fn teams_go_with_their_last_clone() {
    let left = run(2, true, |endpoint, world| {
        for _ in 0..50 {
            let copy = world.duplicate(endpoint).unwrap();
            assert_eq!(copy.allreduce_one(endpoint, 1u8, Sum).unwrap(), 2);
        }
        endpoint.layer::<Collectives>().engine().teams()
    });
    assert!(left.iter().all(|teams| *teams <= 3), "{left:?} teams are left");
}

/// The same sum of floating-point numbers has the same bits in every run and on every rank, and with [`super::Ordered`] whatever the count.
#[test]
fn sums_have_the_same_bits() {
    let sum = |count: usize| {
        run(7, true, |endpoint, world| {
            let mut elements: Vec<f64> = (0..count).map(|_| 1.0 / f64::from(world.me() + 3)).collect();
            elements[0] *= 1e17;
            world.allreduce(endpoint, &mut elements, super::Ordered(Sum)).unwrap();
            elements.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        })
    };
    let (short, long) = (sum(2), sum(5000));
    assert!(short.iter().all(|bits| *bits == short[0]) && long.iter().all(|bits| *bits == long[0]));
    assert_eq!(short[0][1], long[0][4999]);
    assert_eq!(sum(2), short);
}
