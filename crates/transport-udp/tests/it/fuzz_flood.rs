//! A stranger's flood allocates nothing, whatever its datagrams look like: held by a counting allocator.

use crate::entries::{noise, recorded};
use am_conformance::allocations;
use am_core::{Peer, Span};
use transport_udp::proto::{Dropped, Protection};

#[test]
fn a_flood_allocates_nothing_and_is_not_answered() {
    let (mut world, recording) = recorded(7, Protection::Encrypted, 10);
    let until = world.net.now() + Span::from_millis(100);
    while world.step(until) {}
    // Made beforehand: noise of every length, the session once more, whole, cut, flipped and too long.
    let mut flood: Vec<Vec<u8>> = (0..2000).map(|seed| noise(seed, seed as usize % 1700)).collect();
    for (_, bytes) in recording.iter().filter(|(to, bytes)| *to == Peer(1) && bytes[0] == 0xA1) {
        flood.push(bytes.clone());
        flood.push(bytes[..bytes.len() / 2].to_vec());
        flood.extend((0..bytes.len()).step_by(3).map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 16;
            bytes
        }));
        flood.push([&bytes[..], &[0; 2000]].concat());
    }
    let now = world.net.now();
    let machine = world.machine(1);
    let mut buffer = vec![0; 2000];
    while machine.transmit(now, &mut buffer).is_some() {}
    let (sent, before) = (machine.counters().sent, allocations());
    for bytes in &mut flood {
        assert!(machine.handle(now, bytes).is_err());
        assert!(machine.transmit(now, &mut buffer).is_none());
    }
    assert_eq!(allocations() - before, 0, "allocations for {} datagrams of strangers", flood.len());
    assert_eq!(machine.counters().sent, sent);
    for reason in [Dropped::Stranger, Dropped::Oversized, Dropped::Replayed, Dropped::Forged, Dropped::WrongEpoch]
    {
        assert!(machine.counters().dropped[reason as usize] > 0, "{reason:?}");
    }
}
