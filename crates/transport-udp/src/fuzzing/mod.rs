//! What fuzzers and ordinary tests call alike: each target turns bytes into datagrams or operations, and panics if
//! a machine does what it must not.

#![allow(missing_docs, reason = "for this project's own fuzzers and tests")]

pub mod world;

pub use crate::proto::authentic;

use crate::proto::{Config, Dropped, Protection};
use crate::sim::{self, SplitMix64};
use am_core::transport::{Arrival, Body, Departure, LossCause, PeerStatus, ReplyPath, Sink};
use am_core::{Payload, Peer, Span, Words};
use world::{SEGMENT, World, app};

/// Decisions, read from bytes until these are used up; then all are the first.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below a limit, which is above zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % limit
    }

    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }
}

/// Takes whatever comes, and answers some of it.
pub struct Swallow {
    pub taken: u64,
}

impl Sink for Swallow {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        self.taken += 1;
        if self.taken.is_multiple_of(3) && path.bound() > 0 {
            let _ = path.send(0, arrival.args, Body::None);
        }
    }

    fn reply(&mut self, _: Arrival<'_>) {
        self.taken += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {
        self.taken += 1;
    }
}

/// What a machine may ever have in buffers with the settings of these tests.
const MOST_BUFFERS: usize = 20 << 20;

/// Two ranks that have talked, and every datagram of it with its receiver.
pub fn recorded(seed: u64, protection: Protection, messages: u64) -> (World, Vec<(Peer, Vec<u8>)>) {
    let mut world = World::new(seed, 2, |config| config.protection = protection);
    world.net.recording = Some(Vec::new());
    for _ in 0..messages {
        let _ = world.send(Peer(0), Peer(1), 3000);
        let _ = world.send(Peer(1), Peer(0), 3000);
        let until = world.net.now() + Span::from_millis(2);
        world.step(until);
    }
    world.run(Span::from_secs(10), World::complete);
    let recording = world.net.recording.take().expect("it was being made");
    (world, recording)
}

/// Where the number of a data datagram is, and where its frames begin.
const NUMBER: std::ops::Range<usize> = 8..16;
const FRAMES: usize = 18;
/// First byte of a data datagram.
const DATA: u8 = 0xA1;

/// Changes a datagram as decided: bytes, bits, its end, parts of another, runs of the same.
fn mutate(bytes: &mut Vec<u8>, choices: &mut Choices<'_>, recording: &[(Peer, Vec<u8>)], from: usize) {
    for _ in 0..1 + choices.byte() % 4 {
        let len = bytes.len();
        if len <= from {
            return;
        }
        let at = from + choices.below(len - from);
        match choices.byte() % 8 {
            0 => bytes[at] = choices.byte(),
            1 => bytes[at] ^= 1 << (choices.byte() % 8),
            2 => bytes.truncate(at),
            3 => {
                // Frames of another datagram in the middle of this one.
                let other = &recording[choices.below(recording.len())].1;
                let start = FRAMES.min(other.len());
                let part = &other[start..start + choices.below(other.len() - start + 1)];
                bytes.splice(at..at, part.iter().copied());
            }
            4 => {
                bytes.drain(at..len.min(at + 1 + choices.below(40)));
            }
            5 => {
                let end = len.min(at + 1 + choices.below(40));
                bytes[at..end].fill(choices.byte());
            }
            6 => {
                // A large integer, as lengths and offsets may be.
                let number = choices.number().to_be_bytes();
                bytes.splice(at..len.min(at + 8), number);
            }
            _ => bytes.resize(len + choices.below(3000), 0),
        }
    }
}

/// Mutations of a valid session that anybody may have made: without authentication all reach the parsers and the
/// accounts. Returns how many were taken and how many were found malformed.
pub fn datagrams(data: &[u8]) -> (u64, u64) {
    let mut choices = Choices(data);
    let (mut world, recording) = recorded(u64::from(choices.byte() % 4), Protection::Unauthenticated, 8);
    let mine: Vec<_> = recording.into_iter().filter(|(to, bytes)| to.0 == 1 && bytes[0] == DATA).collect();
    let mut number = 1000u64;
    let mut buffer = vec![0; 2000];
    let mut sink = Swallow { taken: 0 };
    let (mut taken, mut malformed) = (0, 0);
    while !choices.is_empty() {
        let mut bytes = mine[choices.below(mine.len())].1.clone();
        let raw = choices.byte();
        if raw % 16 == 0 {
            // Frames of one's own behind a valid header.
            bytes.truncate(FRAMES);
            let len = choices.below(200);
            bytes.extend_from_slice(choices.take(len));
        } else {
            mutate(&mut bytes, &mut choices, &mine, if raw % 8 == 1 { 0 } else { FRAMES });
        }
        number += u64::from(raw % 3);
        if raw % 8 != 1 && bytes.len() >= FRAMES {
            bytes[NUMBER].copy_from_slice(&number.to_le_bytes());
            let len = bytes.len() as u16;
            bytes[16..18].copy_from_slice(&len.to_le_bytes());
        }
        let now = world.net.now();
        let machine = world.machine(1);
        match machine.handle(now, &mut bytes) {
            Ok(_) => taken += 1,
            Err(Dropped::Malformed) => malformed += 1,
            Err(_) => {}
        }
        if raw & 64 != 0 {
            machine.tick(now + Span::from_millis(20));
        }
        while machine.transmit(now, &mut buffer).is_some() {}
        machine.poll(now, 100, &mut sink);
        assert!(machine.buffer_bytes() <= MOST_BUFFERS, "{} bytes of buffers", machine.buffer_bytes());
    }
    (taken, malformed)
}

/// The same by somebody without the key: nothing is believed, nothing allocated, nothing answered at length, and
/// the session goes on. Returns how many datagrams were dropped.
pub fn stranger(data: &[u8]) -> u64 {
    let mut choices = Choices(data);
    let (mut world, recording) = recorded(u64::from(choices.byte() % 4), Protection::Encrypted, 6);
    let until = world.net.now() + Span::from_millis(100);
    while world.step(until) {}
    let handled = (world.apps[0].expected.clone(), world.apps[1].expected.clone());
    let mut buffer = vec![0; 2000];
    let mut dropped = 0;
    while !choices.is_empty() {
        let (to, original) = &recording[choices.below(recording.len())];
        let mut bytes = original.clone();
        // As it was (a replay), changed, or to the other side.
        let how = choices.byte();
        if how % 4 != 0 {
            mutate(&mut bytes, &mut choices, &recording, 0);
        }
        let to = if how & 128 != 0 { 1 - to.0 } else { to.0 };
        let (now, len) = (world.net.now(), bytes.len() as u64);
        let machine = world.machine(to);
        let (sent, buffers) = (machine.counters().sent_bytes, machine.buffer_bytes());
        let replayed_hello = bytes == *original && bytes.first() == Some(&0xA0);
        let result = machine.handle(now, &mut bytes);
        while machine.transmit(now, &mut buffer).is_some() {}
        let answered = machine.counters().sent_bytes - sent;
        if result.is_err() {
            dropped += 1;
            assert_eq!(answered, 0, "dropped and answered");
        } else {
            assert!(replayed_hello, "what was changed or played again was believed");
        }
        assert!(answered <= len, "{len} bytes were answered by {answered}");
        assert_eq!(machine.buffer_bytes(), buffers, "a stranger's datagram made buffers grow");
    }
    assert_eq!((&world.apps[0].expected, &world.apps[1].expected), (&handled.0, &handled.1));
    assert_eq!((world.lost(0, 1), world.lost(1, 0)), (None, None));
    let before = world.apps[0].sent[1];
    world.run(Span::from_secs(20), |world| {
        if world.apps[0].sent[1] < before + 3 {
            let _ = world.send(Peer(0), Peer(1), 3000);
        }
        world.apps[0].sent[1] == before + 3 && world.complete()
    });
    dropped
}

/// Every operation of the surface in any order on three ranks, with restarts, cuts and departures. In the end all
/// links are cut, and nobody may hold memory for anybody.
pub fn operations(data: &[u8]) {
    let mut choices = Choices(data);
    let seed = choices.number();
    let settings = |config: &mut Config| {
        config.rejoin = seed % 2 == 0;
        config.silence = Span::from_millis(400);
    };
    let mut world = World::new(seed, 3, settings);
    world.net.each_link(|_, _, link| (link.loss, link.jitter) = (100, Span::from_millis(1)));
    let mut sink = Swallow { taken: 0 };
    while !choices.is_empty() {
        let pair = choices.byte() % 9;
        let (a, b) = (u32::from(pair / 3), u32::from(pair % 3));
        let now = world.net.now();
        match choices.byte() % 32 {
            0..=12 => {
                // The ledger of the harness does not survive restarts, so messages are swallowed here.
                let _ = world.send(Peer(a), Peer(b), 5000);
                if let Some((to, bytes, _)) = world.apps[a as usize].pushing.take() {
                    let _ = world.machine(a).push(to, &bytes);
                }
            }
            13..=15 => world.machine(a).connect(now, Peer(b)),
            16..=18 => {
                let link = world.net.link(Peer(a), Peer(b));
                link.down = !link.down;
            }
            19 => {
                let mut config = world::config(3, a, now.0 + 1);
                settings(&mut config);
                let (machine, _) = sim::machine(config, SEGMENT).expect("the settings fit together");
                world.net.replace(Peer(a), Some(machine));
                world.apps[a as usize] = app(a, 3);
            }
            20 if choices.byte() % 8 == 0 => world.machine(a).depart(Departure::Left),
            21 if choices.byte() % 8 == 0 => {
                world.machine(a).declare(now, Peer(b), PeerStatus::Lost(LossCause::Died));
            }
            22..=24 => {
                let machine = world.machine(a);
                let _ = (machine.quiet(), machine.settled(), machine.credits(Peer(b)), machine.status(Peer(b)));
            }
            _ => {}
        }
        for rank in 0..3 {
            world.machine(rank).poll(now, 50, &mut sink);
            while world.machine(rank).next_event().is_some() {}
        }
        let until = now + Span::from_micros(choices.below(20_000) as u64);
        while world.net.step(until) {}
    }
    world.net.each_link(|_, _, link| link.down = true);
    (0..3).for_each(|rank| world.net.link(Peer(rank), Peer(rank)).down = true);
    for _ in 0..100 {
        let now = world.net.now();
        for rank in 0..3 {
            world.machine(rank).poll(now, 1000, &mut sink);
        }
        while world.net.step(now + Span::from_millis(10)) {}
    }
    for rank in 0..3 {
        assert_eq!(world.machine(rank).buffer_bytes_used(), 0, "seed {seed}: rank {rank} holds memory for nobody");
        for peer in 0..3 {
            let status = world.machine(rank).status(Peer(peer));
            assert!(status != PeerStatus::Lost(LossCause::Faulty), "seed {seed}: {rank} of {peer}");
        }
    }
}

/// Bytes for an entry from a seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(len).collect()
}
