//! Whoever has something to send, and a peer that takes it, does not wait for a timer: in virtual time, over ways
//! that lose and between ranks that share processors, everything arrives in a bounded number of round trips.

use crate::common::{config, words};
use am_conformance::CountingSink;
use am_core::transport::{ReplyBound, RequestHeader};
use am_core::{Instant, Peer, Span};
use transport_udp::proto::Counters;
use transport_udp::sim::{self, Network};

const HEAD: RequestHeader = RequestHeader::new(0, ReplyBound::None);

/// What endpoints send each other, and over what.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// Endpoints of each of two hosts; each talks to all of the other host.
    pairs: u32,
    /// Messages from each endpoint to each of the other host, and their payload in bytes.
    messages: u64,
    payload: usize,
    delay: Span,
    bandwidth: u64,
    /// Datagrams lost out of 1000.
    loss: u32,
    /// For how long an endpoint has a processor, and has none, in turns, on average.
    turns: Option<(Span, Span)>,
    socket_buffer: usize,
    limit: u16,
    /// Bytes of messages that wait for their acknowledgement, if others than usual.
    send_queue: Option<u32>,
}

/// What the system hands over at once.
const LOOK: Span = Span::from_micros(20);

/// How long it takes until all has been handled, and what was counted.
fn play(scene: Scene, seed: u64) -> (Span, Counters) {
    let Scene { pairs, messages, payload, .. } = scene;
    let ranks = 2 * pairs;
    let machines = (0..ranks).map(|me| {
        let mut config = config(ranks, me, u64::from(me));
        config.datagram_limit = scene.limit;
        config.send_queue = scene.send_queue.unwrap_or(config.send_queue);
        sim::machine(config, 4096).unwrap().0
    });
    let mut net = Network::new(seed, machines.collect());
    net.each_link(|_, _, link| (link.delay, link.bandwidth) = (scene.delay, scene.bandwidth));
    net.socket_buffer = scene.socket_buffer;
    let others = |me: u32| (0..pairs).map(move |other| Peer(if me < pairs { pairs + other } else { other }));
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for me in 0..ranks {
        taken.push(CountingSink(0));
        left.push(others(me).map(|to| (to, messages)).collect::<Vec<_>>());
        let now = net.now();
        others(me).for_each(|to| net.machine(Peer(me)).unwrap().connect(now, to));
    }
    let warm = net.now() + Span::from_millis(100);
    while net.now() < warm {
        net.step(warm);
    }
    net.each_link(|_, _, link| link.loss = scene.loss);
    let began = net.now();
    let mut ends: Vec<Instant> = vec![began; ranks as usize];
    let bytes = vec![7; payload];
    let due = u64::from(pairs) * messages;
    let limit = began + Span::from_secs(100);
    while taken.iter().any(|taken| taken.0 < due) {
        let now = net.now();
        assert!(now < limit, "{scene:?}, seed {seed}: not done");
        for me in 0..ranks as usize {
            let peer = Peer(me as u32);
            if !net.has_processor(peer) {
                continue;
            }
            if let Some((on, off)) = scene.turns
                && now >= ends[me]
            {
                let mut draw = |span: Span| Span(span.0 / 2 + net.rng().below(span.0));
                let (off, on) = (draw(off), draw(on));
                ends[me] = now + off + on;
                net.take_processor(peer, now + off);
                continue;
            }
            let machine = net.machine(peer).unwrap();
            machine.poll(now, 1000, &mut taken[me]);
            for (to, left) in &mut left[me] {
                while *left > 0 && machine.request(now, *to, HEAD, &words(0), Some(&bytes)).is_ok() {
                    *left -= 1;
                }
            }
        }
        net.step(now + LOOK);
    }
    let mut counters = Counters::default();
    let took = net.now() - began;
    for me in 0..ranks {
        let one = net.machine(Peer(me)).unwrap().counters();
        counters.sent += one.sent;
        counters.lost += one.lost;
        counters.timeouts += one.timeouts;
    }
    (took, counters)
}

/// How many round trips it took, in which acknowledgements wait and everybody gets a processor, for each that it
/// takes at best: one for every queue full of messages, and those in which the window grows.
fn rounds(scene: Scene, seed: u64) -> f64 {
    let (took, _) = play(scene, seed);
    let turn = scene.turns.map_or(0, |(on, off)| on.0 + off.0);
    let round = 2 * (scene.delay.0 + LOOK.0) + ACK_DELAY.0 + 2 * turn;
    let message = scene.payload as u64 + 90;
    let queue = scene.send_queue.unwrap_or(256 << 10);
    let queues = (scene.messages * message).div_ceil(u64::from(queue) / message * message);
    took.0 as f64 / round as f64 / (queues as f64 + 6.0)
}

const ACK_DELAY: Span = Span::from_micros(500);

const LOOPBACK: Scene = Scene {
    pairs: 1,
    messages: 1,
    payload: 8,
    delay: Span::from_micros(10),
    bandwidth: 4_000_000_000,
    loss: 0,
    turns: None,
    socket_buffer: 8 << 20,
    limit: 65_487,
    send_queue: None,
};

/// Two hosts of two ranks each, as in a test of RandomAccess.
const HOSTS: Scene = Scene { pairs: 2, bandwidth: 1_250_000_000, limit: 1452, ..LOOPBACK };

/// Messages and their bytes.
const PATTERNS: [(u64, usize); 6] = [(1, 8), (5, 8), (1000, 40), (100, 1000), (300, 4096), (30, 65_536)];

const TURNS: [Option<(Span, Span)>; 3] = [
    None,
    Some((Span::from_millis(1), Span::from_millis(1))),
    // As many ranks and helpers as share two processors with a window in which to wait for each other.
    Some((Span::from_micros(500), Span::from_millis(3))),
];

/// The most round trips, of what it takes at best, over all patterns and queues.
fn worst(scene: Scene, seeds: u64) -> f64 {
    let mut most: f64 = 0.0;
    for (messages, payload) in PATTERNS {
        for send_queue in [None, Some(80 << 10)] {
            let scene = Scene { messages, payload, send_queue, ..scene };
            most = (0..seeds).map(|seed| rounds(scene, seed)).fold(most, f64::max);
        }
    }
    most
}

/// Datagrams lost out of 1000, and the most round trips of what it takes at best: with processors of their own,
/// and with others in turns. What loses a fifth and more is congestion, whatever takes it, and sends four
/// datagrams in a round trip.
const BOUNDS: [(u32, f64, f64); 4] = [(0, 0.3, 1.3), (10, 0.5, 2.5), (100, 1.0, 6.0), (300, 10.0, 60.0)];

fn sweep(losses: &[(u32, f64, f64)], seeds: u64) {
    for (loss, alone, crowded) in losses.iter().copied() {
        for scene in [LOOPBACK, HOSTS] {
            for turns in TURNS {
                let scene = Scene { loss, turns, ..scene };
                let (most, bound) = (worst(scene, seeds), if turns.is_none() { alone } else { crowded });
                println!("{loss} of 1000 lost, {} a host, turns {turns:?}: {most:.2}", scene.pairs);
                assert!(most < bound, "{most:.2} instead of {bound}: {scene:?}");
            }
        }
    }
}

#[test]
fn nobody_waits_for_timers() {
    sweep(&[BOUNDS[0], BOUNDS[2]], 1);
}

/// A queue that has room for one of the largest messages, of which the last datagrams are fewer than one
/// acknowledgement waits for: nothing waits for its timer.
#[test]
fn one_message_at_a_time() {
    for (limit, payload) in [(1452, 65_536), (1452, 40_000), (4000, 65_536), (65_487, 65_536)] {
        let (messages, send_queue) = (100, Some(67_000));
        let scene = Scene { messages, payload, send_queue, limit, ..LOOPBACK };
        let (took, _) = play(scene, 1);
        let each = Span(took.0 / messages);
        println!("{payload} bytes in datagrams of {limit}: {each} each");
        assert!(each < Span(ACK_DELAY.0 / 2), "{each} each: {scene:?}");
    }
}

#[test]
#[ignore = "takes a minute"]
fn full_nobody_waits_for_timers() {
    sweep(&BOUNDS, 4);
}
