//! How soon lost datagrams are made up for, in virtual time: the figures are the same on every machine and are
//! gated.
//!
//! `cargo test --release -p active-messages-udp --test it recovery -- --nocapture --include-ignored` prints the
//! table and draws `docs/udp-losses.svg`.

use crate::common::{World, config, words};
use am_conformance::CountingSink;
use am_core::transport::{ReplyBound, RequestHeader};
use am_core::{Peer, Span};
use std::collections::VecDeque;
use transport_udp::proto::Counters;
use transport_udp::sim::{self, Network};

const MIB: usize = 1 << 20;
const HEAD: RequestHeader = RequestHeader::new(0, ReplyBound::None);

/// A way between two endpoints: delay, bytes per second, and the largest datagram that is probed for.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    delay: Span,
    bandwidth: u64,
    limit: u16,
}

const WAYS: [Way; 3] = [
    Way { name: "loopback", delay: Span::from_micros(10), bandwidth: 4_000_000_000, limit: 65_487 },
    Way { name: "ethernet", delay: Span::from_micros(20), bandwidth: 1_250_000_000, limit: 1452 },
    Way { name: "far", delay: Span::from_millis(5), bandwidth: 125_000_000, limit: 1452 },
];

/// Two endpoints at the ends of a way without losses, which know how large their datagrams may be.
fn connected(way: Way, seed: u64) -> Network {
    let machines = (0..2).map(|me| {
        let mut config = config(2, me, u64::from(me));
        config.datagram_limit = way.limit;
        sim::machine(config, MIB).unwrap().0
    });
    let mut net = Network::new(seed, machines.collect());
    net.each_link(|_, _, link| (link.delay, link.bandwidth) = (way.delay, way.bandwidth));
    let now = net.now();
    net.machine(FROM).unwrap().connect(now, TO);
    while net.machine(FROM).unwrap().datagram_size(TO) != Some(way.limit) {
        step(&mut net, &mut CountingSink(0));
    }
    net
}

const FROM: Peer = Peer(0);
const TO: Peer = Peer(1);

/// Goes on to what happens next; both endpoints take what has come.
fn step(net: &mut Network, taken: &mut CountingSink) {
    let now = net.now();
    for peer in [FROM, TO] {
        net.machine(peer).unwrap().poll(now, 1000, taken);
    }
    net.step(now + Span::from_millis(10));
}

/// What some Shorts took from their request to their delivery, a millisecond after the one before was delivered.
fn shorts(way: Way, loss: u32, seed: u64, count: u64) -> Vec<Span> {
    let (mut net, mut taken) = (connected(way, seed), CountingSink(0));
    net.each_link(|_, _, link| link.loss = loss);
    let mut one = |_| {
        let (began, before) = (net.now(), taken.0);
        net.machine(FROM).unwrap().request(began, TO, HEAD, &words(0), None).unwrap();
        while taken.0 == before {
            let limit = net.now() + Span::from_millis(10);
            net.step(limit);
            let now = net.now();
            net.machine(TO).unwrap().poll(now, 1000, &mut taken);
        }
        let (took, pause) = (net.now() - began, net.now() + Span::from_millis(1));
        while net.now() < pause {
            let now = net.now();
            net.machine(TO).unwrap().poll(now, 1000, &mut taken);
            net.step(pause);
        }
        took
    };
    (0..count).map(&mut one).collect()
}

/// What some Longs of 1 MiB took, each acknowledged before the next, and what was counted at their sender.
fn longs(way: Way, loss: u32, seed: u64, count: u64) -> (Vec<Span>, Counters) {
    let (mut net, from, to) = (connected(way, seed), FROM, TO);
    let payload = vec![5; MIB];
    let mut taken = CountingSink(0);
    let mut step = |net: &mut Network| step(net, &mut taken);
    let mut took = Vec::new();
    for number in 0..count + 4 {
        if number == 4 {
            // The first ones find out what the way is like.
            net.each_link(|_, _, link| link.loss = loss);
            took.clear();
        }
        let began = net.now();
        // What is not acknowledged of the one before may still take the room.
        loop {
            let now = net.now();
            match net.machine(from).unwrap().long(now, to, HEAD, &words(0), MIB as u64, 0) {
                Ok(()) => break,
                Err(_) => step(&mut net),
            }
        }
        let mut pushed = 0;
        while pushed < MIB || !net.machine(from).unwrap().quiet() {
            pushed += net.machine(from).unwrap().push(to, &payload[pushed..]).unwrap();
            step(&mut net);
        }
        took.push(net.now() - began);
    }
    let counters = net.machine(from).unwrap().counters().clone();
    (took, counters)
}

fn micros(span: Span) -> f64 {
    span.as_secs_f64() * 1e6
}

/// What a Long took on average and at most in microseconds, in so many runs, and timeouts, losses and datagrams
/// sent.
fn sweep(way: Way, loss: u32, runs: u64, count: u64) -> (f64, f64, [u64; 3]) {
    let (mut all, mut sums) = (Vec::new(), [0; 3]);
    for seed in 0..runs {
        let (took, counters) = longs(way, loss, seed, count);
        all.extend(took.into_iter().map(micros));
        for (sum, count) in sums.iter_mut().zip([counters.timeouts, counters.lost, counters.sent]) {
            *sum += count;
        }
    }
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max), sums)
}

/// A path that carries none of the large datagrams that explore it: each of these is lost, and no message waits
/// for that. The longest time that a message took, of one every 5 ms while the path is explored.
#[test]
fn exploring_the_path_delays_no_message() {
    let way = Span::from_millis(50);
    let mut world = World::new(3, 2, |config| config.datagram_limit = 65_487);
    world.net.each_link(|_, _, link| (link.delay, link.largest) = (way, 1472));
    let (from, to) = (Peer(0), Peer(1));
    world.run(Span::from_secs(1), |world| world.send(from, to, 0).is_ok());
    world.run(Span::from_secs(1), World::complete);
    let head = RequestHeader::new(crate::common::SILENT, ReplyBound::None);
    let (mut longest, end) = (Span::ZERO, world.net.now() + Span::from_secs(10));
    let mut sent = VecDeque::new();
    while world.net.now() < end {
        let now = world.net.now();
        let number = world.apps[0].sent[1];
        world.machine(0).request(now, to, head, &words(number), None).unwrap();
        world.apps[0].sent[1] += 1;
        sent.push_back((world.apps[0].sent[1], now));
        while world.step(now + Span::from_millis(5)) {
            while sent.front().is_some_and(|(number, _)| *number <= world.apps[1].expected[0]) {
                let (_, at) = sent.pop_front().expect("it was there");
                longest = longest.max(world.net.now() - at);
            }
        }
    }
    let found = world.machine(0).datagram_size(to).unwrap();
    assert!(found > 1400 && longest.0 < way.0 + Span::from_millis(6).0, "{found} bytes, {longest}");
}

/// Bars on the loopback interface, whose round trips take 20 us: no loss waits for a timer that is longer than a
/// few of these and the time that acknowledgements may wait.
#[test]
fn a_loss_costs_a_round_trip_or_two() {
    let [none, one, ten, thirty] = [0, 10, 100, 300].map(|loss| sweep(WAYS[0], loss, 3, 15));
    println!("{none:?}\n{one:?}\n{ten:?}\n{thirty:?}");
    assert!(one.0 < 1.2 * none.0 && one.1 < 5e3, "{one:?}");
    assert!(ten.0 < 2.0 * none.0 && ten.1 < 1e4, "{ten:?}");
    assert!(thirty.0 < 9.0 * none.0 && thirty.1 < 5e4, "{thirty:?}");
}

/// Random loss alone, which takes large datagrams in a row now and then, makes no path narrower.
#[test]
fn chance_makes_no_path_narrower() {
    let [none, fifth] = [0, 200].map(|loss| sweep(WAYS[0], loss, 10, 20).2[2]);
    // Small datagrams would be fifty times as many.
    assert!(fifth < 2 * none, "{fifth} instead of {none} datagrams");
}

/// The losses of the table in thousandths.
const LOSSES: [u32; 6] = [0, 10, 50, 100, 200, 300];

#[test]
#[ignore = "prints the whole table"]
fn full_table() {
    println!("Long 1 MiB one by one, mean and longest in us (share of the rate without loss), timeouts, lost");
    println!("a Short a millisecond after the one before, mean and longest in us");
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for way in WAYS {
        let (best, ..) = sweep(way, 0, 1, 20);
        let [mut rate, mut time] = [Vec::new(), Vec::new()];
        for loss in LOSSES {
            let (mean, most, [timeouts, lost, sent]) = sweep(way, loss, 10, 20);
            let (percent, share) = (f64::from(loss) / 10.0, best / mean);
            let short: Vec<f64> = (0..10).flat_map(|seed| shorts(way, loss, seed, 100)).map(micros).collect();
            let (each, worst) =
                (short.iter().sum::<f64>() / short.len() as f64, short.iter().copied().fold(0.0, f64::max));
            println!(
                "{:<9} {percent:>4.1} %: {mean:>10.0} {most:>10.0} ({share:.2}) {timeouts:>6} {lost:>7} of {sent}\
                 ; Short {each:.0} {worst:.0}",
                way.name
            );
            rate.push((percent, MIB as f64 / mean));
            time.push((percent, each));
        }
        rates.push((way.name, rate));
        times.push((way.name, time));
    }
    let panels = [("Longs of 1 MiB, MB/s", rates), ("mean time of a Short, us", times)];
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/udp-losses.svg");
    std::fs::write(picture, super::picture::lines("share of datagrams lost, %", 30.0, &panels)).unwrap();
}
