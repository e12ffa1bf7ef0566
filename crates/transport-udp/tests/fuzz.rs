//! Authentic nonsense and random operation sequences: a peer that holds the key can end its own session, and nothing else.

mod common;

use am_core::transport::{Arrival, Departure, LossCause, PeerStatus, Port, Sink};
use am_core::{Payload, Peer, Span, Words};
use common::{World, app};
use transport_udp::proto::{Dropped, Protection};
use transport_udp::sim::{self, SplitMix64};

/// Takes whatever comes.
struct Swallow;

impl Sink for Swallow {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn Port) {}
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

/// Without authentication every mutation of a real datagram reaches the parsers and the session's accounts.
#[test]
fn mutated_datagrams_never_break_a_machine() {
    let (mut malformed, mut taken) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, 2, |config| config.protection = Protection::Unauthenticated);
        world.net.recording = Some(Vec::new());
        for _ in 0..20 {
            let _ = world.send(Peer(0), Peer(1), 3000);
            let _ = world.send(Peer(1), Peer(0), 3000);
            let until = world.net.now() + Span::from_millis(2);
            world.step(until);
        }
        world.run(Span::from_secs(10), World::complete);
        let recording = world.net.recording.take().unwrap();
        let data: Vec<_> = recording.into_iter().filter(|(to, bytes)| to.0 == 1 && bytes[0] == 0xA1).collect();
        let mut rng = SplitMix64(seed);
        let now = world.net.now();
        let mut number = 1000u64;
        for _ in 0..500 {
            let (_, mut bytes) = data[rng.below(data.len() as u64) as usize].clone();
            number += rng.below(3);
            bytes[8..16].copy_from_slice(&number.to_le_bytes());
            for _ in 0..1 + rng.below(4) {
                let at = 16 + rng.below(bytes.len() as u64 - 16) as usize;
                bytes[at] = rng.next_u64() as u8 >> rng.below(8);
            }
            if rng.chance(200) {
                bytes.truncate(16 + rng.below(bytes.len() as u64 - 16) as usize);
            }
            match world.machine(1).handle(now, &mut bytes) {
                Ok(_) => taken += 1,
                Err(Dropped::Malformed) => malformed += 1,
                Err(_) => {}
            }
            let mut buffer = vec![0; 2000];
            while world.machine(1).transmit(now, &mut buffer).is_some() {}
            // Messages may be anything now; what counts is that the machine survives and memory stays bounded.
            world.machine(1).poll(now, 100, &mut Swallow);
            assert!(world.machine(1).buffer_bytes() < 16 << 20);
        }
    }
    assert!(malformed > 300 && taken > 300, "{malformed} {taken}");
}

/// Every operation of the surface in any order, with restarts, cuts and departures.
#[test]
fn random_operations_never_break_a_machine() {
    for seed in 0..80 {
        let mut rng = SplitMix64(seed);
        let settings = |config: &mut transport_udp::proto::Config| {
            config.rejoin = seed % 2 == 0;
            config.silence = Span::from_millis(400);
        };
        let mut world = World::new(seed, 3, settings);
        world.net.each_link(|_, _, link| (link.loss, link.jitter) = (100, Span::from_millis(1)));
        for _ in 0..150 {
            let (a, b) = (rng.below(3) as u32, rng.below(3) as u32);
            let now = world.net.now();
            match rng.below(12) {
                0..=4 => {
                    // The books of the harness do not survive restarts, so messages are swallowed here.
                    let _ = world.send(Peer(a), Peer(b), 5000);
                    if let Some((to, bytes, _)) = world.apps[a as usize].pushing.take() {
                        let _ = world.machine(a).push(to, &bytes);
                    }
                }
                5 => world.machine(a).connect(now, Peer(b)),
                6 => {
                    let link = world.net.link(Peer(a), Peer(b));
                    link.down = !link.down;
                }
                7 if rng.chance(150) => {
                    let mut config = common::config(3, a, now.0 + 1);
                    settings(&mut config);
                    world.net.replace(Peer(a), Some(sim::machine(config, common::SEGMENT).unwrap().0));
                    world.apps[a as usize] = app(a, 3);
                }
                8 if rng.chance(50) => world.machine(a).depart(Departure::Left),
                9 => {
                    let _ =
                        (world.machine(a).quiet(), world.machine(a).settled(), world.machine(a).credits(Peer(b)));
                }
                _ => {}
            }
            for rank in 0..3 {
                world.machine(rank).poll(now, 50, &mut Swallow);
                while world.machine(rank).next_event().is_some() {}
            }
            let until = now + Span::from_micros(rng.below(20_000));
            while world.net.step(until) {}
        }
        // All links are cut: in the end nobody holds memory for anybody.
        for (a, b) in (0..9).map(|i| (i / 3, i % 3)) {
            world.net.link(Peer(a), Peer(b)).down = true;
        }
        for _ in 0..100 {
            let now = world.net.now();
            for rank in 0..3 {
                world.machine(rank).poll(now, 1000, &mut Swallow);
            }
            while world.net.step(now + Span::from_millis(10)) {}
        }
        for rank in 0..3 {
            assert_eq!(world.machine(rank).buffer_bytes_used(), 0, "seed {seed}");
            for peer in 0..3 {
                let status = world.machine(rank).status(Peer(peer));
                assert!(status != PeerStatus::Lost(LossCause::Faulty), "seed {seed}: {rank} of {peer}");
            }
        }
    }
}
