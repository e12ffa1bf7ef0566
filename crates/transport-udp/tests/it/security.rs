//! Strangers, forgers, replays, predecessors: dropped, counted, never answered at length, never believed.

use crate::common::{SEGMENT, World, app, config};
use am_core::transport::{LossCause, PeerStatus, Refused};
use am_core::{Peer, Span};
use transport_udp::proto::{Config, Dropped, Event, Protection};
use transport_udp::sim::{self, SplitMix64};

fn exchange(world: &mut World, count: u64) {
    let before = world.apps[0].sent[1];
    world.run(Span::from_secs(60), |world| {
        if world.apps[0].sent[1] < before + count {
            let _ = world.send(Peer(0), Peer(1), 3000);
        }
        world.apps[0].sent[1] == before + count && world.complete()
    });
}

fn dropped(world: &mut World, rank: u32, reason: Dropped) -> u64 {
    world.machine(rank).counters().dropped[reason as usize]
}

#[test]
fn a_recorded_session_changes_nothing_when_played_again() {
    let mut world = World::new(1, 2, |_| {});
    world.net.recording = Some(Vec::new());
    exchange(&mut world, 40);
    let recording = world.net.recording.take().unwrap();
    let (sums, bytes) = (world.apps[1].expected[0], recording.len());
    // To their receiver in the running session, and to the wrong one.
    for (to, datagram) in &recording {
        world.net.inject(*to, datagram.clone());
        world.net.inject(Peer(1 - to.0), datagram.clone());
    }
    let until = world.net.now() + Span::from_millis(100);
    while world.step(until) {}
    assert_eq!(world.apps[1].expected[0], sums);
    let replayed = dropped(&mut world, 1, Dropped::Replayed) + dropped(&mut world, 0, Dropped::Replayed);
    assert!(replayed as usize > bytes / 2, "{replayed} of {bytes}");
    assert_eq!((world.lost(0, 1), world.lost(1, 0)), (None, None));
    exchange(&mut world, 10);

    // And to a restarted rank, which knows nothing of it: no message, no session, no allocation.
    let (machine, _) = sim::machine(config(2, 1, 999), SEGMENT).unwrap();
    world.net.replace(Peer(0), None);
    world.net.replace(Peer(1), Some(machine));
    world.apps[1] = app(1, 2);
    for (_, datagram) in recording.iter().filter(|(to, _)| to.0 == 1) {
        world.net.inject(Peer(1), datagram.clone());
    }
    let until = world.net.now() + Span::from_secs(1);
    while world.step(until) {}
    assert_eq!(world.apps[1].expected[0], 0);
    assert!(!world.machine(1).is_connected(Peer(0)));
    assert_eq!(world.machine(1).buffer_bytes(), 0);
    assert!(dropped(&mut world, 1, Dropped::NoSession) > 0);
}

#[test]
fn a_stranger_that_floods_gets_nothing_and_delays_nobody() {
    let mut world = World::new(2, 2, |_| {});
    exchange(&mut world, 5);
    let mut rng = SplitMix64(3);
    let sent = world.machine(1).counters().sent;
    let buffers = world.machine(1).buffer_bytes();
    for round in 0..20_000u32 {
        let len = rng.below(1600) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        // Half of them look right as far as can be seen without the key.
        let head: &[u8] = if round % 4 == 0 { &[0xA0, 3, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0] } else { &[0xA1, 0] };
        if round % 2 == 0 && bytes.len() >= 12 {
            bytes[..head.len()].copy_from_slice(head);
            bytes[4..8].copy_from_slice(&[0; 4]);
            if round % 8 == 0 {
                bytes.resize(108, 1);
            }
        }
        let now = world.net.now();
        assert!(world.machine(1).handle(now, &mut bytes).is_err());
    }
    world.net.flush();
    assert_eq!(world.machine(1).counters().sent, sent, "strangers are not answered");
    assert_eq!(world.machine(1).buffer_bytes(), buffers);
    let counters = world.machine(1).counters().dropped;
    assert_eq!(counters.iter().sum::<u64>(), 20_000);
    for reason in [Dropped::Stranger, Dropped::Oversized, Dropped::Forged, Dropped::WrongEpoch] {
        assert!(counters[reason as usize] > 0, "{reason:?}");
    }
    exchange(&mut world, 5);
}

#[test]
fn a_replayed_hello_is_answered_by_no_more_than_itself() {
    let mut world = World::new(4, 2, |_| {});
    world.net.recording = Some(Vec::new());
    exchange(&mut world, 3);
    let recording = world.net.recording.take().unwrap();
    let now = world.net.now();
    world.net.flush();
    let hellos = recording.into_iter().filter(|(to, bytes)| to.0 == 1 && bytes[0] == 0xA0);
    let mut count = 0;
    for (_, mut hello) in hellos {
        let len = hello.len() as u64;
        let before = world.machine(1).counters().sent_bytes;
        let _ = world.machine(1).handle(now, &mut hello);
        let mut buffer = vec![0; 2000];
        while world.machine(1).transmit(now, &mut buffer).is_some() {}
        assert!(world.machine(1).counters().sent_bytes - before <= len);
        count += 1;
    }
    assert!(count > 0);
    exchange(&mut world, 3);
}

#[test]
fn all_modes_carry_messages() {
    for protection in [Protection::Encrypted, Protection::PlainText, Protection::Unauthenticated] {
        let mut world = World::new(5, 2, |config| config.protection = protection);
        world.net.recording = Some(Vec::new());
        exchange(&mut world, 20);
        // The pattern of the first request with a payload of some size must not be readable when encrypted.
        let recording = world.net.recording.take().unwrap();
        let needles: Vec<Vec<u8>> = (0..20).map(|number| crate::common::pattern(Peer(0), number, 16)).collect();
        let visible = |bytes: &[u8]| bytes.windows(16).any(|window| needles.iter().any(|needle| needle == window));
        let seen = recording.iter().any(|(_, bytes)| visible(bytes));
        assert_eq!(seen, protection != Protection::Encrypted);
        if protection != Protection::Unauthenticated {
            let now = world.net.now();
            let before = dropped(&mut world, 1, Dropped::Forged);
            let data = recording.iter().rfind(|(to, bytes)| to.0 == 1 && bytes[0] == 0xA1).unwrap();
            let mut forged = data.1.clone();
            // A number that was not used yet, under a tag made for another.
            forged[13] ^= 1;
            assert_eq!(world.machine(1).handle(now, &mut forged), Err(Dropped::Forged));
            assert_eq!(dropped(&mut world, 1, Dropped::Forged), before + 1);
        }
    }
}

#[test]
fn a_wrong_secret_never_connects() {
    let mut world = World::new(6, 2, |_| {});
    let mut other = config(2, 1, 6);
    other.secrets.job[0] ^= 1;
    world.net.replace(Peer(1), Some(sim::machine(other, SEGMENT).unwrap().0));
    assert!(matches!(world.send(Peer(0), Peer(1), 0), Err(Refused::Busy(_))));
    world.run(Span::from_secs(30), |world| world.lost(0, 1).is_some());
    assert_eq!(world.lost(0, 1), Some(LossCause::Silent));
    assert!(dropped(&mut world, 1, Dropped::Forged) > 5);
    assert!(matches!(world.send(Peer(0), Peer(1), 0), Err(Refused::Gone(_))));
}

#[test]
fn other_settings_are_told_apart_on_both_sides() {
    let mut world = World::new(7, 2, |_| {});
    let mut other = config(2, 1, 7);
    other.medium = 4096;
    world.net.replace(Peer(1), Some(sim::machine(other, SEGMENT).unwrap().0));
    let _ = world.send(Peer(0), Peer(1), 0);
    let told = |world: &World, rank: usize| {
        world.apps[rank]
            .events
            .iter()
            .any(|e| matches!(e, Event::Incompatible { ours, theirs, .. } if ours != theirs))
    };
    world.run(Span::from_secs(5), |world| told(world, 0) && told(world, 1));
    assert_eq!(world.machine(0).status(Peer(1)), PeerStatus::Lost(LossCause::Incompatible));
}

/// A restarted rank takes over, at any loss; what its predecessor sent or was sent does not reach it.
#[test]
fn a_restarted_rank_is_not_its_predecessor() {
    for seed in 0..60 {
        let mut world = World::new(seed, 2, |config| config.rejoin = true);
        world.net.each_link(|_, _, link| {
            link.loss = (seed % 4) as u32 * 100;
            link.duplication = 100;
            link.jitter = Span::from_millis(2);
        });
        exchange(&mut world, 2);
        for _ in 0..30 {
            let _ = world.send(Peer(0), Peer(1), 3000);
            let _ = world.send(Peer(1), Peer(0), 3000);
            let until = world.net.now() + Span::from_millis(1);
            world.step(until);
        }
        let mut reborn = config(2, 1, 1000 + seed);
        reborn.rejoin = true;
        world.net.replace(Peer(1), Some(sim::machine(reborn, SEGMENT).unwrap().0));
        world.apps[1] = app(1, 2);
        // The newcomer makes itself known; until then rank 0 talks to the old session.
        let now = world.net.now();
        world.machine(1).connect(now, Peer(0));
        world.run(Span::from_secs(30), |world| world.lost(0, 1).is_some());
        assert_eq!(world.lost(0, 1), Some(LossCause::Restarted), "seed {seed}");
        let events = std::mem::take(&mut world.apps[0].events);
        world.apps[0] = app(0, 2);
        world.apps[0].events = events;
        exchange(&mut world, 10);
        assert_eq!(world.machine(0).losses(), 1, "seed {seed}: lost once");
    }
}

/// What a predecessor once said to open its session is authentic, but it is not said now.
#[test]
fn a_predecessors_hello_changes_nothing() {
    let mut world = World::new(10, 2, |config| config.rejoin = true);
    world.net.recording = Some(Vec::new());
    exchange(&mut world, 5);
    let recording = world.net.recording.take().unwrap();
    let hellos: Vec<Vec<u8>> = recording
        .into_iter()
        .filter(|(to, bytes)| to.0 == 0 && bytes[0] == 0xA0)
        .map(|(_, bytes)| bytes)
        .collect();
    assert!(!hellos.is_empty());
    let mut reborn = config(2, 1, 1010);
    reborn.rejoin = true;
    world.net.replace(Peer(1), Some(sim::machine(reborn, SEGMENT).unwrap().0));
    world.apps[1] = app(1, 2);
    let now = world.net.now();
    world.machine(1).connect(now, Peer(0));
    world.run(Span::from_secs(30), |world| world.lost(0, 1).is_some());
    let events = std::mem::take(&mut world.apps[0].events);
    world.apps[0] = app(0, 2);
    world.apps[0].events = events;
    exchange(&mut world, 5);
    for hello in hellos {
        for _ in 0..3 {
            world.net.inject(Peer(0), hello.clone());
        }
        let until = world.net.now() + Span::from_millis(50);
        while world.step(until) {}
        assert_eq!(world.machine(0).losses(), 1, "the session with the successor lasts");
        assert!(world.machine(0).is_connected(Peer(1)));
    }
    exchange(&mut world, 5);
    assert_eq!(world.machine(0).losses(), 1);
}

/// The same secret, other settings, another run: what was recorded then says nothing now, whether a session is
/// open, being opened or not wanted yet.
#[test]
fn hellos_of_an_earlier_run_are_not_judged() {
    let hellos = |ranks: u32, change: fn(&mut Config)| {
        let mut world = World::new(100, ranks, change);
        world.net.recording = Some(Vec::new());
        exchange(&mut world, 3);
        let recording = world.net.recording.take().unwrap();
        recording.into_iter().filter(|(to, bytes)| to.0 == 0 && bytes[0] == 0xA0 && bytes[4] == 1)
    };
    let earlier: Vec<Vec<u8>> = (hellos(3, |_| {})
        .chain(hellos(2, |config| config.ack_delay = Span::from_micros(400))))
    .chain(hellos(2, |config| config.datagram_limit = 9000))
    .map(|(_, bytes)| bytes)
    .collect();
    assert!(earlier.len() >= 6);
    for moment in 0..8 {
        let mut world = World::new(101 + moment, 2, |_| {});
        let play = |world: &mut World| {
            earlier.iter().for_each(|hello| world.net.inject(Peer(0), hello.clone()));
        };
        if moment > 0 {
            let _ = world.send(Peer(0), Peer(1), 0);
        }
        for _ in 0..moment {
            play(&mut world);
            let until = world.net.now() + Span::from_micros(15);
            world.step(until);
        }
        play(&mut world);
        exchange(&mut world, 5);
        play(&mut world);
        exchange(&mut world, 5);
        assert_eq!((world.lost(0, 1), world.machine(0).losses(), world.machine(1).losses()), (None, 0, 0));
    }
}

/// What looks like many datagrams in one costs one look at a Hello, and a row's worth of looks at others.
#[test]
fn a_datagram_of_forged_ones_is_mostly_not_looked_at() {
    let mut world = World::new(11, 2, |config| config.datagram_limit = 9000);
    exchange(&mut world, 3);
    world.net.recording = Some(Vec::new());
    exchange(&mut world, 3);
    let recording = world.net.recording.take().unwrap();
    let (_, data) = recording.iter().rfind(|(to, bytes)| to.0 == 1 && bytes[0] == 0xA1).unwrap();
    let now = world.net.now();
    let looked = |world: &mut World| {
        let counters = world.machine(1).counters();
        let surplus = counters.dropped[Dropped::Surplus as usize];
        (counters.received + counters.dropped.iter().sum::<u64>() - surplus, surplus)
    };
    let mut hello = vec![0; 108];
    hello[..12].copy_from_slice(&[0xA0, 3, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    // The epoch is that of the session, the number one that was not used.
    let mut forged = data[..34].to_vec();
    (forged[14], forged[16], forged[17]) = (1, 34, 0);
    let before = looked(&mut world);
    world.machine(1).handle_row(now, &mut hello.repeat(600));
    assert_eq!(looked(&mut world), (before.0 + 1, before.1 + 1));
    world.machine(1).handle_row(now, &mut forged.repeat(1900));
    assert_eq!(looked(&mut world), (before.0 + 65, before.1 + 2));
    assert_eq!(dropped(&mut world, 1, Dropped::Forged), 65);
    world.machine(1).handle_row(now, &mut [&forged[..], &hello, &forged, &hello, &forged].concat());
    assert_eq!(looked(&mut world), (before.0 + 68, before.1 + 3));
    exchange(&mut world, 3);
}

#[test]
fn secrets_are_wiped_once_keys_are_derived() {
    let mut world = World::new(12, 2, |_| {});
    let secrets = &world.machine(0).config().secrets;
    assert!(secrets.job.is_empty() && secrets.incarnation == [0; 32]);
}

#[test]
fn without_rejoin_a_restarted_rank_stays_out() {
    let mut world = World::new(9, 2, |_| {});
    exchange(&mut world, 5);
    world.net.replace(Peer(1), Some(sim::machine(config(2, 1, 77), SEGMENT).unwrap().0));
    let now = world.net.now();
    world.machine(1).connect(now, Peer(0));
    world.run(Span::from_secs(30), |world| world.lost(0, 1).is_some() && world.lost(1, 0).is_some());
    assert_eq!(world.machine(0).status(Peer(1)), PeerStatus::Lost(LossCause::Restarted));
    assert!(matches!(world.send(Peer(0), Peer(1), 0), Err(Refused::Gone(_))));
}
