//! Connections that end while both endpoints go on, as by a firewall that has forgotten them. The provider makes
//! new ones and says so only of what it has not told to be done.

use am_core::Segment;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use transport_ofi::wire::{Event, Fault, Operation, Wire};
use transport_ofi::{OfiConfig, Opened, Port};

/// Cuts a connection of this process, of which there is no other.
fn cut() {
    let list = Command::new("ss").args(["-HtnpO", "state", "established"]).output().expect("ss");
    let (list, me) = (String::from_utf8_lossy(&list.stdout), format!("pid={},", std::process::id()));
    let line = list.lines().find(|line| line.contains(&me)).expect("a connection");
    let ends: Vec<&str> = line.split_whitespace().skip(2).take(2).collect();
    let cut = Command::new("ss").args(["-HKtn", "src", ends[0], "dst", ends[1]]).output().expect("ss");
    assert!(!cut.stdout.is_empty(), "not cut: {}", String::from_utf8_lossy(&cut.stderr));
}

/// Writes that are told to be done are there, whatever becomes of the connection: none of them is lost while one
/// behind it, over a new connection, is not.
#[test]
#[ignore = "needs root and `ss -K`, and no other connections of this process"]
fn what_is_done_is_there() {
    let config = OfiConfig::default().provider("tcp").interface("127.0.0.1");
    let (parts, part) = (16, config.chunk_bytes);
    let segment = || {
        let words: Arc<[AtomicU64]> = (0..parts * part / 8).map(|_| AtomicU64::new(0)).collect();
        Segment::new(words, parts * part)
    };
    let (there, here) = (segment(), segment());
    let opened = match Opened::with_segment(&config, 2, here) {
        Ok(opened) => [opened, Opened::with_segment(&config, 2, there.clone()).unwrap()],
        Err(error) => return crate::skip("cut connections", "tcp", &error),
    };
    let cards = opened.each_ref().map(Opened::card);
    let cards = cards.each_ref().map(|card| Some(card.as_str()));
    let [mut a, mut b] = opened.map(|opened| opened.into_wire(&cards).unwrap());
    let first = a.sizes().frames;
    let (mut events, mut other) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let done = |events: &[Event], buffer: u32| events.contains(&Event::Done(Operation::Write(buffer)));
    let mut last_write = |a: &mut Port, events: &mut Vec<Event>, at: usize| {
        let buffer = first + at as u32;
        a.buffer(buffer).fill(7);
        let mut started = Err(Fault::Again);
        while !done(events, buffer) && !events.iter().any(|event| matches!(event, Event::Failed(..))) {
            if started == Err(Fault::Again) {
                started = a.write(1, buffer, part, (at * part) as u64);
            }
            a.poll(events).unwrap();
            b.poll(&mut other).unwrap();
        }
    };
    // Connects.
    last_write(&mut a, &mut events, 0);
    events.clear();
    // Nobody takes in what these write before the connection is cut.
    for at in 1..parts - 1 {
        let buffer = first + at as u32;
        a.buffer(buffer).fill(7);
        a.write(1, buffer, part, (at * part) as u64).unwrap();
        (0..1000).for_each(|_| a.poll(&mut events).unwrap());
    }
    cut();
    (0..100_000).for_each(|_| a.poll(&mut events).unwrap());
    let told: Vec<bool> = (1..parts - 1).map(|at| done(&events, first + at as u32)).collect();
    events.clear();
    last_write(&mut a, &mut events, parts - 1);
    assert!(done(&events, first + parts as u32 - 1), "{events:?}");
    for (at, told) in (1..).zip(told) {
        let bytes = there.view((at * part) as u64, part).unwrap().to_vec();
        assert!(!told || bytes.iter().all(|byte| *byte == 7), "part {at} was told to be done, and is not there");
    }
}
